//! What the device asks of the transport: the part of [`Endpoint`] that sends. Behind a trait so that tests see every
//! call.

use srd_proto::{Endpoint, Payload, PeerId, SendError, Token};
use srd_wire::{InstanceAddr, Op, Time};

/// See [`Endpoint`]'s methods of the same names.
pub(crate) trait Transport<P> {
    fn connect(&mut self, now: Time, port: u8, to: InstanceAddr) -> Result<PeerId, SendError>;
    fn context_of(&self, port: u8, to: InstanceAddr) -> Option<PeerId>;
    fn send(&mut self, now: Time, peer: PeerId, token: Token, op: Op, payload: P) -> Result<(), SendError>;
    fn cancel(&mut self, now: Time, peer: PeerId, which: &mut dyn FnMut(Token) -> bool);
    fn keep(&mut self, peer: PeerId, copy: &mut dyn FnMut(Token) -> Option<P>);
}

impl<P: Payload> Transport<P> for Endpoint<P> {
    #[inline]
    fn connect(&mut self, now: Time, port: u8, to: InstanceAddr) -> Result<PeerId, SendError> {
        Endpoint::connect(self, now, port, to)
    }

    fn context_of(&self, port: u8, to: InstanceAddr) -> Option<PeerId> {
        Endpoint::context_of(self, port, to)
    }

    #[inline]
    fn send(&mut self, now: Time, peer: PeerId, token: Token, op: Op, payload: P) -> Result<(), SendError> {
        Endpoint::send(self, now, peer, token, op, payload)
    }

    fn cancel(&mut self, now: Time, peer: PeerId, which: &mut dyn FnMut(Token) -> bool) {
        Endpoint::cancel(self, now, peer, which)
    }

    fn keep(&mut self, peer: PeerId, copy: &mut dyn FnMut(Token) -> Option<P>) {
        Endpoint::keep(self, peer, copy)
    }
}
