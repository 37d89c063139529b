//! Peers of the same host: an endpoint has an inbox in shared memory, and lanes to those of others (`srd-shm`). The
//! messaging layer takes a lane where there is one; which there are is decided here, peer by peer. What stands in the way
//! of one is said once.

use crate::bereaved::Bereaved;
use srd_device::{Device, HostMemory, QPS_PER_PORT};
use srd_msg::{EndpointId, Identity, LaneSend, LaneTraffic, PeerAddr, PeerId};
use srd_net::log;
use srd_shm::{Address, CopyError, DIRECTORY, Inbox, NoCopy, NoLane, Options, SendError, Taken};
use srd_wire::{Gid, Nanos, Qpn, Time};
use std::path::Path;
use std::sync::Arc;

/// Records taken in one round: what a sender can put there meanwhile does not keep the round from ending.
const BUDGET: usize = 64;

/// How often dead processes are looked for.
const SWEEP_EVERY: Nanos = Nanos::from_millis(100);

/// A process that was killed takes no leave, and no poll of ours may come that would see it: a message finds out if nobody
/// has looked for this long. A look takes as long as a message does.
const PRESUMED_ALIVE: Nanos = Nanos::from_millis(5);

/// A peer that has no inbox is asked for one again after this time, twice that, and so on: its endpoint may not have begun.
const ASK_AGAIN: Nanos = Nanos::from_millis(1);
const MOST_ASKED: u32 = 12;

/// An endpoint's post and what it knows of others.
pub(crate) struct ShmPeers {
    endpoint: EndpointId,
    gid: Gid,
    /// From which port on its queue pairs count, and those of all whom it can reach.
    port_base: u16,
    post: Inbox,
    loans: Arc<Loans>,
    asleep: bool,
    next_sweep: Time,
    without: Vec<Without>,
}

/// The messaging layer over the memory of this process.
pub(crate) type Messages = srd_msg::Domain<HostMemory>;

/// The messaging layer and its device, at a time.
pub(crate) struct Layer<'a> {
    pub messages: &'a mut Messages,
    pub device: &'a mut Device<HostMemory>,
    pub now: Time,
}

/// A peer of this host without a lane.
struct Without {
    peer: PeerId,
    addr: PeerAddr,
    why: NoLane,
    /// How often it was asked for one, and when it is asked again, if ever.
    asked: u32,
    next: Option<Time>,
}

/// Where the endpoint of a queue pair is: jobs whose ports begin elsewhere use the same numbers for other endpoints.
fn address(port_base: u16, gid: Gid, qpn: Qpn) -> Address {
    Address { ip: gid.0, port: port_base.wrapping_add(qpn.0 / QPS_PER_PORT), qpn: qpn.0 }
}

impl ShmPeers {
    /// The post of an endpoint. If the system forbids it, that is said, and the reason returned.
    pub fn open(
        endpoint: EndpointId,
        gid: Gid,
        qpn: Qpn,
        port_base: u16,
        identity: Identity,
    ) -> Result<ShmPeers, String> {
        let own = address(port_base, gid, qpn);
        let options = Options { well_known: identity.well_known, ..Options::default() };
        match Inbox::open(Path::new(DIRECTORY), own, identity.number.get(), options) {
            Ok(post) => Ok(ShmPeers {
                endpoint,
                gid,
                port_base,
                loans: Arc::new(Loans(post.loans())),
                post,
                asleep: false,
                next_sweep: Time(0),
                without: Vec::new(),
            }),
            Err(error) => {
                log::once(
                    log::Level::Warn,
                    "post",
                    format_args!(
                        "no shared memory between processes of this host: {error} ({DIRECTORY}); they use the network. \
                         SRD_SHM=off says so for good"
                    ),
                );
                Err(format!("this process has no shared memory: {error} ({DIRECTORY})"))
            }
        }
    }

    /// What the endpoint lends to its peers.
    pub fn loans(&self) -> &Arc<Loans> {
        &self.loans
    }

    /// The program, or a message, has named a peer.
    pub fn meet(&mut self, layer: &mut Layer<'_>, peer: PeerId, addr: PeerAddr) {
        if addr.gid == self.gid {
            self.without.retain(|known| known.peer != peer);
            self.connect(layer, peer, addr, 0);
        }
    }

    /// Why a peer of this host has no lane.
    pub fn why_without(&self, peer: PeerId) -> Option<&NoLane> {
        self.without.iter().find(|known| known.peer == peer).map(|known| &known.why)
    }

    fn connect(&mut self, layer: &mut Layer<'_>, peer: PeerId, addr: PeerAddr, asked: u32) {
        let now = layer.now;
        let why = match self.post.connect(address(self.port_base, addr.gid, addr.qpn)) {
            Ok(lane) if key_of(&lane) != addr.key => NoLane::OtherEndpoint,
            Ok(lane) => {
                if let Err(reason) = lane.can_copy() {
                    copies_forbidden(reason);
                }
                let lane = Lane { lane, seen: now, traffic: LaneTraffic::default() };
                return layer.messages.set_lane(layer.device, now, self.endpoint, peer, Some(Box::new(lane)));
            }
            Err(why) => why,
        };
        let again = why.may_pass() && asked < MOST_ASKED;
        match &why {
            _ if again => {}
            NoLane::NoSegment => {
                log::info(format_args!(
                    "{}:{} has no shared memory; it uses the network",
                    addr.gid.ip(),
                    addr.qpn.0
                ));
            }
            why => log::once(
                log::Level::Warn,
                "lane",
                format_args!(
                    "no shared memory with {}:{}: {why}; the network is used",
                    addr.gid.ip(),
                    addr.qpn.0
                ),
            ),
        }
        let next = again.then(|| now + Nanos(ASK_AGAIN.0 << asked));
        self.without.push(Without { peer, addr, why, asked: asked + 1, next });
    }

