//! Memory regions.

use crate::boundary::{Errno, Outcome, abi, given_back, object, readable};
use crate::context::Context;
use crate::dma_buf::DmaBuf;
use crate::layout::constant::*;
use crate::layout::*;
use crate::objects::Link;
use crate::pd::Pd;
use crate::strict;
use libc::{c_int, c_uint, c_void, size_t};
use srd_device::Access;
use srd_device::accelerator::is_marked;
use srd_net::{accelerator, is_there, log};
use srd_wire::MrKey;

#[repr(C)]
pub(crate) struct Mr {
    ibv: ibv_mr,
    key: MrKey,
    link: Link,
    /// The mapping behind a DMA-BUF.
    _mapped: Option<DmaBuf>,
}

// SAFETY: the C part is written when it is made, and the rest is Sync.
unsafe impl Sync for Mr {}

impl Mr {
    /// The context that it belongs to.
    fn context(&self) -> &Context {
        // SAFETY: a context outlives its objects.
        unsafe { Context::of(self.ibv.context) }.expect("it was there when this was made")
    }

    /// Ends it because its context closes.
    pub fn end(&self) {
        if let Some(instance) = self.link.end() {
            let _ = instance.with(|device, _| device.dereg_mr(self.key));
        }
    }

    fn destroy(&self) -> Outcome<()> {
        if self.context().is_inherited() {
            return Ok(());
        }
        if let Ok(instance) = self.link.instance() {
            given_back(instance.with(|device, _| device.dereg_mr(self.key)))?;
            self.context().objects.remove(|live| &mut live.mrs, &self.ibv);
        }
        Ok(())
    }
}

/// The rights that the flags ask for. As the kernel (`ib_check_mr_access`) and its driver (`efa_alloc_mr`) check them.
fn access(flags: u32, context: &Context) -> Outcome<Access> {
    let profile = &context.device.profile;
    let flags = flags & !IBV_ACCESS_OPTIONAL_RANGE;
    let mut supported = IBV_ACCESS_LOCAL_WRITE;
    if profile.rdma_read {
        supported |= IBV_ACCESS_REMOTE_READ;
    }
    if profile.rdma_write {
        supported |= IBV_ACCESS_REMOTE_WRITE;
    }
    if flags & IBV_ACCESS_REMOTE_WRITE != 0 && flags & IBV_ACCESS_LOCAL_WRITE == 0 {
        return Err(Errno::INVALID);
    }
    if flags & !supported != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    Ok(Access {
        local_write: flags & IBV_ACCESS_LOCAL_WRITE != 0,
        remote_read: flags & IBV_ACCESS_REMOTE_READ != 0,
        remote_write: flags & IBV_ACCESS_REMOTE_WRITE != 0,
    })
}

/// Registers `len` bytes at `addr`, which peers and work requests are to name from `iova` on.
fn register(
    pd: &Pd,
    addr: *mut c_void,
    len: usize,
    iova: u64,
    flags: u32,
    mapped: Option<DmaBuf>,
) -> Outcome<*mut ibv_mr> {
    let context = pd.context();
    let access = access(flags, context)?;
    if len == 0 || (addr as usize).checked_add(len).is_none() || iova.checked_add(len as u64).is_none() {
        return Err(Errno::INVALID);
    }
    let strict = context.device.strict;
    if strict {
        strict::check_alignment(addr as usize, iova)?;
    }
    // Hardware pins the memory, for writing if anybody may write it, and answers EFAULT where that fails. For us it must be
    // known now, as there is nobody to answer to when a packet arrives for memory that never was.
    // A GPU's driver is asked first: its addresses may look as if something were mapped there.
    let written = access.local_write || access.remote_write;
    let located = match accelerator::locate(addr as u64, len as u64) {
        Ok(located) if is_marked(located) => located,
        _ if !is_marked(addr as u64) && is_there(addr as usize, len, written) => addr as u64,
        asked => {
            log::warn(format_args!(
                "cannot register {len} bytes at {addr:p}: not memory of this process that the CPU can reach, or it is protected \
                 against the access that was asked for; nor a GPU's ({})",
                asked.err().unwrap_or_default()
            ));
            return Err(Errno::FAULT);
        }
    };
    let instance = context.instance()?;
    let key = instance.with(|device, _| device.reg_mr(pd.id, located, len as u64, iova, access))??;
    let mr = Box::leak(Box::new(Mr {
        ibv: ibv_mr {
            context: context.pointer(),
            pd: (&raw const *pd).cast_mut().cast(),
            addr,
            length: len,
            handle: key.0,
            lkey: if strict { strict::local_key(key) } else { key.0 },
            rkey: key.0,
        },
        key,
        link: Link::new(instance),
        _mapped: mapped,
    }));
    context.objects.add(|live| &mut live.mrs, &mr.ibv);
    Ok(&mut mr.ibv)
}

