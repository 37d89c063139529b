//! The liveness phase: the faults end, everything outstanding ends, everybody can talk to everybody, and then there is
//! silence.

use crate::ledger::{Flaw, State, Verb, Violation, broken};
use crate::posting::{Posted, setup};
use crate::workload::Draft;
use crate::world::World;
use srd_device::{QpKind, QpState};
use srd_wire::{Nanos, Status};

impl World {
    /// Ends every fault.
    pub(crate) fn heal(&mut self) -> Result<(), Violation> {
        self.healed = true;
        self.net.heal();
        self.left.fill(0);
        self.slow_until.fill(self.now);
        for node in 0..self.nodes.len() {
            self.nodes[node].paused_until = self.now;
            self.start(node)?;
            if self.nodes[node].device.is_none() {
                continue;
            }
            for host in 0..self.nodes[node].handles.len() {
                self.make_handle(node, host)?;
            }
            for qp in self.nodes[node].qps.clone() {
                self.stock(qp)?;
            }
            self.wake_at(node, self.now);
        }
        Ok(())
    }

    /// A fresh message of each kind from every living process to every other one must succeed.
    pub(crate) fn greet(&mut self) -> Result<(), Violation> {
        self.tell(|| "== everybody greets everybody".to_string());
        let living: Vec<usize> =
            (0..self.nodes.len()).filter(|&node| self.nodes[node].device.is_some()).collect();
        let mut doors = Vec::new();
        for &node in &living {
            doors.push(self.make_qp(node, QpKind::Srd)?);
        }
        let mut pairs = Vec::new();
        for &a in &doors {
            for &b in &doors {
                if a != b || self.plan.shape.self_percent > 0 {
                    pairs.push((a, b));
                }
            }
        }
        // A process that was killed may be remembered by its peers, and one that was given up not have heard of it; the
        // first message then says so.
        for _ in 0..2 {
            let greetings = self.send_greetings(&pairs)?;
            pairs.clear();
            for (id, a, b) in greetings {
                let (node, peer) = (self.ledger.qps[a].node, self.ledger.qps[b].node);
                let ledger = &self.ledger;
                let ended = ledger.killed[node].is_some()
                    || ledger.killed[peer].is_some()
                    || ledger.given_up[peer][node];
                match ledger.messages[id].state {
                    State::Done(Status::Ok) => {}
                    State::Done(Status::RemoteAbort) if ended => {
                        if !pairs.contains(&(a, b)) {
                            pairs.push((a, b));
                        }
                    }
                    state => {
                        let message = &self.ledger.messages[id];
                        return broken(
                            "liveness",
                            format!("a fresh message from {node} to {peer} ends {state:?}: {message:?}"),
                        );
                    }
                }
            }
        }
        match pairs.first() {
            None => Ok(()),
            Some((a, b)) => {
                broken("liveness", format!("queue pair {a} cannot reach {b}: reset by peer, and again"))
            }
        }
    }

    fn send_greetings(&mut self, pairs: &[(usize, usize)]) -> Result<Vec<(usize, usize, usize)>, Violation> {
        let mut greetings = Vec::new();
        for (verb, len) in [(Verb::Send, 64), (Verb::Write, 5_000), (Verb::Read, 5_000)] {
            for &(a, b) in pairs {
                let draft = Draft {
                    datagram: false,
                    verb,
                    imm: verb == Verb::Send,
                    len,
                    inline: false,
                    split: 0,
                    to_self: false,
                    flaw: Flaw::None,
                };
                let id = self.post_patiently(a, b, &draft)?;
                greetings.push((id, a, b));
                let node = self.ledger.qps[a].node;
                self.wake_at(node, self.now);
            }
        }
        let patience = self.patience();
        self.run_until(self.now + patience, |world| world.ledger.outstanding == 0)?;
        Ok(greetings)
    }

    /// Posts a message, waiting for room.
    fn post_patiently(&mut self, qp: usize, dst_qp: usize, draft: &Draft) -> Result<usize, Violation> {
        let node = self.ledger.qps[qp].node;
        let deadline = self.now + self.patience();
        loop {
            match self.post(qp, dst_qp, draft)? {
                Posted::Taken(id) => return Ok(id),
                Posted::No => return broken("refused post", format!("a fresh message: {draft:?}")),
                Posted::Full if self.now > deadline => {
                    return broken("liveness", format!("no room for a fresh message: {draft:?}"));
                }
                Posted::Full => {
                    self.wake_at(node, self.now);
                    self.run_until(self.now + Nanos(100_000), |_| false)?;
                }
            }
        }
    }

