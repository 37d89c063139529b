//! Domains in virtual time, over the devices and the wire of the device's tests.
#![allow(dead_code)]

#[path = "../../../srd-device/tests/harness/mod.rs"]
pub mod harness;

use harness::{Fate, Hosts, Net, gid, over_the_wire};
use srd_device::{DeviceConfig, VecMemory};
use srd_msg::*;
use srd_wire::{Nanos, Qpn, Time};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

/// Hosts with one endpoint each.
pub struct Cluster {
    pub net: Hosts,
    pub domains: Vec<Domain<VecMemory>>,
    pub endpoints: Vec<EndpointId>,
    pub qpns: Vec<Qpn>,
    pub identities: Vec<Identity>,
    pub config: Config,
    pub device_config: DeviceConfig,
    /// Whether hosts that start from now on have well-known endpoints.
    pub well_known: bool,
    lives: u32,
}

/// A lane that leads to the test: which gets what is sent, and says what became of it.
pub struct ToTest {
    pub says: LaneSend,
    pub sent: Arc<Mutex<Vec<Vec<u8>>>>,
    pub identity: u32,
}

impl Lane for ToTest {
    fn longest(&self) -> usize {
        8192
    }
    fn identity(&self) -> u32 {
        self.identity
    }
    fn send(&mut self, _now: Time, parts: &[&[u8]]) -> LaneSend {
        self.sent.lock().unwrap().push(parts.concat());
        self.says
    }
    fn can_read(&self) -> bool {
        false
    }
    fn read(&mut self, _key: u32, _there: u64, _here: u64, _len: u64) -> bool {
        false
    }
    fn traffic(&self) -> LaneTraffic {
        LaneTraffic::default()
    }
}

pub fn device_config() -> DeviceConfig {
    let mut config = DeviceConfig::default();
    config.transport.peer_timeout = Nanos::from_secs(2);
    config
}

impl Cluster {
    pub fn new(hosts: usize, config: Config) -> Cluster {
        Cluster::with_device(hosts, config, device_config())
    }

    /// Hosts whose endpoints have no keys in their addresses.
    pub fn well_known(hosts: usize, config: Config) -> Cluster {
        Cluster::with(hosts, config, device_config(), true)
    }

    pub fn with_device(hosts: usize, config: Config, device_config: DeviceConfig) -> Cluster {
        Cluster::with(hosts, config, device_config, false)
    }

    pub fn with(hosts: usize, config: Config, device_config: DeviceConfig, well_known: bool) -> Cluster {
        let mut net = Net::new(hosts, &device_config, VecMemory::default);
        net.carry = over_the_wire;
        let mut cluster = Cluster {
            net,
            domains: Vec::new(),
            endpoints: Vec::new(),
            qpns: Vec::new(),
            identities: Vec::new(),
            config,
            device_config,
            well_known,
            lives: 0,
        };
        for host in 0..hosts {
            let (domain, endpoint, qpn, identity) = cluster.start(host);
            cluster.identities.push(identity);
            cluster.domains.push(domain);
            cluster.endpoints.push(endpoint);
            cluster.qpns.push(qpn);
        }
        cluster
    }

    /// An endpoint's that is opened now.
    fn identity(&mut self) -> Identity {
        self.lives += 1;
        let number = NonZeroU32::new(0x9E37_79B9u32.wrapping_mul(self.lives)).expect("odd times few");
        Identity { number, well_known: self.well_known }
    }

    fn start(&mut self, host: usize) -> (Domain<VecMemory>, EndpointId, Qpn, Identity) {
        let identity = self.identity();
        let device = &mut self.net.devices[host];
        let mut domain = Domain::open(device, self.config).unwrap();
        let qpn = device.create_qp(domain.qp_init()).unwrap();
        let endpoint = domain.open_endpoint(device, self.net.now, qpn, identity, 0).unwrap();
        (domain, endpoint, qpn, identity)
    }

