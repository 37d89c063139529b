//! Data between two endpoints of a process: a test for each rule of docs/design/libfabric-provider.md, "Data path".

pub(crate) mod rig;

use rig::*;
use srd_libfabric::layout::*;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LENGTHS: [usize; 6] = [0, 8, 4096, 40_000, 300_000, 3_000_000];

/// Waits until both ends have completed one operation each.
fn both(a: &End, b: &End) -> (fi_cq_tagged_entry, fi_cq_tagged_entry) {
    let (mut x, mut y) = (None, None);
    let start = Instant::now();
    while x.is_none() || y.is_none() {
        x = x.or_else(|| a.cq.read().ok());
        y = y.or_else(|| b.cq.read().ok());
        assert!(start.elapsed() < PATIENCE, "nothing completes");
    }
    (x.unwrap(), y.unwrap())
}

#[test]
fn messages_of_all_lengths_arrive_whole() {
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    for (i, len) in LENGTHS.into_iter().enumerate() {
        let (from, mut to) = (pattern(i, len), vec![0; len]);
        assert_eq!(b.ep.recv(&mut to, 100 + i as u64), 0);
        assert_eq!(a.ep.send(&from, to_b, 200 + i as u64), 0);
        let (sent, received) = both(&a, &b);
        assert_eq!((sent.op_context as usize, sent.flags), (200 + i, SEND | MSG));
        assert_eq!((received.op_context as usize, received.flags, received.len), (100 + i, RECV | MSG, len));
        assert!(from == to, "{len} bytes");
    }
    a.close();
    b.close();
    rig.close();
}

/// Each has a domain of its own, as a process that was started again has, and mostly the address of the one before.
#[test]
fn who_opens_at_the_address_of_one_that_closed_gets_what_is_sent_there() {
    let rig = Rig::new(0);
    let a = rig.end(0);
    for life in 0..12 {
        let other = Rig::new(0);
        let b = other.end(0);
        let to_b = a.av.insert(b.ep.address());
        let (from, mut to) = (pattern(life, 64), vec![0; 64]);
        assert_eq!(b.ep.recv(&mut to, 1), 0);
        assert_eq!(a.ep.send(&from, to_b, 2), 0);
        both(&a, &b);
        assert_eq!(from, to, "life {life}");
        a.av.remove(to_b).unwrap();
        b.close();
        other.close();
    }
    a.close();
    rig.close();
}

#[test]
fn a_queue_grows_beyond_the_size_asked_for() {
    let rig = Rig::new(0);
    let a = rig.end_with(rig.cq(1, 0), rig.av(), 0);
    let b = rig.end_with(rig.cq(1, 0), rig.av(), 0);
    let to_b = a.av.insert(b.ep.address());
    let mut buffers = vec![[0u8; 8]; 500];
    for (i, buffer) in buffers.iter_mut().enumerate() {
        assert_eq!(b.ep.recv(buffer, i as u64), 0);
    }
    for i in 0..500u64 {
        assert_eq!(a.ep.send(b"8 bytes!", to_b, i), 0);
    }
    for i in 0..500 {
        assert_eq!(b.cq.next().op_context as u64, i, "in order");
    }
    a.cq.skip(500);
    a.close();
    b.close();
    rig.close();
}

#[test]
fn with_selective_completion_only_what_is_asked_for_is_reported() {
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(SELECTIVE);
    let mut buffers = [[0u8; 8]; 4];
    for (i, buffer) in buffers.iter().enumerate() {
        let flags = if i == 3 { COMPLETION } else { 0 };
        assert_eq!(b.ep.message(true, buffer, UNSPEC, 0, i as u64, flags), 0);
    }
    assert_eq!(a.ep.send(b"first", to_b, 1), 0);
    assert_eq!(a.ep.message(false, b"second", to_b, 0, 2, COMPLETION), 0);
    // SAFETY: live arguments.
    let injected = unsafe { ((*(*a.ep.0).msg).inject)(a.ep.0, b"third".as_ptr().cast(), 5, to_b) };
    assert_eq!(injected, 0);
    assert_eq!(a.ep.send(b"fourth", to_b, 4), 0);
    assert_eq!(a.cq.next().op_context as u64, 2);
    assert_eq!(b.cq.next().op_context as u64, 3);
    a.cq.stays_empty();
    b.cq.stays_empty();
    assert_eq!(&buffers[2][..5], b"third");
    buffers.fill([0; 8]);
    a.close();
    b.close();
    rig.close();
}

