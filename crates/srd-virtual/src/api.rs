//! What the preloaded library gives to the provider in the same process, which finds it by name.

use crate::layout::{Head, Place};

/// Changes whenever [`Api`] does.
pub const VERSION: u32 = 3;

/// See the module. All of it is for threads of a process in a simulated fabric.
#[repr(C)]
#[derive(Debug)]
pub struct Api {
    /// [`VERSION`].
    pub version: u32,
    /// Takes the process's place, which then is written to the argument. Returns 0, or an error's number.
    pub attach: extern "C" fn(*mut Place) -> i32,
    /// The time, in nanoseconds of the simulation. A look at it costs nothing.
    pub now: extern "C" fn() -> u64,
    /// The calling thread will use the device: it has the turn when this returns, and what it computed is in the clock.
    pub enter: extern "C" fn(),
    /// It has used it.
    pub leave: extern "C" fn(),
    /// The transport wants to run so many nanoseconds later.
    pub set_due: extern "C" fn(span: u64),
    /// So many send to the process, as far as its transport knows.
    pub set_senders: extern "C" fn(u32),
    /// The device has more to send than the card has taken.
    pub set_more: extern "C" fn(bool),
    /// So many send to other processes of the host.
    pub neighbours: extern "C" fn() -> u32,
    /// Whether the card takes a packet.
    pub has_room: extern "C" fn() -> bool,
    /// Sends a datagram.
    pub send: extern "C" fn(*const Head, *const u8) -> bool,
    /// The next datagram that has come: its bytes are there until [`Api::leave`], and may be written to. Null if there is none.
    pub receive: extern "C" fn(*mut Head) -> *mut u8,
    /// A poll has found something, or nothing; then it waits as long as nothing can have changed.
    pub polled: extern "C" fn(found: bool),
    /// Waits for a packet or a deadline of the transport, and not longer than so many nanoseconds.
    pub wait: extern "C" fn(span: u64),
    /// Waits as the network card does, which acts while no thread of the program polls.
    pub wait_as_card: extern "C" fn(),
    /// The program has closed its device: makes that come back.
    pub close: extern "C" fn(),
}
