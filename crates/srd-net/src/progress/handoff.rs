//! How soon the progress thread is back when a thread of the program stops moving packets.
//!
//! Most that come out of a sleep in which they moved packets go to sleep again at once, and most that poll go on polling. So the
//! progress thread is neither woken nor does it look again and again, which would take the core from the program: an alarm is
//! set, which wakes it a little later. Polls put it off; where threads sleep again it finds that out once, and parks.

use crate::notify::{Sleepers, lock};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::sys::event::{Alarm, EventFd, PollSet};
use srd_wire::{Nanos, Time};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// How late the progress thread is back where a thread of the program has come out of its sleep. Twice as late, up to [`LATEST`], each time
/// that it has gone to sleep again.
const AFTER_SLEEP: Nanos = Nanos::from_millis(1);
/// How late it is back when polls end that have just begun...
const SOONEST: Nanos = Nanos::from_micros(400);
/// ...and that have gone on for long.
pub const LATEST: Nanos = Nanos::from_millis(10);
/// This part of the time for which polls have gone on: who has been polling for long will not stop this very moment. A processor's next timer
/// takes 11 us to set on virtual machines, so it should not be set often; but what a rank has sent and left to us when it computes waits for us.
const PART: u64 = 100;
/// How long it parks while threads of the program move packets.
const PARK: Nanos = Nanos::from_millis(100);

/// The alarm, and what it is to end.
pub struct ProgressHandoff {
    alarm: Alarm,
    /// The alarm, and what else wakes the thread.
    poll_set: PollSet,
    state: Mutex<State>,
    /// Polls put the alarm off from then on; [`Time::NEVER`] while the thread does not wait for their end.
    put_off_at: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Until when the thread parks; [`Time(0)`] while it does not.
    parked_until: Time,
    /// When the alarm will go off; [`Time(0)`] if it is not set.
    alarm_at: Time,
    /// Since when polls have put alarms off; [`Time(0)`] while they do not.
    polls_since: Time,
    /// For how long they had before, less what the ends of polls have taken from that.
    trust: Nanos,
    /// The alarm has gone off, and nobody has moved packets since.
    went_off: bool,
    /// How often it has in vain, since threads of the program slept again.
    in_vain: u32,
}

impl State {
    fn trust(&self, now: Time) -> Nanos {
        let goes_on = if self.polls_since == Time(0) { Nanos::ZERO } else { now.since(self.polls_since) };
        self.trust + goes_on
    }
}

impl ProgressHandoff {
    /// `kick` also ends a park.
    pub fn new(kick: &EventFd) -> io::Result<ProgressHandoff> {
        let (alarm, poll_set) = (Alarm::new()?, PollSet::new());
        poll_set.add_readable(kick.as_fd());
        poll_set.add_readable(alarm.as_fd());
        Ok(ProgressHandoff {
            alarm,
            poll_set,
            state: Mutex::default(),
            put_off_at: AtomicU64::new(Time::NEVER.0),
        })
    }

    /// Called by the progress thread: until when it parks, if threads of the program move packets. It must then call
    /// [`ProgressHandoff::park`].
    pub fn begin_park(&self, now: Time, sleepers: &Sleepers) -> Option<Time> {
        let mut state = lock(&self.state);
        // Looked at under the lock: whoever stops sleeping asks for the lock after that, and sees that the thread parks.
        sleepers.any().then(|| {
            state.in_vain += u32::from(std::mem::take(&mut state.went_off));
            state.trust = state.trust(now);
            state.polls_since = Time(0); // it sleeps instead
            state.parked_until = now + PARK;
            state.parked_until
        })
    }

    /// Called by the progress thread, which has seen that the program polls: sets the alarm, which polls put off. Returns when it goes
    /// off. The thread must then call [`ProgressHandoff::park`].
    pub fn watch(&self, now: Time) -> Time {
        let mut state = lock(&self.state);
        state.parked_until = now + PARK;
        if state.polls_since == Time(0) {
            state.polls_since = now;
        }
        self.set_watch(&mut state, now)
    }

    /// Called by the progress thread, which moves packets: polls and sleeps have ended.
    pub fn takes_over(&self, now: Time) {
        let mut state = lock(&self.state);
        // No more than what is trusted most.
        state.trust = Nanos(state.trust(now).0.min(LATEST.0 * PART) / 2);
        state.polls_since = Time(0);
        (state.went_off, state.in_vain) = (false, 0);
    }

