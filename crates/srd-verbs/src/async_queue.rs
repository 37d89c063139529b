//! The asynchronous events of a context that wait for the program, behind the descriptor `async_fd`.

use crate::boundary::Outcome;
use crate::event_queue::{Event, EventQueue};
use crate::layout::constant::*;
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

/// `ib_uverbs_async_event_desc`: the object's number, for which libibverbs takes its address, or the port; and the type.
impl Event for Waiting {
    type Bytes = [u8; 16];

    fn bytes(&self) -> [u8; 16] {
        let (element, event_type) = match self {
            Waiting::CqError(cq) => (cq.get() as u64, IBV_EVENT_CQ_ERR),
            Waiting::QpFatal(qp) => (qp.get() as u64, IBV_EVENT_QP_FATAL),
            Waiting::RemoteUnresponsive => (1, IBV_EVENT_SRD_REMOTE_UNRESPONSIVE),
            Waiting::DeviceFatal => (0, IBV_EVENT_DEVICE_FATAL),
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&element.to_ne_bytes());
        bytes[8..12].copy_from_slice(&event_type.to_ne_bytes());
        bytes
    }

    fn of(bytes: [u8; 16]) -> Waiting {
        let [element, rest] =
            [0, 8].map(|at| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight")));
        match rest as c_int {
            IBV_EVENT_CQ_ERR => Waiting::CqError(Pointer::new(element as *const ibv_cq)),
            IBV_EVENT_QP_FATAL => Waiting::QpFatal(Pointer::new(element as *const ibv_qp)),
            IBV_EVENT_SRD_REMOTE_UNRESPONSIVE => Waiting::RemoteUnresponsive,
            _ => Waiting::DeviceFatal,
        }
    }
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
                objects.with_qp(qpn, |qp| _ = self.0.push(Waiting::QpFatal(qp)));
            }
            AsyncEvent::CqOverrun(id) => {
                objects.with_cq(id, |cq| _ = self.0.push(Waiting::CqError(cq)));
            }
            AsyncEvent::RemoteUnresponsive { .. } => {
                self.0.push(Waiting::RemoteUnresponsive);
            }
            AsyncEvent::DeviceFatal => {
                self.0.push(Waiting::DeviceFatal);
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
