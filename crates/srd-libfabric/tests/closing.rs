//! Endpoints that close while something of theirs, or of a peer's, is under way; without shared memory, which is too fast
//! for that.

mod rig;

use rig::*;
use std::time::Instant;

#[test]
fn who_closes_in_the_middle_of_a_message_does_not_wait_for_it_and_its_sender_is_told() {
    let (rig, other) = (Rig::new(0), Rig::new(0));
    let (a, b) = (rig.end(0), other.end(0));
    let to_b = a.av.insert(b.ep.address());
    // Long enough that it takes much longer than to see that it has begun.
    let len = 256 << 20;
    let (from, mut to) = (vec![1u8; len], vec![0u8; len]);
    assert_eq!(b.ep.recv(&mut to, 1), 0);
    assert_eq!(a.ep.send(&from, to_b, 2), 0);
    let start = Instant::now();
    // SAFETY: bytes of `to`, which others write to.
    let come = |at: usize| unsafe { std::ptr::read_volatile(&to[at]) } != 0;
    while !come(1 << 20) {
        assert_eq!(b.cq.read().map(|entry| entry.op_context), Err(EAGAIN));
        assert!(start.elapsed() < PATIENCE, "nothing comes");
    }
    b.close();
    assert!(!come(len - 1), "all of it came: nobody had closed in the middle");
    let error = a.cq.next_error();
    assert_eq!((error.op_context as u64, error.err), (2, libc::ECONNRESET));
    a.close();
    rig.close();
    other.close();
}
