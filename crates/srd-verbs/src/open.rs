//! Opening and closing devices: the functions that a context leads to, and the end of what a program forgot to destroy.

use crate::ah::Ah;
use crate::boundary::{abi, object};
use crate::comp_cntr::CompCntr;
use crate::context::{self, Context};
use crate::cq::{self, Cq};
use crate::device_list::Device;
use crate::layout::*;
use crate::mr::Mr;
use crate::objects::Live;
use crate::pd::{self, Pd};
use crate::qp::{self, Qp};
use crate::{cq_iterator, stubs, wr_builder};
use srd_net::log;

/// The functions that programs call through a context.
fn functions() -> verbs_context {
    // SAFETY: pointers, numbers and optional function pointers, for all of which zero is valid.
    let mut verbs: verbs_context = unsafe { std::mem::zeroed() };
    verbs.query_port = Some(context::query_port);
    verbs.query_device_ex = Some(context::query_device_ex);
    verbs.create_cq_ex = Some(cq::create_cq_ex);
    verbs.create_qp_ex = Some(qp::create_qp_ex);
    verbs.alloc_td = Some(pd::alloc_td);
    verbs.dealloc_td = Some(pd::dealloc_td);
    verbs.alloc_parent_domain = Some(pd::alloc_parent_domain);
    let ops = &mut verbs.context.ops;
    ops._compat_query_device = Some(context::ibv_query_device);
    ops._compat_query_port = Some(context::ibv_query_port);
    ops.poll_cq = Some(cq_iterator::poll_cq);
    ops.req_notify_cq = Some(cq::req_notify_cq);
    ops.post_send = Some(wr_builder::post_send);
    ops.post_recv = Some(qp::post_recv);
    ops.post_srq_recv = Some(stubs::post_srq_recv);
    verbs
}

/// Ends objects, users before what they use. Returns how many there were.
///
/// # Safety
/// They are alive, and nobody else ends them.
unsafe fn end_all(live: Live) -> usize {
    // SAFETY: as the caller says.
    unsafe {
        live.qps.iter().flat_map(|qp| Qp::of(qp.get())).for_each(Qp::end);
        live.cqs.iter().flat_map(|cq| Cq::of(cq.get())).for_each(Cq::end);
        live.mrs.iter().flat_map(|mr| object(mr.get())).for_each(Mr::end);
        live.ahs.iter().flat_map(|ah| Ah::of(ah.get())).for_each(Ah::end);
        live.comp_cntrs.iter().flat_map(|cntr| object(cntr.get())).for_each(CompCntr::end);
        live.pds.iter().flat_map(|pd| Pd::of(pd.get())).for_each(Pd::end);
    }
    live.qps.len() + live.cqs.len() + live.mrs.len() + live.ahs.len() + live.comp_cntrs.len() + live.pds.len()
}

abi! {
    exported pointer fn ibv_open_device(device: *mut ibv_device) -> ibv_context {
        let context = Context::new(Device::of(device)?, functions())?;
        Ok(Box::leak(context).pointer())
    }

    exported closing fn ibv_close_device(context: *mut ibv_context) {
        let context = (&raw const *Context::of(context)?).cast_mut();
        if (*context).is_inherited() {
            // Sockets and threads are the parent's; the memory stays, too, as a lock may have been held at the fork.
            return Ok(());
        }
        (*context).doorbells.end();
        let forgotten = end_all((*context).objects.take());
        if forgotten == 0 {
            drop(Box::from_raw(context));
            return Ok(());
        }
        log::debug(format_args!("ibv_close_device: ended {forgotten} objects that the program had not destroyed"));
        // Their memory stays, and the context's: the program may still name them.
        (*context).disconnect();
        Ok(())
    }
}
