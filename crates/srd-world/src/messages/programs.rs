//! What programs ask for.

use crate::ledger::{Violation, broken};
use crate::messages::cluster::{Cluster, Event};
use crate::messages::oracle::{Deed, Entry, Message, OneSided, Party, Receive};
use crate::messages::process::REGION_BYTES;
use srd_msg::atomic_ops::{AtomicOp, Datatype};
use srd_msg::{Atomic, Done, Iov, Kind, Level, Match, PeerId, Recv, Refused, RemoteIov, Rma, Send, TxFlags};
use srd_wire::{Nanos, Time};

/// Operations that are tried again in a run.
const MOST_TRIES: u64 = 100;

/// Tags of messages are below this.
const TAGS: u64 = 4;

impl Cluster {
    /// Begins every process and spreads operations, receives and faults over the time.
    pub(super) fn begin(&mut self) -> Result<(), Violation> {
        for index in 0..self.processes.len() {
            self.begin_process(index)?;
        }
        let (shape, talk) = (self.plan.shape.clone(), self.plan.talk.clone());
        let processes = self.processes.len() as u64;
        for _ in 0..shape.messages / shape.post_burst.max(1) {
            let (index, at) = (self.work.below(processes) as usize, self.work.below(shape.span_ns));
            self.at(Time(at), Event::Act(index));
        }
        for _ in 0..shape.messages * talk.receives_percent / 100 {
            let (index, at) = (self.work.below(processes) as usize, self.work.below(shape.span_ns));
            self.at(Time(at), Event::Receive(index));
        }
        self.schedule_mishaps();
        Ok(())
    }

    /// An open endpoint of a process that runs.
    fn some_slot(&mut self, index: usize) -> Option<usize> {
        let slot = self.work.below(self.plan.talk.endpoints) as usize;
        let open = self.processes[index].open(slot)?;
        (open.closing.is_none() && self.processes[index].runs(self.now)).then_some(slot)
    }

    /// Some endpoint, open or not: the newest that was known under its address.
    fn somebody(&mut self, not: usize) -> Option<Party> {
        let processes = self.processes.len() as u64;
        let own = processes == 1 || self.work.percent(3);
        let other = (not as u64 + 1 + self.work.below((processes - 1).max(1))) % processes;
        let index = if own { not } else { other as usize };
        let slot = self.work.below(self.plan.talk.endpoints) as usize;
        let known =
            |party: &crate::messages::oracle::PartyRecord| (party.process, party.slot) == (index, slot);
        self.book.parties.iter().rposition(known).map(Party)
    }

    /// A program posts some operations.
    pub(super) fn act(&mut self, index: usize) -> Result<(), Violation> {
        for _ in 0..self.plan.shape.post_burst.max(1) {
            let Some(slot) = self.some_slot(index) else { return Ok(()) };
            let Some(to) = self.somebody(index) else { return Ok(()) };
            self.act_at(index, slot, to)?;
        }
        Ok(())
    }

    /// A program posts an operation.
    pub(super) fn act_at(&mut self, index: usize, slot: usize, to: Party) -> Result<(), Violation> {
        let ready = self.processes[index].open(slot).is_some_and(|open| open.closing.is_none());
        if !ready || !self.processes[index].runs(self.now) {
            return Ok(());
        }
        let kind = self.work.below(100);
        let talk = &self.plan.talk;
        let (rma, atomic) = (talk.rma_percent, talk.rma_percent + talk.atomic_percent);
        let refused = match kind {
            _ if kind < rma => self.one_sided(index, slot, to, false),
            _ if kind < atomic => self.one_sided(index, slot, to, true),
            _ => self.send(index, slot, to, None),
        };
        match refused {
            Ok(()) | Err(Refused::Again) => {}
            Err(other) => return broken("refused", format!("{other:?}")),
        }
        self.after_call(index)
    }

    fn after_call(&mut self, index: usize) -> Result<(), Violation> {
        self.settle_copies(index);
        self.send_packets(index)?;
        self.spread_news();
        // Something may be complete already, and timers have changed.
        self.wake_at(index, Time(self.now.0 + 1));
        Ok(())
    }

