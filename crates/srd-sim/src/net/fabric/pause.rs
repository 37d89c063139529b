//! Flow control between neighbours. A switch counts what it holds of each lossless class that came by each of its ports; above
//! a threshold it sends a pause frame to the port at the other end of that cable, and another one when that may go on (IEEE
//! 802.1Qbb for classes, IEEE 802.3x for whole links).
//!
//! Real pause frames carry a time and are repeated; these hold until further notice, which comes to the same. They take no
//! notice of what is wrong with a cable, since one that is lost is soon followed by another.
//!
//! What is counted belongs to the switch that holds it, what is paused to the node whose port it is: the two talk by nothing
//! but pause frames.

use crate::net::settings::PauseSettings;
use crate::net::topology::PortId;
use crate::net::topology::Topology;
use srd_baselines::units::Ps;

/// Bytes of a pause frame without preamble, check sequence and gap.
const PAUSE_FRAME: u32 = 60;

/// Classes that are counted and paused as one.
pub(super) type Group = usize;

/// What a switch holds of one group that came by one port. What is neither shared nor headroom is the port's own.
#[derive(Clone, Copy, Default)]
struct Held {
    bytes: u64,
    shared: u64,
    headroom: u64,
    /// Most bytes so far.
    most: u64,
}

/// What a port may not send.
#[derive(Clone, Copy, Default)]
struct Stop {
    paused: bool,
    /// Since when.
    since: Ps,
    /// For how long in earlier times.
    before: Ps,
}

/// See the module. Vectors of ports have an entry for each port and group, by the port that sends over the cable: its number is
/// that of the ingress at the other end as well.
pub(super) struct Pauses {
    pub(super) settings: PauseSettings,
    /// The classes of each group.
    groups: Vec<u8>,
    held: Vec<Held>,
    headroom: Vec<u64>,
    /// What the other end has been told not to send.
    told: Vec<u8>,
    stops: Vec<Stop>,
    /// When each port's next watchdog event comes.
    watch_at: Vec<Ps>,
    /// Bytes of a pause frame on the wire.
    pub(super) frame: u32,
    /// Pause frames sent, those that let go on included.
    pub(super) sent: u64,
    /// Frames of lossless classes that found no room.
    pub(super) lossless_drops: u64,
    /// Frames dropped by watchdogs.
    pub(super) watchdog_drops: u64,
}

impl Pauses {
    pub(super) fn new(settings: PauseSettings, topology: &Topology, overhead: u32) -> Pauses {
        let groups: Vec<u8> = match settings.whole_link {
            true => vec![settings.classes],
            false => (0..8).map(|class| 1 << class).filter(|class| settings.classes & class != 0).collect(),
        };
        let frame = PAUSE_FRAME + overhead;
        let ports = 2 * topology.cables.len();
        let mut headroom = Vec::with_capacity(ports);
        for cable in &topology.cables {
            for to in [cable.b, cable.a] {
                let latency =
                    to.0.checked_sub(topology.hosts).map(|switch| topology.switches[switch as usize].latency);
                let enough = || {
                    // From the moment at which the threshold is crossed, frames come in for as long as: the frame that is
                    // leaving towards the sender keeps the pause frame waiting; that takes its time to be sent, crosses the
                    // cable and is obeyed; the sender's frame of that moment is sent in full, and the last bit crosses the
                    // cable and the switch (the terms of IEEE 802.1Q, annex N). Beside these, the frame that crossed the
                    // threshold needs room.
                    let span = cable.delay + cable.delay + settings.response + latency.unwrap_or(Ps::ZERO);
                    let bits = span.0 as u128 * cable.rate.0 as u128;
                    bits.div_ceil(8_000_000_000_000) as u64 + 3 * settings.frame + frame as u64
                };
                headroom.push(settings.headroom.unwrap_or_else(enough));
            }
        }
        Pauses {
            settings,
            held: vec![Held::default(); ports * groups.len()],
            headroom,
            told: vec![0; ports],
            stops: vec![Stop::default(); ports * groups.len()],
            watch_at: vec![Ps::NEVER; ports],
            groups,
            frame,
            sent: 0,
            lossless_drops: 0,
            watchdog_drops: 0,
        }
    }

    /// The group of a class, if that is lossless.
    #[inline]
    pub(super) fn group(&self, class: u8) -> Option<Group> {
        self.groups.iter().position(|classes| classes >> class & 1 == 1)
    }

    /// The groups.
    pub(super) fn groups(&self) -> std::ops::Range<Group> {
        0..self.groups.len()
    }

    /// The classes of a group, a bit each.
    pub(super) fn classes(&self, group: Group) -> u8 {
        self.groups[group]
    }

    fn index(&self, port: PortId, group: Group) -> usize {
        port.0 as usize * self.groups.len() + group
    }

    // ---- what is held ----

    /// What may be held of what came by a port while `used` bytes of the shared memory of `pool` bytes are taken.
    pub(super) fn threshold(&self, pool: u64, used: u64) -> u64 {
        let share = self.settings.alpha.map_or(0, |alpha| (alpha * pool.saturating_sub(used) as f64) as u64);
        self.settings.xoff.saturating_add(share)
    }

