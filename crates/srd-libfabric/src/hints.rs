//! The hints of fi_getinfo(3) as they are read, and what the log says of those that cannot be met.

use crate::boundary::{Errno, Outcome};
use crate::domain::Domain;
use crate::layout::*;
use crate::open::our_domain;
use srd_net::log;

/// What a program asks for, with the parts of its hints that are there.
pub(crate) struct Asked<'a> {
    /// The API that it was written for.
    pub api: u32,
    pub info: Option<&'a fi_info>,
    pub tx: Option<&'a fi_tx_attr>,
    pub rx: Option<&'a fi_rx_attr>,
    pub ep: Option<&'a fi_ep_attr>,
    pub domain: Option<&'a fi_domain_attr>,
    pub fabric: Option<&'a fi_fabric_attr>,
    /// The domain, if it is open already.
    pub open: Option<&'a Domain>,
}

impl<'a> Asked<'a> {
    /// # Safety
    /// `hints` is NULL or a live info with live parts, of the structures of a libfabric of that API or later.
    pub unsafe fn new(api: u32, hints: *const fi_info) -> Outcome<Asked<'a>> {
        // SAFETY: as the caller says; the parts may be NULL.
        unsafe {
            let info: Option<&fi_info> = hints.as_ref();
            let domain = info.and_then(|info| info.domain_attr.as_ref());
            let open = match domain {
                Some(attr) if !attr.domain.is_null() => {
                    let ours = our_domain(attr.domain);
                    Some(ours.ok_or_else(|| refused("an open domain", "of another provider"))?)
                }
                _ => None,
            };
            Ok(Asked {
                api,
                info,
                tx: info.and_then(|info| info.tx_attr.as_ref()),
                rx: info.and_then(|info| info.rx_attr.as_ref()),
                ep: info.and_then(|info| info.ep_attr.as_ref()),
                domain,
                fabric: info.and_then(|info| info.fabric_attr.as_ref()),
                open,
            })
        }
    }
}

/// Says what was in the way.
pub(crate) fn refused(what: &str, asked: impl std::fmt::Display) -> Errno {
    log::info(format_args!("fi_getinfo: {what} {asked} is not possible"));
    Errno::NO_DATA
}

/// A set of bits, for the log.
pub(crate) struct Bits(pub u64);

impl std::fmt::Display for Bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
