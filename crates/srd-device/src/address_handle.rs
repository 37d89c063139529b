//! Address handles: the hosts that this device knows, by number and by GID. All handles of one host share a number, as
//! on EFA (`efa_com_create_ah`: the device answers the same destination with the same handle).

use crate::api::*;
use srd_proto::PeerId;
use srd_wire::{Gid, KeyedHash};
use std::collections::HashMap;

/// One host.
#[derive(Debug)]
pub(crate) struct Host {
    pub gid: Gid,
    /// How many handles each protection domain has.
    holders: Vec<(PdId, u32)>,
    /// Contexts with the instances of this host that messages have gone to, by our receive port's index and the slot
    /// of theirs. Some may have ended; who uses one finds out.
    contexts: Vec<Vec<Option<PeerId>>>,
}

impl Host {
    /// Whether a queue pair in `pd` may use the number.
    #[inline]
    pub fn is_open_to(&self, pd: PdId) -> bool {
        self.holders.iter().any(|&(holder, _)| holder == pd)
    }

    #[inline]
    pub fn context(&self, port: u8, slot: u16) -> Option<PeerId> {
        *self.contexts.get(port as usize)?.get(slot as usize)?
    }

    pub fn set_context(&mut self, port: u8, slot: u16, peer: PeerId) {
        let (port, slot) = (port as usize, slot as usize);
        if self.contexts.len() <= port {
            self.contexts.resize(port + 1, Vec::new());
        }
        let slots = &mut self.contexts[port];
        if slots.len() <= slot {
            slots.resize(slot + 1, None);
        }
        slots[slot] = Some(peer);
    }
}

/// All hosts.
#[derive(Debug)]
pub(crate) struct AddressHandles {
    hosts: Vec<Option<Host>>,
    free: Vec<u16>,
    by_gid: HashMap<Gid, u16, KeyedHash>,
    max_handles: u32,
    /// The number of each peer's host, by the peer's slot, as it was found last.
    of_peers: Vec<Found>,
    /// Changes with the set of hosts, so that what was found before does not count.
    epoch: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Found {
    generation: u32,
    epoch: u32,
    number: u16,
}

impl AddressHandles {
    pub fn new(max_handles: u32, hash: KeyedHash) -> AddressHandles {
        // 0xFFFF is no number: it says "none" in a completion.
        let max_handles = max_handles.min(AhNumber::NONE.0 as u32);
        AddressHandles {
            hosts: Vec::new(),
            free: Vec::new(),
            by_gid: HashMap::with_hasher(hash),
            max_handles,
            of_peers: Vec::new(),
            epoch: 1,
        }
    }

    pub fn create(&mut self, pd: PdId, gid: Gid) -> Result<AhNumber, DeviceError> {
        if gid.ip().is_unspecified() || gid.ip().is_multicast() {
            return Err(DeviceError::Invalid(
                "gid: the address of one host, neither unspecified nor multicast",
            ));
        }
        let number = match self.by_gid.get(&gid) {
            Some(&number) => number,
            None => self.add(gid)?,
        };
        let host = self.hosts[number as usize].as_mut().expect("numbers in the index are in use");
        match host.holders.iter_mut().find(|(holder, _)| *holder == pd) {
            Some((_, handles)) => *handles += 1,
            None => host.holders.push((pd, 1)),
        }
        Ok(AhNumber(number))
    }

