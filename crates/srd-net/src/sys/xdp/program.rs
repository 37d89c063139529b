//! The XDP program: of the frames that come by an interface it gives the short datagrams that are wanted to the AF_XDP socket of their
//! queue, with the time at which they came, and lets everything else pass.
//!
//! Wanted are whole UDP datagrams, of up to [`MOST_BYTES`], in IPv4 packets without options, of which the table `wanted` has Ethernet
//! address, UDP port and IP address ([`key`]). Not those whose checksum is the sum of their pseudo header: the kernel has still to
//! fill it in, as it has to in datagrams that were joined (GSO, GRO), of which a frame does not say where they end.
//!
//! Instructions: the kernel's Documentation/bpf/standardization/instruction-set.rst; helpers: linux/bpf.h.

use super::super::bpf::Map;
use super::super::packet::MOST_BYTES;
use super::super::route::Mac;
use std::net::Ipv4Addr;

/// Its name, for those who find it at their interface.
pub const NAME: &str = "srd_short";

/// Bytes of a key of the table `wanted`.
pub const KEY: usize = 12;

/// Bytes before a frame that say when it came, in nanoseconds of the monotonic clock.
pub const STAMP: usize = size_of::<u64>();

/// The key of what is for that Ethernet address, UDP port and IP address.
pub fn key(mac: Mac, port: u16, address: Ipv4Addr) -> [u8; KEY] {
    let [m0, m1, m2, m3, m4, m5] = mac;
    let [p0, p1] = port.to_be_bytes();
    let [a0, a1, a2, a3] = address.octets();
    [m0, m1, m2, m3, m4, m5, p0, p1, a0, a1, a2, a3]
}

// Operations that the classic instructions have not.
const ALU64: u32 = 7;
const MOVE: u32 = 0xb0;
const TO_BIG_ENDIAN: u32 = libc::BPF_ALU | 0xd0 | 8; // BPF_END, BPF_TO_BE
const NOT_EQUAL: u32 = 0x50;
const CALL: u32 = libc::BPF_JMP | 0x80;
const EXIT: u32 = libc::BPF_JMP | 0x90;
const DOUBLE: u32 = 0x18; // BPF_DW
const OF_MAP: u8 = 1; // BPF_PSEUDO_MAP_FD

const LOOK_UP: i32 = 1; // bpf_map_lookup_elem
const CLOCK: i32 = 5; // bpf_ktime_get_ns
const REDIRECT: i32 = 51; // bpf_redirect_map
const ADJUST_META: i32 = 54; // bpf_xdp_adjust_meta

const PASS: i32 = 2; // XDP_PASS

// Registers.
const RESULT: u8 = 0;
const A: u8 = 1;
const B: u8 = 2;
const C: u8 = 3;
const CONTEXT: u8 = 6;
const FRAME: u8 = 7;
const TIME: u8 = 8;
const STACK: u8 = 10;

// Fields of `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const DATA_META: i16 = 8;
const QUEUE: i16 = 16;

// Places in a frame.
const TYPE: i16 = 12;
const IP: i16 = 14;
const FRAGMENT: i16 = IP + 6;
const PROTOCOL: i16 = IP + 9;
const SOURCE: i16 = IP + 12;
const DESTINATION: i16 = IP + 16;
const UDP: i16 = IP + 20;
const PORT: i16 = UDP + 2;
const LENGTH: i16 = UDP + 4;
const CHECKSUM: i16 = UDP + 6;
const HEADERS: i32 = UDP as i32 + 8;

/// Where the key lies on the stack.
const AT_KEY: i16 = -16;

/// Instructions, as they are written.
struct Assembly {
    instructions: Vec<u64>,
    /// Those that jump to the end, where the frame passes.
    passing: Vec<usize>,
}

impl Assembly {
    fn add(&mut self, code: u32, to: u8, from: u8, offset: i16, value: i32) {
        let registers = u64::from(from << 4 | to) << 8;
        let (offset, value) = (u64::from(offset as u16) << 16, u64::from(value as u32) << 32);
        self.instructions.push(u64::from(code) | registers | offset | value);
    }

    fn load(&mut self, size: u32, to: u8, from: u8, offset: i16) {
        self.add(libc::BPF_LDX | libc::BPF_MEM | size, to, from, offset, 0);
    }

    fn store(&mut self, size: u32, to: u8, offset: i16, from: u8) {
        self.add(libc::BPF_STX | libc::BPF_MEM | size, to, from, offset, 0);
    }

    /// An operation with a constant.
    fn constant(&mut self, operation: u32, to: u8, value: i32) {
        self.add(ALU64 | operation | libc::BPF_K, to, 0, 0, value);
    }

    /// An operation with a register.
    fn register(&mut self, operation: u32, to: u8, from: u8) {
        self.add(ALU64 | operation | libc::BPF_X, to, from, 0, 0);
    }

    fn map(&mut self, to: u8, map: &Map) {
        self.add(libc::BPF_LD | libc::BPF_IMM | DOUBLE, to, OF_MAP, 0, map.number());
        self.instructions.push(0);
    }

    fn call(&mut self, helper: i32) {
        self.add(CALL, 0, 0, 0, helper);
    }

