//! Traffic between two hosts whose content is checked.

use super::{Host, PATIENCE, pattern};
use srd_device::{CompletionOp, SendOp};
use srd_wire::{Gid, Status};
use std::time::Instant;

pub const LENGTHS: [usize; 9] = [0, 1, 31, 100, 1000, 1400, 1473, 4096, 8832];
pub const PLACE: usize = 16_384;

/// Sends messages of many lengths from one to the other and checks what arrives.
pub fn exchange(a: &mut Host, b: &mut Host, rounds: usize) {
    let (to, from) = (b.gid(), a.gid());
    exchange_by_way_of(a, b, to, from, rounds);
}

/// The same, where `a` knows `b` as `to`, and `b` knows `a` as `from`.
pub fn exchange_by_way_of(a: &mut Host, b: &mut Host, to: Gid, from: Gid, rounds: usize) {
    for round in 0..rounds {
        for (i, &len) in LENGTHS.iter().enumerate() {
            a.buffer.write(i * PLACE, &pattern((round * 100 + i) as u64, len));
            b.recv(i as u64, 200_000 + i * PLACE, PLACE);
        }
        for (i, &len) in LENGTHS.iter().enumerate() {
            a.send(i as u64, (to, b.qpn), i * PLACE, len);
        }
        let (mut sent, mut received, start) = (0, 0, Instant::now());
        while sent < LENGTHS.len() || received < LENGTHS.len() {
            assert!(start.elapsed() < PATIENCE, "{} {}", a.report(), b.report());
            if let Some(done) = a.poll() {
                assert_eq!((done.status, done.op), (Status::Ok, CompletionOp::Send), "{}", a.report());
                sent += 1;
            }
            if let Some(got) = b.poll() {
                assert_eq!((got.status, got.op), (Status::Ok, CompletionOp::Recv), "{}", b.report());
                assert_eq!((got.src_gid, got.src_qpn), (from, a.qpn));
                let place = LENGTHS.iter().position(|&len| len == got.byte_len as usize).unwrap();
                let bytes = b.buffer.to_vec(200_000 + got.wr_id as usize * PLACE, got.byte_len as usize);
                assert!(bytes == pattern((round * 100 + place) as u64, bytes.len()), "content of {got:?}");
                received += 1;
            }
        }
    }
}

/// RDMA write and read of `len` bytes, each checked.
pub fn write_and_read(a: &mut Host, b: &mut Host, len: usize, seed: u64) {
    b.handle(a.gid()); // who may access memory must be known
    let bytes = pattern(seed, len);
    a.buffer.write(0, &bytes);
    let remote = b.buffer.addr() + 300_000;
    a.post(1, SendOp::Write { rkey: b.key, addr: remote, imm: None }, b.address(), 0, len);
    let start = Instant::now();
    let done = loop {
        b.poll();
        if let Some(done) = a.poll() {
            break done;
        }
        assert!(start.elapsed() < PATIENCE, "{} {}", a.report(), b.report());
    };
    assert_eq!((done.status, done.op), (Status::Ok, CompletionOp::Write));
    assert!(b.buffer.to_vec(300_000, len) == bytes, "what was written");
    a.post(2, SendOp::Read { rkey: b.key, addr: remote }, b.address(), 400_000, len);
    let done = loop {
        b.poll();
        if let Some(done) = a.poll() {
            break done;
        }
        assert!(start.elapsed() < PATIENCE, "{} {}", a.report(), b.report());
    };
    assert_eq!((done.status, done.op), (Status::Ok, CompletionOp::Read));
    assert!(a.buffer.to_vec(400_000, len) == bytes, "what was read");
}
