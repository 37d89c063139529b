//! Which local addresses there is a device for, and what is known of the links behind them.
//!
//! One address: the one that `SRD_ADDR` names, or that the default route uses. Programs that find several devices
//! spread over them, which helps only where every address reaches every peer.

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
    options: Options,
}

impl LocalAddress {
    /// Bytes of the longest send: one message, which may take several packets.
    pub fn max_message(&self) -> u32 {
        DeviceConfig::default().max_msg
    }

    /// A running device of this address: one for the whole process, or as many as `SRD_ENGINES` says, to which contexts are
    /// dealt in turn.
    pub fn open(&self) -> Result<(Arc<Instance>, Seat), String> {
        let seat = Seat::take(self.ip, self.options.engines);
        let instance = Instance::open_numbered(&self.options, seat.number());
        instance.map(|instance| (instance, seat)).map_err(|error| error.to_string())
    }
}

/// All of them.
pub(crate) fn all() -> Result<Vec<LocalAddress>, String> {
    let (mut options, warnings) = Options::from_env().map_err(|error| error.to_string())?;
    for warning in warnings {
        log::once(log::Level::Warn, &warning.name, format_args!("{warning}"));
    }
    let found = srd_net::check(&options).map_err(|error| error.to_string())?;
    options.addr = Address::Ip(found.ip);
    let rate = options.line_rate.or(found.line_rate).unwrap_or(BitRate(100_000_000_000));
    Ok(vec![LocalAddress { ip: found.ip, gbps: (rate.0 / 1_000_000_000).max(1), options }])
}
