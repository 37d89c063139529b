//! Looks after a running round from inside its loop: has the other side said something or died, and does anything
//! still move?

use super::control::{Answer, Control, Request};
use anyhow::bail;
use std::time::{Duration, Instant};

/// How often the control connection is looked at.
const PERIOD: Duration = Duration::from_millis(5);

/// Fruitless polls after which it is worth looking at the clock.
const POLLS: u32 = 256;

/// How long a blocking side sleeps before it looks.
pub const NAP: Duration = Duration::from_millis(50);

/// What a fruitless poll should be followed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Another poll.
    Poll,
    /// A look at what is polled seldom, then another poll.
    Look,
    /// Nothing: the round is over.
    Stop,
}

/// Which side of the control connection this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It says when the round ends.
    Client,
    /// It is told.
    Server,
}

/// Watches over one round.
pub struct Watch<'a> {
    control: &'a mut Control,
    role: Role,
    timeout: Duration,
    polls: u32,
    next_look: Instant,
    last_progress: Instant,
    moved: bool,
    ended: bool,
}

impl<'a> Watch<'a> {
    /// Begins. For the client nothing may stand still for longer than `timeout`; a server need not see what moves
    /// (one-sided operations), and learns of the end from its client, be it that the client dies.
    pub fn new(control: &'a mut Control, role: Role, timeout: Duration) -> Watch<'a> {
        let now = Instant::now();
        let next_look = now + PERIOD;
        Watch { control, role, timeout, polls: 0, next_look, last_progress: now, moved: false, ended: false }
    }

    /// Something has moved. Costs nothing, so that every loop can say so.
    #[inline]
    pub fn progress(&mut self) {
        self.moved = true;
    }

    /// A poll found nothing to do.
    #[inline]
    pub fn idle(&mut self) -> anyhow::Result<Next> {
        self.polls += 1;
        if self.polls < POLLS { Ok(Next::Poll) } else { self.look() }
    }

    /// As [`Watch::idle`], for one that has slept: looks at once.
    pub fn look(&mut self) -> anyhow::Result<Next> {
        self.polls = 0;
        let now = Instant::now();
        if std::mem::take(&mut self.moved) {
            self.last_progress = now;
        }
        if now >= self.next_look {
            self.next_look = now + PERIOD;
            self.listen()?;
            if self.role == Role::Client && now - self.last_progress > self.timeout {
                bail!(
                    "nothing has moved between here and {} for {:.1} s, though the control connection stands; \
                     `srd doctor` may tell why",
                    self.control.peer(),
                    self.timeout.as_secs_f64()
                );
            }
        }
        Ok(if self.ended { Next::Stop } else { Next::Look })
    }

    /// For a server whose data has ended: waits until the client says so too.
    pub fn wait_for_end(&mut self) -> anyhow::Result<()> {
        if !self.ended {
            let Request::End = self.control.receive(self.timeout)? else {
                bail!("{} asks for a round within a round", self.control.peer());
            };
            self.ended = true;
        }
        Ok(())
    }

    fn listen(&mut self) -> anyhow::Result<()> {
        match self.role {
            Role::Server => match self.control.poll()? {
                None => {}
                Some(Request::End) => self.ended = true,
                Some(_) => bail!("{} asks for a round within a round", self.control.peer()),
            },
            Role::Client => match self.control.poll()? {
                None => {}
                Some(Answer::Failed { reason }) => bail!("{}: {reason}", self.control.peer()),
                Some(_) => bail!("{} ends a round that goes on", self.control.peer()),
            },
        }
        Ok(())
    }
}
