//! Protection domains and memory regions: which keys open which memory, and to whom.

use crate::api::*;
use srd_wire::MrKey;
use std::ops::Range;

/// A registered region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub pd: PdId,
    addr: u64,
    len: u64,
    iova: u64,
    access: Access,
}

impl Region {
    /// Where the `len` bytes that are named by `at` really lie, if the region holds them all.
    #[inline]
    fn locate(&self, at: u64, len: u32) -> Option<Piece> {
        let offset = at.checked_sub(self.iova)?;
        (offset <= self.len && len as u64 <= self.len - offset)
            .then(|| Piece { addr: self.addr.wrapping_add(offset), len })
    }
}

/// Keys are 24 bits (`efa_io_defs.h`: lkey 23:0); the low ones name the slot, the others count its uses, so that a key
/// that is used after its region has gone is found out.
const KEY_BITS: u32 = 24;

/// What a peer wants to do with a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RemoteAccess {
    Read,
    Write,
}

/// All protection domains and regions.
#[derive(Debug)]
pub(crate) struct Regions {
    domains: Vec<Option<Domain>>,
    max_domains: u32,
    /// Slot 0 stays empty, so that no key is 0.
    slots: Vec<Slot>,
    free: Vec<u32>,
    max_regions: u32,
    slot_bits: u32,
}

#[derive(Debug, Default)]
struct Domain {
    /// Regions, queue pairs and address handles in it.
    users: u32,
}

#[derive(Debug)]
struct Slot {
    key: u32,
    region: Option<Region>,
}

impl Regions {
    pub fn new(max_domains: u32, max_regions: u32) -> Regions {
        let max_regions = max_regions.min((1 << KEY_BITS) - 1);
        Regions {
            domains: Vec::new(),
            max_domains,
            slots: vec![Slot { key: 0, region: None }],
            free: Vec::new(),
            max_regions,
            slot_bits: 32 - max_regions.leading_zeros(),
        }
    }

    pub fn alloc_pd(&mut self) -> Result<PdId, DeviceError> {
        let index = match self.domains.iter().position(Option::is_none) {
            Some(index) => index,
            None if (self.domains.len() as u32) < self.max_domains => {
                self.domains.push(None);
                self.domains.len() - 1
            }
            None => return Err(DeviceError::Full("protection domains (DeviceConfig::max_pd)")),
        };
        self.domains[index] = Some(Domain::default());
        Ok(PdId(index as u32))
    }

    /// Refuses while regions, queue pairs or address handles are in it, as the kernel does.
    pub fn dealloc_pd(&mut self, pd: PdId) -> Result<(), DeviceError> {
        match self.domain(pd)?.users {
            0 => self.domains[pd.0 as usize] = None,
            _ => {
                return Err(DeviceError::Busy(
                    "protection domain: a region, queue pair or address handle is in it",
                ));
            }
        }
        Ok(())
    }

    fn domain(&mut self, pd: PdId) -> Result<&mut Domain, DeviceError> {
        self.domains
            .get_mut(pd.0 as usize)
            .and_then(Option::as_mut)
            .ok_or(DeviceError::NotFound("protection domain: take the number from alloc_pd"))
    }

    /// Whether there is such a domain.
    pub fn check_pd(&mut self, pd: PdId) -> Result<(), DeviceError> {
        self.domain(pd).map(|_| ())
    }

    /// An object is in the domain now.
    pub fn enter(&mut self, pd: PdId) -> Result<(), DeviceError> {
        self.domain(pd)?.users += 1;
        Ok(())
    }

    /// An object has left the domain.
    pub fn leave(&mut self, pd: PdId) {
        let domain = self.domains[pd.0 as usize].as_mut().expect("a domain with something in it stays");
        domain.users = domain.users.checked_sub(1).expect("what leaves has entered");
    }

