//! Writes the packets of somebody who means harm: well-formed ones that lie about who sends them and what for, others with
//! fields at their edges, and noise; in clear and sealed under a key that nobody else has. All of it follows from a seed.
#![allow(dead_code)] // each test file uses a part of it

use srd_wire::seal::{self, Keyring, Limits, Psk};
use srd_wire::*;

/// Random numbers that follow from a seed (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.roll() % end.max(1) as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A number of that many bytes, mostly where mistakes live: at an end of its type, or beside a power of two.
    pub fn edge(&mut self, width: usize) -> u64 {
        let bits = 8 * width.clamp(1, 8) as u32;
        let number = match self.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => self.below(8) as u64,
            3 => self.roll(),
            4 => 1 << self.below(bits as usize),
            _ => (1u64 << self.below(bits as usize)).wrapping_sub(1),
        };
        number & (u64::MAX >> (64 - bits))
    }
}

/// What one forged packet is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Bytes without a meaning.
    Noise,
    /// One of the others with up to four fields at their edges, or cut short.
    Edges,
    /// A hello.
    Hello,
    /// One whose sender says that it can receive next to nothing.
    SmallHello,
    /// A hello with a question about a path.
    Probe,
    /// A hello with data, RDMA, or what answers them.
    Data,
    /// Data that names somebody, or whoever was overheard.
    NamedData,
    /// An acknowledgement of what was never sent.
    Ack,
    /// Word that somebody is not who he was.
    Reset,
    /// Bytes that look sealed.
    SealedNoise,
    /// Bytes that look like a sealed packet between those who were overheard.
    SealedNamed,
    /// The same, with a hello, and under a key of another epoch each time.
    SealedEpoch,
    /// Bytes that look like a sealed introduction.
    SealedHelloNoise,
    /// A hello that is sealed as it should be, under another key.
    SealedHello,
}

/// What somebody writes who takes receivers for instances in clear.
pub const IN_CLEAR: [Kind; 9] = [
    Kind::Noise,
    Kind::Edges,
    Kind::Hello,
    Kind::SmallHello,
    Kind::Probe,
    Kind::Data,
    Kind::NamedData,
    Kind::Ack,
    Kind::Reset,
];

/// And for sealed ones.
pub const SEALED: [Kind; 5] =
    [Kind::SealedNoise, Kind::SealedNamed, Kind::SealedEpoch, Kind::SealedHelloNoise, Kind::SealedHello];

const FLAG_HELLO: u8 = 1;
const FLAG_SEALED: u8 = 4;
const FLAG_INITIAL: u8 = 8;
/// Where a hello has the longest datagram.
const MAX_DATAGRAM_AT: usize = codec::COMMON_LEN + 20;

/// See the module.
pub struct Forger {
    pub dice: Dice,
    /// The port on which the supposed sender receives.
    pub src_port: u16,
    /// Pairs of receiver's and sender's incarnation that are known, or were told.
    pub overheard: Vec<(Incarnation, Incarnation)>,
    /// Queue pairs to try, and keys.
    pub qpns: Vec<Qpn>,
    pub qkeys: Vec<Qkey>,
}

impl Forger {
    pub fn new(seed: u64, src_port: u16) -> Forger {
        Forger {
            dice: Dice(seed),
            src_port,
            overheard: Vec::new(),
            qpns: vec![Qpn(2), Qpn(130)],
            qkeys: Vec::new(),
        }
    }

    /// A packet of one of `kinds`.
    pub fn any(&mut self, kinds: &[Kind]) -> Vec<u8> {
        let kind = self.dice.pick(kinds);
        self.forge(kind)
    }

