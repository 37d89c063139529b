//! The same as `proto.rs`, through two devices over sockets of the loopback interface, polled by one thread.

#[path = "../../crates/srd-net/tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use support::Host;

const WARM_UP: usize = 300;
const MESSAGES: usize = 600;
/// What a device takes in one message.
const LONGEST: usize = 8192;

/// A message from one host to the other, until its receive has completed.
#[inline(never)]
fn one_message(from: &mut Host, to: &mut Host, len: usize) {
    let address = to.address();
    for begin in (0..len).step_by(LONGEST) {
        let len = (len - begin).min(LONGEST);
        to.recv(1, 0, LONGEST);
        from.send(2, address, 0, len);
    }
    let mut missing = len.div_ceil(LONGEST);
    while missing > 0 {
        match to.poll() {
            Some(done) => missing -= (done.wr_id == 1) as usize,
            None => while from.poll().is_some() {},
        }
    }
    while from.poll().is_some() {}
}

#[inline(never)]
fn next_length(len: usize) {
    black_box(len);
}

fn main() {
    let lengths: Vec<usize> =
        std::env::args().skip(1).map(|text| text.parse().expect("lengths in bytes")).collect();
    let inline = ["SRD_PROGRESS=inline", "SRD_MTU=1500"];
    let mut hosts = [Host::open("127.0.0.1", &inline), Host::open("127.0.0.2", &inline)];
    for len in lengths {
        for message in 0..MESSAGES {
            if message == WARM_UP {
                next_length(len);
            }
            hosts.swap(0, 1);
            let [from, to] = &mut hosts;
            one_message(from, to, len);
        }
        next_length(0);
    }
}
