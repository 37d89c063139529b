//! Instance types of EC2, as far as programs see them by their EFA devices.
//!
//! How many devices a type has, and how fast they are: EC2's `DescribeInstanceTypes` (`EfaInfo`, `NetworkPerformance`), as
//! recorded in getmoto/moto, instance_types.json at 0af643a.
//! Who reads and writes: EC2's user guide, page efa.html (read on all with Nitro version 4 and later, write on most of these); for p4d
//! aws/aws-ofi-nccl, platform-aws.cpp (`gdr_required`, which takes reads). Names, addresses and part numbers: the source at each type.

use crate::pci::PciAddress;

/// A type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstanceType {
    /// What it is called on a command line: the family.
    pub name: &'static str,
    /// The DMI product name: the type in full.
    pub product: &'static str,
    /// Of each device bus, slot and NUMA node.
    devices: &'static [(u8, u8, i32)],
    /// PCI device number.
    pub part_id: u16,
    /// Rate of each device in Gb/s.
    pub gbps: u64,
    /// Speed of the PCI link in GT/s (its width is 16 or 8).
    pub pcie_gts: u32,
    /// Whether devices have a node GUID; the first generation's is zero.
    pub has_guid: bool,
    /// RDMA read.
    pub rdma_read: bool,
    /// RDMA write, also with immediate data.
    pub rdma_write: bool,
    /// Whether the addresses are those of a public listing; else they are made up.
    pub addresses_are_known: bool,
}

/// Four devices on neighbouring buses from `bus` on, for each of eight switches, four to a node.
macro_rules! p5_buses {
    ($($bus:literal $node:literal),*) => {
        &[$(($bus, 0, $node), ($bus + 1, 0, $node), ($bus + 2, 0, $node), ($bus + 3, 0, $node)),*]
    };
}

/// aws/aws-ofi-nccl, topology/p4d-24xl-topo.xml and p4de-24xl-topo.xml: addresses, part 0xefa0, NUMA nodes, 8 GT/s. GUID zero:
/// `ibv_devices` as libfabric's fabtests quote it (pytest, efa).
const P4D: InstanceType = InstanceType {
    name: "p4d",
    product: "p4d.24xlarge",
    devices: &[(0x10, 0x1b, 0), (0x20, 0x1b, 0), (0x90, 0x1b, 1), (0xa0, 0x1b, 1)],
    part_id: 0xefa0,
    gbps: 100,
    pcie_gts: 8,
    has_guid: false,
    rdma_read: true,
    rdma_write: false,
    addresses_are_known: true,
};

/// All that are known.
pub const INSTANCE_TYPES: &[InstanceType] = &[
    // Names and order of all 32: aws-samples/aws-efa-eks#22 (log of the device plugin). Bridges, part 0xefa1, link 15.75 GB/s, GUID,
    // LMC: `lstopo -v` in HuggingFace's Smol Training Playbook.
    InstanceType {
        name: "p5",
        product: "p5.48xlarge",
        devices: p5_buses!(0x4f 0, 0x60 0, 0x71 0, 0x82 0, 0x93 1, 0xa4 1, 0xb5 1, 0xc6 1),
        part_id: 0xefa1,
        gbps: 100,
        pcie_gts: 16,
        has_guid: true,
        rdma_read: true,
        rdma_write: true,
        addresses_are_known: true,
    },
    // Names, part 0xefa2, GUIDs, hw_ver: a public `ibv_devinfo` of all 16; 200 Gb/s: le.qun's libfabric notes (4_hello).
    InstanceType {
        name: "p5en",
        product: "p5en.48xlarge",
        devices: p5_buses!(0x55 0, 0x6e 0, 0x87 1, 0xa0 1),
        part_id: 0xefa2,
        gbps: 200,
        pcie_gts: 32,
        has_guid: true,
        rdma_read: true,
        rdma_write: true,
        addresses_are_known: true,
    },
    P4D,
    InstanceType { name: "p4de", product: "p4de.24xlarge", ..P4D },
    // rdmap0s6: AWS's EC2 user guide, "Get started with EFA and MPI" (`fi_info -p efa`).
    InstanceType {
        name: "c5n",
        product: "c5n.18xlarge",
        devices: &[(0, 6, 0)],
        part_id: 0xefa0,
        gbps: 100,
        pcie_gts: 8,
        has_guid: false,
        rdma_read: false,
        rdma_write: false,
        addresses_are_known: true,
    },
    InstanceType {
        name: "hpc6a",
        product: "hpc6a.48xlarge",
        devices: &[(0, 6, 0)],
        part_id: 0xefa0,
        gbps: 100,
        pcie_gts: 8,
        has_guid: false,
        rdma_read: false,
        rdma_write: false,
        addresses_are_known: false,
    },
    // Two cards, 300 Gb/s together. No public listing of their addresses was found.
    InstanceType {
        name: "hpc7a",
        product: "hpc7a.96xlarge",
        devices: &[(0x30, 0, 0), (0x60, 0, 1)],
        part_id: 0xefa1,
        gbps: 150,
        pcie_gts: 16,
        has_guid: true,
        rdma_read: true,
        rdma_write: false,
        addresses_are_known: false,
    },
];

impl InstanceType {
    /// By family or full name.
    pub fn named(name: &str) -> Option<&'static InstanceType> {
        INSTANCE_TYPES.iter().find(|known| known.name == name || known.product == name)
    }

    /// How many devices it has.
    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// Of each device the name that udev gives it (rdma-core's `rdma_rename`, by PCI address), the address and the NUMA node.
    pub fn places(&self) -> impl Iterator<Item = (String, PciAddress, i32)> {
        self.devices.iter().map(|&(bus, slot, node)| {
            (format!("rdmap{bus}s{slot}"), PciAddress { domain: 0, bus, slot, function: 0 }, node)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_p5_has_the_32_devices_of_public_listings() {
        let p5 = InstanceType::named("p5.48xlarge").unwrap();
        let names: Vec<_> = p5.places().map(|(name, ..)| name).collect();
        assert_eq!(names.len(), 32);
        // aws-samples/aws-efa-eks#22: uverbs10, 12, 16, 20 and 24.
        for (at, name) in [
            (10, "rdmap115s0"),
            (12, "rdmap130s0"),
            (16, "rdmap147s0"),
            (20, "rdmap164s0"),
            (24, "rdmap181s0"),
        ] {
            assert_eq!(names[at], name);
        }
        assert_eq!(names[0], "rdmap79s0");
    }

    #[test]
    fn types_have_names_of_their_own_and_devices_addresses() {
        let mut names = BTreeSet::new();
        for kind in INSTANCE_TYPES {
            assert!(names.insert(kind.name) && kind.product.starts_with(kind.name), "{}", kind.name);
            let addresses: BTreeSet<_> = kind.places().map(|(_, address, _)| address.to_string()).collect();
            assert_eq!(addresses.len(), kind.device_count(), "{}", kind.name);
            assert!(kind.rdma_read || !kind.rdma_write, "{}: nobody has write without read", kind.name);
        }
    }
}
