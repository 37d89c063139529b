//! Posts and lanes of several processes, some of which are killed. A second process is this test program again, told by
//! the environment which part to play ([`other_process`]).

mod place;

use place::{Place, address};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use srd_shm::{CopyError, Inbox, Lane, NoCopy, NoLane, Options, SendError, WhyEnded};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PART: &str = "SRD_SHM_TEST_PART";
const DIR: &str = "SRD_SHM_TEST_DIR";
/// Bytes that a process offers for copying.
const OFFERED: usize = 8 << 20;
/// The key by which it lends them.
const KEY: u32 = 0x1234_5678;
/// Bytes that it lends for a moment, and how often.
const LENT: usize = 256 << 10;
const LOANS: u64 = 300;

fn options() -> Options {
    Options { lanes: 4, ring_bytes: 8192, permit_copies: true, well_known: false }
}

/// Record `n` of every stream.
fn record(n: u64) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(n);
    let most = if n.is_multiple_of(7) { options().max_record() } else { 120 };
    let mut bytes = vec![0; random.random_range(8..=most)];
    random.fill_bytes(&mut bytes);
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes
}

/// Waits, without keeping a core busy, for what has to happen.
fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < end, "{what} does not happen");
        thread::yield_now();
    }
}

fn connect(post: &Inbox, qpn: u16) -> Lane {
    until("a lane", || match post.connect(address(qpn)) {
        Ok(lane) => Some(lane),
        Err(e) if e.may_pass() => None,
        Err(e) => panic!("no lane: {e}"),
    })
}

/// Sends, however long the peer takes to read. False if the peer is gone.
fn send(lane: &mut Lane, bytes: &[u8]) -> bool {
    until("room", || match lane.send(&[bytes]) {
        Ok(()) => Some(true),
        Err(SendError::Busy) => (!lane.peer_alive()).then_some(false),
        Err(SendError::PeerClosed) => Some(false),
        Err(e) => panic!("{e}"),
    })
}

/// Waits for a record.
fn heard(post: &mut Inbox) {
    until("a record", || (post.receive(1, |_, _| {}).records > 0).then_some(()));
}

/// A second process. Killed when dropped.
struct Other(Child);

impl Other {
    fn start(place: &Place, part: &str) -> Other {
        Other::start_under(Command::new(std::env::current_exe().unwrap()), place, part)
    }

    /// `command`: this program, or one that starts it.
    fn start_under(mut command: Command, place: &Place, part: &str) -> Other {
        let child = command
            .args(["other_process", "--exact", "--nocapture"])
            .env(PART, part)
            .env(DIR, place.dir())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Other(child)
    }

    /// SIGKILL, and waits until it is gone.
    fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.end();
    }
}

/// Not a test: the part that a second process plays.
#[test]
fn other_process() {
    let Ok(part) = std::env::var(PART) else { return };
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    let open = |qpn| Inbox::open(&dir, address(qpn), 7, options()).unwrap();
    match part.as_str() {
        "stream" => {
            let post = open(2);
            let mut lane = connect(&post, 1);
            (0..).take_while(|&n| send(&mut lane, &record(n))).for_each(drop);
        }
        "short of files" => {
            let refused = Inbox::open(&dir, address(2), 7, options()).map(drop).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EFBIG), "{refused}");
        }
        "come and go" => {
            let post = open(2);
            loop {
                if let Ok(mut lane) = post.connect(address(1)) {
                    let _ = lane.send(&[b"hello"]);
                }
            }
        }
        "receive" => {
            let mut post = open(1);
            loop {
                post.receive(100, |_, _| {});
                thread::yield_now();
            }
        }
        "echo" => {
            let mut post = open(1);
            let mut lane = connect(&post, 2);
            let mut waiting = std::collections::VecDeque::new();
            until("the end", || {
                post.receive(16, |_, bytes| waiting.push_back(bytes.to_vec()));
                while waiting.front().is_some_and(|bytes: &Vec<u8>| lane.send(&[bytes]).is_ok()) {
                    waiting.pop_front();
                }
                lane.peer_closed().then_some(())
            });
        }
        "offer" => {
            let post = open(2);
            let mut lane = connect(&post, 1);
            let offered: Vec<u8> = (0..OFFERED).map(|i| (i * 31) as u8).collect();
            post.loans().lend(KEY);
            lane.send(&[&(offered.as_ptr() as u64).to_le_bytes()]).unwrap();
            until("the end", || {
                thread::sleep(Duration::from_millis(1));
                lane.peer_closed().then_some(())
            });
        }
        "lend" => {
            let mut post = open(2);
            let mut lane = connect(&post, 1);
            let loans = post.loans();
            let mut random = SmallRng::seed_from_u64(3);
            let mut lent = vec![0u8; LENT];
            for n in 0..LOANS {
                lent.fill(n as u8 | 1);
                loans.lend(KEY + n as u32);
                let (at, n) = ((lent.as_ptr() as u64).to_le_bytes(), n.to_le_bytes());
                lane.send(&[&at, &n]).unwrap();
                // Somewhere in a later copy.
                heard(&mut post);
                let until_then = Instant::now() + Duration::from_micros(random.random_range(0..300));
                while Instant::now() < until_then {}
                loans.end(KEY + u64::from_le_bytes(n) as u32);
                // What the program does with its memory now.
                lent.fill(0);
                heard(&mut post);
            }
        }
        "fork" => {
            let post = open(2);
            let mut lane = connect(&post, 1);
            // SAFETY: the child calls what a signal handler may call, and nothing else.
            let child = unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::alarm(60);
                    loop {
                        libc::pause();
                    }
                }
                child
            };
            lane.send(&[&(child as u64).to_le_bytes()]).unwrap();
            loop {
                thread::sleep(Duration::from_secs(1));
            }
        }
        _ => panic!("no part: {part}"),
    }
}

