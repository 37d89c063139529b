//! From sockets to packets: receives runs of datagrams, opens and decodes each, and hands it to the device. Counts
//! what is refused, by cause.
//!
//! The device is told when the kernel received a packet, not when this process got round to it: so a round trip is
//! that of the network, and the time for which the process had no core counts as holding the packet, which the sender
//! is told. Congestion control on a busy host would otherwise take its own scheduler for a queue in the network.
// What comes from peers goes through here: nothing of it may bring the process down.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

use crate::clock::KernelClock;
use crate::hints::KeyHints;
use crate::payload;
use crate::sys::udp::{MAX_RUNS, ReceiveBatch, ReceiveSocket};
use serde::Serialize;
use srd_device::{Device, Follower, HostMemory, Received};
use srd_wire::codec::DecodeError;
use srd_wire::seal::{Keyring, OpenError};
use srd_wire::{Gid, InstanceAddr, Nanos, Time, codec};
use std::collections::BTreeMap;
use std::io;

/// Most calls that one round makes per socket, so that a flood cannot keep a round from ending.
const CALLS_PER_ROUND: usize = 4;

/// What happened on the way from the sockets.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReceiveCounters {
    /// Packets that arrived.
    pub packets: u64,
    /// Bytes of their datagrams.
    pub bytes: u64,
    /// Runs of datagrams that the kernel had joined (GRO), or single ones.
    pub runs: u64,
    /// Calls that received something.
    pub receives: u64,
    /// Datagrams that the sockets dropped because their buffer was full: this host was too slow.
    pub host_drops: u64,
    /// Datagrams that are not packets, by cause.
    pub not_decoded: BTreeMap<&'static str, u64>,
    /// Datagrams that could not be opened, by cause (with a pre-shared key only).
    pub not_opened: BTreeMap<&'static str, u64>,
    /// Errors of the system, by number.
    pub errors: BTreeMap<i32, u64>,
}

/// A socket with what is known of it.
struct Port {
    socket: ReceiveSocket,
    port: u16,
    drops: u32,
    /// The last look found something: there may be more.
    busy: bool,
}

/// The receiving side of an instance.
pub struct Receiver {
    ports: Vec<Port>,
    batch: ReceiveBatch,
    clock: KernelClock,
    /// The latest time that the device has been told.
    latest: Time,
    hints: KeyHints,
    counters: ReceiveCounters,
}

impl Receiver {
    /// Receives from nowhere yet.
    pub fn new() -> Receiver {
        Receiver {
            ports: Vec::new(),
            batch: ReceiveBatch::new(),
            clock: KernelClock::default(),
            latest: Time(0),
            hints: KeyHints::default(),
            counters: ReceiveCounters::default(),
        }
    }

    /// Adds a socket, which is bound to `port`.
    pub fn add(&mut self, socket: ReceiveSocket, port: u16) {
        self.ports.push(Port { socket, port, drops: 0, busy: false });
    }

