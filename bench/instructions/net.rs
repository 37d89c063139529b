//! The same as `proto.rs`, through two devices over sockets of the loopback interface, polled by one thread.

mod rounds;
#[path = "../../crates/srd-net/tests/support/mod.rs"]
mod support;

use rounds::of_each_length;
use support::Host;

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

fn main() {
    let inline = ["SRD_PROGRESS=inline", "SRD_MTU=1500"];
    let mut hosts = [Host::open("127.0.0.1", &inline), Host::open("127.0.0.2", &inline)];
    of_each_length(300, 600, |_, len| {
        hosts.swap(0, 1);
        let [from, to] = &mut hosts;
        one_message(from, to, len);
    });
}
