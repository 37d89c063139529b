//! Completion queues: making, arming, destroying, and telling programs that there is something in them. How they are polled
//! is in [`crate::cq_iterator`].

use crate::acknowledgements::{acknowledge, wait_for_acknowledgements};
use crate::boundary::{
    Errno, Outcome, abi, copy_in, copy_out, given_back, has_field, object, readable, writable,
};
use crate::comp_channel::CompChannel;
use crate::context::Context;
use crate::cq_iterator::{self, Polled};
use crate::layout::constant::*;
use crate::layout::*;
use crate::objects::{Link, Pointer};
use crate::pd::Pd;
use crate::poll_lock::PollLock;
use crate::profile;
use crate::queue_memory::{CqMemory, Notice, Place};
use libc::{c_int, c_uint, c_void};
use srd_device::CqId;
use srd_net::Subscription;
use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

#[repr(C)]
pub(crate) struct Cq {
    /// What C sees, and writes to (its acknowledgement counters).
    ex: UnsafeCell<ibv_cq_ex>,
    /// Zero: later releases of rdma-core may put function pointers here.
    _room: [usize; 8],
    dv: efadv_cq,
    /// The device's name for it.
    pub id: CqId,
    pub link: Link,
    /// Completions on their way to the program.
    pub polled: PollLock<Polled>,
    subscription: Mutex<Option<Subscription>>,
    notice: Notice,
    /// See [`Cq::to_poll`].
    to_poll: AtomicU32,
    /// Its entries are in memory that the program reads, and this asks for a notice.
    in_memory: OnceLock<Arc<AtomicBool>>,
    /// Asynchronous events that the program was given.
    pub async_events_reported: AtomicU32,
    parent: Option<&'static Pd>,
}

// SAFETY: the fields of the C part that change belong to the program or to the holder of `polled`.
unsafe impl Sync for Cq {}

/// The number of no queue.
const NO_QUEUE: u32 = u32::MAX;

impl Cq {
    /// # Safety
    /// The pointer is NULL or points to a live queue, which stays alive for `'a`.
    #[inline]
    pub unsafe fn of<'a>(pointer: *mut ibv_cq) -> Outcome<&'a Cq> {
        // SAFETY: as the caller says; `ex` is the first field.
        unsafe { object(pointer) }
    }

    /// As [`Cq::of`], for the iterator, whose functions nobody calls with NULL.
    ///
    /// # Safety
    /// The pointer points to a live queue, which stays alive for `'a`.
    #[inline]
    pub unsafe fn of_ex<'a>(pointer: *mut ibv_cq_ex) -> &'a Cq {
        // SAFETY: as the caller says; `ex` is the first field.
        unsafe { &*pointer.cast::<Cq>() }
    }

    /// As [`Cq::of_ex`].
    ///
    /// # Safety
    /// The pointer comes from `efadv_cq_from_ibv_cq_ex`, whose queue stays alive for `'a`.
    #[inline]
    pub unsafe fn of_dv<'a>(pointer: *mut efadv_cq) -> &'a Cq {
        // SAFETY: as the caller says; `dv` lies at this distance from the beginning.
        unsafe { &*pointer.byte_sub(std::mem::offset_of!(Cq, dv)).cast::<Cq>() }
    }

    /// What C calls it.
    pub fn pointer(&self) -> *mut ibv_cq {
        self.ex.get().cast()
    }

    /// What C sees of the current completion.
    #[inline]
    pub fn ex(&self) -> *mut ibv_cq_ex {
        self.ex.get()
    }

    fn context(&self) -> &Context {
        // SAFETY: a context outlives its objects, and nobody writes to the field.
        unsafe { Context::of((*self.ex.get()).context) }.expect("it was there when this was made")
    }

    fn channel(&self) -> Option<&CompChannel> {
        // SAFETY: a channel cannot be destroyed while a queue uses it, and nobody writes to the field.
        unsafe { CompChannel::of((*self.ex.get()).channel) }.ok()
    }

    /// What polls ask the device for: nothing any more once the program takes completions from memory itself.
    #[inline]
    pub fn to_poll(&self) -> CqId {
        CqId(self.to_poll.load(Ordering::Relaxed))
    }

    /// Ends notifications and takes back those that the program has not seen.
    fn close_channel(&self) {
        if let Some(channel) = self.channel() {
            let close = || self.notice.open.store(false, Ordering::Relaxed);
            let unseen = channel.events.remove(close, |event| event.get() == self.pointer());
            self.notice.reported.fetch_sub(unseen as u32, Ordering::Relaxed);
        }
        let subscription = self.subscription.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        drop(subscription);
    }

    /// Ends it because its context closes.
    pub fn end(&self) {
        if let Some(instance) = self.link.end() {
            self.close_channel();
            let _ = instance.with(|device, _| device.destroy_cq(self.id));
        }
    }

