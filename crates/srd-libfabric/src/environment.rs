//! What the environment asks for, read whenever somebody asks what there is: programs set variables before their first
//! call.

use crate::capabilities;
use srd_net::log;
use srd_net::{Address, LocalAddress, Options};
use std::net::IpAddr;

/// How much libfabric itself is asked to say, where SRD_LOG does not say how much we are.
fn libfabrics_level() -> Option<log::Level> {
    if std::env::var_os("SRD_LOG").is_some() {
        return None;
    }
    match std::env::var("FI_LOG_LEVEL").ok()?.as_str() {
        "info" => Some(log::Level::Info),
        "trace" | "debug" => Some(log::Level::Debug),
        _ => None,
    }
}

/// Takes that level, before anything is said.
pub(crate) fn set_log_level() {
    libfabrics_level().into_iter().for_each(log::set_level);
}

/// The environment's options. What is wrong with them has been said if there are none.
fn options() -> Option<Options> {
    let refuse = |why: String| {
        log::once(log::Level::Error, &why, format_args!("{why}"));
        None
    };
    match Options::from_env() {
        Ok((mut options, warnings)) => {
            // Work requests are not the program's here: one fails or is late in the middle of a message, and messages between processes
            // of a host have none.
            let refused =
                options.fault.as_ref().and_then(|plan| plan.packets_only("the libfabric provider").err());
            if let Some(why) = refused {
                return refuse(why);
            }
            options.log = libfabrics_level().unwrap_or(options.log);
            options.max_msg = capabilities::config().device_message();
            for warning in warnings {
                log::once(log::Level::Warn, &warning.name, format_args!("{warning}"));
            }
            Some(options)
        }
        Err(error) => refuse(error.to_string()),
    }
}

/// Where an endpoint can be, and what else the environment asks for.
pub(crate) struct Place {
    /// The address and its interface.
    pub local: LocalAddress,
    /// With that address.
    pub options: Options,
}

impl Place {
    /// The place at `ip`, which must be an address of this host, and that which SRD_ADDR names if it names one; without,
    /// the one that SRD_ADDR or the routing table choose. `towards`: who is to be reached from it.
    pub fn find(ip: Option<IpAddr>, towards: Option<IpAddr>) -> Option<Place> {
        let mut options = options()?;
        let chosen = options.addr != Address::Auto;
        if !chosen
            && let Some(ip) = ip.or_else(|| towards.and_then(|to| srd_net::udp::source_towards(to).ok()))
        {
            options.addr = Address::Ip(ip);
        }
        let local = match srd_net::check(&options) {
            Ok(local) => local,
            Err(error) => {
                let error = error.to_string();
                log::once(log::Level::Error, &error, format_args!("{error}"));
                return None;
            }
        };
        if let Some(ip) = ip.filter(|ip| *ip != local.ip) {
            log::info(format_args!("asked for source address {ip}, but SRD_ADDR chooses {}", local.ip));
            return None;
        }
        options.addr = Address::Ip(local.ip);
        Some(Place { local, options })
    }
}