    /// The ports.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports.iter().map(|it| it.port)
    }

    /// What happened so far.
    pub fn counters(&self) -> ReceiveCounters {
        let mut counters = self.counters.clone();
        // The kernel reports drops only with the next datagram; here it is asked.
        for port in &self.ports {
            if let Some(drops) = port.socket.drops() {
                counters.host_drops += drops.wrapping_sub(port.drops) as u64;
            }
        }
        counters
    }

    /// The device has been told this time.
    #[inline]
    pub fn note_time(&mut self, now: Time) {
        self.latest = self.latest.max(now);
    }

    /// Much may be there: nobody has looked for a while.
    pub fn expect_many(&mut self) {
        self.ports.iter_mut().for_each(|port| port.busy = true);
    }

    /// Receives what is there and gives it to `device`. Returns how many packets came.
    ///
    /// Where the last look found nothing, one run is taken, with the call that costs least: for most of the time a
    /// program that polls finds nothing, and what it then waits for is one answer. What else has come waits for the
    /// next look.
    #[inline]
    pub fn receive(
        &mut self,
        now: Time,
        device: &mut Device<HostMemory>,
        mut keyring: Option<&mut Keyring>,
    ) -> u64 {
        let before = self.counters.packets;
        for i in 0..self.ports.len() {
            for _ in 0..CALLS_PER_ROUND {
                let Some(port) = self.ports.get_mut(i) else { break };
                let most = if port.busy { MAX_RUNS } else { 1 };
                let runs = match self.batch.receive(&port.socket, most) {
                    Ok(runs) => runs,
                    Err(e) => {
                        self.count_error(&e);
                        break;
                    }
                };
                port.busy = runs > 0;
                if runs == 0 {
                    break;
                }
                self.counters.receives += 1;
                for run in 0..runs {
                    self.handle_run(now, i, run, device, keyring.as_deref_mut());
                }
                if runs < MAX_RUNS {
                    break;
                }
            }
        }
        self.counters.packets - before
    }

    #[cold]
    fn count_error(&mut self, error: &io::Error) {
        *self.counters.errors.entry(error.raw_os_error().unwrap_or(0)).or_default() += 1;
    }

    #[inline]
    fn handle_run(
        &mut self,
        now: Time,
        port: usize,
        run: usize,
        device: &mut Device<HostMemory>,
        mut keyring: Option<&mut Keyring>,
    ) {
        let Receiver { ports, batch, clock, latest, hints, counters } = self;
        let (Some(run), Some(port)) = (batch.run(run), ports.get_mut(port)) else { return };
        if let Some(drops) = run.drops {
            counters.host_drops += drops.wrapping_sub(port.drops) as u64;
            port.drops = drops;
        }
        counters.runs += 1;
        counters.bytes += run.bytes.len() as u64;
        let (from, ce) = (Gid::from(run.from.ip()), run.ce);
        let age = run.arrived.map_or(Nanos::ZERO, |stamp| clock.age(stamp, now));
        // Time must not run backwards for the device, though runs of several sockets come in any order.
        let arrived = Time(now.0 - age.0).max(*latest).min(now);
        *latest = arrived;
        // Most packets of a run say the same as the one before, but for their place in the message.
        let mut header = None;
        for datagram in run.datagrams() {
            counters.packets += 1;
            let bytes = datagram.len();
            let plain = match &mut keyring {
                None => &*datagram,
                Some(keyring) => {
                    let outside = codec::peek(datagram);
                    match keyring.open(from, datagram) {
                        Ok(opened) => &*opened.packet,
                        Err(e) => {
                            *counters.not_opened.entry(e.name()).or_default() += 1;
                            hints.not_opened(from, e);
                            if matches!(e, OpenError::NoContext | OpenError::WrongDestination)
                                && let Some(outside) = outside
                            {
                                // It was for a predecessor of this process, perhaps: its sender should know.
                                let sender = InstanceAddr { gid: from, port: outside.src_port };
                                device.refuse(arrived, port.port, sender, outside.src_tag, outside.dst_tag);
                            }
                            continue;
                        }
                    }
                }
            };
            if let Some((psn, offset, payload)) = header.and_then(|header| codec::follower(header, plain)) {
                let payload = &payload::received_part(payload);
                if device.handle_follower(arrived, Follower { psn, offset, payload, bytes }) {
                    continue;
                }
            }
            match codec::decode(plain) {
                Ok(packet) => {
                    let packet = payload::received(packet);
                    let followed = device.handle_packet(
                        arrived,
                        port.port,
                        Received { arrived, seen: now, from, packet: &packet, bytes, ce },
                    );
                    header = if followed { codec::bare_data_header(plain, &packet) } else { None };
                }
                Err(e) => {
                    *counters.not_decoded.entry(e.name()).or_default() += 1;
                    hints.not_decoded(from, e);
                    if let (DecodeError::Version { .. }, Some(preamble)) = (e, codec::peek(plain)) {
                        device.other_version(arrived, port.port, from, &preamble, bytes);
                    }
                }
            }
        }
    }
}
