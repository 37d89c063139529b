//! A process of the world: its device, its clock, and the objects it has made.

use crate::memory::{Bytes, WorldMemory};
use crate::plan::{Plan, Shape, purpose};
use crate::rng::Rng;
use srd_device::{
    Access, AhNumber, CqId, Device, DeviceConfig, DeviceError, PdId, QPS_PER_PORT, QpInit, QpKind, QpModify,
};
use srd_proto::{Config, ControllerKind, SelectorKind};
use srd_wire::seal::{Keyring, Limits, Psk};
use srd_wire::{BitRate, Gid, Incarnation, InstanceAddr, MrKey, Nanos, Packet, Qkey, Qpn, Time};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

/// UDP port of slot 0.
pub const PORT_BASE: u16 = 21_000;

/// Longest send.
pub const MAX_MSG: u32 = 8_832;

/// A packet as it crosses the network.
#[derive(Clone, Debug)]
pub enum Carried {
    /// As a type.
    Typed(Box<Packet<Bytes>>),
    /// As bytes.
    Raw(Vec<u8>),
}

/// Who a living process is.
pub(crate) struct Identity {
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its keys, if packets are sealed.
    pub keyring: Option<Keyring>,
}

impl Identity {
    /// The identity of a process that has just started.
    pub fn new(incarnation: Incarnation, sealed: bool, own: impl Iterator<Item = InstanceAddr>) -> Identity {
        let keyring = sealed.then(|| {
            let psk = Psk::from_bytes(&[7; Psk::LEN]).expect("of the right length");
            let mut keyring = Keyring::new(incarnation, psk, Limits::default());
            own.for_each(|addr| keyring.allow_self(addr.gid));
            keyring
        });
        Identity { incarnation, keyring }
    }
}

/// A datagram in a socket.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Where it goes.
    pub to: InstanceAddr,
    /// The host it comes from.
    pub from: Gid,
    /// What it says.
    pub packet: Carried,
    /// Its size.
    pub bytes: usize,
    /// It met a long queue.
    pub marked: bool,
    /// Bits of it have changed.
    pub damaged: bool,
    /// A switch has cut it.
    pub cut: bool,
    /// Bytes that a switch leaves of it; `None`: it has no payload, and stays whole.
    pub leaves: Option<usize>,
}

/// A memory region of a process, with room for buffers that are mapped one behind the other.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its key, local and remote.
    pub key: MrKey,
    /// Where it begins.
    pub base: u64,
    /// What to add to an address to get the one by which the region names it.
    pub shift: u64,
    /// Peers may read and write.
    pub remote: bool,
    /// It is registered.
    pub alive: bool,
    next: u64,
}

/// Size of a region.
pub const REGION_LEN: u64 = 1 << 36;

/// Bytes between buffers that nobody may touch.
const GAP: u64 = 128;

impl Region {
    /// Addresses for `len` bytes.
    pub fn take(&mut self, len: u32) -> u64 {
        let at = self.base + self.next;
        self.next += (len as u64 + GAP).next_multiple_of(GAP);
        assert!(self.next < REGION_LEN, "a region is never full");
        at
    }
}

/// See the module.
pub struct Node {
    /// Its number.
    pub index: usize,
    /// The number of its host.
    pub host: usize,
    /// Its address.
    pub addr: InstanceAddr,
    /// Receive ports beyond the first.
    pub more_ports: Vec<u16>,
    /// The device; none while the process is dead.
    pub device: Option<Device<WorldMemory>>,
    /// Its configuration.
    pub config: DeviceConfig,
    /// Clock of the process minus the world's, in ns.
    pub clock_ahead: i64,
    /// It does not run before this.
    pub paused_until: Time,
    /// It never comes back.
    pub gone: bool,
    /// What waits in its sockets.
    pub inbox: VecDeque<Datagram>,
    /// Bytes of that.
    pub inbox_bytes: u64,
    /// When its engine runs next.
    pub wake_at: Time,
    /// Protection domain.
    pub pd: PdId,
    /// Completion queues.
    pub cqs: Vec<CqId>,
    /// Those that are armed.
    pub armed: Vec<CqId>,
    /// Those that have fired and were not looked at since.
    pub fired: Vec<CqId>,
    /// Packets that this life has sent.
    pub sent: u64,
    /// Memory regions, the lost ones included.
    pub regions: Vec<Region>,
    /// Address handles it holds, by host.
    pub handles: Vec<Option<AhNumber>>,
    /// Queue pairs of this life that exist, as numbers in the ledger.
    pub qps: Vec<usize>,
    /// Queue pairs that only fill the first port.
    pub fillers: Vec<Qpn>,
}

