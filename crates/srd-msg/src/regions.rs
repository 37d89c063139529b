//! Memory that peers may reach: by the keys that programs give it, or by those of the device.
//!
//! A peer reads and writes a region through the device, which knows 32-bit keys of its own. A key that the provider
//! chooses says which: its upper half is [`OURS`], its lower half the device's key. A key that the program chooses says
//! nothing, so peers ask for what is behind it once ([`crate::header::Body::KeyQuery`]).

use crate::api::{Counted, Refused, RegionId, Registration, RemoteRights};
use crate::matching::FastMap;
use srd_device::accelerator::unmarked;
use srd_device::slab::{Key, Slab};
use srd_device::{Access, Device, DeviceError, PdId, Store};
use srd_wire::{KeyedHash, MrKey};
use std::ops::Range;

/// Upper half of a key that was not the program's choice ("SRD" and a bit that no count of anything reaches).
const OURS: u64 = 0xD352_4400 << 32;

/// The device's key in a key that the provider chose.
#[inline]
pub(crate) fn device_key_in(key: u64) -> Option<MrKey> {
    (key >> 32 << 32 == OURS).then_some(MrKey(key as u32))
}

#[derive(Debug)]
struct Region {
    addr: u64,
    len: u64,
    /// How peers name its first byte.
    base: u64,
    rights: RemoteRights,
    key: u64,
    /// Only what peers may reach is registered with the device.
    device_key: Option<MrKey>,
    /// What of peers' doing is counted, and what comes back with that.
    counted: Counted,
    context: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Regions {
    regions: Slab<Region>,
    /// Those that peers may reach.
    by_key: FastMap<u64, Key>,
    /// Numbers of regions that peers may not reach.
    local: u32,
}

/// Why a peer does not get at a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Denied {
    NoSuchKey,
    NotPermitted,
}

impl Regions {
    pub fn new(hash: KeyedHash) -> Regions {
        Regions { regions: Slab::new(), by_key: FastMap::with_hasher(hash), local: 0 }
    }

    pub fn register<M: Store>(
        &mut self,
        device: &mut Device<M>,
        pd: PdId,
        new: &Registration,
    ) -> Result<(RegionId, u64), Refused> {
        let remote = new.rights.read || new.rights.write;
        if remote && new.key.is_some_and(|key| self.by_key.contains_key(&key)) {
            return Err(Refused::KeyTaken);
        }
        let base = if new.virtual_addresses { unmarked(new.addr) } else { 0 };
        let device_key = remote.then(|| {
            let access =
                Access { local_write: true, remote_read: new.rights.read, remote_write: new.rights.write };
            device.reg_mr(pd, new.addr, new.len, base, access)
        });
        let device_key = device_key.transpose().map_err(|error| match error {
            DeviceError::Full(what) => Refused::NoMemory(what),
            _ => Refused::Invalid("region: must end below 2^64"),
        })?;
        let key = match (new.key, device_key) {
            (Some(key), _) => key,
            (None, Some(device_key)) => OURS | device_key.0 as u64,
            (None, None) => {
                // Above the device's keys, which are 24 bits.
                self.local = self.local.wrapping_add(1);
                OURS | 0xFF00_0000 | (self.local & 0x00FF_FFFF) as u64
            }
        };
        let region = Region {
            addr: new.addr,
            len: new.len,
            base,
            rights: new.rights,
            key,
            device_key,
            counted: Counted::default(),
            context: 0,
        };
        let id = self.regions.insert(region);
        if remote {
            self.by_key.insert(key, id);
        }
        Ok((RegionId { index: id.index, generation: id.generation }, key))
    }

    pub fn deregister<M: Store>(&mut self, device: &mut Device<M>, id: RegionId) -> Result<(), Refused> {
        let id = Key { index: id.index, generation: id.generation };
        let region = self.regions.remove(id).ok_or(Refused::Invalid("region: no such registration"))?;
        if let Some(device_key) = region.device_key {
            self.by_key.remove(&region.key);
            let _ = device.dereg_mr(device_key);
        }
        Ok(())
    }

    /// The device's key behind a key, and what is counted there.
    pub fn behind(&self, key: u64) -> Option<(MrKey, Counted)> {
        let region = self.regions.get(*self.by_key.get(&key)?)?;
        Some((region.device_key?, region.counted))
    }

    pub fn count_in(&mut self, id: RegionId, counted: Counted, context: u64) {
        let id = Key { index: id.index, generation: id.generation };
        if let Some(region) = self.regions.get_mut(id) {
            (region.counted, region.context) = (counted, context);
        }
    }

    /// The context of the region behind a key, if it counts that.
    pub fn counts(&self, key: u64, read: bool) -> Option<u64> {
        let region = self.regions.get(*self.by_key.get(&key)?)?;
        region.counted.has(read).then_some(region.context)
    }

    /// Where `len` bytes that a peer names by `addr` lie.
    pub fn locate(&self, key: u64, addr: u64, len: u64, needed: RemoteRights) -> Result<Range<u64>, Denied> {
        let region = self.by_key.get(&key).and_then(|&id| self.regions.get(id)).ok_or(Denied::NoSuchKey)?;
        let offset = addr
            .checked_sub(region.base)
            .filter(|&offset| offset <= region.len && len <= region.len - offset)
            .ok_or(Denied::NotPermitted)?;
        if needed.read && !region.rights.read || needed.write && !region.rights.write {
            return Err(Denied::NotPermitted);
        }
        let start = region.addr.wrapping_add(offset);
        Ok(start..start.wrapping_add(len))
    }
}
