//! A simulated process that runs a program (`apps`) over the messaging layer and SRD: `srd-msg` and `srd-device` as they
//! are, with memory in which only headers have bytes. Messages to programs of the same host take shared memory where the
//! host's settings have it. Flows are none of its business.

use crate::apps::{Completion, Messaging, Rank};
use crate::hosts::intra_node::{Near, SharedMemory};
use crate::hosts::process::{Birth, Process};
use crate::hosts::srd_nic::{Nic, SrdContent, transport_config};
use crate::net::FrameHead;
use srd_baselines::transport::{Counts, Order, Outgoing, Report, Transport};
use srd_device::{DeviceConfig, HeaderMemory, HeaderPayload};
use srd_msg::{
    Domain, EndpointId, Failure, Identity, Iov, Match, PeerAddr, PeerId, Recv, Refused, Registration,
    RemoteIov, RemoteRights, Rma, Send, TxFlags,
};
use srd_wire::{Nanos, Time};
use std::collections::VecDeque;
use std::num::NonZeroU32;

/// Where a program sends from and receives into: an address of its own memory, which has no bytes.
const BUFFER: u64 = 1 << 40;
/// Bytes there: more than a program moves at once.
const BUFFER_BYTES: u64 = 1 << 40;

/// How others reach a process.
#[derive(Clone, Copy, Debug)]
pub struct MsgAddress {
    at: PeerAddr,
    host: u32,
    /// Of its memory, for one-sided transfers.
    key: u64,
}

/// See the module.
pub struct MsgProcess {
    rank: Rank,
    layers: Layers,
    /// Its end has been reported.
    reported: bool,
    /// It looks at what has completed at multiples of this; zero: at once.
    looks_every: Nanos,
    /// When it looks again, if there may be something.
    looks_at: Time,
}

/// What carries the program's messages.
struct Layers {
    nic: Nic<HeaderMemory>,
    domain: Domain<HeaderMemory>,
    endpoint: EndpointId,
    at: PeerAddr,
    /// Of this process's memory.
    key: u64,
    shared_memory: Option<SharedMemory>,
    /// Longest message whose send is over at once, and such sends of which the program has not been told.
    inject_size: u64,
    injected: VecDeque<u32>,
    /// By rank; peers as soon as they are needed.
    ranks: Vec<(MsgAddress, Option<PeerId>)>,
}

impl MsgProcess {
    /// What the messaging layer has counted.
    pub fn messages(&self) -> &srd_msg::Counters {
        self.layers.domain.counters()
    }

    /// Something may have completed.
    fn look(&mut self, now: Time) {
        match self.looks_every {
            Nanos(0) => self.go_on(now),
            Nanos(every) => self.looks_at = self.looks_at.min(Time(now.0.next_multiple_of(every))),
        }
    }

    /// Something may have completed, or may be possible now.
    fn go_on(&mut self, now: Time) {
        self.looks_at = Time::NEVER;
        self.layers.domain.progress(&mut self.layers.nic.device, now);
        self.rank.advance(now, &mut self.layers);
    }
}

impl Layers {
    fn peer(&mut self, rank: u32) -> PeerId {
        let (MsgAddress { at, .. }, known) = self.ranks[rank as usize];
        known.unwrap_or_else(|| {
            let peer = self.domain.peer(&mut self.nic.device, self.endpoint, at);
            let peer = peer.expect("there are fewer ranks than an endpoint knows peers");
            self.ranks[rank as usize].1 = Some(peer);
            peer
        })
    }

    /// The way to a rank of the same host, if it does not lead over the network nic.
    fn near(&mut self, rank: u32) -> Option<&mut SharedMemory> {
        let here = self.ranks[rank as usize].0.host == self.nic.host();
        self.shared_memory.as_mut().filter(|_| here)
    }

    /// Reads another rank's memory or writes to it.
    fn one_sided(&mut self, now: Time, rank: u32, read: bool, bytes: u64, request: u32) -> bool {
        if let Some(shared_memory) = self.near(rank) {
            shared_memory.copy(now, bytes, request);
            return true;
        }
        let to = self.peer(rank);
        let key = self.ranks[rank as usize].0.key;
        let rma = Rma {
            to,
            read,
            local: &[Iov { addr: BUFFER, len: bytes }],
            remote: &[RemoteIov { addr: BUFFER, len: bytes, key }],
            data: None,
            context: request as u64,
            flags: TxFlags { report: true, ..TxFlags::default() },
        };
        taken(self.domain.rma(&mut self.nic.device, now, self.endpoint, &rma))
    }
}

