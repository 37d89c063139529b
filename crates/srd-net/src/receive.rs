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

use crate::address::is_martian;
use crate::beside::Locked;
use crate::clock::KernelClock;
use crate::frame;
use crate::hints::KeyHints;
use crate::log;
use crate::options::LogLevel;
use crate::payload;
use crate::short_ring::{Ring, UDP_SOCKETS};
use crate::simulated::{Come as Simulated, Fabric};
use crate::sys::udp::{MAX_RUNS, ReceiveBatch, ReceiveSocket, Run};
use arrayvec::ArrayVec;
use serde::Serialize;
use srd_device::{Begun, Device, Followers, HostMemory, Received};
use srd_wire::codec::DecodeError;
use srd_wire::seal::{Keyring, OpenError};
use srd_wire::{Gid, InstanceAddr, Nanos, NextHeader, Psn, Time, codec};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// Most calls that one round makes per socket, so that a flood cannot keep a round from ending.
const CALLS_PER_ROUND: usize = 4;

/// Why a run from a source that no peer can have is refused.
const MARTIAN: &str = "martian_source";

/// Most packets that one round takes from the ring.
const PACKETS_PER_ROUND: usize = 64;

/// When the sockets have had nothing for so long, where there is a ring, which costs nothing to look at...
const QUIET: Nanos = Nanos::from_millis(1);
/// ...they are looked at this often.
const SOCKETS_EVERY: Nanos = Nanos::from_micros(5);

/// Most packets that are handed over together, which are most in a run (Linux, `UDP_GRO_CNT_MAX`).
const MOST_FOLLOWERS: usize = 64;

/// A look that so many packets come between says too little.
const MOST_MEANWHILE: u32 = 16;

/// At so many looks the sockets may have dropped what the ring has not seen.
const MOST_BLIND: u32 = 3;

/// What happened on the way from the sockets.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReceiveCounters {
    /// Packets that arrived.
    pub packets: u64,
    /// Those of them that came by a packet socket or an AF_XDP socket.
    pub by_packet_socket: u64,
    /// Bytes of their datagrams.
    pub bytes: u64,
    /// Runs of datagrams that the kernel had joined (GRO), or single ones.
    pub runs: u64,
    /// Calls that received something.
    pub receives: u64,
    /// Datagrams that the sockets, or the ring, dropped because their buffer was full: this host was too slow.
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
    /// The last look found something: there may be more.
    busy: bool,
}

/// The receiving side of an instance.
pub struct Receiver {
    ports: Vec<Port>,
    batch: ReceiveBatch,
    /// What [`Receiver::finds_nothing`] has taken from the first socket.
    ahead: Option<io::Result<usize>>,
    /// Short packets come here instead, if there is one.
    ring: Option<Ring>,
    /// Everything comes from here, if there is one.
    fabric: Option<Fabric>,
    /// When the sockets were last looked at, and when they had something.
    looked: Time,
    came: Time,
    /// What the ring had seen when it was last asked.
    seen: u32,
    /// How many more than that the sockets have dropped since they leave packets to it, as far as was seen; how often that became more.
    unseen: Option<u32>,
    blind: u32,
    /// While the ring is set aside, because it did not see what the sockets left to it: runs of short packets from elsewhere that have come by
    /// the sockets since it was last asked.
    aside: Option<u32>,
    intake: Intake,
}

/// What a layer above does about a message that has begun. False: the layer has gone.
pub type OnBegun = Box<dyn FnMut(&mut Locked<'_>, Time, &Begun) -> bool + Send>;

/// Where packets go.
pub struct Upwards<'a> {
    pub device: &'a mut Device<HostMemory>,
    /// Told of messages that have begun.
    pub on_begun: &'a mut Vec<OnBegun>,
}

/// From datagrams to the device.
struct Intake {
    clock: KernelClock,
    /// The latest time that the device has been told.
    latest: Time,
    /// Our address.
    own: IpAddr,
    hints: KeyHints,
    counters: ReceiveCounters,
}

impl Receiver {
    /// Receives from nowhere yet. `own`: our address.
    pub fn new(own: IpAddr, ring: Option<Ring>, fabric: Option<Fabric>) -> Receiver {
        Receiver {
            ports: Vec::new(),
            batch: ReceiveBatch::new(),
            ahead: None,
            ring,
            fabric,
            looked: Time(0),
            came: Time(0),
            seen: 0,
            unseen: None,
            blind: 0,
            aside: None,
            intake: Intake {
                clock: if fabric.is_some() { KernelClock::ours() } else { KernelClock::default() },
                latest: Time(0),
                own,
                hints: KeyHints::default(),
                counters: ReceiveCounters::default(),
            },
        }
    }

