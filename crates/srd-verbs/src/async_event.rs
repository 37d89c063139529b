//! Asynchronous events as verbs: what a program is given of those that wait, and what it has done with.

use crate::acknowledgements::acknowledge;
use crate::async_queue::Waiting;
use crate::boundary::{Errno, abi, writable};
use crate::context::Context;
use crate::cq::Cq;
use crate::layout::constant::*;
use crate::layout::*;
use crate::qp::Qp;
use std::sync::atomic::Ordering;

abi! {
    exported minus_one fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) {
        let context = Context::of(context)?;
        let event = writable(event)?;
        context.async_events.0.pop(|waiting| match waiting {
            Waiting::QpFatal(qp) => {
                (*qp.get().cast::<Qp>()).async_events_reported.fetch_add(1, Ordering::Relaxed);
                event.event_type = IBV_EVENT_QP_FATAL;
                event.element.qp = qp.get();
            }
            Waiting::CqError(cq) => {
                (*cq.get().cast::<Cq>()).async_events_reported.fetch_add(1, Ordering::Relaxed);
                event.event_type = IBV_EVENT_CQ_ERR;
                event.element.cq = cq.get();
            }
            Waiting::RemoteUnresponsive => {
                event.event_type = IBV_EVENT_SRD_REMOTE_UNRESPONSIVE;
                event.element.port_num = 1;
            }
            Waiting::DeviceFatal => {
                event.event_type = IBV_EVENT_DEVICE_FATAL;
                event.element.port_num = 0;
            }
        })?;
        Ok(0)
    }

    exported status fn srd_ack_async_event(event: *mut ibv_async_event) {
        let event = writable(event)?;
        match event.event_type {
            IBV_EVENT_QP_FATAL => {
                let qp = event.element.qp;
                acknowledge(&raw mut (*qp).mutex, &raw mut (*qp).cond, &raw mut (*qp).events_completed, 1);
            }
            IBV_EVENT_CQ_ERR => {
                let cq = event.element.cq;
                acknowledge(&raw mut (*cq).mutex, &raw mut (*cq).cond, &raw mut (*cq).async_events_completed, 1);
            }
            IBV_EVENT_SRD_REMOTE_UNRESPONSIVE | IBV_EVENT_DEVICE_FATAL => {}
            _ => return Err(Errno::INVALID),
        }
        Ok(())
    }
}

/// Returns nothing, so nothing can be said about an event that we never gave out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the caller's promise is the same.
    unsafe { srd_ack_async_event(event) };
}