    /// Whether anything has come.
    #[inline]
    pub fn has_news(&mut self) -> bool {
        self.asleep || self.post.has_news()
    }

    /// Takes what has come.
    #[inline]
    pub fn round(&mut self, layer: &mut Layer<'_>) -> Taken {
        if self.asleep {
            self.asleep = false;
            self.post.wake_up();
        }
        let (endpoint, post) = (self.endpoint, &mut self.post);
        let taken = post.receive(BUDGET, |sender, bytes| {
            let from = (Gid(sender.address.ip), Qpn(sender.address.qpn));
            let (at, len) = (bytes.as_ptr() as u64, bytes.len() as u32);
            layer.messages.arrived_by_shm(layer.device, layer.now, endpoint, from, at, len);
        });
        if layer.now >= self.next_sweep {
            self.sweep(layer);
        }
        taken
    }

    #[cold]
    fn sweep(&mut self, layer: &mut Layer<'_>) {
        let now = layer.now;
        self.next_sweep = now + SWEEP_EVERY;
        self.post.sweep();
        while let Some(ended) = self.post.next_ended() {
            // Who closed its endpoint has taken leave, and will be found out where it still owes something.
            if ended.why != srd_shm::WhyEnded::Closed {
                srd_shm::clear_away_the_dead(Path::new(DIRECTORY));
                let from @ (gid, qpn) = (Gid(ended.sender.address.ip), Qpn(ended.sender.address.qpn));
                log::info(format_args!("{}:{}: {}", gid.ip(), qpn.0, ended.why));
                layer.messages.lost_by_shm(layer.device, now, self.endpoint, from, ended.sender.epoch);
            }
        }
        let is_due = |without: &mut Without| without.next.is_some_and(|next| now >= next);
        for due in self.without.extract_if(.., is_due).collect::<Vec<_>>() {
            self.connect(layer, due.peer, due.addr, due.asked);
        }
        if let Some(soonest) = self.without.iter().filter_map(|without| without.next).min() {
            self.next_sweep = self.next_sweep.min(soonest);
        }
    }

    /// The program is about to sleep on something else than this post: peers must wake it over the network from now on,
    /// until the next round. False if something has come meanwhile.
    pub fn fall_asleep(&mut self) -> bool {
        self.asleep = true;
        self.post.fall_asleep()
    }
}

/// The key in the address of the endpoint that a lane leads to.
fn key_of(lane: &srd_shm::Lane) -> u32 {
    if lane.peer_is_well_known() { 0 } else { lane.peer_epoch() }
}

fn copies_forbidden(reason: NoCopy) {
    log::once(
        log::Level::Warn,
        "copies",
        format_args!("long messages between processes of this host use the network: {reason}"),
    );
}

/// What an endpoint lends, as the messaging layer says; nothing once the device has failed, since then the program has its
/// memory again and the layer does not say anything.
#[derive(Clone)]
pub(crate) struct Loans(srd_shm::Loans);

impl srd_msg::Loans for Loans {
    fn lend(&mut self, key: u32) {
        self.0.lend(key);
    }

    fn end(&mut self, key: u32) {
        self.0.end(key);
    }
}

impl Bereaved for Loans {
    fn device_failed(&self) {
        self.0.end_all();
    }
}

struct Lane {
    lane: srd_shm::Lane,
    /// When the peer's process was last seen to live.
    seen: Time,
    traffic: LaneTraffic,
}

impl Lane {
    #[cold]
    fn is_alive(&mut self, now: Time) -> bool {
        self.seen = now;
        self.lane.peer_alive()
    }

    #[cold]
    fn gone(&self, why: &dyn std::fmt::Display) -> LaneSend {
        log::info(format_args!("shared memory with queue pair {}: {why}", self.lane.peer().qpn));
        LaneSend::Gone
    }
}

impl srd_msg::Lane for Lane {
    fn longest(&self) -> usize {
        self.lane.max_record()
    }

    fn identity(&self) -> u32 {
        self.lane.peer_epoch()
    }

    #[inline]
    fn send(&mut self, now: Time, parts: &[&[u8]]) -> LaneSend {
        if now.since(self.seen) > PRESUMED_ALIVE && !self.is_alive(now) {
            srd_shm::clear_away_the_dead(Path::new(DIRECTORY));
            return self.gone(&"its process has ended");
        }
        match self.lane.send(parts) {
            Ok(()) => {
                self.traffic.tx_msgs += 1;
                self.traffic.tx_bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
                LaneSend::Sent { asleep: self.lane.peer_asleep() }
            }
            Err(SendError::Busy) => LaneSend::Full,
            Err(reason) => self.gone(&reason),
        }
    }

    fn can_read(&self) -> bool {
        self.lane.can_copy().is_ok()
    }

    fn read(&mut self, key: u32, there: u64, here: u64, len: u64) -> bool {
        // SAFETY: `here` is a part of a receive that the program has posted, and leaves alone until it completes.
        match unsafe { self.lane.read(key, there, here, len) } {
            Ok(()) => {
                self.traffic.copied_bytes += len;
                true
            }
            Err(why) => {
                if let CopyError::NoCopy(reason) = why {
                    copies_forbidden(reason);
                }
                false
            }
        }
    }

    fn traffic(&self) -> LaneTraffic {
        self.traffic
    }
}