    /// Adds a socket, which is bound to `port`.
    pub fn add(&mut self, socket: ReceiveSocket, port: u16) {
        if let Some(ring) = &mut self.ring {
            // Both may take a packet for a moment: the device takes it once.
            let shared = ring
                .add_port(port)
                .and_then(|room| if room { ring.share(socket.as_fd(), true) } else { Ok(()) });
            if let Err(error) = shared {
                log::say(LogLevel::Info, format_args!("port {port} has no ring of its own: {error}"));
            }
        }
        self.ports.push(Port { socket, port, busy: false });
    }

    /// Everything comes by the sockets from now on, but for what has come already.
    pub fn close_ring(&mut self) {
        let Some(ring) = self.ring.as_mut().filter(|ring| !ring.is_closed()) else { return };
        if let Err(error) = ring.close(self.ports.iter().map(|port| port.socket.as_fd())) {
            log::say(LogLevel::Info, format_args!("the ring of short packets is not closed: {error}"));
        }
    }

    /// By what short packets travel.
    pub fn short_packets_by(&self) -> String {
        let ring = self.ring.as_ref().filter(|ring| !ring.is_closed());
        ring.map_or_else(|| UDP_SOCKETS.to_owned(), Ring::to_string)
    }

    /// Whether nothing comes by the ring any more.
    pub fn ring_is_closed(&self) -> bool {
        self.ring.as_ref().is_none_or(Ring::is_closed)
    }

    /// Whether the ring, if there is one, still belongs to its interface. Forgets that this was down, too, and sees whether the ring sees what
    /// the sockets leave to it: if not, everything comes by the sockets until the ring has seen what came.
    ///
    /// What the sockets drop does not say why: strangers can send what any socket drops. So it is no reason to give the ring up.
    #[cold]
    pub fn ring_works(&mut self) -> bool {
        let Some(ring) = &mut self.ring else { return true };
        let (before, _) = ring.shared_and_dropped();
        let dropped = dropped_by(&self.ports);
        let (seen, _) = ring.shared_and_dropped();
        let saw = seen.wrapping_sub(std::mem::replace(&mut self.seen, seen));
        // Packets come while this is asked, and the ring sees each before a socket drops it: so that more are dropped is sure only where
        // it is more than ever before.
        let (least, most) = (dropped.wrapping_sub(seen), dropped.wrapping_sub(before));
        let grows_to = |to: u32, from: u32| (to.wrapping_sub(from) as i32) > 0;
        let missed = self.unseen.is_some_and(|unseen| grows_to(least, unseen));
        if seen.wrapping_sub(before) <= MOST_MEANWHILE {
            self.unseen = self.unseen.filter(|&unseen| !grows_to(most, unseen)).or(Some(most));
        }
        let bound = ring.is_bound();
        let shares = self.ports.iter().any(|port| ring.shares_port(port.port));
        match &mut self.aside {
            Some(came) => {
                let came = std::mem::take(came);
                if came > 0 && saw >= came {
                    self.share_with_ring(true);
                }
            }
            None if shares => {
                self.blind += u32::from(missed);
                if self.blind >= MOST_BLIND {
                    self.share_with_ring(false);
                }
            }
            None => {}
        }
        bound
    }

    /// Short packets come by the ring, or everything by the sockets.
    fn share_with_ring(&mut self, by_ring: bool) {
        let Some(ring) = self.ring.as_mut().filter(|ring| !ring.is_closed()) else { return };
        let mut sockets = self.ports.iter().filter(|port| ring.shares_port(port.port));
        let shared = sockets.try_for_each(|port| ring.share(port.socket.as_fd(), by_ring));
        let ways = if by_ring {
            "the packet socket again"
        } else {
            "UDP sockets until the packet socket sees them, too"
        };
        match shared {
            Ok(()) => log::say(LogLevel::Info, format_args!("short packets come by {ways}")),
            Err(error) => log::warn_once(format_args!("short packets cannot come by {ways}: {error}")),
        }
        (self.blind, self.unseen) = (0, None);
        self.aside = if by_ring { None } else { Some(0) };
    }

    /// What short packets come by.
    pub fn ring(&self) -> Option<&Ring> {
        self.ring.as_ref()
    }

