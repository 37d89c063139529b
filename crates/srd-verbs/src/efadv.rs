//! Queries of `efadv_*` about the device. (Those about one object are with the object.)
//!
//! libefa.so.1 only passes its calls on to these: the names with `srd_` in front are exported by libibverbs.so.1 for
//! it, so that both libraries are one program with one state.

use crate::boundary::{Errno, abi, copy_in, copy_out, has_field, object};
use crate::context::Context;
use crate::layout::constant::*;
use crate::layout::*;
use crate::mr::Mr;
use crate::profile;
use crate::strict;
use libc::c_int;
use std::mem::offset_of;

abi! {
    exported status fn srd_efadv_query_device(context: *mut ibv_context, attr: *mut efadv_device_attr, len: u32) {
        let profile = &Context::of(context)?.device.profile;
        if attr.is_null() || !has_field(offset_of!(efadv_device_attr, inline_buf_size), len as usize) {
            return Err(Errno::INVALID);
        }
        let mut device_caps = EFADV_DEVICE_ATTR_CAPS_RNR_RETRY
            | EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID
            | EFADV_DEVICE_ATTR_CAPS_COMP_CNTR;
        if profile.rdma_read {
            device_caps |= EFADV_DEVICE_ATTR_CAPS_RDMA_READ;
        }
        if profile.rdma_write {
            device_caps |= EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE;
        }
        if profile.unsolicited_write_recv {
            device_caps |= EFADV_DEVICE_ATTR_CAPS_UNSOLICITED_WRITE_RECV;
        }
        let answer = efadv_device_attr {
            comp_mask: 0,
            max_sq_wr: profile::MAX_SQ_WR,
            max_rq_wr: profile::MAX_RQ_WR,
            max_sq_sge: profile::MAX_SQ_SGE as u16,
            max_rq_sge: profile::MAX_RQ_SGE as u16,
            inline_buf_size: profile::INLINE_BYTES as u16,
            inline_buf_size_ex: profile::INLINE_BYTES as u16,
            device_caps,
            max_rdma_size: if profile.rdma_read { profile::MAX_RDMA_SIZE } else { 0 },
        };
        copy_out(&answer, attr, len as usize);
        Ok(())
    }

    /// Returns the depth, or the negative error number.
    exported value fn srd_efadv_get_max_sq_depth(
        context: *mut ibv_context,
        attr: *mut efadv_sq_depth_attr,
        len: u32,
    ) -> c_int {
        let Ok(context) = Context::of(context) else { return -libc::EINVAL };
        if attr.is_null() || !has_field(offset_of!(efadv_sq_depth_attr, max_inline_data), len as usize) {
            return -libc::EINVAL;
        }
        let Some(asked) = copy_in(attr, len as usize) else { return -libc::EINVAL };
        let fits = asked.comp_mask == 0
            && asked.flags & !EFADV_SQ_DEPTH_ATTR_INLINE_WRITE == 0
            && asked.max_send_sge <= profile::MAX_SQ_SGE
            && asked.max_rdma_sge <= profile::MAX_RDMA_SGE
            && asked.max_inline_data <= profile::INLINE_BYTES;
        let long = context.device.strict && asked.flags & EFADV_SQ_DEPTH_ATTR_INLINE_WRITE != 0;
        if fits { strict::send_depth(long) as c_int } else { -libc::EINVAL }
    }

    /// Returns the depth, or the negative error number.
    exported value fn srd_efadv_get_max_rq_depth(
        context: *mut ibv_context,
        attr: *mut efadv_rq_depth_attr,
        len: u32,
    ) -> c_int {
        if Context::of(context).is_err()
            || attr.is_null()
            || !has_field(offset_of!(efadv_rq_depth_attr, max_recv_sge), len as usize)
        {
            return -libc::EINVAL;
        }
        let Some(asked) = copy_in(attr, len as usize) else { return -libc::EINVAL };
        if asked.comp_mask != 0 || asked.max_recv_sge > profile::MAX_RQ_SGE {
            return -libc::EINVAL;
        }
        (profile::MAX_RQ_WR / asked.max_recv_sge.max(1)) as c_int
    }

    /// How the region is connected to the network inside the host: nothing is known.
    exported status fn srd_efadv_query_mr(mr: *mut ibv_mr, attr: *mut efadv_mr_attr, len: u32) {
        let _: &Mr = object(mr)?;
        if attr.is_null() || !has_field(offset_of!(efadv_mr_attr, rdma_recv_ic_id), len as usize) {
            return Err(Errno::INVALID);
        }
        let nothing = efadv_mr_attr {
            comp_mask: 0,
            ic_id_validity: 0,
            recv_ic_id: 0,
            rdma_read_ic_id: 0,
            rdma_recv_ic_id: 0,
        };
        copy_out(&nothing, attr, len as usize);
        Ok(())
    }
}
