//! Who moves packets, and what everybody else does meanwhile: decided here alone, from what the other files of this folder see. A few
//! functions without time, threads or state.

use super::contention::Cores;
use crate::options::ProgressMode;

/// Who moves the packets of an instance. While it is somebody else the progress thread sleeps: to look now and then would take the core from
/// whoever it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mover {
    /// Polls of the program. The thread sleeps until they end.
    Polls,
    /// A thread of the program that sleeps on the sockets, or is about to. The progress thread sleeps until it does not sleep again.
    Sleeper,
    /// The progress thread, which sleeps on the sockets.
    Thread,
    /// Nobody until the program calls: there is no thread.
    Nobody,
}

/// Who it is, if the program polls or not, and threads of its sleep or not.
pub fn mover(mode: ProgressMode, sleepers: bool, polls: bool) -> Mover {
    match (mode, sleepers, polls) {
        (ProgressMode::Thread, ..) => Mover::Thread,
        (_, true, _) => Mover::Sleeper,
        (_, false, true) => Mover::Polls,
        (ProgressMode::Auto, false, false) => Mover::Thread,
        (ProgressMode::Inline, false, false) => Mover::Nobody,
    }
}

/// Whether the progress thread is to be woken for what is due before it wakes, by a call that has found that out.
#[inline]
pub fn thread_is_in_charge(mode: ProgressMode, sleepers: bool) -> bool {
    match mode {
        ProgressMode::Inline => false,
        ProgressMode::Thread => true,
        ProgressMode::Auto => !sleepers,
    }
}

/// What a poll does that has found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VainPoll {
    /// It returns: the program will poll again.
    Return,
    /// It lets another thread of the program have the core.
    GiveWay,
    /// It lets another process have the core.
    Yield,
    /// It sleeps for a moment, or until a packet comes: others that have the core keep it, but not from who is woken.
    Rest,
}

/// Where a thread sleeps on the sockets already, that one is woken by packets.
#[inline]
pub fn vain_poll(mode: ProgressMode, sleepers: bool, cores: Cores) -> VainPoll {
    match cores {
        Cores::Company => VainPoll::GiveWay,
        _ if sleepers || mode == ProgressMode::Thread => VainPoll::Return,
        Cores::Free => VainPoll::Return,
        Cores::Yielded => VainPoll::Yield,
        Cores::Taken => VainPoll::Rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [ProgressMode; 3] = [ProgressMode::Auto, ProgressMode::Thread, ProgressMode::Inline];
    /// Every state there is: mode, whether threads sleep, whether the program polls.
    fn states() -> impl Iterator<Item = (ProgressMode, bool, bool)> {
        let both = [false, true];
        MODES.into_iter().flat_map(move |mode| {
            both.into_iter().flat_map(move |sleepers| both.map(move |polls| (mode, sleepers, polls)))
        })
    }

    #[test]
    fn somebody_moves_packets_wherever_there_is_a_thread() {
        for (mode, sleepers, polls) in states() {
            let mover = mover(mode, sleepers, polls);
            assert_eq!(mover == Mover::Nobody, mode == ProgressMode::Inline && !sleepers && !polls);
            assert_eq!(
                mover == Mover::Thread,
                mode == ProgressMode::Thread || mode == ProgressMode::Auto && !sleepers && !polls
            );
        }
    }

    #[test]
    fn who_sleeps_on_the_sockets_is_woken_for_what_is_due() {
        for (mode, sleepers, polls) in states() {
            // A leader is told by `Sleepers::moved`, a thread by its kick; never both.
            let thread = thread_is_in_charge(mode, sleepers);
            let mover = mover(mode, sleepers, polls);
            assert!(!(thread && mover == Mover::Sleeper));
            assert!(thread || mover != Mover::Thread);
        }
    }

    #[test]
    fn a_poll_on_cores_of_its_own_never_waits() {
        for (mode, sleepers) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
            assert_eq!(vain_poll(mode, sleepers, Cores::Free), VainPoll::Return);
            assert_eq!(vain_poll(mode, sleepers, Cores::Company), VainPoll::GiveWay);
            let alone = !sleepers && mode != ProgressMode::Thread;
            let or_returns = |step| if alone { step } else { VainPoll::Return };
            assert_eq!(vain_poll(mode, sleepers, Cores::Yielded), or_returns(VainPoll::Yield));
            assert_eq!(vain_poll(mode, sleepers, Cores::Taken), or_returns(VainPoll::Rest));
        }
    }
}
