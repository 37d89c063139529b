//! Address handles.

use crate::boundary::{Errno, Outcome, abi, copy_out, given_back, has_field, object, readable};
use crate::context::Context;
use crate::layout::*;
use crate::objects::Link;
use crate::pd::Pd;
use crate::strict;
use srd_device::{AhNumber, PdId};
use srd_net::log;
use srd_wire::Gid;

#[repr(C)]
pub(crate) struct Ah {
    ibv: ibv_ah,
    /// The device's number for the host; handles of one host share it.
    pub number: AhNumber,
    pd: PdId,
    link: Link,
}

// SAFETY: the C part is written when it is made, and the rest is Sync.
unsafe impl Sync for Ah {}

impl Ah {
    /// # Safety
    /// The pointer is NULL or points to a live handle, which stays alive for `'a`.
    #[inline]
    pub unsafe fn of<'a>(pointer: *mut ibv_ah) -> Outcome<&'a Ah> {
        // SAFETY: as the caller says; `ibv` is the first field.
        unsafe { object(pointer) }
    }

    fn context(&self) -> &Context {
        // SAFETY: a context outlives its objects.
        unsafe { Context::of(self.ibv.context) }.expect("it was there when this was made")
    }

    /// Ends it because its context closes.
    pub fn end(&self) {
        if let Some(instance) = self.link.end() {
            let _ = instance.with(|device, now| device.destroy_ah(now, self.pd, self.number));
        }
    }

    fn destroy(&self) -> Outcome<()> {
        if self.context().is_inherited() {
            return Ok(());
        }
        if let Ok(instance) = self.link.instance() {
            given_back(instance.with(|device, now| device.destroy_ah(now, self.pd, self.number)))?;
            self.context().objects.remove(|live| &mut live.ahs, &self.ibv);
        }
        Ok(())
    }
}

abi! {
    exported pointer fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> ibv_ah {
        let domain = Pd::of(pd)?;
        let context = domain.context();
        let attr = readable(attr)?;
        if attr.port_num != 1 {
            return Err(Errno::INVALID);
        }
        if context.device.strict {
            strict::check_address(attr)?;
        }
        let instance = context.instance()?;
        let gid = Gid(attr.grh.dgid.raw);
        if gid == context.device.gid() && !context.device.address.loops_back() {
            log::once(
                log::Level::Warn,
                "loopback",
                format_args!("SRD_EFA_LOOPBACK=off: work for this device's own address never completes"),
            );
        }
        let number = instance.with(|device, _| device.create_ah(domain.id, gid))??;
        let ah = Box::leak(Box::new(Ah {
            ibv: ibv_ah { context: context.pointer(), pd, handle: number.0 as u32 },
            number,
            pd: domain.id,
            link: Link::new(instance),
        }));
        context.objects.add(|live| &mut live.ahs, &ah.ibv);
        Ok(&mut ah.ibv)
    }

    exported closing fn ibv_destroy_ah(ah: *mut ibv_ah) {
        Ah::of(ah)?.destroy()?;
        drop(Box::from_raw(ah.cast::<Ah>()));
        Ok(())
    }

    exported status fn srd_efadv_query_ah(ah: *mut ibv_ah, attr: *mut efadv_ah_attr, len: u32) {
        let ah = Ah::of(ah)?;
        if attr.is_null() || !has_field(std::mem::offset_of!(efadv_ah_attr, ahn), len as usize) {
            return Err(Errno::INVALID);
        }
        let answer = efadv_ah_attr { comp_mask: 0, ahn: ah.number.0, reserved: [0; 6] };
        copy_out(&answer, attr, len as usize);
        Ok(())
    }
}
