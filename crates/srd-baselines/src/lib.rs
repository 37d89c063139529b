//! Transports that SRD is compared with, for simulated hosts, and the surface that SRD and they have in common.
//!
//! Each is sans-IO: no clock, no network, no randomness of its own. `transport` is what a host asks of them, `baseline` what a
//! scenario asks; `section` and what it is made of read a scenario's TOML. To add a transport: a file (or folder) here with a
//! type that is a [`Baseline`], and a line in the list below.
#![forbid(unsafe_code)]

mod baseline;
pub mod document;
pub mod frame;
pub mod input;
mod mixed;
pub mod quantity;
pub mod section;
#[cfg(test)]
mod star;
#[cfg(test)]
mod test_link;
pub mod transport;
pub mod units;
pub mod wire;

pub use baseline::{Baseline, Surroundings};

mixed::baselines! {
    iwarp::Iwarp,
    mrc::Mrc,
    nscc::Nscc,
    rccc::Rccc,
    roce::Roce,
    tcp::Tcp,
}
