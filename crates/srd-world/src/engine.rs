//! When a process runs its device: the part that `srd-net`'s engine plays on a host, with its liberties. It may wake late,
//! take packets in batches, find its socket full, or wake for nothing.

use crate::ledger::{Violation, broken};
use crate::world::{Event, Sabotage, World};
use srd_wire::{Nanos, Time};

/// Wake-ups in a row that may have no effect...
const MAX_IDLE: u64 = 4_096;

/// ...within this time.
const IDLE_SPAN: Nanos = Nanos::from_millis(1);

/// Times that a device may want to be called again at once without doing anything.
const MAX_SPINS: u32 = 64;

impl World {
    /// Makes the engine of a process run at `at`, unless it runs earlier anyway.
    pub(crate) fn wake_at(&mut self, node: usize, at: Time) {
        let at = at.max(self.now);
        if at < self.nodes[node].wake_at {
            self.nodes[node].wake_at = at;
            self.at(at, Event::Wake(node));
        }
    }

    pub(crate) fn wake(&mut self, node: usize) -> Result<(), Violation> {
        // A wake-up that was overtaken by an earlier one.
        if self.nodes[node].wake_at != self.now {
            return Ok(());
        }
        self.serve(node)
    }

    /// Runs the engine of a process once.
    pub(crate) fn serve(&mut self, node: usize) -> Result<(), Violation> {
        self.nodes[node].wake_at = Time::NEVER;
        if self.nodes[node].device.is_none() {
            return Ok(());
        }
        if !self.nodes[node].runs(self.now) {
            self.wake_at(node, self.nodes[node].paused_until);
            return Ok(());
        }
        self.wakes += 1;
        let timers_first = self.plan.shape.timers_first != 0;
        let local = self.nodes[node].local(self.now);
        let due = self.nodes[node].device().next_timeout() <= local;
        let mut moved = 0;
        if timers_first {
            self.run_timers(node);
        }
        moved += self.take_packets(node)?;
        if !timers_first {
            self.run_timers(node);
        }
        let (sent, full) = self.send_packets(node)?;
        moved += sent;
        if !full {
            self.settle(node)?;
        }
        self.check_memory(node)?;
        if self.plan.shape.cq_lag_ns == 0 {
            moved += self.poll_now(node)?;
        } else {
            let lag = self.engine.below(self.plan.shape.cq_lag_ns);
            self.after(lag, Event::Poll(node));
        }
        self.plan_next_wake(node, full);
        if moved == 0 {
            let next = self.nodes[node].device().next_timeout();
            self.tell(|| {
                format!(
                    "{node} wakes for nothing (due: {due}); next at {} ns",
                    self.nodes[node].world(next).0
                )
            });
        }
        if due || moved > 0 { self.count_idle(node, moved) } else { Ok(()) }
    }

    fn run_timers(&mut self, node: usize) {
        let local = self.nodes[node].local(self.now);
        let device = self.nodes[node].device();
        let due = device.next_timeout() <= local;
        if due && self.sabotage(Sabotage::SleepThrough, 20) {
            return;
        }
        let device = self.nodes[node].device();
        if due || self.engine.percent(self.plan.shape.spurious_percent) {
            device.handle_timeout(local);
        }
    }

    /// A device that wants to be called at once must have something to do then.
    fn settle(&mut self, node: usize) -> Result<(), Violation> {
        let local = self.nodes[node].local(self.now);
        for spin in 0.. {
            if self.nodes[node].device().next_timeout() > local {
                return Ok(());
            }
            if self.plan.faults.sabotage != 0 {
                return Ok(());
            }
            if spin >= MAX_SPINS {
                let due = self.nodes[node].device().next_timeout();
                return broken(
                    "livelock",
                    format!(
                        "process {node} wants to be called at {} when it is {}, for ever",
                        due.0, local.0
                    ),
                );
            }
            self.nodes[node].device().handle_timeout(local);
            if self.send_packets(node)?.1 {
                return Ok(());
            }
        }
        Ok(())
    }

    fn plan_next_wake(&mut self, node: usize, full: bool) {
        if full {
            // The socket has room again after a while.
            let soon = 1 + self.engine.below(5_000);
            self.wake_at(node, Time(self.now.0 + soon));
        }
        let due = self.nodes[node].device().next_timeout();
        if due != Time::NEVER {
            let late = self.engine.below(self.plan.shape.late_ns + 1);
            let at = self.nodes[node].world(due);
            self.wake_at(node, Time(at.0.saturating_add(late)).max(Time(self.now.0 + 1)));
        }
    }

    /// Wake-ups for nothing are allowed, but not one after the other without time passing. (Packets that came within a
    /// nanosecond of each other have timers that expire so, and there may be a window of them.)
    fn count_idle(&mut self, node: usize, moved: u64) -> Result<(), Violation> {
        let (count, since) = &mut self.idle_wakes[node];
        if moved > 0 {
            (*count, *since) = (0, self.now);
            return Ok(());
        }
        *count += 1;
        if *count % MAX_IDLE == 0 {
            if self.now.since(*since) < IDLE_SPAN && !self.healed {
                return broken(
                    "livelock",
                    format!(
                        "process {node}: {MAX_IDLE} wake-ups without effect in {} us",
                        IDLE_SPAN.0 / 1_000
                    ),
                );
            }
            *since = self.now;
        }
        Ok(())
    }

    pub(crate) fn check_memory(&mut self, node: usize) -> Result<(), Violation> {
        let Some(device) = self.nodes[node].device.as_mut() else { return Ok(()) };
        match device.memory().breaches.first() {
            Some(first) => broken("stray memory access", format!("the device of process {node} {first}")),
            None => Ok(()),
        }
    }

    /// Whether to do this damage now: about once in `one_in` chances, and not before the run is under way.
    pub(crate) fn sabotage(&mut self, kind: Sabotage, one_in: u64) -> bool {
        if Sabotage::from_number(self.plan.faults.sabotage) != kind || self.engine.below(one_in) != 0 {
            return false;
        }
        self.sabotaged += 1;
        self.tell(|| format!("!! {kind:?}"));
        true
    }
}
