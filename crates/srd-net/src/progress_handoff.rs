//! How soon the progress thread is back when a thread of the program comes out of a sleep in which it moved packets.
//!
//! Most such threads go to sleep again at once, and move packets themselves. So the progress thread is not woken: an
//! alarm is set, which wakes it a little later, unless the program's thread sleeps again and puts it off.

use crate::notify::{Sleepers, lock};
use crate::sync::Mutex;
use crate::sys::event::{Alarm, EventFd, PollSet};
use srd_wire::{Nanos, Time};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// How late the progress thread is back at worst.
pub const LATEST: Nanos = Nanos::from_millis(1);
/// How long it parks while threads of the program move packets.
const PARK: Nanos = Nanos::from_millis(100);

/// The alarm, and what it is to end.
pub struct ProgressHandoff {
    alarm: Alarm,
    /// The alarm, and what else wakes the thread.
    poll_set: PollSet,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Until when the thread parks; [`Time(0)`] while it does not.
    parked_until: Time,
    /// When the alarm will go off; [`Time(0)`] if it is not set.
    alarm_at: Time,
}

impl ProgressHandoff {
    /// `kick` also ends a park.
    pub fn new(kick: &EventFd) -> io::Result<ProgressHandoff> {
        let (alarm, poll_set) = (Alarm::new()?, PollSet::new());
        poll_set.add_readable(kick.as_fd());
        poll_set.add_readable(alarm.as_fd());
        Ok(ProgressHandoff { alarm, poll_set, state: Mutex::default() })
    }

    /// Called by the progress thread: until when it parks, if threads of the program move packets. It must then call
    /// [`ProgressHandoff::park`].
    pub fn begin_park(&self, now: Time, sleepers: &Sleepers) -> Option<Time> {
        let mut state = lock(&self.state);
        // Looked at under the lock: whoever stops sleeping asks for the lock after that, and sees that the thread parks.
        sleepers.any().then(|| {
            state.parked_until = now + PARK;
            state.parked_until
        })
    }

    /// Called by the progress thread: parks for as long as [`ProgressHandoff::begin_park`] has said. Returns whether it was kicked.
    pub fn park(&self) -> bool {
        let kicked = self.poll_set.wait(Some(Duration::from_nanos(PARK.0))).first_is_ready;
        let mut state = lock(&self.state);
        if state.alarm_at != Time(0) {
            self.alarm.clear();
        }
        *state = State::default();
        kicked
    }

    /// A thread of the program has stopped sleeping. Sets the alarm if the progress thread would be back too late
    /// without. Returns when the alarm goes off, if it has been set now.
    pub fn begin(&self, now: Time) -> Option<Time> {
        let mut state = lock(&self.state);
        let soon_enough = Time(now.0 + 2 * LATEST.0);
        // One that is set is not put off each time: that would be a system call each time.
        if state.parked_until <= soon_enough || state.alarm_at > Time(now.0 + LATEST.0 / 2) {
            return None;
        }
        self.alarm.set(Duration::from_nanos(LATEST.0));
        state.alarm_at = now + LATEST;
        Some(state.alarm_at)
    }

    /// A thread of the program goes on sleeping, and will call [`ProgressHandoff::begin`] when it stops. Returns until when the
    /// progress thread parks, if an alarm was set.
    pub fn put_off(&self) -> Option<Time> {
        let mut state = lock(&self.state);
        if state.alarm_at == Time(0) {
            return None;
        }
        self.alarm.clear();
        state.alarm_at = Time(0);
        Some(state.parked_until)
    }
}