    /// With nothing to do nobody sends anything.
    pub(crate) fn fall_silent(&mut self) -> Result<(), Violation> {
        let shape = &self.plan.shape;
        // What is still to be said to the dead is said until they are given up; then those who wait for an answer of
        // ours are told, which takes as long again.
        let dead = shape.peer_timeout_ns * 5 / 2;
        let idle = 2 * shape.idle_release_ns.min(2_000_000_000);
        // And whoever was asked to be read goes on to answer, though the reader may not want it any more.
        let orphans =
            self.crawl(|message| message.verb == Verb::Read && message.state != State::Done(Status::Ok));
        let settle = Nanos(dead + 2 * shape.max_rto_ns + idle + 1_500_000_000) + orphans + self.jumped_back;
        self.run_until(self.now + settle, |_| false)?;
        let (packets, wakes) = (self.net.tally.sent, self.wakes);
        self.run_until(self.now + Nanos(1_000_000_000), |_| false)?;
        let (packets, wakes) = (self.net.tally.sent - packets, self.wakes - wakes);
        if packets > 0 {
            return broken("silence", format!("{packets} packets in an idle second"));
        }
        // What it owes to the dead a device may keep, as long as it keeps still.
        let somebody_died = self.nodes.iter().any(|node| node.gone);
        for node in &self.nodes {
            let Some(device) = &node.device else { continue };
            if !somebody_died && !device.endpoint().is_quiet() {
                let index = node.index;
                return broken(
                    "silence",
                    format!("process {index} still has something to send, and does not"),
                );
            }
            let counters = device.counters();
            let counted = counters.iter().find(|(name, _)| *name == "tx_pkts").map_or(0, |(_, value)| value);
            if counted != node.sent {
                let index = node.index;
                return broken(
                    "counters",
                    format!("process {index} sent {} packets and counts {counted}", node.sent),
                );
            }
        }
        let most = 20 * self.nodes.len() as u64;
        if wakes > most {
            return broken("silence", format!("{wakes} wake-ups in an idle second"));
        }
        Ok(())
    }

    /// Queue pairs are as they should be, and everything can be given back.
    pub(crate) fn tear_down(&mut self) -> Result<(), Violation> {
        self.check_states()?;
        for node in 0..self.nodes.len() {
            if self.nodes[node].device.is_none() {
                continue;
            }
            let life = self.ledger.lives[node].0;
            for qp in 0..self.ledger.qps.len() {
                let record = &self.ledger.qps[qp];
                if record.node == node && record.life == life && record.destroyed.is_none() {
                    self.destroy_qp(qp)?;
                }
            }
            let local = self.nodes[node].local(self.now);
            let host = &mut self.nodes[node];
            let pd = host.pd;
            for qpn in std::mem::take(&mut host.fillers) {
                setup("destroy_qp", host.device().destroy_qp(local, qpn))?;
            }
            for number in host.handles.clone().into_iter().flatten() {
                setup("destroy_ah", host.device().destroy_ah(local, pd, number))?;
            }
            for region in host.regions.clone() {
                if region.alive {
                    setup("dereg_mr", host.device().dereg_mr(region.key))?;
                }
            }
            for cq in host.cqs.clone() {
                if let Some(completion) = host.device().poll_cq(cq) {
                    return broken("destroyed", format!("completes after its queue pair: {completion:?}"));
                }
                setup("destroy_cq", host.device().destroy_cq(cq))?;
            }
            setup("dealloc_pd", host.device().dealloc_pd(pd))?;
            host.cqs.clear();
            self.wake_at(node, self.now);
        }
        // What they still have to say, they say now, and then nothing more.
        self.run_until(self.now + Nanos(2_000_000_000), |_| false)?;
        let left = self.net.tally.sent;
        self.run_until(self.now + Nanos(1_000_000_000), |_| false)?;
        match self.net.tally.sent - left {
            0 => Ok(()),
            packets => broken("silence", format!("{packets} packets from devices without queue pairs")),
        }
    }

    /// Whatever happens to its messages, a local queue pair does not change state (SRD.txt, section 3.2.2.1).
    fn check_states(&mut self) -> Result<(), Violation> {
        for at in 0..self.ledger.qps.len() {
            let qp = &self.ledger.qps[at];
            let (node, qpn) = (qp.node, qp.qpn);
            let lives = qp.life == self.ledger.lives[node].0 && self.nodes[node].device.is_some();
            if !lives || qp.destroyed.is_some() {
                continue;
            }
            let expected = if qp.errored.is_some() { QpState::Err } else { QpState::Rts };
            let info = setup("query_qp", self.nodes[node].device().query_qp(qpn))?;
            if info.state != expected {
                return broken(
                    "isolation",
                    format!("queue pair {at} is in {:?}, not {expected:?}", info.state),
                );
            }
        }
        Ok(())
    }
}
