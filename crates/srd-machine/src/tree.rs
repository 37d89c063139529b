//! The kernel's files about EFA devices, laid out as under `/sys`: devices in `devices/pciDOMAIN:BUS/ADDRESS`, what classes and buses
//! have of them as relative links. Entries are those of infiniband/core/sysfs.c and uverbs_main.c (Linux 5.14), the driver's
//! efa_main.c and efa_verbs.c (3.1.0), and pci-sysfs.c, as far as they tell of something that is here.

use crate::description::{DESCRIPTION, Description};
use crate::device::{Device, groups};
use crate::hw_counters::{HwCounters, put};
use crate::pci;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Vendor of the PCI device (Amazon), as programs look for it.
pub const VENDOR_ID: u16 = 0x1d0f;

/// Version of the kernel's verbs interface, as its file says (`IB_USER_VERBS_ABI_VERSION`).
pub const VERBS_ABI_VERSION: &str = "6";

/// Driver's name, to which `device/driver` must lead.
pub const DRIVER: &str = "efa";

/// What is written at boot, not of a device.
const SCRATCH: &str = "devices/virtual/opensrd";

/// Where the kernel has its verbs devices: `IB_UVERBS_MAJOR`, and `IB_UVERBS_BASE_MINOR` of uverbs_main.c.
const VERBS_MAJOR: u32 = 231;
const VERBS_FIRST_MINOR: u32 = 192;

