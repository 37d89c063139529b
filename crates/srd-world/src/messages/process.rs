//! A process: its device, its domain, its clock, and its endpoints.

use crate::messages::lanes::SharedMemory;
use crate::messages::oracle::Party;
use crate::node::{PORT_BASE, device_config, first_clock, gid_of};
use crate::plan::{Plan, Talk, purpose};
use crate::rng::Rng;
use srd_device::{Device, DeviceConfig, QPS_PER_PORT, Store, VecMemory, VecPayload};
use srd_msg::{Config, Domain, EndpointId, Identity, PeerAddr, PeerId, Registration, RemoteRights};
use srd_wire::{Gid, Incarnation, InstanceAddr, Nanos, Packet, Qpn, Time};
use std::collections::VecDeque;

/// A datagram.
#[derive(Clone)]
pub struct Datagram {
    /// Where it goes.
    pub to: InstanceAddr,
    /// The host it comes from.
    pub from: Gid,
    /// What it says.
    pub packet: Packet<VecPayload>,
    /// Its size.
    pub bytes: usize,
    /// It met a long queue.
    pub marked: bool,
    /// Its payload was cut off.
    pub cut: bool,
}

/// An endpoint that is open.
pub struct Open {
    /// Who it is.
    pub party: Party,
    /// For the domain.
    pub id: EndpointId,
    /// Peers of this host that have no lane yet, and may get one.
    pub without: Vec<(PeerId, PeerAddr)>,
    /// It is being closed, by then at the latest (local time).
    pub closing: Option<Time>,
}

/// What lives while the process does.
pub struct Life {
    /// The device.
    pub device: Device<VecMemory>,
    /// The messaging layer.
    pub domain: Domain<VecMemory>,
    /// Endpoints, by slot.
    pub slots: Vec<Option<Open>>,
    /// Memory that others reach: where it is, its key, and how much of it is given away.
    pub region: (u64, u64, u64),
    /// When it looks for dead processes again (local time).
    pub next_sweep: Time,
}

/// See the module.
pub struct Process {
    /// Its host.
    pub host: usize,
    /// Its address.
    pub addr: InstanceAddr,
    /// What it has while it lives.
    pub life: Option<Life>,
    /// How often it has begun.
    pub lives: u32,
    /// Its device's configuration.
    config: DeviceConfig,
    /// Its clock minus the world's, in ns.
    pub clock_ahead: i64,
    /// It does not run before this.
    pub paused_until: Time,
    /// It does not come back.
    pub gone: bool,
    /// What waits in its socket, and how many bytes that is.
    pub inbox: VecDeque<Datagram>,
    /// See above.
    pub inbox_bytes: u64,
    /// When its engine runs next.
    pub wake_at: Time,
    /// When its program looks next, if it is not as often as its engine runs.
    pub look_at: Time,
}

/// Memory that others reach.
pub const REGION_BYTES: u64 = 256 << 10;

impl Process {
    /// Process `index` of `plan`, not begun yet.
    pub fn new(plan: &Plan, index: usize) -> Process {
        let per_host = plan.shape.per_host.max(1) as usize;
        let (host, place) = (index / per_host, index % per_host);
        let rng = &mut Rng::new(plan.seed, purpose::CONFIG ^ (index as u64) << 32);
        let config = DeviceConfig { max_msg: plan.talk.max_msg as u32, ..device_config(plan, rng) };
        Process {
            host,
            addr: InstanceAddr { gid: gid_of(host), port: PORT_BASE + place as u16 },
            life: None,
            lives: 0,
            config,
            clock_ahead: first_clock(rng),
            paused_until: Time(0),
            gone: false,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            wake_at: Time::NEVER,
            look_at: Time::NEVER,
        }
    }

    /// The time by its clock.
    pub fn local(&self, now: Time) -> Time {
        Time(now.0.saturating_add_signed(self.clock_ahead))
    }

    /// The world's time at which its clock shows `local`.
    pub fn world(&self, local: Time) -> Time {
        if local == Time::NEVER { local } else { Time(local.0.saturating_add_signed(-self.clock_ahead)) }
    }

    /// Whether it lives and runs.
    pub fn runs(&self, now: Time) -> bool {
        self.life.is_some() && now >= self.paused_until
    }

    /// The number of an endpoint's queue pair.
    pub fn qpn(&self, slot: usize) -> Qpn {
        Qpn((self.addr.port - PORT_BASE) * QPS_PER_PORT + 2 + slot as u16)
    }

    /// Begins a life, without endpoints.
    pub fn start(&mut self, talk: &Talk, births: &mut Rng) {
        let (incarnation, seed) = (Incarnation(births.word() | 1), births.word());
        let memory = VecMemory::default();
        let InstanceAddr { gid, port } = self.addr;
        let mut device = Device::new(self.config.clone(), gid, port, incarnation, seed, memory);
        let mut domain = Domain::open(&mut device, config(talk)).expect("a new device has room");
        let addr = device.memory().allocate(REGION_BYTES as usize);
        let registration = Registration {
            addr,
            len: REGION_BYTES,
            // The program's own choice, in every other life.
            key: births.percent(50).then_some(7),
            virtual_addresses: false,
            rights: RemoteRights { read: true, write: true },
        };
        let (_, key) = domain.register(&mut device, &registration).expect("a new device has room");
        let slots = (0..talk.endpoints).map(|_| None).collect();
        self.life = Some(Life { device, domain, slots, region: (addr, key, 0), next_sweep: Time(0) });
        self.lives += 1;
        self.inbox.clear();
        self.inbox_bytes = 0;
        self.paused_until = Time(0);
    }

    /// What lives; the caller knows that it does.
    pub fn living(&mut self) -> &mut Life {
        self.life.as_mut().expect("the process lives")
    }

    /// An endpoint that is open.
    pub fn open(&self, slot: usize) -> Option<&Open> {
        self.life.as_ref()?.slots[slot].as_ref()
    }
}

impl Life {
    /// Memory with these bytes.
    pub fn bytes(&mut self, len: u64) -> u64 {
        Store::allocate(self.device.memory(), len as usize).expect("a vector grows")
    }

    /// Asks shared memory for a lane.
    pub fn connect(
        &mut self,
        now: Time,
        slot: usize,
        peer: PeerId,
        to: Party,
        memory: &SharedMemory,
        talk: &Talk,
    ) -> bool {
        let Some(open) = &self.slots[slot] else { return true };
        let (room, copies) = (talk.ring_bytes as usize, talk.copies != 0);
        let Some(lane) = memory.connect(open.party, to, room, copies) else { return false };
        self.domain.set_lane(&mut self.device, now, open.id, peer, Some(lane));
        true
    }
}

/// The messaging layer's configuration.
fn config(talk: &Talk) -> Config {
    Config {
        receive_buffers: talk.receive_buffers as u32,
        max_outstanding: talk.max_outstanding as u32,
        medium_limit: talk.medium_limit,
        eager_ahead: talk.eager_ahead,
        read_bytes: talk.read_bytes,
        reads_in_flight: talk.reads_in_flight as u32,
        grant_bytes: talk.grant_bytes,
        rendezvous_by_read: talk.by_read != 0,
        shm_limit: talk.shm_limit,
        most_left: talk.most_left as u32,
        ask_every: Nanos(talk.ask_every_ns),
        ..Config::default()
    }
}

/// Who an endpoint is.
pub fn identity(party: Party) -> Identity {
    let number = 0x9E37_79B9u32.wrapping_mul(party.0 as u32 + 1);
    Identity { number: number.try_into().expect("an odd factor, and few parties"), well_known: false }
}