    /// The peer at a party's address.
    fn peer(&mut self, index: usize, slot: usize, of: Party) -> PeerId {
        let addr = self.book.parties[of.0].addr;
        let life = self.processes[index].living();
        let id = life.slots[slot].as_ref().expect("the caller has looked").id;
        let known = life.domain.peers(id).any(|peer| peer.addr == addr);
        let peer = life.domain.peer(&mut life.device, id, addr).expect("there is room for peers");
        if !known {
            self.meet(index, slot, peer, addr);
        }
        peer
    }

    /// Sends a message, with a tag of the caller's if it is to be found among others.
    pub(super) fn send(
        &mut self,
        index: usize,
        slot: usize,
        to: Party,
        tag: Option<u64>,
    ) -> Result<(), Refused> {
        let max = self.plan.talk.max_msg;
        let chosen = [0, 8, 100, 600, max - 100, max, max + 1, 9_000, 30_000, 100_000];
        let mut len = self.work.pick(&chosen).min(self.plan.talk.longest);
        let inject = len <= 4_096 && self.work.percent(20);
        let level = self.work.pick(&[Level::Inject, Level::Transmit, Level::Transmit, Level::Match]);
        let drawn = (!self.work.percent(25)).then(|| self.work.below(TAGS));
        if tag.is_some() {
            len = 20;
        }
        let tag = tag.or(drawn);
        let number = self.book.messages.len();
        let entry = Entry::Message(number);
        let peer = self.peer(index, slot, to);
        let (pattern, now) = (self.book.pattern(entry), self.now);
        let local = self.processes[index].local(now);
        let life = self.processes[index].living();
        let open = life.slots[slot].as_ref().expect("the caller has looked");
        let (id, from) = (open.id, open.party);
        let addr = life.bytes(len);
        pattern.fill(0, life.device.memory().at_mut(addr, len as usize));
        let cut = len / 3;
        let whole = [Iov { addr, len }];
        let halves = [Iov { addr, len: cut }, Iov { addr: addr + cut, len: len - cut }];
        let iov: &[Iov] = if number.is_multiple_of(3) && cut > 0 { &halves } else { &whole };
        let flags = TxFlags { inject, level, report: true, fence: false };
        let send = Send { to: peer, tag, iov, data: Some(entry.context()), context: entry.context(), flags };
        life.domain.send(&mut life.device, local, id, &send)?;
        self.book.score.posted += 1;
        self.book.messages.push(Message {
            from,
            to,
            tag,
            len,
            addr,
            posted: now,
            outcome: None,
            taken: None,
        });
        if inject {
            self.use_again(number);
        }
        self.tell(|| {
            format!("{index} posts message {number}: {from:?} to {to:?}, tag {tag:?}, {len} B, {level:?}")
        });
        Ok(())
    }

    /// The memory of a message is its program's again, which puts something else there.
    pub(super) fn use_again(&mut self, number: usize) {
        let Message { from, len, addr, .. } = self.book.messages[number];
        let pattern = self.book.pattern(Entry::Message(number));
        let life = self.processes[self.book.parties[from.0].process].living();
        let bytes = life.device.memory().at_mut(addr, len as usize);
        // No byte is what it was.
        pattern.fill(0, bytes);
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
    }

