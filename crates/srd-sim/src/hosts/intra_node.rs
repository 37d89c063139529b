//! Shared memory between programs of a host, as one of them sees it: what it sends and receives there, and when that is done.
//! How long a copy takes is [`OnNode`]'s matter; who carries messages from one program to the other, the simulation's. Real processes
//! have messages of their own, and make [`Copies`] only.

use crate::hosts::settings::OnNode;
use srd_baselines::units::Ps;
use srd_wire::{Body, Time, codec};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// A message of one program to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Near {
    from: u32,
    tag: u64,
    /// When the receiver has it.
    pub at: Time,
}

/// Sender and tag: what a receive must match.
type Envelope = (u32, u64);

/// What one program copies, one thing after the other.
pub(crate) struct Copies {
    on: OnNode,
    /// It is copying until then.
    free_at: Ps,
    /// And datagrams that are whole messages until then.
    whole_until: Ps,
}

impl Copies {
    /// None yet.
    pub fn new(on: OnNode) -> Copies {
        Copies { on, free_at: Ps::ZERO, whole_until: Ps::ZERO }
    }

    /// Copies so many bytes. When that is done.
    pub fn copy(&mut self, now: Time, bytes: u64) -> Time {
        self.free_at = self.free_at.max(Ps::of(now)) + Ps::to_send(bytes, self.on.rate);
        self.free_at.time()
    }

    /// When what has been copied so far is with another program.
    pub fn there(&self) -> Time {
        (self.free_at + self.on.latency).time()
    }

    /// Carries a datagram of SRD's. When it is there: the bytes of its message are copied. Who copies a long message looks between its datagrams
    /// what else there is to do, so one that is a whole message does not wait for it. That they have come memory need not be told, so an
    /// acknowledgement takes no time.
    pub fn carry(&mut self, now: Time, datagram: &[u8]) -> Time {
        let Ok(Body::Data(data)) = codec::decode(datagram).map(|packet| packet.body) else { return now };
        let bytes = data.payload.len() as u64;
        self.copy(now, bytes);
        if bytes < u64::from(data.len) {
            return self.there();
        }
        self.whole_until = self.whole_until.max(Ps::of(now)) + Ps::to_send(bytes, self.on.rate);
        (self.whole_until + self.on.latency).time()
    }
}

/// See the module.
pub(crate) struct SharedMemory {
    copies: Copies,
    rank: u32,
    /// And whose they are.
    outgoing: VecDeque<(u32, Near)>,
    /// Messages without a receive, and when they are there; receives without a message.
    unexpected: HashMap<Envelope, VecDeque<Time>>,
    posted: HashMap<Envelope, VecDeque<u32>>,
    /// Requests, by when they end, and among those by when they were matched.
    ending: BinaryHeap<Reverse<(Time, u64, u32)>>,
    serial: u64,
}

impl SharedMemory {
    /// Of the program of that rank.
    pub fn new(on: OnNode, rank: u32) -> SharedMemory {
        SharedMemory {
            copies: Copies::new(on),
            rank,
            outgoing: VecDeque::new(),
            unexpected: HashMap::new(),
            posted: HashMap::new(),
            ending: BinaryHeap::new(),
            serial: 0,
        }
    }

    /// Sends: the request ends when the copy is made.
    pub fn send(&mut self, now: Time, to: u32, tag: u64, bytes: u64, request: u32) {
        let copied = self.copies.copy(now, bytes);
        self.outgoing.push_back((to, Near { from: self.rank, tag, at: self.copies.there() }));
        self.ends(copied, request);
    }

    /// Copies to another program's memory or from there: the request ends when the copy is made.
    pub fn copy(&mut self, now: Time, bytes: u64, request: u32) {
        let copied = self.copies.copy(now, bytes);
        self.ends(copied, request);
    }

    /// Receives: the request ends when there is a message for it.
    pub fn recv(&mut self, now: Time, from: u32, tag: u64, request: u32) {
        match self.unexpected.get_mut(&(from, tag)).and_then(VecDeque::pop_front) {
            Some(at) => self.ends(at.max(now), request),
            None => self.posted.entry((from, tag)).or_default().push_back(request),
        }
    }

    /// A message will be there at its time.
    pub fn arrives(&mut self, near: Near) {
        let envelope = (near.from, near.tag);
        match self.posted.get_mut(&envelope).and_then(VecDeque::pop_front) {
            Some(request) => self.ends(near.at, request),
            None => self.unexpected.entry(envelope).or_default().push_back(near.at),
        }
    }

