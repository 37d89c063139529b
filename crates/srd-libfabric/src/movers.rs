//! The engines that bring something to a queue or counter: those of the endpoints that are bound to it. Mostly that is one, whose
//! lock alone a poll then takes.

use crate::boundary::Outcome;
use crate::engine::Engine;
use std::iter::once;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Longest sleep where nothing may end it.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// See the module.
pub(crate) struct Movers {
    /// Who sleeps, sleeps on the first of them, or before there is one on another engine of the domain.
    first: OnceLock<Arc<Engine>>,
    others: Box<[OnceLock<Arc<Engine>>]>,
    any: Arc<Engine>,
    /// Packets move in polls only.
    inline: bool,
}

impl Movers {
    /// Of a domain that has up to `most` engines, of which `any` is one.
    pub fn new(any: Arc<Engine>, most: u16, inline: bool) -> Movers {
        let others: Box<[_]> = (1..most).map(|_| OnceLock::new()).collect();
        let first = if others.is_empty() { OnceLock::from(any.clone()) } else { OnceLock::new() };
        Movers { first, others, any, inline }
    }

    /// An endpoint of that engine is bound.
    pub fn enter(&self, engine: &Arc<Engine>) {
        let slots = once(&self.first).chain(&self.others);
        let mut there = slots.map(|slot| slot.get_or_init(|| engine.clone()));
        there.find(|there| Arc::ptr_eq(there, engine));
        let sleeps_on = self.sleeps_on();
        if !Arc::ptr_eq(sleeps_on, engine) {
            engine.is_heard_at(sleeps_on);
            sleeps_on.instance.wake();
        }
    }

    fn sleeps_on(&self) -> &Arc<Engine> {
        self.first.get().unwrap_or(&self.any)
    }

    fn others(&self) -> impl Iterator<Item = &Arc<Engine>> {
        self.others.iter().map_while(OnceLock::get)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Engine>> {
        self.first.get().into_iter().chain(self.others())
    }

    /// Whether this process is a fork of the one that opened them.
    #[inline]
    pub fn are_parents(&self) -> bool {
        self.any.instance.is_parents()
    }

    /// [`Engine::poll`] of each.
    #[inline]
    pub fn poll(&self) -> Outcome<()> {
        if self.others.is_empty() { self.any.poll() } else { self.poll_each() }
    }

    #[inline(never)]
    fn poll_each(&self) -> Outcome<()> {
        self.all().try_for_each(|engine| engine.poll())
    }

    /// [`Engine::progress`] of each.
    pub fn progress(&self) -> Outcome<()> {
        self.all().try_for_each(|engine| engine.progress())
    }

    /// [`Engine::fall_asleep`] of each. False if something has come to one of them.
    pub fn fall_asleep(&self) -> Outcome<bool> {
        self.all().try_fold(true, |asleep, engine| Ok(engine.fall_asleep()? && asleep))
    }

    /// The program sleeps: threads move packets from now on.
    pub fn hand_over(&self) {
        self.all().for_each(|engine| engine.instance.hand_over());
    }

    /// Makes all that sleep in [`Movers::wait`] ask again whether they are ready.
    pub fn wake(&self) {
        self.sleeps_on().instance.wake();
    }

    /// [`Engine::wait`], for what any of them brings.
    pub fn wait(&self, timeout: Option<Duration>, mut ready: impl FnMut() -> bool) -> Outcome<bool> {
        if self.others.is_empty() {
            return self.any.wait(timeout, ready);
        }
        let until = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let is_told = self.first.get().is_some() && !(self.inline && self.others().next().is_some());
            let sleep =
                if is_told { left } else { Some(left.map_or(LOOK_AGAIN, |left| left.min(LOOK_AGAIN))) };
            let is_there = self.sleeps_on().sleep_until(sleep, || {
                loop {
                    self.progress()?;
                    if ready() {
                        return Ok(true);
                    }
                    if self.fall_asleep() != Ok(false) {
                        self.others().for_each(|engine| engine.instance.hand_over());
                        return Ok(false);
                    }
                }
            })?;
            if is_there || left.is_some_and(|left| left == sleep.unwrap_or(left)) {
                return Ok(is_there);
            }
        }
    }
}
