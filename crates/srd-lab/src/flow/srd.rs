//! Flows over SRD: messages of the device's longest length, so many outstanding, counted and numbered on arrival.

use super::arrivals::Arrivals;
use super::clock::{now_ns, sleep_until};
use super::protocol::{Amount, Inbound, ListenAddr, Offer, Outbound, Received, Sent};
use anyhow::{Context, anyhow, bail};
use srd_device::{
    Access, AhNumber, Completion, CompletionOp, CqId, DeviceError, PdId, QpInit, QpKind, QpModify, RecvWr,
    SendData, SendOp, SendWr, Sge,
};
use srd_net::{Address, Buffer, Instance, Options};
use srd_wire::{Gid, MrKey, Op, Qkey, Qpn, Route, Status, codec};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Messages that a sender has outstanding: 1.1 MB, as much as a socket of the kernel's buffers.
const OUTSTANDING: u32 = 128;
/// Receives that are posted for a flow.
const POSTED: u32 = 256;
/// Longest sleep without looking at the clock.
const NAP: Duration = Duration::from_millis(50);
/// Number of the message that goes before the start.
const GREETING: u32 = u32::MAX;
/// Longest wait for the greeting's acknowledgement.
const PATIENCE_NS: u64 = 10_000_000_000;

/// A device of this process: memory, one completion queue, any number of queue pairs.
struct Side {
    // The instance goes first when this is dropped: then nobody writes to the memory any more.
    instance: Arc<Instance>,
    pd: PdId,
    cq: CqId,
    memory: Buffer,
    key: MrKey,
    message_bytes: u32,
}

/// The longest message that leaves no packet less than full.
fn full_packets(longest: u32, datagram: u16) -> u32 {
    let route = Route { src_qpn: Qpn(0), dst_qpn: Qpn(0), qkey: Qkey(0) };
    let send = Op::Send { route, imm: None, datagram: false };
    let room = codec::max_payload(&send, datagram.into(), false) as u32;
    if longest > room { longest - longest % room } else { longest }
}

impl Side {
    fn open(address: IpAddr, completions: u32) -> anyhow::Result<Side> {
        let (mut options, _) = Options::from_env()?;
        options.addr = Address::Ip(address);
        let instance = Instance::open_separate(&options)?;
        let (longest, most) = instance.with(|device, _| {
            let config = device.config();
            (full_packets(config.max_msg, config.transport.max_datagram), config.max_cqe)
        })?;
        if completions > most {
            bail!("{completions} completions at a time, and a queue takes at most {most}: use fewer flows");
        }
        let memory = Buffer::new(longest as usize);
        memory.write(0, &vec![0x5a; longest as usize]);
        let (pd, cq, key) = instance
            .with(|device, _| {
                let pd = device.alloc_pd()?;
                let cq = device.create_cq(completions)?;
                let access = Access { local_write: true, remote_read: false, remote_write: false };
                let key = device.reg_mr(pd, memory.addr(), memory.len() as u64, memory.addr(), access)?;
                Ok::<_, DeviceError>((pd, cq, key))
            })?
            .map_err(|error| anyhow!("preparing the device: {error}"))?;
        Ok(Side { instance, pd, cq, memory, key, message_bytes: longest })
    }

    fn queue_pair(&self, sends: u32, receives: u32, qkey: Qkey) -> anyhow::Result<Qpn> {
        let init = QpInit {
            kind: QpKind::Srd,
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            sq_depth: sends,
            rq_depth: receives,
            send_sge: 1,
            recv_sge: 1,
            inline: 0,
            rdma_read: false,
            rdma_write: false,
            unsolicited_write_recv: false,
        };
        let qpn =
            self.instance.create_qp(init)?.map_err(|error| anyhow!("creating a queue pair: {error}"))?;
        // 7: for ever. The receiver posts buffers as fast as it can.
        let steps = QpModify::to_ready(qkey, Some(7));
        self.instance
            .with(|device, now| steps.into_iter().try_for_each(|step| device.modify_qp(now, qpn, step)))?
            .map_err(|error| anyhow!("bringing a queue pair to its ready state: {error}"))?;
        Ok(qpn)
    }