    pub fn forge(&mut self, kind: Kind) -> Vec<u8> {
        match kind {
            Kind::Noise => {
                let len = self.dice.below(1400);
                self.noise(len)
            }
            Kind::Edges => {
                let kind = self.dice.pick(&IN_CLEAR[2..]);
                let mut bytes = self.forge(kind);
                self.distort(&mut bytes);
                bytes
            }
            Kind::Hello => self.hello(Body::None),
            Kind::SmallHello => {
                let mut bytes = self.hello(Body::None);
                let size = self.dice.pick(&[0u16, 1, 27, 28, 76, 128, 204, 467]);
                bytes[MAX_DATAGRAM_AT..][..2].copy_from_slice(&size.to_be_bytes());
                bytes
            }
            Kind::Probe => {
                let number = self.dice.roll() as u32;
                self.hello(Body::Probe(Probe { path: PathId(0), number, stamp: Stamp(number) }))
            }
            Kind::Data => {
                let who = Incarnation(self.dice.roll() | 1);
                let body = self.data(who);
                self.hello_of(who, body)
            }
            Kind::NamedData => {
                let names = self.names();
                let body = self.data(names.1);
                self.named(names, None, body)
            }
            Kind::Ack => {
                let (names, ack) = (self.names(), self.ack());
                self.named(names, Some(ack), Body::None)
            }
            Kind::Reset => {
                let (dst, src) = self.names();
                let stale = self.dice.pick(&[dst.tag(), src.tag(), Tag(self.dice.0 as u32)]);
                let (dst_tag, src_tag) = (dst.tag(), src.tag());
                let body = Body::Reset { stale };
                encode(Packet { src_port: self.src_port, dst_tag, src_tag, hello: None, ack: None, body })
            }
            Kind::SealedNoise => {
                let len = 12 + 24 + self.dice.below(200);
                let mut bytes = self.noise(len);
                (bytes[0], bytes[1]) = (VERSION << 4 | 1, FLAG_SEALED);
                bytes
            }
            Kind::SealedNamed => {
                let (dst, src) = self.names();
                let body = self.data(src);
                let (dst_tag, src_tag) = (dst.tag(), src.tag());
                let mut bytes = encode(Packet {
                    src_port: self.src_port,
                    dst_tag,
                    src_tag,
                    hello: None,
                    ack: None,
                    body,
                });
                bytes[1] |= FLAG_SEALED;
                let tag = self.noise(seal::TAG_LEN);
                bytes.extend(tag);
                bytes.extend(self.dice.edge(4).to_be_bytes());
                bytes
            }
            Kind::SealedEpoch => {
                let (dst, src) = self.names();
                self.sealed_hello(dst.tag(), src, FLAG_SEALED)
            }
            Kind::SealedHelloNoise => {
                let (_, src) = self.names();
                let src = if self.dice.below(2) == 0 { src } else { Incarnation(self.dice.roll() | 1) };
                self.sealed_hello(Tag::UNKNOWN, src, FLAG_SEALED | FLAG_INITIAL)
            }
            Kind::SealedHello => {
                let who = Incarnation(self.dice.roll() | 1);
                let mut bytes = self.hello_of(who, Body::None);
                let len = bytes.len();
                bytes.resize(len + seal::overhead(true), 0);
                let psk = Psk::from_bytes(&[0x66; 32]).expect("a key");
                let nobody = InstanceAddr { gid: Gid([0; 16]), port: 0 };
                Keyring::new(who, psk, Limits::default())
                    .seal(nobody, None, &mut bytes, len)
                    .expect("a hello");
                bytes
            }
        }
    }