#[test]
fn an_injected_message_never_completes_and_its_buffer_is_free_at_once() {
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    let mut to = [0; 16];
    b.ep.recv(&mut to, 1);
    let mut from = *b"injected bytes..";
    // SAFETY: live arguments.
    let posted = unsafe { ((*(*a.ep.0).msg).injectdata)(a.ep.0, from.as_ptr().cast(), 16, 99, to_b) };
    from.fill(0);
    assert_eq!(posted, 0);
    let received = b.cq.next();
    assert_eq!((received.data, received.flags), (99, RECV | MSG | REMOTE_CQ_DATA));
    assert_eq!(&to, b"injected bytes..");
    a.cq.stays_empty();
    let long = vec![0; a_limit(&rig) + 1];
    // SAFETY: live arguments.
    let refused = unsafe { ((*(*a.ep.0).msg).inject)(a.ep.0, long.as_ptr().cast(), long.len(), to_b) };
    assert_eq!(refused, -(libc::EMSGSIZE as isize));
    a.close();
    b.close();
    rig.close();
}

fn a_limit(rig: &Rig) -> usize {
    rig.info.tx().inject_size
}

#[test]
fn tags_match_in_the_order_of_sending_and_of_posting() {
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    for (context, tag) in [(1, 0x10u64), (2, 0x11), (3, 0x20), (4, 0x10)] {
        assert_eq!(a.ep.tsend(&tag.to_ne_bytes(), to_b, tag, context), 0);
    }
    a.cq.skip(4);
    let mut buffer = [0u8; 8];
    for (tag, ignore, found) in [(0x20, 0, 0x20), (0x10, 0xF, 0x10), (0x10, 0, 0x10), (0, u64::MAX, 0x11)] {
        assert_eq!(b.ep.trecv(&mut buffer, UNSPEC, tag, ignore, 7), 0);
        let entry = b.cq.next();
        assert_eq!((entry.tag, entry.flags), (found, RECV | TAGGED));
        assert_eq!(u64::from_ne_bytes(buffer), found);
    }
    // And of receives, the oldest that fits takes the message.
    let (mut first, mut second) = ([0u8; 8], [0u8; 8]);
    b.ep.trecv(&mut first, UNSPEC, 0, u64::MAX, 1);
    b.ep.trecv(&mut second, UNSPEC, 5, 0, 2);
    a.ep.tsend(b"for one.", to_b, 5, 0);
    assert_eq!(b.cq.next().op_context as u64, 1);
    a.ep.tsend(b"for two.", to_b, 5, 0);
    assert_eq!(b.cq.next().op_context as u64, 2);
    a.cq.skip(2);
    a.close();
    b.close();
    rig.close();
}

#[test]
fn a_directed_receive_takes_messages_of_that_peer_only_and_sources_are_told() {
    let rig = Rig::new(0);
    let (a, b, to_b, b_to_a) = rig.pair(0);
    let c = rig.end(0);
    let c_to_b = c.av.insert(b.ep.address());
    let b_to_c = b.av.insert(c.ep.address());
    let (mut from_a, mut from_any) = ([0u8; 8], [0u8; 8]);
    b.ep.trecv(&mut from_a, b_to_a, 1, 0, 10);
    b.ep.trecv(&mut from_any, UNSPEC, 1, 0, 20);
    c.ep.tsend(b"out of c", c_to_b, 1, 0);
    let (entry, source) = b.cq.next_from();
    assert_eq!((entry.op_context as u64, source), (20, b_to_c));
    a.ep.tsend(b"out of a", to_b, 1, 0);
    let (entry, source) = b.cq.next_from();
    assert_eq!((entry.op_context as u64, source), (10, b_to_a));
    a.cq.skip(1);
    c.cq.skip(1);
    // A peer that has gone from the vector has no address any more.
    b.av.remove(b_to_c).unwrap();
    b.ep.trecv(&mut from_any, UNSPEC, 1, 0, 30);
    c.ep.tsend(b"out of c", c_to_b, 1, 0);
    assert_eq!(b.cq.next_from().1, UNSPEC);
    c.cq.skip(1);
    a.close();
    c.close();
    b.close();
    rig.close();
}

