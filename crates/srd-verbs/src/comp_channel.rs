//! Completion channels: where a program waits for notifications of completion queues.

use crate::boundary::{Errno, Outcome, abi, object};
use crate::context::Context;
use crate::event_queue::{Event, EventQueue};
use crate::layout::*;
use crate::objects::Pointer;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

#[repr(C)]
pub(crate) struct CompChannel {
    ibv: ibv_comp_channel,
    /// Completion queues that use it.
    users: AtomicI32,
    /// Notifications that wait for the program.
    pub events: Arc<EventQueue<Pointer<ibv_cq>>>,
}

// SAFETY: the C part is written when it is made, and the rest is Sync.
unsafe impl Sync for CompChannel {}
// SAFETY: as above.
unsafe impl Send for CompChannel {}

impl CompChannel {
    /// # Safety
    /// The pointer is NULL or points to a live channel, which stays alive for `'a`.
    pub unsafe fn of<'a>(pointer: *mut ibv_comp_channel) -> Outcome<&'a CompChannel> {
        // SAFETY: as the caller says; `ibv` is the first field.
        unsafe { object(pointer) }
    }

    /// Counts or uncounts a completion queue.
    pub fn count_user(&self, more: bool) {
        self.users.fetch_add(if more { 1 } else { -1 }, Ordering::Relaxed);
    }
}

/// `ib_uverbs_comp_event_desc`: the number that the program gave the queue, for which libibverbs takes its address.
impl Event for Pointer<ibv_cq> {
    type Bytes = [u8; 8];

    fn bytes(&self) -> [u8; 8] {
        (self.get() as u64).to_ne_bytes()
    }

    fn of(bytes: [u8; 8]) -> Pointer<ibv_cq> {
        Pointer::new(u64::from_ne_bytes(bytes) as *const ibv_cq)
    }
}

abi! {
    exported pointer fn ibv_create_comp_channel(context: *mut ibv_context) -> ibv_comp_channel {
        let context = Context::of(context)?;
        let events = Arc::new(EventQueue::new()?);
        let channel = Box::leak(Box::new(CompChannel {
            ibv: ibv_comp_channel { context: context.pointer(), fd: events.fd(), refcnt: 0 },
            users: AtomicI32::new(0),
            events,
        }));
        Ok(&mut channel.ibv)
    }

    exported closing fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) {
        if CompChannel::of(channel)?.users.load(Ordering::Relaxed) > 0 {
            return Err(Errno::BUSY);
        }
        drop(Box::from_raw(channel.cast::<CompChannel>()));
        Ok(())
    }
}
