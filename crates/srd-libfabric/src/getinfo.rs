//! fi_getinfo(3): what a program asks for against what there is. The answer is one info or -FI_ENODATA, and then the log says
//! what was in the way. Addresses are chosen here, attributes in [`crate::attributes`].

use crate::address::{self, Address};
use crate::boundary::{Outcome, abi, text, writable};
use crate::constants::*;
use crate::environment::Place;
use crate::hints::{Asked, refused};
use crate::info::Info;
use crate::layout::*;
use crate::open::is_our_fabric;
use crate::{attributes, capabilities, info};
use libc::c_char;
use srd_net::log;
use std::net::{IpAddr, SocketAddr};

abi! {
    status fn getinfo(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        answer: *mut *mut fi_info,
    ) {
        let answer = writable(answer)?;
        *answer = std::ptr::null_mut();
        let asked = Asked::new(version, hints)?;
        *answer = answer_to(&asked, text(node)?, text(service)?, flags)?.into_raw();
        Ok(())
    }
}

fn answer_to(asked: &Asked<'_>, node: Option<&str>, service: Option<&str>, flags: u64) -> Outcome<Info> {
    // rxm and rxd look for endpoints below them with every provider: the most frequent question, not worth a line.
    if let Some(ep) = asked.ep.filter(|ep| ep.r#type != FI_EP_UNSPEC && ep.r#type != FI_EP_RDM) {
        return Err(refused("endpoint type (only FI_EP_RDM is)", ep.r#type));
    }
    let (node, service) = if flags & FI_PROV_ATTR_ONLY != 0 { (None, None) } else { (node, service) };
    let wanted = Wanted::new(asked, node, service, flags)?;
    let place = Place::find(wanted.source_ip(), wanted.destination.map(|to| to.at.ip()))
        .ok_or_else(|| refused("an endpoint", "at that source address"))?;
    let ip = place.local.ip;
    let format = asked.info.map_or(FI_FORMAT_UNSPEC, |info| info.addr_format);
    if ![FI_FORMAT_UNSPEC, FI_SOCKADDR, FI_SOCKADDR_IP, address::format_of(ip)].contains(&format) {
        return Err(refused("address format", format));
    }
    if let Some(to) = wanted.destination.filter(|to| to.at.is_ipv6() != ip.is_ipv6()) {
        return Err(refused("reaching", format_args!("{} from {ip}", to.at)));
    }
    check_names(asked, &place.local.interface)?;

    let mut answer = Info::new()?;
    let parts = answer.parts();
    attributes::negotiate(asked, parts)?;
    let parts = answer.parts();
    if let Some(attr) = asked.domain {
        parts.domain.domain = attr.domain;
    }
    if let Some(attr) = asked.fabric {
        parts.fabric.fabric = attr.fabric;
    }
    parts.domain.name = info::text(&place.local.interface)?;
    parts.fabric.name = info::text(capabilities::FABRIC)?;
    parts.fabric.prov_version = capabilities::PROVIDER_VERSION;
    parts.fabric.api_version = asked.api;
    parts.info.addr_format = address::format_of(ip);
    let (port, key) = wanted.source.map_or((0, 0), |source| (source.at.port(), source.key));
    let source = Address { at: address::scoped(SocketAddr::new(ip, port), place.local.index), key };
    let len = address::length_of(ip);
    parts.info.src_addr = info::bytes(&address::to_bytes(source)[..len], len)?;
    parts.info.src_addrlen = len;
    if let Some(to) = wanted.destination {
        parts.info.dest_addr = info::bytes(&address::to_bytes(to)[..len], len)?;
        parts.info.dest_addrlen = len;
    }
    Ok(answer)
}

/// Where a program wants to be, and whom it wants to reach.
struct Wanted {
    source: Option<Address>,
    destination: Option<Address>,
    /// That of a domain that is open already.
    domain: Option<IpAddr>,
}

impl Wanted {
    fn new(asked: &Asked<'_>, node: Option<&str>, service: Option<&str>, flags: u64) -> Outcome<Wanted> {
        let of_hints = |pointer, len| {
            // SAFETY: by fi_getinfo(3) the length goes with the address.
            unsafe { address::read(pointer, len) }
        };
        let mut source = asked.info.and_then(|info| of_hints(info.src_addr, info.src_addrlen));
        let mut destination = asked.info.and_then(|info| of_hints(info.dest_addr, info.dest_addrlen));
        if node.is_some() || service.is_some() {
            let is_source = flags & FI_SOURCE != 0;
            let numeric = flags & FI_NUMERICHOST != 0;
            let other = if is_source { destination } else { source };
            let found = address::resolve(node, service, numeric, is_source, other.map(|addr| addr.at.ip()))
                .inspect_err(|_| {
                log::info(format_args!(
                    "fi_getinfo: no address for {}:{}",
                    node.unwrap_or("*"),
                    service.unwrap_or("*")
                ));
            })?;
            *(if is_source { &mut source } else { &mut destination }) = Some(Address { at: found, key: 0 });
        }
        Ok(Wanted { source, destination, domain: asked.open.map(|open| open.shared.ip) })
    }

    fn source_ip(&self) -> Option<IpAddr> {
        self.domain.or(self.source.map(|source| source.at.ip()).filter(|ip| !ip.is_unspecified()))
    }
}

/// Names and open objects in the hints must be ours.
fn check_names(asked: &Asked<'_>, interface: &str) -> Outcome<()> {
    let check = |what: &str, pointer: *const c_char, ours: &str| {
        // SAFETY: by fi_getinfo(3) NULL or a string.
        match unsafe { text(pointer) }? {
            Some(name) if !name.eq_ignore_ascii_case(ours) => Err(refused(what, name)),
            _ => Ok(()),
        }
    };
    if let Some(domain) = asked.domain {
        check("domain", domain.name, interface)?;
    }
    if let Some(fabric) = asked.fabric {
        check("fabric", fabric.name, capabilities::FABRIC)?;
        check("provider", fabric.prov_name, &capabilities::name().to_string_lossy())?;
        // SAFETY: by fi_getinfo(3) NULL or an open fabric.
        if !fabric.fabric.is_null() && unsafe { !is_our_fabric(fabric.fabric) } {
            return Err(refused("an open fabric", "of another provider"));
        }
    }
    Ok(())
}