    fn destroy(&self) -> Outcome<()> {
        let context = self.context();
        if context.is_inherited() {
            // The list of handlers is the parent's, and may have been locked at the fork.
            std::mem::forget(
                self.subscription.try_lock().ok().and_then(|mut subscription| subscription.take()),
            );
        } else {
            if let Ok(instance) = self.link.instance() {
                given_back(instance.with(|device, _| device.destroy_cq(self.id)))?;
                context.objects.remove(|live| &mut live.cqs, self.pointer());
                context.async_events.forget_cq(self.pointer());
                context.doorbells.forget_cq(self.id);
                self.close_channel();
            }
            self.wait_for_acknowledgements();
        }
        if let Some(channel) = self.channel() {
            channel.count_user(false);
        }
        if let Some(parent) = self.parent {
            parent.count_user(false);
        }
        Ok(())
    }

    fn give_memory(&self) -> Outcome<Place> {
        let context = self.context();
        // SAFETY: a field that nobody writes to.
        let depth = unsafe { (*self.ex.get()).cqe } as u32;
        let made = || {
            let mut memory = CqMemory::new(self.id, depth, self.notice.clone())?;
            self.polled.with(|polled| polled.drain().for_each(|completion| memory.push(&completion)));
            self.to_poll.store(NO_QUEUE, Ordering::Relaxed);
            let _ = self.in_memory.set(memory.armed.clone());
            Ok(memory)
        };
        context.doorbells.map_cq(context.watch_queues()?, self.id, made, CqMemory::place)
    }

    fn wait_for_acknowledgements(&self) {
        let ex = self.ex.get();
        let comp = self.notice.reported.load(Ordering::Relaxed);
        let asynchronous = self.async_events_reported.load(Ordering::Relaxed);
        // SAFETY: fields of this live object.
        unsafe {
            let (mutex, cond) = (&raw mut (*ex).mutex, &raw mut (*ex).cond);
            wait_for_acknowledgements(mutex, cond, &raw const (*ex).comp_events_completed, comp);
            wait_for_acknowledgements(mutex, cond, &raw const (*ex).async_events_completed, asynchronous);
        }
    }

    /// As libefa's `create_cq` and the kernel's `efa_create_cq` check and round.
    fn create(context: &Context, attr: &ibv_cq_init_attr_ex, efa_wc_flags: u64) -> Outcome<*mut ibv_cq_ex> {
        let known = IBV_CQ_INIT_ATTR_MASK_PD | IBV_CQ_INIT_ATTR_MASK_FLAGS;
        if attr.comp_mask & !known != 0 || attr.wc_flags & !IBV_WC_STANDARD_FLAGS != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let flags = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { attr.flags } else { 0 };
        if flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let parent: Option<&'static Pd> = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 {
            // SAFETY: by the manual page a live domain.
            Some(unsafe { Pd::of(attr.parent_domain) }?)
        } else {
            None
        };
        if parent.is_some_and(|parent| parent.original.is_none()) {
            return Err(Errno::INVALID);
        }
        // SAFETY: by the manual page NULL or a live channel.
        let channel: Option<&'static CompChannel> = unsafe { CompChannel::of(attr.channel) }.ok();
        if attr.cqe == 0
            || attr.cqe > profile::MAX_CQE
            || attr.comp_vector >= profile::COMPLETION_VECTORS as u32
        {
            return Err(Errno::INVALID);
        }
        let depth = attr.cqe.next_power_of_two();
        let instance = context.instance()?;
        let id = instance.with(|device, _| device.create_cq(depth))??;
        // SAFETY: numbers, pointers and optional function pointers, for all of which zero is valid.
        let mut ex: ibv_cq_ex = unsafe { std::mem::zeroed() };
        ex.context = context.pointer();
        ex.channel = attr.channel;
        ex.cq_context = attr.cq_context;
        ex.handle = id.0;
        ex.cqe = depth as c_int;
        ex.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        ex.cond = libc::PTHREAD_COND_INITIALIZER;
        cq_iterator::install(&mut ex, attr.wc_flags);
        let notice = Notice {
            target: Pointer::new(std::ptr::null()),
            events: channel.map(|channel| channel.events.clone()),
            open: Arc::new(AtomicBool::new(true)),
            reported: Arc::default(),
        };
        let cq = Box::leak(Box::new(Cq {
            ex: UnsafeCell::new(ex),
            _room: [0; 8],
            dv: cq_iterator::efa_fields(efa_wc_flags),
            id,
            link: Link::new(instance),
            polled: PollLock::new(Polled::new(context.device.strict)),
            subscription: Mutex::new(None),
            notice,
            to_poll: AtomicU32::new(id.0),
            in_memory: OnceLock::new(),
            async_events_reported: AtomicU32::new(0),
            parent,
        }));
        cq.notice.target = Pointer::new(cq.pointer());
        let cq: &'static Cq = cq;
        if let Some(channel) = channel {
            channel.count_user(true);
            // It may still run in another thread when the subscription, the queue and the channel have gone.
            let notice = cq.notice.clone();
            let subscription = instance.on_notification(id, move |_| notice.tell());
            *cq.subscription.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(subscription);
        }
        if let Some(parent) = parent {
            parent.count_user(true);
        }
        context.objects.add(|live| &mut live.cqs, cq.pointer());
        Ok(cq.ex.get())
    }
}

