//! One run by several threads, as `simulation::parts` allows it: where they meet, and what they tell each other there.

use crate::hosts::Process;
use crate::input::Scenario;
use crate::run::drive::prepare_hosts;
use crate::run::offer::Offer;
use crate::run::outcome::{Meter, thread_cpu_ns};
use crate::run::simulation::{Crossing, Progress, Remains, Simulation};
use srd_baselines::units::Ps;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// With fewer data packets between two meetings, meeting takes longer than what is done in between.
const LEAST_PACKETS: u64 = 300;

/// What threads have agreed upon.
#[derive(Clone, Copy)]
struct Agreed {
    progress: Progress,
    /// Somebody has given the run up.
    given_up: bool,
}

const NOBODY_YET: Agreed =
    Agreed { progress: Progress { next: None, unfinished: 0, ended: Ps::ZERO }, given_up: false };

struct State<C> {
    /// How often all have met.
    round: u64,
    /// How many are there for the next time, and what these say.
    here: usize,
    said: Agreed,
    /// What was said the last time.
    agreed: Agreed,
    /// For each thread: frames that wait for the next meeting, and those that it may take.
    coming: Vec<Vec<Vec<Crossing<C>>>>,
    come: Vec<Vec<Vec<Crossing<C>>>>,
    /// A thread has ended before its time.
    broken: bool,
}

/// Where threads meet. Nobody leaves before all have come.
struct Meeting<C> {
    threads: usize,
    state: Mutex<State<C>>,
    all_here: Condvar,
}

impl<C> Meeting<C> {
    fn of(threads: usize) -> Meeting<C> {
        let none = || (0..threads).map(|_| Vec::new()).collect();
        let state = State {
            round: 0,
            here: 0,
            said: NOBODY_YET,
            agreed: NOBODY_YET,
            coming: none(),
            come: none(),
            broken: false,
        };
        Meeting { threads, state: Mutex::new(state), all_here: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Meets the others. What all have said, and the frames for `own`. `None` if one of them will never come.
    fn meet(
        &self,
        own: u16,
        progress: Progress,
        given_up: bool,
        crossings: Vec<Vec<Crossing<C>>>,
    ) -> Option<(Agreed, Vec<Vec<Crossing<C>>>)> {
        let mut state = self.lock();
        let said = &mut state.said;
        said.given_up |= given_up;
        said.progress = Progress {
            next: said.progress.next.into_iter().chain(progress.next).min(),
            unfinished: said.progress.unfinished + progress.unfinished,
            ended: said.progress.ended.max(progress.ended),
        };
        for (to, crossings) in state.coming.iter_mut().zip(crossings) {
            to.push(crossings);
        }
        state.here += 1;
        if state.here == self.threads {
            state.round += 1;
            state.here = 0;
            state.agreed = std::mem::replace(&mut state.said, NOBODY_YET);
            let State { coming, come, .. } = &mut *state;
            std::mem::swap(coming, come); // all have taken what had come
            self.all_here.notify_all();
        } else {
            let round = state.round;
            state = self
                .all_here
                .wait_while(state, |state| state.round == round && !state.broken)
                .unwrap_or_else(PoisonError::into_inner);
            if state.round == round {
                return None;
            }
        }
        let come = std::mem::take(&mut state.come[own as usize]);
        Some((state.agreed, come))
    }
}

/// While a thread has one of these, others wait for it.
struct Present<'a, C>(&'a Meeting<C>);

impl<C> Drop for Present<'_, C> {
    fn drop(&mut self) {
        self.0.lock().broken = true;
        self.0.all_here.notify_all();
    }
}

