//! Completion counters (`ibv_create_comp_cntr(3)`): who wants to know how much a queue pair has completed, without a completion
//! queue's entries. What a counter counts in, and where, is its own business.

use crate::api::{CompletionOp, DeviceError};
use std::fmt::Debug;
use std::sync::Arc;

/// A counter of whoever uses the device. It is told while the device works, by one thread at a time.
pub trait CompletionCounter: Debug + Send + Sync {
    /// Something has completed well, of so many bytes of payload.
    fn completed(&self, bytes: u32);
    /// Something has completed with an error.
    fn failed(&self);
}

/// What is counted, each apart (`ibv_qp_attach_comp_cntr(3)`). Operations of peers fail at the peer, and so are counted only if
/// they go well, as by the driver (`efa_verbs.c`, `efa_comp_cntr_op_to_err_events`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// Sends.
    Send,
    /// Receives that a send fills.
    Recv,
    /// RDMA reads.
    Read,
    /// RDMA reads of peers, when the peer has what it asked for.
    RemoteRead,
    /// RDMA writes.
    Write,
    /// RDMA writes of peers, also those with immediate data, which are no receives here (as in libfabric's `FI_REMOTE_WRITE`).
    RemoteWrite,
}

impl Counted {
    /// All, in the order of the bits of `ibv_qp_attach_comp_cntr_op`.
    pub const ALL: [Counted; 6] = [
        Counted::Send,
        Counted::Recv,
        Counted::Read,
        Counted::RemoteRead,
        Counted::Write,
        Counted::RemoteWrite,
    ];

    /// What a completion counts as.
    pub(crate) fn of(op: CompletionOp) -> Counted {
        match op {
            CompletionOp::Send => Counted::Send,
            CompletionOp::Read => Counted::Read,
            CompletionOp::Write => Counted::Write,
            CompletionOp::Recv => Counted::Recv,
            CompletionOp::RecvRdmaWithImm => Counted::RemoteWrite,
        }
    }
}

type Table = [Option<Arc<dyn CompletionCounter>>; Counted::ALL.len()];

/// The counters of a queue pair. Most have none.
#[derive(Debug, Default)]
pub(crate) struct AttachedCounters(Option<Box<Table>>);

impl AttachedCounters {
    /// As the kernel checks it (`uverbs_std_types_qp.c`, `UVERBS_METHOD_QP_ATTACH_COMP_CNTR`).
    pub fn attach(
        &mut self,
        what: &[Counted],
        counter: &Arc<dyn CompletionCounter>,
    ) -> Result<(), DeviceError> {
        if what.is_empty() {
            return Err(DeviceError::Invalid("operations: name at least one"));
        }
        let table = self.0.get_or_insert_default();
        if what.iter().any(|&what| table[what as usize].is_some()) {
            return Err(DeviceError::Busy("operation: another counter of the queue pair counts it"));
        }
        what.iter().for_each(|&what| table[what as usize] = Some(counter.clone()));
        Ok(())
    }

    #[inline]
    pub fn completed(&self, what: Counted, bytes: u32) {
        if let Some(counter) = self.of(what) {
            counter.completed(bytes);
        }
    }

    #[inline]
    pub fn failed(&self, what: Counted) {
        if let Some(counter) = self.of(what) {
            counter.failed();
        }
    }

    #[inline]
    fn of(&self, what: Counted) -> Option<&Arc<dyn CompletionCounter>> {
        self.0.as_ref()?[what as usize].as_ref()
    }
}