    /// Reads, writes or adds where nobody else does.
    fn one_sided(&mut self, index: usize, slot: usize, to: Party, atomic: bool) -> Result<(), Refused> {
        let there = self.book.parties[to.0].clone();
        let lives = self.processes[there.process].lives == there.life;
        let Some(target) = self.processes[there.process].life.as_mut().filter(|_| lives) else {
            return Ok(());
        };
        let max = self.plan.talk.max_msg;
        let chosen = [0, 1, 8, 700, max - 100, max + 100, 20_000];
        let len = if atomic { 8 } else { self.work.pick(&chosen).min(self.plan.talk.longest) };
        let deed = match self.work.below(4) {
            _ if atomic => Deed::Add,
            0 => Deed::Read,
            1 => Deed::Write { data: true },
            _ => Deed::Write { data: false },
        };
        let (base, key, used) = target.region;
        let offset = used.next_multiple_of(8);
        if offset + len > REGION_BYTES {
            return Ok(());
        }
        let number = self.book.deeds.len();
        let entry = Entry::OneSided(number);
        let pattern = self.book.pattern(entry);
        let fetch = atomic && self.work.percent(50);
        let peer = self.peer(index, slot, to);
        let now = self.now;
        let local_time = self.processes[index].local(now);
        let life = self.processes[index].living();
        let open = life.slots[slot].as_ref().expect("the caller has looked");
        let (id, from) = (open.id, open.party);
        let local = life.bytes(len);
        let (one, old) = (life.bytes(8), life.bytes(8));
        let flags = TxFlags { inject: false, level: Level::Transmit, report: true, fence: false };
        let remote = [RemoteIov { addr: offset, len, key }];
        let posted = if atomic {
            life.device.memory().at_mut(one, 8).copy_from_slice(&1u64.to_le_bytes());
            let result = [Iov { addr: old, len: 8 }];
            let atomic = Atomic {
                to: peer,
                op: AtomicOp::Sum,
                datatype: Datatype::Uint64,
                operand: &[Iov { addr: one, len: 8 }],
                compare: &[],
                result: if fetch { &result } else { &[] },
                remote: &remote,
                context: entry.context(),
                flags,
            };
            life.domain.atomic(&mut life.device, local_time, id, &atomic)
        } else {
            if deed != Deed::Read {
                pattern.fill(0, life.device.memory().at_mut(local, len as usize));
            }
            let rma = Rma {
                to: peer,
                read: deed == Deed::Read,
                local: &[Iov { addr: local, len }],
                remote: &remote,
                data: (deed == Deed::Write { data: true }).then_some(entry.context()),
                context: entry.context(),
                flags,
            };
            life.domain.rma(&mut life.device, local_time, id, &rma)
        };
        posted?;
        // Only now, as what is refused leaves no trace; nothing has left yet.
        let target = self.processes[there.process].living();
        target.region.2 = offset + len;
        if deed == Deed::Read {
            pattern.fill(0, target.device.memory().at_mut(base + offset, len as usize));
        }
        self.book.score.posted += 1;
        self.tell(|| {
            format!("{index} posts operation {number}: {from:?} at {to:?}, {deed:?}, {len} B at {offset}")
        });
        self.book.deeds.push(OneSided {
            from,
            to,
            deed,
            offset,
            len,
            local,
            posted: now,
            outcome: None,
            notices: 0,
        });
        Ok(())
    }

    /// What has been written is there when its writer is told that it is.
    pub(super) fn check_written(&mut self, done: &Done) -> Result<(), Violation> {
        let Entry::OneSided(number) = Entry::of(done.context) else { return Ok(()) };
        if done.kind == Kind::RemoteWrite || done.error.is_some() {
            return Ok(());
        }
        let deed = self.book.deeds[number].clone();
        let bytes = self.written(&deed);
        match (bytes, deed.deed) {
            (None, _) | (_, Deed::Read) => Ok(()),
            (Some(bytes), Deed::Write { .. }) => {
                match self.book.pattern(Entry::OneSided(number)).mismatch(0, &bytes) {
                    None => Ok(()),
                    Some(at) => broken("false success", format!("byte {at} of {deed:?} is not there")),
                }
            }
            (Some(bytes), Deed::Add) if bytes == 1u64.to_le_bytes() => Ok(()),
            (Some(bytes), Deed::Add) => broken("false success", format!("{deed:?} was applied: {bytes:?}")),
        }
    }

    /// The bytes that an operation is about, if the process lives that it was for.
    fn written(&mut self, deed: &OneSided) -> Option<Vec<u8>> {
        let there = &self.book.parties[deed.to.0];
        let process = &mut self.processes[there.process];
        if process.lives != there.life {
            return None;
        }
        let life = process.life.as_mut()?;
        let at = life.region.0 + deed.offset;
        Some(life.device.memory().at(at, deed.len as usize).to_vec())
    }

    /// What a process's memory holds is what operations that were for it have put there, and nothing else.
    pub(super) fn check_untouched(&mut self, index: usize) -> Result<(), Violation> {
        let lives = self.processes[index].lives;
        let Some(life) = &mut self.processes[index].life else { return Ok(()) };
        let (base, _, _) = life.region;
        let mut memory = life.device.memory().at(base, REGION_BYTES as usize).to_vec();
        for (number, deed) in self.book.deeds.iter().enumerate() {
            let there = &self.book.parties[deed.to.0];
            if (there.process, there.life) != (index, lives) {
                continue;
            }
            let bytes = &mut memory[deed.offset as usize..(deed.offset + deed.len) as usize];
            if deed.deed == Deed::Add && u64::from_le_bytes(bytes.try_into().expect("8 bytes")) > 1 {
                return broken(
                    "delivered twice",
                    format!("operation {number}, {deed:?}, has added {bytes:?}"),
                );
            }
            bytes.fill(0);
        }
        match memory.iter().position(|&byte| byte != 0) {
            None => Ok(()),
            Some(at) => broken("stray memory access", format!("byte {at} of process {index} has changed")),
        }
    }