/// Sweeps and receives until a lane has ended; answers why.
fn ended(post: &mut Inbox, mut each: impl FnMut(&[u8])) -> WhyEnded {
    until("the end of a lane", || {
        post.receive(100, |_, bytes| each(bytes));
        post.sweep();
        post.next_ended().map(|ended| ended.why)
    })
}

#[test]
fn what_goes_to_another_process_and_back_is_the_same() {
    const RECORDS: u64 = 5000;
    let place = Place::new();
    let _other = Other::start(&place, "echo");
    let mut post = Inbox::open(place.dir(), address(2), 1, options()).unwrap();
    let mut lane = connect(&post, 1);
    let (mut sent, mut got) = (0, 0);
    until("the last echo", || {
        while sent < RECORDS && lane.send(&[&record(sent)]).is_ok() {
            sent += 1;
        }
        post.receive(16, |from, bytes| {
            assert!(from.address == address(1) && bytes == record(got), "record {got} differs");
            got += 1;
        });
        (got == RECORDS).then_some(())
    });
}

#[test]
fn a_sender_killed_at_any_moment_leaves_whole_records_in_order() {
    let place = Place::new();
    let mut post = Inbox::open(place.dir(), address(1), 1, options()).unwrap();
    let mut random = SmallRng::seed_from_u64(1);
    for _ in 0..15 {
        let other = Other::start(&place, "stream");
        let (mut next, stop) = (0, random.random_range(1..3000));
        let mut check = |bytes: &[u8]| {
            assert!(bytes == record(next), "record {next} differs");
            next += 1;
        };
        let mut taken = 0;
        until("so many records", || {
            taken += post.receive(16, |_, bytes| check(bytes)).records;
            (taken >= stop).then_some(())
        });
        // While it writes.
        let killer = thread::spawn(|| other.kill());
        while !killer.is_finished() {
            post.receive(16, |_, bytes| check(bytes));
        }
        assert_eq!(ended(&mut post, check), WhyEnded::Died);
        assert_eq!(post.senders(), 0);
    }
}

#[test]
fn senders_killed_while_they_connect_take_no_lane_with_them() {
    let place = Place::new();
    let mut post = Inbox::open(place.dir(), address(1), 1, options()).unwrap();
    let mut random = SmallRng::seed_from_u64(2);
    let take = |post: &mut Inbox| {
        post.receive(100, |_, bytes| assert_eq!(bytes, b"hello"));
        post.sweep();
        while post.next_ended().is_some() {}
    };
    for _ in 0..15 {
        let other = Other::start(&place, "come and go");
        until("a visit", || {
            take(&mut post);
            (post.senders() > 0).then_some(())
        });
        for _ in 0..random.random_range(0..300) {
            take(&mut post);
        }
        other.kill();
        until("the last of it", || {
            take(&mut post);
            (post.senders() == 0).then_some(())
        });
        let own: Vec<_> = (0..4).map(|_| post.connect(address(1)).unwrap()).collect();
        drop(own);
        until("our own end", || {
            take(&mut post);
            (post.senders() == 0).then_some(())
        });
    }
}