#[test]
fn a_peek_looks_claims_and_discards() {
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    let mut buffer = [0u8; 16];
    b.ep.trecvmsg(&mut buffer, 3, 0, 1, PEEK);
    let error = b.cq.next_error();
    assert_eq!((error.err, error.op_context as u64), (libc::ENOMSG, 1));
    for text in [&b"claimed"[..], b"", b"dropped!", b"received"] {
        a.ep.tsend(text, to_b, 3, 0);
    }
    a.cq.skip(4);
    let mut peek = |flags, context| {
        b.ep.trecvmsg(&mut buffer, 3, 0, context, flags);
        let entry = b.cq.next();
        assert_eq!((entry.op_context as u64, entry.tag), (context, 3));
        entry.len
    };
    assert_eq!(peek(PEEK, 2), 7);
    assert_eq!(peek(PEEK | CLAIM, 3), 7);
    assert_eq!(peek(PEEK | CLAIM, 4), 0);
    assert_eq!(peek(PEEK | DISCARD, 5), 8);
    assert_eq!(peek(CLAIM, 4), 0);
    assert_eq!(peek(CLAIM, 3), 7);
    assert_eq!(peek(PEEK | CLAIM, 6), 8);
    assert_eq!(&buffer[..7], b"claimed");
    assert_eq!(b.ep.trecvmsg(&mut buffer, 3, 0, 6, CLAIM | DISCARD), 0);
    b.cq.next();
    b.ep.trecvmsg(&mut buffer, 3, 0, 7, PEEK);
    assert_eq!(b.cq.next_error().err, libc::ENOMSG);
    a.close();
    b.close();
    rig.close();
}

#[test]
fn a_short_buffer_gets_what_fits_and_an_error_and_a_cancelled_receive_another() {
    const ETRUNC: i32 = 265;
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    for (len, room) in [(20, 8), (300_000, 1000)] {
        let (from, mut to) = (pattern(3, len), vec![0; room]);
        b.ep.recv(&mut to, 1);
        a.ep.send(&from, to_b, 2);
        let error = b.cq.next_error();
        assert_eq!(
            (error.err, error.olen, error.len, error.op_context as u64),
            (ETRUNC, len - room, room, 1)
        );
        assert!(to == from[..room]);
        a.cq.next();
    }
    let mut to = [0; 8];
    b.ep.recv(&mut to, 5);
    assert_eq!(b.ep.cancel(5), 0);
    let error = b.cq.next_error();
    assert_eq!((error.err, error.op_context as u64), (libc::ECANCELED, 5));
    assert_eq!(b.ep.cancel(5), 0);
    b.cq.stays_empty();
    a.close();
    b.close();
    rig.close();
}

#[test]
fn a_multi_receive_buffer_takes_messages_until_too_little_is_left() {
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    let buffer = vec![0u8; 400];
    assert_eq!(b.ep.message(true, &buffer, UNSPEC, 0, 9, MULTI_RECV), 0);
    for i in 0..4 {
        a.ep.send(&pattern(i, 100), to_b, 0);
        a.cq.next();
    }
    let mut at = buffer.as_ptr() as u64;
    let mut released = false;
    for i in 0..4 {
        let entry = b.cq.next();
        assert_eq!((entry.op_context as u64, entry.len, entry.buf as u64), (9, 100, at));
        let begin = (at - buffer.as_ptr() as u64) as usize;
        assert!(buffer[begin..begin + 100] == pattern(i, 100));
        assert!(!released, "the last one only");
        released = entry.flags & MULTI_RECV != 0;
        at += 100;
    }
    assert!(released);
    a.close();
    b.close();
    rig.close();
}

#[test]
fn remote_memory_is_read_and_written_and_the_peer_is_told_if_asked() {
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    for (i, len) in LENGTHS.into_iter().enumerate().skip(1) {
        let there = vec![0u8; len];
        let access = REMOTE_READ | REMOTE_WRITE;
        let mr = rig.register(there.as_ptr() as u64, len, access, 70 + i as u64).unwrap();
        let from = pattern(i, len);
        assert_eq!(a.ep.rma(false, &from, to_b, 0, mr.key(), 0, 1, DELIVERY_COMPLETE), 0);
        assert_eq!(a.cq.next().flags, RMA | WRITE);
        assert!(there == from, "{len} bytes written");
        let back = vec![0u8; len];
        assert_eq!(a.ep.rma(true, &back, to_b, 0, mr.key(), 0, 2, 0), 0);
        assert_eq!(a.cq.next().flags, RMA | READ);
        assert!(back == from, "{len} bytes read");
        assert_eq!(a.ep.rma(false, &from, to_b, 0, mr.key(), 1234, 3, REMOTE_CQ_DATA), 0);
        let entry = b.cq.next();
        assert_eq!((entry.flags, entry.data), (RMA | REMOTE_WRITE | REMOTE_CQ_DATA, 1234));
        a.cq.next();
        close(mr.0).unwrap();
    }
    a.close();
    b.close();
    rig.close();
}

