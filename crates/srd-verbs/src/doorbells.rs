//! Who notices that a program has written to the device's queues itself, and moves packets for one that reads nothing but memory:
//! queues or completion counters. From the first of these on that a context gives away a thread looks at doorbells and for packets,
//! all the time while there is work and a core for that. Then it sleeps, and a packet or a write to a doorbell wakes it
//! ([`WriteTrap`]). Where the kernel tells of no writes it looks every [`SHORT_NAP`] for some time, and then every [`LONG_NAP`].
//! It polls like a program, so that the progress thread leaves packets to it. A program that looks at completions in memory never
//! gives way, so where cores are few the thread must not spin: who has slept gets the core from who has not, who spins waits for
//! its turn.

use crate::async_queue::AsyncQueue;
use crate::boundary::{Errno, Outcome};
use crate::objects::Objects;
use crate::queue_memory::{CqMemory, QpMemory, Queue};
use crate::write_trap::WriteTrap;
use libc::c_int;
use srd_device::{AsyncEvent, CqId};
use srd_net::{Instance, Locked, Unavailable, log};
use srd_wire::Qpn;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So long it looks again and again after the last work. A turn of two programs that answer each other is shorter.
const AWAKE: Duration = Duration::from_micros(50);
/// Then so often, if nobody tells of writes...
const SHORT_NAP: Duration = Duration::from_micros(20);
/// ...until this long after the last work...
const DROWSY: Duration = Duration::from_millis(200);
/// ...and then so often, which takes about a hundredth of a core.
const LONG_NAP: Duration = Duration::from_millis(1);
/// How long it sleeps where writes wake it.
const SLEEP: Duration = Duration::from_millis(10);
/// A turn, or a nap beyond its time, that took so long was a wait for a core...
const WAIT: Duration = Duration::from_micros(200);
/// ...and for so long afterwards there are none to spin on.
const CROWDED: Duration = Duration::from_millis(50);

/// How nice the thread is to others, where it may say so itself (root, `ulimit -e`): a card has a processor of its own.
const NICE: c_int = -10;

/// See the module. One for each context.
#[derive(Default)]
pub(crate) struct Doorbells {
    queues: Arc<Queues>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queues {
    lists: Mutex<Lists>,
    /// Something has been counted.
    moved: Arc<AtomicBool>,
    closing: AtomicBool,
}

#[derive(Default)]
struct Lists {
    qps: Vec<QpMemory>,
    cqs: Vec<CqMemory>,
    /// Queue pairs with completion counters.
    counted: Vec<Qpn>,
    /// Tells of writes to their doorbells.
    trap: Option<Arc<WriteTrap>>,
}

impl Lists {
    fn queues(&mut self) -> impl Iterator<Item = &mut Queue> {
        let of_qps = self.qps.iter_mut().map(QpMemory::urgent);
        of_qps.chain(self.cqs.iter_mut().filter_map(CqMemory::urgent))
    }

    /// Who tells of writes to doorbells, and whether of all from now on: not if one may come that was told of before, and
    /// not if one has come. Of work that the program posts by calls, and only counts, nobody tells.
    fn arm(&mut self) -> (Option<Arc<WriteTrap>>, bool) {
        let Some(trap) = self.trap.clone() else { return (None, false) };
        let mut armed = true;
        self.queues().for_each(|queue| armed &= queue.arm(&trap));
        let rung = self.qps.iter().any(QpMemory::has_rung) || self.cqs.iter().any(CqMemory::has_rung);
        let by_calls = self.counted.iter().any(|&counted| self.qps.iter().all(|qp| qp.qpn != counted));
        (Some(trap), armed && !rung && !by_calls)
    }

    /// Lets those go on that wait to write.
    fn let_ring(&mut self) {
        let Lists { qps, cqs, trap: Some(trap), .. } = self else { return };
        while let Some(at) = trap.caught() {
            qps.iter_mut().for_each(|qp| qp.let_ring(trap, at));
            cqs.iter_mut().for_each(|cq| cq.let_ring(trap, at));
        }
    }