/// A tree below a directory.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The tree that is below `root`, or will be.
    pub fn at(root: &Path) -> Tree {
        Tree { root: root.to_owned() }
    }

    /// Its root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes what there is without devices.
    pub fn begin(&self) -> io::Result<()> {
        for directory in
            ["class/infiniband", "class/infiniband_verbs", "class/pci_bus", "bus/pci/devices", SCRATCH]
        {
            fs::create_dir_all(self.root.join(directory))?;
        }
        fs::create_dir_all(self.root.join("bus/pci/drivers").join(DRIVER))?;
        let version = format!("{VERBS_ABI_VERSION}\n");
        put(&self.root.join("class/infiniband_verbs/abi_version"), 0o444, version.as_bytes())
    }

    /// Path of a device's verbs class directory (`dev_path`).
    pub fn verbs_path(&self, device: &Device) -> PathBuf {
        self.root.join("class/infiniband_verbs").join(device.verbs_name())
    }

    /// Path of a device's own class directory (`ibdev_path`).
    pub fn device_path(&self, name: &str) -> PathBuf {
        self.root.join("class/infiniband").join(name)
    }

    /// A device's counters.
    pub fn counters(&self, name: &str) -> HwCounters {
        HwCounters::new(&self.device_path(name), self.root.join(SCRATCH).join(name))
    }

    /// Writes everything about one device. `software_version` goes where a card's firmware tells its own.
    pub fn add(&self, device: &Device, software_version: &str) -> io::Result<()> {
        let address = device.pci.to_string();
        let below = format!("devices/{}/{address}", device.pci.root());
        let pci = self.root.join(&below);
        fs::create_dir_all(&pci)?;
        self.add_pci(device, &pci, &address)?;

        let name = &device.name;
        let infiniband = pci.join("infiniband").join(name);
        fs::create_dir_all(&infiniband)?;
        symlink(format!("../../{below}/infiniband/{name}"), self.root.join("class/infiniband").join(name))?;
        symlink(format!("../../../{address}"), infiniband.join("device"))?;
        symlink("../../../../../class/infiniband", infiniband.join("subsystem"))?;
        write_all(
            &infiniband,
            &[
                ("node_type", "7: unspecified"),
                ("node_guid", &groups(device.guid)),
                // The driver tells none.
                ("sys_image_guid", &groups(0)),
                ("node_desc", "OpenSRD software EFA"),
                ("fw_ver", software_version),
                ("uevent", &format!("NAME={name}")),
            ],
        )?;
        let port = infiniband.join("ports/1");
        for directory in ["gids", "pkeys", "gid_attrs/ndevs", "gid_attrs/types"] {
            fs::create_dir_all(port.join(directory))?;
        }
        write_all(
            &port,
            &[
                ("state", "4: ACTIVE"),
                ("phys_state", "5: LinkUp"),
                ("rate", device.rate()),
                ("link_layer", "Unknown"),
                ("lid", "0x0"),
                ("lid_mask_count", "1"),
                ("sm_lid", "0x0"),
                ("sm_sl", "0"),
                ("cap_mask", "0x00000000"),
                ("gids/0", &device.gid()),
                ("gid_attrs/types/0", "IB/RoCE v1"),
                ("pkeys/0", "0xffff"),
            ],
        )?;
        // The kernel refuses to be read here: the GID belongs to no network device.
        put(&port.join("gid_attrs/ndevs/0"), 0o444, b"")?;
        fs::create_dir_all(self.root.join(SCRATCH).join(name))?;
        HwCounters::new(&infiniband, PathBuf::new()).make()?;

        let verbs_name = device.verbs_name();
        let verbs = pci.join("infiniband_verbs").join(&verbs_name);
        fs::create_dir_all(&verbs)?;
        symlink(format!("../../{below}/infiniband_verbs/{verbs_name}"), self.verbs_path(device))?;
        symlink(format!("../../../{address}"), verbs.join("device"))?;
        symlink("../../../../../class/infiniband_verbs", verbs.join("subsystem"))?;
        let minor = VERBS_FIRST_MINOR + device.number;
        write_all(
            &verbs,
            &[
                ("ibdev", name),
                ("abi_version", "1"), // EFA_UVERBS_ABI_VERSION
                ("dev", &format!("{VERBS_MAJOR}:{minor}")),
                ("uevent", &format!("MAJOR={VERBS_MAJOR}\nMINOR={minor}\nDEVNAME=infiniband/{verbs_name}")),
            ],
        )
    }

    fn add_pci(&self, device: &Device, pci: &Path, address: &str) -> io::Result<()> {
        let on_pci = format!("../../../devices/{}/{address}", device.pci.root());
        match symlink(&on_pci, self.root.join("bus/pci/devices").join(address)) {
            // Two devices at one address: only outside a machine, where that means "none".
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            result => result?,
        }
        self.add_bus(device)?;
        symlink("../../../bus/pci", pci.join("subsystem"))?;
        symlink(format!("../../../bus/pci/drivers/{DRIVER}"), pci.join("driver"))?;
        let below_driver = self.root.join("bus/pci/drivers").join(DRIVER).join(address);
        symlink(format!("../{on_pci}"), &below_driver)?;
        // Half as wide as it could be, where it is as fast as that: 15.75 GB/s on p5.
        let width = if device.pcie_gts > 8 { 8 } else { 16 };
        let speed = format!("{:.1} GT/s PCIe", device.pcie_gts as f64);
        let (vendor, part) = (format!("{VENDOR_ID:#06x}"), format!("{:#06x}", device.part_id));
        let id = format!("{VENDOR_ID:04X}:{:04X}", device.part_id);
        let (nodes, lists) = (cpus(device.numa_node, "cpumap"), cpus(device.numa_node, "cpulist"));
        write_all(
            pci,
            &[
                ("vendor", &vendor),
                ("device", &part),
                ("subsystem_vendor", &vendor),
                ("subsystem_device", &part),
                ("class", "0x020000"),
                ("revision", "0x00"),
                ("irq", "0"),
                ("enable", "1"),
                ("numa_node", &device.numa_node.to_string()),
                ("local_cpus", &nodes),
                ("local_cpulist", &lists),
                ("current_link_speed", &speed),
                ("current_link_width", &width.to_string()),
                ("max_link_speed", &speed),
                ("max_link_width", &width.to_string()),
                ("resource", &["0x0000000000000000 0x0000000000000000 0x0000000000000000"; 13].join("\n")),
                (
                    "modalias",
                    &format!(
                        "pci:v{VENDOR_ID:08X}d{:08X}sv{VENDOR_ID:08X}sd{:08X}bc02sc00i00",
                        device.part_id, device.part_id
                    ),
                ),
                (
                    "uevent",
                    &format!(
                        "DRIVER={DRIVER}\nPCI_CLASS=20000\nPCI_ID={id}\nPCI_SUBSYS_ID={id}\nPCI_SLOT_NAME={address}"
                    ),
                ),
            ],
        )?;
        put(
            &pci.join("config"),
            0o644,
            &pci::configuration(VENDOR_ID, device.part_id, device.pcie_gts, width),
        )
    }

    /// The device's bus, by which aws-ofi-nccl finds the device: `class/pci_bus/DOMAIN:BUS/../../ADDRESS`.
    fn add_bus(&self, device: &Device) -> io::Result<()> {
        let root = device.pci.root();
        let bus = root.trim_start_matches("pci");
        let below = format!("devices/{root}/pci_bus/{bus}");
        match symlink(format!("../../{below}"), self.root.join("class/pci_bus").join(bus)) {
            // The bus of another device, or of this host.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            result => result?,
        }
        let directory = self.root.join(below);
        fs::create_dir_all(&directory)?;
        symlink(format!("../../../{root}"), directory.join("device"))?;
        symlink("../../../../class/pci_bus", directory.join("subsystem"))?;
        write_all(
            &directory,
            &[
                ("cpuaffinity", &cpus(device.numa_node, "cpumap")),
                ("cpulistaffinity", &cpus(device.numa_node, "cpulist")),
            ],
        )
    }

    /// Writes what the machine says of itself: the description, and in `devices/virtual/dmi/id` what EC2's firmware does.
    pub fn describe(&self, machine: &Description, instance_id: &str) -> io::Result<()> {
        let dmi = self.root.join("devices/virtual/dmi/id");
        fs::create_dir_all(&dmi)?;
        for (name, text) in [
            ("product_name", machine.product.as_str()),
            ("sys_vendor", "Amazon EC2"),
            ("board_vendor", "Amazon EC2"),
            ("chassis_vendor", "Amazon EC2"),
            ("bios_vendor", "Amazon EC2"),
            ("board_asset_tag", instance_id),
            ("chassis_asset_tag", "Amazon EC2"),
        ] {
            let file = dmi.join(name);
            put(&file, 0o444, format!("{text}\n").as_bytes())?;
        }
        let text = serde_json::to_vec_pretty(machine)?;
        put(&self.root.join(DESCRIPTION), 0o444, &text)
    }
}

