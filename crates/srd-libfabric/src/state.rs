//! What the instance's lock protects besides the device: the messaging layer, and what is known of its endpoints.

use crate::boundary::Outcome;
use crate::completions::Reports;
use crate::constants::BAD_STATE;
use crate::shm_peers::{Messages, ShmPeers};
use srd_device::QPS_PER_PORT;
use srd_msg::{EndpointId, PeerAddr, PeerId};
use srd_wire::{InstanceAddr, Qpn, Time};

/// See the module.
pub(crate) struct State {
    /// The messaging layer.
    pub messages: Messages,
    /// By the number of [`EndpointId`].
    pub endpoints: Vec<Option<Bound>>,
    /// When to see whether the program still polls.
    pub ask_again: Time,
    /// When the device was last asked to ring.
    pub alarm: Time,
    /// The last look found nothing to do, and nobody has asked for anything since.
    pub is_settled: bool,
    /// Everything has been given back.
    pub closed: bool,
}

/// What is known of an open endpoint.
pub(crate) struct Bound {
    /// Its queue pair.
    pub qpn: Qpn,
    /// By fi_addr_t: those that the endpoint has met.
    pub peers: Vec<Option<PeerId>>,
    /// Its shared memory, or why it has none.
    pub shm: Result<ShmPeers, String>,
    /// Where its completions go.
    pub reports: Reports,
}

impl State {
    /// Of a messaging layer without endpoints.
    pub fn new(messages: Messages) -> State {
        State {
            messages,
            endpoints: Vec::new(),
            ask_again: Time::NEVER,
            alarm: Time::NEVER,
            is_settled: false,
            closed: false,
        }
    }

    /// When there is something to do even if nothing comes.
    #[inline]
    pub fn next_alarm(&self) -> Time {
        self.messages.next_timeout().min(self.ask_again)
    }

    /// Whether the program has named an endpoint of that instance to any of ours. `port_base`: see [`QPS_PER_PORT`].
    pub fn has_named(&self, instance: InstanceAddr, port_base: u16) -> bool {
        let place = |addr: PeerAddr| (addr.gid, port_base.wrapping_add(addr.qpn.0 / QPS_PER_PORT));
        let mut known = self.endpoints().flat_map(|(id, _)| self.messages.peers(id));
        known.any(|peer| peer.named && place(peer.addr) == (instance.gid, instance.port))
    }

    /// The open endpoints.
    pub fn endpoints(&self) -> impl Iterator<Item = (EndpointId, &Bound)> {
        (0..).zip(&self.endpoints).filter_map(|(id, bound)| Some((EndpointId(id), bound.as_ref()?)))
    }

    /// Enters an endpoint that was opened.
    pub fn enter(&mut self, endpoint: EndpointId, bound: Bound) {
        let index = endpoint.0 as usize;
        if self.endpoints.len() <= index {
            self.endpoints.resize_with(index + 1, || None);
        }
        self.endpoints[index] = Some(bound);
    }

    /// Takes out one that is closed.
    pub fn leave(&mut self, endpoint: EndpointId) {
        if let Some(bound) = self.endpoints.get_mut(endpoint.0 as usize) {
            *bound = None;
        }
    }

    /// The messaging layer and an endpoint.
    #[inline]
    pub fn at(&mut self, endpoint: EndpointId) -> Outcome<(&mut Messages, &mut Bound)> {
        match self.endpoints.get_mut(endpoint.0 as usize) {
            Some(Some(bound)) => Ok((&mut self.messages, bound)),
            _ => Err(BAD_STATE),
        }
    }

    /// From now on peers of this host wake us over the network. False if something has come meanwhile.
    pub fn fall_asleep(&mut self) -> bool {
        self.endpoints
            .iter_mut()
            .flatten()
            .filter_map(|bound| bound.shm.as_mut().ok())
            .all(ShmPeers::fall_asleep)
    }

    /// Whether anything has come by shared memory.
    #[inline]
    pub fn has_news(&mut self) -> bool {
        self.endpoints
            .iter_mut()
            .flatten()
            .filter_map(|bound| bound.shm.as_mut().ok())
            .any(ShmPeers::has_news)
    }

    /// Whether a look may find something though no packet has moved and no time has come. `shm`: some endpoint has shared memory.
    #[inline]
    pub fn has_work(&mut self, shm: bool) -> bool {
        !self.is_settled || shm && self.has_news()
    }

    /// Hands what has completed to completion queues and counters. Returns whether there was anything.
    #[inline]
    pub fn collect(&mut self) -> bool {
        let State { messages, endpoints, .. } = self;
        messages.take_done(|done| {
            if let Some(Some(bound)) = endpoints.get(done.endpoint.0 as usize) {
                bound.reports.deliver(done);
            }
        })
    }
}
