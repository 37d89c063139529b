//! What happens to processes and to the network between them.

use crate::event::{Event, Fault};
use crate::ledger::{State, Violation, broken};
use crate::plan::purpose;
use crate::posting::setup;
use crate::rng::Rng;
use crate::world::World;
use srd_device::{QpModify, QpState};
use srd_wire::{Nanos, Time};

/// A kind of fault, without the number.
type Kind = fn(u64) -> Fault;

impl World {
    pub(crate) fn schedule_calamities(&mut self) {
        let f = &self.plan.faults;
        let kinds: [(u64, Kind); 15] = [
            (f.blackholes, Fault::Blackhole),
            (f.flaps, Fault::Flap),
            (f.delay_steps, Fault::DelayStep),
            (f.cuts, Fault::Cut),
            (f.slow_receivers, Fault::SlowReceiver),
            (f.qp_destroys, Fault::QpDestroy),
            (f.qp_errors, Fault::QpError),
            (f.ah_destroys, Fault::AhDestroy),
            (f.mr_deregs, Fault::MrDereg),
            (f.restarts, Fault::Restart),
            (f.pauses, Fault::Pause),
            (f.jumps_forward, Fault::JumpForward),
            (f.jumps_back, Fault::JumpBack),
            (f.deaths, Fault::Death),
            (f.mtu_drops, Fault::MtuDrop),
        ];
        for (at, (count, kind)) in kinds.into_iter().enumerate() {
            // A stream for each kind, so that one can be taken away without changing the others.
            let mut rng = Rng::new(self.plan.seed, purpose::FAULTS ^ (at as u64) << 32);
            for _ in 0..count {
                let when = Time(rng.below(self.plan.shape.span_ns));
                self.at(when, Event::Fault(kind(rng.word())));
            }
        }
    }

    pub(crate) fn strike(&mut self, fault: Fault) -> Result<(), Violation> {
        if self.healed {
            return Ok(());
        }
        self.tell(|| format!("## {fault:?}"));
        match fault {
            Fault::Blackhole(draw) => self.blackhole(&mut Rng::new(draw, 0)),
            Fault::Flap(draw) => self.flap(&mut Rng::new(draw, 0)),
            Fault::DelayStep(draw) => self.delay_step(&mut Rng::new(draw, 0)),
            Fault::Cut(draw) => self.cut(&mut Rng::new(draw, 0)),
            Fault::MtuDrop(draw) => self.drop_mtu(&mut Rng::new(draw, 0)),
            Fault::SlowReceiver(draw) => self.slow_receiver(&mut Rng::new(draw, 0)),
            Fault::QpDestroy(draw) => return self.destroy_some_qp(&mut Rng::new(draw, 0)),
            Fault::QpError(draw) => return self.break_some_qp(&mut Rng::new(draw, 0)),
            Fault::AhDestroy(draw) => return self.destroy_some_handle(&mut Rng::new(draw, 0)),
            Fault::MrDereg(draw) => return self.deregister_some_region(&mut Rng::new(draw, 0)),
            Fault::Restart(draw) => return self.restart_some_process(&mut Rng::new(draw, 0)),
            Fault::Pause(draw) => self.pause_some_process(&mut Rng::new(draw, 0)),
            Fault::JumpForward(draw) => self.jump_some_clock(&mut Rng::new(draw, 0), 1),
            Fault::JumpBack(draw) => self.jump_some_clock(&mut Rng::new(draw, 0), -1),
            Fault::Death(draw) => {
                let node = self.any_process(&mut Rng::new(draw, 0));
                self.nodes[node].gone = true;
                return self.kill(node);
            }
        }
        Ok(())
    }

    fn any_process(&self, rng: &mut Rng) -> usize {
        rng.below(self.nodes.len() as u64) as usize
    }

    /// A process that runs.
    fn running_process(&self, rng: &mut Rng) -> Option<usize> {
        let node = self.any_process(rng);
        self.nodes[node].runs(self.now).then_some(node)
    }

    fn two_hosts(&self, rng: &mut Rng) -> (usize, usize) {
        let hosts = self.nodes.iter().map(|node| node.host).max().unwrap_or(0) as u64 + 1;
        let a = rng.below(hosts);
        let b = if hosts == 1 { a } else { (a + rng.within(1, hosts - 1)) % hosts };
        (a as usize, b as usize)
    }

    fn lasts(&self, most: u64, rng: &mut Rng) -> Time {
        if most == 0 { Time::NEVER } else { self.now + Nanos(rng.within(most / 2, most)) }
    }

