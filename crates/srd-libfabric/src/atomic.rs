//! Atomic operations on the memory of peers (fi_atomic(3)), and which there are.

use crate::boundary::{Errno, Outcome, abi, readable, writable};
use crate::constants::*;
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::layout::*;
use crate::messages::injected;
use crate::pieces::{bytes, local_elements, mark_of, remote_elements};
use libc::c_void;
use srd_device::DeviceConfig;
use srd_msg::atomic_ops::{AtomicOp, Datatype, Form, valid};
use srd_msg::{Atomic, Config, Iov, RemoteIov, TxFlags};
use std::ptr::null_mut;

/// An operation on a type, with the size of an element.
#[derive(Clone, Copy)]
struct What {
    op: AtomicOp,
    datatype: Datatype,
    size: usize,
}

impl What {
    #[inline]
    fn new(form: Form, number_of_type: u32, number_of_op: u32) -> Outcome<What> {
        let (Some(datatype), Some(op)) =
            (Datatype::from_number(number_of_type), AtomicOp::from_number(number_of_op))
        else {
            return Err(Errno::UNSUPPORTED);
        };
        if !valid(form, op, datatype) {
            return Err(Errno::UNSUPPORTED);
        }
        Ok(What { op, datatype, size: datatype.size() })
    }
}

/// Ranges of an operation.
#[derive(Clone, Copy, Default)]
struct Ranges<'a> {
    operand: &'a [Iov],
    compare: &'a [Iov],
    result: &'a [Iov],
    remote: &'a [RemoteIov],
}

#[inline]
fn post(
    ep: &Endpoint,
    what: What,
    to: fi_addr_t,
    ranges: Ranges<'_>,
    context: *mut c_void,
    flags: TxFlags,
) -> Outcome<()> {
    let Ranges { operand, compare, result, remote } = ranges;
    // fi_atomic(3): the operands of a read are ignored.
    let operand = if what.op == AtomicOp::Read { &[] } else { operand };
    ep.post(to, |messages, device, now, id, to| {
        let (op, datatype, context) = (what.op, what.datatype, context as u64);
        let atomic = Atomic { to, op, datatype, operand, compare, result, remote, context, flags };
        messages.atomic(device, now, id, &atomic)
    })
}

/// `count` elements at an address.
#[inline]
fn elements(buf: *const c_void, count: usize, what: What, desc: *mut c_void) -> Outcome<[Iov; 1]> {
    Ok([Iov { addr: buf as u64 | mark_of(desc), len: bytes(count, what.size)? }])
}

/// As many elements there as here.
#[inline]
fn at(addr: u64, key: u64, here: &[Iov]) -> [RemoteIov; 1] {
    [RemoteIov { addr, len: crate::pieces::total(here), key }]
}

/// What fi_atomicvalid(3) and fi_query_atomic(3) say of an operation.
fn most(form: Form, datatype: u32, op: u32) -> Outcome<fi_atomic_attr> {
    let what = What::new(form, datatype, op)?;
    let longest = Config::longest_atomic(DeviceConfig::default().max_msg, form) as usize;
    Ok(fi_atomic_attr { count: longest / what.size, size: what.size })
}

pub(crate) static OPS: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

