//! Posts and lanes in one process: a rule each.

mod place;

use place::{Place, address, address_from};
use srd_shm::{Damage, Inbox, NoLane, Options, SendError, Taken, WhyEnded};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

fn small() -> Options {
    Options { lanes: 4, ring_bytes: 4096, permit_copies: true, well_known: false }
}

fn open(place: &Place, qpn: u16) -> Inbox {
    Inbox::open(place.dir(), address(qpn), u32::from(qpn) + 1000, small()).unwrap()
}

fn take_all(post: &mut Inbox) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    while post.receive(16, |from, bytes| all.push((from.address.qpn, bytes.to_vec()))).records > 0 {}
    all
}

/// Polls until the idle lanes have cooled.
fn idle(post: &mut Inbox) {
    for _ in 0..5000 {
        assert_eq!(post.receive(16, |_, _| {}), Taken { records: 0, all: true });
    }
}

#[test]
fn records_arrive_in_order_with_their_sender() {
    let place = Place::new();
    let (mut to, from) = (open(&place, 1), open(&place, 2));
    let mut lane = from.connect(to.address()).unwrap();
    assert_eq!((lane.peer(), lane.peer_epoch(), lane.peer_pid()), (address(1), 1001, std::process::id()));
    lane.send(&[b"one"]).unwrap();
    lane.send(&[b"t", b"", b"wo"]).unwrap();
    lane.send(&[]).unwrap();
    let mut seen = Vec::new();
    let got = to.receive(10, |from, bytes| seen.push((from.address, from.epoch, bytes.to_vec())));
    assert_eq!(got, Taken { records: 3, all: true });
    let from = |bytes: &[u8]| (address(2), 1002, bytes.to_vec());
    assert_eq!(seen, [from(b"one"), from(b"two"), from(b"")]);
}

#[test]
fn an_endpoint_may_send_to_itself() {
    let place = Place::new();
    let mut post = open(&place, 1);
    let mut lane = post.connect(post.address()).unwrap();
    lane.send(&[b"me"]).unwrap();
    assert_eq!(take_all(&mut post), [(1, b"me".to_vec())]);
    assert!(lane.peer_alive());
}

#[test]
fn a_receive_takes_no_more_than_its_budget_and_starves_nobody() {
    let place = Place::new();
    let mut to = open(&place, 1);
    let from: Vec<_> = (2..5).map(|qpn| open(&place, qpn)).collect();
    let mut lanes: Vec<_> = from.iter().map(|from| from.connect(to.address()).unwrap()).collect();
    for lane in &mut lanes {
        for _ in 0..40 {
            lane.send(&[b"x"]).unwrap();
        }
    }
    let mut counts = [0; 3];
    for _ in 0..3 {
        assert_eq!(to.receive(32, |from, _| counts[usize::from(from.address.qpn) - 2] += 1).records, 32);
    }
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    assert_eq!(take_all(&mut to).len(), 120 - 96);
}

#[test]
fn nobody_there_is_said_so() {
    let place = Place::new();
    let post = open(&place, 1);
    assert!(matches!(post.connect(address(2)), Err(NoLane::NoSegment)));
    let other = open(&place, 2);
    post.connect(address(2)).unwrap();
    drop(other);
    assert!(matches!(post.connect(address(2)), Err(NoLane::NoSegment)));
}

#[test]
fn a_lane_full_of_unread_records_is_busy() {
    let place = Place::new();
    let (mut to, from) = (open(&place, 1), open(&place, 2));
    let mut lane = from.connect(to.address()).unwrap();
    let mut sent = 0;
    while lane.send(&[&[1; 200]]).is_ok() {
        sent += 1;
    }
    assert_eq!(lane.send(&[&[1; 200]]), Err(SendError::Busy));
    assert_eq!(take_all(&mut to).len(), sent);
    lane.send(&[&[1; 200]]).unwrap();
    assert_eq!(lane.send(&[&[1; 5000]]), Err(SendError::TooLong));
    assert_eq!(lane.max_record(), small().max_record());
}

