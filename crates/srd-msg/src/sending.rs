//! Messages on their way out. By length, and by what the receiver still takes without anybody waiting for it there:
//! in one piece, in several pieces, or by rendezvous, where the first piece says where the rest is.

use crate::api::*;
use crate::buffers::Buffer;
use crate::endpoint::{Endpoint, name_of};
use crate::header::{Body, COMMON, LONGEST, Message, Part, Source, Sources};
use crate::iov::{Iovs, gather, is_accelerators, length, stretch};
use crate::operations::copy_injected;
use crate::peer::MESSAGE_COST;
use crate::shared::Cx;
use crate::work::{Op, Purpose, Work};
use srd_device::{Access, Store};

/// Up to here a payload is copied beside its header: cheaper than a second piece for the device and the kernel.
const COPIED: u64 = 512;
/// By so much the last part of a message is shorter than the others.
const ROOM_FOR_ACK: u32 = 128;

impl Endpoint {
    #[inline]
    pub fn send<M: Store>(&mut self, cx: &mut Cx<'_, M>, send: &Send<'_>) -> Result<(), Refused> {
        self.check_room(send.to, &send.flags)?;
        if send.iov.len() > IOV_LIMIT {
            return Err(Refused::Invalid("iov: more elements than the limit"));
        }
        let (len, addrs) =
            send.iov.iter().fold((0, 0), |(len, addrs), piece| (len + piece.len, addrs | piece.addr));
        let longest = if send.flags.inject { cx.shared.config.inject_size } else { cx.shared.config.longest };
        if len > longest {
            return Err(Refused::TooLong);
        }
        if cx.memory().is_accelerators(addrs) {
            return self.send_accelerators(cx, send, len);
        }
        self.send_checked(cx, send, len)
    }