abi! {
    exported pointer fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> ibv_cq {
        let attr = ibv_cq_init_attr_ex {
            cqe: u32::try_from(cqe).map_err(|_| Errno::INVALID)?,
            cq_context,
            channel,
            comp_vector: u32::try_from(comp_vector).map_err(|_| Errno::INVALID)?,
            wc_flags: 0,
            comp_mask: 0,
            flags: 0,
            parent_domain: std::ptr::null_mut(),
        };
        Ok(Cq::create(Context::of(context)?, &attr, 0)?.cast())
    }

    pointer fn create_cq_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> ibv_cq_ex {
        Cq::create(Context::of(context)?, readable(attr)?, 0)
    }

    exported pointer fn srd_efadv_create_cq(
        context: *mut ibv_context,
        attr: *mut ibv_cq_init_attr_ex,
        efa_attr: *mut efadv_cq_init_attr,
        len: u32,
    ) -> ibv_cq_ex {
        let context = Context::of(context)?;
        if efa_attr.is_null() || !has_field(std::mem::offset_of!(efadv_cq_init_attr, wc_flags), len as usize) {
            return Err(Errno::INVALID);
        }
        let efa = copy_in(efa_attr, len as usize).ok_or(Errno::INVALID)?;
        if efa.comp_mask != 0 {
            return Err(Errno::INVALID);
        }
        let mut supported = EFADV_WC_EX_WITH_SGID;
        if context.device.profile.unsolicited_write_recv {
            supported |= EFADV_WC_EX_WITH_IS_UNSOLICITED;
        }
        // The flags ask for the queue in memory of the program's, which no polled structure could fill.
        if efa.wc_flags & !supported != 0 || efa.flags != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        Cq::create(context, readable(attr)?, efa.wc_flags)
    }

    exported closing fn ibv_destroy_cq(cq: *mut ibv_cq) {
        Cq::of(cq)?.destroy()?;
        drop(Box::from_raw(cq.cast::<Cq>()));
        Ok(())
    }

    exported status fn ibv_resize_cq(_cq: *mut ibv_cq, _cqe: c_int) {
        Err(Errno::UNSUPPORTED)
    }

    /// libefa refuses to wait for solicited completions only: nothing in a message says that it is one.
    status fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) {
        let cq = Cq::of(cq)?;
        if solicited_only != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if let Some(armed) = cq.in_memory.get() {
            armed.store(true, Ordering::SeqCst);
            return Ok(());
        }
        cq.link.instance()?.with(|device, _| device.arm_cq(cq.id, false))??;
        // What we have taken from the device and the program has not seen yet completed before, in our eyes; in the
        // program's it is still to come.
        if cq.polled.with(|polled| polled.has_more()) {
            cq.notice.tell();
        }
        Ok(())
    }

    exported minus_one fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) {
        let channel = CompChannel::of(channel)?;
        let (cq, cq_context) = (writable(cq)?, writable(cq_context)?);
        channel.events.pop(|notified| {
            *cq = notified.get();
            *cq_context = (**cq).cq_context;
        })?;
        Ok(0)
    }
    /// From now on the queue's entries are in memory (docs/design/efa-verbs.md, "Direct data path").
    exported status fn srd_efadv_query_cq(cq: *mut ibv_cq, attr: *mut efadv_cq_attr, len: u32) {
        let cq = Cq::of(cq)?;
        if attr.is_null() || !has_field(offset_of!(efadv_cq_attr, num_entries), len as usize) {
            return Err(Errno::INVALID);
        }
        let place = cq.give_memory()?;
        let answer = efadv_cq_attr {
            comp_mask: 0,
            buffer: place.buffer,
            entry_size: place.entry_size,
            num_entries: place.entries,
            doorbell: place.doorbell,
        };
        copy_out(&answer, attr, len as usize);
        Ok(())
    }

    exported pointer fn srd_efadv_cq_from_ibv_cq_ex(cq: *mut ibv_cq_ex) -> efadv_cq {
        let cq: &Cq = object(cq)?;
        Ok((&raw const cq.dv).cast_mut())
    }
}

/// Returns nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    if !cq.is_null() {
        // SAFETY: by `ibv_ack_cq_events(3)` it points to a live completion queue.
        unsafe {
            acknowledge(
                &raw mut (*cq).mutex,
                &raw mut (*cq).cond,
                &raw mut (*cq).comp_events_completed,
                count,
            );
        }
    }
}
