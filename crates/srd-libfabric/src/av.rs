//! Address vectors (fi_av(3)). An fi_addr_t is an index into the vector, for FI_AV_MAP as for FI_AV_TABLE; each endpoint
//! keeps beside it what the messaging layer calls that peer.

use crate::address::{self, Address};
use crate::boundary::{
    Absent, Errno, Outcome, abi, array, copy_out_text, object, readable, text, value_or, writable,
};
use crate::constants::*;
use crate::domain::{Domain, Shared};
use crate::endpoint::Core;
use crate::eq::{Eq, Events};
use crate::layout::*;
use libc::{c_char, c_int, c_void};
use srd_msg::PeerAddr;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

#[repr(C)]
pub(crate) struct Av {
    fid: fid_av,
    domain: Arc<Shared>,
    pub vector: Arc<Vector>,
    /// Insertions complete through the event queue.
    asynchronous: bool,
    events: Mutex<Option<Arc<Events>>>,
}

/// What endpoints keep of it.
#[derive(Default)]
pub(crate) struct Vector {
    table: Mutex<Table>,
    endpoints: Mutex<Vec<Weak<Core>>>,
}

/// Addresses by index. The same address inserted again has the same index, and stays until it has been removed as often.
#[derive(Default)]
struct Table {
    slots: Vec<Option<Slot>>,
    by_addr: HashMap<PeerAddr, usize>,
    free: Vec<usize>,
}

struct Slot {
    addr: PeerAddr,
    times: u32,
}

impl Table {
    /// Returns the index, and whether the address is new.
    fn insert(&mut self, addr: PeerAddr) -> (usize, bool) {
        if let Some(&index) = self.by_addr.get(&addr)
            && let Some(slot) = &mut self.slots[index]
        {
            slot.times += 1;
            return (index, false);
        }
        let slot = Some(Slot { addr, times: 1 });
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.by_addr.insert(addr, index);
        (index, true)
    }

    fn get(&self, index: u64) -> Option<PeerAddr> {
        self.slots.get(usize::try_from(index).ok()?)?.as_ref().map(|slot| slot.addr)
    }

    /// Returns whether the address has gone.
    fn remove(&mut self, index: u64) -> Outcome<bool> {
        let index = index as usize;
        let slot = self.slots.get_mut(index).and_then(Option::as_mut).ok_or(Errno::INVALID)?;
        slot.times -= 1;
        if slot.times > 0 {
            return Ok(false);
        }
        let addr = slot.addr;
        self.slots[index] = None;
        self.by_addr.remove(&addr);
        self.free.push(index);
        Ok(true)
    }
}

impl Vector {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address with that fi_addr_t.
    pub fn get(&self, index: u64) -> Option<PeerAddr> {
        self.table().get(index)
    }

    /// All fi_addr_t.
    pub fn indices(&self) -> Vec<u64> {
        let table = self.table();
        (0..table.slots.len() as u64).filter(|&index| table.get(index).is_some()).collect()
    }

    /// An endpoint is bound to it.
    pub fn enter(&self, endpoint: Weak<Core>) {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.retain(|endpoint| endpoint.strong_count() > 0);
        endpoints.push(endpoint);
    }

    /// Tells all endpoints, which are referred to meanwhile.
    fn tell(&self, tell: impl Fn(&Core) -> Outcome<()>) -> Outcome<()> {
        let endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.iter().filter_map(Weak::upgrade).try_for_each(|endpoint| tell(&endpoint))
    }

    /// Whether something that the program has made, an alias, refers to an endpoint. That it is being told of an address does
    /// not count.
    pub fn is_in_use(&self, endpoint: &Arc<Core>) -> bool {
        let _nobody_tells = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::strong_count(endpoint) > 1
    }

    fn insert(&self, addr: PeerAddr) -> Outcome<u64> {
        let (index, new) = self.table().insert(addr);
        if new {
            self.tell(|endpoint| endpoint.introduce(index as u64))?;
        }
        Ok(index as u64)
    }

    fn remove(&self, index: u64) -> Outcome<()> {
        if self.table().remove(index)? {
            self.tell(|endpoint| endpoint.forget(index))?;
        }
        Ok(())
    }
}

impl Av {
    /// # Safety
    /// The pointer is NULL or points to a live vector of ours.
    pub unsafe fn of<'a>(pointer: *mut fid_av) -> Outcome<&'a Av> {
        // SAFETY: as the caller says; `fid` is the first field.
        unsafe { object(pointer) }
    }

    pub fn domain(&self) -> &Arc<Shared> {
        &self.domain
    }

    fn check(&self, addr: Option<Address>) -> Outcome<PeerAddr> {
        // To an unspecified address or port 0 nobody can send.
        addr.filter(|Address { at: addr, .. }| {
            addr.is_ipv6() == self.domain.ip.is_ipv6() && !addr.ip().is_unspecified() && addr.port() != 0
        })
        .map(address::to_peer)
        .ok_or(Errno::INVALID)
    }

