//! Protection domains, thread domains and parent domains. With the latter two a program promises that one thread alone
//! uses an object; there is nothing here that would be the faster for it, so they are only kept track of.

use crate::boundary::{Errno, Outcome, abi, given_back, object, readable};
use crate::context::Context;
use crate::layout::constant::*;
use crate::layout::*;
use crate::objects::Link;
use srd_device::PdId;
use std::sync::atomic::{AtomicU32, Ordering};

/// A protection domain, or a parent domain: the same domain again, with a thread domain and a pointer of the
/// program's.
#[repr(C)]
pub(crate) struct Pd {
    ibv: ibv_pd,
    /// The device's name for it.
    pub id: PdId,
    link: Link,
    /// Parent domains of a domain; completion queues and queue pairs of a parent domain.
    users: AtomicU32,
    /// The domain of a parent domain.
    pub original: Option<&'static Pd>,
    /// The thread domain of a parent domain.
    thread: Option<&'static Td>,
}

// SAFETY: the C part is written when it is made, and the rest is Sync.
unsafe impl Sync for Pd {}

impl Pd {
    /// # Safety
    /// The pointer is NULL or points to a live domain, which stays alive for `'a`.
    pub unsafe fn of<'a>(pointer: *mut ibv_pd) -> Outcome<&'a Pd> {
        // SAFETY: as the caller says; `ibv` is the first field.
        unsafe { object(pointer) }
    }

    /// The context that it belongs to.
    pub fn context(&self) -> &Context {
        // SAFETY: a context outlives its objects.
        unsafe { Context::of(self.ibv.context) }.expect("it was there when this was made")
    }

    /// Enters a new domain and returns what C calls it.
    fn publish(
        context: &Context,
        id: PdId,
        original: Option<&'static Pd>,
        thread: Option<&'static Td>,
    ) -> Outcome<*mut ibv_pd> {
        let pd = Box::leak(Box::new(Pd {
            ibv: ibv_pd { context: context.pointer(), handle: id.0 },
            id,
            link: Link::new(context.instance()?),
            users: AtomicU32::new(0),
            original,
            thread,
        }));
        context.objects.add(|live| &mut live.pds, &pd.ibv);
        Ok(&mut pd.ibv)
    }

    /// Counts or uncounts a user of a parent domain. (The device counts those of a domain.)
    pub fn count_user(&self, more: bool) {
        if self.original.is_some() {
            if more {
                self.users.fetch_add(1, Ordering::Relaxed)
            } else {
                self.users.fetch_sub(1, Ordering::Relaxed)
            };
        }
    }

    /// Ends it because its context closes.
    pub fn end(&self) {
        if let Some(instance) = self.link.end()
            && self.original.is_none()
        {
            let _ = instance.with(|device, _| device.dealloc_pd(self.id));
        }
    }

    fn destroy(&self) -> Outcome<()> {
        if self.context().is_inherited() {
            return Ok(());
        }
        if self.users.load(Ordering::Relaxed) > 0 {
            return Err(Errno::BUSY);
        }
        if let Ok(instance) = self.link.instance() {
            match self.original {
                None => given_back(instance.with(|device, _| device.dealloc_pd(self.id)))?,
                Some(original) => {
                    original.users.fetch_sub(1, Ordering::Relaxed);
                    if let Some(thread) = self.thread {
                        thread.users.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            }
            self.context().objects.remove(|live| &mut live.pds, &self.ibv);
        }
        Ok(())
    }
}

/// A thread domain.
#[repr(C)]
struct Td {
    ibv: ibv_td,
    /// Parent domains with it.
    users: AtomicU32,
}

abi! {
    exported pointer fn ibv_alloc_pd(context: *mut ibv_context) -> ibv_pd {
        let context = Context::of(context)?;
        let id = context.instance()?.with(|device, _| device.alloc_pd())??;
        Pd::publish(context, id, None, None)
    }

    exported closing fn ibv_dealloc_pd(pd: *mut ibv_pd) {
        Pd::of(pd)?.destroy()?;
        drop(Box::from_raw(pd.cast::<Pd>()));
        Ok(())
    }

    pointer fn alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> ibv_td {
        let context = Context::of(context)?;
        if readable(attr)?.comp_mask != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let td = Box::leak(Box::new(Td { ibv: ibv_td { context: context.pointer() }, users: AtomicU32::new(0) }));
        Ok(&mut td.ibv)
    }

    closing fn dealloc_td(td: *mut ibv_td) {
        let thread: &Td = object(td)?;
        if thread.users.load(Ordering::Relaxed) > 0 {
            return Err(Errno::BUSY);
        }
        drop(Box::from_raw(td.cast::<Td>()));
        Ok(())
    }

    pointer fn alloc_parent_domain(
        context: *mut ibv_context,
        attr: *mut ibv_parent_domain_init_attr,
    ) -> ibv_pd {
        let context = Context::of(context)?;
        let attr = readable(attr)?;
        if attr.comp_mask & !IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let original: &'static Pd = Pd::of(attr.pd)?;
        if original.original.is_some() {
            return Err(Errno::INVALID);
        }
        let thread: Option<&'static Td> = if attr.td.is_null() { None } else { Some(object(attr.td)?) };
        let pd = Pd::publish(context, original.id, Some(original), thread)?;
        original.users.fetch_add(1, Ordering::Relaxed);
        if let Some(thread) = thread {
            thread.users.fetch_add(1, Ordering::Relaxed);
        }
        Ok(pd)
    }
}
