//! Reading and writing the memory of peers (fi_rma(3)).

use crate::boundary::{Outcome, abi, readable};
use crate::endpoint::Endpoint;
use crate::layout::*;
use crate::messages::{data_of, injected};
use crate::pieces::{local, one, remote, total};
use libc::{c_void, iovec};
use srd_msg::{Iov, RemoteIov, Rma, TxFlags};
use std::ptr::null_mut;

/// What is done.
#[derive(Clone, Copy)]
enum What {
    Read,
    Write { data: Option<u64> },
}

#[inline]
fn post(
    ep: &Endpoint,
    what: What,
    to: fi_addr_t,
    local: &[Iov],
    remote: &[RemoteIov],
    context: *mut c_void,
    flags: TxFlags,
) -> Outcome<()> {
    let (read, data) = match what {
        What::Read => (true, None),
        What::Write { data } => (false, data),
    };
    ep.post(to, |messages, device, now, id, to| {
        let rma = Rma { to, read, local, remote, data, context: context as u64, flags };
        messages.rma(device, now, id, &rma)
    })
}

/// The one range there that is as long as those here.
#[inline]
fn at(addr: u64, key: u64, local: &[Iov]) -> [RemoteIov; 1] {
    [RemoteIov { addr, len: total(local), key }]
}

pub(crate) static OPS: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

abi! {
    posted fn read(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        desc: *mut c_void,
        from: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let here = one(buf, len, ep.desc(desc));
        post(ep, What::Read, from, &here, &at(addr, key, &here), context, ep.default_transmit())
    }

    posted fn readv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        from: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let mut room = Default::default();
        let here = local(&mut room, iov, ep.descs(desc), count)?;
        post(ep, What::Read, from, here, &at(addr, key, here), context, ep.default_transmit())
    }

    posted fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) {
        let ep = Endpoint::of(ep)?;
        let msg = readable(msg)?;
        let (mut here, mut there) = Default::default();
        let here = local(&mut here, msg.msg_iov, ep.descs(msg.desc), msg.iov_count)?;
        let there = remote(&mut there, msg.rma_iov, msg.rma_iov_count)?;
        post(ep, What::Read, msg.addr, here, there, msg.context, ep.transmit(flags))
    }

    posted fn write(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        to: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let here = one(buf, len, ep.desc(desc));
        let what = What::Write { data: None };
        post(ep, what, to, &here, &at(addr, key, &here), context, ep.default_transmit())
    }

    posted fn writev(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        to: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let mut room = Default::default();
        let here = local(&mut room, iov, ep.descs(desc), count)?;
        let what = What::Write { data: None };
        post(ep, what, to, here, &at(addr, key, here), context, ep.default_transmit())
    }

    posted fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) {
        let ep = Endpoint::of(ep)?;
        let msg = readable(msg)?;
        let (mut here, mut there) = Default::default();
        let here = local(&mut here, msg.msg_iov, ep.descs(msg.desc), msg.iov_count)?;
        let there = remote(&mut there, msg.rma_iov, msg.rma_iov_count)?;
        let what = What::Write { data: data_of(flags, msg.data) };
        post(ep, what, msg.addr, here, there, msg.context, ep.transmit(flags))
    }

    posted fn inject(ep: *mut fid_ep, buf: *const c_void, len: usize, to: fi_addr_t, addr: u64, key: u64) {
        let ep = Endpoint::of(ep)?;
        let here = one(buf, len, null_mut());
        let what = What::Write { data: None };
        post(ep, what, to, &here, &at(addr, key, &here), null_mut(), injected(ep))
    }

    posted fn writedata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        to: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let here = one(buf, len, ep.desc(desc));
        let what = What::Write { data: Some(data) };
        post(ep, what, to, &here, &at(addr, key, &here), context, ep.default_transmit())
    }

    posted fn injectdata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        to: fi_addr_t,
        addr: u64,
        key: u64,
    ) {
        let ep = Endpoint::of(ep)?;
        let here = one(buf, len, null_mut());
        let what = What::Write { data: Some(data) };
        post(ep, what, to, &here, &at(addr, key, &here), null_mut(), injected(ep))
    }
}