    fn post_receives(&self, qpns: impl Iterator<Item = Qpn>) -> anyhow::Result<()> {
        let sges = [Sge { addr: self.memory.addr(), len: self.message_bytes, lkey: self.key }];
        self.instance
            .with(|device, _| {
                qpns.into_iter().try_for_each(|qpn| {
                    device.post_recv(qpn, &RecvWr { wr_id: u64::from(qpn.0), sges: &sges })
                })
            })?
            .map_err(|error| anyhow!("posting a receive: {error}"))
    }

    /// Completions, at least one unless `until_ns` has come.
    fn completions(&self, out: &mut Vec<Completion>, until_ns: u64) -> anyhow::Result<()> {
        loop {
            // Not by polls, which would each look at the sockets: a sleep moves packets.
            self.instance
                .with(|device, _| {
                    out.extend(std::iter::from_fn(|| device.poll_cq(self.cq)));
                    if out.is_empty() { device.arm_cq(self.cq, false) } else { Ok(()) }
                })?
                .map_err(|error| anyhow!("asking for a notification: {error}"))?;
            let now = now_ns();
            if !out.is_empty() || now >= until_ns {
                return Ok(());
            }
            self.instance.wait(Some(Duration::from_nanos(until_ns - now).min(NAP)))?;
        }
    }
}

fn check(completion: &Completion) -> anyhow::Result<()> {
    if completion.status == Status::Ok {
        return Ok(());
    }
    let status = completion.status;
    bail!("{:?} ended with status {}: {}", completion.op, status as u8, srd_device::describe(status))
}

/// The receivers of a host.
pub struct Receivers {
    side: Side,
    flows: Vec<(Qpn, Inbound)>,
    qkey: Qkey,
    address: IpAddr,
}

impl Receivers {
    /// Opens a queue pair for each flow.
    pub fn open(address: IpAddr, inbound: Vec<Inbound>) -> anyhow::Result<Receivers> {
        let side = Side::open(address, (inbound.len() as u32 * POSTED).max(1))?;
        let qkey = Qkey(0x5eed ^ std::process::id());
        let mut flows = Vec::with_capacity(inbound.len());
        for flow in inbound {
            let qpn = side.queue_pair(1, POSTED, qkey)?;
            side.post_receives(std::iter::repeat_n(qpn, POSTED as usize))?;
            flows.push((qpn, flow));
        }
        Ok(Receivers { side, flows, qkey, address })
    }

    /// Where each flow is received.
    pub fn listening(&self) -> Vec<ListenAddr> {
        let listen_addr = |(qpn, flow): &(Qpn, Inbound)| ListenAddr {
            flow: flow.flow,
            address: self.address,
            port: 0,
            qpn: qpn.0,
            qkey: self.qkey.0,
        };
        self.flows.iter().map(listen_addr).collect()
    }

    /// Receives until all is there or `until_ns` has come.
    pub fn run(self, start_ns: u64, until_ns: u64, bin_ns: u64) -> anyhow::Result<Vec<Received>> {
        let Receivers { side, flows, .. } = self;
        let mut arrivals: Vec<Arrivals> =
            flows.iter().map(|(_, flow)| Arrivals::new(flow.clone(), start_ns, bin_ns)).collect();
        let mut seen: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); flows.len()];
        let mut done = Vec::new();
        let all_there = |arrivals: &[Arrivals]| arrivals.iter().all(Arrivals::is_complete);
        while now_ns() < until_ns && !all_there(&arrivals) {
            side.completions(&mut done, until_ns)?;
            let now = now_ns();
            for completion in &done {
                check(completion)?;
                let index = flows.partition_point(|(qpn, _)| *qpn < completion.qpn);
                let number = completion.imm.context("a message without a number")?;
                if number == GREETING {
                    continue;
                }
                if !seen[index].insert(number) {
                    bail!("message {number} of flow {} came twice", flows[index].1.flow);
                }
                arrivals[index].add(now, u64::from(completion.byte_len));
            }
            side.post_receives(done.drain(..).map(|completion| completion.qpn))?;
        }
        // Senders wait for their last acknowledgements: stay a moment.
        let drain_until = (now_ns() + 300_000_000).min(until_ns + 300_000_000);
        while now_ns() < drain_until {
            side.instance.wait(Some(NAP))?;
        }
        Ok(arrivals.into_iter().map(|arrivals| arrivals.close(until_ns)).collect())
    }
}

