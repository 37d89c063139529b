//! Two instances in this process, each a host of its own on loopback, over real sockets.

mod support;

use srd_device::{CompletionOp, SendOp};
use srd_wire::Status;
use support::{Host, pattern};

/// Sends messages of many lengths from one to the other and checks what arrives.
fn exchange(a: &mut Host, b: &mut Host, rounds: usize) {
    let lengths = [0, 1, 31, 100, 1000, 1400, 1473, 4096, 8832];
    for round in 0..rounds {
        for (i, &len) in lengths.iter().enumerate() {
            let bytes = pattern((round * 100 + i) as u64, len);
            a.buffer.write(i * 16384, &bytes);
            b.recv(i as u64, 200_000 + i * 16384, 16384);
        }
        for (i, &len) in lengths.iter().enumerate() {
            a.send(i as u64, b.address(), i * 16384, len);
        }
        let (mut sent, mut received) = (0, 0);
        while sent < lengths.len() || received < lengths.len() {
            if let Some(done) = a.poll() {
                assert_eq!((done.status, done.op), (Status::Ok, CompletionOp::Send), "{}", a.report());
                sent += 1;
            }
            if let Some(got) = b.poll() {
                assert_eq!((got.status, got.op), (Status::Ok, CompletionOp::Recv), "{}", b.report());
                let place = lengths.iter().position(|&len| len == got.byte_len as usize).unwrap();
                let bytes = b.buffer.to_vec(200_000 + got.wr_id as usize * 16384, got.byte_len as usize);
                assert!(bytes == pattern((round * 100 + place) as u64, bytes.len()), "content of {got:?}");
                received += 1;
            }
        }
    }
}

#[test]
fn messages_of_every_length_arrive_whole() {
    let (mut a, mut b) = (Host::open("127.0.0.1", &[]), Host::open("127.0.0.2", &[]));
    exchange(&mut a, &mut b, 20);
    exchange(&mut b, &mut a, 20);
}
