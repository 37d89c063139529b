//! What the contexts of an endpoint have in common.

use crate::active_senders::{ActiveSenders, Counted};
use crate::events::Trace;
use crate::identity::Identities;
use crate::{Config, OwnAddress, Stats};
use rand::rngs::SmallRng;
use srd_wire::{Gid, InstanceAddr, KeyedHash, Time};

/// See the module.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) identities: Identities,
    /// Of tables whose keys peers choose.
    pub(crate) hash: KeyedHash,
    pub(crate) ports: Vec<u16>,
    /// Our own address: this instance's own packets are welcome from there.
    pub(crate) own_host: Option<Gid>,
    pub(crate) stats: Stats,
    pub(crate) rng: SmallRng,
    pub(crate) load: ActiveSenders,
    pub(crate) trace: Trace,
    /// When the packet that is being handled came to the network card.
    pub(crate) arrived: Time,
    /// When the host looked at it.
    pub(crate) seen: Time,
    /// Messages of more than one packet that are remembered, of all peers.
    pub(crate) reassemblies: usize,
    /// Towards whom a message has failed of late because its packets did not get through, though others did.
    pub(crate) unsendable: Option<InstanceAddr>,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        identities: Identities,
        hash: KeyedHash,
        ports: &[u16],
        rng: SmallRng,
    ) -> Shared {
        Shared {
            config,
            identities,
            hash,
            ports: ports.to_vec(),
            own_host: None,
            stats: Stats::default(),
            rng,
            load: ActiveSenders::default(),
            arrived: Time(0),
            seen: Time(0),
            reassemblies: 0,
            unsendable: None,
            trace: Trace::default(),
        }
    }

    /// Whether what comes from there has been on no link.
    pub(crate) fn is_near(&self, gid: Gid) -> bool {
        self.config.own_address != OwnAddress::OverLink && self.own_host == Some(gid)
    }

    /// Whether what goes to such a peer is limited and lost by nothing.
    pub(crate) fn is_by_memory(&self, peer: &Counted) -> bool {
        peer.is_near() && self.config.own_address == OwnAddress::ByMemory
    }

    #[cfg(test)]
    pub(crate) fn for_tests(config: Config) -> Shared {
        use rand::SeedableRng;
        let identities = Identities::new(srd_wire::Incarnation(1), 1, false);
        Shared::new(config, identities, KeyedHash::new(1), &[1], SmallRng::seed_from_u64(1))
    }

    /// Bytes by which sealing makes a packet longer, at most.
    pub(crate) fn seal_bytes(&self) -> u16 {
        if self.config.confirm_first { srd_wire::seal::overhead(true) as u16 } else { 0 }
    }
}
