//! An upper layer that takes everything and counts; a closed one only of who has shown where he is.

use srd_proto::*;
use srd_wire::{InstanceAddr, Op, Status};

#[derive(Default)]
pub struct Count {
    /// Nobody knows a queue key of its.
    pub closed: bool,
    pub received: u64,
    pub completed: u64,
}

impl<P: Payload> UpperLayer<P> for Count {
    fn vouches(&self, _: &Op, _: InstanceAddr) -> bool {
        !self.closed
    }
    fn begin(&mut self, _: &Incoming, _: Option<Stranger>) -> Result<Cookie, Status> {
        Ok(Cookie(0))
    }
    fn place(&mut self, _: Cookie, _: &Incoming, _: u32, _: &P) {}
    fn finish(&mut self, _: Cookie, _: &Incoming) -> Result<(), Status> {
        self.received += 1;
        Ok(())
    }
    fn abandon(&mut self, _: Cookie, _: &Incoming) {}
    fn outcome(&mut self, _: PeerId, _: Token, outcome: Result<(), Status>) {
        assert_eq!(outcome, Ok(()));
        self.completed += 1;
    }
    fn peer_lost(&mut self, _: PeerId, _: u8, _: InstanceAddr, _: PeerLoss) {}
}