abi! {
    posted fn write(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        to: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: u32,
        op: u32,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let what = What::new(Form::Base, datatype, op)?;
        let operand = &elements(buf, count, what, ep.desc(desc))?;
        let ranges = Ranges { operand, remote: &at(addr, key, operand), ..Ranges::default() };
        post(ep, what, to, ranges, context, ep.default_transmit())
    }

    posted fn writev(
        ep: *mut fid_ep,
        iov: *const fi_ioc,
        desc: *mut *mut c_void,
        count: usize,
        to: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: u32,
        op: u32,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let what = What::new(Form::Base, datatype, op)?;
        let mut room = Default::default();
        let operand = local_elements(&mut room, iov, ep.descs(desc), count, what.size)?;
        let ranges = Ranges { operand, remote: &at(addr, key, operand), ..Ranges::default() };
        post(ep, what, to, ranges, context, ep.default_transmit())
    }

    posted fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) {
        let ep = Endpoint::of(ep)?;
        let msg = readable(msg)?;
        let what = What::new(Form::Base, msg.datatype, msg.op)?;
        let (mut here, mut there) = Default::default();
        let operand = local_elements(&mut here, msg.msg_iov, ep.descs(msg.desc), msg.iov_count, what.size)?;
        let remote = remote_elements(&mut there, msg.rma_iov, msg.rma_iov_count, what.size)?;
        let ranges = Ranges { operand, remote, ..Ranges::default() };
        post(ep, what, msg.addr, ranges, msg.context, ep.transmit(flags))
    }

    posted fn inject(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        to: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: u32,
        op: u32,
    ) {
        let ep = Endpoint::of(ep)?;
        let what = What::new(Form::Base, datatype, op)?;
        let operand = &elements(buf, count, what, null_mut())?;
        let ranges = Ranges { operand, remote: &at(addr, key, operand), ..Ranges::default() };
        post(ep, what, to, ranges, null_mut(), injected(ep))
    }

    posted fn readwrite(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        result: *mut c_void,
        result_desc: *mut c_void,
        to: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: u32,
        op: u32,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let what = What::new(Form::Fetch, datatype, op)?;
        let operand = &elements(buf, count, what, ep.desc(desc))?;
        let result = &elements(result, count, what, ep.desc(result_desc))?;
        let ranges = Ranges { operand, result, remote: &at(addr, key, result), ..Ranges::default() };
        post(ep, what, to, ranges, context, ep.default_transmit())
    }

    posted fn readwritev(
        ep: *mut fid_ep,
        iov: *const fi_ioc,
        desc: *mut *mut c_void,
        count: usize,
        results: *mut fi_ioc,
        result_desc: *mut *mut c_void,
        result_count: usize,
        to: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: u32,
        op: u32,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let what = What::new(Form::Fetch, datatype, op)?;
        let (mut here, mut back) = Default::default();
        // The list of a read may be missing, whatever its count.
        let count = if what.op == AtomicOp::Read { 0 } else { count };
        let operand = local_elements(&mut here, iov, ep.descs(desc), count, what.size)?;
        let result = local_elements(&mut back, results, ep.descs(result_desc), result_count, what.size)?;
        let ranges = Ranges { operand, result, remote: &at(addr, key, result), ..Ranges::default() };
        post(ep, what, to, ranges, context, ep.default_transmit())
    }

    posted fn readwritemsg(
        ep: *mut fid_ep,
        msg: *const fi_msg_atomic,
        results: *mut fi_ioc,
        result_desc: *mut *mut c_void,
        result_count: usize,
        flags: u64,
    ) {
        let ep = Endpoint::of(ep)?;
        let msg = readable(msg)?;
        let what = What::new(Form::Fetch, msg.datatype, msg.op)?;
        let (mut here, mut back, mut there) = Default::default();
        let count = if what.op == AtomicOp::Read { 0 } else { msg.iov_count };
        let operand = local_elements(&mut here, msg.msg_iov, ep.descs(msg.desc), count, what.size)?;
        let result = local_elements(&mut back, results, ep.descs(result_desc), result_count, what.size)?;
        let remote = remote_elements(&mut there, msg.rma_iov, msg.rma_iov_count, what.size)?;
        let ranges = Ranges { operand, result, remote, ..Ranges::default() };
        post(ep, what, msg.addr, ranges, msg.context, ep.transmit(flags))
    }

    posted fn compwrite(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        compare: *const c_void,
        compare_desc: *mut c_void,
        result: *mut c_void,
        result_desc: *mut c_void,
        to: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: u32,
        op: u32,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let what = What::new(Form::Compare, datatype, op)?;
        let operand = &elements(buf, count, what, ep.desc(desc))?;
        let compare = &elements(compare, count, what, ep.desc(compare_desc))?;
        let result = &elements(result, count, what, ep.desc(result_desc))?;
        let ranges = Ranges { operand, compare, result, remote: &at(addr, key, operand) };
        post(ep, what, to, ranges, context, ep.default_transmit())
    }

    posted fn compwritev(
        ep: *mut fid_ep,
        iov: *const fi_ioc,
        desc: *mut *mut c_void,
        count: usize,
        compares: *const fi_ioc,
        compare_desc: *mut *mut c_void,
        compare_count: usize,
        results: *mut fi_ioc,
        result_desc: *mut *mut c_void,
        result_count: usize,
        to: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: u32,
        op: u32,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let what = What::new(Form::Compare, datatype, op)?;
        let (mut here, mut with, mut back) = Default::default();
        let operand = local_elements(&mut here, iov, ep.descs(desc), count, what.size)?;
        let compare = local_elements(&mut with, compares, ep.descs(compare_desc), compare_count, what.size)?;
        let result = local_elements(&mut back, results, ep.descs(result_desc), result_count, what.size)?;
        let ranges = Ranges { operand, compare, result, remote: &at(addr, key, operand) };
        post(ep, what, to, ranges, context, ep.default_transmit())
    }

    posted fn compwritemsg(
        ep: *mut fid_ep,
        msg: *const fi_msg_atomic,
        compares: *const fi_ioc,
        compare_desc: *mut *mut c_void,
        compare_count: usize,
        results: *mut fi_ioc,
        result_desc: *mut *mut c_void,
        result_count: usize,
        flags: u64,
    ) {
        let ep = Endpoint::of(ep)?;
        let msg = readable(msg)?;
        let what = What::new(Form::Compare, msg.datatype, msg.op)?;
        let (mut here, mut with, mut back, mut there) = Default::default();
        let operand = local_elements(&mut here, msg.msg_iov, ep.descs(msg.desc), msg.iov_count, what.size)?;
        let compare = local_elements(&mut with, compares, ep.descs(compare_desc), compare_count, what.size)?;
        let result = local_elements(&mut back, results, ep.descs(result_desc), result_count, what.size)?;
        let remote = remote_elements(&mut there, msg.rma_iov, msg.rma_iov_count, what.size)?;
        let ranges = Ranges { operand, compare, result, remote };
        post(ep, what, msg.addr, ranges, msg.context, ep.transmit(flags))
    }

    status fn writevalid(_ep: *mut fid_ep, datatype: u32, op: u32, count: *mut usize) {
        *writable(count)? = most(Form::Base, datatype, op)?.count;
        Ok(())
    }

    status fn readwritevalid(_ep: *mut fid_ep, datatype: u32, op: u32, count: *mut usize) {
        *writable(count)? = most(Form::Fetch, datatype, op)?.count;
        Ok(())
    }

    status fn compwritevalid(_ep: *mut fid_ep, datatype: u32, op: u32, count: *mut usize) {
        *writable(count)? = most(Form::Compare, datatype, op)?.count;
        Ok(())
    }

    status fn query(domain: *mut fid_domain, datatype: u32, op: u32, attr: *mut fi_atomic_attr, flags: u64) {
        Domain::of(domain)?;
        let form = match flags {
            0 => Form::Base,
            FI_FETCH_ATOMIC => Form::Fetch,
            FI_COMPARE_ATOMIC => Form::Compare,
            _ => return Err(BAD_FLAGS),
        };
        *writable(attr)? = most(form, datatype, op)?;
        Ok(())
    }
}
