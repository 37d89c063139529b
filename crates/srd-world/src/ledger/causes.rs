//! Which failures a message may have: for every status, what must have happened.

use super::{Flaw, Ledger, Verb};
use srd_wire::{Status, Time};

impl Ledger {
    /// Whether `status` has a cause; the error says why not.
    pub(super) fn may_fail(&self, id: usize, status: Status, local: Time) -> Result<(), String> {
        let message = &self.messages[id];
        let (src, dst) = (&self.qps[message.qp], &self.qps[message.dst_qp]);
        let flaw = message.flaw;
        let rdma = message.verb != Verb::Send;
        let (s, d) = (src.node, dst.node);
        let another_life = dst.life != self.lives[d].0;
        let dst_gone = another_life || dst.destroyed.is_some() || dst.errored.is_some();
        let region_gone =
            |node, region| self.regions_gone.get(&(node, region)).is_some_and(|&t| t >= message.posted);
        let handle_moved = |a: usize, b: usize| self.handles[a][b].at >= message.posted;
        let just = |so: bool, why: &str| if so { Ok(()) } else { Err(why.to_string()) };
        // A flawed message may fail for any other cause that is there, but for its flaw only as the flaw says.
        match status {
            Status::Ok => Ok(()),
            Status::Flushed => {
                just(src.errored.is_some() || handle_moved(s, d), "neither queue pair nor handle ended")
            }
            Status::LocalInvalidAh => {
                just(flaw == Flaw::Handle || handle_moved(s, d), "the address handle is valid")
            }
            Status::LocalInvalidLkey => just(
                flaw == Flaw::Lkey || region_gone(s, message.local_region),
                "the local key is valid and covers the buffer",
            ),
            Status::LocalBadLength => just(flaw == Flaw::TooLong, "the length is allowed"),
            Status::RemoteBadAddress => just(
                matches!(flaw, Flaw::Rkey | Flaw::Range | Flaw::Access)
                    || another_life
                    || (rdma && region_gone(d, message.remote_region))
                    // The region of the receive buffer that it was landing in.
                    || (!rdma && self.any_region_gone_since(d, message.posted)),
                "the remote key and address are valid",
            ),
            // Somebody's late packets may have told one of two living processes of an end that was another's.
            Status::RemoteAbort => just(
                self.killed[d].is_some() || self.killed[s].is_some() || self.given_up[d][s],
                "both have been one and the same process from the start, and the peer has not given us up",
            ),
            Status::RemoteBadDestQpn => just(
                matches!(flaw, Flaw::Qpn | Flaw::Qkey) || dst_gone,
                "the destination queue pair is there",
            ),
            Status::RemoteRnr => {
                let consumes = !rdma || (message.imm.is_some() && !dst.unsolicited);
                if src.rnr_retry == 7 {
                    return Err("retries have no end".to_string());
                }
                just(consumes && (!dst.ample || dst_gone), "there have always been receives")
            }
            Status::RemoteBadLength => just(dst.short, "every receive is long enough"),
            Status::UnknownPeer => {
                let handle = self.handles[d][s];
                let lacked = !handle.so || handle.at >= message.posted || another_life;
                just(rdma && lacked, "the responder has an address handle of us")
            }
            // The packets of a message that has been begun cannot be cut smaller.
            Status::Unresponsive if self.mtu_dropped => Ok(()),
            Status::Unresponsive | Status::Unreachable => {
                self.may_be_dead(s, d, status, message.posted, local)
            }
            _ => Err("there is never a cause for this status".to_string()),
        }
    }

    fn any_region_gone_since(&self, node: usize, since: Time) -> bool {
        self.regions_gone.iter().any(|(&(owner, _), &at)| owner == node && at >= since)
    }

    fn may_be_dead(
        &self,
        node: usize,
        peer: usize,
        status: Status,
        posted: Time,
        local: Time,
    ) -> Result<(), String> {
        let contact = &self.contacts[node][peer];
        // A clock that jumps makes a silence look longer, here or there.
        let jumped = self.jumped[node].is_some_and(|at| at + self.peer_timeout >= posted);
        if status == Status::Unreachable && contact.answered && !self.vague_silence {
            return Err("the peer has answered".to_string());
        }
        let Some(asked) = contact.asked.or(self.vague_silence.then_some(local)) else {
            return Err("nothing has been asked since the last answer".to_string());
        };
        let silent = local.since(contact.heard.map_or(asked, |heard| heard.max(asked)));
        // An eighth for the resolution of timers.
        if !jumped && !self.vague_silence && silent.0 + silent.0 / 8 < self.peer_timeout.0 {
            return Err(format!(
                "the peer has been silent for {} us of {}",
                silent.0 / 1_000,
                self.peer_timeout.0 / 1_000
            ));
        }
        Ok(())
    }
}
