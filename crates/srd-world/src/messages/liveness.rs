//! The phase without faults: everything outstanding ends, everything completed is delivered, everybody can talk to
//! everybody.

use crate::ledger::{Violation, broken};
use crate::messages::cluster::{Cluster, Event};
use crate::messages::faults::FAREWELL;
use crate::messages::oracle::{Entry, Party};
use srd_wire::{Nanos, Time};

/// Fresh messages that may fail before one must come: the first may find out that a peer is another, or has lost us.
const ATTEMPTS: u64 = 3;

impl Cluster {
    pub(super) fn end(&mut self) -> Result<(), Violation> {
        self.heal();
        let patience = self.patience();
        self.tell(|| {
            format!("== the faults are over; everything must end within {} ms", patience.0 / 1_000_000)
        });
        self.run_until(self.now + patience, |cluster| cluster.book.outstanding().next().is_none())?;
        // Who stood still has yet to look at what has come, and what nobody receives keeps new sessions out.
        let looks = 2 * self.plan.shape.cq_lag_ns + 1_000_000;
        self.run_until(self.now + Nanos(looks), |_| false)?;
        // What the last outcomes have begun, such as the search for those who have gone.
        self.ask_for_everything()?;
        self.run_until(self.now + patience, |cluster| cluster.is_settled())?;
        self.all_is_said()?;
        self.take_back_receives()?;
        self.run_until(self.now + patience, |cluster| cluster.book.waiting().next().is_none())?;
        if let Some(n) = self.book.waiting().next() {
            let receive = &self.book.receives[n];
            return broken("liveness", format!("receive {n} has matched, and does not end: {receive:?}"));
        }
        self.book.check_order()?;
        for index in 0..self.processes.len() {
            self.check_untouched(index)?;
        }
        self.greet()?;
        for index in 0..self.processes.len() {
            if let Some(life) = &self.processes[index].life
                && life.domain.counters().malformed > 0
            {
                return broken("malformed", format!("process {index} got messages that make no sense"));
            }
        }
        Ok(())
    }

    fn heal(&mut self) {
        self.healed = true;
        self.net.heal();
        for index in 0..self.processes.len() {
            self.processes[index].paused_until = Time(0);
            self.at(self.now, Event::Resume(index));
            self.at(self.now, Event::Restart(index));
            if self.processes[index].look_at != Time::NEVER {
                self.at(self.now, Event::Look(index));
            }
        }
    }

    /// By when after the end of the faults everything must have ended: a peer has to be asked for, and given up, more than
    /// once if what it owes is owed by others first.
    fn patience(&self) -> Nanos {
        let (shape, talk) = (&self.plan.shape, &self.plan.talk);
        let dead = shape.peer_timeout_ns + shape.peer_timeout_ns / 4 + 8 * shape.max_rto_ns;
        let asks = 10 * talk.ask_every_ns;
        let others = 16 * shape.rnr_wait_max_ns + 100 * shape.cq_lag_ns + 300_000_000;
        let closing = if talk.reopens > 0 { FAREWELL.0 } else { 0 };
        // Where the base round trip is taken for shorter than it is, every delay looks like a queue: a packet leaves in each second
        // round trip.
        let packets = shape.messages * talk.longest.div_ceil(shape.max_datagram - 100);
        let slow = if shape.base_rtt_percent < 100 { 2 * packets * shape.rtt_ns } else { 0 };
        let late = self.plan.faults.dup_ns + self.plan.faults.reorder_ns + closing;
        Nanos(3 * dead + asks + others + late + slow) + self.jumped_back + self.jumped_back
    }

    fn is_settled(&self) -> bool {
        let book = &self.book;
        book.outstanding().next().is_none()
            && book.undelivered().next().is_none()
            && book.unnoticed().next().is_none()
            && book.waiting_in_vain().next().is_none()
    }