    /// A program posts a receive, or takes one back.
    pub(super) fn receive(&mut self, index: usize) -> Result<(), Violation> {
        let Some(slot) = self.some_slot(index) else { return Ok(()) };
        if self.work.percent(self.plan.talk.cancel_percent) {
            let party = self.processes[index].open(slot).expect("it is open").party;
            let waiting: Vec<usize> =
                self.book.waiting().filter(|&n| self.book.receives[n].at == party).collect();
            if !waiting.is_empty() {
                let chosen = self.work.pick(&waiting);
                return self.cancel(chosen);
            }
        }
        let directed = self.work.percent(self.plan.talk.directed_percent);
        let from = if directed { self.somebody(index) } else { None };
        let ignore = self.work.pick(&[0, 0, 1, 2, u64::MAX]);
        let tag = (!self.work.percent(25)).then(|| (self.work.below(TAGS), ignore));
        let room = if self.work.percent(10) { 500 } else { self.plan.talk.longest };
        self.post_receive(index, slot, from, tag, room)
    }

    pub(super) fn post_receive(
        &mut self,
        index: usize,
        slot: usize,
        from: Option<Party>,
        tag: Option<(u64, u64)>,
        len: u64,
    ) -> Result<(), Violation> {
        let number = self.book.receives.len();
        let peer = from.map(|from| self.peer(index, slot, from));
        let from = from.map(|from| self.book.parties[from.0].addr);
        let now = self.now;
        let local = self.processes[index].local(now);
        let life = self.processes[index].living();
        let open = life.slots[slot].as_ref().expect("the caller has looked");
        let (id, at) = (open.id, open.party);
        let addr = life.bytes(len);
        let matching = tag.map_or(Match::Untagged, |(tag, ignore)| Match::Tagged { tag, ignore });
        let recv = Recv {
            from: peer,
            matching,
            iov: &[Iov { addr, len }],
            context: Entry::Receive(number).context(),
            report: true,
            multi: false,
            claim: false,
        };
        if let Err(refused) = life.domain.recv(&mut life.device, local, id, &recv) {
            return broken("refused", format!("{refused:?}"));
        }
        self.tell(|| format!("{index} posts receive {number}: {at:?} from {from:?}, tag {tag:?}, {len} B"));
        self.book.receives.push(Receive {
            at,
            from,
            tag,
            buffer: (addr, len),
            posted: now,
            outcome: None,
            took: None,
            cancelled: false,
            idle: false,
        });
        self.after_call(index)
    }

    /// Takes a receive back that waits.
    pub(super) fn cancel(&mut self, number: usize) -> Result<(), Violation> {
        let at = self.book.receives[number].at;
        let there = self.book.parties[at.0].clone();
        let life = self.processes[there.process].living();
        let id = life.slots[there.slot].as_ref().expect("it is open").id;
        let context = Entry::Receive(number).context();
        self.book.receives[number].cancelled |= life.domain.cancel(id, context);
        self.after_call(there.process)
    }

    /// An operation has failed: the program may try again at once with whoever is at that place now.
    pub(super) fn try_again(&mut self, index: usize, done: &Done) {
        let to = match Entry::of(done.context) {
            Entry::Message(number) if done.error.is_some() => self.book.messages[number].to,
            Entry::OneSided(number) if done.error.is_some() => self.book.deeds[number].to,
            _ => return,
        };
        let from = match Entry::of(done.context) {
            Entry::Message(number) => self.book.messages[number].from,
            Entry::OneSided(number) => self.book.deeds[number].from,
            Entry::Receive(_) => return,
        };
        if self.healed || self.tries == MOST_TRIES || !self.work.percent(self.plan.talk.again_percent) {
            return;
        }
        self.tries += 1;
        let slot = self.book.parties[from.0].slot;
        let place = (self.book.parties[to.0].process, self.book.parties[to.0].slot);
        let now_there = self.book.parties.iter().rposition(|party| (party.process, party.slot) == place);
        let to = now_there.map_or(to, Party);
        let wait = self.work.below(Nanos::from_millis(1).0);
        self.after(wait, Event::Again(index, slot, to));
    }
}
