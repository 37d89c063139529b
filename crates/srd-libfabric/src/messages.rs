//! Messages without a tag (fi_msg(3)) and with one (fi_tagged(3)).

use crate::boundary::{Errno, Outcome, abi, readable};
use crate::constants::*;
use crate::endpoint::Endpoint;
use crate::layout::*;
use crate::pieces::{local, one};
use libc::{c_void, iovec};
use srd_msg::{Iov, Match, Peek, PeerId, Recv, Send, TxFlags};
use std::ptr::null_mut;

/// What calls without flags do besides the endpoint's: nothing is reported of them, and the buffer is free at once.
#[inline]
pub(crate) fn injected(ep: &Endpoint) -> TxFlags {
    TxFlags { inject: true, report: false, fence: false, ..ep.default_transmit() }
}

/// What is sent, to whom [`send`] finds.
#[inline]
fn sending(
    tag: Option<u64>,
    iov: &[Iov],
    data: Option<u64>,
    context: *mut c_void,
    flags: TxFlags,
) -> Send<'_> {
    Send { to: PeerId(0), tag, iov, data, context: context as u64, flags }
}

fn send(ep: &Endpoint, to: fi_addr_t, send: &mut Send<'_>) -> Outcome<()> {
    ep.post(to, |messages, device, now, id, to| {
        send.to = to;
        messages.send(device, now, id, send)
    })
}

/// Completion data, if the flags say that there is some.
#[inline]
pub(crate) fn data_of(flags: u64, data: u64) -> Option<u64> {
    (flags & FI_REMOTE_CQ_DATA != 0).then_some(data)
}

/// What is received, from whom [`Endpoint::post_recv`] finds.
#[inline]
fn receiving(matching: Match, iov: &[Iov], context: *mut c_void, flags: u64, report: bool) -> Recv<'_> {
    Recv {
        from: None,
        matching,
        iov,
        context: context as u64,
        report,
        multi: flags & FI_MULTI_RECV != 0,
        claim: flags & FI_CLAIM != 0,
    }
}

fn recv(ep: &Endpoint, from: fi_addr_t, recv: &mut Recv<'_>, flags: u64) -> Outcome<()> {
    if flags & (FI_PEEK | FI_DISCARD) != 0 {
        return look(ep, from, recv.matching, recv.context, flags);
    }
    ep.post_recv(from, recv)
}

fn look(ep: &Endpoint, from: fi_addr_t, matching: Match, context: u64, flags: u64) -> Outcome<()> {
    let (claim, discard) = (flags & FI_CLAIM != 0, flags & FI_DISCARD != 0);
    if flags & FI_PEEK == 0 {
        if !claim {
            return Err(Errno::INVALID); // fi_tagged(3): with FI_PEEK or FI_CLAIM only
        }
        return ep.post_receive(FI_ADDR_UNSPEC, |messages, device, now, id, _| {
            messages.discard_claimed(device, now, id, context)
        });
    }
    // What has come is there for the asking, also if the program has not polled since.
    ep.progress()?;
    ep.post_receive(from, |messages, device, now, id, from| {
        messages.peek(device, now, id, &Peek { from, matching, context, claim, discard })
    })
}

pub(crate) static MSG_OPS: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: msg_recv,
    recvv: msg_recvv,
    recvmsg: msg_recvmsg,
    send: msg_send,
    sendv: msg_sendv,
    sendmsg: msg_sendmsg,
    inject: msg_inject,
    senddata: msg_senddata,
    injectdata: msg_injectdata,
};

pub(crate) static TAGGED_OPS: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
    recv: tagged_recv,
    recvv: tagged_recvv,
    recvmsg: tagged_recvmsg,
    send: tagged_send,
    sendv: tagged_sendv,
    sendmsg: tagged_sendmsg,
    inject: tagged_inject,
    senddata: tagged_senddata,
    injectdata: tagged_injectdata,
};