    fn all_is_said(&self) -> Result<(), Violation> {
        let book = &self.book;
        if let Some(entry) = book.outstanding().next() {
            let what = match entry {
                Entry::Message(n) => format!("message {n}: {:?}", book.messages[n]),
                Entry::OneSided(n) => format!("operation {n}: {:?}", book.deeds[n]),
                Entry::Receive(n) => format!("receive {n}: {:?}", book.receives[n]),
            };
            return broken("liveness", format!("{} never end: {what}", book.outstanding().count()));
        }
        if let Some(n) = book.undelivered().next() {
            let count = book.undelivered().count();
            return broken(
                "completed but lost",
                format!("{count}, first message {n}: {:?}", book.messages[n]),
            );
        }
        if let Some(n) = book.unnoticed().next() {
            return broken("completed but lost", format!("notice of operation {n}: {:?}", book.deeds[n]));
        }
        if let Some(n) = book.waiting_in_vain().next() {
            return broken(
                "liveness",
                format!("receive {n} waits for one who has gone: {:?}", book.receives[n]),
            );
        }
        Ok(())
    }

    fn open_parties(&self) -> Vec<Party> {
        let all = 0..self.book.parties.len();
        all.map(Party).filter(|&party| self.book.is_open(party) && self.runs(party)).collect()
    }

    fn runs(&self, party: Party) -> bool {
        let known = &self.book.parties[party.0];
        self.processes[known.process].open(known.slot).is_some_and(|open| open.closing.is_none())
    }

    /// Receives for whatever has come and was not asked for.
    fn ask_for_everything(&mut self) -> Result<(), Violation> {
        let longest = self.plan.talk.longest;
        for party in self.open_parties() {
            let (index, slot) = (self.book.parties[party.0].process, self.book.parties[party.0].slot);
            for tag in [None, Some((0, u64::MAX))] {
                let left = self.book.messages.iter().filter(|message| {
                    message.to == party && message.taken.is_none() && message.tag.is_some() == tag.is_some()
                });
                for _ in 0..left.count() {
                    self.post_receive(index, slot, None, tag, longest)?;
                }
            }
        }
        Ok(())
    }

    /// Takes the receives back that have matched nothing.
    fn take_back_receives(&mut self) -> Result<(), Violation> {
        for number in self.book.waiting().collect::<Vec<_>>() {
            let before = self.book.receives[number].cancelled;
            self.cancel(number)?;
            self.book.receives[number].idle = self.book.receives[number].cancelled && !before;
        }
        Ok(())
    }

    /// Everybody who is there reaches everybody else, and who calls the dead is told.
    fn greet(&mut self) -> Result<(), Violation> {
        let parties = self.open_parties();
        let mut tag = 1_000;
        let mut missing: Vec<(Party, Party)> =
            parties.iter().flat_map(|&from| parties.iter().map(move |&to| (from, to))).collect();
        for _ in 0..ATTEMPTS {
            let mut tried = Vec::new();
            for &(from, to) in &missing {
                tag += 1;
                let (here, there) = (self.book.parties[from.0].clone(), self.book.parties[to.0].clone());
                self.post_receive(there.process, there.slot, None, Some((tag, 0)), 20)?;
                let message = self.book.messages.len();
                if self.send(here.process, here.slot, to, Some(tag)).is_ok() {
                    tried.push((from, to, message));
                }
                self.wake_at(here.process, self.now);
            }
            let settled = |cluster: &Cluster| {
                let mut tried = tried.iter().map(|&(_, _, message)| &cluster.book.messages[message]);
                tried.all(|message| match message.outcome {
                    None => false,
                    Some(Ok(())) => message.taken.is_some(),
                    Some(Err(_)) => true,
                })
            };
            let patience = self.patience();
            self.run_until(self.now + patience, settled)?;
            if !settled(self) {
                let stuck = tried.iter().map(|&(_, _, message)| (message, &self.book.messages[message]));
                let stuck = stuck.filter(|(_, message)| message.taken.is_none()).map(|(n, _)| n).next();
                return broken("liveness", format!("fresh message {stuck:?} of {tried:?} does not end"));
            }
            let reached = |from: Party, to: Party| {
                let mut tried = tried.iter();
                tried.any(|&(a, b, n)| (a, b) == (from, to) && self.book.messages[n].taken.is_some())
            };
            missing.retain(|&(from, to)| !reached(from, to));
            if missing.is_empty() {
                return Ok(());
            }
        }
        broken("liveness", format!("these do not reach each other any more: {missing:?}"))
    }
}
