//! A device, as far as files tell of it.

use crate::pci::PciAddress;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What there is to say about a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its number among the verbs devices (`uverbs0`).
    pub number: u32,
    /// Where it is on PCI.
    pub pci: PciAddress,
    /// PCI device number.
    pub part_id: u16,
    /// The NUMA node it is near to, or -1.
    pub numa_node: i32,
    /// Speed of its PCI link in GT/s.
    pub pcie_gts: u32,
    /// Node GUID.
    pub guid: u64,
    /// The local address it stands for: its only GID.
    pub address: IpAddr,
    /// Rate of the port in Gb/s.
    pub gbps: u64,
    /// RDMA read.
    pub rdma_read: bool,
    /// RDMA write.
    pub rdma_write: bool,
}

impl Device {
    /// `uverbs0`
    pub fn verbs_name(&self) -> String {
        format!("uverbs{}", self.number)
    }

    /// The kernel's way to write its GID: the address, as an IPv6 one.
    pub fn gid(&self) -> String {
        let octets = match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        octets
            .chunks(2)
            .map(|pair| format!("{:04x}", u16::from_be_bytes([pair[0], pair[1]])))
            .collect::<Vec<_>>()
            .join(":")
    }

    /// A GUID for a device of that address: "locally administered", "SRD", and as much of the address as fits.
    pub fn guid_of(address: IpAddr) -> u64 {
        let low = match address {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(ip) => {
                let bits = ip.to_bits();
                (bits >> 96) as u32 ^ (bits >> 64) as u32 ^ (bits >> 32) as u32 ^ bits as u32
            }
        };
        0x0253_5244 << 32 | low as u64
    }

    /// The rate as the kernel writes it: what the driver chooses among those that verbs can express
    /// (`efa_link_gbps_to_speed_and_width` of efa_verbs.c), in the words of infiniband/core/sysfs.c, `rate_show`.
    pub(crate) fn rate(&self) -> &'static str {
        match self.gbps {
            400.. => "400 Gb/sec (8X HDR)",
            200.. => "200 Gb/sec (4X HDR)",
            120.. => "120 Gb/sec (12X FDR10)",
            100.. => "100 Gb/sec (4X EDR)",
            60.. => "60 Gb/sec (12X DDR)",
            50.. => "50 Gb/sec (1X HDR)",
            40.. => "40 Gb/sec (4X FDR10)",
            30.. => "30 Gb/sec (12X SDR)",
            _ => "25 Gb/sec (1X EDR)",
        }
    }
}

/// The kernel's way to write a GUID: four groups of four hexadecimal digits.
pub(crate) fn groups(guid: u64) -> String {
    let group = |shift: u32| (guid >> shift) as u16;
    format!("{:04x}:{:04x}:{:04x}:{:04x}", group(48), group(32), group(16), group(0))
}
