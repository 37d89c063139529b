//! Addresses on PCI, and the configuration space that programs read (hwloc, lspci, libfabric).

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// Domain, bus, slot and function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PciAddress {
    /// Domain.
    pub domain: u16,
    /// Bus.
    pub bus: u8,
    /// Slot (device), below 32.
    pub slot: u8,
    /// Function, below 8.
    pub function: u8,
}

impl PciAddress {
    /// All zeros: "not on PCI", to those who ask libfabric.
    pub const NONE: PciAddress = PciAddress { domain: 0, bus: 0, slot: 0, function: 0 };

    /// Name of the directory of its root below `/sys/devices`. Whatever bridges a real one has in between are left out, so each bus
    /// is a root of its own.
    pub fn root(self) -> String {
        format!("pci{:04x}:{:02x}", self.domain, self.bus)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.slot, self.function)
    }
}

impl FromStr for PciAddress {
    type Err = ();

    /// Leading zeros may be missing.
    fn from_str(text: &str) -> Result<PciAddress, ()> {
        let (domain, rest) = text.split_once(':').ok_or(())?;
        let (bus, rest) = rest.split_once(':').ok_or(())?;
        let (slot, function) = rest.split_once('.').ok_or(())?;
        let number = |text: &str, digits: usize, below: u32| {
            let plain = (1..=digits).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
            u32::from_str_radix(text, 16).ok().filter(|&n| plain && n < below).ok_or(())
        };
        Ok(PciAddress {
            domain: number(domain, 4, 1 << 16)? as u16,
            bus: number(bus, 2, 1 << 8)? as u8,
            slot: number(slot, 2, 32)? as u8,
            function: number(function, 1, 8)? as u8,
        })
    }
}

impl Serialize for PciAddress {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PciAddress {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<PciAddress, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(|()| de::Error::custom(format_args!("{text:?} is no PCI address")))
    }
}

/// The first 256 bytes of the configuration space (PCI Local Bus Specification 3.0, section 6.1; the PCI Express capability:
/// PCI Express Base Specification, section 7.8): who made it, what it is, and its link.
pub(crate) fn configuration(vendor: u16, part: u16, gts: u32, width: u8) -> [u8; 256] {
    /// Where the PCI Express capability lies here.
    const EXPRESS: usize = 0x70;
    let mut space = [0; 256];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x00, &vendor.to_le_bytes());
    put(0x02, &part.to_le_bytes());
    put(0x04, &0x0006u16.to_le_bytes()); // memory space, bus master
    put(0x06, &0x0010u16.to_le_bytes()); // has capabilities
    put(0x0b, &[0x02]); // network controller; subclass 0: Ethernet
    put(0x2c, &vendor.to_le_bytes());
    put(0x2e, &part.to_le_bytes());
    put(0x34, &[EXPRESS as u8]);
    put(EXPRESS, &[0x10, 0x00]); // PCI Express, the last
    put(EXPRESS + 2, &0x0002u16.to_le_bytes()); // version 2, endpoint
    let speed = match gts {
        32.. => 5,
        16.. => 4,
        _ => 3u32,
    };
    put(EXPRESS + 0x0c, &(speed | (width as u32) << 4).to_le_bytes()); // link capabilities
    put(EXPRESS + 0x12, &(speed as u16 | (width as u16) << 4).to_le_bytes()); // link status
    space
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_nonsense_is_refused() {
        let read = |text: &str| text.parse::<PciAddress>().map(|address| address.to_string());
        assert_eq!(read("0000:00:1f.0").as_deref(), Ok("0000:00:1f.0"));
        assert_eq!(read("1:9a:0.7").as_deref(), Ok("0001:9a:00.7"));
        for bad in [
            "",
            "00:1f.0",
            "0000:00:1f",
            "0000:00:20.0",
            "0000:00:1f.8",
            "0000:000:1f.0",
            "g:0:0.0",
            "+1:0:0.0",
        ] {
            assert_eq!(read(bad), Err(()), "{bad}");
        }
    }

    #[test]
    fn the_configuration_space_tells_vendor_part_class_and_link() {
        let space = configuration(0x1d0f, 0xefa1, 16, 8);
        assert_eq!(space[..4], [0x0f, 0x1d, 0xa1, 0xef]);
        assert_eq!(space[0x0a..0x0c], [0, 2]);
        let express = space[0x34] as usize;
        assert_eq!((space[express], space[express + 0x12]), (0x10, 4 | 8 << 4));
    }
}
