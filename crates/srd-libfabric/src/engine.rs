//! A messaging layer, the device below it, and who moves them. A domain has one, or several ([`crate::engines`]), of which none
//! knows of the others.
//!
//! There is one lock: the instance's, which every call into the device takes anyway. The messaging layer lies beside the
//! device ([`Beside`]) under that lock, so that an operation locks once. Programs that poll make it progress
//! ([`Engine::progress`]); while they do not, the instance's thread moves packets, the device's completion queue notifies, and
//! the handler here does what a poll would have done.

use crate::bereaved;
use crate::boundary::{Errno, Outcome, refused};
use crate::environment::Place;
use crate::shm_peers::{Layer, Messages};
use crate::state::State;
use crate::{capabilities, report};
use srd_device::{AsyncEvent, CqId, Device, HostMemory};
use srd_msg::{Drain, EndpointId};
use srd_net::log;
use srd_net::{Beside, Instance, LONGEST_DRAIN, LONGEST_SILENCE, Locked, Subscription, Touched, Waited};
use srd_wire::{Nanos, Qpn, Time};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// So many polls in vain before the core is given away: some 50 us.
const PATIENCE: u32 = 256;

/// Rounds of one notification: what senders put into shared memory meanwhile does not keep it from ending.
const MOST_ROUNDS: u32 = 16;
/// Turns of taking what has come by shared memory in one round: more than five lanes hold.
const MOST_TURNS: u32 = 256;
/// When the next follows, if there is still something.
const SOON: Nanos = Nanos::from_micros(20);

/// And when it is asked whether a program that has polled still does.
const STOPPED: Nanos = Nanos::from_millis(1);

/// Where messages come by shared memory, one poll in so many looks at the sockets whatever there is, every 2 us or so...
const SOCKETS_EVERY: u32 = 16;
/// ...and the others do not even if they find nothing, once so many messages in a row have come by it and none from the network.
const QUIET: u32 = 1024;

/// How often an endpoint that closes looks whether its peers are silent.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// See the module.
pub(crate) struct Engine {
    /// The device.
    pub instance: Arc<Instance>,
    cq: CqId,
    /// Some endpoint has a post in shared memory; something has come there.
    shm: AtomicBool,
    lanes: AtomicBool,
    /// The program has polled since [`Engine::on_notification`] last asked.
    polled: AtomicBool,
    /// Polls, and those in a row that found nothing.
    polls: AtomicU32,
    idle: AtomicU32,
    /// Polls in a row that brought something, and nothing from the network.
    quiet: AtomicU32,
    /// Shared with who reports on it, and with nobody else.
    state: Arc<Beside<State>>,
    subscriptions: Mutex<Vec<Subscription>>,
    bereaved: Arc<bereaved::List>,
    /// Other engines on which somebody may sleep for what completes here, if there are any.
    is_heard_elsewhere: AtomicBool,
    heard_at: Mutex<Vec<Weak<Engine>>>,
}

/// Lets the instance tell of the messaging layer, too, for as long as that is there.
fn report_on(instance: &Instance, state: &Arc<Beside<State>>) {
    let (state, gid) = (Arc::downgrade(state), instance.gid());
    instance.on_stats(move |device| {
        let state = state.upgrade()?;
        let (state, _) = state.open(device);
        (!state.closed).then(|| report::stats(state, gid))
    });
}

/// Lets the instance know whose silence the program should hear of.
fn tell_names(instance: &Instance, state: &Arc<Beside<State>>) -> Outcome<()> {
    let (state, port_base) = (Arc::downgrade(state), instance.port_base());
    instance.on_silence(move |device, peer| {
        let state = state.upgrade()?;
        let (state, _) = state.open(device);
        (!state.closed).then(|| state.has_named(peer, port_base))
    })?;
    Ok(())
}

/// Lets the messaging layer say where long messages go as soon as they begin.
fn place_from_the_first_packet(instance: &Instance, state: &Arc<Beside<State>>, cq: CqId) -> Outcome<()> {
    let state = Arc::downgrade(state);
    instance.on_begun(move |device, now, begun| {
        let Some(state) = state.upgrade() else { return false };
        let (state, device) = state.open(device);
        if !state.closed {
            state.messages.take_up(device, now, begun);
            set_alarm(state, device, cq);
        }
        !state.closed
    })?;
    Ok(())
}