/// Whether a request was taken. Programs make none that are wrong.
fn taken(result: Result<(), Refused>) -> bool {
    match result {
        Ok(()) => true,
        Err(Refused::Again) => false,
        Err(refused) => panic!("a program's request is refused: {refused:?}"),
    }
}

impl Messaging for Layers {
    fn send(&mut self, now: Time, to: u32, tag: u64, bytes: u64, request: u32) -> bool {
        if let Some(shared_memory) = self.near(to) {
            shared_memory.send(now, to, tag, bytes, request);
            return true;
        }
        let to = self.peer(to);
        let iov = &[Iov { addr: BUFFER, len: bytes }];
        // As MPI libraries do it: a short message is copied away, and its send is over.
        let inject = bytes <= self.inject_size;
        let flags = TxFlags { report: !inject, inject, ..TxFlags::default() };
        let send = Send { to, tag: Some(tag), iov, data: None, context: request as u64, flags };
        let taken = taken(self.domain.send(&mut self.nic.device, now, self.endpoint, &send));
        if taken && inject {
            self.injected.push_back(request);
        }
        taken
    }

    fn recv(&mut self, now: Time, from: u32, tag: u64, bytes: u64, request: u32) -> bool {
        if let Some(shared_memory) = self.near(from) {
            shared_memory.recv(now, from, tag, request);
            return true;
        }
        let recv = Recv {
            from: Some(self.peer(from)),
            matching: Match::Tagged { tag, ignore: 0 },
            iov: &[Iov { addr: BUFFER, len: bytes }],
            context: request as u64,
            report: true,
            multi: false,
            claim: false,
        };
        taken(self.domain.recv(&mut self.nic.device, now, self.endpoint, &recv))
    }

    fn put(&mut self, now: Time, to: u32, bytes: u64, request: u32) -> bool {
        self.one_sided(now, to, false, bytes, request)
    }

    fn get(&mut self, now: Time, from: u32, bytes: u64, request: u32) -> bool {
        self.one_sided(now, from, true, bytes, request)
    }

    fn poll(&mut self, now: Time) -> Option<Completion> {
        let near = self.shared_memory.as_mut().and_then(|shared_memory| shared_memory.poll(now));
        if let Some(request) = near {
            return Some(Completion { request, failed: None });
        }
        if let Some(request) = self.injected.pop_front() {
            return Some(Completion { request, failed: None });
        }
        // Sends that were over at once end here a second time.
        let done = std::iter::from_fn(|| self.domain.poll_done()).find(|done| done.report)?;
        Some(Completion { request: done.context as u32, failed: done.error.map(why) })
    }
}

fn why(failure: Failure) -> &'static str {
    match failure {
        Failure::Truncated { .. } => "the message is longer than its receive",
        Failure::PeerLost(status) | Failure::Device(status) => srd_device::describe(status),
        Failure::Canceled | Failure::Closing => "cancelled",
        Failure::MemoryGone => "its memory has gone",
        Failure::NoMessage => "no such message",
        Failure::RemoteAccess { .. } => "the peer permits no access",
        Failure::RemoteUnsupported => "the peer cannot do that",
    }
}

impl Process for MsgProcess {
    const RUNS_PROGRAMS: bool = true;
    type Near = Near;

    fn poll_near(&mut self) -> Option<(u32, Near)> {
        self.layers.shared_memory.as_mut()?.poll_outgoing()
    }

    fn receive_near(&mut self, near: Near) {
        let shared_memory = self.layers.shared_memory.as_mut();
        shared_memory.expect("all programs of a host have it, or none").arrives(near);
    }

    fn rank(&self) -> Option<&Rank> {
        Some(&self.rank)
    }