    /// Takes a frame in that came by `from`, if there is room. Returns whether there is; `used` bytes of the shared memory of
    /// `pool` bytes are taken. One that the switch has had in other memory is not refused.
    pub(super) fn take(
        &mut self,
        from: PortId,
        group: Group,
        (bytes, was_held): (u64, bool),
        pool: u64,
        used: &mut u64,
    ) -> bool {
        let threshold = self.threshold(pool, *used);
        let index = self.index(from, group);
        let held = &mut self.held[index];
        let after = held.bytes + bytes;
        if was_held {
            // Its memory is neither headroom nor shared.
        } else if after > threshold {
            if held.headroom + bytes > self.headroom[from.0 as usize] {
                self.lossless_drops += 1;
                return false;
            }
            held.headroom += bytes;
        } else if after > self.settings.xoff {
            let part = bytes.min(after - self.settings.xoff);
            held.shared += part;
            *used += part;
        }
        held.bytes = after;
        held.most = held.most.max(after);
        true
    }

    /// A frame that came by `from` has left.
    pub(super) fn release(&mut self, from: PortId, group: Group, bytes: u64, used: &mut u64) {
        let index = self.index(from, group);
        let held = &mut self.held[index];
        held.bytes -= bytes;
        let headroom = held.headroom.min(bytes);
        held.headroom -= headroom;
        let shared = held.shared.min(bytes - headroom);
        held.shared -= shared;
        *used -= shared;
    }

    /// Whether what came by `from` makes it necessary to tell the other end something new: to stop when headroom is in use, to
    /// go on when that is empty and the rest is below the threshold. Returns the classes that are to be paused from now on.
    pub(super) fn change(&mut self, from: PortId, group: Group, pool: u64, used: u64) -> Option<u8> {
        let held = &self.held[self.index(from, group)];
        let classes = self.groups[group];
        let told = self.told[from.0 as usize];
        let stops = told & classes != 0;
        let low = || held.bytes == 0 || held.bytes + self.settings.gap <= self.threshold(pool, used);
        let next = match stops {
            false if held.headroom > 0 => told | classes,
            true if held.headroom == 0 && low() => told & !classes,
            _ => return None,
        };
        self.told[from.0 as usize] = next;
        Some(next)
    }

    /// Whether the other end of a port's cable has told it to stop.
    pub(super) fn is_told(&self, port: PortId, group: Group) -> bool {
        self.told[port.0 as usize] & self.groups[group] != 0
    }

    /// Bytes held of what came by a port, and those of them that are shared.
    pub(super) fn held(&self, port: PortId, group: Group) -> (u64, u64) {
        let held = &self.held[self.index(port, group)];
        (held.bytes, held.shared)
    }

    /// The most that has been held of what came by a port, of any group.
    pub(super) fn most_held(&self, port: PortId) -> u64 {
        self.groups().map(|group| self.held[self.index(port, group)].most).max().unwrap_or(0)
    }

    /// Headroom for what comes by a port.
    pub(super) fn headroom(&self, port: PortId) -> u64 {
        self.headroom[port.0 as usize]
    }

    // ---- what is paused ----

    /// A port may not send these classes from now on, and may send all others.
    pub(super) fn set_paused(&mut self, now: Ps, port: PortId, classes: u8) {
        for group in self.groups() {
            let index = self.index(port, group);
            let (stop, paused) = (&mut self.stops[index], classes & self.groups[group] != 0);
            match (stop.paused, paused) {
                (false, true) => stop.since = now,
                (true, false) => stop.before += now - stop.since,
                _ => {}
            }
            stop.paused = paused;
        }
    }

    /// Since when a port may not send a group, if that is so.
    pub(super) fn paused_since(&self, port: PortId, group: Group) -> Option<Ps> {
        let stop = &self.stops[self.index(port, group)];
        stop.paused.then_some(stop.since)
    }

    /// For how long a port could not send, all groups together.
    pub(super) fn paused(&self, now: Ps, port: PortId) -> Ps {
        let time = |group| {
            let stop = &self.stops[self.index(port, group)];
            stop.before + if stop.paused { now - stop.since } else { Ps::ZERO }
        };
        self.groups().map(time).fold(Ps::ZERO, |sum, time| sum + time)
    }

    // ---- watchdogs ----

    /// When the watchdog is to look at a port next, if no event says so yet.
    pub(super) fn next_watch(&mut self, now: Ps, port: PortId) -> Option<Ps> {
        let patience = self.settings.watchdog?;
        let ends = self.groups().filter_map(|group| Some(self.paused_since(port, group)? + patience));
        let at = ends.filter(|&at| at > now).min()?;
        let due = &mut self.watch_at[port.0 as usize];
        (at < *due).then(|| {
            *due = at;
            at
        })
    }

    /// A watchdog looks at a port. Returns the classes that have been paused for too long.
    pub(super) fn watch(&mut self, now: Ps, port: PortId) -> u8 {
        self.watch_at[port.0 as usize] = Ps::NEVER;
        let Some(patience) = self.settings.watchdog else { return 0 };
        let late =
            |&group: &Group| self.paused_since(port, group).is_some_and(|since| since + patience <= now);
        self.groups().filter(late).fold(0, |classes, group| classes | self.groups[group])
    }
}