    /// What is in an accelerator's memory is copied out at once if it goes in few pieces, else when it is asked for.
    #[cold]
    fn send_accelerators<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        send: &Send<'_>,
        len: u64,
    ) -> Result<(), Refused> {
        if len > cx.shared.config.medium_limit {
            cx.shared.counters.rendezvous_sent += 1;
            self.send_rendezvous(cx, send, len, true);
            return Ok(());
        }
        let buffer = cx.take_buffer(len as usize);
        let iov = [Iov { addr: buffer.addr, len }];
        let copied = Send { iov: &iov, flags: TxFlags { inject: true, ..send.flags }, ..*send };
        let sent = match gather(cx.memory(), send.iov, buffer.addr) {
            true => self.send_checked(cx, &copied, len),
            false => Err(Refused::MemoryGone),
        };
        cx.give_buffer(buffer);
        sent
    }

    // Most calls are `send`'s, which is not to pay for another one.
    #[inline(always)]
    fn send_checked<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        send: &Send<'_>,
        len: u64,
    ) -> Result<(), Refused> {
        let peer = &self.peers[send.to.0 as usize];
        let header =
            COMMON + 8 + if send.tag.is_some() { 8 } else { 0 } + if send.data.is_some() { 8 } else { 0 };
        let fits = len + MESSAGE_COST as u64 <= peer.credit() as u64;
        if peer.lane.is_some() {
            return self.send_to_near(cx, send, len, fits && len + header as u64 <= peer.longest_near);
        }
        let fits = fits && len <= cx.shared.config.medium_limit;
        if fits && len <= cx.shared.max_msg.min(peer.longest) as u64 - header as u64 {
            self.send_whole(cx, send, len);
        } else if fits {
            cx.shared.counters.medium_sent += 1;
            let op = self.begin_message(cx, send, send.flags.level == Level::Match);
            self.send_parts(cx, op, send, len, len as u32, None);
        } else {
            cx.shared.counters.rendezvous_sent += 1;
            cx.shared.counters.held_back += (len <= cx.shared.config.medium_limit) as u64;
            self.send_rendezvous(cx, send, len, false);
        }
        Ok(())
    }

    /// To a process of this host: in one piece, or for it to read.
    #[inline(always)]
    fn send_to_near<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        send: &Send<'_>,
        len: u64,
        fits: bool,
    ) -> Result<(), Refused> {
        if fits && len <= cx.shared.config.shm_limit {
            cx.shared.counters.near_sent += 1;
            self.send_by_lane(cx, send, len);
        } else {
            self.send_near_rendezvous(cx, send, len);
        }
        Ok(())
    }

    // This and what follows: out of the way of what mostly happens.
    #[inline(never)]
    fn send_near_rendezvous<M: Store>(&mut self, cx: &mut Cx<'_, M>, send: &Send<'_>, len: u64) {
        cx.shared.counters.rendezvous_sent += 1;
        self.send_rendezvous(cx, send, len, false);
    }

    /// In one piece by the peer's lane, which mostly takes it from where it lies: then it is over at once.
    #[inline(always)]
    fn send_by_lane<M: Store>(&mut self, cx: &mut Cx<'_, M>, send: &Send<'_>, len: u64) {
        let (to, peer) = (send.to.0, &self.peers[send.to.0 as usize]);
        let answered = send.flags.level == Level::Match || peer.may_drop(self.identity.well_known);
        if answered || !peer.backlog.is_empty() {
            return self.send_answered(cx, send, len);
        }
        let message = Message {
            number: peer.next_number,
            op: 0,
            tag: send.tag,
            data: send.data,
            receipt: false,
            part: None,
        };
        if !self.give_to_lane(cx, to, &message, send.iov) {
            return self.send_when_there_is_room(cx, send, len);
        }
        cx.shared.counters.eager_sent += 1;
        let peer = &mut self.peers[to as usize];
        peer.sent_bytes = peer.sent_bytes.wrapping_add(len as u32 + MESSAGE_COST);
        peer.take_number();
        let kind = Kind::Send { tagged: send.tag.is_some() };
        cx.shared.done.push(self.done(kind, send.context, send.flags.report));
    }

    /// One that waits for an answer, or for others before it.
    #[inline(never)]
    fn send_answered<M: Store>(&mut self, cx: &mut Cx<'_, M>, send: &Send<'_>, len: u64) {
        self.send_whole(cx, send, len);
    }

    /// The lane has not taken it.
    #[cold]
    fn send_when_there_is_room<M: Store>(&mut self, cx: &mut Cx<'_, M>, send: &Send<'_>, len: u64) {
        let work = self.whole(cx, send, len);
        self.wait_for_lane(cx, send.to.0, work);
    }

    /// In one piece.
    #[inline]
    fn send_whole<M: Store>(&mut self, cx: &mut Cx<'_, M>, send: &Send<'_>, len: u64) {
        let work = self.whole(cx, send, len);
        self.post(cx, send.to.0, work);
    }

    /// What it takes to send a message in one piece.
    #[inline]
    fn whole<M: Store>(&mut self, cx: &mut Cx<'_, M>, send: &Send<'_>, len: u64) -> Work {
        cx.shared.counters.eager_sent += 1;
        let receipt = send.flags.level == Level::Match;
        let to = send.to.0;
        let tagged = send.tag.is_some();
        let (purpose, op) = if receipt || self.peers[to as usize].may_drop(self.identity.well_known) {
            let key = self.begin_message(cx, send, receipt);
            self.ops.at_mut(key).expect("just begun").parts = 1;
            let key = self.ops.key_at(key).expect("just begun");
            (Purpose::Part(key.index), name_of(key))
        } else {
            self.begun(to);
            (Purpose::Eager { context: send.context, tagged, report: send.flags.report }, 0)
        };
        let peer = &mut self.peers[to as usize];
        peer.sent_bytes = peer.sent_bytes.wrapping_add(len as u32 + MESSAGE_COST);
        let number = peer.take_number();
        let message = Message { number, op, tag: send.tag, data: send.data, receipt, part: None };
        let body = Body::Message(message);
        let copied = len <= COPIED || send.flags.inject || send.iov.len() > 1;
        let buffer = cx.take_buffer(LONGEST + if copied { len as usize } else { 0 });
        let header = self.write_header(cx, to, &body, &buffer);
        if copied {
            let copied = gather(cx.memory(), send.iov, buffer.addr + header as u64);
            debug_assert!(copied, "an accelerator's has been copied before");
            Work::message(cx.shared, purpose, buffer, header + len as usize, None)
        } else {
            Work::message(cx.shared, purpose, buffer, header, send.iov.first().copied())
        }
    }

    /// Takes a message into the book of operations, with a copy of it if it was injected.
    fn begin_message<M: Store>(&mut self, cx: &mut Cx<'_, M>, send: &Send<'_>, answered: bool) -> u32 {
        let mut local: Iovs = send.iov.iter().copied().collect();
        let copy = match send.flags.inject {
            true => copy_injected(cx, &mut local).expect("an accelerator's has been copied before"),
            false => None,
        };
        let op = Op {
            kind: Kind::Send { tagged: send.tag.is_some() },
            report: send.flags.report,
            copy,
            ..Op::new(send.to.0, send.context, local)
        };
        let key = self.begin_op(op);
        match answered {
            true => self.await_answer(cx, key.index),
            false => self.await_acceptance(cx, key.index),
        }
        key.index
    }

    /// By rendezvous: what the window permits goes ahead. `far`: an accelerator's driver has to be asked for it. That goes when there is a
    /// receive, in long pieces; read it would be a copy for each packet.
    fn send_rendezvous<M: Store>(&mut self, cx: &mut Cx<'_, M>, send: &Send<'_>, len: u64, far: bool) {
        let op = self.begin_message(cx, send, true);
        let room = self.peers[send.to.0 as usize].credit().saturating_sub(MESSAGE_COST);
        let ahead = (room as u64).min(cx.shared.config.eager_ahead).min(len) as u32;
        // A short message is not worth a read of a part of it.
        let near = self.peers[send.to.0 as usize].lane.is_some();
        let ahead = if near || far || len <= cx.shared.config.medium_limit { 0 } else { ahead };
        self.ops.at_mut(op).expect("just begun").granted = Some(ahead as u64);
        let sources = if far { Sources::new() } else { self.expose(cx, op) };
        self.send_parts(cx, op, send, len, ahead, Some(sources));
    }

    /// Lets peers read an operation's memory for as long as it lasts. None if the device has no room, or must not.
    fn expose<M: Store>(&mut self, cx: &mut Cx<'_, M>, op: u32) -> Sources {
        let mut sources = Sources::new();
        if !cx.shared.config.rendezvous_by_read {
            return sources;
        }
        let op = self.ops.at_mut(op).expect("just begun");
        let loans = self.loans.as_mut().filter(|_| self.peers[op.peer as usize].lane.is_some());
        let access = Access { local_write: false, remote_read: true, remote_write: false };
        for piece in &op.local {
            match cx.register(piece, access) {
                Ok(key) => {
                    op.exposed.push(key);
                    sources.push(Source { addr: piece.addr, len: piece.len, key: key.0 });
                }
                Err(_) => {
                    for key in op.exposed.drain(..) {
                        let _ = cx.device().dereg_mr(key);
                    }
                    return Sources::new();
                }
            }
        }
        if let Some(loans) = loans {
            op.exposed.iter().for_each(|key| loans.lend(key.0));
        }
        sources
    }

    /// Sends the first `ahead` bytes in pieces, each of which says all that there is to say about the message.
    fn send_parts<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        op: u32,
        send: &Send<'_>,
        total: u64,
        ahead: u32,
        rendezvous: Option<Sources>,
    ) {
        let to = send.to.0;
        let peer = &mut self.peers[to as usize];
        peer.sent_bytes = peer.sent_bytes.wrapping_add(ahead + MESSAGE_COST);
        let number = peer.take_number();
        let name = name_of(self.ops.key_at(op).expect("just begun"));
        let receipt = send.flags.level == Level::Match && rendezvous.is_none();
        let mut body = Body::Message(Message {
            number,
            op: name,
            tag: send.tag,
            data: send.data,
            receipt,
            part: Some(Box::new(Part { total, offset: 0, ahead, rendezvous })),
        });
        let local = self.ops.at(op).expect("just begun").local.clone();
        let longest = cx.shared.max_msg.min(peer.longest) - LONGEST as u32;
        // Equal pieces, the device's packets being equal too; but the last one leaves room for an ACK.
        let pieces = ahead.div_ceil(longest).max(1);
        let each = (ahead + ROOM_FOR_ACK).div_ceil(pieces).next_multiple_of(64).min(longest);
        let mut offset = 0;
        loop {
            let len = each.min(ahead - offset);
            if let Body::Message(Message { part: Some(part), .. }) = &mut body {
                part.offset = offset;
            }
            self.ops.at_mut(op).expect("it awaits its parts").parts += 1;
            let payload = stretch(&local, offset as u64, len as u64);
            let sent = self.send_with_payload(cx, to, Purpose::Part(op), &body, &payload);
            debug_assert!(sent, "an accelerator's has been copied before, or is asked for");
            offset += len;
            if offset >= ahead {
                return;
            }
        }
    }

    /// Sends a message with a payload that lies in the program's memory until it is done. False, and nothing has been sent, if that is an
    /// accelerator's and has gone.
    pub fn send_with_payload<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        peer: u32,
        purpose: Purpose,
        body: &Body,
        payload: &[Iov],
    ) -> bool {
        let len = length(payload);
        let copied = len <= COPIED || payload.len() > 1 || is_accelerators(cx.memory(), payload);
        let buffer: Buffer = cx.take_buffer(LONGEST + if copied { len as usize } else { 0 });
        let header = self.write_header(cx, peer, body, &buffer);
        if copied {
            if !gather(cx.memory(), payload, buffer.addr + header as u64) {
                cx.give_buffer(buffer);
                return false;
            }
            self.send_buffer(cx, peer, purpose, buffer, header + len as usize, None);
        } else {
            self.send_buffer(cx, peer, purpose, buffer, header, payload.first().copied());
        }
        true
    }
}