    /// The program polls. Returns when the alarm goes off, if that has been put off now.
    #[inline]
    pub fn polled(&self, now: Time) -> Option<Time> {
        if now.0 < self.put_off_at.load(Ordering::Relaxed) { None } else { self.put_off_watch(now) }
    }

    #[cold]
    fn put_off_watch(&self, now: Time) -> Option<Time> {
        let mut state = lock(&self.state);
        // The thread may have stopped waiting a moment ago.
        let watches = self.put_off_at.load(Ordering::Relaxed) != Time::NEVER.0;
        watches.then(|| self.set_watch(&mut state, now))
    }

    /// The alarm of a thread that waits for the end of polls. Putting that off is a system call: not each poll does.
    fn set_watch(&self, state: &mut State, now: Time) -> Time {
        let within = Nanos((state.trust(now).0 / PART).clamp(SOONEST.0, LATEST.0));
        self.put_off_at.store(now.0 + within.0 / 2, Ordering::Relaxed);
        self.set_alarm(state, now, within)
    }

    fn set_alarm(&self, state: &mut State, now: Time, within: Nanos) -> Time {
        self.alarm.set(Duration::from_nanos(within.0));
        state.alarm_at = now + within;
        state.alarm_at
    }

    /// Called by the progress thread: parks for as long as [`ProgressHandoff::begin_park`] or [`ProgressHandoff::watch`] has said.
    /// Returns whether it was kicked.
    pub fn park(&self) -> bool {
        let kicked = self.poll_set.wait(Some(Duration::from_nanos(PARK.0))).first_is_ready;
        let mut state = lock(&self.state);
        if state.alarm_at != Time(0) {
            self.alarm.clear();
            state.went_off = !kicked;
        }
        (state.parked_until, state.alarm_at) = (Time(0), Time(0));
        self.put_off_at.store(Time::NEVER.0, Ordering::Relaxed);
        kicked
    }

    /// A thread of the program has stopped sleeping. Sets the alarm if the progress thread would be back too late
    /// without. Returns when the alarm goes off, if it has been set now.
    pub fn begin(&self, now: Time) -> Option<Time> {
        let mut state = lock(&self.state);
        let within = Nanos(AFTER_SLEEP.0 << state.in_vain.min(8)).min(LATEST);
        let soon_enough = Time(now.0 + 2 * within.0);
        // One that is set is not put off each time: that would be a system call each time.
        if state.parked_until <= soon_enough || state.alarm_at > Time(now.0 + within.0 / 2) {
            return None;
        }
        Some(self.set_alarm(&mut state, now, within))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_put_the_alarm_off_and_it_wakes_when_they_end() {
        let kick = EventFd::new().unwrap();
        let handoff = ProgressHandoff::new(&kick).unwrap();
        let start = Time(1_000_000_000);
        assert_eq!(handoff.polled(start), None, "nobody waits for the end of polls");
        assert_eq!(handoff.watch(start), start + SOONEST);
        let half = start + Nanos(SOONEST.0 / 2);
        assert_eq!(handoff.polled(Time(half.0 - 1)), None, "not each poll");
        assert_eq!(handoff.polled(half), Some(half + SOONEST));
        assert_eq!(handoff.polled(half), None);
        let later = |part: u64| start + Nanos(PART * LATEST.0 / part);
        assert_eq!(handoff.polled(later(4)), Some(later(4) + Nanos(LATEST.0 / 4)));
        assert_eq!(handoff.polled(later(1)), Some(later(1) + LATEST));
        let now = Time(2 * later(1).0);
        assert_eq!(handoff.polled(now), Some(now + LATEST));
        assert!(!handoff.park(), "the alarm ends it");
        assert_eq!(handoff.polled(now + PARK), None, "nobody waits any more");
        assert_eq!(handoff.watch(now), now + LATEST, "they are still trusted");
        kick.signal();
        assert!(handoff.park());
        handoff.takes_over(now);
        assert_eq!(handoff.watch(now), now + Nanos(LATEST.0 / 2), "and less after each end");
        (0..5).for_each(|_| handoff.takes_over(now));
        assert_eq!(handoff.watch(now), now + SOONEST);
    }
}