    /// The ports.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports.iter().map(|it| it.port).chain(self.fabric.map(|fabric| fabric.place.port))
    }

    /// What happened so far.
    pub fn counters(&mut self) -> ReceiveCounters {
        let mut counters = self.intake.counters.clone();
        let dropped = dropped_by(&self.ports);
        // The sockets count what they leave to the ring as dropped, too.
        let (seen, by_ring) = self.ring.as_mut().map_or((0, 0), Ring::shared_and_dropped);
        counters.host_drops = (dropped.wrapping_sub(seen) as i32).max(0) as u64 + u64::from(by_ring);
        counters
    }

    /// The device has been told this time.
    #[inline]
    pub fn note_time(&mut self, now: Time) {
        self.intake.latest = self.intake.latest.max(now);
    }

    /// Much may be there: nobody has looked for a while.
    pub fn expect_many(&mut self) {
        self.ports.iter_mut().for_each(|port| port.busy = true);
        self.looked = Time(0);
    }

    /// Whether everything comes from a simulated network.
    pub fn is_simulated(&self) -> bool {
        self.fabric.is_some()
    }

    /// Whether [`Receiver::finds_nothing`] may be asked: a single socket is all that packets come by, and the last look at it found nothing.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        let everything = self.ring.is_none() && self.fabric.is_none() && self.aside.is_none();
        everything && matches!(&self.ports[..], [port] if !port.busy)
    }

    /// Whether nothing has come. If something has, the next [`Receiver::receive`] takes it.
    #[inline]
    pub fn finds_nothing(&mut self) -> bool {
        let Some(port) = self.ports.first() else { return true };
        match self.batch.receive(&port.socket, 1) {
            Ok(0) => true,
            came => {
                self.ahead = Some(came);
                false
            }
        }
    }

    /// Receives what is there and gives it to the device. Returns how many packets came.
    ///
    /// Where the last look found nothing, one run is taken, with the call that costs least: for most of the time a
    /// program that polls finds nothing, and what it then waits for is one answer. What else has come waits for the
    /// next look.
    #[inline]
    pub fn receive(&mut self, now: Time, mut upwards: Upwards<'_>, mut keyring: Option<&mut Keyring>) -> u64 {
        let Receiver { ports, batch, ahead, ring, fabric, looked, came, intake, aside, .. } = self;
        let before = intake.counters.packets;
        if let Some(fabric) = *fabric {
            fabric.receive(|come| intake.take_simulated(now, come, &mut upwards, keyring.as_deref_mut()));
            return intake.counters.packets - before;
        }
        if aside.is_some() {
            let mut drops = || ring.as_mut().and_then(|ring| ring.take(u64::MAX, |_| ())).is_some();
            let _ = (0..PACKETS_PER_ROUND).all(|_| drops());
        }
        let (mut ring, set_aside) = match aside {
            Some(_) => (None, ring.as_ref()),
            None => (ring.as_mut(), None),
        };
        if let Some(ring) = &mut ring {
            // Nothing that may not be overtaken has come by the sockets for a while. Otherwise what lies in the ring has its turn
            // among what lies there.
            if now.since(*came) >= QUIET && now.since(*looked) < SOCKETS_EVERY {
                take_from_ring(ring, PACKETS_PER_ROUND, u64::MAX, intake, now, &mut upwards, keyring);
                return intake.counters.packets - before;
            }
            *looked = now;
        }
        // What is in the ring now: nothing older that came by the sockets will be missed by the looks at them.
        let mut ready = ring.as_ref().map_or(0, |ring| ring.ready(PACKETS_PER_ROUND));
        // When what may still lie in the sockets has come at the earliest: nothing of the ring that is younger has its turn.
        let mut until = u64::MAX;
        for port in ports {
            for _ in 0..CALLS_PER_ROUND {
                let most = if port.busy { MAX_RUNS } else { 1 };
                let taken = ahead.take().unwrap_or_else(|| batch.receive(&port.socket, most));
                let runs = match taken {
                    Ok(runs) => runs,
                    Err(e) => {
                        intake.count_error(&e);
                        break;
                    }
                };
                port.busy = runs > 0;
                if runs == 0 {
                    break;
                }
                *came = now;
                intake.counters.receives += 1;
                let mut last = 0;
                for run in 0..runs {
                    let Some(run) = batch.run(run) else { continue };
                    last = run.arrived.unwrap_or(0);
                    if let Some(ring) = &mut ring {
                        let (most, keyring) = (PACKETS_PER_ROUND, keyring.as_deref_mut());
                        let taken = take_from_ring(ring, most, last, intake, now, &mut upwards, keyring);
                        ready = ready.saturating_sub(taken);
                    } else if let (Some(count), Some(ring)) = (&mut *aside, set_aside) {
                        let short = ring.takes(run.bytes.len() + frame::UDP);
                        *count += u32::from(short && run.from.ip() != intake.own);
                    }
                    intake.handle_run(now, port.port, run, &mut upwards, keyring.as_deref_mut());
                }
                if runs == most {
                    until = until.min(last);
                }
                if runs < MAX_RUNS {
                    break;
                }
            }
        }
        if let Some(ring) = ring {
            take_from_ring(ring, ready, until, intake, now, &mut upwards, keyring);
        }
        intake.counters.packets - before
    }
}