#[test]
fn all_lanes_taken_is_said_so_until_one_is_closed_and_read() {
    let place = Place::new();
    let (mut to, from) = (open(&place, 1), open(&place, 2));
    let mut lanes: Vec<_> = (0..4).map(|_| from.connect(to.address()).unwrap()).collect();
    assert!(matches!(from.connect(to.address()), Err(NoLane::Full { lanes: 4 })));
    lanes[2].send(&[b"last"]).unwrap();
    drop(lanes.remove(2));
    assert!(matches!(from.connect(to.address()), Err(NoLane::Full { .. })), "its bytes are unread");
    assert_eq!(take_all(&mut to), [(2, b"last".to_vec())]);
    assert_eq!(to.senders(), 4);
    idle(&mut to);
    let ended = to.next_ended().unwrap();
    assert_eq!((ended.why, ended.sender.address), (WhyEnded::Closed, address(2)));
    assert_eq!((to.next_ended(), to.senders()), (None, 3));
    let mut again = from.connect(to.address()).unwrap();
    again.send(&[b"first"]).unwrap();
    assert_eq!(take_all(&mut to), [(2, b"first".to_vec())]);
}

#[test]
fn a_lane_is_used_again_many_times() {
    let place = Place::new();
    let (mut to, from) = (open(&place, 1), open(&place, 2));
    for n in 0..200u32 {
        let mut lane = from.connect(to.address()).unwrap();
        for _ in 0..n % 50 {
            lane.send(&[&n.to_ne_bytes()]).unwrap();
        }
        drop(lane);
        let got = take_all(&mut to);
        assert_eq!(got.len() as u32, n % 50);
        assert!(got.iter().all(|(_, bytes)| bytes[..] == n.to_ne_bytes()));
        to.sweep();
        to.receive(1, |_, _| unreachable!("all is read"));
        assert_eq!(to.next_ended().unwrap().why, WhyEnded::Closed);
    }
}

#[test]
fn lanes_that_end_unheard_do_not_pile_up() {
    let place = Place::new();
    let (mut to, from) = (open(&place, 1), open(&place, 2));
    let mut refused = 0;
    for _ in 0..40 {
        refused += u32::from(from.connect(to.address()).is_err());
        to.sweep();
        to.receive(1, |_, _| {});
    }
    assert!(refused > 0);
    while to.next_ended().is_some() {}
    to.receive(1, |_, _| {});
    from.connect(to.address()).unwrap();
}

#[test]
fn a_lane_that_has_cooled_is_heard_again() {
    let place = Place::new();
    let (mut to, from) = (open(&place, 1), open(&place, 2));
    let mut lane = from.connect(to.address()).unwrap();
    for _ in 0..3 {
        idle(&mut to);
        assert!(!to.has_news());
        lane.send(&[b"x"]).unwrap();
        assert!(to.has_news());
        assert_eq!(take_all(&mut to).len(), 1);
        assert!(!to.has_news());
        lane.send(&[b"x"]).unwrap();
        assert!(to.has_news(), "while it is warm, too");
        assert_eq!(take_all(&mut to).len(), 1);
    }
}

#[test]
fn closing_the_endpoint_is_noticed() {
    let place = Place::new();
    let (to, from) = (open(&place, 1), open(&place, 2));
    let mut lane = from.connect(to.address()).unwrap();
    assert!(lane.peer_alive() && !lane.peer_closed());
    drop(to);
    assert!(lane.peer_closed() && !lane.peer_alive());
    assert_eq!(lane.send(&[b"x"]), Err(SendError::PeerClosed));
    assert_eq!(place.files(), 1, "only that of the sender is left");
}

#[test]
fn one_living_owner_per_endpoint() {
    let place = Place::new();
    let post = open(&place, 1);
    let again = Inbox::open(place.dir(), address(1), 5, small()).unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AddrInUse);
    drop(post);
    open(&place, 1);
}

#[test]
fn of_many_who_want_an_endpoint_one_gets_it() {
    let place = Place::new();
    for round in 0..200u8 {
        // A file of somebody dead is in the way of all of them.
        let file = place.dir().join(name_of(&place, 1));
        fs::write(&file, [round; 100]).unwrap();
        let won = AtomicUsize::new(0);
        let over = std::sync::Barrier::new(8);
        thread::scope(|scope| {
            for epoch in 0..8 {
                let (place, won, over) = (&place, &won, &over);
                scope.spawn(move || {
                    let post = Inbox::open(place.dir(), address(1), epoch, small());
                    if post.is_ok() {
                        won.fetch_add(1, Ordering::Relaxed);
                    }
                    over.wait();
                });
            }
        });
        assert_eq!(won.load(Ordering::Relaxed), 1);
    }
}

