//! Flows between hosts of a lab, over SRD or over the kernel's TCP: who sends how much to whom, from when on, and when it
//! has arrived.
//!
//! Each host has one worker process ([`worker::run`]), told what to do in lines of JSON ([`order`]). Its receivers are one
//! process as a server's are; each sender has a device of its own ([`srd`]) or a connection ([`tcp`]), as a process of its
//! own would. All hosts of a lab are on one machine, so one clock serves them all ([`clock`]).

pub mod arrivals;
pub mod clock;
pub mod protocol;
pub mod srd;
pub mod tcp;
#[allow(unsafe_code)]
mod tcp_info;
pub mod worker;