    fn add(&mut self, gid: Gid) -> Result<u16, DeviceError> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if (self.hosts.len() as u32) < self.max_handles => {
                self.hosts.push(None);
                (self.hosts.len() - 1) as u16
            }
            None => return Err(DeviceError::Full("address handles (DeviceConfig::max_ah)")),
        };
        self.hosts[number as usize] =
            Some(Host { gid, holders: Vec::with_capacity(1), contexts: Vec::new() });
        self.epoch += 1;
        self.by_gid.insert(gid, number);
        Ok(number)
    }

    /// Gives one handle of `pd` back. Returns whether it was the last one of all.
    pub fn destroy(&mut self, pd: PdId, ah: AhNumber) -> Result<Last, DeviceError> {
        let not_found =
            DeviceError::NotFound("address handle: this protection domain has none of that number");
        let host = self.hosts.get_mut(ah.0 as usize).and_then(Option::as_mut).ok_or(not_found)?;
        let at = host.holders.iter().position(|&(holder, _)| holder == pd).ok_or(not_found)?;
        host.holders[at].1 -= 1;
        if host.holders[at].1 > 0 {
            return Ok(Last::No);
        }
        host.holders.swap_remove(at);
        if !host.holders.is_empty() {
            return Ok(Last::OfDomain);
        }
        let gid = host.gid;
        self.by_gid.remove(&gid);
        self.hosts[ah.0 as usize] = None;
        self.free.push(ah.0);
        self.epoch += 1;
        Ok(Last::OfDevice)
    }

    #[inline]
    pub fn get(&self, ah: AhNumber) -> Option<&Host> {
        self.hosts.get(ah.0 as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, ah: AhNumber) -> Option<&mut Host> {
        self.hosts.get_mut(ah.0 as usize)?.as_mut()
    }

    /// The number of a peer's host.
    #[inline]
    pub fn number_of(&mut self, peer: PeerId, gid: Gid) -> AhNumber {
        if let Some(found) = self.of_peers.get(peer.slot as usize)
            && (found.generation, found.epoch) == (peer.generation, self.epoch)
        {
            return AhNumber(found.number);
        }
        self.look_up(peer, gid)
    }

    fn look_up(&mut self, peer: PeerId, gid: Gid) -> AhNumber {
        let number = self.by_gid.get(&gid).map_or(AhNumber::NONE.0, |&number| number);
        let slot = peer.slot as usize;
        if self.of_peers.len() <= slot {
            self.of_peers.resize(slot + 1, Found::default());
        }
        self.of_peers[slot] = Found { generation: peer.generation, epoch: self.epoch, number };
        AhNumber(number)
    }
}

/// Which handle was given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Last {
    /// The domain has more of them.
    No,
    /// The domain's last one; other domains have some.
    OfDomain,
    /// The last one at all.
    OfDevice,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(n: u8) -> Gid {
        Gid::from(std::net::IpAddr::from([10, 0, 0, n]))
    }

    #[test]
    fn handles_of_one_host_share_a_number_over_domains() {
        let mut handles = AddressHandles::new(8, KeyedHash::new(1));
        let (p, q) = (PdId(0), PdId(1));
        let a = handles.create(p, gid(1)).unwrap();
        assert_eq!(handles.create(p, gid(1)), Ok(a));
        assert_eq!(handles.create(q, gid(1)), Ok(a));
        assert_ne!(handles.create(p, gid(2)), Ok(a));
        assert_eq!(handles.destroy(p, a), Ok(Last::No));
        assert_eq!(handles.destroy(p, a), Ok(Last::OfDomain));
        assert!(handles.destroy(p, a).is_err());
        let peer = PeerId { slot: 3, generation: 5 };
        assert_eq!(handles.number_of(peer, gid(1)), a);
        assert_eq!(handles.number_of(peer, gid(1)), a);
        assert_eq!(handles.destroy(q, a), Ok(Last::OfDevice));
        assert_eq!(handles.number_of(peer, gid(1)), AhNumber::NONE);
        assert!(handles.get(a).is_none());
        let b = handles.create(p, gid(1)).unwrap();
        assert_eq!(handles.number_of(peer, gid(1)), b);
        assert_eq!(handles.number_of(PeerId { generation: 6, ..peer }, gid(3)), AhNumber::NONE);
    }

    #[test]
    fn a_full_table_and_a_multicast_address_are_refused() {
        let mut handles = AddressHandles::new(1, KeyedHash::new(1));
        handles.create(PdId(0), gid(1)).unwrap();
        assert!(matches!(handles.create(PdId(0), gid(2)), Err(DeviceError::Full(_))));
        let multicast = Gid::from(std::net::IpAddr::from([224, 0, 0, 1]));
        assert!(matches!(handles.create(PdId(0), multicast), Err(DeviceError::Invalid(_))));
        assert!(matches!(handles.create(PdId(0), Gid::default()), Err(DeviceError::Invalid(_))));
    }
}
