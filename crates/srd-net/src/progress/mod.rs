//! Who moves packets. While the program polls, its polls do; while it does not, a thread does, which sleeps on the sockets. What follows
//! from that for everybody is decided in `policy.rs`, from what `poll_activity.rs` (does the program poll?), `notify.rs` (do
//! threads of its sleep?) and `contention.rs` (who wants its cores?) see.
//!
//! The thread must not wake for packets that a polling program takes anyway: on a core of its own that costs power
//! and the sender's core the wake-up, on the program's core it costs the program its time. So each poll leaves the
//! time, and a thread that finds polls going on sleeps until an alarm, which polls put off (`handoff.rs`).

pub(crate) mod contention;
pub(crate) mod handoff;
pub(crate) mod policy;
pub(crate) mod poll_activity;
