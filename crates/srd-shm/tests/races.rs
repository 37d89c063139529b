//! What must hold however two threads fall together. Each round lets both go at once, apart by a random number of
//! instructions; where they share a core, a round shows little and does no harm.

mod place;

use place::{Place, address};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use srd_shm::{Inbox, Lane, Options};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Both cores of a small machine belong to one test at a time.
static CORES: Mutex<()> = Mutex::new(());

/// Looks in vain after which any lane is forgotten.
const COLD: u32 = 2100;

fn pair(place: &Place) -> (Inbox, Inbox, Lane) {
    let options = Options { lanes: 4, ring_bytes: 4096, permit_copies: true, well_known: false };
    let to = Inbox::open(place.dir(), address(1), 1, options).unwrap();
    let from = Inbox::open(place.dir(), address(2), 1, options).unwrap();
    let lane = from.connect(to.address()).unwrap();
    (to, from, lane)
}

/// Both wait here until both are here, or one has failed.
struct Gate(AtomicU32);

/// Opens gates for good if its thread fails.
struct Opens<'a>([&'a Gate; 2]);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.iter().for_each(|gate| gate.0.store(1 << 31, Ordering::SeqCst));
        }
    }
}

impl Gate {
    fn pass(&self, round: u32) {
        self.0.fetch_add(1, Ordering::SeqCst);
        let mut spins = 0;
        while self.0.load(Ordering::SeqCst) < 2 * (round + 1) {
            spins += 1;
            if spins % 4096 == 0 {
                thread::yield_now();
            }
            spin_loop();
        }
    }
}

fn rest(instructions: u32) {
    (0..instructions).for_each(|_| spin_loop());
}

#[test]
fn either_the_sender_sees_the_sleeper_or_the_sleeper_the_record() {
    const ROUNDS: u32 = 20_000;
    let _cores = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let (mut to, _from, mut lane) = pair(&place);
    let (start, end) = (Gate(AtomicU32::new(0)), Gate(AtomicU32::new(0)));
    let asleep = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _opens = Opens([&start, &end]);
            let mut random = SmallRng::seed_from_u64(1);
            for round in 0..ROUNDS {
                start.pass(round);
                rest(random.random_range(0..4));
                lane.send(&[b"x"]).unwrap();
                asleep.store(lane.peer_asleep(), Ordering::SeqCst);
                end.pass(round);
            }
        });
        let _opens = Opens([&start, &end]);
        let mut random = SmallRng::seed_from_u64(2);
        for round in 0..ROUNDS {
            start.pass(round);
            rest(random.random_range(0..8));
            let sleeps = to.fall_asleep();
            end.pass(round);
            // The gate is passed by the other once more only when this thread is there, too.
            assert!(!sleeps || asleep.load(Ordering::SeqCst), "round {round}: asleep, and not woken");
            to.wake_up();
            assert_eq!(to.receive(9, |_, _| {}).records, 1);
            // Now and then the lane has cooled, and the sender has to set its bit.
            if round % 64 == 0 {
                (0..COLD).for_each(|_| assert_eq!(to.receive(9, |_, _| {}).records, 0));
            }
        }
    });
}

#[test]
fn a_record_that_comes_while_its_lane_cools_is_found() {
    const ROUNDS: u32 = 3_000;
    let _cores = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let (mut to, _from, mut lane) = pair(&place);
    let (start, end) = (Gate(AtomicU32::new(0)), Gate(AtomicU32::new(0)));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _opens = Opens([&start, &end]);
            let mut random = SmallRng::seed_from_u64(3);
            for round in 0..ROUNDS {
                lane.send(&[b"warm"]).unwrap();
                start.pass(2 * round);
                start.pass(2 * round + 1);
                rest(random.random_range(0..20));
                lane.send(&[b"late"]).unwrap();
                end.pass(round);
            }
        });
        let _opens = Opens([&start, &end]);
        let mut random = SmallRng::seed_from_u64(4);
        for round in 0..ROUNDS {
            start.pass(2 * round);
            assert_eq!(to.receive(9, |_, _| {}).records, 1);
            // A little before it cools the sender starts.
            let before = random.random_range(1850..2048);
            (0..before).for_each(|_| assert_eq!(to.receive(9, |_, _| {}).records, 0));
            start.pass(2 * round + 1);
            let found: usize = (0..300).map(|_| to.receive(9, |_, _| {}).records).sum();
            while end.0.load(Ordering::SeqCst) < 2 * round + 1 {
                thread::yield_now();
            }
            assert!(
                found == 1 || to.has_news(),
                "round {round}: a record lies in a lane that nobody looks at"
            );
            assert_eq!(found + to.receive(9, |_, _| {}).records, 1);
            end.pass(round);
        }
    });
}
