//! The asynchronous events of a context that wait for the program, behind the descriptor `async_fd`.

use crate::boundary::Outcome;
use crate::event_queue::EventQueue;
use crate::layout::*;
use crate::objects::{Objects, Pointer};
use libc::c_int;
use srd_device::AsyncEvent;

/// An event that waits for the program. The pointers are followed only while the object is alive: its events are
/// taken out before it goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    QpFatal(Pointer<ibv_qp>),
    CqError(Pointer<ibv_cq>),
    RemoteUnresponsive,
    DeviceFatal,
}

/// The events of one context.
pub(crate) struct AsyncQueue(pub EventQueue<Waiting>);

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
                objects.with_qp(qpn, |qp| _ = self.0.push_if(Waiting::QpFatal(qp), || true));
            }
            AsyncEvent::CqOverrun(id) => {
                objects.with_cq(id, |cq| _ = self.0.push_if(Waiting::CqError(cq), || true));
            }
            AsyncEvent::RemoteUnresponsive { .. } => {
                self.0.push_if(Waiting::RemoteUnresponsive, || true);
            }
            AsyncEvent::DeviceFatal => {
                self.0.push_if(Waiting::DeviceFatal, || true);
            }
        }
    }

    /// Takes out the events of a queue pair that ends.
    pub fn forget_qp(&self, qp: *const ibv_qp) {
        let gone = Waiting::QpFatal(Pointer::new(qp));
        self.0.remove(|| (), |event| *event == gone);
    }

    /// Takes out the events of a completion queue that ends.
    pub fn forget_cq(&self, cq: *const ibv_cq) {
        let gone = Waiting::CqError(Pointer::new(cq));
        self.0.remove(|| (), |event| *event == gone);
    }
}