#[test]
fn a_wrong_key_or_too_long_a_range_is_an_error() {
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    let there = [0u8; 64];
    let mr = rig.register(there.as_ptr() as u64, 64, REMOTE_READ, 5).unwrap();
    for (addr, key, read, err) in
        [(0, 6, true, libc::EKEYREJECTED), (32, 5, true, libc::EACCES), (0, 5, false, libc::EACCES)]
    {
        a.ep.rma(read, &[0; 64], to_b, addr, key, 0, 1, DELIVERY_COMPLETE);
        assert_eq!(a.cq.next_error().err, err, "{addr} {key} {read}");
    }
    close(mr.0).unwrap();
    a.close();
    b.close();
    rig.close();
}

#[test]
fn atomics_are_applied_and_give_back_what_was_there() {
    const UINT64: u32 = 7;
    const SUM: u32 = 2;
    const READ_OP: u32 = 10;
    const CSWAP: u32 = 12;
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    let there = Box::new([40u64, 0]);
    let access = REMOTE_READ | REMOTE_WRITE;
    let mr = rig.register(there.as_ptr() as u64, 16, access, 8).unwrap();
    let (two, mut before, forty_two) = (2u64, [0u64; 1], 42u64);
    let at = |value: &u64| (&raw const *value).cast();
    let result = (&raw mut before).cast();
    // SAFETY: live until they have completed.
    unsafe {
        let (ep, ops) = (a.ep.0, &*(*a.ep.0).atomic);
        let none = null_mut();
        let posted = (ops.write)(ep, at(&two), 1, none, to_b, 0, 8, UINT64, SUM, 1 as _);
        assert_eq!((posted, a.cq.next().flags), (0, ATOMIC | WRITE));
        let posted =
            (ops.readwrite)(ep, at(&two), 1, none, result, none, to_b, 0, 8, UINT64, READ_OP, 2 as _);
        assert_eq!((posted, a.cq.next().flags), (0, ATOMIC | READ));
        assert_eq!(std::ptr::read_volatile(&before[0]), 42);
        let (swap, with) = (at(&two), at(&forty_two));
        let posted =
            (ops.compwrite)(ep, swap, 1, none, with, none, result, none, to_b, 0, 8, UINT64, CSWAP, 3 as _);
        assert_eq!(posted, 0);
        a.cq.next();
        assert_eq!(std::ptr::read_volatile(&there[0]), 2);
        let refused = (ops.write)(ep, at(&two), 1, none, to_b, 0, 8, UINT64, CSWAP, 1 as _);
        assert_eq!(refused, -(libc::EOPNOTSUPP as isize));
    }
    close(mr.0).unwrap();
    a.close();
    b.close();
    rig.close();
}

/// A target that only computes must not stall its peers.
#[test]
fn a_target_that_never_calls_is_served_all_the_same() {
    let rig = Rig::new(0);
    // A domain of its own, so that the sender's calls do not drive it.
    let other = Rig::new(0);
    let (a, b) = (rig.end(0), other.end(0));
    let to_b = a.av.insert(b.ep.address());
    let len = 2_000_000;
    let (from, mut to) = (pattern(1, len), vec![0; len]);
    b.ep.recv(&mut to, 1);
    a.ep.message(false, &from, to_b, 0, 2, DELIVERY_COMPLETE);
    a.cq.next();
    assert!(to == from);
    b.cq.next();
    a.close();
    b.close();
    rig.close();
    other.close();
}

/// What is delivered waits for nobody's receive, and takes no packet more than what is sent; what is to be matched waits.
#[test]
fn a_message_is_delivered_before_and_matched_with_its_receive() {
    let (rig, other) = (Rig::new(0), Rig::new(0));
    let (a, b) = (rig.end(0), other.end(0));
    let to_b = a.av.insert(b.ep.address());
    let (from, mut to) = (pattern(1, 5000), vec![0; 5000]);
    a.ep.message(false, &from, to_b, 0, 1, DELIVERY_COMPLETE);
    assert_eq!(a.cq.next().op_context as u64, 1);
    a.ep.message(false, &from, to_b, 0, 2, MATCH_COMPLETE);
    a.cq.stays_empty();
    for context in [3, 4] {
        b.ep.recv(&mut to, context);
        assert_eq!(b.cq.next().op_context as u64, context);
        assert!(std::mem::take(&mut to) == from);
        to = vec![0; 5000];
    }
    assert_eq!(a.cq.next().op_context as u64, 2);
    a.close();
    b.close();
    rig.close();
    other.close();
}