    /// Nobody looks any more.
    fn be_silent(&mut self) {
        if let Some(trap) = self.trap.take() {
            self.queues().for_each(|queue| queue.be_silent(&trap));
        }
    }
}

impl Queues {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Doorbells {
    /// From now on the queues of a queue pair are looked at. `made` makes them if they are not yet; `told` hears where they are.
    pub fn map_qp<R>(
        &self,
        watch: Watch,
        qpn: Qpn,
        made: impl FnOnce() -> Outcome<QpMemory>,
        told: impl FnOnce(&QpMemory) -> R,
    ) -> Outcome<R> {
        self.start(watch)?;
        let mut lists = self.queues.lists();
        if !lists.qps.iter().any(|qp| qp.qpn == qpn) {
            let mut made = made()?;
            lists.trap.iter().for_each(|trap| made.urgent().listen(trap));
            lists.qps.push(made);
        }
        lists.qps.iter().find(|qp| qp.qpn == qpn).map(told).ok_or(Errno::IO)
    }

    /// The same for a completion queue.
    pub fn map_cq<R>(
        &self,
        watch: Watch,
        id: CqId,
        made: impl FnOnce() -> Outcome<CqMemory>,
        told: impl FnOnce(&CqMemory) -> R,
    ) -> Outcome<R> {
        self.start(watch)?;
        let mut lists = self.queues.lists();
        if !lists.cqs.iter().any(|cq| cq.id == id) {
            let mut made = made()?;
            made.urgent().iter_mut().zip(&lists.trap).for_each(|(queue, trap)| queue.listen(trap));
            lists.cqs.push(made);
        }
        lists.cqs.iter().find(|cq| cq.id == id).map(told).ok_or(Errno::IO)
    }

    /// The queue pair has completion counters.
    pub fn count_for(&self, qpn: Qpn) {
        let counted = &mut self.queues.lists().counted;
        if !counted.contains(&qpn) {
            counted.push(qpn);
        }
    }

    /// Where counters say that they have moved.
    pub fn moved(&self) -> Arc<AtomicBool> {
        self.queues.moved.clone()
    }

    /// What doorbells have been rung for is taken, and then nothing more.
    pub fn forget_qp(&self, instance: &Instance, qpn: Qpn) {
        let mut lists = self.queues.lists();
        lists.counted.retain(|&counted| counted != qpn);
        let Some(at) = lists.qps.iter().position(|qp| qp.qpn == qpn) else { return };
        let mut qp = lists.qps.swap_remove(at);
        lists.trap.iter().for_each(|trap| qp.urgent().be_silent(trap));
        if qp.has_rung() {
            let _ = instance.with(|device, now| qp.take(&mut **device, now));
        }
    }

    pub fn forget_cq(&self, id: CqId) {
        let Lists { cqs, trap, .. } = &mut *self.queues.lists();
        for mut gone in cqs.extract_if(.., |cq| cq.id == id) {
            gone.urgent().iter_mut().zip(&*trap).for_each(|(queue, trap)| queue.be_silent(trap));
        }
    }

    /// Ends the thread.
    pub fn end(&self) {
        self.queues.closing.store(true, Ordering::SeqCst);
        let thread = self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Starts the thread, if it does not run yet.
    pub fn start(&self, watch: Watch) -> Outcome<()> {
        let mut thread = self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if thread.is_some() {
            return Ok(());
        }
        let queues = self.queues.clone();
        let trap = WriteTrap::new().inspect_err(|error| {
            log::debug(format_args!(
                "nobody tells of writes to doorbells ({error}); they are looked at now and then"
            ));
        });
        queues.lists().trap = trap.ok().map(Arc::new);
        let builder = std::thread::Builder::new().name("srd-doorbells".into());
        let started = builder.spawn(move || watch.run(&queues));
        *thread = Some(started.map_err(|error| {
            log::error(format_args!("cannot start the thread that moves packets for queues and counters in memory: {error}; raise `ulimit -u`"));
            Errno(libc::ENOMEM)
        })?);
        log::debug(format_args!(
            "the program reads the device's memory; a thread looks at doorbells and moves packets"
        ));
        Ok(())
    }
}

/// What the thread looks after.
pub(crate) struct Watch {
    pub instance: Arc<Instance>,
    pub async_events: Arc<AsyncQueue>,
    pub objects: Arc<Objects>,
}

impl Watch {
    fn run(&self, queues: &Queues) {
        // SAFETY: calls that concern this thread alone. Naps are as long as they are asked to be; and where it may, the thread gets
        // its core from programs that never give way.
        unsafe {
            libc::prctl(libc::PR_SET_TIMERSLACK, 1000);
            libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, NICE);
        }
        if let Err(Unavailable::Failed | Unavailable::Forked) = self.look_until_closed(queues) {
            self.fail(queues);
        }
        queues.lists().be_silent();
    }