    pub fn noise(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.dice.roll() as u8).collect()
    }

    /// Receiver and sender as one who was overheard would name them; or anybody.
    fn names(&mut self) -> (Incarnation, Incarnation) {
        let anybody = (Incarnation(self.dice.roll() | 1), Incarnation(self.dice.roll() | 1));
        match self.overheard.len() {
            0 => anybody,
            some => match self.dice.below(some + 1) {
                at if at < some => self.overheard[at],
                _ => anybody,
            },
        }
    }

    fn hello(&mut self, body: Body<Vec<u8>>) -> Vec<u8> {
        let who = Incarnation(self.dice.roll() | 1);
        self.hello_of(who, body)
    }

    pub fn hello_of(&mut self, who: Incarnation, body: Body<Vec<u8>>) -> Vec<u8> {
        let (dst_tag, hello) = (Tag::UNKNOWN, Some(hello(who)));
        encode(Packet { src_port: self.src_port, dst_tag, src_tag: who.tag(), hello, ack: None, body })
    }

    /// A packet from `src`, who has learnt that the receiver is `dst` to him.
    pub fn confirmed(&mut self, dst: Incarnation, src: Incarnation, body: Body<Vec<u8>>) -> Vec<u8> {
        let hello = Some(Hello { echo: dst.0, ..hello(src) });
        let (dst_tag, src_tag) = (dst.tag(), src.tag());
        encode(Packet { src_port: self.src_port, dst_tag, src_tag, hello, ack: None, body })
    }

    fn named(
        &mut self,
        (dst, src): (Incarnation, Incarnation),
        ack: Option<Ack>,
        body: Body<Vec<u8>>,
    ) -> Vec<u8> {
        let (dst_tag, src_tag) = (dst.tag(), src.tag());
        let hello = (self.dice.below(3) == 0).then(|| hello(src));
        let ack = ack.map(Into::into);
        encode(Packet { src_port: self.src_port, dst_tag, src_tag, hello, ack, body })
    }

    fn ack(&mut self) -> Ack {
        let (dst, _) = self.names();
        let cum = first_psn(dst, 0).plus(self.dice.below(2000) as u32);
        let mut ack = Ack { cum, rcvd_bytes: self.dice.edge(4) as u32, ..Ack::default() };
        ack.sack.extend((0..self.dice.below(17)).map(|_| u64::MAX));
        ack
    }

    /// Something from `src` that would read, write, deliver or end something.
    fn data(&mut self, src: Incarnation) -> Body<Vec<u8>> {
        let guess = Qkey(self.dice.pick(&[0, 1, 0x5352_446D, self.dice.0 as u32]));
        let qkey = if self.qkeys.is_empty() { guess } else { self.dice.pick(&self.qkeys) };
        let route = Route { dst_qpn: self.dice.pick(&self.qpns), src_qpn: Qpn(2), qkey };
        let rkey = MrKey(self.dice.edge(4) as u32);
        let addr = self.dice.pick(&[0, 4096, 0x7F00_0000_0000, u64::MAX]);
        let status = Status::RemoteAbort;
        let read = self.dice.below(4) as u32;
        let psn = first_psn(src, 0).plus(self.dice.below(3) as u32);
        let op = match self.dice.below(7) {
            0 | 1 => Op::Send { route, imm: None, datagram: false },
            2 => Op::Write { route, rkey, addr, imm: Some(7) },
            3 => Op::ReadRequest { route, rkey, addr, read_len: 4096, read },
            4 => Op::ReadResponse { read },
            5 => Op::Refuse { refused: psn, status },
            _ => Op::Skip,
        };
        let payload = match op {
            Op::Send { .. } | Op::Write { .. } | Op::ReadResponse { .. } => {
                vec![0xEE; 1 + self.dice.below(100)]
            }
            _ => Vec::new(),
        };
        let len = match op {
            Op::Skip => 0,
            _ => payload.len() as u32,
        };
        data(psn, MsgId(self.dice.below(4) as u32), len, op, payload)
    }

    /// What is like a sealed packet with a hello of `src`, of any epoch.
    fn sealed_hello(&mut self, dst_tag: Tag, src: Incarnation, flags: u8) -> Vec<u8> {
        let mut bytes = self.hello_of(src, Body::None);
        bytes[1] |= flags;
        bytes[4..8].copy_from_slice(&dst_tag.0.to_be_bytes());
        let text = self.noise(codec::HELLO_LEN + seal::TAG_LEN);
        bytes.truncate(codec::COMMON_LEN);
        bytes.extend(text);
        bytes.extend(src.0.to_be_bytes());
        bytes.extend(self.dice.roll().to_be_bytes());
        bytes
    }

    /// Changes up to four fields, or cuts the end off.
    fn distort(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.dice.below(4) {
            let width = self.dice.pick(&[1, 2, 4, 8]);
            let at = self.dice.below(bytes.len() / width) * width;
            let number = self.dice.edge(width).to_be_bytes();
            if let Some(field) = bytes.get_mut(at..at + width) {
                field.copy_from_slice(&number[8 - width..]);
            }
        }
        if self.dice.below(4) == 0 {
            let len = self.dice.below(bytes.len());
            bytes.truncate(len);
        }
    }
}

/// A hello as honest instances write it.
pub fn hello(incarnation: Incarnation) -> Hello {
    Hello {
        incarnation,
        echo: 0,
        version_min: VERSION,
        version_max: VERSION,
        features: 0,
        context: 0,
        max_datagram: 8932,
        rcvbuf_kib: 1024,
    }
}

pub fn data(psn: Psn, msg: MsgId, len: u32, op: Op, payload: Vec<u8>) -> Body<Vec<u8>> {
    let (stamp, path, tx_count, ack_request, more) = (Stamp(1), PathId(0), 0, true, false);
    Body::Data(Data { psn, stamp, path, tx_count, ack_request, more, msg, len, offset: 0, op, payload })
}

pub fn encode(packet: Packet<Vec<u8>>) -> Vec<u8> {
    let payload = if let Body::Data(data) = &packet.body { data.payload.clone() } else { Vec::new() };
    let mut bytes = vec![0; codec::MAX_HEADER];
    let len = codec::encode_header(&packet, payload.len(), &mut bytes);
    bytes.truncate(len);
    bytes.extend(payload);
    bytes
}