/// The receiver does not poll before the sender has gone.
#[test]
fn what_was_reported_as_sent_arrives_though_its_sender_has_closed() {
    const MESSAGES: u64 = 20;
    let (rig, other) = (Rig::new(0), Rig::new(0));
    let b = other.end(0);
    for round in 0..8 {
        let a = rig.end(0);
        let to_b = a.av.insert(b.ep.address());
        for i in 0..MESSAGES {
            assert_eq!(a.ep.send(&[i as u8; 64], to_b, i), 0);
            assert_eq!(a.cq.next().op_context as u64, i);
        }
        a.close();
        for i in 0..MESSAGES {
            let mut buffer = [0xffu8; 64];
            assert_eq!(b.ep.recv(&mut buffer, i), 0);
            assert_eq!(b.cq.next().op_context as u64, i, "round {round}");
            assert_eq!(buffer, [i as u8; 64], "round {round}");
        }
    }
    b.close();
    rig.close();
    other.close();
}

#[test]
fn too_many_posts_are_put_off_not_lost() {
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    let total = 3 * rig.info.tx().size as u64;
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    let post_all_that_fits = |posted: &mut u64| {
        while *posted < total {
            // Done only when the receive is, so that how many are under way depends on the receives alone.
            match a.ep.message(false, b"8 bytes!", to_b, 0, *posted, MATCH_COMPLETE) {
                0 => *posted += 1,
                EAGAIN => break,
                code => panic!("fi_sendmsg: {code}"),
            }
        }
    };
    post_all_that_fits(&mut posted);
    assert!(posted < total, "nothing was received, and {posted} sends are under way");
    let mut buffer = [0u8; 8];
    while received < total {
        b.ep.recv(&mut buffer, 0);
        b.cq.next();
        received += 1;
        while a.cq.read().is_ok() {
            sent += 1;
        }
        post_all_that_fits(&mut posted);
        // A post may wait for an answer that is on its way.
        let start = Instant::now();
        while posted == received && posted < total {
            assert!(start.elapsed() < PATIENCE, "{posted} posted, {sent} sent, {received} received");
            sent += a.cq.read().is_ok() as u64;
            post_all_that_fits(&mut posted);
        }
    }
    while sent < total {
        a.cq.next();
        sent += 1;
    }
    a.close();
    b.close();
    rig.close();
}

#[test]
fn counters_count_and_are_waited_for() {
    let rig = Rig::new(0);
    let (sends, recvs) = (rig.counter(), rig.counter());
    let open = |counter, flag| {
        let end = (rig.bare().unwrap(), rig.cq(0, 0), rig.av());
        bind(end.0.0, end.1.0, SEND | RECV | SELECTIVE).unwrap();
        bind(end.0.0, end.2.0, 0).unwrap();
        bind(end.0.0, counter, flag).unwrap();
        control(end.0.0, ENABLE, null_mut::<u8>()).unwrap();
        End { ep: end.0, cq: end.1, av: end.2 }
    };
    let (a, b) = (open(sends, SEND), open(recvs, RECV));
    let to_b = a.av.insert(b.ep.address());
    let mut to = [[0; 8]; 3];
    to.iter_mut().for_each(|to| assert_eq!(b.ep.recv(to, 0), 0));
    (0..3).for_each(|_| assert_eq!(a.ep.send(b"counted.", to_b, 0), 0));
    // SAFETY: live counters.
    unsafe {
        let ops = &*(*recvs).ops;
        assert_eq!((ops.wait)(recvs, 3, 60_000), 0);
        assert_eq!((ops.wait)(sends, 3, 60_000), 0);
        assert_eq!(((ops.read)(recvs), (ops.read)(sends), (ops.readerr)(recvs)), (3, 3, 0));
        assert_eq!((ops.wait)(recvs, 4, 20), -libc::ETIMEDOUT);
        assert_eq!(((ops.add)(recvs, 10), (ops.read)(recvs)), (0, 13));
        assert_eq!(((ops.set)(recvs, 1), (ops.read)(recvs)), (0, 1));
        b.ep.recv(&mut to[0], 77);
        b.ep.cancel(77);
        assert_eq!((ops.readerr)(recvs), 1);
        // What is to be matched counts then, though nobody hears of it.
        assert_eq!(a.ep.message(false, b"received", to_b, 0, 0, MATCH_COMPLETE), 0);
        assert_eq!((ops.wait)(sends, 4, 30), -libc::ETIMEDOUT);
        b.ep.recv(&mut to[1], 0);
        assert_eq!((ops.wait)(recvs, 2, 60_000), 0);
        assert_eq!((ops.wait)(sends, 4, 60_000), 0);
    }
    assert_eq!(b.cq.next_error().err, libc::ECANCELED);
    a.close();
    b.close();
    close(sends).unwrap();
    close(recvs).unwrap();
    rig.close();
}