    fn new(birth: Birth<'_>) -> MsgProcess {
        let (number, program) = birth.program.expect("this transport is for programs");
        let config = DeviceConfig { transport: transport_config(&birth), ..DeviceConfig::default() };
        // As the provider's: a message that needs no rendezvous goes in one piece.
        let max_msg = birth.settings.messages.device_message().max(config.max_msg);
        let config = DeviceConfig { max_msg, ..config };
        let mut nic = Nic::new(&birth.role, config, HeaderMemory::default());
        let device = &mut nic.device;
        let never = "a new device has room for one of each";
        let mut domain = Domain::open(device, birth.settings.messages).expect(never);
        let qpn = device.create_qp(domain.qp_init()).expect(never);
        let identity = NonZeroU32::new(birth.role.seed as u32).unwrap_or(NonZeroU32::MIN);
        let identity = Identity { number: identity, well_known: false };
        let endpoint = domain.open_endpoint(device, Time(0), qpn, identity, 0).expect(never);
        let at = PeerAddr { gid: device.gid(), qpn, key: identity.key() };
        let rights = RemoteRights { read: true, write: true };
        let memory =
            Registration { addr: BUFFER, len: BUFFER_BYTES, key: None, virtual_addresses: true, rights };
        let (_, key) = domain.register(device, &memory).expect(never);
        let shared_memory = birth.settings.hosts.intra_node.map(|on| SharedMemory::new(on, number));
        let layers = Layers {
            nic,
            domain,
            endpoint,
            at,
            key,
            shared_memory,
            inject_size: birth.settings.messages.inject_size,
            injected: VecDeque::new(),
            ranks: Vec::new(),
        };
        let looks_every = Nanos(birth.settings.hosts.looks_every.0 / 1000);
        MsgProcess {
            rank: Rank::new(program.script.clone()).forever(program.forever),
            layers,
            reported: false,
            looks_every,
            looks_at: Time::NEVER,
        }
    }
}

impl Transport for MsgProcess {
    type Content = SrdContent<HeaderPayload>;
    type Address = MsgAddress;

    /// # Panics
    /// If the role has no program.
    fn address(&self) -> MsgAddress {
        MsgAddress { at: self.layers.at, host: self.layers.nic.host(), key: self.layers.key }
    }

    fn expect(&mut self, _: &MsgAddress, _: u32, _: u64) {
        unreachable!("programs receive no flows");
    }

    fn start(&mut self, _: Time, _: Order, _: &MsgAddress) {
        unreachable!("programs send no flows");
    }

    fn stop(&mut self, _: Time, _: u32) {
        unreachable!("programs send no flows");
    }

    fn meet(&mut self, ranks: &[MsgAddress]) {
        self.layers.ranks = ranks.iter().map(|&address| (address, None)).collect();
    }

    fn receive(&mut self, now: Time, arrived: Time, head: &FrameHead, content: &SrdContent<HeaderPayload>) {
        self.layers.nic.receive(now, arrived, head, content);
        self.look(now);
    }

    fn poll_transmit<R>(
        &mut self,
        now: Time,
        sink: impl FnMut(Outgoing<SrdContent<HeaderPayload>>) -> R,
    ) -> Option<R> {
        self.layers.nic.poll_transmit(now, sink)
    }

    fn set_paused(&mut self, classes: u8) {
        self.layers.nic.set_paused(classes);
    }

    fn senders(&self, now: Time) -> u16 {
        self.layers.nic.device.endpoint().senders(now)
    }

    fn set_neighbours(&mut self, senders: u16) {
        self.layers.nic.device.set_neighbours(senders);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.layers.nic.device.handle_timeout(now);
        if self.program_timeout() <= now {
            self.go_on(now);
        } else {
            self.look(now);
        }
    }

    fn next_timeout(&self) -> Time {
        self.layers.nic.next_timeout().min(self.program_timeout())
    }

    fn program_timeout(&self) -> Time {
        let Layers { domain, shared_memory, .. } = &self.layers;
        let near = shared_memory.as_ref().map_or(Time::NEVER, SharedMemory::next_timeout);
        domain.next_timeout().min(self.rank.wakes_at()).min(near).min(self.looks_at)
    }

    fn poll_report(&mut self) -> Option<Report> {
        let ends = self.rank.is_done() && !self.reported;
        self.reported |= ends;
        ends.then_some(Report::Ended)
    }

    fn delivered(&mut self, _: u32) -> u64 {
        unreachable!("programs receive no flows");
    }

    fn counts(&self) -> Counts {
        self.layers.nic.counts()
    }
}
