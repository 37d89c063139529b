//! The devices of this host: one for each local address that is to be used.

use crate::boundary::{Errno, Outcome, abi, readable};
use crate::layout::constant::*;
use crate::layout::*;
use crate::local_address::{self, LocalAddress};
use crate::profile::Profile;
use crate::sysfs::{DeviceFiles, Tree};
use libc::{c_char, c_int};
use srd_net::log;
use srd_wire::Gid;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard};

/// A device. Lives as long as the process, so that pointers to it stay good after the list has been freed.
#[repr(C)]
pub(crate) struct Device {
    ibv: ibv_device,
    /// The local address it stands for.
    pub address: LocalAddress,
    /// What it resembles.
    pub profile: Profile,
}

// SAFETY: nothing in it changes after it has been made; the pointers in `ibv._ops` are never set.
unsafe impl Sync for Device {}
// SAFETY: as above.
unsafe impl Send for Device {}

impl Device {
    fn new(tree: &Tree, address: LocalAddress, index: usize) -> Result<Device, String> {
        // Real ones are named by bus and slot, and programs look for `rdmap` or `efa` in front (UCCL).
        let name = format!("rdmap{index}s31");
        let mut device = Device {
            ibv: ibv_device {
                _ops: [0; 2],
                node_type: IBV_NODE_UNSPECIFIED,
                transport_type: IBV_TRANSPORT_UNSPECIFIED,
                name: [0; IBV_SYSFS_NAME_MAX],
                dev_name: [0; IBV_SYSFS_NAME_MAX],
                dev_path: [0; IBV_SYSFS_PATH_MAX],
                ibdev_path: [0; IBV_SYSFS_PATH_MAX],
            },
            address,
            profile: Profile::from_env()?,
        };
        let files = DeviceFiles {
            name: &name,
            gid: device.gid(),
            guid: device.guid(),
            pci: &pci_address(index)?,
            gbps: device.address.gbps,
            profile: device.profile,
        };
        tree.add(&files).map_err(|error| format!("cannot write the files of device {name}: {error}"))?;
        fill(&mut device.ibv.name, name.as_bytes())?;
        fill(&mut device.ibv.dev_name, name.as_bytes())?;
        fill(&mut device.ibv.dev_path, bytes(&tree.dev_path(&name)))?;
        fill(&mut device.ibv.ibdev_path, bytes(&tree.ibdev_path(&name)))?;
        Ok(device)
    }

    /// Its only GID: the address.
    pub fn gid(&self) -> Gid {
        Gid::from(self.address.ip)
    }

    /// A GUID for it: "locally administered", "SRD", and as much of the address as fits.
    pub fn guid(&self) -> u64 {
        let low = match self.address.ip {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(ip) => {
                let bits = ip.to_bits();
                (bits >> 96) as u32 ^ (bits >> 64) as u32 ^ (bits >> 32) as u32 ^ bits as u32
            }
        };
        0x0253_5244 << 32 | low as u64
    }

    /// What C calls it.
    pub fn pointer(&'static self) -> *mut ibv_device {
        (&raw const self.ibv).cast_mut()
    }

    /// # Safety
    /// The pointer is NULL or one that [`Device::pointer`] has given out.
    pub unsafe fn of(pointer: *mut ibv_device) -> Outcome<&'static Device> {
        // SAFETY: as the caller says; devices are never freed, and `ibv` is the first field.
        unsafe { readable(pointer.cast::<Device>()) }
    }
}

fn fill(field: &mut [c_char], text: &[u8]) -> Result<(), String> {
    if text.len() >= field.len() {
        return Err(format!("{:?} is too long for a device's path", String::from_utf8_lossy(text)));
    }
    field.iter_mut().zip(text).for_each(|(to, from)| *to = *from as c_char);
    Ok(())
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// PCI address of the device with number `index`. All zeros mean "not on PCI" to MPICH, which otherwise insists that
/// its hwloc knows the address; programs that match network and GPU by PCI want a real one (docs/design/efa-verbs.md, "Trap 5").
/// The error says in words what is wrong with `SRD_EFA_PCI`.
fn pci_address(index: usize) -> Result<String, String> {
    const NONE: &str = "0000:00:00.0";
    let Some(list) = std::env::var_os("SRD_EFA_PCI") else { return Ok(NONE.into()) };
    let addresses: Option<Vec<String>> =
        list.to_string_lossy().split(',').map(|text| parse_pci(text.trim())).collect();
    let mut addresses = addresses.ok_or_else(|| {
        format!(
            "SRD_EFA_PCI={list:?} is not possible; allowed: domain:bus:device.function in hexadecimal, such as {NONE} \
             or 0000:9a:1f.0"
        )
    })?;
    Ok(if index < addresses.len() { addresses.swap_remove(index) } else { NONE.into() })
}

fn parse_pci(text: &str) -> Option<String> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let number = |text: &str, digits: usize| {
        (!text.is_empty() && text.len() <= digits).then(|| u16::from_str_radix(text, 16).ok()).flatten()
    };
    let (device, function) = (number(device, 2)?, number(function, 1)?);
    (device < 32 && function < 8).then_some(format!(
        "{:04x}:{:02x}:{device:02x}.{function}",
        number(domain, 4)?,
        number(bus, 2)?
    ))
}

