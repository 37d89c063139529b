//! What a person should know when peers do not understand each other or fall silent: what it may be, and what to do.

use crate::address::is_private;
use crate::log;
use srd_device::AsyncEvent;
use srd_wire::codec::DecodeError;
use srd_wire::seal::OpenError;
use srd_wire::{Gid, InstanceAddr, Nanos};
use std::net::IpAddr;

/// An instance has no key, and this address.
#[cold]
pub fn in_clear(own: IpAddr) {
    if !is_private(own) {
        log::warn_once(format_args!(
            "{own} is no private address, and there is no key: whoever is on the way of packets can read them and forge \
             others, also into this program's memory. `srd key new` makes a key, SRD_KEY_FILE names it on all hosts"
        ));
    }
}

/// A peer has not answered for some seconds. `here`: it is one of this host's.
#[cold]
pub fn silent(peer: InstanceAddr, here: bool, answered_before: bool, timeout: Nanos) {
    let limit = timeout.0 / 1_000_000_000;
    if answered_before {
        log::warn_once(format_args!(
            "{peer} has stopped answering; if it does not go on within {limit} s, messages to it fail \
             (SRD_PEER_TIMEOUT_S)"
        ));
    } else if here {
        log::warn_once(format_args!(
            "{peer}, on this host, does not answer. Has its process ended, or has it another key (SRD_KEY_FILE)? After \
             {limit} s messages to it fail (SRD_PEER_TIMEOUT_S)"
        ));
    } else {
        log::warn_once(format_args!(
            "{peer} does not answer. Does its process live, does it use the same key (SRD_KEY_FILE), and do firewalls \
             let UDP pass? `srd doctor {}` tests the way. After {limit} s messages to it fail (SRD_PEER_TIMEOUT_S)",
            peer.gid.ip()
        ));
    }
}

/// The device has raised an event.
#[inline]
pub fn event(event: &AsyncEvent) {
    if let AsyncEvent::RemoteUnresponsive { peer, answered_before } = event {
        unresponsive(*peer, *answered_before);
    }
}

#[cold]
fn unresponsive(peer: InstanceAddr, answered_before: bool) {
    let since = if answered_before { "has not answered for too long" } else { "never answered" };
    log::warn_once(format_args!(
        "{peer} {since}: messages to it end with an error (status {})",
        if answered_before { "13, unresponsive" } else { "15, unreachable" }
    ));
}

/// Which hints about keys have been given. One of each is enough, whoever sends what.
#[derive(Default)]
pub struct KeyHints {
    wrong_key: bool,
    not_sealed: bool,
    sealed: bool,
}

impl KeyHints {
    /// A sealed packet could not be opened.
    #[cold]
    pub fn not_opened(&mut self, from: Gid, error: OpenError) {
        match error {
            OpenError::WrongKey if !std::mem::replace(&mut self.wrong_key, true) => {
                log::warn_once(format_args!(
                    "a packet from {} is sealed with another key, or was changed on its way: SRD_KEY_FILE must name the \
                 same key on all hosts",
                    from.ip()
                ))
            }
            OpenError::NotSealed if !std::mem::replace(&mut self.not_sealed, true) => {
                log::warn_once(format_args!(
                    "a packet from {} is not sealed, and is refused: set SRD_KEY_FILE there, or unset it here",
                    from.ip()
                ))
            }
            _ => {}
        }
    }

    /// A packet could not be decoded.
    #[cold]
    pub fn not_decoded(&mut self, from: Gid, error: DecodeError) {
        if error == DecodeError::Sealed && !std::mem::replace(&mut self.sealed, true) {
            log::warn_once(format_args!(
                "a packet from {} is sealed with a key, and there is none here: set SRD_KEY_FILE to the same key, or \
                 unset it there",
                from.ip()
            ));
        }
    }
}
