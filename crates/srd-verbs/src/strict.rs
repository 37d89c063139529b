//! `SRD_EFA_STRICT`: what EFA, its library or the kernel refuses, and this device takes unless it is asked not to: since it does no harm
//! here, or since the program would have to know a number that no card's document says. The rules with their sources are a table in
//! docs/guide/efa-programs.md; each is a function here, or is named there.

use crate::boundary::{Errno, Outcome};
use crate::layout::ibv_ah_attr;
use crate::pages::page;
use crate::profile::MAX_SQ_WR;
use srd_device::{DESCRIPTOR_BITS, Device, Memory, Sge};
use srd_net::log;
use srd_wire::MrKey;

/// Whether the variable is set to `on` or 1.
pub(crate) fn is_on() -> Result<bool, String> {
    on_or_off("SRD_EFA_STRICT", false)
}

/// Whether work for the device's own address reaches it (`SRD_EFA_LOOPBACK`). Reports of cards disagree, so it is no rule of the others'.
pub(crate) fn loopback() -> Result<bool, String> {
    on_or_off("SRD_EFA_LOOPBACK", true)
}

/// libefa's `efa_create_comp_cntr_impl` takes counters of work requests alone.
pub(crate) fn check_counter_in_bytes() -> Outcome<()> {
    Err(refuse(Errno::UNSUPPORTED, "a completion counter of bytes (IBV_COMP_CNTR_TYPE_BYTES)"))
}

/// A variable that is on or off; an error in words if it is something else.
pub(crate) fn on_or_off(name: &str, default: bool) -> Result<bool, String> {
    let Some(value) = std::env::var_os(name) else { return Ok(default) };
    match value.to_str().map(str::trim) {
        Some("on" | "1") => Ok(true),
        Some("off" | "0") => Ok(false),
        _ => Err(format!("{name}={value:?} is not possible; allowed: on, off, 1, 0")),
    }
}

/// Says once what a rule refuses.
#[cold]
fn refuse(errno: Errno, why: &str) -> Errno {
    log::once(log::Level::Warn, why, format_args!("refused, as SRD_EFA_STRICT is set: {why}"));
    errno
}

/// `ib_uverbs_reg_mr` of the kernel's `uverbs_cmd.c`: the address that names a region's first byte lies as far into a page.
pub(crate) fn check_alignment(addr: usize, iova: u64) -> Outcome<()> {
    match (addr as u64 ^ iova) & (page() as u64 - 1) {
        0 => Ok(()),
        _ => Err(refuse(
            Errno::INVALID,
            "a region whose iova is not as far into a page as its address (ibv_reg_mr_iova)",
        )),
    }
}

/// The kernel passes a GID on for a global address only (`ib_uverbs_create_ah`), and looks the local one up (`rdma_get_gid_attr`):
/// EFA has one.
pub(crate) fn check_address(attr: &ibv_ah_attr) -> Outcome<()> {
    if attr.is_global == 0 {
        return Err(refuse(Errno::INVALID, "an address handle without is_global: EFA goes by the GID alone"));
    }
    if attr.grh.sgid_index != 0 {
        return Err(refuse(
            Errno::INVALID,
            "an address handle with an sgid_index: EFA has one GID, of index 0",
        ));
    }
    Ok(())
}

/// `modify_qp` of the kernel's `uverbs_cmd.c` (`IB_QP_SET_QKEY`): such a key is for who may use raw sockets.
pub(crate) fn check_queue_key(qkey: u32) -> Outcome<()> {
    if qkey >> 31 == 0 {
        return Ok(());
    }
    Err(refuse(
        Errno(libc::EPERM),
        "a queue key with the highest bit set: such keys are privileged (Linux 6.4)",
    ))
}

/// Entries of a send queue, if writes may be inline or not: they are twice as long then, in the same memory of the card
/// (libefa `efa_calc_sq_max_depth`).
pub(crate) fn send_depth(inline_write: bool) -> u32 {
    if inline_write { MAX_SQ_WR / 2 } else { MAX_SQ_WR }
}

/// What a region's local key is told as: what a descriptor has of it. A remote key has all bits, so neither can stand for the other
/// (ibv_reg_mr(3)).
pub(crate) fn local_key(key: MrKey) -> u32 {
    key.0 & DESCRIPTOR_BITS
}

/// Elements whose keys are such as [`local_key`] tells.
pub(crate) fn with_whole_keys<M: Memory, const MOST: usize>(
    device: &Device<M>,
    sges: &[Sge; MOST],
) -> [Sge; MOST] {
    let whole = |lkey: MrKey| match lkey.0 & !DESCRIPTOR_BITS {
        0 => device.key_of_descriptor(lkey.0),
        _ => MrKey(0),
    };
    sges.map(|sge| Sge { lkey: whole(sge.lkey), ..sge })
}

/// Most entries of a send queue that are written and not rung for (`efa_admin_cmds_defs.h`, `max_tx_batch`: its example has 16, with
/// which programs for cards reckon).
pub(crate) const MAX_BATCH: u32 = 16;