/// A sender, with a device of its own as a process of its own would have.
pub struct Sender {
    side: Side,
    qpn: Qpn,
    ah: AhNumber,
    flow: Outbound,
}

impl Sender {
    /// Opens the device and sends the receiver a greeting.
    pub fn open(address: IpAddr, flow: Outbound) -> anyhow::Result<Sender> {
        let side = Side::open(address, OUTSTANDING + 1)?;
        let qpn = side.queue_pair(OUTSTANDING, 1, Qkey(flow.to.qkey))?;
        let pd = side.pd;
        let ah = side
            .instance
            .with(|device, _| device.create_ah(pd, Gid::from(flow.to.address)))?
            .map_err(|error| anyhow!("making an address handle: {error}"))?;
        let sender = Sender { side, qpn, ah, flow };
        sender.post(GREETING, 1)?;
        let mut done = Vec::new();
        sender.side.completions(&mut done, now_ns() + PATIENCE_NS)?;
        let first = done.first();
        let to = sender.flow.to.address;
        check(first.with_context(|| format!("{to} has not answered for 10 s"))?)?;
        Ok(sender)
    }

    fn post(&self, number: u32, bytes: u32) -> anyhow::Result<()> {
        let sges = [Sge { addr: self.side.memory.addr(), len: bytes, lkey: self.side.key }];
        let request = SendWr {
            wr_id: u64::from(number),
            op: SendOp::Send { imm: Some(number) },
            ah: self.ah,
            dst_qpn: Qpn(self.flow.to.qpn),
            qkey: Qkey(self.flow.to.qkey),
            data: SendData::Sges(&sges),
        };
        self.side
            .instance
            .with(|device, now| device.post_send(now, self.qpn, &request))?
            .map_err(|error| anyhow!("posting a message: {error}"))
    }

    /// Sends from its beginning on, where the start is at `start_ns`.
    pub fn run(self, start_ns: u64, until_ns: u64) -> Sent {
        let begin_ns = start_ns + self.flow.begin_ns;
        let stats = |sender: &Sender| {
            let transport = sender.side.instance.stats().map(|stats| stats.transport).unwrap_or_default();
            (
                transport.get("tx_pkts").copied().unwrap_or(0),
                transport.get("retrans_pkts").copied().unwrap_or(0),
            )
        };
        let before = stats(&self);
        sleep_until(begin_ns);
        let error = self.send(begin_ns, until_ns).err().map(|error| format!("{error:#}"));
        let after = stats(&self);
        Sent { flow: self.flow.flow, packets: after.0 - before.0, again: after.1 - before.1, error }
    }

    fn send(&self, begin_ns: u64, until_ns: u64) -> anyhow::Result<()> {
        let message_bytes = u64::from(self.side.message_bytes);
        let (mut left, stop_ns) = match self.flow.amount {
            Amount::Bytes(bytes) => (bytes, u64::MAX),
            Amount::ForNs(span) => (u64::MAX, begin_ns + span),
        };
        let offer = Offer { begin_ns, bps: self.flow.offered_bps };
        let (mut number, mut outstanding, mut posted) = (0, 0, 0);
        let mut done = Vec::new();
        loop {
            let mut more_at = u64::MAX;
            while left > 0 && outstanding < OUTSTANDING && now_ns() < stop_ns {
                let bytes = left.min(message_bytes);
                more_at = offer.has_had_at(posted + bytes);
                if more_at > now_ns() {
                    break;
                }
                self.post(number, bytes as u32)?;
                (left, posted, more_at) = (left - bytes, posted + bytes, u64::MAX);
                number += 1;
                outstanding += 1;
            }
            if outstanding == 0 && left == 0 {
                return Ok(());
            }
            if now_ns() >= stop_ns {
                return Ok(()); // what is on its way may arrive or not
            }
            self.side.completions(&mut done, until_ns.min(stop_ns).min(more_at))?;
            for completion in done.drain(..) {
                check(&completion)?;
                outstanding -= u32::from(completion.op == CompletionOp::Send);
            }
            if now_ns() >= until_ns && outstanding > 0 {
                bail!("{outstanding} messages are not acknowledged at the end of the time given");
            }
        }
    }
}
