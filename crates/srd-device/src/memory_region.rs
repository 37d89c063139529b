//! Protection domains and memory regions: which keys open which memory, and to whom.

use crate::api::*;
use srd_wire::{KeyedHash, MrKey};
use std::collections::HashMap;
use std::hash::Hasher;
use std::ops::Range;

/// A registered region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    key: MrKey,
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
    /// By what their keys are to descriptors.
    regions: HashMap<u32, Region, KeyedHash>,
    max_regions: u32,
    keys: KeySource,
}

/// The bits of a local key for which a descriptor has room (`efa_io_defs.h`, `EFA_IO_TX_BUF_DESC_LKEY_MASK`). No two regions
/// have the same, so that a program's own descriptors tell them apart; a remote key has all 32.
pub const DESCRIPTOR_BITS: u32 = 0x00FF_FFFF;

/// Where keys come from. All 32 bits are drawn, so that who has been given keys cannot tell any other: neither those of
/// other regions nor the next ones.
#[derive(Debug)]
struct KeySource {
    secret: [u64; 2],
    drawn: u64,
}

impl KeySource {
    /// SipHash-2-4 of a count, with the secret as its key.
    fn draw(&mut self) -> u32 {
        #[allow(deprecated)] // std has no other hash that takes a key
        let mut hasher = std::hash::SipHasher::new_with_keys(self.secret[0], self.secret[1]);
        hasher.write_u64(self.drawn);
        self.drawn += 1;
        hasher.finish() as u32
    }
}

#[derive(Debug, Default)]
struct Domain {
    /// Regions, queue pairs and address handles in it.
    users: u32,
}

impl Regions {
    pub fn new(max_domains: u32, max_regions: u32, hash: KeyedHash) -> Regions {
        let keys = KeySource { secret: [0; 2], drawn: 0 };
        Regions { domains: Vec::new(), max_domains, regions: HashMap::with_hasher(hash), max_regions, keys }
    }

    /// What keys are drawn from, from now on.
    pub fn set_secret(&mut self, secret: [u64; 2]) {
        self.keys = KeySource { secret, drawn: 0 };
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
        if self.regions.len() >= self.max_regions as usize {
            return Err(DeviceError::Full("memory regions (DeviceConfig::max_mr)"));
        }
        self.enter(pd)?;
        let key = loop {
            let key = self.keys.draw();
            // Above the bits of a descriptor, so that a whole key and what a descriptor holds of one are never the same number.
            if key > DESCRIPTOR_BITS
                && key & DESCRIPTOR_BITS != 0
                && !self.regions.contains_key(&(key & DESCRIPTOR_BITS))
            {
                break MrKey(key);
            }
        };
        self.regions.insert(key.0 & DESCRIPTOR_BITS, Region { key, pd, addr, len, iova, access });
        Ok(key)
    }

    pub fn deregister(&mut self, key: MrKey) -> Result<(), DeviceError> {
        let Some(&Region { pd, .. }) = self.get(key) else {
            return Err(DeviceError::NotFound("memory region: take the key from reg_mr"));
        };
        self.regions.remove(&(key.0 & DESCRIPTOR_BITS));
        self.leave(pd);
        Ok(())
    }

    /// Where a region really lies.
    #[inline]
    pub fn extent(&self, key: MrKey) -> Option<Range<u64>> {
        let region = self.get(key)?;
        Some(region.addr..region.addr + region.len)
    }

    #[inline]
    pub fn get(&self, key: MrKey) -> Option<&Region> {
        self.regions.get(&(key.0 & DESCRIPTOR_BITS)).filter(|region| region.key == key)
    }

    /// The whole of a key of which a descriptor holds the lower bits; 0, which is no region's, if there is none.
    pub fn of_descriptor(&self, bits: u32) -> MrKey {
        self.regions.get(&(bits & DESCRIPTOR_BITS)).map_or(MrKey(0), |region| region.key)
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
    use std::collections::HashSet;

    const ALL: Access = Access { local_write: true, remote_read: true, remote_write: true };

    #[test]
    fn a_key_that_has_gone_opens_nothing() {
        let mut regions = Regions::new(1, 10, KeyedHash::new(1));
        let pd = regions.alloc_pd().unwrap();
        let mut last = MrKey(0);
        for _ in 0..100_000 {
            let key = regions.register(pd, 0, 8, 0, ALL).unwrap();
            assert_ne!(key, MrKey(0));
            assert!(regions.get(last).is_none());
            regions.deregister(key).unwrap();
            last = key;
        }
        assert!(matches!(regions.deregister(last), Err(DeviceError::NotFound(_))));
    }

    #[test]
    fn keys_are_drawn_from_all_32_bits_by_the_secret_alone() {
        let keys = |secret| {
            let mut regions = Regions::new(1, 1 << 16, KeyedHash::new(1));
            regions.set_secret(secret);
            let pd = regions.alloc_pd().unwrap();
            (0..1 << 16).map(|_| regions.register(pd, 0, 8, 0, ALL).unwrap().0).collect::<Vec<u32>>()
        };
        let (one, other) = (keys([1, 2]), keys([1, 3]));
        assert_eq!(one, keys([1, 2]));
        let known: HashSet<u32> = one.iter().copied().collect();
        let same = other.iter().filter(|key| known.contains(key)).count();
        assert!(same < 10, "65,536 of 2^32 each: one is expected to be in both, not {same}");
        // Each bit is set in half of the keys, within six standard deviations, and so is the difference to the next one's.
        for bit in 0..32 {
            let set = one.iter().filter(|&key| key >> bit & 1 == 1).count();
            let changes = one.windows(2).filter(|pair| (pair[0] ^ pair[1]) >> bit & 1 == 1).count();
            for count in [set, changes] {
                assert!((32_768 - 768..32_768 + 768).contains(&count), "bit {bit}: {count} of 65,536");
            }
        }
    }

    #[test]
    fn a_descriptor_names_a_region_by_24_bits_of_its_key() {
        let mut regions = Regions::new(1, 1 << 12, KeyedHash::new(1));
        let pd = regions.alloc_pd().unwrap();
        let keys: Vec<MrKey> = (0..1 << 12).map(|_| regions.register(pd, 0, 8, 0, ALL).unwrap()).collect();
        for &key in &keys {
            assert_eq!(regions.of_descriptor(key.0 & 0xFF_FFFF), key);
            assert!(
                regions.get(MrKey(key.0 ^ 1 << 31)).is_none(),
                "the others are needed, too, by who is not the program"
            );
        }
        regions.deregister(keys[0]).unwrap();
        assert_eq!(regions.of_descriptor(keys[0].0 & 0xFF_FFFF), MrKey(0));
    }

    #[test]
    fn a_region_is_named_by_iova_and_lies_at_addr() {
        let mut regions = Regions::new(1, 10, KeyedHash::new(1));
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
        let mut regions = Regions::new(1, 2, KeyedHash::new(1));
        let pd = regions.alloc_pd().unwrap();
        assert!(matches!(regions.alloc_pd(), Err(DeviceError::Full(_))));
        let a = regions.register(pd, 0, 1, 0, ALL).unwrap();
        regions.register(pd, 0, 1, 0, ALL).unwrap();
        assert!(matches!(regions.register(pd, 0, 1, 0, ALL), Err(DeviceError::Full(_))));
        regions.deregister(a).unwrap();
        regions.register(pd, 0, 1, 0, ALL).unwrap();
    }
}
