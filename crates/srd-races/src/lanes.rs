//! Rings, posts and lanes of shared memory: two processes are two threads here.

use crate::address::Address;
use crate::explore;
use crate::inbox::{Inbox, Options};
use crate::reason::{CopyError, SendError, WhyEnded};
use crate::ring::{Reader, Writer};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::Mapping;
use crate::sys::event::{EventFd, PollSet};
use loom::thread;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as StdUsize;

/// Records of these lengths go through a ring of so many bytes, whole and in order, and no byte of one is written while it
/// is read.
pub fn a_ring_hands_on_whole_records(ring_bytes: usize, lengths: &'static [usize], preemptions: usize) {
    explore(preemptions, move || {
        let mapping = Arc::new(Mapping::new(ring_bytes));
        let head = Arc::new(AtomicU64::new(0));
        let mut writer = Writer::new(mapping.clone(), 0, ring_bytes);
        let mut reader = Reader::new(mapping, 0, ring_bytes);
        let told = head.clone();
        let writes = thread::spawn(move || {
            for (n, &len) in (1u8..).zip(lengths) {
                let bytes = vec![n; len];
                loop {
                    match writer.push(&told, &[&bytes]) {
                        Ok(()) => break writer.look_ahead(),
                        Err(SendError::Busy) => thread::yield_now(),
                        Err(damage) => panic!("{damage}"),
                    }
                }
            }
        });
        for (n, &len) in (1u8..).zip(lengths) {
            loop {
                match reader.next().expect("nothing is damaged") {
                    Some(bytes) => break assert_eq!(bytes, vec![n; len]),
                    None => thread::yield_now(),
                }
            }
            head.store(reader.position(), Ordering::Release);
        }
        writes.join().unwrap();
    });
}

fn open(qpn: u16) -> Inbox {
    open_with(qpn, false)
}

fn open_with(qpn: u16, permit_copies: bool) -> Inbox {
    let own = Address { ip: [0; 16], port: 17_408, qpn };
    let options = Options { lanes: 1, ring_bytes: 4096, permit_copies, well_known: false };
    Inbox::open(Path::new("/"), own, 1, options).unwrap()
}

/// Whoever falls asleep while a record is sent to it sees the record or is woken.
pub fn a_sleeper_sees_the_record_or_its_sender_the_sleeper(has_cooled: bool) {
    explore(3, move || {
        let (mut to, from) = (open(1), open(2));
        let mut lane = from.connect(to.address()).unwrap();
        // The lane's first news are those of its opening; afterwards it is known, and forgotten or not.
        for _ in 0..if has_cooled { 3 } else { 1 } {
            assert_eq!(to.receive(9, |_, _| {}).records, 0);
        }
        let bell = Arc::new(EventFd::new().unwrap());
        let rings = bell.clone();
        let sends = thread::spawn(move || {
            lane.send(&[b"record"]).unwrap();
            if lane.peer_asleep() {
                rings.signal();
            }
            lane
        });
        let mut got = 0;
        if to.fall_asleep() {
            let set = PollSet::new();
            set.add_readable(bell.as_fd());
            set.wait(None);
            to.wake_up();
        }
        got += to.receive(9, |_, bytes| assert_eq!(bytes, b"record")).records;
        assert_eq!(got, 1, "awake, and nothing is there");
        drop(sends.join().unwrap());
    });
}

/// A record that comes while its lane is being forgotten is found by a later look.
pub fn no_record_is_left_in_a_lane_that_nobody_looks_at() {
    explore(3, || {
        let (mut to, from) = (open(1), open(2));
        let mut lane = from.connect(to.address()).unwrap();
        assert_eq!(to.receive(9, |_, _| {}).records, 0);
        let sends = thread::spawn(move || {
            lane.send(&[b"record"]).unwrap();
            lane
        });
        let mut got = 0;
        for _ in 0..2 {
            got += to.receive(9, |_, _| {}).records;
        }
        let lane = sends.join().unwrap();
        assert!(got == 1 || to.has_news(), "a record lies in a lane that nobody looks at");
        got += to.receive(9, |_, _| {}).records;
        assert_eq!(got, 1);
        drop(lane);
    });
}