/// The processors of a node, as the system tells them; all of them where the node is not there, or none is named.
fn cpus(node: i32, file: &str) -> String {
    let of_node = fs::read_to_string(format!("/sys/devices/system/node/node{node}/{file}"));
    let text = of_node.or_else(|_| fs::read_to_string(format!("/sys/devices/system/node/node0/{file}")));
    text.unwrap_or_default().trim().to_owned()
}

fn write_all(directory: &Path, files: &[(&str, &str)]) -> io::Result<()> {
    files
        .iter()
        .try_for_each(|(name, content)| put(&directory.join(name), 0o444, format!("{content}\n").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::PciAddress;

    pub fn example(name: &str, number: u32) -> Device {
        Device {
            name: name.to_owned(),
            number,
            pci: PciAddress { domain: 0, bus: 0x4f + number as u8, slot: 0, function: 0 },
            part_id: 0xefa1,
            numa_node: 0,
            pcie_gts: 16,
            guid: 0x0253_5244_0a01_0203,
            address: "10.1.2.3".parse().unwrap(),
            gbps: 100,
            rdma_read: true,
            rdma_write: true,
        }
    }

    /// A directory of the test's own, with a tree of two devices.
    struct Scratch(Tree);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let root = std::env::temp_dir().join(format!("srd-machine-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(&root).unwrap();
            let tree = Tree::at(&root);
            tree.begin().unwrap();
            for (name, number) in [("rdmap79s0", 0), ("rdmap80s0", 1)] {
                tree.add(&example(name, number), "1.2.3").unwrap();
            }
            Scratch(tree)
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.0.root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.root());
        }
    }

    #[test]
    fn links_lead_where_the_kernels_lead() {
        let scratch = Scratch::new("links");
        let root = fs::canonicalize(scratch.0.root()).unwrap();
        let leads = |from: &str| {
            let to = fs::canonicalize(root.join(from)).unwrap_or_else(|error| panic!("{from}: {error}"));
            to.strip_prefix(&root).unwrap().display().to_string()
        };
        let pci = "devices/pci0000:4f/0000:4f:00.0";
        assert_eq!(leads("class/infiniband/rdmap79s0"), format!("{pci}/infiniband/rdmap79s0"));
        assert_eq!(leads("class/infiniband/rdmap79s0/device"), pci);
        // Mooncake: realpath("/sys/class/infiniband/NAME/../..").
        assert_eq!(leads("class/infiniband/rdmap79s0/../.."), pci);
        assert_eq!(leads("class/infiniband/rdmap79s0/device/driver"), "bus/pci/drivers/efa");
        assert_eq!(leads("class/infiniband/rdmap79s0/subsystem"), "class/infiniband");
        assert_eq!(leads("class/infiniband_verbs/uverbs1/device"), "devices/pci0000:50/0000:50:00.0");
        assert_eq!(leads("class/infiniband_verbs/uverbs1/subsystem"), "class/infiniband_verbs");
        assert_eq!(leads("bus/pci/devices/0000:4f:00.0"), pci);
        assert_eq!(leads("bus/pci/drivers/efa/0000:4f:00.0"), pci);
        assert_eq!(leads("bus/pci/devices/0000:4f:00.0/subsystem"), "bus/pci");
        assert_eq!(leads("class/pci_bus/0000:4f/../../0000:4f:00.0"), pci);
        assert_eq!(leads("class/pci_bus/0000:4f/device"), "devices/pci0000:4f");
        assert_eq!(leads("class/pci_bus/0000:4f/subsystem"), "class/pci_bus");
    }

    #[test]
    fn files_say_what_the_kernel_says() {
        let scratch = Scratch::new("files");
        for (file, says) in [
            ("node_type", "7: unspecified\n"),
            ("node_guid", "0253:5244:0a01:0203\n"),
            ("sys_image_guid", "0000:0000:0000:0000\n"),
            ("ports/1/state", "4: ACTIVE\n"),
            ("ports/1/rate", "100 Gb/sec (4X EDR)\n"),
            ("ports/1/link_layer", "Unknown\n"),
            ("ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:0a01:0203\n"),
            ("ports/1/hw_counters/tx_bytes", "0\n"),
            ("device/device", "0xefa1\n"),
        ] {
            assert_eq!(scratch.read(&format!("class/infiniband/rdmap79s0/{file}")), says, "{file}");
        }
        assert_eq!(scratch.read("class/infiniband_verbs/uverbs1/ibdev"), "rdmap80s0\n");
        assert_eq!(scratch.read("class/infiniband_verbs/uverbs1/dev"), "231:193\n");
        assert_eq!(scratch.read("class/infiniband_verbs/abi_version"), "6\n");
    }

    #[test]
    fn what_many_add_at_once_is_the_sum() {
        let scratch = Scratch::new("sum");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let counters = scratch.0.counters("rdmap79s0");
                    for _ in 0..200 {
                        let amounts =
                            [("tx_bytes", 3), ("tx_pkts", 0), ("create_qp_err", 1), ("no_such_counter", 5)];
                        counters.add(amounts.into_iter()).unwrap();
                        counters.port_counter("tx_bytes").unwrap();
                    }
                });
            }
        });
        assert_eq!(scratch.read("class/infiniband/rdmap79s0/ports/1/hw_counters/tx_bytes"), "2400\n");
        assert_eq!(scratch.read("class/infiniband/rdmap79s0/hw_counters/create_qp_err"), "800\n");
        assert_eq!(scratch.read("class/infiniband/rdmap80s0/ports/1/hw_counters/tx_bytes"), "0\n");
    }

    #[test]
    fn a_machine_describes_itself() {
        let scratch = Scratch::new("describe");
        let machine = Description {
            name: "p5-7".into(),
            product: "p5.48xlarge".into(),
            devices: vec![example("rdmap79s0", 0)],
        };
        assert_eq!(Description::below(scratch.0.root()).unwrap(), None);
        scratch.0.describe(&machine, "i-0").unwrap();
        assert_eq!(Description::below(scratch.0.root()).unwrap(), Some(machine));
        assert_eq!(scratch.read("devices/virtual/dmi/id/product_name"), "p5.48xlarge\n");
        assert_eq!(scratch.read("devices/virtual/dmi/id/sys_vendor"), "Amazon EC2\n");
    }
}