/// Datagrams that sockets have dropped, for whatever reason.
fn dropped_by(ports: &[Port]) -> u32 {
    ports.iter().filter_map(|port| port.socket.drops()).fold(0, u32::wrapping_add)
}

/// Takes from the ring what has come until then, by the kernel's clock, at most so many. Returns how many there were.
#[inline]
fn take_from_ring(
    ring: &mut Ring,
    most: usize,
    until: u64,
    intake: &mut Intake,
    now: Time,
    upwards: &mut Upwards<'_>,
    mut keyring: Option<&mut Keyring>,
) -> usize {
    let mut count = 0;
    while count < most {
        let taken = ring.take(until, |captured| {
            let Some(datagram) = frame::parse(captured.bytes, captured.checked) else {
                return intake.count_refused("damaged");
            };
            // Nobody else has our address.
            if *datagram.from.ip() == intake.own {
                return intake.count_refused(MARTIAN);
            }
            let before = intake.counters.packets;
            let run = Run {
                from: SocketAddr::V4(datagram.from),
                segment: captured.segment.map_or(datagram.payload.len(), usize::from),
                bytes: datagram.payload,
                ce: datagram.ce,
                arrived: Some(captured.arrived),
            };
            intake.handle_run(now, datagram.to_port, run, upwards, keyring.as_deref_mut());
            intake.counters.by_packet_socket += intake.counters.packets - before;
        });
        if taken.is_none() {
            break;
        }
        count += 1;
    }
    count
}

impl Intake {
    #[cold]
    fn count_refused(&mut self, why: &'static str) {
        *self.counters.not_decoded.entry(why).or_default() += 1;
    }

    #[cold]
    fn count_error(&mut self, error: &io::Error) {
        *self.counters.errors.entry(error.raw_os_error().unwrap_or(0)).or_default() += 1;
    }

    #[cold]
    fn take_simulated(
        &mut self,
        now: Time,
        come: Simulated<'_>,
        upwards: &mut Upwards<'_>,
        keyring: Option<&mut Keyring>,
    ) {
        let run = Run {
            from: SocketAddr::new(come.from.ip(), come.ports[0]),
            segment: come.bytes.len(),
            bytes: come.bytes,
            ce: come.marked,
            arrived: Some(now.0 - come.age.0),
        };
        self.counters.receives += 1;
        self.handle_run(now, come.ports[1], run, upwards, keyring);
    }

    #[inline]
    fn handle_run(
        &mut self,
        now: Time,
        port: u16,
        run: Run<'_>,
        upwards: &mut Upwards<'_>,
        mut keyring: Option<&mut Keyring>,
    ) {
        let Upwards { device, on_begun } = upwards;
        let Intake { clock, latest, own, hints, counters } = self;
        counters.runs += 1;
        counters.bytes += run.bytes.len() as u64;
        if is_martian(run.from.ip(), *own) {
            return self.count_refused(MARTIAN);
        }
        device.memory().expect(run.bytes.len());
        let (from, ce) = (Gid::from(run.from.ip()), run.ce);
        let age = run.arrived.map_or(Nanos::ZERO, |stamp| clock.age(stamp, now));
        // Time must not run backwards for the device, though runs of several sockets come in any order.
        let arrived = Time(now.0 - age.0).max(*latest).min(now);
        *latest = arrived;
        let mut come = Come { arrived, seen: now, from, ce, port, device, on_begun, hints, counters };
        // Most packets of a run follow the one before.
        let mut next = None::<NextHeader>;
        let mut train = Train { datagrams: ArrayVec::new(), first: (Psn(0), 0), bytes: 0 };
        for datagram in run.datagrams() {
            come.counters.packets += 1;
            let bytes = datagram.len();
            let plain = match &mut keyring {
                None => &*datagram,
                Some(keyring) => match come.open(datagram, keyring) {
                    Some(plain) => plain,
                    None => continue,
                },
            };
            if let Some(next) = &mut next {
                let first = (next.psn(), next.offset());
                if !train.datagrams.is_full() && next.take(plain) {
                    if train.datagrams.is_empty() {
                        (train.first, train.bytes) = (first, bytes);
                    }
                    train.datagrams.push(plain);
                    continue;
                }
            }
            come.handle_train(&mut train, next.as_ref());
            next = come.handle(plain, bytes);
        }
        come.handle_train(&mut train, next.as_ref());
    }
}

