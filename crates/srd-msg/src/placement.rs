//! Long messages in one piece that find their receive with their first packet: the rest goes there from the device, and is not
//! copied out of a buffer of ours. From then on they are messages of which a part has come, like those that come in several.

use crate::endpoint::{Endpoint, Place};
use crate::header::{self, Body, LONGEST};
use crate::incoming::{Fetch, Standing};
use crate::kept::Breach;
use crate::peer::session_name;
use crate::shared::Cx;
use srd_device::{Begun, Sge, Store};

/// Messages of so many bytes and more are told of when they begin: the copy of a shorter one costs less than that.
pub(crate) const LEAST: u32 = 12 << 10;

impl Endpoint {
    /// The first packet of a long message is there. If it is this one's turn, and a receive waits for it that has room for all of it in
    /// one piece, the rest goes there. What is unclear waits until all of it is there.
    pub fn take_up<M: Store>(&mut self, cx: &mut Cx<'_, M>, begun: &Begun) {
        let receive = &begun.receive;
        let at = self.receive_buffer(receive.wr_id);
        let head = cx.memory().bytes(at, (begun.here as usize).min(LONGEST));
        let Some((common, Body::Message(message), header)) = header::decode(head) else { return };
        let from = Place::of(receive);
        let key = if common.well_known { 0 } else { common.from };
        let Some(peer) = self.known_peer(&from, key) else { return };
        let state = &self.peers[peer as usize];
        let in_turn = message.number == state.expected && state.early.is_empty() && message.part.is_none();
        let in_session = state.their_session == session_name(common.from, common.session)
            && (state.spoken, state.greeted, state.identity) == (true, true, common.from);
        let doubtful = state.is_stranger() || self.is_claimed(&from, &common) || !self.is_meant(&common);
        if !in_turn || !in_session || doubtful || self.has_gap(peer, Some(message.number), common.back) {
            return;
        }
        let tagged = message.tag.is_some();
        let matcher = if tagged { &self.tagged } else { &self.untagged };
        let Some(waiting) = matcher.posted.find(message.tag.unwrap_or(0), peer) else { return };
        let (total, header) = (receive.byte_len - header as u32, header as u32);
        let taker = self.receives.at(waiting).expect("it waits");
        let &[piece] = &taker.iov[..] else { return };
        // A packet at a time is what costs most with an accelerator's driver.
        let far = cx.memory().is_accelerators(piece.addr);
        if taker.multi.is_some() || piece.len < total as u64 || far {
            return;
        }
        let rest = Sge { addr: piece.addr, len: total, lkey: cx.shared.all_memory };
        if !cx.device().divert(begun, header, &rest) {
            return;
        }
        let Ok(index) = self.keep(cx, peer, &message, total as u64, total, Fetch::Nothing) else {
            return cx.device().divert_back(begun.inbound);
        };
        let state = &mut self.peers[peer as usize];
        state.expected = message.number.wrapping_add(1);
        state.assemblies.insert(message.number, index);
        self.owes(cx, peer);
        cx.shared.counters.expected += 1;
        cx.shared.counters.placed += 1;
        let matched = self.take_receive(waiting, total as u64);
        let incoming = self.incoming.at_mut(index).expect("just kept");
        (incoming.owed, incoming.diverted) = (true, Some(begun.inbound));
        incoming.standing = Standing::Matched(matched);
        let held = self.hold(cx, index, 0, at + header as u64, begun.here - header);
        debug_assert_eq!(held, Ok(()), "it has a receive");
    }

    /// The message of that number is all there, which was begun by itself if the answer is not `None`.
    pub fn all_of_begun<M: Store>(
        &mut self,
        cx: &mut Cx<'_, M>,
        index: u32,
        len: u32,
    ) -> Option<Result<(), Breach>> {
        let incoming = self.incoming.at_mut(index).expect("it is being collected");
        incoming.diverted?;
        if len != incoming.eager {
            return Some(Err(Breach::Length));
        }
        incoming.diverted = None;
        incoming.arrived = len;
        self.incoming_changed(cx, index);
        Some(Ok(()))
    }
}
