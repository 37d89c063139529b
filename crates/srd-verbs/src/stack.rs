//! What calls leave behind on the stack.

/// Overwrites the stack below the caller with zeros, where the calls before have left their values.
///
/// libfabric 1.17's datagram endpoint reports completion flags out of stack memory that it never wrote, if its queue
/// has the format FI_CQ_FORMAT_CONTEXT (`efa_ep_progress_internal` with `efa_cq_read_context_entry`), and takes one of
/// them for a mark of its own. libefa uses little stack and gets away with it; what a transport leaves there makes it
/// crash. So calls on behalf of datagram queue pairs, and only those, end with this.
#[inline(never)]
pub(crate) fn clear_stack() {
    /// More than the calls into the transport use.
    const DEPTH: usize = 16_384;
    std::hint::black_box(&mut [0u8; DEPTH]);
}
