//! What a message costs in processor time: both ends in one thread, so that nobody ever waits, over loopback; beside
//! it the same datagrams through bare sockets.

#[path = "../tests/support/mod.rs"]
mod support;

use srd_net::udp::{Destination, Gather, MAX_RUNS, ReceiveBatch, ReceiveSocket, SendSocket};
use std::net::SocketAddr;
use std::time::Instant;
use support::Host;

const ROUNDS: usize = 100_000;

/// The header of a message of one packet with an ACK on it.
const HEADER: usize = 96;

fn main() {
    let inline = ["SRD_PROGRESS=inline", "SRD_MTU=9216"];
    let (mut a, mut b) = (Host::open("127.0.0.1", &inline), Host::open("127.0.0.2", &inline));
    for len in [8, 1000, 4096, 8192] {
        let bare = best_of(|| bare_sockets(len + HEADER));
        let device = best_of(|| device(&mut a, &mut b, len));
        println!(
            "{len} B: bare sockets {bare:.0} ns, device {device:.0} ns per message, both ends together: {:.0} ns more",
            device - bare
        );
    }
}

fn best_of(mut measure: impl FnMut() -> f64) -> f64 {
    (0..5).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

fn bare_sockets(len: usize) -> f64 {
    let receiver = ReceiveSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0)), 1 << 20).expect("a socket");
    let sender = SendSocket::bind([127, 0, 0, 1].into(), 0).expect("a socket");
    let to = Destination::new(receiver.address().expect("bound"));
    let (mut batch, mut gather, bytes) = (ReceiveBatch::new(), Gather::new(), vec![1u8; len]);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        gather.clear();
        // SAFETY: the bytes outlive the gather's use.
        unsafe { gather.reference(bytes.as_ptr(), len) };
        sender.send(&to, &gather, None).expect("sent");
        while batch.receive(&receiver, MAX_RUNS).expect("received") == 0 {}
    }
    start.elapsed().as_nanos() as f64 / ROUNDS as f64
}

/// Messages that go to and fro, so that each carries the ACK of the one before.
fn device(a: &mut Host, b: &mut Host, len: usize) -> f64 {
    let start = Instant::now();
    for _ in 0..ROUNDS / 2 {
        one_way(a, b, len);
        one_way(b, a, len);
    }
    start.elapsed().as_nanos() as f64 / ROUNDS as f64
}

fn one_way(from: &mut Host, to: &mut Host, len: usize) {
    to.recv(1, 0, 16_384);
    from.send(2, to.address(), 0, len);
    loop {
        match to.poll() {
            Some(done) if done.wr_id == 1 => return,
            Some(_) => {}
            // Not sent yet: the transport waits for its time.
            None => from.instance.progress().expect("not forked"),
        }
    }
}