/// Runs a thread's part to the run's end, which is true; or until `goes_on`, which is asked at each meeting, or that of another thread says no.
fn run_part<T: Process>(
    simulation: &mut Simulation<'_, T>,
    own: u16,
    meeting: &Meeting<T::Content>,
    goes_on: &mut dyn FnMut(&Simulation<'_, T>) -> bool,
) -> bool {
    let _present = Present(meeting);
    let mut most = 0;
    loop {
        let mut crossings: Vec<Vec<Crossing<T::Content>>> = (0..meeting.threads)
            .map(|to| Vec::with_capacity(if to == usize::from(own) { 0 } else { most }))
            .collect();
        let abroad = simulation.take_crossings(|to, crossing| crossings[usize::from(to)].push(crossing));
        most = crossings.iter().map(Vec::len).max().unwrap_or(0);
        let mut progress = simulation.progress();
        progress.next = abroad.into_iter().chain(progress.next).min();
        let given_up = !goes_on(simulation);
        let Some((agreed, come)) = meeting.meet(own, progress, given_up, crossings) else { return false };
        if agreed.given_up {
            return false;
        }
        simulation.take_in(come.into_iter().flatten());
        let (last, over) = simulation.last_span(&agreed.progress);
        match agreed.progress.next {
            Some(span) if span <= last => simulation.run_span(span),
            _ => {
                simulation.conclude(&agreed.progress, over);
                return true;
            }
        }
    }
}

/// How many threads are of use for `simulation`, which has to move so many data packets, of `most`.
pub fn useful<T: Process>(simulation: &Simulation<'_, T>, offer: &Offer, packets: u64, most: usize) -> u16 {
    let Some(ideal) = offer.ideal.filter(|_| simulation.comes_apart()) else { return 1 };
    let between = packets / simulation.spans_of(ideal).max(1);
    (between / LEAST_PACKETS).clamp(1, most.clamp(1, usize::from(u16::MAX)) as u64) as u16
}

/// Runs `simulation`, which is at its beginning, to its end with so many threads, which is true; or until `goes_on` says no to what of
/// it happens in this thread, or another thread cannot go on. What they take of processors is added to `meter`.
pub fn run<T>(
    simulation: &mut Simulation<'_, T>,
    scenario: &Scenario,
    offer: &Offer,
    threads: u16,
    meter: &mut Meter,
    goes_on: &mut dyn FnMut(&Simulation<'_, T>) -> bool,
) -> bool
where
    T: Process + Send,
    T::Content: Send,
{
    let keepers = simulation.keepers(&scenario.topology, threads);
    let meeting = Meeting::of(usize::from(threads));
    let other = |own: u16| -> Option<(Remains<T>, u64)> {
        let mut simulation: Simulation<'_, T> = prepare_hosts(scenario, offer);
        simulation.keep(&keepers, own);
        run_part(&mut simulation, own, &meeting, &mut |_| true)
            .then(|| (simulation.remains(&keepers, own), thread_cpu_ns()))
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|own| scope.spawn(move || other(own))).collect();
        simulation.keep(&keepers, 0);
        let mut done = run_part(simulation, 0, &meeting, goes_on);
        for other in others {
            match other.join() {
                Ok(Some((remains, cpu_ns))) => {
                    simulation.join(remains, &keepers);
                    meter.add(cpu_ns);
                }
                Ok(None) => done = false,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::AnyHost;
    use std::path::Path;

    const SOONER: Progress = Progress { next: Some(3), unfinished: 2, ended: Ps(7) };
    const LATER: Progress = Progress { next: None, unfinished: 1, ended: Ps(9) };

    #[test]
    fn whoever_meets_hears_what_all_have_said() {
        let meeting: Meeting<()> = Meeting::of(2);
        let say = |own, progress, given_up| {
            let (agreed, _) = meeting.meet(own, progress, given_up, Vec::new()).unwrap();
            (agreed.progress.next, agreed.progress.unfinished, agreed.progress.ended, agreed.given_up)
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| [false, true].map(|given_up| say(1, LATER, given_up)));
            let heard = [false, false].map(|given_up| say(0, SOONER, given_up));
            assert_eq!(heard, [(Some(3), 3, Ps(9), false), (Some(3), 3, Ps(9), true)]);
            assert_eq!(other.join().unwrap(), heard);
        });
    }

    #[test]
    fn nobody_waits_for_a_thread_that_has_ended() {
        let meeting: Meeting<()> = Meeting::of(2);
        std::thread::scope(|scope| {
            scope.spawn(|| drop(Present(&meeting)));
            assert!(meeting.meet(0, SOONER, false, Vec::new()).is_none());
        });
    }

    const LEAF_SPINE: &str = "kind = \"leaf-spine\"\nleaves = 8\nspines = 8\nhosts_per_leaf = 8";

    fn permutation(more: &str, sets: &[&str]) -> Scenario {
        permutation_on(LEAF_SPINE, more, sets)
    }

    fn permutation_on(fabric: &str, more: &str, sets: &[&str]) -> Scenario {
        let text = format!(
            "[fabric]\n{fabric}\nhost_gbps = 100\ncable_us = 1\n{more}\n[[workload]]\nkind = \"permutation\"\nsize = \"100KB\"\n"
        );
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        Scenario::parse(&text, "threads.toml", Path::new(""), &sets).unwrap_or_else(|error| panic!("{error}"))
    }

    /// What becomes of a run by so many threads, however little use they are.
    fn outcome(scenario: &Scenario, threads: u16) -> crate::run::Outcome {
        let mut meter = Meter::start();
        let offer = Offer::of(scenario);
        let mut simulation: Simulation<'_, AnyHost> = prepare_hosts(scenario, &offer);
        assert!(simulation.comes_apart());
        assert!(run(&mut simulation, scenario, &offer, threads, &mut meter, &mut |_| true));
        let outcome = crate::run::Outcome::of(&mut simulation, offer.ideal, &meter);
        crate::run::Outcome { cost: Default::default(), ..outcome }
    }

    #[test]
    fn an_outcome_does_not_tell_how_many_threads_there_were() {
        let marked =
            ["transport.kind=nscc", "queues.ecn_min=0.2bdp", "queues.ecn_max=0.8bdp", "queues.trim=true"];
        let classes = [
            "transport.class=1",
            "transport.control_class=0",
            "queues.classes=strict",
            "queues.ecn_at=leaving",
        ];
        let nscc = [marked, classes].concat();
        let every = "[host]\nlatency_us = 0.5\njitter_us = 3\n[[workload]]\nkind = \"incast\"\nsenders = 9\nsize = \"50KB\"\nstart_us = 5";
        let limps = "[[fault]]\nkind = \"rate\"\nlink = \"leaf0-spine1\"\nat_us = 0\nshare = 0.2\n\
                     [[fault]]\nkind = \"loss\"\nlink = \"leaf1-spine1\"\nat_us = 0\nprobability = 0.01\n";
        for (fabric, more, sets) in [
            (LEAF_SPINE, "", &[][..]),
            (LEAF_SPINE, every, &[]),
            (LEAF_SPINE, limps, &[]),
            (LEAF_SPINE, every, &["queues.capacity=40KB", "queues.trim=true"]),
            (LEAF_SPINE, "", &["transport.kind=tcp"]),
            (LEAF_SPINE, "", &["transport.kind=roce", "end_us=15"]),
            (LEAF_SPINE, "", &nscc),
            ("kind = \"fat-tree\"\nk = 6", "", &[]),
            ("kind = \"one-switch\"\nhosts = 13", every, &[]),
        ] {
            let scenario = permutation_on(fabric, more, sets);
            let alone = crate::run::Outcome { cost: Default::default(), ..crate::run::run(&scenario) };
            for threads in [1, 2, 3, 7] {
                assert_eq!(outcome(&scenario, threads), alone, "{threads} threads: {fabric} {more} {sets:?}");
            }
        }
    }

    #[test]
    fn a_run_that_is_given_up_ends_in_all_threads() {
        let scenario = permutation("", &[]);
        let offer = Offer::of(&scenario);
        let mut simulation: Simulation<'_, AnyHost> = prepare_hosts(&scenario, &offer);
        let mut left = 5;
        let mut goes_on = |_: &Simulation<'_, AnyHost>| {
            left -= 1;
            left > 0
        };
        assert!(!run(&mut simulation, &scenario, &offer, 3, &mut Meter::start(), &mut goes_on));
    }

    #[test]
    fn threads_are_of_use_where_much_happens_at_once() {
        let scenario = permutation("", &[]);
        let offer = Offer::of(&scenario);
        let simulation: Simulation<'_, AnyHost> = prepare_hosts(&scenario, &offer);
        let spans = simulation.spans_of(offer.ideal.unwrap());
        assert_eq!(useful(&simulation, &offer, spans * 500, 8), 1);
        assert_eq!(useful(&simulation, &offer, spans * 1350, 8), 4);
        assert_eq!(useful(&simulation, &offer, spans * 10_000, 8), 8);
        let ordered = permutation("[queues]\nlossless = [0]\n", &["transport.kind=roce"]);
        let offer = Offer::of(&ordered);
        assert_eq!(useful(&prepare_hosts::<AnyHost>(&ordered, &offer), &offer, u64::MAX, 8), 1);
    }
}
