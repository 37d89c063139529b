//! What the lock of an instance is about: a device that may be half changed, and has completions that nobody has polled.

use srd_device::{AhNumber, Completion, CompletionOp, CqId};
use srd_wire::{Gid, Qpn, Status};

pub struct Core {
    pub device: Device,
}

pub struct Device {
    /// Somebody is inside, or has left by a panic.
    pub is_half_changed: bool,
    left: Vec<(CqId, Completion)>,
}

impl Core {
    /// With so many completions in that queue.
    pub fn new(cq: CqId, left: u64) -> Core {
        let completion = |wr_id| Completion {
            wr_id,
            status: Status::Flushed,
            op: CompletionOp::Send,
            qpn: Qpn(2),
            src_qpn: Qpn(0),
            src_ah: AhNumber::NONE,
            src_gid: Gid::default(),
            byte_len: 0,
            imm: None,
            unsolicited: false,
            claimed: false,
        };
        let left = (0..left).map(|n| (cq, completion(n))).collect();
        Core { device: Device { is_half_changed: false, left } }
    }
}

impl Device {
    pub fn last_completions(&self) -> Vec<(CqId, Completion)> {
        self.left.clone()
    }
}