    /// Inserts addresses and tells the program what became of each, as it wants to be told.
    ///
    /// # Safety
    /// There is room for `count` addresses at `fi_addr`, if not NULL, and with FI_SYNC_ERR for as many numbers at `context`.
    unsafe fn insert_all(
        &self,
        addrs: &mut dyn Iterator<Item = Outcome<PeerAddr>>,
        fi_addr: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) -> Outcome<c_int> {
        if flags & !(FI_MORE | FI_SYNC_ERR) != 0 {
            return Err(BAD_FLAGS);
        }
        let each = flags & FI_SYNC_ERR != 0;
        if each && (self.asynchronous || context.is_null()) {
            return Err(Errno::INVALID);
        }
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let events = match self.asynchronous {
            true => Some(events.ok_or(Errno(FI_ENOEQ))?),
            false => None,
        };
        let fid = (&raw const self.fid).cast_mut().cast::<fid>();
        let mut inserted = 0;
        for (i, addr) in addrs.enumerate() {
            let outcome = addr.and_then(|addr| self.vector.insert(addr));
            // SAFETY: as the caller says.
            unsafe {
                if !fi_addr.is_null() {
                    *fi_addr.add(i) = outcome.unwrap_or(FI_ADDR_NOTAVAIL);
                }
                if each {
                    *context.cast::<c_int>().add(i) = outcome.err().map_or(0, |errno| errno.0);
                }
            }
            match outcome {
                Ok(_) => inserted += 1,
                Err(errno) => {
                    if let Some(events) = &events {
                        events.report_error(fid, context, i as u64, errno);
                    }
                }
            }
        }
        match events {
            None => Ok(inserted),
            Some(events) => {
                events.report(FI_AV_COMPLETE, fi_eq_entry { fid, context, data: inserted as u64 });
                Ok(0)
            }
        }
    }

    fn resolve(&self, node: &str, service: &str, flags: u64) -> Outcome<PeerAddr> {
        let ip = self.domain.ip;
        let found = address::resolve(Some(node), Some(service), flags & FI_NUMERICHOST != 0, false, Some(ip));
        self.check(Some(Address { at: found?, key: 0 }))
    }
}

/// The `n`th name from one on: the last number in it counts up, as fi_av_insertsym(3) has it, or the IP address does.
fn name_after(first: &str, n: usize) -> Option<String> {
    match first.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => {
            let ip = u32::from(v4).checked_add(u32::try_from(n).ok()?)?;
            return Some(IpAddr::from(ip.to_be_bytes()).to_string());
        }
        Ok(IpAddr::V6(v6)) => {
            return Some(IpAddr::from(u128::from(v6).checked_add(n as u128)?.to_be_bytes()).to_string());
        }
        Err(_) => {}
    }
    if n == 0 {
        return Some(first.to_owned());
    }
    // `node07` is followed by `node08`; what comes behind the number (`node07.cluster`) stays.
    let host = first.find('.').unwrap_or(first.len());
    let digits = first[..host].trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let number: usize = first[digits..host].parse().ok()?;
    Some(format!("{}{:0width$}{}", &first[..digits], number + n, &first[host..], width = host - digits))
}

static FID_OPS: fi_ops = fi_ops { close, bind, ..fi_ops::ABSENT };

static OPS: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert,
    insertsvc,
    insertsym,
    remove,
    lookup,
    straddr,
    av_set: Absent::ABSENT,
    insert_auth_key: Absent::ABSENT,
    lookup_auth_key: Absent::ABSENT,
    set_user_id: Absent::ABSENT,
    lookup2: Absent::ABSENT,
};