    /// Another process takes a host's place.
    pub fn restart(&mut self, host: usize) {
        self.net.restart(host, &self.device_config);
        let (domain, endpoint, qpn, identity) = self.start(host);
        self.identities[host] = identity;
        self.domains[host] = domain;
        self.endpoints[host] = endpoint;
        assert_eq!(self.qpns[host], qpn, "the same place");
    }

    /// The endpoint closes and another takes its number.
    pub fn reopen(&mut self, host: usize) {
        self.net.devices[host].destroy_qp(self.net.now, self.qpns[host]).unwrap();
        let (now, endpoint) = (self.net.now, self.endpoints[host]);
        self.domains[host].close_endpoint(&mut self.net.devices[host], now, endpoint);
        self.identities[host] = self.identity();
        let (device, domain) = (&mut self.net.devices[host], &mut self.domains[host]);
        let qpn = device.create_qp(domain.qp_init()).unwrap();
        self.endpoints[host] = domain.open_endpoint(device, now, qpn, self.identities[host], 0).unwrap();
        self.qpns[host] = qpn;
    }

    pub fn set_lane(&mut self, at: usize, peer: PeerId, lane: Option<Box<dyn Lane>>) {
        let (now, endpoint) = (self.net.now, self.endpoints[at]);
        self.domains[at].set_lane(&mut self.net.devices[at], now, endpoint, peer, lane);
    }

    pub fn addr(&self, host: usize) -> PeerAddr {
        PeerAddr { gid: gid(host), qpn: self.qpns[host], key: self.identities[host].key() }
    }

    pub fn peer(&mut self, at: usize, of: usize) -> PeerId {
        let addr = self.addr(of);
        let endpoint = self.endpoints[at];
        let peer = self.domains[at].peer(&mut self.net.devices[at], endpoint, addr).unwrap();
        self.domains[at].set_label(endpoint, peer, of as u64);
        peer
    }

    /// Memory of a host's with these bytes.
    pub fn bytes(&mut self, host: usize, bytes: &[u8]) -> Iov {
        let memory = self.net.devices[host].memory();
        let addr = memory.allocate(bytes.len());
        memory.at_mut(addr, bytes.len()).copy_from_slice(bytes);
        Iov { addr, len: bytes.len() as u64 }
    }

    pub fn room(&mut self, host: usize, len: usize) -> Iov {
        Iov { addr: self.net.devices[host].memory().allocate(len), len: len as u64 }
    }

    pub fn read(&mut self, host: usize, iov: Iov) -> Vec<u8> {
        self.net.devices[host].memory().at(iov.addr, iov.len as usize).to_vec()
    }

    pub fn try_send(
        &mut self,
        from: usize,
        to: usize,
        tag: Option<u64>,
        iov: &[Iov],
        context: u64,
        flags: TxFlags,
    ) -> Result<(), Refused> {
        let send = Send { to: self.peer(from, to), tag, iov, data: None, context, flags };
        self.post_send(from, &send)
    }

    pub fn post_send(&mut self, from: usize, send: &Send<'_>) -> Result<(), Refused> {
        self.domains[from].send(&mut self.net.devices[from], self.net.now, self.endpoints[from], send)
    }

    #[track_caller]
    pub fn send(&mut self, from: usize, to: usize, tag: u64, iov: Iov, context: u64) {
        self.try_send(from, to, Some(tag), &[iov], context, REPORT).unwrap();
    }

    #[track_caller]
    pub fn recv(&mut self, at: usize, from: Option<usize>, tag: u64, ignore: u64, iov: Iov, context: u64) {
        let from = from.map(|from| self.peer(at, from));
        let matching = Match::Tagged { tag, ignore };
        let recv = Recv { from, matching, iov: &[iov], context, report: true, multi: false, claim: false };
        self.post(at, &recv).unwrap();
    }

    pub fn post(&mut self, at: usize, recv: &Recv<'_>) -> Result<(), Refused> {
        self.domains[at].recv(&mut self.net.devices[at], self.net.now, self.endpoints[at], recv)
    }