abi! {
    exported pointer fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        len: size_t,
        iova: u64,
        access: c_uint,
    ) -> ibv_mr {
        register(Pd::of(pd)?, addr, len, iova, access, None)
    }

    exported pointer fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, len: size_t, access: c_int) -> ibv_mr {
        register(Pd::of(pd)?, addr, len, addr as u64, access as u32, None)
    }

    exported pointer fn ibv_reg_mr_iova(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        len: size_t,
        iova: u64,
        access: c_int,
    ) -> ibv_mr {
        register(Pd::of(pd)?, addr, len, iova, access as u32, None)
    }

    exported pointer fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr) -> ibv_mr {
        let attr = readable(attr)?;
        if attr.comp_mask & IBV_REG_MR_MASK_ADDR == 0 || attr.comp_mask & !(IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_IOVA) != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let iova = if attr.comp_mask & IBV_REG_MR_MASK_IOVA != 0 { attr.iova } else { attr.addr as u64 };
        register(Pd::of(pd)?, attr.addr, attr.length, iova, attr.access as u32, None)
    }

    exported pointer fn ibv_reg_dmabuf_mr(
        pd: *mut ibv_pd,
        offset: u64,
        len: size_t,
        iova: u64,
        fd: c_int,
        access: c_int,
    ) -> ibv_mr {
        let pd = Pd::of(pd)?;
        // Programs name the memory by its address in their process, as libfabric's efa does: then its driver knows it.
        let mr = if accelerator::locate(iova, len as u64).is_ok() {
            register(pd, iova as *mut c_void, len, iova, access as u32, None)?
        } else {
            let (mapped, at) = DmaBuf::map(fd, offset, len).inspect_err(|&errno| if errno == Errno::UNSUPPORTED {
                log::once(log::Level::Warn, "dmabuf", format_args!(
                    "memory behind this DMA-BUF cannot be used with the software EFA: its exporter does not let the CPU map it, and \
                     {iova:#x} is no address that a GPU's driver in this process knows. Have the program stage through host memory \
                     (with libfabric: FI_EFA_USE_DEVICE_RDMA=0, with NCCL: NCCL_NET_GDR_LEVEL=LOC)"
                ));
            })?;
            register(pd, at, len, iova, access as u32, Some(mapped))?
        };
        // As `ibv_reg_dmabuf_mr` of rdma-core has it (libibverbs/verbs.c).
        (*mr).addr = offset as *mut c_void;
        Ok(mr)
    }

    /// -1: "the old region is valid".
    exported minus_one fn ibv_rereg_mr(
        _mr: *mut ibv_mr,
        _flags: c_int,
        _pd: *mut ibv_pd,
        _addr: *mut c_void,
        _len: size_t,
        _access: c_int,
    ) {
        Err(Errno::UNSUPPORTED)
    }

    exported closing fn ibv_dereg_mr(mr: *mut ibv_mr) {
        object::<_, Mr>(mr)?.destroy()?;
        drop(Box::from_raw(mr.cast::<Mr>()));
        Ok(())
    }
}