    /// The frame passes if the comparison with a constant holds.
    fn pass_if(&mut self, comparison: u32, register: u8, value: i32) {
        self.passing.push(self.instructions.len());
        self.add(libc::BPF_JMP | comparison | libc::BPF_K, register, 0, 0, value);
    }

    /// The frame passes if the comparison with a register holds.
    fn pass_if_register(&mut self, comparison: u32, register: u8, other: u8) {
        self.passing.push(self.instructions.len());
        self.add(libc::BPF_JMP | comparison | libc::BPF_X, register, other, 0, 0);
    }

    fn finish(mut self) -> Vec<u64> {
        let end = self.instructions.len();
        for (at, instruction) in self.instructions.iter_mut().enumerate() {
            if self.passing.contains(&at) {
                *instruction |= ((end - at - 1) as u64) << 16;
            }
        }
        self.constant(MOVE, RESULT, PASS);
        self.add(EXIT, 0, 0, 0, 0);
        self.instructions
    }
}

/// 16 bits as they are loaded from a frame.
fn as_loaded(value: u16) -> i32 {
    i32::from(value.to_be())
}

/// The program: `wanted` has the keys of what is wanted, `sockets` the socket of each receive queue.
pub fn instructions(wanted: &Map, sockets: &Map) -> Vec<u64> {
    let mut it = Assembly { instructions: Vec::new(), passing: Vec::new() };
    it.register(MOVE, CONTEXT, A);
    it.load(libc::BPF_W, FRAME, CONTEXT, DATA);
    it.load(libc::BPF_W, B, CONTEXT, DATA_END);
    it.register(MOVE, A, FRAME);
    it.constant(libc::BPF_ADD, A, HEADERS);
    it.pass_if_register(libc::BPF_JGT, A, B);
    it.load(libc::BPF_H, A, FRAME, TYPE);
    it.pass_if(NOT_EQUAL, A, as_loaded(libc::ETH_P_IP as u16));
    it.load(libc::BPF_B, A, FRAME, IP);
    it.pass_if(NOT_EQUAL, A, 0x45);
    it.load(libc::BPF_H, A, FRAME, FRAGMENT);
    it.pass_if(libc::BPF_JSET, A, as_loaded(0x3fff)); // more fragments, or not the first
    it.load(libc::BPF_B, A, FRAME, PROTOCOL);
    it.pass_if(NOT_EQUAL, A, libc::IPPROTO_UDP);
    it.load(libc::BPF_H, A, FRAME, LENGTH);
    it.add(TO_BIG_ENDIAN, A, 0, 0, 16);
    it.pass_if(libc::BPF_JGT, A, i32::from(MOST_BYTES));

    // A ones' complement sum does not depend on the order of bytes (RFC 1071, section 2).
    it.load(libc::BPF_W, A, FRAME, SOURCE);
    for (size, at) in [(libc::BPF_W, DESTINATION), (libc::BPF_H, LENGTH)] {
        it.load(size, B, FRAME, at);
        it.register(libc::BPF_ADD, A, B);
    }
    it.constant(libc::BPF_ADD, A, as_loaded(libc::IPPROTO_UDP as u16));
    for _ in 0..3 {
        it.register(MOVE, B, A);
        it.constant(libc::BPF_RSH, B, 16);
        it.constant(libc::BPF_AND, A, 0xffff);
        it.register(libc::BPF_ADD, A, B);
    }
    it.load(libc::BPF_H, B, FRAME, CHECKSUM);
    it.pass_if_register(libc::BPF_JEQ, A, B);

    let pieces =
        [(libc::BPF_W, 0, 0), (libc::BPF_H, 4, 4), (libc::BPF_H, PORT, 6), (libc::BPF_W, DESTINATION, 8)];
    for (size, from, to) in pieces {
        it.load(size, A, FRAME, from);
        it.store(size, STACK, AT_KEY + to, A);
    }
    it.map(A, wanted);
    it.register(MOVE, B, STACK);
    it.constant(libc::BPF_ADD, B, i32::from(AT_KEY));
    it.call(LOOK_UP);
    it.pass_if(libc::BPF_JEQ, RESULT, 0);

    it.call(CLOCK);
    it.register(MOVE, TIME, RESULT);
    it.register(MOVE, A, CONTEXT);
    it.constant(MOVE, B, -(STAMP as i32));
    it.call(ADJUST_META);
    it.pass_if(NOT_EQUAL, RESULT, 0);
    it.load(libc::BPF_W, B, CONTEXT, DATA_META);
    it.load(libc::BPF_W, C, CONTEXT, DATA);
    it.register(MOVE, A, B);
    it.constant(libc::BPF_ADD, A, STAMP as i32);
    it.pass_if_register(libc::BPF_JGT, A, C);
    it.store(DOUBLE, B, 0, TIME);

    it.map(A, sockets);
    it.load(libc::BPF_W, B, CONTEXT, QUEUE);
    it.constant(MOVE, C, PASS); // where no socket is
    it.call(REDIRECT);
    it.add(EXIT, 0, 0, 0, 0);
    it.finish()
}
