//! Peers of the same host: an endpoint has a post in shared memory, and lanes to those of others (`srd-shm`). The
//! messaging layer takes a lane where there is one; which there are is decided here, peer by peer. What stands in the way
//! of one is said once.

use crate::engine::Messages;
use crate::log;
use srd_device::{Device, HostMemory};
use srd_msg::{EndpointId, LaneSend, PeerAddr, PeerId};
use srd_shm::{Address, CopyError, NoCopy, NoLane, Options, Post, SendError};
use srd_wire::{Gid, Nanos, Qpn, Time};
use std::path::Path;

/// Where processes of a host meet.
const DIRECTORY: &str = "/dev/shm";

/// Records taken in one round: what a sender can put there meanwhile does not keep the round from ending.
const BUDGET: usize = 64;

/// How often dead processes are looked for.
const SWEEP_EVERY: Nanos = Nanos::from_millis(100);

/// A peer that has no post is asked for one again after this time, twice that, and so on: its endpoint may not have begun.
const ASK_AGAIN: Nanos = Nanos::from_millis(1);
const MOST_ASKED: u32 = 12;

/// An endpoint's post and what it knows of others.
pub(crate) struct Near {
    endpoint: EndpointId,
    gid: Gid,
    post: Post,
    asleep: bool,
    next_sweep: Time,
    /// Peers of this host without a lane yet: when they are asked again, and how often they were.
    wanted: Vec<(PeerId, PeerAddr, Time, u32)>,
}

fn address(addr: PeerAddr) -> Address {
    Address { ip: addr.gid.0, qpn: addr.qpn.0 }
}

impl Near {
    /// The post of an endpoint at `own`; none if the system forbids it, which is said.
    pub fn open(endpoint: EndpointId, own: PeerAddr, epoch: u32) -> Option<Near> {
        match Post::open(Path::new(DIRECTORY), address(own), epoch, Options::default()) {
            Ok(post) => Some(Near {
                endpoint,
                gid: own.gid,
                post,
                asleep: false,
                next_sweep: Time(0),
                wanted: Vec::new(),
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
                None
            }
        }
    }

    /// The program, or a message, has named a peer.
    pub fn meet(&mut self, messages: &mut Messages, now: Time, peer: PeerId, addr: PeerAddr) {
        if addr.gid == self.gid && !self.wanted.iter().any(|(known, ..)| *known == peer) {
            self.connect(messages, now, peer, addr, 0);
        }
    }

    fn connect(&mut self, messages: &mut Messages, now: Time, peer: PeerId, addr: PeerAddr, asked: u32) {
        match self.post.connect(address(addr)) {
            Ok(lane) => {
                if let Err(reason) = lane.can_copy() {
                    copies_forbidden(reason);
                }
                messages.set_lane(self.endpoint, peer, Some(Box::new(Lane(lane))));
            }
            Err(reason) if reason.may_pass() && asked < MOST_ASKED => {
                self.wanted.push((peer, addr, now + Nanos(ASK_AGAIN.0 << asked), asked + 1));
            }
            Err(NoLane::NoSegment) => {
                log::info(format_args!(
                    "{}:{} has no shared memory; it uses the network",
                    addr.gid.ip(),
                    addr.qpn.0
                ));
            }
            Err(reason) => log::once(
                log::Level::Warn,
                "lane",
                format_args!(
                    "no shared memory with {}:{}: {reason}; the network is used",
                    addr.gid.ip(),
                    addr.qpn.0
                ),
            ),
        }
    }

    /// Whether anything has come.
    #[inline]
    pub fn has_news(&mut self) -> bool {
        self.asleep || self.post.has_news()
    }

    /// Takes what has come. Returns whether there was anything.
    #[inline]
    pub fn round(&mut self, messages: &mut Messages, device: &mut Device<HostMemory>, now: Time) -> bool {
        if self.asleep {
            self.asleep = false;
            self.post.wake_up();
        }
        let (endpoint, post) = (self.endpoint, &mut self.post);
        let taken = post.receive(BUDGET, |sender, bytes| {
            let from = PeerAddr { gid: Gid(sender.address.ip), qpn: Qpn(sender.address.qpn) };
            messages.arrived_near(device, now, endpoint, from, bytes.as_ptr() as u64, bytes.len() as u32);
        });
        if now >= self.next_sweep {
            self.sweep(messages, device, now);
        }
        taken > 0
    }

    #[cold]
    fn sweep(&mut self, messages: &mut Messages, device: &mut Device<HostMemory>, now: Time) {
        self.next_sweep = now + SWEEP_EVERY;
        self.post.sweep();
        while let Some(ended) = self.post.next_ended() {
            // Who closed its endpoint has taken leave, and will be found out where it still owes something.
            if ended.why != srd_shm::WhyEnded::Closed {
                let from = PeerAddr { gid: Gid(ended.sender.address.ip), qpn: Qpn(ended.sender.address.qpn) };
                log::info(format_args!("{}:{}: {}", from.gid.ip(), from.qpn.0, ended.why));
                messages.lost_near(device, now, self.endpoint, from);
            }
        }
        for (peer, addr, when, asked) in std::mem::take(&mut self.wanted) {
            match now >= when {
                true => self.connect(messages, now, peer, addr, asked),
                false => self.wanted.push((peer, addr, when, asked)),
            }
        }
        if let Some(soonest) = self.wanted.iter().map(|(.., when, _)| *when).min() {
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

fn copies_forbidden(reason: NoCopy) {
    log::once(
        log::Level::Warn,
        "copies",
        format_args!("long messages between processes of this host use the network: {reason}"),
    );
}

struct Lane(srd_shm::Lane);

impl srd_msg::Lane for Lane {
    fn longest(&self) -> usize {
        self.0.max_record()
    }

    #[inline]
    fn send(&mut self, parts: &[&[u8]]) -> LaneSend {
        match self.0.send(parts) {
            Ok(()) => LaneSend::Sent { asleep: self.0.peer_asleep() },
            Err(SendError::Busy) => LaneSend::Full,
            Err(reason) => {
                log::info(format_args!("shared memory with queue pair {}: {reason}", self.0.peer().qpn));
                LaneSend::Gone
            }
        }
    }

    fn can_read(&self) -> bool {
        self.0.can_copy().is_ok()
    }

    fn read(&mut self, there: u64, here: u64, len: u64) -> bool {
        // SAFETY: `here` is a part of a receive that the program has posted, and leaves alone until it completes.
        match unsafe { self.0.read(there, here, len) } {
            Err(CopyError::NoCopy(reason)) => {
                copies_forbidden(reason);
                false
            }
            copied => copied.is_ok(),
        }
    }
}
