//! The surface of the messaging layer: a domain with its registered memory and its endpoints. Every call gets the device
//! that the domain works on, and the time.

use crate::api::*;
use srd_device::{CqId, Device, QpInit, Store};
use srd_wire::{Qpn, Time};
use std::marker::PhantomData;

/// See the module.
pub struct Domain<M: Store> {
    memory: PhantomData<M>,
}

#[allow(unused_variables, missing_docs, clippy::todo)]
impl<M: Store> Domain<M> {
    /// Takes a protection domain and a completion queue of the device.
    pub fn open(device: &mut Device<M>, config: Config) -> Result<Domain<M>, Refused> {
        todo!()
    }

    /// Gives everything back to the device. Its endpoints are closed already.
    pub fn close(&mut self, device: &mut Device<M>, now: Time) {
        todo!()
    }

    pub fn config(&self) -> &Config {
        todo!()
    }

    /// Where all queue pairs of this domain complete: to be armed, and waited for.
    pub fn cq(&self) -> CqId {
        todo!()
    }

    // ---- endpoints ----

    /// What an endpoint's queue pair is to be made with (by `Device::create_qp`, or the instance's).
    pub fn qp_init(&self) -> QpInit {
        todo!()
    }

    /// Makes a queue pair an endpoint that can send and receive; `tx` limits its outstanding transmit operations (0: the
    /// configuration's). The random `epoch` tells it from the endpoint that had that number before.
    pub fn open_endpoint(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        qpn: Qpn,
        epoch: u32,
        tx: u32,
    ) -> Result<EndpointId, Refused> {
        todo!()
    }

    /// Whether anything of this endpoint is under way that a peer still waits for: it should go on for a moment.
    pub fn is_busy(&self, endpoint: EndpointId) -> bool {
        todo!()
    }

    /// Ends an endpoint; nothing of it completes any more. The caller destroys the queue pair afterwards.
    pub fn close_endpoint(&mut self, device: &mut Device<M>, now: Time, endpoint: EndpointId) {
        todo!()
    }

    /// FI_OPT_MIN_MULTI_RECV.
    pub fn set_min_multi_recv(&mut self, endpoint: EndpointId, bytes: u64) {
        todo!()
    }

    // ---- peers ----

    /// The peer at an address, known from now on. The same address gives the same peer.
    pub fn peer(
        &mut self,
        device: &mut Device<M>,
        endpoint: EndpointId,
        addr: PeerAddr,
    ) -> Result<PeerId, Refused> {
        todo!()
    }

    /// What [`Done::source`] says of messages from this peer (its fi_addr_t); [`NO_LABEL`] takes the label away.
    pub fn set_label(&mut self, endpoint: EndpointId, peer: PeerId, label: u64) {
        todo!()
    }

    /// The program will not name this peer again (fi_av_remove). What is under way completes.
    pub fn forget_peer(&mut self, endpoint: EndpointId, peer: PeerId) {
        todo!()
    }

    // ---- registered memory ----

    /// Registers memory. Returns its handle and the key by which peers name it.
    pub fn register(
        &mut self,
        device: &mut Device<M>,
        registration: &Registration,
    ) -> Result<(RegionId, u64), Refused> {
        todo!()
    }

    /// Peers cannot reach it any more, and nothing of it is touched, when this returns.
    pub fn deregister(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        region: RegionId,
    ) -> Result<(), Refused> {
        todo!()
    }

    // ---- operations ----

    pub fn send(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        send: &Send<'_>,
    ) -> Result<(), Refused> {
        todo!()
    }

    pub fn recv(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        recv: &Recv<'_>,
    ) -> Result<(), Refused> {
        todo!()
    }

    pub fn peek(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        peek: &Peek,
    ) -> Result<(), Refused> {
        todo!()
    }

    /// FI_CLAIM | FI_DISCARD without FI_PEEK: drops the message that was set aside under `context`.
    pub fn discard_claimed(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        context: u64,
    ) -> Result<(), Refused> {
        todo!()
    }

    pub fn rma(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        rma: &Rma<'_>,
    ) -> Result<(), Refused> {
        todo!()
    }

    pub fn atomic(
        &mut self,
        device: &mut Device<M>,
        now: Time,
        endpoint: EndpointId,
        atomic: &Atomic<'_>,
    ) -> Result<(), Refused> {
        todo!()
    }

    /// fi_cancel(3) of the oldest receive with that context that no message has matched: it completes with
    /// [`Failure::Canceled`]. False if there is none.
    pub fn cancel(&mut self, endpoint: EndpointId, context: u64) -> bool {
        todo!()
    }

    // ---- progress ----

    /// Takes what the device has completed and does what follows from it. Returns whether there was anything.
    pub fn progress(&mut self, device: &mut Device<M>, now: Time) -> bool {
        todo!()
    }

    /// When [`Domain::progress`] is to be called though the device has completed nothing.
    pub fn next_timeout(&self) -> Time {
        todo!()
    }

    /// The oldest completion that nobody has taken.
    pub fn poll_done(&mut self) -> Option<Done> {
        todo!()
    }
}
