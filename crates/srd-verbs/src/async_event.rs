//! Asynchronous events: `ibv_get_async_event` and the descriptor `async_fd`.

use crate::boundary::{Errno, Outcome, abi, writable};
use crate::context::Context;
use crate::cq::Cq;
use crate::event_queue::EventQueue;
use crate::layout::constant::*;
use crate::layout::*;
use crate::objects::Objects;
use crate::qp::Qp;
use libc::c_int;
use srd_device::AsyncEvent;
use std::sync::atomic::Ordering;

/// An event that waits for the program. The pointers are followed only while the object is alive: its events are
/// taken out before it goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    QpFatal(*const Qp),
    CqError(*const Cq),
    RemoteUnresponsive,
    DeviceFatal,
}

// SAFETY: pointers to objects that may be used from any thread.
unsafe impl Send for Waiting {}

/// The events of one context.
pub(crate) struct AsyncQueue(EventQueue<Waiting>);

impl AsyncQueue {
    pub fn new() -> Outcome<AsyncQueue> {
        Ok(AsyncQueue(EventQueue::new()?))
    }

    pub fn fd(&self) -> c_int {
        self.0.fd()
    }

    /// Takes an event of the device that the context's objects belong to. The device may serve other contexts, too:
    /// events of their objects are not for us.
    pub fn deliver(&self, event: AsyncEvent, objects: &Objects) {
        match event {
            AsyncEvent::QpFatal(qpn) => {
                objects.with_qp(qpn, |qp| self.0.push_if(Waiting::QpFatal(qp), || true));
            }
            AsyncEvent::CqOverrun(id) => {
                objects.with_cq(id, |cq| self.0.push_if(Waiting::CqError(cq), || true));
            }
            AsyncEvent::RemoteUnresponsive { .. } => {
                self.0.push_if(Waiting::RemoteUnresponsive, || true);
            }
            AsyncEvent::DeviceFatal => self.0.push_if(Waiting::DeviceFatal, || true),
        }
    }

    /// Takes out the events of a queue pair that ends.
    pub fn forget_qp(&self, qp: &Qp) {
        self.0.remove(|| (), |event| *event == Waiting::QpFatal(qp));
    }

    /// Takes out the events of a completion queue that ends.
    pub fn forget_cq(&self, cq: &Cq) {
        self.0.remove(|| (), |event| *event == Waiting::CqError(cq));
    }
}

abi! {
    exported minus_one fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) {
        let context = Context::of(context)?;
        let event = writable(event)?;
        context.async_events.0.pop(|waiting| match waiting {
            Waiting::QpFatal(qp) => {
                (*qp).async_events_reported.fetch_add(1, Ordering::Relaxed);
                event.event_type = IBV_EVENT_QP_FATAL;
                event.element.qp = (*qp).pointer();
            }
            Waiting::CqError(cq) => {
                (*cq).async_events_reported.fetch_add(1, Ordering::Relaxed);
                event.event_type = IBV_EVENT_CQ_ERR;
                event.element.cq = (*cq).pointer();
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

/// Counts events that the program has done with, for those who wait for it.
///
/// # Safety
/// The pointers lead to the fields of a live object of ours.
pub(crate) unsafe fn acknowledge(
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    completed: *mut u32,
    count: u32,
) {
    // SAFETY: as the caller says; mutex and condition were initialised with the object.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        *completed = (*completed).wrapping_add(count);
        libc::pthread_cond_broadcast(cond);
        libc::pthread_mutex_unlock(mutex);
    }
}

/// Waits until the program has acknowledged all that it was given: `ibv_ack_cq_events(3)`, `ibv_ack_async_event(3)`,
/// "to avoid races, destroying … will wait for all … events to be acknowledged".
///
/// # Safety
/// As [`acknowledge`].
pub(crate) unsafe fn wait_for_acknowledgements(
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    completed: *const u32,
    reported: u32,
) {
    // SAFETY: as the caller says.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        while completed.read_volatile() != reported {
            libc::pthread_cond_wait(cond, mutex);
        }
        libc::pthread_mutex_unlock(mutex);
    }
}