    fn look_until_closed(&self, queues: &Queues) -> Result<(), Unavailable> {
        let mut now = Instant::now();
        let (mut last_work, mut crowded_until) = (now, now);
        while !queues.closing.load(Ordering::Relaxed) {
            let before = now;
            let worked = match self.turn(queues) {
                Err(Unavailable::Interrupted) => false,
                turned => turned?,
            };
            now = Instant::now();
            if worked {
                last_work = now;
                continue;
            }
            if now - before > WAIT {
                crowded_until = now + CROWDED;
            }
            let idle = now - last_work;
            if idle < AWAKE && now >= crowded_until {
                std::hint::spin_loop();
                continue;
            }
            let (trap, armed) = queues.lists().arm();
            let nap = match idle < DROWSY {
                _ if armed => SLEEP,
                true => SHORT_NAP,
                false => LONG_NAP,
            };
            // Looked for in vain: who is to answer may want this core.
            if trap.is_some() && (AWAKE..2 * AWAKE).contains(&idle) {
                crowded_until = now + CROWDED;
            }
            if let Err(error @ (Unavailable::Failed | Unavailable::Forked)) =
                self.instance.rest(nap, trap.as_ref().map(|trap| trap.as_fd()))
            {
                return Err(error);
            }
            queues.lists().let_ring();
            let woken = Instant::now();
            if woken - now > nap + WAIT {
                crowded_until = woken + CROWDED;
            }
            now = woken;
        }
        Ok(())
    }

    /// One look at everything. Whether there was work.
    fn turn(&self, queues: &Queues) -> Result<bool, Unavailable> {
        let mut lists = queues.lists();
        let Lists { qps, cqs, .. } = &mut *lists;
        let mut worked = false;
        // Before packets: they may come for receives.
        for qp in qps.iter_mut().filter(|qp| qp.has_rung()) {
            let taken = self.instance.with(|device, now| qp.take(&mut **device, now))?;
            // What there is no room for yet waits, and is no work.
            worked |= taken.requests > 0 || !taken.refused.is_empty() || taken.broken.is_some();
            for (id, completion) in taken.refused {
                if let Some(cq) = cqs.iter_mut().find(|cq| cq.id == id) {
                    cq.push(&completion);
                    cq.look(true);
                }
            }
            if let Some(why) = taken.broken {
                log::error(format_args!("queue pair {}: {why}; it is in error now", qp.qpn.0));
                self.async_events.deliver(AsyncEvent::QpFatal(qp.qpn), &self.objects);
            }
        }
        self.instance.progress()?;
        let poll = |device: &mut Locked<'_>| {
            for cq in cqs.iter_mut() {
                let mut pushed = false;
                while let Some(completion) = device.poll_cq(cq.id) {
                    pushed = true;
                    cq.push(&completion);
                }
                cq.look(pushed);
                worked |= pushed;
            }
            false // nothing is to be sent
        };
        self.instance.with_if(poll, |_, _| false)?;
        worked |= queues.moved.swap(false, Ordering::Relaxed);
        Ok(worked)
    }

    /// The device has failed: everything that was under way completes, as polls of the program would see it.
    fn fail(&self, queues: &Queues) {
        for cq in &mut queues.lists().cqs {
            while let Ok(Some(completion)) = self.instance.poll_one(cq.id) {
                cq.push(&completion);
            }
            cq.look(true);
        }
    }
}