/// The address of host number `host`.
pub fn gid_of(host: usize) -> Gid {
    Gid::from(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host as u8 + 1)))
}

impl Node {
    /// Process `index` of `plan`, not started yet.
    pub fn new(plan: &Plan, index: usize, hosts: usize) -> Node {
        let per_host = plan.shape.per_host.max(1) as usize;
        let (host, place) = (index / per_host, index % per_host);
        let ports = 1 + plan.shape.extra_ports as u16;
        let port = PORT_BASE + place as u16 * ports;
        let rng = &mut Rng::new(plan.seed, purpose::CONFIG ^ (index as u64) << 32);
        Node {
            index,
            host,
            addr: InstanceAddr { gid: gid_of(host), port },
            more_ports: (1..ports).map(|i| port + i).collect(),
            device: None,
            config: device_config(plan, rng),
            clock_ahead: first_clock(rng),
            paused_until: Time(0),
            gone: false,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            wake_at: Time::NEVER,
            pd: PdId(0),
            cqs: Vec::new(),
            armed: Vec::new(),
            fired: Vec::new(),
            sent: 0,
            regions: Vec::new(),
            handles: vec![None; hosts],
            qps: Vec::new(),
            fillers: Vec::new(),
        }
    }

    /// The time by the clock of the process.
    pub fn local(&self, now: Time) -> Time {
        Time(now.0.saturating_add_signed(self.clock_ahead))
    }

    /// The world's time at which the clock of the process shows `local`.
    pub fn world(&self, local: Time) -> Time {
        if local == Time::NEVER { local } else { Time(local.0.saturating_add_signed(-self.clock_ahead)) }
    }

    /// Whether it lives and runs.
    pub fn runs(&self, now: Time) -> bool {
        self.device.is_some() && now >= self.paused_until
    }

    /// Starts the process: opens the device and makes what every process has.
    pub fn start(&mut self, life: u32, incarnation: Incarnation, seed: u64) -> Result<(), DeviceError> {
        let memory = WorldMemory::default();
        let mut device =
            Device::new(self.config.clone(), self.addr.gid, self.addr.port, incarnation, seed, memory);
        self.pd = device.alloc_pd()?;
        self.cqs = vec![device.create_cq(8_192)?, device.create_cq(8_192)?];
        self.device = Some(device);
        self.inbox.clear();
        self.inbox_bytes = 0;
        self.armed.clear();
        self.fired.clear();
        self.sent = 0;
        self.qps.clear();
        self.fillers.clear();
        self.handles.fill(None);
        self.regions.clear();
        for index in 0..4 {
            self.add_region(life, index != 3)?;
        }
        self.fill_first_port()
    }

    /// Takes all queue pair numbers of the first port, so that what comes next is at another one.
    fn fill_first_port(&mut self) -> Result<(), DeviceError> {
        for port in self.more_ports.clone() {
            for _ in 0..QPS_PER_PORT {
                let init = self.qp_init(QpKind::Srd, 1, 1, false);
                match self.device().create_qp(init) {
                    Ok(qpn) => self.fillers.push(qpn),
                    Err(DeviceError::Full("port")) => break,
                    Err(error) => return Err(error),
                }
            }
            self.device().add_port(port)?;
        }
        Ok(())
    }

    /// Registers another region.
    pub fn add_region(&mut self, life: u32, remote: bool) -> Result<usize, DeviceError> {
        let index = self.regions.len();
        let base = (life as u64 + 1) << 48 | (index as u64 + 1) << 38;
        // Every other region goes by addresses that are not where it lies.
        let shift = if index % 2 == 1 { 0x1234_5000_0000 } else { 0 };
        let access = Access { local_write: true, remote_read: remote, remote_write: remote };
        let pd = self.pd;
        let key = self.device().reg_mr(pd, base, REGION_LEN, base + shift, access)?;
        self.regions.push(Region { key, base, shift, remote, alive: true, next: 0 });
        Ok(index)
    }

    /// What a queue pair of this process is made with.
    pub fn qp_init(&self, kind: QpKind, sq_depth: u32, rq_depth: u32, unsolicited: bool) -> QpInit {
        let rdma = kind == QpKind::Srd;
        QpInit {
            kind,
            pd: self.pd,
            send_cq: self.cqs[0],
            recv_cq: self.cqs[1],
            sq_depth,
            rq_depth,
            send_sge: 2,
            recv_sge: 2,
            inline: 32,
            rdma_read: rdma,
            rdma_write: rdma,
            unsolicited_write_recv: unsolicited,
        }
    }

