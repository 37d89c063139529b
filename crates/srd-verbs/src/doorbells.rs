//! Who notices that a program has written to the device's queues itself. Nothing tells of a write to memory, so for as long as a
//! context has given such queues away a thread looks at their doorbells: all the time while there is work and a core for that, every
//! [`SHORT_NAP`] for some time afterwards, and then every [`LONG_NAP`]. Packets wake it. It polls like a program, so that
//! the progress thread leaves packets to it. A program that looks at completions in memory never gives way, so where cores are few
//! the thread must not spin: who has slept gets the core from who has not, who spins waits for its turn.

use crate::async_queue::AsyncQueue;
use crate::boundary::{Errno, Outcome};
use crate::objects::Objects;
use crate::queue_memory::{CqMemory, QpMemory};
use srd_device::{AsyncEvent, Completion, CqId};
use srd_net::{Instance, Unavailable, log};
use srd_wire::Qpn;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So long it looks again and again after the last work. A turn of two programs that answer each other is shorter.
const AWAKE: Duration = Duration::from_micros(50);
/// Then so often...
const SHORT_NAP: Duration = Duration::from_micros(20);
/// ...until this long after the last work...
const DROWSY: Duration = Duration::from_millis(200);
/// ...and then so often, which takes about a hundredth of a core.
const LONG_NAP: Duration = Duration::from_millis(1);
/// A turn, or a nap beyond its time, that took so long was a wait for a core...
const WAIT: Duration = Duration::from_micros(200);
/// ...and for so long afterwards there are none to spin on.
const CROWDED: Duration = Duration::from_millis(50);

/// See the module. One for each context.
#[derive(Default)]
pub(crate) struct Doorbells {
    queues: Arc<Queues>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queues {
    lists: Mutex<Lists>,
    closing: AtomicBool,
}

#[derive(Default)]
struct Lists {
    qps: Vec<QpMemory>,
    cqs: Vec<CqMemory>,
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
            lists.qps.push(made()?);
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
            lists.cqs.push(made()?);
        }
        lists.cqs.iter().find(|cq| cq.id == id).map(told).ok_or(Errno::IO)
    }

    /// What doorbells have been rung for is taken, and then nothing more.
    pub fn forget_qp(&self, instance: &Instance, qpn: Qpn) {
        let mut lists = self.queues.lists();
        let Some(at) = lists.qps.iter().position(|qp| qp.qpn == qpn) else { return };
        let mut qp = lists.qps.swap_remove(at);
        if qp.has_rung() {
            let _ = instance.with(|device, now| qp.take(&mut **device, now));
        }
    }

    pub fn forget_cq(&self, id: CqId) {
        self.queues.lists().cqs.retain(|cq| cq.id != id);
    }

    /// Ends the thread.
    pub fn end(&self) {
        self.queues.closing.store(true, Ordering::SeqCst);
        let thread = self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn start(&self, watch: Watch) -> Outcome<()> {
        let mut thread = self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if thread.is_some() {
            return Ok(());
        }
        let queues = self.queues.clone();
        let started =
            std::thread::Builder::new().name("srd-doorbells".into()).spawn(move || watch.run(&queues));
        *thread = Some(started.map_err(|error| {
            log::error(format_args!("cannot start the thread that looks at doorbells: {error}; raise `ulimit -u`, or set SRD_EFA_DIRECT=off"));
            Errno(libc::ENOMEM)
        })?);
        log::debug(format_args!(
            "the program has the device's queues in memory; a thread looks at their doorbells"
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
        // SAFETY: a call that concerns this thread alone. Naps are as long as they are asked to be.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000) };
        let mut now = Instant::now();
        let (mut last_work, mut crowded_until) = (now, now);
        while !queues.closing.load(Ordering::Relaxed) {
            let before = now;
            let worked = match self.turn(queues) {
                Ok(worked) => worked,
                Err(Unavailable::Interrupted) => false,
                Err(Unavailable::Failed | Unavailable::Forked) => return self.fail(queues),
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
            let nap = if idle < DROWSY { SHORT_NAP } else { LONG_NAP };
            let _ = self.instance.rest(nap);
            let woken = Instant::now();
            if woken - now > nap + WAIT {
                crowded_until = woken + CROWDED;
            }
            now = woken;
        }
    }

    /// One look at everything. Whether there was work.
    fn turn(&self, queues: &Queues) -> Result<bool, Unavailable> {
        self.instance.progress()?;
        let mut lists = queues.lists();
        let Lists { qps, cqs } = &mut *lists;
        let cqs = RefCell::new(cqs);
        let events = RefCell::new(Vec::new());
        let give = |cq: &mut CqMemory, completion: &Completion| {
            if !cq.push(completion) {
                events.borrow_mut().push(AsyncEvent::CqOverrun(cq.id));
            }
        };
        let mut found = false;
        let rung = qps.iter().any(QpMemory::has_rung);
        let taken = self.instance.with_if(
            |device| {
                for cq in cqs.borrow_mut().iter_mut() {
                    let mut pushed = false;
                    while let Some(completion) = device.poll_cq(cq.id) {
                        pushed = true;
                        give(cq, &completion);
                    }
                    cq.look(pushed);
                    found |= pushed;
                }
                rung
            },
            |device, now| {
                let mut broken = Vec::new();
                for qp in qps.iter_mut().filter(|qp| qp.has_rung()) {
                    let taken = qp.take(&mut **device, now);
                    for (id, completion) in taken.refused {
                        if let Some(cq) = cqs.borrow_mut().iter_mut().find(|cq| cq.id == id) {
                            give(cq, &completion);
                            cq.look(true);
                        }
                    }
                    broken.extend(taken.broken.map(|why| (qp.qpn, why)));
                }
                for (qpn, why) in broken {
                    log::error(format_args!("queue pair {}: {why}; it is in error now", qpn.0));
                    self.async_events.deliver(AsyncEvent::QpFatal(qpn), &self.objects);
                }
                true
            },
        )?;
        drop(lists);
        for event in events.into_inner() {
            self.async_events.deliver(event, &self.objects);
        }
        Ok(found || taken)
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