    pub fn register(
        &mut self,
        pd: PdId,
        addr: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<MrKey, DeviceError> {
        self.check_pd(pd)?;
        if addr.checked_add(len).is_none() || iova.checked_add(len).is_none() {
            return Err(DeviceError::Invalid("len: the region must end below 2^64"));
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if (self.slots.len() as u32) <= self.max_regions => {
                let index = self.slots.len() as u32;
                self.slots.push(Slot { key: index, region: None });
                index
            }
            None => return Err(DeviceError::Full("memory regions (DeviceConfig::max_mr)")),
        };
        self.enter(pd)?;
        let slot = &mut self.slots[index as usize];
        slot.region = Some(Region { pd, addr, len, iova, access });
        Ok(MrKey(slot.key))
    }

    pub fn deregister(&mut self, key: MrKey) -> Result<(), DeviceError> {
        let index = self.index(key);
        let region =
            self.slots.get_mut(index).filter(|slot| slot.key == key.0).and_then(|slot| slot.region.take());
        let Some(region) = region else {
            return Err(DeviceError::NotFound("memory region: take the key from reg_mr"));
        };
        let slot = &mut self.slots[index];
        slot.key = (slot.key + (1 << self.slot_bits)) & ((1 << KEY_BITS) - 1);
        self.free.push(index as u32);
        self.leave(region.pd);
        Ok(())
    }

    /// Where a region really lies.
    #[inline]
    pub fn extent(&self, key: MrKey) -> Option<Range<u64>> {
        let region = self.slots.get(self.index(key)).filter(|slot| slot.key == key.0)?.region.as_ref()?;
        Some(region.addr..region.addr + region.len)
    }

    #[inline]
    fn index(&self, key: MrKey) -> usize {
        (key.0 & ((1 << self.slot_bits) - 1)) as usize
    }

    #[inline]
    pub fn get(&self, key: MrKey) -> Option<&Region> {
        self.slots.get(self.index(key)).filter(|slot| slot.key == key.0)?.region.as_ref()
    }

    /// The memory of a local element, if its key covers it and permits the access. An element without bytes opens
    /// nothing, so that its key does not matter.
    #[inline]
    pub fn local(&self, pd: PdId, sge: &Sge, write: bool) -> Option<Piece> {
        if sge.len == 0 {
            return Some(Piece::default());
        }
        let region = self.get(sge.lkey)?;
        (region.pd == pd && (region.access.local_write || !write)).then_some(())?;
        region.locate(sge.addr, sge.len)
    }

    /// The memory that a peer names by `rkey` and `addr`, if the queue pair it speaks to (in `pd`) opens it.
    #[inline]
    pub fn remote(&self, pd: PdId, rkey: MrKey, addr: u64, len: u32, access: RemoteAccess) -> Option<Piece> {
        if len == 0 {
            return Some(Piece::default());
        }
        let region = self.get(rkey)?;
        let permitted = match access {
            RemoteAccess::Read => region.access.remote_read,
            RemoteAccess::Write => region.access.remote_write,
        };
        (region.pd == pd && permitted).then_some(())?;
        region.locate(addr, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Access = Access { local_write: true, remote_read: true, remote_write: true };

    #[test]
    fn a_key_is_24_bits_and_never_zero_and_stale_ones_are_found_out() {
        let mut regions = Regions::new(1, 10);
        let pd = regions.alloc_pd().unwrap();
        let mut last = MrKey(0);
        for _ in 0..100_000 {
            let key = regions.register(pd, 0, 8, 0, ALL).unwrap();
            assert!(key.0 != 0 && key.0 < 1 << 24);
            assert_ne!(key, last);
            assert!(regions.get(last).is_none());
            regions.deregister(key).unwrap();
            last = key;
        }
        assert!(matches!(regions.deregister(last), Err(DeviceError::NotFound(_))));
    }

    #[test]
    fn a_region_is_named_by_iova_and_lies_at_addr() {
        let mut regions = Regions::new(1, 10);
        let pd = regions.alloc_pd().unwrap();
        let key = regions.register(pd, 0x7000, 16, 0x100, ALL).unwrap();
        let local = |addr, len| regions.local(pd, &Sge { addr, len, lkey: key }, true);
        assert_eq!(local(0x104, 12), Some(Piece { addr: 0x7004, len: 12 }));
        assert_eq!(local(0x104, 13), None);
        assert_eq!(local(0xff, 4), None);
        assert_eq!(local(0x110, 1), None);
        assert_eq!(local(u64::MAX, u32::MAX), None);
        // No bytes, no key.
        assert_eq!(regions.local(pd, &Sge::default(), true), Some(Piece::default()));
    }

    #[test]
    fn a_full_table_says_so_and_a_freed_slot_is_used_again() {
        let mut regions = Regions::new(1, 2);
        let pd = regions.alloc_pd().unwrap();
        assert!(matches!(regions.alloc_pd(), Err(DeviceError::Full(_))));
        let a = regions.register(pd, 0, 1, 0, ALL).unwrap();
        regions.register(pd, 0, 1, 0, ALL).unwrap();
        assert!(matches!(regions.register(pd, 0, 1, 0, ALL), Err(DeviceError::Full(_))));
        regions.deregister(a).unwrap();
        regions.register(pd, 0, 1, 0, ALL).unwrap();
    }
}