abi! {
    status fn open(domain: *mut fid_domain, attr: *mut fi_av_attr, av: *mut *mut fid_av, context: *mut c_void) {
        let domain = Domain::of(domain)?;
        let attr = writable(attr)?;
        // A vector with a name is shared between processes, one with receive contexts is for scalable endpoints.
        if !attr.name.is_null() || attr.rx_ctx_bits != 0 {
            return Err(Errno::NO_SYS);
        }
        if attr.r#type > FI_AV_TABLE {
            return Err(Errno::INVALID);
        }
        if attr.flags & !(FI_EVENT | FI_READ | FI_SYMMETRIC) != 0 {
            return Err(BAD_FLAGS);
        }
        if attr.r#type == 0 {
            attr.r#type = FI_AV_TABLE;
        }
        let made = Box::new(Av {
            fid: fid_av { fid: fid { fclass: FI_CLASS_AV, context, ops: &FID_OPS }, ops: &OPS },
            domain: domain.shared.clone(),
            vector: Arc::default(),
            asynchronous: attr.flags & FI_EVENT != 0,
            events: Mutex::new(None),
        });
        *writable(av)? = Box::into_raw(made).cast();
        Ok(())
    }

    closing fn close(fid: *mut fid) {
        if Arc::strong_count(&Av::of(fid.cast())?.vector) > 1 {
            return Err(Errno::BUSY);
        }
        drop(Box::from_raw(fid.cast::<Av>()));
        Ok(())
    }

    status fn bind(fid: *mut fid, other: *mut fid, flags: u64) {
        let av = Av::of(fid.cast())?;
        if readable(other)?.fclass != FI_CLASS_EQ || flags != 0 {
            return Err(Errno::INVALID);
        }
        let events = Eq::of(other.cast())?.events.clone();
        av.domain.engines.tell_of_failure(&events);
        *av.events.lock().unwrap_or_else(PoisonError::into_inner) = Some(events);
        Ok(())
    }

    number fn insert(
        av: *mut fid_av,
        addrs: *const c_void,
        count: usize,
        fi_addr: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) {
        let av = Av::of(av)?;
        let len = address::length_of(av.domain.ip);
        let bytes = array(addrs.cast::<u8>(), count.checked_mul(len).ok_or(Errno::INVALID)?)?;
        let mut each = bytes.chunks_exact(len).map(|one| av.check(address::from_bytes(one)));
        av.insert_all(&mut each, fi_addr, flags, context)
    }

    number fn insertsvc(
        av: *mut fid_av,
        node: *const c_char,
        service: *const c_char,
        fi_addr: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) {
        let av = Av::of(av)?;
        let (Some(node), Some(service)) = (text(node)?, text(service)?) else { return Err(Errno::INVALID) };
        let mut one = std::iter::once_with(|| av.resolve(node, service, flags));
        av.insert_all(&mut one, fi_addr, flags & !FI_NUMERICHOST, context)
    }

    number fn insertsym(
        av: *mut fid_av,
        node: *const c_char,
        nodes: usize,
        service: *const c_char,
        services: usize,
        fi_addr: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) {
        let av = Av::of(av)?;
        let (Some(node), Some(service)) = (text(node)?, text(service)?) else { return Err(Errno::INVALID) };
        let port: u16 = service.parse().map_err(|_| Errno::INVALID)?;
        let mut each = (0..nodes).flat_map(|n| (0..services).map(move |s| (n, s))).map(|(n, s)| {
            let node = name_after(node, n).ok_or(Errno::INVALID)?;
            let port = u16::try_from(s).ok().and_then(|s| port.checked_add(s)).ok_or(Errno::INVALID)?;
            av.resolve(&node, &port.to_string(), flags)
        });
        av.insert_all(&mut each, fi_addr, flags & !FI_NUMERICHOST, context)
    }

    status fn remove(av: *mut fid_av, fi_addr: *mut fi_addr_t, count: usize, flags: u64) {
        let av = Av::of(av)?;
        if flags != 0 {
            return Err(BAD_FLAGS);
        }
        // Every one that is there goes, whatever the others are.
        let removed: Vec<_> = array(fi_addr, count)?.iter().map(|&index| av.vector.remove(index)).collect();
        removed.into_iter().collect()
    }

    status fn lookup(av: *mut fid_av, fi_addr: fi_addr_t, addr: *mut c_void, len: *mut usize) {
        let av = Av::of(av)?;
        let peer = av.vector.get(fi_addr).ok_or(Errno::INVALID)?;
        address::write(address::of_peer(peer, av.domain.scope), addr, writable(len)?);
        Ok(())
    }
}

unsafe extern "C" fn straddr(
    av: *mut fid_av,
    addr: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    value_or("fi_av_straddr", std::ptr::null(), || {
        // SAFETY: by fi_av(3) an address of the domain's format, and room for a text of that length.
        unsafe {
            let Ok(av) = Av::of(av) else { return std::ptr::null() };
            let Some(addr) = address::read(addr, address::length_of(av.domain.ip)) else {
                return std::ptr::null();
            };
            copy_out_text(&address::in_words(addr), buf, len)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_wire::{Gid, Qpn};

    fn peer(n: u16) -> PeerAddr {
        PeerAddr { gid: Gid([1; 16]), qpn: Qpn(n), key: 1 }
    }

    #[test]
    fn an_address_has_one_index_until_it_is_removed_as_often_as_it_was_inserted() {
        let mut table = Table::default();
        assert_eq!(table.insert(peer(5)), (0, true));
        assert_eq!(table.insert(peer(6)), (1, true));
        assert_eq!(table.insert(peer(5)), (0, false));
        assert_eq!(table.remove(0), Ok(false));
        assert_eq!(table.get(0), Some(peer(5)));
        assert_eq!(table.remove(0), Ok(true));
        assert_eq!((table.get(0), table.remove(0)), (None, Err(Errno::INVALID)));
        assert_eq!(table.insert(peer(7)), (0, true));
        // The same place, another endpoint.
        assert_eq!(table.insert(PeerAddr { key: 2, ..peer(7) }), (2, true));
    }

    #[test]
    fn names_count_up() {
        assert_eq!(name_after("10.0.0.254", 2).unwrap(), "10.0.1.0");
        assert_eq!(name_after("node09", 1).unwrap(), "node10");
        assert_eq!(name_after("node7.cluster1", 5).unwrap(), "node12.cluster1");
        assert_eq!(name_after("host", 0).unwrap(), "host");
        assert_eq!(name_after("host", 1), None);
    }
}