#[test]
fn a_program_sleeps_on_a_descriptor_until_something_is_there() {
    const GETWAIT: i32 = 5;
    let rig = Rig::new(0);
    let a = rig.end(0);
    let b = rig.end_with(rig.cq(0, WAIT_FD), rig.av(), 0);
    let to_b = a.av.insert(b.ep.address());
    let mut fd = 0i32;
    control(b.cq.0, GETWAIT, &mut fd).unwrap();
    let try_wait = || {
        let mut fid = b.cq.0.cast();
        // SAFETY: live arguments.
        check(unsafe { ((*(*rig.fabric).ops).trywait)(rig.fabric, &mut fid, 1) })
    };
    let poll = |milliseconds| {
        let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        unsafe { libc::poll(&mut entry, 1, milliseconds) }
    };
    for round in 0..3 {
        let mut to = [0; 8];
        b.ep.recv(&mut to, round);
        try_wait().unwrap();
        assert_eq!(poll(10), 0, "nothing is there");
        a.ep.send(b"wake up!", to_b, 0);
        assert_eq!(poll(60_000), 1);
        assert_eq!(try_wait(), Err(libc::EAGAIN));
        assert_eq!(b.cq.next().op_context as u64, round);
    }
    a.cq.skip(3);
    a.close();
    b.close();
    rig.close();
}

/// What a sleeper does not wait for must not be the last that wakes its process.
#[test]
fn a_sleeping_program_is_woken_by_the_message_after_one_that_nobody_asked_for() {
    const GETWAIT: i32 = 5;
    let rig = Rig::new(0);
    let a = rig.end(0);
    let b = rig.end_with(rig.cq(0, WAIT_FD), rig.av(), 0);
    let to_b = a.av.insert(b.ep.address());
    let mut fd = 0i32;
    control(b.cq.0, GETWAIT, &mut fd).unwrap();
    let (mut wanted, mut other) = ([0; 8], [0; 8]);
    for round in 0..5 {
        b.ep.trecv(&mut wanted, u64::MAX, 2, 0, round);
        loop {
            let mut fid = b.cq.0.cast();
            // SAFETY: live arguments.
            match check(unsafe { ((*(*rig.fabric).ops).trywait)(rig.fabric, &mut fid, 1) }) {
                Ok(_) => break,
                Err(error) => assert_eq!(error, libc::EAGAIN),
            }
        }
        a.ep.tsend(b"not this", to_b, 1, 0);
        std::thread::sleep(Duration::from_millis(20));
        a.ep.tsend(b"but this", to_b, 2, 0);
        let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        assert_eq!(unsafe { libc::poll(&mut entry, 1, 20_000) }, 1, "slept through it");
        assert_eq!(b.cq.next().op_context as u64, round);
        b.ep.trecv(&mut other, u64::MAX, 1, 0, 99);
        assert_eq!(b.cq.next().op_context as u64, 99);
    }
    a.cq.skip(10);
    a.close();
    b.close();
    rig.close();
}