/// Two jobs on one address count their queue pairs from different ports on.
#[test]
fn endpoints_of_the_same_number_at_different_ports_are_different_endpoints() {
    let place = Place::new();
    let open = |base, qpn, epoch| Inbox::open(place.dir(), address_from(base, qpn), epoch, small()).unwrap();
    // The ranges may overlap: port 17409 is the first of one job and the second of the other, whoever has it.
    for (other, shift) in [(20_000, 0), (17_409, 128)] {
        let mut one = [open(17_408, 2, 1), open(17_408, 130, 2)];
        let mut two = [open(other, 2 + shift, 3), open(other, 130 + shift, 4)];
        for (job, epoch) in [(&mut one, 2), (&mut two, 4)] {
            let mut lane = job[0].connect(job[1].address()).unwrap();
            assert_eq!((lane.peer(), lane.peer_epoch()), (job[1].address(), epoch));
            lane.send(&[b"of this job"]).unwrap();
            let from = job[0].address();
            let mut got = 0;
            job[1].receive(9, |sender, bytes| {
                assert!(sender.address == from && bytes == b"of this job");
                got += 1;
            });
            assert_eq!(got, 1);
        }
    }
}

fn name_of(place: &Place, qpn: u16) -> std::ffi::OsString {
    let before = place.names();
    let post = open(place, qpn);
    let name = place.names().into_iter().find(|name| !before.contains(name)).expect("a post has a file");
    drop(post);
    name
}

#[test]
fn a_segment_is_for_its_user_only() {
    let place = Place::new();
    let (name, post) = (name_of(&place, 1), open(&place, 1));
    let file = place.dir().join(name);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(open(&place, 2).connect(post.address()), Err(NoLane::Permission)));
}

#[test]
fn files_of_the_dead_are_cleared_away() {
    let place = Place::new();
    let name = name_of(&place, 1);
    fs::write(place.dir().join(&name), "left behind").unwrap();
    fs::write(place.dir().join("another program's"), "not ours").unwrap();
    let post = open(&place, 2);
    assert!(!place.names().contains(&name));
    assert_eq!(place.files(), 2);
    assert!(matches!(post.connect(address(1)), Err(NoLane::NoSegment)));
}

#[test]
fn damaged_segments_are_refused_by_name() {
    let place = Place::new();
    let name = name_of(&place, 1);
    let (from, file) = (open(&place, 2), place.dir().join(&name));
    let to = open(&place, 1);
    let patch = |at: u64, word: u64| {
        let open = File::options().read(true).write(true).open(&file).unwrap();
        let mut before = [0; 8];
        open.read_exact_at(&mut before, at).unwrap();
        open.write_all_at(&word.to_ne_bytes(), at).unwrap();
        let answer = from.connect(to.address());
        open.write_all_at(&before, at).unwrap();
        answer
    };
    assert!(matches!(patch(0, 7), Err(NoLane::Damaged(_))));
    assert!(matches!(patch(8, 7), Err(NoLane::OtherVersion { theirs: 7, .. })));
    assert!(matches!(patch(4 * 8, 9), Err(NoLane::Damaged(_))), "another port");
    assert!(matches!(patch(5 * 8, 9), Err(NoLane::Damaged(_))), "another queue pair");
    assert!(matches!(patch(10 * 8, 200), Err(NoLane::Damaged(_))), "more lanes than the file has");
    let len = fs::metadata(&file).unwrap().len();
    for short in [0, 1, 100, 4096, len - 1] {
        let open = File::options().read(true).write(true).open(&file).unwrap();
        let mut all = vec![0; 8192];
        open.read_exact_at(&mut all, 0).unwrap();
        open.set_len(short).unwrap();
        assert!(
            matches!(from.connect(to.address()), Err(NoLane::Damaged("it is too short"))),
            "{short} bytes"
        );
        open.set_len(len).unwrap();
        open.write_all_at(&all, 0).unwrap();
    }
    from.connect(to.address()).unwrap();
}

#[test]
fn a_damaged_record_ends_its_lane_and_no_other() {
    let place = Place::new();
    let name = name_of(&place, 1);
    let (mut to, from, other) = (open(&place, 1), open(&place, 2), open(&place, 3));
    let mut good = other.connect(to.address()).unwrap();
    let mut bad = from.connect(to.address()).unwrap();
    bad.send(&[b"before"]).unwrap();
    bad.send(&[b"damaged"]).unwrap();
    good.send(&[b"good"]).unwrap();
    let file = File::options().read(true).write(true).open(place.dir().join(name)).unwrap();
    // The word of the second record: the only place that holds this length beside this content.
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let at = bytes.windows(7).position(|window| window == b"damaged").unwrap() as u64 - 8;
    file.write_all_at(&u64::MAX.to_ne_bytes(), at).unwrap();
    let mut got = take_all(&mut to);
    got.sort();
    assert_eq!(got, [(2, b"before".to_vec()), (3, b"good".to_vec())]);
    let ended = to.next_ended().unwrap();
    assert_eq!(ended.sender.address, address(2));
    assert!(matches!(ended.why, WhyEnded::Damaged(_)));
    assert_eq!(bad.send(&[b"more"]), Err(SendError::Damaged(Damage::Refused)));
    good.send(&[b"good"]).unwrap();
    assert_eq!(take_all(&mut to).len(), 1);
    // It is free again when its sender has let go.
    drop(bad);
    to.sweep();
    let _three: Vec<_> = (0..3).map(|_| from.connect(to.address()).unwrap()).collect();
}