abi! {
    posted fn msg_recv(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        desc: *mut c_void,
        from: fi_addr_t,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let (flags, report) = ep.default_receive();
        recv(ep, from, &mut receiving(Match::Untagged, &one(buf, len, ep.desc(desc)), context, flags, report), flags)
    }

    posted fn msg_recvv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        from: fi_addr_t,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let (flags, report) = ep.default_receive();
        recv(ep, from, &mut receiving(Match::Untagged, local(&mut Default::default(), iov, ep.descs(desc), count)?, context, flags, report), flags)
    }

    posted fn msg_recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) {
        let ep = Endpoint::of(ep)?;
        let msg = readable(msg)?;
        let mut room = Default::default();
        let iov = if flags & FI_DISCARD != 0 { &[] } else { local(&mut room, msg.msg_iov, ep.descs(msg.desc), msg.iov_count)? };
        recv(ep, msg.addr, &mut receiving(Match::Untagged, iov, msg.context, flags, ep.reports_receive(flags)), flags)
    }

    posted fn msg_send(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        to: fi_addr_t,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        send(ep, to, &mut sending(None, &one(buf, len, ep.desc(desc)), None, context, ep.default_transmit()))
    }

    posted fn msg_sendv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        to: fi_addr_t,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        send(ep, to, &mut sending(None, local(&mut Default::default(), iov, ep.descs(desc), count)?, None, context, ep.default_transmit()))
    }

    posted fn msg_sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) {
        let ep = Endpoint::of(ep)?;
        let msg = readable(msg)?;
        let mut room = Default::default();
        let iov = local(&mut room, msg.msg_iov, ep.descs(msg.desc), msg.iov_count)?;
        send(ep, msg.addr, &mut sending(None, iov, data_of(flags, msg.data), msg.context, ep.transmit(flags)))
    }

    posted fn msg_inject(ep: *mut fid_ep, buf: *const c_void, len: usize, to: fi_addr_t) {
        let ep = Endpoint::of(ep)?;
        send(ep, to, &mut sending(None, &one(buf, len, null_mut()), None, null_mut(), injected(ep)))
    }

    posted fn msg_senddata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        to: fi_addr_t,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        send(ep, to, &mut sending(None, &one(buf, len, ep.desc(desc)), Some(data), context, ep.default_transmit()))
    }

    posted fn msg_injectdata(ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, to: fi_addr_t) {
        let ep = Endpoint::of(ep)?;
        send(ep, to, &mut sending(None, &one(buf, len, null_mut()), Some(data), null_mut(), injected(ep)))
    }

    posted fn tagged_recv(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        desc: *mut c_void,
        from: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let (flags, report) = ep.default_receive();
        let flags = flags & !FI_MULTI_RECV; // fi_tagged(3): not for tagged receives
        recv(ep, from, &mut receiving(Match::Tagged { tag, ignore }, &one(buf, len, ep.desc(desc)), context, flags, report), flags)
    }

    posted fn tagged_recvv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        from: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let (flags, report) = ep.default_receive();
        let flags = flags & !FI_MULTI_RECV;
        let mut room = Default::default();
        let iov = local(&mut room, iov, ep.descs(desc), count)?;
        recv(ep, from, &mut receiving(Match::Tagged { tag, ignore }, iov, context, flags, report), flags)
    }

    posted fn tagged_recvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) {
        let ep = Endpoint::of(ep)?;
        let msg = readable(msg)?;
        if flags & FI_MULTI_RECV != 0 {
            return Err(BAD_FLAGS);
        }
        let mut room = Default::default();
        let iov = if flags & FI_DISCARD != 0 { &[] } else { local(&mut room, msg.msg_iov, ep.descs(msg.desc), msg.iov_count)? };
        let matching = Match::Tagged { tag: msg.tag, ignore: msg.ignore };
        recv(ep, msg.addr, &mut receiving(matching, iov, msg.context, flags, ep.reports_receive(flags)), flags)
    }

    posted fn tagged_send(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        to: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        send(ep, to, &mut sending(Some(tag), &one(buf, len, ep.desc(desc)), None, context, ep.default_transmit()))
    }

    posted fn tagged_sendv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        to: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        let mut room = Default::default();
        send(ep, to, &mut sending(Some(tag), local(&mut room, iov, ep.descs(desc), count)?, None, context, ep.default_transmit()))
    }

    posted fn tagged_sendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) {
        let ep = Endpoint::of(ep)?;
        let msg = readable(msg)?;
        let mut room = Default::default();
        let iov = local(&mut room, msg.msg_iov, ep.descs(msg.desc), msg.iov_count)?;
        send(ep, msg.addr, &mut sending(Some(msg.tag), iov, data_of(flags, msg.data), msg.context, ep.transmit(flags)))
    }

    posted fn tagged_inject(ep: *mut fid_ep, buf: *const c_void, len: usize, to: fi_addr_t, tag: u64) {
        let ep = Endpoint::of(ep)?;
        send(ep, to, &mut sending(Some(tag), &one(buf, len, null_mut()), None, null_mut(), injected(ep)))
    }

    posted fn tagged_senddata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        to: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) {
        let ep = Endpoint::of(ep)?;
        send(ep, to, &mut sending(Some(tag), &one(buf, len, ep.desc(desc)), Some(data), context, ep.default_transmit()))
    }

    posted fn tagged_injectdata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        to: fi_addr_t,
        tag: u64,
    ) {
        let ep = Endpoint::of(ep)?;
        send(ep, to, &mut sending(Some(tag), &one(buf, len, null_mut()), Some(data), null_mut(), injected(ep)))
    }
}