/// What this process has found. A forked child starts anew: the files belong to its parent, and a lock may have been
/// held at the moment of the fork.
struct Process {
    pid: u32,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    tree: Option<Tree>,
    devices: Vec<&'static Device>,
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());

impl Process {
    fn current() -> &'static Process {
        let pid = std::process::id();
        loop {
            let known = PROCESS.load(Ordering::Acquire);
            // SAFETY: never freed.
            match unsafe { known.as_ref() } {
                Some(process) if process.pid == pid => return process,
                _ => {
                    let new = Box::into_raw(Box::new(Process { pid, found: Mutex::default() }));
                    if PROCESS.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
                        // SAFETY: nobody else has seen it.
                        drop(unsafe { Box::from_raw(new) });
                    } else if known.is_null() {
                        // SAFETY: the function stays in memory, as the library is never unloaded (nodelete).
                        unsafe { libc::atexit(at_exit) };
                    }
                }
            }
        }
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

extern "C" fn at_exit() {
    // SAFETY: never freed.
    let process = unsafe { PROCESS.load(Ordering::Acquire).as_ref() };
    // A forked child exits, too, but its parent still needs the files.
    if let Some(process) = process.filter(|process| process.pid == std::process::id())
        && let Ok(found) = process.found.try_lock()
        && let Some(tree) = &found.tree
    {
        tree.remove();
    }
}

impl Found {
    /// The devices of the addresses that there are now; known ones keep their identity.
    fn look(&mut self) -> Result<Vec<&'static Device>, String> {
        let addresses = local_address::all()?;
        if self.tree.is_none() && !addresses.is_empty() {
            self.tree = Some(Tree::new()?);
        }
        let Some(tree) = &self.tree else { return Ok(Vec::new()) };
        let mut list = Vec::with_capacity(addresses.len());
        for address in addresses {
            let device = match self.devices.iter().find(|device| device.address.ip == address.ip) {
                Some(known) => known,
                None => {
                    let device = Device::new(tree, address, self.devices.len())?;
                    let device: &'static Device = Box::leak(Box::new(device));
                    self.devices.push(device);
                    device
                }
            };
            list.push(device);
        }
        Ok(list)
    }
}

abi! {
    exported pointer fn ibv_get_device_list(count: *mut c_int) -> *mut ibv_device {
        let devices = Process::current().found().look().map_err(|why| {
            log::error(format_args!("no device: {why}"));
            Errno(libc::ENODEV)
        })?;
        if let Some(count) = count.as_mut() {
            *count = devices.len() as c_int;
        }
        let list = libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()).cast::<*mut ibv_device>();
        if list.is_null() {
            return Err(Errno::NO_MEMORY);
        }
        devices.iter().enumerate().for_each(|(i, device)| list.add(i).write(device.pointer()));
        Ok(list)
    }

    exported value fn ibv_free_device_list(list: *mut *mut ibv_device) -> () {
        libc::free(list.cast())
    }

    exported value fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
        Device::of(device).map_or(0, |device| device.guid().to_be())
    }

    /// -1, "not available": UCX would otherwise ask the kernel about the device of that number.
    exported value fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
        -1
    }
}

/// Returns a pointer into the device, which is not an error even where the pointer is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the pointer is NULL or comes from `ibv_get_device_list`, whose devices are never freed.
    unsafe { device.as_ref() }.map_or(std::ptr::null(), |device| device.name.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_read_and_nonsense_is_refused() {
        assert_eq!(parse_pci("0000:00:1f.0").as_deref(), Some("0000:00:1f.0"));
        assert_eq!(parse_pci("1:9a:0.7").as_deref(), Some("0001:9a:00.7"));
        for bad in ["", "00:1f.0", "0000:00:1f", "0000:00:20.0", "0000:00:1f.8", "0000:000:1f.0", "g:0:0.0"] {
            assert_eq!(parse_pci(bad), None, "{bad}");
        }
    }
}