    fn ends(&mut self, at: Time, request: u32) {
        self.serial += 1;
        self.ending.push(Reverse((at, self.serial, request)));
    }

    /// The next message for another program, and that one's rank.
    pub fn poll_outgoing(&mut self) -> Option<(u32, Near)> {
        self.outgoing.pop_front()
    }

    /// The next request that has ended.
    pub fn poll(&mut self, now: Time) -> Option<u32> {
        let &Reverse((at, _, request)) = self.ending.peek()?;
        (at <= now).then(|| {
            self.ending.pop();
            request
        })
    }

    /// When the next request ends.
    pub fn next_timeout(&self) -> Time {
        self.ending.peek().map_or(Time::NEVER, |&Reverse((at, ..))| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_wire::{Data, Incarnation, MrKey, MsgId, Op, Packet, PathId, Psn, Qkey, Qpn, Route};

    #[test]
    fn a_message_takes_latency_and_its_bytes_and_copies_wait_for_each_other() {
        let [mut one, mut other] = [0, 1].map(|rank| SharedMemory::new(OnNode::default(), rank));
        one.send(Time(100), 1, 7, 1000, 0);
        one.send(Time(100), 1, 7, 1000, 1);
        other.recv(Time(150), 0, 7, 5);
        while let Some((_, near)) = one.poll_outgoing() {
            other.arrives(near);
        }
        // 1,000 bytes take 100 ns.
        assert_eq!((one.next_timeout(), one.poll(Time(199))), (Time(200), None));
        assert_eq!((one.poll(Time(300)), one.poll(Time(300)), one.poll(Time(300))), (Some(0), Some(1), None));
        assert_eq!((other.poll(Time(499)), other.poll(Time(500))), (None, Some(5)));
        // The second has no receive yet; one that comes late has it at once.
        assert_eq!(other.next_timeout(), Time::NEVER);
        other.recv(Time(1000), 0, 7, 6);
        assert_eq!(other.poll(Time(1000)), Some(6));
        // Another tag is another message.
        one.send(Time(2000), 1, 8, 0, 2);
        other.recv(Time(2000), 0, 7, 7);
        other.arrives(one.poll_outgoing().unwrap().1);
        assert_eq!(other.next_timeout(), Time::NEVER);
    }

    #[test]
    fn a_datagram_of_a_long_message_waits_for_the_others_and_a_whole_message_does_not() {
        let mut copies = Copies::new(OnNode::default());
        let datagram = |len: u32| {
            let data = Data {
                psn: Psn(0),
                stamp: Time(0).stamp(),
                path: PathId(0),
                tx_count: 0,
                ack_request: false,
                more: false,
                msg: MsgId(0),
                len,
                offset: 0,
                op: Op::Write {
                    route: Route { dst_qpn: Qpn(0), src_qpn: Qpn(0), qkey: Qkey(0) },
                    rkey: MrKey(0),
                    addr: 0,
                    imm: None,
                },
                payload: (),
            };
            let (dst_tag, src_tag) = (Incarnation(1).tag(), Incarnation(2).tag());
            let packet =
                Packet { src_port: 1, dst_tag, src_tag, hello: None, ack: None, body: Body::Data(data) };
            let mut bytes = [0; codec::MAX_HEADER + 1000];
            let header = codec::encode_header(&packet, 1000, &mut bytes);
            bytes[..header + 1000].to_vec()
        };
        for nth in 1..=3 {
            assert_eq!(copies.carry(Time(0), &datagram(10_000)), Time(300 + 100 * nth));
        }
        assert_eq!(copies.carry(Time(0), &datagram(1000)), Time(400));
        assert_eq!(copies.carry(Time(0), &datagram(1000)), Time(500));
        assert_eq!(copies.carry(Time(0), &datagram(10_000)), Time(900));
    }

    #[test]
    fn a_datagram_takes_what_its_message_does_and_an_acknowledgement_nothing() {
        let mut copies = Copies::new(OnNode::default());
        assert_eq!(copies.copy(Time(50), 1000), Time(150));
        assert_eq!(copies.carry(Time(100), b"no packet of SRD's"), Time(100));
        assert_eq!(copies.there(), Time(450));
    }
}
