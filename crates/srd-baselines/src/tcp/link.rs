//! The sending end of a connection, and the messages that it carries.

use super::segment::{Address, Connection, Data};
use super::sender::{Leaving, Sender};
use crate::transport::Order;
use srd_wire::Time;
use std::collections::VecDeque;

/// A message on a connection.
pub struct Message {
    /// Its flow.
    pub flow: u32,
    /// What it fills.
    pub inbox: u32,
    /// Its bytes; `u64::MAX`: without end.
    pub bytes: u64,
    /// Its first segment.
    pub first: u64,
    /// The segment after its last; `u64::MAX`: without end.
    pub end: u64,
}

/// The sending end of a connection.
pub struct Link {
    /// How many the process had opened before.
    pub serial: u32,
    /// Its state.
    pub sender: Sender,
    /// Its channel.
    pub channel: u32,
    /// Where it leads.
    pub to: Address,
    /// Source and destination port.
    pub ports: (u16, u16),
    /// Messages that are not acknowledged, in order.
    pub messages: VecDeque<Message>,
    /// Messages behind one without end.
    pub behind: VecDeque<Order>,
}

/// Segments of a message.
pub fn segments(bytes: u64, full: u32) -> u64 {
    match bytes {
        u64::MAX => u64::MAX,
        bytes => bytes.div_ceil(full as u64).max(1),
    }
}

impl Link {
    /// Another message.
    pub fn append(&mut self, order: Order, full: u32) {
        let first = self.sender.end();
        if first == u64::MAX {
            return self.behind.push_back(order);
        }
        let end = first.saturating_add(segments(order.bytes, full));
        self.messages.push_back(Message { flow: order.flow, inbox: order.inbox, bytes: order.bytes, first, end });
        self.sender.set_end(end);
    }

    /// The message without end ends with what has been sent.
    pub fn stop(&mut self, flow: u32, full: u32) {
        match self.messages.back_mut().filter(|message| message.flow == flow) {
            Some(message) => {
                message.end = self.sender.next().max(message.first);
                self.sender.set_end(message.end);
                for order in std::mem::take(&mut self.behind) {
                    self.append(order, full);
                }
            }
            None => self.behind.retain(|order| order.flow != flow),
        }
    }

    /// The segment that leaves.
    pub fn segment(&self, now: Time, from: Address, slot: u32, leaving: &Leaving, full: u32) -> Data {
        let after = self.messages.partition_point(|message| message.end <= leaving.number);
        let message = &self.messages[after];
        let left = message.bytes - (leaving.number - message.first) * full as u64;
        Data {
            from,
            connection: Connection { slot, serial: self.serial },
            ports: self.ports,
            inbox: message.inbox,
            first: message.first,
            number: leaving.number,
            payload: left.min(full as u64) as u32,
            sent_at: now,
            push: leaving.push || leaving.number + 1 == message.end,
            reduced: leaving.reduced,
        }
    }
}