#[inline]
fn set_alarm(state: &mut State, device: &mut Device<HostMemory>, cq: CqId) {
    state.alarm = state.next_alarm();
    // Only of a queue that has gone.
    let _ = device.set_alarm(cq, state.alarm);
}

/// Peers that this layer has come to know by itself may have shared memory, too.
#[cold]
fn meet_strangers(state: &mut State, device: &mut Device<HostMemory>, now: Time) {
    while let Some((endpoint, peer, addr)) = state.messages.poll_stranger() {
        let bound = state.endpoints.get_mut(endpoint.0 as usize).and_then(Option::as_mut);
        if let Some(shm) = bound.and_then(|bound| bound.shm.as_mut().ok()) {
            shm.meet(&mut Layer { messages: &mut state.messages, device, now }, peer, addr);
        }
    }
}

/// All engines, to be ended when the process ends.
static ENGINES: Mutex<Vec<Weak<Engine>>> = Mutex::new(Vec::new());

impl Engine {
    /// A messaging layer over one of the process's instances at a place. If that fails, `bereaved` are told.
    pub fn open(place: &Place, number: u16, bereaved: Arc<bereaved::List>) -> Outcome<Arc<Engine>> {
        let instance = Instance::open_numbered(&place.options, number).map_err(|why| {
            log::error(format_args!("{why}"));
            Errno(libc::ENODEV)
        })?;
        let (cq, state) = instance.with(|device, _| {
            let messages = Messages::open(device, capabilities::config()).map_err(refused)?;
            let cq = messages.cq();
            let state = State::new(messages);
            Ok::<_, Errno>((cq, Arc::new(Beside::new(device, state))))
        })??;
        report_on(&instance, &state);
        tell_names(&instance, &state)?;
        place_from_the_first_packet(&instance, &state, cq)?;
        let engine = Arc::new(Engine {
            instance,
            cq,
            shm: AtomicBool::new(false),
            lanes: AtomicBool::new(false),
            polled: AtomicBool::new(false),
            polls: AtomicU32::new(0),
            idle: AtomicU32::new(0),
            quiet: AtomicU32::new(0),
            state,
            subscriptions: Mutex::default(),
            bereaved,
            is_heard_elsewhere: AtomicBool::new(false),
            heard_at: Mutex::default(),
        });
        let weak = Arc::downgrade(&engine);
        let subscription = engine.instance.on_notification(cq, move |_| {
            if let Some(engine) = weak.upgrade() {
                engine.on_notification();
            }
        });
        let weak = Arc::downgrade(&engine);
        let has_others = place.options.engines > 1;
        let fatal = engine.instance.on_async_event(move |event| {
            if event == AsyncEvent::DeviceFatal
                && let Some(engine) = weak.upgrade()
            {
                if has_others {
                    // To the program they are one device.
                    Instance::fail_all();
                }
                engine.bereaved.tell();
            }
        });
        engine.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).extend([subscription, fatal]);
        engine.instance.with(|device, _| device.arm_cq(cq, false))??;
        let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
        engines.retain(|engine| engine.strong_count() > 0);
        engines.push(Arc::downgrade(&engine));
        Ok(engine)
    }

    /// Runs `f`, then transmits what is due.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut State, &mut Device<HostMemory>, Time) -> R) -> Outcome<R> {
        let mut completed = false;
        let result = self.instance.with(|device, now| {
            let (state, device) = self.state.open(device);
            let result = f(state, device, now);
            completed = state.collect();
            state.is_settled = false;
            set_alarm(state, device, self.cq);
            result
        })?;
        if completed {
            self.wake();
        }
        Ok(result)
    }

    /// The same for what programs ask of the messaging layer all the time. By shared memory it mostly has nothing for the device to
    /// do, which is then left alone.
    #[inline(always)]
    pub fn ask<R>(&self, f: impl FnOnce(&mut State, &mut Device<HostMemory>, Time) -> R) -> Outcome<R> {
        let (result, completed) = self.instance.with_layer(|device, now| {
            let (state, device) = self.state.open(device);
            let result = f(state, device, now);
            let completed = state.collect();
            state.is_settled = false;
            let touched = self.settle(state, device);
            ((result, completed), touched)
        })?;
        if completed {
            self.wake();
        }
        Ok(result)
    }

    /// The same for what the messaging layer does by itself, and of which nothing follows.
    #[inline(always)]
    pub fn note<R>(&self, f: impl FnOnce(&mut State) -> R) -> Outcome<R> {
        Ok(self.instance.with_layer_alone(|device| f(self.state.open(device).0))?)
    }

    /// The layer has done what there was to do. Returns whether that has touched the device.
    #[inline]
    fn settle(&self, state: &mut State, device: &mut Device<HostMemory>) -> Touched {
        let alarm = state.next_alarm();
        let sets = alarm != state.alarm;
        if sets {
            set_alarm(state, device, self.cq);
        }
        Touched(state.messages.take_touched() || sets)
    }

    /// Something has completed: all that sleep for it look again.
    #[inline]
    fn wake(&self) {
        self.instance.wake();
        if self.is_heard_elsewhere.load(Ordering::Relaxed) {
            self.wake_elsewhere();
        }
    }

    #[cold]
    fn wake_elsewhere(&self) {
        // Whoever falls asleep says so before it looks; what has completed is to be seen before it is asked who sleeps.
        fence(Ordering::SeqCst);
        let heard_at = self.heard_at.lock().unwrap_or_else(PoisonError::into_inner);
        heard_at.iter().filter_map(Weak::upgrade).for_each(|engine| engine.instance.wake());
    }

    /// From now on who sleeps on another engine hears of what completes here.
    pub fn is_heard_at(&self, other: &Arc<Engine>) {
        let mut heard_at = self.heard_at.lock().unwrap_or_else(PoisonError::into_inner);
        heard_at.retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), &**other));
        heard_at.push(Arc::downgrade(other));
        self.is_heard_elsewhere.store(true, Ordering::Relaxed);
    }

    /// A poll of a program that will poll again. It does not wait while another thread calls: who polls holds up who posts
    /// otherwise, and that thread hands out what it finds. Nor does it look where others have looked for it.
    #[inline]
    pub fn poll(&self) -> Outcome<()> {
        if !self.polled.load(Ordering::Relaxed) {
            self.polled.store(true, Ordering::Relaxed);
        }
        let busy = self.instance.is_busy();
        if busy || self.instance.others_look() { self.poll_beside_others(busy) } else { self.progress() }
    }

    /// A poll that leaves the sockets to others. `busy`: one of them has the lock at this moment.
    #[cold]
    fn poll_beside_others(&self, busy: bool) -> Outcome<()> {
        if busy || !self.shm.load(Ordering::Relaxed) || !self.progress_shm()? {
            self.instance.give_way();
        }
        Ok(())
    }

    /// Takes what has come by shared memory. Returns whether there was anything.
    #[inline(never)]
    fn progress_shm(&self) -> Outcome<bool> {
        let mut completed = false;
        let has_news = |device: &mut Locked<'_>| self.state.open(device).0.has_news();
        let found = self.instance.with_layer_if(has_news, |device, now| {
            let found = self.progress_locked(device, now, &mut completed);
            let (state, device) = self.state.open(device);
            (found, self.settle(state, device))
        })?;
        if completed {
            self.wake();
        }
        Ok(found)
    }

    /// One poll: moves packets, does what follows, hands out what has completed.
    pub fn progress(&self) -> Outcome<()> {
        if self.lanes.load(Ordering::Relaxed) {
            return self.progress_lanes();
        }
        self.progress_sockets(true)?;
        Ok(())
    }

    /// The same where messages come by shared memory. A look at the sockets costs as much as such a message takes: a poll that finds
    /// one leaves them to a later poll, and where nothing comes from the network most of the others do, too.
    fn progress_lanes(&self) -> Outcome<()> {
        let polls = self.polls.load(Ordering::Relaxed).wrapping_add(1);
        self.polls.store(polls, Ordering::Relaxed);
        let found = if polls.is_multiple_of(SOCKETS_EVERY) {
            self.progress_sockets(false)?
        } else {
            self.progress_shm()?
                || self.quiet.load(Ordering::Relaxed) < QUIET && self.progress_sockets(false)?
        };
        self.yield_if_idle(found);
        Ok(())
    }

    #[inline(always)]
    fn progress_sockets(&self, may_rest: bool) -> Outcome<bool> {
        let mut completed = false;
        let found = self.instance.progress_with(
            self.cq,
            may_rest,
            |device| self.state.open(device).0.has_work(self.shm.load(Ordering::Relaxed)),
            |device, now| self.progress_disarmed(device, now, &mut completed),
        )?;
        if completed {
            self.wake();
        }
        Ok(found)
    }

    /// A program that polls shared memory in vain lets others have the core: one of them may be the one it waits for.
    #[inline]
    fn yield_if_idle(&self, found: bool) {
        if !found && self.instance.in_company() {
            return self.instance.give_way();
        }
        let idle = if found { 0 } else { self.idle.load(Ordering::Relaxed) + 1 };
        self.idle.store(idle, Ordering::Relaxed);
        if idle > PATIENCE {
            std::thread::yield_now();
        }
    }

    /// The program is about to sleep on something else than shared memory. False if something has come there.
    pub fn fall_asleep(&self) -> Outcome<bool> {
        self.polled.store(false, Ordering::Relaxed);
        if !self.shm.load(Ordering::Relaxed) {
            return Ok(true);
        }
        self.with(|state, _, _| state.fall_asleep())
    }

    /// What a notification asks for. The call has failed if the process is a fork, or a signal's handler calls; then
    /// another poll does it.
    fn on_notification(&self) {
        let mut completed = false;
        let _ = self.instance.progress_when_notified(self.cq, |device, now| {
            let mut found = false;
            if self.polled.swap(false, Ordering::Relaxed) {
                // Another thread has moved packets for one that polls, and takes what comes by shared memory without being woken.
                found = self.progress_disarmed(device, now, &mut completed);
                let (state, device) = self.state.open(device);
                state.ask_again = now + STOPPED;
                set_alarm(state, device, self.cq);
                return found;
            }
            // The program does not poll: whoever sends by shared memory must go on waking us.
            for _ in 0..MOST_ROUNDS {
                found |= self.progress_disarmed(device, now, &mut completed);
                if self.state.open(device).0.fall_asleep() {
                    return found;
                }
            }
            let (state, device) = self.state.open(device);
            state.ask_again = now + SOON;
            set_alarm(state, device, self.cq);
            found
        });
        if completed {
            self.wake();
        }
    }

    /// The same for who has taken back what the device was asked to tell.
    #[inline]
    fn progress_disarmed(&self, device: &mut Locked<'_>, now: Time, completed: &mut bool) -> bool {
        let found = self.progress_locked(device, now, completed);
        let (state, device) = self.state.open(device);
        set_alarm(state, device, self.cq);
        found
    }

    /// Takes whatever there is, and does what follows.
    fn progress_locked(&self, device: &mut Locked<'_>, now: Time, completed: &mut bool) -> bool {
        let (state, device) = self.state.open(device);
        if state.closed {
            return false;
        }
        // First what has come by shared memory: who sent it may have closed since, which the network tells, and then what is
        // still there would be of a session that is over.
        let (mut from_shm, mut left) = (false, false);
        for shm in state.endpoints.iter_mut().flatten().filter_map(|bound| bound.shm.as_mut().ok()) {
            let layer = &mut Layer { messages: &mut state.messages, device, now };
            let mut turns = 0;
            loop {
                let taken = shm.round(layer);
                from_shm |= taken.records > 0;
                // Peers that have gone are lost only when everything that they sent has been taken: that takes a look of its own.
                if taken.records == 0 || taken.all && !layer.messages.has_gone() {
                    break;
                }
                turns += 1;
                if turns == MOST_TURNS {
                    left = true;
                    break;
                }
            }
        }
        if !left {
            state.messages.lanes_are_empty(device, now);
        }
        let from_network = state.messages.progress(device, now);
        let quiet = if from_network { 0 } else { self.quiet.load(Ordering::Relaxed).saturating_add(1) };
        self.quiet.store(quiet, Ordering::Relaxed);
        if from_shm {
            self.lanes.store(true, Ordering::Relaxed);
        }
        if state.messages.has_strangers() {
            meet_strangers(state, device, now);
        }
        *completed |= state.collect();
        state.ask_again = Time::NEVER;
        let found = from_network || from_shm || *completed;
        state.is_settled = !found;
        found
    }

    /// Sleeps until `ready` says yes, making progress meanwhile. Returns whether it did within `timeout` (`None`: for ever). EINTR
    /// if a signal's handler has run.
    pub fn wait(&self, timeout: Option<Duration>, mut ready: impl FnMut() -> bool) -> Outcome<bool> {
        self.sleep_until(timeout, || {
            loop {
                self.progress()?;
                if ready() {
                    return Ok(true);
                }
                // Only then does it sleep.
                if self.fall_asleep() != Ok(false) {
                    return Ok(false);
                }
            }
        })
    }

    /// The same for who makes progress, and sees to it that it may sleep, in `look`.
    pub fn sleep_until(
        &self,
        timeout: Option<Duration>,
        mut look: impl FnMut() -> Outcome<bool>,
    ) -> Outcome<bool> {
        let mut failure = None;
        let waited = self.instance.wait_until_signal(timeout, || {
            look().unwrap_or_else(|errno| {
                failure = Some(errno);
                true
            })
        })?;
        match (failure, waited) {
            (Some(errno), _) => Err(errno),
            (None, Waited::Signalled) => Err(Errno(libc::EINTR)),
            (None, waited) => Ok(waited == Waited::Ready),
        }
    }

    /// What giving something back comes to. To a device that has failed nothing can be given back: there the program gets
    /// rid of it all the same.
    pub fn given_back<E: Into<Errno>, B: Into<Errno>>(
        &self,
        result: Result<Result<(), E>, B>,
    ) -> Outcome<()> {
        if self.instance.has_failed() {
            return Ok(());
        }
        result.map_err(Into::into)?.map_err(Into::into)
    }

    /// Closes an endpoint and its queue pair, after a moment if peers still wait for something of it, as
    /// [`Instance::destroy_qp`] does.
    pub fn close_endpoint(&self, endpoint: EndpointId, qpn: Qpn) -> Outcome<()> {
        let closed = self.close_working_endpoint(endpoint, qpn);
        if self.instance.has_failed() {
            self.forget_endpoint(endpoint);
        }
        self.given_back(Ok::<_, Errno>(closed))
    }

    /// What an endpoint of a failed device refers to may go.
    fn forget_endpoint(&self, endpoint: EndpointId) {
        self.instance.with_failed(|device| self.state.open(device).0.leave(endpoint));
    }

    fn close_working_endpoint(&self, endpoint: EndpointId, qpn: Qpn) -> Outcome<()> {
        let mut start = None;
        let mut is_over = || {
            let drain = self.with(|state, _, now| (state.messages.drain(endpoint), now));
            let Ok((drain, now)) = drain else { return true };
            let start = *start.get_or_insert(now);
            let silent = |last: Time| now.since(last.max(start)) >= LONGEST_SILENCE;
            match drain {
                _ if now.since(start) >= LONGEST_DRAIN => true,
                Drain::Over => true,
                Drain::Unacknowledged => self.instance.last_arrival().map_or(true, silent),
                Drain::Queued => false,
            }
        };
        loop {
            match self.wait(Some(LOOK_EVERY), &mut is_over) {
                Ok(true) => break,
                Ok(false) | Err(Errno(libc::EINTR)) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.with(|state, device, now| {
            device.destroy_qp(now, qpn)?;
            state.messages.close_endpoint(device, now, endpoint);
            state.leave(endpoint);
            Ok(())
        })?
    }

    /// From now on whoever falls asleep looks at shared memory before.
    pub fn uses_shm(&self) {
        self.shm.store(true, Ordering::Relaxed);
    }

    /// Gives everything back. Endpoints are closed already.
    pub fn close(&self) {
        let subscriptions =
            std::mem::take(&mut *self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner));
        drop(subscriptions);
        let closed = self.instance.with(|device, now| {
            let (state, device) = self.state.open(device);
            if !std::mem::replace(&mut state.closed, true) {
                state.messages.close(device, now);
                self.instance.keep_stats(state.messages.counters().iter());
            }
        });
        // Only in a forked child, in which the domain is the parent's, and of a device that has failed.
        let _ = closed;
    }
}

/// Ends all endpoints and threads, because libfabric unloads its providers.
pub(crate) fn end_all() {
    let engines: Vec<Arc<Engine>> = match ENGINES.try_lock() {
        Ok(mut engines) => engines.drain(..).filter_map(|engine| engine.upgrade()).collect(),
        Err(_) => return, // a fork has copied a held lock
    };
    for engine in engines {
        if engine.instance.is_parents() {
            // A child that was forked only exits.
            std::mem::forget(engine);
            continue;
        }
        let open = engine
            .with(|state, _, _| state.endpoints().map(|(id, bound)| (id, bound.qpn)).collect::<Vec<_>>());
        for (endpoint, qpn) in open.unwrap_or_default() {
            let _ = engine.close_endpoint(endpoint, qpn);
        }
        engine.instance.end();
    }
}