    pub fn rma(&mut self, at: usize, rma: &Rma<'_>) -> Result<(), Refused> {
        self.domains[at].rma(&mut self.net.devices[at], self.net.now, self.endpoints[at], rma)
    }

    pub fn atomic(&mut self, at: usize, atomic: &Atomic<'_>) -> Result<(), Refused> {
        self.domains[at].atomic(&mut self.net.devices[at], self.net.now, self.endpoints[at], atomic)
    }

    pub fn peek(&mut self, at: usize, peek: &Peek) -> Result<(), Refused> {
        self.domains[at].peek(&mut self.net.devices[at], self.net.now, self.endpoints[at], peek)
    }

    pub fn register(
        &mut self,
        at: usize,
        iov: Iov,
        key: Option<u64>,
        rights: RemoteRights,
    ) -> (RegionId, u64) {
        let registration =
            Registration { addr: iov.addr, len: iov.len, key, virtual_addresses: false, rights };
        self.domains[at].register(&mut self.net.devices[at], &registration).unwrap()
    }

    /// One step of the clock. False if nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        self.net.flush();
        let own = self.domains.iter().map(Domain::next_timeout).min().unwrap();
        if own < self.net.next() {
            self.net.now = self.net.now.max(own);
            return true;
        }
        let domains = &mut self.domains;
        self.net.step_with(|host, device, now, begun| domains[host].take_up(device, now, begun))
    }

    pub fn progress(&mut self) {
        for (domain, device) in self.domains.iter_mut().zip(&mut self.net.devices) {
            domain.lanes_are_empty(device, self.net.now);
            domain.progress(device, self.net.now);
        }
    }

    /// The next completion at a host.
    #[track_caller]
    pub fn next(&mut self, at: usize) -> Done {
        let end = self.net.now + Nanos::from_secs(60);
        loop {
            self.progress();
            if let Some(done) = self.domains[at].poll_done() {
                return done;
            }
            assert!(self.step(), "nothing will happen any more, at {:?}", self.net.now);
            assert!(self.net.now <= end, "nothing has completed within 60 s");
        }
    }

    /// Lets everything happen that does within `span`.
    pub fn settle(&mut self, span: Nanos) {
        let end = self.net.now + span;
        loop {
            self.progress();
            self.net.flush();
            let own = self.domains.iter().map(Domain::next_timeout).min().unwrap();
            if own.min(self.net.next()) > end {
                break;
            }
            self.step();
        }
        self.net.now = self.net.now.max(end);
        self.progress();
    }

    #[track_caller]
    pub fn nothing(&mut self, at: usize) {
        assert_eq!(self.domains[at].poll_done(), None);
    }

    /// Loses and reorders packets from now on.
    pub fn rough(&mut self, seed: u64) {
        let mut rng = harness::Rng(seed);
        self.net.judge = Some(Box::new(move |_, _| match rng.below(10) {
            0 => Fate::Lost,
            1 => Fate::Twice(Nanos(rng.below(100_000))),
            2..6 => Fate::Late(Nanos(rng.below(60_000))),
            _ => Fate::Arrives,
        }));
    }

    /// Nothing to or from that host crosses any more.
    pub fn cut(&mut self, host: usize) {
        self.net.judge = Some(Box::new(move |from, transmit| {
            if from == host || transmit.to.gid == gid(host) { Fate::Lost } else { Fate::Arrives }
        }));
    }

    pub fn counters(&self, at: usize) -> Counters {
        *self.domains[at].counters()
    }
}

pub const REPORT: TxFlags = TxFlags { inject: false, level: Level::Transmit, report: true, fence: false };
pub const DELIVER: TxFlags = TxFlags { level: Level::Match, ..REPORT };
pub const INJECT: TxFlags = TxFlags { inject: true, report: false, ..REPORT };
pub const ALL_RIGHTS: RemoteRights = RemoteRights { read: true, write: true };