#[test]
fn a_killed_owner_is_noticed_and_its_endpoint_taken_over() {
    let place = Place::new();
    let post = Inbox::open(place.dir(), address(2), 1, options()).unwrap();
    for _ in 0..3 {
        let other = Other::start(&place, "receive");
        let mut lane = connect(&post, 1);
        for n in 0..1000 {
            assert!(send(&mut lane, &record(n)));
        }
        assert!(lane.peer_alive());
        other.kill();
        assert!(!lane.peer_alive() && !lane.peer_closed());
        // What is sent into the void harms nobody.
        for n in 0..1000 {
            let _ = lane.send(&[&record(n)]);
        }
        assert!(matches!(post.connect(address(1)), Err(NoLane::OwnerDead)));
        // Each round's owner, and this one, make their own file of that name.
        let mut next = Inbox::open(place.dir(), address(1), 1, options()).unwrap();
        let mut lane = post.connect(address(1)).unwrap();
        lane.send(&[b"new"]).unwrap();
        assert_eq!(next.receive(9, |_, bytes| assert_eq!(bytes, b"new")).records, 1);
    }
    assert_eq!(place.files(), 1);
}

#[test]
fn what_the_dead_leave_is_removed_by_whoever_asks_and_what_the_living_have_stays() {
    let place = Place::new();
    let post = Inbox::open(place.dir(), address(2), 1, options()).unwrap();
    let other = Other::start(&place, "receive");
    let lane = connect(&post, 1);
    assert_eq!((srd_shm::clear_away_the_dead(place.dir()), place.files()), (0, 2));
    other.kill();
    assert_eq!((srd_shm::clear_away_the_dead(place.dir()), place.files()), (1, 1));
    assert!(!lane.peer_alive());
    assert!(matches!(post.connect(address(1)), Err(NoLane::NoSegment)));
}

fn offered(post: &mut Inbox) -> u64 {
    let mut at = 0;
    until("an address", || {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        (post.receive(1, |_, bytes| at = word(bytes)).records > 0).then_some(())
    });
    at
}

#[test]
fn memory_of_another_process_is_read_until_it_dies() {
    let place = Place::new();
    let mut post = Inbox::open(place.dir(), address(1), 1, options()).unwrap();
    let mut here = vec![0u8; OFFERED];
    for _ in 0..3 {
        let other = Other::start(&place, "offer");
        let lane = connect(&post, 2);
        let there = offered(&mut post);
        lane.can_copy().unwrap();
        let local = here.as_mut_ptr() as u64;
        here.fill(0);
        // SAFETY: all of `here`.
        unsafe { lane.read(KEY, there, local, OFFERED as u64) }.unwrap();
        assert!(here.iter().enumerate().all(|(i, &byte)| byte == (i * 31) as u8));
        let killer = thread::spawn(|| other.kill());
        let end = until("the end of copying", || {
            // SAFETY: as above.
            unsafe { lane.read(KEY, there, local, OFFERED as u64) }.err()
        });
        killer.join().unwrap();
        // While it goes its memory goes first.
        assert!(matches!(end, CopyError::PeerGone | CopyError::Fault), "{end:?}");
        // SAFETY: as above.
        let gone = unsafe { lane.read(KEY, there, local, 1) };
        assert!(matches!(gone, Err(CopyError::PeerGone)), "{gone:?}");
        // SAFETY: nobody is there to expect anything.
        let gone = unsafe { lane.write(there, local, 1) };
        assert!(matches!(gone, Err(CopyError::PeerGone)), "{gone:?}");
        assert_eq!(ended(&mut post, |_| {}), WhyEnded::Died);
    }
}