    fn blackhole(&mut self, rng: &mut Rng) {
        let (a, b) = self.two_hosts(rng);
        let faults = self.plan.faults.clone();
        let until = self.lasts(faults.blackhole_ns, rng);
        for port in 0..self.plan.shape.entropy as u16 {
            if rng.percent(faults.blackhole_percent) {
                self.net.blackhole(a, b, port, until);
                if faults.blackhole_both != 0 {
                    self.net.blackhole(b, a, port, until);
                }
            }
        }
    }

    fn flap(&mut self, rng: &mut Rng) {
        let (a, b) = self.two_hosts(rng);
        let port = rng.below(self.plan.shape.entropy) as u16;
        self.net.flap(a, b, port, Nanos(self.plan.faults.flap_ns.max(1)));
    }

    fn delay_step(&mut self, rng: &mut Rng) {
        let (a, b) = self.two_hosts(rng);
        let port = rng.below(self.plan.shape.entropy) as u16;
        let more = rng.below(self.plan.faults.delay_step_ns + 1);
        self.net.set_delay(a, b, port, Nanos(self.plan.shape.rtt_ns / 2 + more));
    }

    fn cut(&mut self, rng: &mut Rng) {
        let (a, b) = self.two_hosts(rng);
        let until = self.lasts(self.plan.faults.cut_ns, rng);
        self.net.cut(a, b, until);
        if rng.percent(60) {
            self.net.cut(b, a, until);
        }
    }

    fn drop_mtu(&mut self, rng: &mut Rng) {
        let (a, b) = self.two_hosts(rng);
        self.net.limit(a, b, self.plan.faults.mtu_to);
        self.ledger.mtu_dropped = true;
    }

    fn slow_receiver(&mut self, rng: &mut Rng) {
        let node = self.any_process(rng);
        let until = self.lasts(self.plan.faults.slow_receiver_ns, rng);
        self.slow_until[node] = self.slow_until[node].max(until);
        for qp in self.nodes[node].qps.clone() {
            // What it has posted stays, but it may run out.
            let record = &mut self.ledger.qps[qp];
            record.ample &= record.recvs_open as u64 >= self.plan.shape.messages;
            self.at(until, Event::Stock(qp));
        }
    }

    fn some_own_qp(&self, node: usize, rng: &mut Rng) -> Option<usize> {
        let qps = &self.nodes[node].qps;
        (!qps.is_empty()).then(|| qps[rng.below(qps.len() as u64) as usize])
    }

    fn destroy_some_qp(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        let Some(node) = self.running_process(rng) else { return Ok(()) };
        let Some(qp) = self.some_own_qp(node, rng) else { return Ok(()) };
        let kind = self.ledger.qps[qp].kind;
        self.poll_now(node)?;
        self.destroy_qp(qp)?;
        self.make_qp(node, kind)?;
        self.wake_at(node, self.now);
        Ok(())
    }

    /// Destroys a queue pair, whatever it has under way.
    pub(crate) fn destroy_qp(&mut self, qp: usize) -> Result<(), Violation> {
        let (node, qpn) = (self.ledger.qps[qp].node, self.ledger.qps[qp].qpn);
        self.tell(|| format!("{node} destroys queue pair {qp} {qpn:?}"));
        let local = self.nodes[node].local(self.now);
        setup("destroy_qp", self.nodes[node].device().destroy_qp(local, qpn))?;
        self.nodes[node].qps.retain(|&other| other != qp);
        let memory = self.nodes[node].device.as_mut().expect("it lives").memory();
        self.ledger.qp_destroyed(self.now, qp, memory);
        self.poll_now(node)?;
        Ok(())
    }

    fn break_some_qp(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        let Some(node) = self.running_process(rng) else { return Ok(()) };
        let Some(qp) = self.some_own_qp(node, rng) else { return Ok(()) };
        let (qpn, kind) = (self.ledger.qps[qp].qpn, self.ledger.qps[qp].kind);
        self.poll_now(node)?;
        let local = self.nodes[node].local(self.now);
        let change = QpModify { state: Some(QpState::Err), ..QpModify::default() };
        setup("modify_qp to ERR", self.nodes[node].device().modify_qp(local, qpn, change))?;
        self.ledger.qps[qp].errored = Some(self.now);
        self.nodes[node].qps.retain(|&other| other != qp);
        self.make_qp(node, kind)?;
        self.poll_if_prompt(node)?;
        self.wake_at(node, self.now);
        Ok(())
    }

