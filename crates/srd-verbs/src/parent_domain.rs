//! Thread domains and parent domains. With them a program promises that one thread alone uses an object; there is
//! nothing here that would be the faster for it, so they are only kept track of.

use crate::boundary::{Errno, abi, object, readable};
use crate::context::Context;
use crate::layout::constant::*;
use crate::layout::*;
use crate::pd::Pd;
use std::sync::atomic::{AtomicU32, Ordering};

/// A thread domain.
#[repr(C)]
pub(crate) struct Td {
    ibv: ibv_td,
    /// Parent domains with it.
    pub users: AtomicU32,
}

abi! {
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