/// A copy that counts has nothing in it that the owner has written since it lent the memory.
#[test]
fn memory_of_another_process_is_read_until_it_is_lent_no_more() {
    let place = Place::new();
    let mut post = Inbox::open(place.dir(), address(1), 1, options()).unwrap();
    let _other = Other::start(&place, "lend");
    let mut lane = connect(&post, 2);
    let mut here = vec![0u8; LENT];
    let local = here.as_mut_ptr() as u64;
    for n in 0..LOANS {
        let mut told = [0; 16];
        until("a loan", || {
            (post.receive(1, |_, bytes| told.copy_from_slice(bytes)).records > 0).then_some(())
        });
        let word = |at: usize| u64::from_le_bytes(told[at..at + 8].try_into().unwrap());
        assert_eq!(word(8), n);
        // SAFETY: all of `here`.
        unsafe { lane.read(KEY + n as u32, word(0), local, LENT as u64) }.expect("it is lent");
        assert!(here.iter().all(|&byte| byte == n as u8 | 1));
        assert!(send(&mut lane, b"one copy"));
        let refused = until("the end of a loan", || {
            // SAFETY: all of `here`.
            let refused = unsafe { lane.read(KEY + n as u32, word(0), local, LENT as u64) }.err();
            let whole = || here.iter().all(|&byte| byte == n as u8 | 1);
            assert!(refused.is_some() || whole(), "loan {n}: of what its owner has written since");
            refused
        });
        assert!(matches!(refused, CopyError::NotLent), "loan {n}: {refused:?}");
        assert!(send(&mut lane, b"seen"));
    }
}

/// A program may leave forked children behind; they hold all its descriptors, and so the locks.
#[test]
fn a_forked_child_does_not_keep_a_dead_process_alive() {
    let place = Place::new();
    let mut post = Inbox::open(place.dir(), address(1), 1, options()).unwrap();
    let other = Other::start(&place, "fork");
    let lane = connect(&post, 2);
    let child = offered(&mut post);
    assert!(lane.peer_alive());
    other.kill();
    assert!(!lane.peer_alive());
    assert!(matches!(post.connect(address(2)), Err(NoLane::OwnerDead)));
    assert_eq!(ended(&mut post, |_| {}), WhyEnded::Died);
    Inbox::open(place.dir(), address(2), 1, options()).unwrap();
    // Its lane stays locked as long as the child lives; the other three do not.
    let own: Vec<_> = (0..3).map(|_| post.connect(address(1)).unwrap()).collect();
    assert!(matches!(post.connect(address(1)), Err(NoLane::Full { .. })));
    drop(own);
    // SAFETY: a process that a process of this test has started.
    unsafe { libc::kill(child as libc::pid_t, libc::SIGKILL) };
}

/// A segment beyond `ulimit -f` is an error, and no signal.
#[test]
fn a_limit_of_files_is_an_error() {
    let place = Place::new();
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -f 1 && exec \"$@\"", "bash"]).arg(std::env::current_exe().unwrap());
    let mut other = Other::start_under(command, &place, "short of files");
    assert!(other.0.wait().unwrap().success());
}

/// Containers that share a network and `/dev/shm` may each have their own process numbers.
#[test]
fn between_pid_namespaces_records_go_and_copies_do_not() {
    let flags = ["--user", "--map-current-user", "--pid", "--fork", "--kill-child"];
    let permitted =
        Command::new("unshare").args(flags).arg("true").output().is_ok_and(|ran| ran.status.success());
    if !permitted {
        eprintln!("not tested: unshare(1) may not make namespaces here");
        return;
    }
    let place = Place::new();
    let mut post = Inbox::open(place.dir(), address(1), 1, options()).unwrap();
    let mut command = Command::new("unshare");
    command.args(flags).arg(std::env::current_exe().unwrap());
    let other = Other::start_under(command, &place, "offer");
    let lane = connect(&post, 2);
    let there = offered(&mut post);
    assert_eq!(lane.can_copy(), Err(NoCopy::OtherPidNamespace));
    let mut here = 0u64;
    // SAFETY: the word is good for a word.
    let refused = unsafe { lane.read(KEY, there, &raw mut here as u64, 8) };
    assert!(matches!(refused, Err(CopyError::NoCopy(NoCopy::OtherPidNamespace))), "{refused:?}");
    assert!(lane.peer_alive());
    post.sweep();
    assert_eq!(post.senders(), 1);
    other.kill();
    assert_eq!(ended(&mut post, |_| {}), WhyEnded::Died);
    assert!(!lane.peer_alive());
}
