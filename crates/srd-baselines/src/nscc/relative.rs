//! Transports that are NSCC but for what their section says.

use super::{Nscc, NsccAddress, NsccConfig, Packet};
use crate::frame::FrameHead;
use crate::input::InputError;
use crate::section::Section;
use crate::transport::{Counts, Order, Outgoing, Report, Role, Transport, WireCost};
use crate::{Baseline, Surroundings};
use srd_wire::Time;
use std::marker::PhantomData;

/// What makes such a transport another: see [`Baseline`].
pub trait Relation {
    /// What scenarios call it.
    const NAME: &'static str;
    /// Keys of its section.
    const KEYS: &'static [&'static str];
    /// Whether captures can show its packets.
    const HAS_HEADERS: bool;
    /// Whether processes count who sends to them.
    const COUNTS_SENDERS: bool;

    /// Reads its section.
    fn read(section: &Section<'_>, around: &Surroundings) -> Result<NsccConfig, InputError>;
}

/// A process that speaks it.
pub struct Relative<R>(pub(super) Nscc, PhantomData<R>);

impl<R: Relation> Baseline for Relative<R> {
    type Config = NsccConfig;

    const NAME: &'static str = R::NAME;
    const KEYS: &'static [&'static str] = R::KEYS;
    const HAS_HEADERS: bool = R::HAS_HEADERS;
    const COUNTS_SENDERS: bool = R::COUNTS_SENDERS;

    fn read(section: &Section<'_>, around: &Surroundings) -> Result<NsccConfig, InputError> {
        R::read(section, around)
    }

    fn takes_cut_packets(config: &NsccConfig) -> bool {
        Nscc::takes_cut_packets(config)
    }

    fn open(role: &Role, config: &NsccConfig) -> Relative<R> {
        Relative(Nscc::open(role, config), PhantomData)
    }

    fn cost(config: &NsccConfig, mtu: u16, overhead: u32) -> WireCost {
        Nscc::cost(config, mtu, overhead)
    }
}

impl<R: Relation> Transport for Relative<R> {
    type Content = Packet;
    type Address = NsccAddress;

    fn address(&self) -> NsccAddress {
        self.0.address()
    }

    fn expect(&mut self, from: &NsccAddress, inbox: u32, bytes: u64) {
        self.0.expect(from, inbox, bytes);
    }

    fn start(&mut self, now: Time, order: Order, to: &NsccAddress) {
        self.0.start(now, order, to);
    }

    fn stop(&mut self, now: Time, flow: u32) {
        self.0.stop(now, flow);
    }

    fn receive(&mut self, now: Time, arrived: Time, head: &FrameHead, content: &Packet) {
        self.0.receive(now, arrived, head, content);
    }

    fn poll_transmit<S>(&mut self, now: Time, sink: impl FnMut(Outgoing<Packet>) -> S) -> Option<S> {
        self.0.poll_transmit(now, sink)
    }

    fn set_paused(&mut self, classes: u8) {
        self.0.set_paused(classes);
    }

    fn senders(&self, now: Time) -> u16 {
        self.0.senders(now)
    }

    fn set_neighbours(&mut self, senders: u16) {
        self.0.set_neighbours(senders);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.0.handle_timeout(now);
    }

    fn next_timeout(&self) -> Time {
        self.0.next_timeout()
    }

    fn poll_report(&mut self) -> Option<Report> {
        self.0.poll_report()
    }

    fn delivered(&mut self, inbox: u32) -> u64 {
        self.0.delivered(inbox)
    }

    fn counts(&self) -> Counts {
        self.0.counts()
    }
}