    /// Makes a queue pair that can send and receive.
    pub fn make_qp(
        &mut self,
        now: Time,
        init: QpInit,
        qkey: Qkey,
        rnr_retry: u8,
    ) -> Result<Qpn, DeviceError> {
        let now = self.local(now);
        let device = self.device();
        let qpn = device.create_qp(init)?;
        let rnr_retry = (init.kind == QpKind::Srd).then_some(rnr_retry);
        for change in QpModify::to_ready(qkey, rnr_retry) {
            device.modify_qp(now, qpn, change)?;
        }
        Ok(qpn)
    }

    /// The device.
    ///
    /// # Panics
    ///
    /// If the process is dead.
    pub fn device(&mut self) -> &mut Device<WorldMemory> {
        self.device.as_mut().expect("the process lives")
    }
}

/// Where the clock of a process stands at first: some way from zero, so that it can be set back, and sometimes just
/// before the stamps on the wire wrap.
pub(crate) fn first_clock(rng: &mut Rng) -> i64 {
    const DAY: u64 = 86_400_000_000_000;
    const STAMP_WRAP: u64 = 1 << 36;
    let start = DAY + rng.below(DAY);
    if rng.percent(30) {
        return ((start / STAMP_WRAP + 1) * STAMP_WRAP - rng.below(5_000_000)) as i64;
    }
    start as i64
}

/// The device of `plan`, or with `mixed` a variation of it.
pub fn device_config(plan: &Plan, rng: &mut Rng) -> DeviceConfig {
    let shape = &plan.shape;
    DeviceConfig {
        max_msg: MAX_MSG,
        max_rdma: 1 << 22,
        port_base: PORT_BASE,
        rnr_wait: Nanos(shape.rnr_wait_ns),
        rnr_wait_max: Nanos(shape.rnr_wait_max_ns),
        transport: transport_config(shape, rng),
        ..DeviceConfig::default()
    }
}

fn transport_config(shape: &Shape, rng: &mut Rng) -> Config {
    let mut config = Config {
        paths: shape.paths as u16,
        entropy: shape.entropy as u16,
        max_datagram: shape.max_datagram as u16,
        chunk_bytes: shape.chunk_bytes as u32,
        burst_bytes: shape.burst_bytes as u32,
        selector: match shape.selector {
            0 => SelectorKind::Reps,
            1 => SelectorKind::Oblivious,
            _ => SelectorKind::Pinned,
        },
        controller: match shape.window_bytes {
            0 => ControllerKind::LogTarget,
            _ => ControllerKind::Fixed,
        },
        fixed_window_bytes: shape.window_bytes,
        line_rate: BitRate(shape.line_mbps * 1_000_000),
        base_rtt: Nanos(shape.rtt_ns * shape.base_rtt_percent / 100),
        learn_base_rtt: shape.learn_base != 0,
        min_window: shape.min_window_milli as f64 / 1_000.0,
        probe_path_mtu: shape.probe_mtu != 0,
        receiver_hint: shape.receiver_hint != 0,
        rcvbuf_bytes: shape.rcvbuf_bytes,
        min_rto: Nanos(shape.min_rto_ns),
        min_pto: Nanos(shape.min_pto_ns),
        max_rto: Nanos(shape.max_rto_ns),
        ack_delay: Nanos(shape.ack_delay_ns),
        stream_ack_delay: Nanos(shape.stream_ack_delay_ns),
        answer_delay: Nanos(shape.answer_delay_ns),
        ack_every: shape.ack_every as u32,
        peer_timeout: Nanos(shape.peer_timeout_ns),
        confirm_first: shape.confirm_first != 0,
        max_messages_per_peer: shape.messages_per_peer as u32,
        max_partial_per_peer: shape.partial_per_peer as u32,
        idle_release: Nanos(shape.idle_release_ns),
        ..Config::default()
    };
    if shape.mixed != 0 {
        config.paths = rng.within(1, shape.paths) as u16;
        config.max_datagram = rng.pick(&[576, 1200, 1472, 4096, shape.max_datagram as u16]);
        config.chunk_bytes = rng.pick(&[1400, 4096, 8928, shape.chunk_bytes as u32]);
        config.selector = rng.pick(&[SelectorKind::Reps, SelectorKind::Oblivious, SelectorKind::Pinned]);
        config.ack_every = rng.pick(&[1, 4, 32]);
        config.ack_delay = Nanos(rng.pick(&[0, 5_000, 50_000]));
        config.rcvbuf_bytes = rng.pick(&[40_000, 1 << 20, shape.rcvbuf_bytes]);
        config.line_rate = BitRate(rng.pick(&[1_000, 25_000, shape.line_mbps]) * 1_000_000);
    }
    config
}
