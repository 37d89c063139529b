//! Names of numbers, and the number of link rates.

use crate::layout::constant::IBV_EVENT_SRD_REMOTE_UNRESPONSIVE;
use libc::{c_char, c_int};
use std::ffi::CStr;

/// Looks a number up in a list that begins at `first`.
fn name(names: &'static [&'static CStr], first: c_int, number: c_int) -> *const c_char {
    let at = number.checked_sub(first).and_then(|at| usize::try_from(at).ok());
    at.and_then(|at| names.get(at)).map_or(c"unknown".as_ptr(), |name| name.as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    const NAMES: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"work request flushed",
        c"memory window bind error",
        c"bad response",
        c"local access error",
        c"remote invalid request",
        c"remote access error",
        c"remote operation error",
        c"transport retries exceeded",
        c"receiver not ready, retries exceeded",
        c"local RDD violation",
        c"remote invalid RD request (EFA: bad destination QP)",
        c"remote aborted",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"no response from the remote host",
        c"general error",
        c"tag matching error",
        c"tag matching rendezvous incomplete",
    ];
    name(&NAMES, 0, status)
}

#[unsafe(no_mangle)]
pub extern "C" fn ibv_node_type_str(kind: c_int) -> *const c_char {
    const NAMES: [&CStr; 7] = [
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    name(&NAMES, 1, kind)
}

/// Tools look for these very words.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    const NAMES: [&CStr; 6] =
        [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active deferred"];
    name(&NAMES, 0, state)
}

#[unsafe(no_mangle)]
pub extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    const NAMES: [&CStr; 21] = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
        c"device speed change",
    ];
    if event == IBV_EVENT_SRD_REMOTE_UNRESPONSIVE {
        return c"SRD remote host unresponsive".as_ptr();
    }
    name(&NAMES, 0, event)
}

/// `ibv_wr_opcode_str`, which newer releases of rdma-core keep to their own tools (link.sh exports it).
#[unsafe(no_mangle)]
pub extern "C" fn srd_wr_opcode_str(opcode: c_int) -> *const c_char {
    const NAMES: [&CStr; 16] = [
        c"RDMA_WRITE",
        c"RDMA_WRITE_WITH_IMM",
        c"SEND",
        c"SEND_WITH_IMM",
        c"RDMA_READ",
        c"ATOMIC_CMP_AND_SWP",
        c"ATOMIC_FETCH_AND_ADD",
        c"LOCAL_INV",
        c"BIND_MW",
        c"SEND_WITH_INV",
        c"TSO",
        c"DRIVER1",
        c"unknown",
        c"unknown",
        c"FLUSH",
        c"ATOMIC_WRITE",
    ];
    name(&NAMES, 0, opcode)
}

/// Rates of InfiniBand links: the number in verbs, Mb/s on the wire, and multiple of 2.5 Gb/s where verbs have one.
const RATES: [(c_int, c_int, Option<c_int>); 23] = [
    (2, 2_500, Some(1)),
    (5, 5_000, Some(2)),
    (3, 10_000, Some(4)),
    (6, 20_000, Some(8)),
    (4, 30_000, Some(12)),
    (7, 40_000, Some(16)),
    (8, 60_000, Some(24)),
    (9, 80_000, Some(32)),
    (10, 120_000, Some(48)),
    (11, 14_062, None),
    (12, 56_250, None),
    (13, 112_500, None),
    (14, 168_750, None),
    (15, 25_781, None),
    (16, 103_125, None),
    (17, 206_250, None),
    (18, 309_375, None),
    (19, 28_125, Some(11)),
    (20, 53_125, Some(20)),
    (21, 425_000, Some(160)),
    (22, 637_500, Some(240)),
    (23, 850_000, Some(320)),
    (24, 1_275_000, Some(480)),
];

#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    RATES.iter().find(|row| row.0 == rate).and_then(|row| row.2).unwrap_or(-1)
}

#[unsafe(no_mangle)]
pub extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    RATES.iter().find(|row| row.2 == Some(mult)).map_or(0, |row| row.0)
}

#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|row| row.0 == rate).map_or(-1, |row| row.1)
}

#[unsafe(no_mangle)]
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    RATES.iter().find(|row| row.1 == mbps).map_or(0, |row| row.0)
}
