//! What a machine with EFA devices shows of them under `/sys`: which devices an instance of EC2 has ([`InstanceType`]), the
//! files in which the kernel tells of each ([`Tree`]), and the counters in those files, to which every process of the machine
//! adds ([`HwCounters`]). The machine of `srd run --machine` and the private tree of a process outside one are both written here.
//!
//! Who mounts such a tree where, and who finds devices in it, is decided by `srd` and `srd-verbs`.
#![forbid(unsafe_code)]

mod description;
mod device;
mod hw_counters;
mod instance_type;
mod locked_directory;
mod pci;
mod tree;

pub use description::{DESCRIPTION, Description};
pub use device::Device;
pub use hw_counters::{DEVICE_COUNTERS, HwCounters, PORT_COUNTERS};
pub use instance_type::{INSTANCE_TYPES, InstanceType};
pub use locked_directory::LockedDirectory;
pub use pci::PciAddress;
pub use tree::{DRIVER, Tree, VENDOR_ID, VERBS_ABI_VERSION};