/// Whoever closes a lane behind its last record has sent that, and its end is told once.
pub fn what_was_sent_before_the_end_comes_before_the_end() {
    explore(3, || {
        let (mut to, from) = (open(1), open(2));
        let mut lane = from.connect(to.address()).unwrap();
        let sends = thread::spawn(move || {
            lane.send(&[b"last"]).unwrap();
            drop(lane);
            from
        });
        let mut got = 0;
        let mut ended = Vec::new();
        let mut look = |to: &mut Inbox| {
            got += to.receive(9, |_, bytes| assert_eq!(bytes, b"last")).records;
            while let Some(end) = to.next_ended() {
                assert_eq!(got, 1, "the end before what came before it");
                ended.push(end.why);
            }
        };
        look(&mut to);
        look(&mut to);
        let from = sends.join().unwrap();
        for _ in 0..4 {
            look(&mut to);
        }
        assert_eq!((got, ended), (1, vec![WhyEnded::Closed]));
        // The lane is free for the next.
        drop(from.connect(to.address()).unwrap());
    });
}

/// Who connects while its peer looks is taken for whom he is, and a ring of a lane may be gone round.
pub fn who_connects_is_known_and_its_ring_gone_round(records: usize, preemptions: usize) {
    explore(preemptions, move || {
        let (mut to, from) = (open(1), open(2));
        let (address, own) = (to.address(), from.address());
        let sends = thread::spawn(move || {
            let mut lane = from.connect(address).unwrap();
            let longest = lane.max_record();
            for n in 0..records as u8 {
                while let Err(full) = lane.send(&[&vec![n; longest]]) {
                    assert_eq!(full, SendError::Busy);
                    thread::yield_now();
                }
            }
            (lane, from)
        });
        let mut got = 0;
        while got < records {
            let before = got;
            to.receive(9, |sender, bytes| {
                assert!(
                    sender.address == own && sender.epoch == 1 && bytes.iter().all(|&byte| byte == got as u8)
                );
                got += 1;
            });
            if got == before {
                thread::yield_now();
            }
        }
        drop(sends.join().unwrap());
    });
}

/// What is copied of another process's memory is what that has lent, if the copy counts: nothing that its program has put
/// there since, though the place of the key has gone to another one. Tells how many copies counted and how many did not.
pub fn what_is_copied_was_lent_until_then(ways: &'static [StdUsize; 2]) {
    const LENT: u64 = 5;
    const LATER: u64 = 6;
    explore(2, move || {
        let (owner, mut peer) = (open_with(1, true), open_with(2, true));
        let mut told = owner.connect(peer.address()).unwrap();
        let lane = peer.connect(owner.address()).unwrap();
        let memory: Arc<[AtomicU64; 2]> = Arc::new([AtomicU64::new(LENT), AtomicU64::new(LENT)]);
        let at = memory.as_ptr() as u64;
        let lends = thread::spawn(move || {
            let loans = owner.loans();
            loans.lend(7);
            told.send(&[b"key 7"]).unwrap();
            loans.end(7);
            memory.iter().for_each(|word| word.store(LATER, Ordering::Relaxed));
            loans.lend(9);
            (owner, told, memory)
        });
        while peer.receive(1, |_, bytes| assert_eq!(bytes, b"key 7")).records == 0 {
            thread::yield_now();
        }
        let mut copy = [0u64; 2];
        // SAFETY: two atomics, which live as long as the other thread's handle does, to two words.
        #[allow(unsafe_code)]
        let read = unsafe { lane.read(7, at, copy.as_mut_ptr() as u64, 16) };
        match read {
            Ok(()) => assert_eq!(copy, [LENT; 2], "of what was written later"),
            Err(CopyError::NotLent) => {}
            Err(other) => panic!("{other}"),
        }
        ways[read.is_err() as usize].fetch_add(1, Ordering::Relaxed);
        drop((lends.join().unwrap(), lane));
    });
}
