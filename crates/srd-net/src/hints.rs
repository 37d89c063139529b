//! What a person should know when peers do not understand each other or fall silent: what it may be, and what to do.

use crate::address::is_private;
use crate::log::{self, Kind};
use crate::simulated;
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

/// In place of the names of further peers that are silent.
macro_rules! rest {
    ($what:literal) => {
        Kind::new(concat!(
            "further peers that ",
            $what,
            " are not named, only counted when they are given up: unresponsive_remote_events in SRD_STATS and `srd top --json`"
        ))
    };
}

/// Packets of a message to a peer have not got through, though shorter ones have.
#[cold]
pub fn unsendable(peer: InstanceAddr) {
    static TO_MANY: Kind = Kind::new("messages to further peers have failed in the same way");
    TO_MANY.warn(format_args!(
        "a message to {peer} has failed: packets of its length are lost again and again, and others arrive. A part of the way takes shorter ones \
         than before, and no answer (ICMP) says so: start the program again, with SRD_MTU set to what the way takes if that is below 1280"
    ));
}

/// A peer has not answered for some seconds. `here`: it is one of this host's.
#[cold]
pub fn silent(peer: InstanceAddr, here: bool, answered_before: bool, timeout: Nanos) {
    static STOPPED: Kind = rest!("stop answering");
    static NOT_HERE: Kind = rest!("do not answer on this host");
    static NOT_THERE: Kind = rest!("do not answer");
    let limit = timeout.0 / 1_000_000_000;
    if answered_before {
        STOPPED.warn(format_args!(
            "{peer} has stopped answering; if it does not go on within {limit} s, messages to it fail \
             (SRD_PEER_TIMEOUT_S)"
        ));
    } else if simulated::known().is_some() {
        NOT_THERE.warn(format_args!(
            "{peer} does not answer. Does its process live, and is there a way to it in the simulated fabric, in spite of its faults? \
             After {limit} s of simulated time messages to it fail (SRD_PEER_TIMEOUT_S)"
        ));
    } else if here {
        NOT_HERE.warn(format_args!(
            "{peer}, on this host, does not answer. Has its process ended, or has it another key (SRD_KEY_FILE)? After \
             {limit} s messages to it fail (SRD_PEER_TIMEOUT_S)"
        ));
    } else {
        NOT_THERE.warn(format_args!(
            "{peer} does not answer. Does its process live, does it use the same key (SRD_KEY_FILE), and do firewalls \
             let UDP pass? `srd doctor {}` tests the way. After {limit} s messages to it fail (SRD_PEER_TIMEOUT_S)",
            peer.gid.ip()
        ));
    }
}

/// A peer has been given up.
#[cold]
pub fn unresponsive(peer: InstanceAddr, answered_before: bool) {
    static STOPPED: Kind = rest!("have not answered for too long");
    static NEVER: Kind = rest!("never answered");
    if answered_before {
        STOPPED.warn(format_args!(
            "{peer} has not answered for too long: what is on its way to it over the network fails (status 13, unresponsive)"
        ));
    } else {
        NEVER.warn(format_args!(
            "{peer} never answered: messages to it end with an error (status 15, unreachable)"
        ));
    }
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
