//! The devices of this host: those of the machine that the process is in, or one, of the local address that is to be used.

use crate::boundary::{Errno, Outcome, abi, readable};
use crate::layout::constant::*;
use crate::layout::*;
use crate::local_address::LocalAddress;
use crate::machine;
use crate::profile::Profile;
use crate::strict;
use crate::sysfs::PrivateTree;
use libc::{c_char, c_int};
use srd_machine::{HwCounters, PciAddress, Tree};
use srd_net::{Instance, Seat, log};
use srd_wire::Gid;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A device. Lives as long as the process, so that pointers to it stay good after the list has been freed.
#[repr(C)]
pub(crate) struct Device {
    ibv: ibv_device,
    /// The local address it stands for.
    pub address: LocalAddress,
    /// What it resembles.
    pub profile: Profile,
    /// It refuses what EFA does ([`strict`]).
    pub strict: bool,
    /// Programs may have the queues in memory.
    pub direct: bool,
    /// Its GUID.
    pub guid: u64,
    /// Completion counters that there are of it in this process.
    pub comp_cntrs: AtomicU32,
    /// Where what it counts is added up, in a machine.
    counters: Option<HwCounters>,
}

// SAFETY: nothing in it changes after it has been made but a number that is atomic; the pointers in `ibv._ops` are never set.
unsafe impl Sync for Device {}
// SAFETY: as above.
unsafe impl Send for Device {}

impl Device {
    /// The device of the address that the settings choose, in a tree of this process.
    fn private(tree: &Tree) -> Result<Device, String> {
        let address = LocalAddress::chosen()?;
        let profile = Profile::from_env()?;
        let files = srd_machine::Device {
            // Real ones are named by bus and slot, and programs look for `rdmap` or `efa` in front (UCCL).
            name: "rdmap0s31".to_owned(),
            number: 0,
            pci: pci_address()?,
            part_id: profile.part_id as u16,
            numa_node: -1,
            pcie_gts: 16,
            guid: srd_machine::Device::guid_of(address.ip),
            address: address.ip,
            gbps: address.gbps,
            rdma_read: profile.rdma_read,
            rdma_write: profile.rdma_write,
        };
        let name = &files.name;
        tree.add(&files, env!("CARGO_PKG_VERSION"))
            .map_err(|error| format!("cannot write the files of device {name}: {error}"))?;
        // What programs look for in /dev/infiniband (UCX): there is none, but they can be given one of this name.
        Device::new(tree, &files, &files.name, address, profile, None)
    }

    /// A device of the machine that this process is in.
    fn of_machine(files: &srd_machine::Device) -> Result<Device, String> {
        let tree = Tree::at(Path::new("/sys"));
        let address = LocalAddress::of(files)?;
        let counters = tree.counters(&files.name);
        Device::new(&tree, files, &files.verbs_name(), address, Profile::of(files), Some(counters))
    }

    fn new(
        tree: &Tree,
        files: &srd_machine::Device,
        node: &str,
        address: LocalAddress,
        profile: Profile,
        counters: Option<HwCounters>,
    ) -> Result<Device, String> {
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
            profile,
            strict: strict::is_on()?,
            direct: strict::on_or_off("SRD_EFA_DIRECT", true)?,
            guid: files.guid,
            comp_cntrs: AtomicU32::new(0),
            counters,
        };
        fill(&mut device.ibv.name, files.name.as_bytes())?;
        fill(&mut device.ibv.dev_name, node.as_bytes())?;
        fill(&mut device.ibv.dev_path, bytes(&tree.verbs_path(files)))?;
        fill(&mut device.ibv.ibdev_path, bytes(&tree.device_path(&files.name)))?;
        Ok(device)
    }

    /// A running device, for a context.
    pub fn open(&self) -> Result<(Arc<Instance>, Seat), String> {
        let (instance, seat) = self.address.open()?;
        if let Some(counters) = &self.counters {
            machine::count(&instance, counters.clone());
        }
        Ok((instance, seat))
    }

    /// Its only GID: the address.
    pub fn gid(&self) -> Gid {
        Gid::from(self.address.ip)
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

/// The PCI address of a device outside a machine. All zeros mean "not on PCI" to MPICH since 5.0.2; before, it insists that its hwloc knows
/// the address, and so do programs that match network and GPU by PCI want a real one (docs/design/efa-verbs.md, "Trap 5").
/// The error says in words what is wrong with `SRD_EFA_PCI`.
fn pci_address() -> Result<PciAddress, String> {
    let none = PciAddress::NONE;
    let Some(value) = std::env::var_os("SRD_EFA_PCI") else { return Ok(none) };
    value.to_string_lossy().trim().parse().map_err(|()| {
        format!(
            "SRD_EFA_PCI={value:?} is not possible; allowed: domain:bus:device.function in hexadecimal, such as {none} \
             or 0000:9a:1f.0"
        )
    })
}

/// What this process has found. A forked child starts anew: the files belong to its parent, and a lock may have been
/// held at the moment of the fork.
struct Process {
    pid: u32,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    trees: Vec<PrivateTree>,
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
    {
        found.trees.iter().for_each(PrivateTree::remove);
    }
}

impl Found {
    /// The devices that there are now; known ones keep their identity.
    fn look(&mut self) -> Result<Vec<&'static Device>, String> {
        if let Some(machine) = machine::here()? {
            if self.devices.is_empty() {
                for files in &machine.devices {
                    self.devices.push(Box::leak(Box::new(Device::of_machine(files)?)));
                }
            }
            return Ok(self.devices.clone());
        }
        let chosen = LocalAddress::chosen()?;
        if let Some(known) = self.devices.iter().find(|device| device.address.ip == chosen.ip) {
            return Ok(vec![known]);
        }
        // Another address than before: it has a tree of its own, and the files of the old one stay with its device.
        let tree = PrivateTree::new()?;
        let device: &'static Device = Box::leak(Box::new(Device::private(tree.tree())?));
        self.devices.push(device);
        self.trees.push(tree);
        Ok(vec![device])
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
        Device::of(device).map_or(0, |device| device.guid.to_be())
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
