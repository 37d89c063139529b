//! A process of a simulation in which real ones run: a rank of the user's program, or one that carries flows beside them.

use crate::hosts::any_host::AnyHost;
use crate::hosts::process::{Birth, Process};
use crate::hosts::rank_process::{Datagram, NearDatagram, RankProcess};
use crate::net::{Content, DataPacket, FrameHead};
use srd_baselines::transport::{Counts, Order, Outgoing, Report, Transport};
use srd_wire::Time;

/// See the module.
#[allow(clippy::large_enum_variant)]
pub enum RankHost {
    /// A real process.
    Rank(RankProcess),
    /// One of flows.
    Other(AnyHost),
}

/// What its frames carry.
#[derive(Clone, Debug)]
pub enum RankContent {
    /// Bytes of a real process.
    Rank(Datagram),
    /// What flows' packets say.
    Other(<AnyHost as Transport>::Content),
}

/// How others name it.
#[derive(Clone, Debug)]
pub enum RankAddress {
    /// A real process.
    Rank(<RankProcess as Transport>::Address),
    /// One of flows.
    Other(<AnyHost as Transport>::Address),
}

/// Does the same with whatever it is.
macro_rules! each {
    ($host:expr, $it:ident => $what:expr) => {
        match $host {
            RankHost::Rank($it) => $what,
            RankHost::Other($it) => $what,
        }
    };
}

impl RankHost {
    /// A rank.
    pub fn rank_mut(&mut self) -> Option<&mut RankProcess> {
        match self {
            RankHost::Rank(rank) => Some(rank),
            RankHost::Other(_) => None,
        }
    }
}

impl Content for RankContent {
    fn trim(&mut self) -> Option<u32> {
        match self {
            RankContent::Rank(content) => content.trim(),
            RankContent::Other(content) => content.trim(),
        }
    }

    fn connection(&self) -> Option<u32> {
        match self {
            RankContent::Rank(content) => content.connection(),
            RankContent::Other(content) => content.connection(),
        }
    }

    fn data(&self) -> Option<DataPacket> {
        match self {
            RankContent::Rank(content) => content.data(),
            RankContent::Other(content) => content.data(),
        }
    }
}

impl Process for RankHost {
    const RUNS_PROGRAMS: bool = true;
    type Near = NearDatagram;

    fn poll_near(&mut self) -> Option<(u32, NearDatagram)> {
        self.rank_mut()?.poll_near()
    }

    fn receive_near(&mut self, near: NearDatagram) {
        self.rank_mut().expect("what is near is a rank's").receive_near(near);
    }

    fn new(birth: Birth<'_>) -> RankHost {
        match birth.program {
            Some(_) => RankHost::Rank(RankProcess::new(birth)),
            None => RankHost::Other(AnyHost::new(birth)),
        }
    }
}

impl Transport for RankHost {
    type Content = RankContent;
    type Address = RankAddress;

    fn address(&self) -> Self::Address {
        match self {
            RankHost::Rank(rank) => RankAddress::Rank(rank.address()),
            RankHost::Other(host) => RankAddress::Other(host.address()),
        }
    }

    fn expect(&mut self, from: &Self::Address, inbox: u32, bytes: u64) {
        match (self, from) {
            (RankHost::Other(host), RankAddress::Other(from)) => host.expect(from, inbox, bytes),
            _ => unreachable!("a rank has no flows"),
        }
    }

    fn start(&mut self, now: Time, order: Order, to: &Self::Address) {
        match (self, to) {
            (RankHost::Other(host), RankAddress::Other(to)) => host.start(now, order, to),
            _ => unreachable!("a rank has no flows"),
        }
    }

    fn stop(&mut self, now: Time, flow: u32) {
        each!(self, it => it.stop(now, flow));
    }

    fn meet(&mut self, ranks: &[RankAddress]) {
        let of_rank = |address: &RankAddress| match address {
            RankAddress::Rank(rank) => Some(*rank),
            RankAddress::Other(_) => None,
        };
        let ranks: Vec<_> = ranks.iter().filter_map(of_rank).collect();
        if let Some(rank) = self.rank_mut() {
            rank.meet(&ranks);
        }
    }

    fn program_timeout(&self) -> Time {
        each!(self, it => it.program_timeout())
    }

    fn receive(&mut self, now: Time, arrived: Time, head: &FrameHead, content: &RankContent) {
        match (self, content) {
            (RankHost::Rank(rank), RankContent::Rank(content)) => rank.receive(now, arrived, head, content),
            (RankHost::Other(host), RankContent::Other(content)) => host.receive(now, arrived, head, content),
            _ => unreachable!("a process gets what its peers send"),
        }
    }

    fn poll_transmit<R>(&mut self, now: Time, mut sink: impl FnMut(Outgoing<RankContent>) -> R) -> Option<R> {
        match self {
            RankHost::Rank(rank) => rank.poll_transmit(now, |it| sink(it.map(RankContent::Rank))),
            RankHost::Other(host) => host.poll_transmit(now, |it| sink(it.map(RankContent::Other))),
        }
    }

    fn set_paused(&mut self, classes: u8) {
        each!(self, it => it.set_paused(classes));
    }

    fn senders(&self, now: Time) -> u16 {
        each!(self, it => it.senders(now))
    }

    fn set_neighbours(&mut self, senders: u16) {
        each!(self, it => it.set_neighbours(senders));
    }

    fn handle_timeout(&mut self, now: Time) {
        each!(self, it => it.handle_timeout(now));
    }

    fn next_timeout(&self) -> Time {
        each!(self, it => it.next_timeout())
    }

    fn poll_report(&mut self) -> Option<Report> {
        each!(self, it => it.poll_report())
    }

    fn delivered(&mut self, inbox: u32) -> u64 {
        each!(self, it => it.delivered(inbox))
    }

    fn counts(&self) -> Counts {
        each!(self, it => it.counts())
    }
}