    fn destroy_some_handle(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        let Some(node) = self.running_process(rng) else { return Ok(()) };
        let host = rng.below(self.nodes[node].handles.len() as u64) as usize;
        let Some(number) = self.nodes[node].handles[host].take() else { return Ok(()) };
        let (local, pd) = (self.nodes[node].local(self.now), self.nodes[node].pd);
        setup("destroy_ah", self.nodes[node].device().destroy_ah(local, pd, number))?;
        self.note_handle(node, host, None);
        self.poll_now(node)?;
        // "If an AH is destroyed, any outstanding WRs using that AH are completed in error": SRD.txt, section 1.
        let left = self.ledger.messages.iter().position(|message| {
            let (src, dst) = (&self.ledger.qps[message.qp], &self.ledger.qps[message.dst_qp]);
            message.state == State::Outstanding && src.node == node && self.nodes[dst.node].host == host
        });
        if let Some(id) = left {
            return broken("liveness", format!("message {id} is not flushed when its address handle goes"));
        }
        let wait = rng.below(self.plan.shape.span_ns / 4 + 1);
        self.after(wait, Event::Handle(node, host));
        self.wake_at(node, self.now);
        Ok(())
    }

    fn deregister_some_region(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        let Some(node) = self.running_process(rng) else { return Ok(()) };
        // The last of the first four permits no remote access, and is always there.
        let alive: Vec<usize> = (0..self.nodes[node].regions.len())
            .filter(|&at| self.nodes[node].regions[at].alive && at != 3)
            .collect();
        let region = rng.pick(&alive);
        self.poll_now(node)?;
        let key = self.nodes[node].regions[region].key;
        setup("dereg_mr", self.nodes[node].device().dereg_mr(key))?;
        self.tell(|| format!("{node} takes region {region} ({key:?}) away"));
        self.nodes[node].regions[region].alive = false;
        self.ledger.regions_gone.insert((node, region), self.now);
        self.nodes[node].device().memory().close_region(region);
        let life = self.ledger.lives[node].0;
        setup("reg_mr", self.nodes[node].add_region(life, true))?;
        self.poll_if_prompt(node)?;
        self.wake_at(node, self.now);
        Ok(())
    }

    fn restart_some_process(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        let node = self.any_process(rng);
        if self.nodes[node].device.is_none() {
            return Ok(());
        }
        self.kill(node)?;
        let wait = rng.below(self.plan.faults.restart_ns + 1);
        self.after(wait, Event::Restart(node));
        Ok(())
    }

    /// Kills a process.
    pub(crate) fn kill(&mut self, node: usize) -> Result<(), Violation> {
        if self.nodes[node].device.is_none() {
            return Ok(());
        }
        self.tell(|| format!("{node} is killed"));
        self.poll_now(node)?;
        let mut device = self.nodes[node].device.take().expect("it lives");
        self.ledger.process_died(self.now, node, device.memory());
        self.nodes[node].inbox.clear();
        self.nodes[node].inbox_bytes = 0;
        self.nodes[node].paused_until = Time(0);
        self.slow_until[node] = Time(0);
        self.keys[node] = None;
        Ok(())
    }

    fn pause_some_process(&mut self, rng: &mut Rng) {
        let node = self.any_process(rng);
        let until = self.lasts(self.plan.faults.pause_ns.max(1), rng);
        self.tell(|| format!("{node} stops until {} us", until.0 / 1_000));
        self.nodes[node].paused_until = until.max(self.nodes[node].paused_until);
        self.at(until, Event::Resume(node));
    }

    fn jump_some_clock(&mut self, rng: &mut Rng, sign: i64) {
        let node = self.any_process(rng);
        // The device takes a clock that was set back for one that stands still until it has caught up.
        let most =
            if sign < 0 { self.plan.faults.jump_ns.min(100_000_000) } else { self.plan.faults.jump_ns };
        let by = rng.below(most + 1);
        self.tell(|| format!("{node}: the clock jumps by {} us", sign * (by / 1_000) as i64));
        self.nodes[node].clock_ahead += sign * by as i64;
        self.ledger.jumped[node] = Some(self.now);
        if sign < 0 {
            self.jumped_back = self.jumped_back + Nanos(by);
        }
        self.nodes[node].wake_at = Time::NEVER;
        self.wake_at(node, self.now);
    }
}