#[test]
fn memory_is_copied_between_address_spaces() {
    let place = Place::new();
    let (to, from) = (open(&place, 1), open(&place, 2));
    let lane = from.connect(to.address()).unwrap();
    assert_eq!(lane.can_copy(), Ok(()));
    let there: Vec<u8> = (0..1_000_000u32).map(|i| (i * 7) as u8).collect();
    let mut here = vec![0u8; there.len()];
    let (remote, local, len) = (there.as_ptr() as u64, here.as_mut_ptr() as u64, here.len() as u64);
    const KEY: u32 = 9;
    // SAFETY: all of `there`, to all of `here`.
    let read = |key| unsafe { lane.read(key, remote, local, len) };
    assert!(matches!(read(KEY), Err(srd_shm::CopyError::NotLent)));
    let loans = to.loans();
    loans.lend(KEY);
    assert!(matches!(read(KEY + 1), Err(srd_shm::CopyError::NotLent)));
    assert!(here.iter().all(|&byte| byte == 0));
    read(KEY).unwrap();
    assert!(here == there);
    here.fill(9);
    let target = [0u8; 100];
    // SAFETY: within both, and nobody looks at the target before.
    unsafe { lane.write(target.as_ptr() as u64, local, 100) }.unwrap();
    assert!(target.iter().all(|&byte| byte == 9));
    // SAFETY: there is nothing at these addresses, which is an error and no more.
    let fault = unsafe { lane.read(KEY, 4096, local, 100) };
    assert!(matches!(fault, Err(srd_shm::CopyError::Fault)), "{fault:?}");
    // SAFETY: as above.
    let fault = unsafe { lane.write(4096, local, 100) };
    assert!(matches!(fault, Err(srd_shm::CopyError::Fault)), "{fault:?}");
    loans.end(KEY);
    assert!(matches!(read(KEY), Err(srd_shm::CopyError::NotLent)));
    loans.lend(KEY);
    drop(to);
    let gone = read(KEY);
    assert!(matches!(gone, Err(srd_shm::CopyError::NotLent)), "{gone:?}");
}

#[test]
fn posts_of_impossible_size_are_refused() {
    let place = Place::new();
    for (lanes, ring_bytes) in [(0, 4096), (257, 4096), (1, 2048), (1, 5000), (1, 1 << 25)] {
        let options = Options { lanes, ring_bytes, permit_copies: false, well_known: false };
        let refused = Inbox::open(place.dir(), address(1), 0, options).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    }
}

/// The sender sends and wakes by a channel if it has to; the receiver sleeps whenever it may. A wake-up that is lost
/// leaves both waiting.
#[test]
fn no_wake_up_is_lost() {
    const MESSAGES: u32 = 20_000;
    let place = Place::new();
    let (mut to, from) = (open(&place, 1), open(&place, 2));
    let (wake, woken) = mpsc::channel::<()>();
    let (answer, answered) = mpsc::channel::<u32>();
    let mut lane = from.connect(to.address()).unwrap();
    let receiver = thread::spawn(move || {
        let (mut next, mut slept) = (0, 0);
        while next < MESSAGES {
            // At every other message the lane has cooled.
            if next % 2 == 0 {
                for _ in 0..2100 {
                    to.receive(1, |_, bytes| {
                        assert_eq!(bytes, next.to_ne_bytes());
                        next += 1;
                        answer.send(next).unwrap();
                    });
                }
            }
            if next < MESSAGES && to.fall_asleep() {
                slept += 1;
                woken.recv_timeout(Duration::from_secs(60)).expect("a wake-up was lost");
                to.wake_up();
            }
            to.receive(8, |_, bytes| {
                assert_eq!(bytes, next.to_ne_bytes());
                next += 1;
                answer.send(next).unwrap();
            });
        }
        slept
    });
    for n in 0..MESSAGES {
        lane.send(&[&n.to_ne_bytes()]).unwrap();
        if lane.peer_asleep() {
            let _ = wake.send(());
        }
        assert_eq!(answered.recv_timeout(Duration::from_secs(60)), Ok(n + 1));
    }
    assert!(receiver.join().unwrap() > 0);
}
