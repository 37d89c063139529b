//! The receiving half of a process's NIC: responders, what they have to say, and the inboxes that they fill.

use super::config::{Config, Recovery};
use super::packet::{self, Address, PORT, Packet, Segment};
use super::responder::{Answer, Fate, Responder};
use crate::transport::{Outgoing, Report};
use srd_wire::Time;
use std::collections::{BTreeMap, VecDeque};

/// What comes of a data packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Taken {
    /// It had come before.
    pub(super) again: bool,
    /// What is to be told.
    pub(super) report: Option<Report>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Inbox {
    bytes: u64,
    placed: u64,
}

/// The receiving half.
pub(super) struct Inbound {
    responders: Vec<Responder>,
    /// Which they are, by the requester.
    numbers: BTreeMap<(Address, u32), u32>,
    /// What they have to say.
    answers: VecDeque<(u32, Answer)>,
    /// Which of them have a notification to send.
    notifications: VecDeque<u32>,
    /// The same, from then on.
    late_notifications: VecDeque<(Time, u32)>,
    inboxes: Vec<Inbox>,
}

impl Inbound {
    pub(super) fn new(inboxes: u32) -> Inbound {
        Inbound {
            responders: Vec::new(),
            numbers: BTreeMap::new(),
            answers: VecDeque::new(),
            notifications: VecDeque::new(),
            late_notifications: VecDeque::new(),
            inboxes: vec![Inbox::default(); inboxes as usize],
        }
    }

    /// An inbox is empty, and so much will come.
    pub(super) fn expect(&mut self, inbox: u32, bytes: u64) {
        self.inboxes[inbox as usize] = Inbox { bytes, placed: 0 };
    }

    /// Bytes that are where they belong.
    pub(super) fn placed(&self, inbox: u32) -> u64 {
        self.inboxes[inbox as usize].placed
    }

    /// A data packet has come. `port` makes a source port for a new responder.
    pub(super) fn take(
        &mut self,
        now: Time,
        segment: &Segment,
        marked: bool,
        config: &Config,
        port: impl FnOnce(u64) -> u16,
    ) -> Taken {
        let Segment { from, qp, .. } = *segment;
        let number = *self.numbers.entry((from, qp)).or_insert_with(|| {
            let number = self.responders.len() as u32;
            let irn = config.recovery == Recovery::Irn;
            self.responders.push(Responder::new(from, qp, port(!(number as u64)), irn));
            number
        });
        let responder = &mut self.responders[number as usize];
        let notified = config.dcqcn.filter(|dcqcn| marked && responder.notifies(now, dcqcn.cnp_interval));
        let (fate, answer) = responder.receive(now, segment.psn, segment.ack, config.nak_again);
        match answer {
            Answer::None => {}
            Answer::Ack if responder.ack_waits => {}
            Answer::Ack => {
                responder.ack_waits = true;
                self.answers.push_back((number, answer));
            }
            Answer::Nak | Answer::SelectiveNak(_) => self.answers.push_back((number, answer)),
        }
        if let Some(dcqcn) = notified {
            self.late_notifications.push_back((now + dcqcn.cnp_delay, number));
            self.notify(now);
        }
        let mut report = None;
        if fate == Fate::Placed {
            let inbox = &mut self.inboxes[segment.inbox as usize];
            inbox.placed += segment.bytes as u64;
            report = (inbox.placed == inbox.bytes).then_some(Report::Received { inbox: segment.inbox });
        }
        Taken { again: fate == Fate::Again, report }
    }

    /// When [`Inbound::notify`] is to be called.
    pub(super) fn notifies_at(&self) -> Time {
        self.late_notifications.front().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Lets notifications go whose time has come.
    pub(super) fn notify(&mut self, now: Time) {
        while let Some(&(_, number)) = self.late_notifications.front().filter(|(at, _)| *at <= now) {
            self.late_notifications.pop_front();
            self.notifications.push_back(number);
        }
    }

    /// The next congestion notification.
    pub(super) fn next_notification(&mut self, class: u8) -> Option<Outgoing<Packet>> {
        let responder = &self.responders[self.notifications.pop_front()? as usize];
        Some(bare(responder, packet::NOTIFICATION, class, Packet::Notification { qp: responder.qp }))
    }

    /// The next ACK or NAK.
    pub(super) fn next_answer(&mut self, class: u8) -> Option<Outgoing<Packet>> {
        let (number, answer) = self.answers.pop_front()?;
        let responder = &mut self.responders[number as usize];
        let (nak, sack, bytes) = match answer {
            Answer::None | Answer::Ack => {
                responder.ack_waits = false;
                (false, None, packet::ACK)
            }
            Answer::Nak => (responder.naks(), None, packet::ACK),
            Answer::SelectiveNak(sack) => (true, Some(sack), packet::SELECTIVE_NAK),
        };
        let ack = Packet::Ack { qp: responder.qp, psn: responder.expected(), nak, sack };
        Some(bare(responder, bytes, class, ack))
    }
}

/// A packet without data.
fn bare(responder: &Responder, bytes: u32, class: u8, content: Packet) -> Outgoing<Packet> {
    Outgoing {
        to: responder.from.host,
        process: responder.from.process,
        ports: (responder.port, PORT),
        bytes,
        class,
        ecn_capable: false,
        content,
    }
}