/// Datagrams that follow one another, and the one before them.
struct Train<'a> {
    datagrams: ArrayVec<&'a [u8], MOST_FOLLOWERS>,
    /// PSN and offset of the first.
    first: (Psn, u32),
    /// What each was on the wire.
    bytes: usize,
}

/// What holds for the datagrams of a run, and where they go.
struct Come<'a> {
    arrived: Time,
    seen: Time,
    from: Gid,
    ce: bool,
    port: u16,
    device: &'a mut Device<HostMemory>,
    on_begun: &'a mut Vec<OnBegun>,
    hints: &'a mut KeyHints,
    counters: &'a mut ReceiveCounters,
}

impl Come<'_> {
    /// Opens a sealed datagram. `None`: it is refused.
    fn open<'a>(&mut self, datagram: &'a mut [u8], keyring: &mut Keyring) -> Option<&'a [u8]> {
        let outside = codec::peek(datagram);
        match keyring.open(self.from, datagram) {
            Ok(opened) => Some(opened.packet),
            Err(e) => {
                *self.counters.not_opened.entry(e.name()).or_default() += 1;
                self.hints.not_opened(self.from, e);
                if matches!(e, OpenError::NoContext | OpenError::WrongDestination)
                    && let Some(outside) = outside
                {
                    // It was for a predecessor of this process, perhaps: its sender should know.
                    let sender = InstanceAddr { gid: self.from, port: outside.src_port };
                    self.device.refuse(self.arrived, self.port, sender, outside.src_tag, outside.dst_tag);
                }
                None
            }
        }
    }

    /// Hands over a datagram. What may follow it.
    #[inline]
    fn handle(&mut self, plain: &[u8], bytes: usize) -> Option<NextHeader> {
        let Come { arrived, seen, from, ce, port, .. } = *self;
        let (read, cut) = match codec::decode(plain) {
            Err(DecodeError::BadLength) => (codec::decode_cut(plain), true),
            read => (read, false),
        };
        match read {
            Ok(packet) => {
                let packet = payload::received(packet);
                let received = Received { arrived, seen, from, packet: &packet, bytes, ce, cut };
                let followed = self.device.handle_packet(arrived, port, received);
                let next = if followed { NextHeader::after(plain, &packet) } else { None };
                if let Some(begun) = self.device.poll_begun() {
                    self.on_begun.retain_mut(|told| told(&mut Locked::new(self.device), seen, &begun));
                }
                next
            }
            Err(e) => {
                *self.counters.not_decoded.entry(e.name()).or_default() += 1;
                self.hints.not_decoded(from, e);
                if let (DecodeError::Version { .. }, Some(preamble)) = (e, codec::peek(plain)) {
                    self.device.other_version(arrived, port, from, &preamble, bytes);
                }
                None
            }
        }
    }

    /// Hands over what has gathered, before the next one whose header that is.
    #[inline]
    fn handle_train(&mut self, train: &mut Train<'_>, next: Option<&NextHeader>) {
        let Train { datagrams, first: (psn, offset), bytes } = train;
        if let Some(next) = next.filter(|_| !datagrams.is_empty()) {
            let followers = Followers {
                psn: *psn,
                offset: *offset,
                len: next.segment(),
                count: datagrams.len() as u32,
                bytes: *bytes,
            };
            let header = next.header_len();
            let payload = |at: u32| {
                let datagram = datagrams.get(at as usize).copied().unwrap_or_default();
                payload::received_part(datagram.get(header..).unwrap_or_default())
            };
            let taken = self.device.handle_followers(self.arrived, &followers, payload);
            for datagram in datagrams.iter().skip(taken as usize) {
                self.handle(datagram, *bytes);
            }
            datagrams.clear();
        }
    }
}
