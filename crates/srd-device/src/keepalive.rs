//! Peers that may be gone: what ends when one is lost, and how the loss of one that only owes us something is found.

use crate::api::*;
use crate::deferred::Deferred;
use crate::objects::Objects;
use crate::send_queue::Progress;
use crate::slab::Key;
use crate::status;
use crate::token::TokenOf;
use crate::transport::Transport;
use srd_proto::{Payload, PeerId, PeerLoss};
use srd_wire::{InstanceAddr, Nanos, Op, Qkey, Qpn, Route};

/// See [`Objects::ask_watched`].
pub(crate) const KEEPALIVE_QPN: Qpn = Qpn(0);

impl<M: Memory> Objects<M> {
    /// A context has ended. The transport has reported the messages in it; what is left are reads whose request was
    /// accepted, and messages that wait for a receive buffer over there.
    pub fn peer_is_lost(&mut self, peer: PeerId, port: u8, addr: InstanceAddr, why: PeerLoss) {
        self.watched.remove(&peer);
        let slot = addr.port.wrapping_sub(self.config.port_base);
        let lost: Vec<Key> = self
            .requests
            .iter()
            .filter(|(_, request)| match request.progress {
                Progress::AwaitingData(from) | Progress::InFlight(from) => from == peer,
                Progress::Waiting => {
                    request.dst_qpn.0 / QPS_PER_PORT == slot
                        && self.handles.get(request.ah).is_some_and(|host| host.gid == addr.gid)
                }
                Progress::Held => false,
            })
            .map(|(key, _)| key)
            .collect();
        for key in lost {
            self.end_request(key, status::of_loss(why));
        }
        let slot = self.numbers.slots().nth(port as usize);
        if let Some(slot) = slot {
            self.tell_loss(Loss { peer: addr, slot, why });
        }
        if let PeerLoss::Dead { answered_before } = why {
            // SRD.txt, section 3.3.2.1, Remote Unresponsive Event.
            self.raise(AsyncEvent::RemoteUnresponsive { peer: addr, answered_before });
        }
    }

    /// While a peer owes us read data there may be nothing of ours on the way to it, and so nothing that would show
    /// that it is gone. So it is sent a keepalive now and then, as long as a read waits.
    pub fn watch(&mut self, peer: PeerId) {
        if let std::collections::hash_map::Entry::Vacant(entry) = self.watched.entry(peer) {
            entry.insert(false);
            self.deferred.push_later(self.now + self.watch_interval(), Deferred::Watch(peer));
        }
    }

    fn watch_interval(&self) -> Nanos {
        Nanos((self.config.transport.peer_timeout.0 / 4).max(1))
    }

    /// The keepalive: an empty datagram to queue pair 0, which nobody has, so that the transport over there
    /// acknowledges it and the device drops it.
    pub fn ask_watched<T: Transport<M::Payload>>(&mut self, transport: &mut T, peer: PeerId) {
        let waits = self.requests.iter().any(|(_, request)| request.progress == Progress::AwaitingData(peer));
        if !waits {
            self.watched.remove(&peer);
            return;
        }
        let Some(asked) = self.watched.get_mut(&peer) else { return };
        if !*asked {
            let route = Route { dst_qpn: KEEPALIVE_QPN, src_qpn: KEEPALIVE_QPN, qkey: Qkey(0) };
            let op = Op::Send { route, imm: None, datagram: true };
            let token = TokenOf::Watch(peer).token();
            *asked = transport.send(self.now, peer, token, op, M::Payload::empty()).is_ok();
        }
        self.deferred.push_later(self.now + self.watch_interval(), Deferred::Watch(peer));
    }

    pub fn watch_outcome(&mut self, peer: PeerId) {
        if let Some(asked) = self.watched.get_mut(&peer) {
            *asked = false;
        }
    }
}
