//! Which local addresses there is a device for, and what is known of the links behind them.
//!
//! One address: the one that `SRD_ADDR` names, or that the default route uses. Programs that find several devices
//! spread over them, which helps only where every address reaches every peer. A machine has as many devices as it says, each with
//! an address that it names; several may have the same, and then have instances of their own there.

use crate::strict;
use srd_device::DeviceConfig;
use srd_net::log;
use srd_net::{Address, Instance, Options, Seat};
use srd_wire::BitRate;
use std::net::IpAddr;
use std::sync::Arc;

/// A local address.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LocalAddress {
    /// The address.
    pub ip: IpAddr,
    /// Rate of the link.
    pub gbps: u64,
    /// The first of the process's instances there that are this device's.
    first_instance: u16,
    options: Options,
}

impl LocalAddress {
    /// Bytes of the longest send: one message, which may take several packets.
    pub fn max_message(&self) -> u32 {
        DeviceConfig::default().max_msg
    }

    /// Whether what a device sends to itself comes back (`SRD_EFA_LOOPBACK`).
    pub fn loops_back(&self) -> bool {
        self.options.loopback
    }

    /// A running device of this address: one for the whole process, or as many as `SRD_ENGINES` says, to which contexts are
    /// dealt in turn.
    pub fn open(&self) -> Result<(Arc<Instance>, Seat), String> {
        let seat = Seat::take_among(self.ip, self.first_instance..self.first_instance + self.options.engines);
        let instance = Instance::open_numbered(&self.options, seat.number());
        instance.map(|instance| (instance, seat)).map_err(|error| error.to_string())
    }

    /// The one that the settings choose.
    pub fn chosen() -> Result<LocalAddress, String> {
        let mut options = options()?;
        let found = srd_net::check(&options).map_err(|error| error.to_string())?;
        options.addr = Address::Ip(found.ip);
        let rate = options.line_rate.or(found.line_rate).unwrap_or(BitRate(100_000_000_000));
        let gbps = (rate.0 / 1_000_000_000).max(1);
        Ok(LocalAddress { ip: found.ip, gbps, first_instance: 0, options })
    }

    /// That of a machine's device.
    pub fn of(device: &srd_machine::Device) -> Result<LocalAddress, String> {
        let mut options = options()?;
        options.addr = Address::Ip(device.address);
        srd_net::check(&options).map_err(|error| format!("{} of this machine: {error}", device.name))?;
        let first_instance = device.number as u16 * options.engines;
        Ok(LocalAddress { ip: device.address, gbps: device.gbps, first_instance, options })
    }
}

fn options() -> Result<Options, String> {
    let (mut options, warnings) = Options::from_env().map_err(|error| error.to_string())?;
    options.rnr_counts_all = strict::is_on()?;
    options.loopback = strict::loopback()?;
    for warning in warnings {
        log::once(log::Level::Warn, &warning.name, format_args!("{warning}"));
    }
    Ok(options)
}