#[test]
fn a_blocking_read_ends_with_an_entry_a_signal_or_the_time() {
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    assert_eq!(b.cq.wait(20).map(|_| ()), Err(EAGAIN));
    let mut to = [0; 8];
    b.ep.recv(&mut to, 5);
    let signalled = AtomicBool::new(false);
    struct Shared(End, u64, Cq);
    // SAFETY: the provider's objects may be used by several threads.
    unsafe impl Sync for Shared {}
    let shared = Shared(a, to_b, b.cq);
    std::thread::scope(|scope| {
        let (shared, signalled) = (&shared, &signalled);
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(shared.0.ep.send(b"wake up!", shared.1, 0), 0);
            while !signalled.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(20));
            // SAFETY: a live queue.
            unsafe { ((*(*shared.2.0).ops).signal)(shared.2.0) };
        });
        assert_eq!(b.cq.wait(60_000).unwrap().op_context as u64, 5);
        signalled.store(true, Ordering::SeqCst);
        assert_eq!(b.cq.wait(60_000).map(|_| ()), Err(EAGAIN));
    });
    let Shared(a, ..) = shared;
    a.cq.next();
    a.close();
    b.close();
    rig.close();
}

#[test]
fn endpoints_share_a_queue_and_a_vector() {
    let rig = Rig::new(0);
    let (cq, av) = (rig.cq(0, 0), rig.av());
    let (a, b) = (rig.end_with(cq, av, 0), rig.end_with(cq, av, 0));
    let (to_a, to_b) = (av.insert(a.ep.address()), av.insert(b.ep.address()));
    let (mut x, mut y) = ([0; 8], [0; 8]);
    a.ep.recv(&mut x, 1);
    b.ep.recv(&mut y, 2);
    a.ep.send(b"a sends.", to_b, 3);
    b.ep.send(b"b sends.", to_a, 4);
    let mut contexts: Vec<u64> = (0..4).map(|_| cq.next().op_context as u64).collect();
    contexts.sort_unstable();
    assert_eq!(contexts, [1, 2, 3, 4]);
    assert_eq!((&x, &y), (b"b sends.", b"a sends."));
    close(a.ep.0).unwrap();
    close(b.ep.0).unwrap();
    close(cq.0).unwrap();
    close(av.0).unwrap();
    rig.close();
}

/// Queue pairs of a process that has ended are gone; who sends to them is told.
#[test]
fn a_peer_that_is_not_there_is_an_error() {
    let rig = Rig::new(0);
    let a = rig.end(0);
    let gone = rig.end(0);
    let to = a.av.insert(gone.ep.address());
    gone.close();
    a.ep.message(false, b"anybody?", to, 0, 1, DELIVERY_COMPLETE);
    let error = a.cq.next_error();
    assert_eq!(error.op_context as u64, 1);
    assert!([libc::ECONNRESET, libc::EHOSTUNREACH, libc::EIO].contains(&error.err), "{}", error.err);
    a.close();
    rig.close();
}

#[test]
fn a_forked_child_gets_errors() {
    let rig = Rig::new(0);
    let end = rig.end(0);
    let to = end.av.insert(end.ep.address());
    // SAFETY: the child calls nothing but the provider, which allocates nothing here, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = -(libc::EIO as isize);
        let ok = end.ep.send(b"x", to, 0) == refused
            && end.cq.read().map(|_| ()) == Err(refused)
            && close(end.ep.0) == Err(libc::EIO);
        // SAFETY: ends the child without the parent's destructors.
        unsafe { libc::_exit(if ok { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    end.close();
    rig.close();
}

/// As with libfabric's efa, which waits in `fi_close` until what was posted has gone.
#[test]
fn what_was_posted_before_its_endpoint_closes_arrives() {
    const WRITES: usize = 100;
    let (rig, other) = (Rig::new(0), Rig::new(0));
    let b = other.end(0);
    let memory = vec![0u8; WRITES * 64];
    let mr = other.register(memory.as_ptr() as u64, memory.len(), REMOTE_WRITE, 7).unwrap();
    for round in 1..=3u8 {
        let a = rig.end(0);
        let to_b = a.av.insert(b.ep.address());
        let from = [round; 64];
        for write in 0..WRITES as u64 {
            assert_eq!(a.ep.rma(false, &from, to_b, 64 * write, mr.key(), write, write, REMOTE_CQ_DATA), 0);
        }
        a.close();
        let mut seen: Vec<u64> = (0..WRITES).map(|_| b.cq.next().data).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..WRITES as u64), "round {round}");
        // SAFETY: bytes of `memory`, which others write to.
        let byte = |at: usize| unsafe { std::ptr::read_volatile(&memory[at]) };
        assert!((0..memory.len()).all(|at| byte(at) == round), "round {round}");
    }
    close(mr.0).unwrap();
    b.close();
    rig.close();
    other.close();
}
