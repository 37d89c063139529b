//! Which generation of EFA the device resembles, and the limits that it reports.

use srd_device::{MAX_INLINE, MAX_RECV_SGE, MAX_SEND_SGE};

/// Vendor of the PCI device (Amazon), as programs look for it.
pub(crate) const VENDOR_ID: u32 = 0x1d0f;

/// Reported number of queue pairs: all 16-bit numbers, so that a program's table that is indexed by the number modulo
/// this many never holds two queue pairs in one place (docs/design/efa-verbs.md, "Trap 3").
pub(crate) const MAX_QP: u32 = 65_536;
/// Entries of a send queue (docs/design/efa-verbs.md, "Limits").
pub(crate) const MAX_SQ_WR: u32 = 4096;
/// Descriptors of a receive queue, one for each element (docs/design/efa-verbs.md, "Limits").
pub(crate) const MAX_RQ_WR: u32 = 32_768;
/// Entries of a completion queue: libfabric asks for send and receive queue together (docs/design/efa-verbs.md, "Trap 4").
pub(crate) const MAX_CQE: u32 = 65_536;
/// Completion queues.
pub(crate) const MAX_CQ: u32 = 1024;
/// Protection domains.
pub(crate) const MAX_PD: u32 = 1024;
/// Memory regions.
pub(crate) const MAX_MR: u32 = 262_144;
/// Address handles.
pub(crate) const MAX_AH: u32 = 65_000;
/// Completion counters (`max_event_counters` of `efa_admin_cmds_defs.h`, half of it). What cards have is written nowhere.
pub(crate) const MAX_COMP_CNTR: u32 = 4096;
/// The highest number that one holds. libfabric takes all 64 bits for a counter of its own (`efa_user_info_set_max_cntr_value`).
pub(crate) const MAX_COMP_CNTR_VALUE: u64 = u64::MAX >> 1;
/// Bytes of a memory region: an address space's worth.
pub(crate) const MAX_MR_SIZE: u64 = 1 << 47;
/// Elements of a send.
pub(crate) const MAX_SQ_SGE: u32 = MAX_SEND_SGE as u32;
/// Elements of a receive.
pub(crate) const MAX_RQ_SGE: u32 = MAX_RECV_SGE as u32;
/// Local elements of an RDMA operation: EFA's descriptor has room for one.
pub(crate) const MAX_RDMA_SGE: u32 = 1;
/// Bytes of inline data.
pub(crate) const INLINE_BYTES: u32 = MAX_INLINE as u32;
/// Bytes of an RDMA operation. As on p4d and p5 instances.
pub(crate) const MAX_RDMA_SIZE: u32 = 1 << 30;
/// Completion vectors; libfabric wants more than one before it waits on completion queues.
pub(crate) const COMPLETION_VECTORS: i32 = 8;

/// A generation of EFA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Profile {
    /// Its name in `SRD_EFA_PROFILE`.
    pub name: &'static str,
    /// PCI device number.
    pub part_id: u32,
    /// RDMA read.
    pub rdma_read: bool,
    /// RDMA write, also with immediate data.
    pub rdma_write: bool,
    /// Writes with immediate data that take no receive.
    pub unsolicited_write_recv: bool,
}

/// What real generations can do is a set of capability bits; the numbers matter to programs only so: 0xefa0 keeps
/// libfabric from the direct data path, 0xefa0 and 0xefa1 make it leave device RDMA to those who ask for it, and
/// from 0xefa2 on it insists on RDMA read (docs/design/efa-verbs.md, "Generations").
const PROFILES: [Profile; 3] = [
    Profile {
        name: "gen1",
        part_id: 0xefa0,
        rdma_read: false,
        rdma_write: false,
        unsolicited_write_recv: false,
    },
    Profile {
        name: "gen2",
        part_id: 0xefa1,
        rdma_read: true,
        rdma_write: false,
        unsolicited_write_recv: false,
    },
    Profile {
        name: "gen3",
        part_id: 0xefa2,
        rdma_read: true,
        rdma_write: true,
        unsolicited_write_recv: true,
    },
];

/// The newest: programs use what is there and do without what is not.
const DEFAULT: Profile = PROFILES[2];

impl Profile {
    /// That of a machine's device: what its instance type has.
    pub fn of(device: &srd_machine::Device) -> Profile {
        Profile {
            name: "machine",
            part_id: device.part_id as u32,
            rdma_read: device.rdma_read,
            rdma_write: device.rdma_write,
            unsolicited_write_recv: device.rdma_write,
        }
    }

    /// The one that `SRD_EFA_PROFILE` names; an error in words if there is none of that name.
    pub fn from_env() -> Result<Profile, String> {
        let Some(value) = std::env::var_os("SRD_EFA_PROFILE") else { return Ok(DEFAULT) };
        Profile::named(value.to_string_lossy().trim()).ok_or_else(|| {
            let names = PROFILES.map(|profile| profile.name).join(", ");
            format!("SRD_EFA_PROFILE={value:?} is not possible; allowed: {names}")
        })
    }

    fn named(name: &str) -> Option<Profile> {
        PROFILES.into_iter().find(|profile| profile.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reported_is_what_the_device_has() {
        let device = srd_device::DeviceConfig::default();
        assert_eq!(
            [MAX_SQ_WR, MAX_RQ_WR, MAX_CQE, MAX_CQ, MAX_PD, MAX_MR, MAX_AH, MAX_RDMA_SIZE],
            [
                device.max_sq,
                device.max_rq,
                device.max_cqe,
                device.max_cq,
                device.max_pd,
                device.max_mr,
                device.max_ah,
                device.max_rdma
            ]
        );
        assert!(device.rdma_read && device.rdma_write && device.rnr_retry && device.unsolicited_write_recv);
    }

    /// docs/design/efa-verbs.md, "Limits": what libfabric makes of the limits must be what it is on instances. More receives than
    /// that overflow arrays of its releases 1.19.0 to 2.4.0.
    #[test]
    fn libfabric_queues_come_out_as_on_instances() {
        let rounded_down = |n: u32| 1 << n.ilog2();
        assert_eq!(rounded_down(MAX_SQ_WR), 4096);
        assert_eq!(rounded_down(MAX_RQ_WR / MAX_RQ_SGE), 8192);
    }

    #[test]
    fn profiles_have_the_names_of_the_option() {
        assert_eq!(Profile::named("gen1").map(|p| p.part_id), Some(0xefa0));
        assert_eq!(Profile::named("gen4"), None);
    }
}
