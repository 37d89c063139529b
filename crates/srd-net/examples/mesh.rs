//! Processes on this host that all send to each other, to be looked at: with `srd top`, `srd metrics`, `srd trace --record`.
//!
//! ```text
//! cargo run --release --example mesh -- 16 60               16 processes with 15 peers each, for 60 s
//! ```
//!
//! Each process has an address of its own (127.0.2.1, 127.0.2.2, ...) and sends a message every millisecond, to the others in
//! turn.

use srd_device::{
    Access, AhNumber, CompletionOp, CqId, PdId, QpInit, QpKind, QpModify, RecvWr, SendData, SendOp, SendWr,
    Sge,
};
use srd_net::{Address, Buffer, Instance, Options};
use srd_wire::{Gid, MrKey, Qkey, Qpn};
use std::error::Error;
use std::net::IpAddr;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const QKEY: Qkey = Qkey(0x1234);
/// The first queue pair of each process.
const QPN: Qpn = Qpn(2);
const MESSAGE: u32 = 4096;
const RECEIVES: u64 = 64;
const EVERY: Duration = Duration::from_millis(1);

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [count, seconds] => {
            let _: u64 = seconds.parse()?;
            let count: u8 = count.parse()?;
            let start = |rank: u8| {
                let program = std::env::current_exe()?;
                Command::new(program).args([&rank.to_string(), &count.to_string(), seconds]).spawn()
            };
            let children: std::io::Result<Vec<Child>> = (0..count).map(start).collect();
            for mut child in children? {
                child.wait()?;
            }
            Ok(())
        }
        [rank, count, seconds] => {
            Process::open(rank.parse()?)?.run(count.parse()?, Duration::from_secs(seconds.parse()?))
        }
        _ => Err("usage: mesh PROCESSES SECONDS".into()),
    }
}

fn address(rank: u8) -> IpAddr {
    [127, 0, 2, 1 + rank].into()
}

/// One of them.
struct Process {
    rank: u8,
    instance: Arc<Instance>,
    pd: PdId,
    cq: CqId,
    buffer: Buffer,
    key: MrKey,
}

impl Process {
    fn open(rank: u8) -> Result<Process> {
        let (mut options, _) = Options::from_env()?;
        options.addr = Address::Ip(address(rank));
        let instance = Instance::open_separate(&options)?;
        let buffer = Buffer::new(MESSAGE as usize);
        let (pd, cq, key) = instance.with(|device, _now| {
            let pd = device.alloc_pd()?;
            let cq = device.create_cq(1024)?;
            let access = Access { local_write: true, ..Access::default() };
            let key = device.reg_mr(pd, buffer.addr(), buffer.len() as u64, buffer.addr(), access)?;
            Ok::<_, srd_device::DeviceError>((pd, cq, key))
        })??;
        let init = QpInit {
            kind: QpKind::Srd,
            pd,
            send_cq: cq,
            recv_cq: cq,
            sq_depth: 256,
            rq_depth: 256,
            send_sge: 1,
            recv_sge: 1,
            inline: 0,
            rdma_read: false,
            rdma_write: false,
            unsolicited_write_recv: false,
        };
        let qpn = instance.create_numbered_qp(init, QPN)??;
        let steps = QpModify::to_ready(QKEY, Some(7));
        instance
            .with(|device, now| steps.into_iter().try_for_each(|step| device.modify_qp(now, qpn, step)))??;
        Ok(Process { rank, instance, pd, cq, buffer, key })
    }

    fn sge(&self) -> Sge {
        Sge { addr: self.buffer.addr(), len: MESSAGE, lkey: self.key }
    }

    fn post_receive(&self) -> Result<()> {
        let sges = [self.sge()];
        Ok(self.instance.with(|device, _now| device.post_recv(QPN, &RecvWr { wr_id: 0, sges: &sges }))??)
    }

    fn send(&self, ah: AhNumber) -> Result<()> {
        let sges = [self.sge()];
        let op = SendOp::Send { imm: None };
        let request = SendWr { wr_id: 1, op, ah, dst_qpn: QPN, qkey: QKEY, data: SendData::Sges(&sges) };
        Ok(self.instance.with(|device, now| device.post_send(now, QPN, &request))??)
    }

    fn run(&self, count: u8, duration: Duration) -> Result<()> {
        let handle = |rank| {
            Ok(self.instance.with(|device, _now| device.create_ah(self.pd, Gid::from(address(rank))))??)
        };
        let others = (0..count).filter(|&rank| rank != self.rank);
        let handles: Result<Vec<AhNumber>> = others.map(handle).collect();
        let handles = handles?;
        for _ in 0..RECEIVES {
            self.post_receive()?;
        }
        std::thread::sleep(Duration::from_secs(1)); // until all are there
        let began = Instant::now();
        let mut in_turn = handles.iter().cycle();
        let mut outstanding = 0;
        while began.elapsed() < duration {
            if outstanding < 128
                && let Some(&ah) = in_turn.next()
            {
                self.send(ah)?;
                outstanding += 1;
            }
            while let Some(completion) = self.instance.poll_one(self.cq)? {
                match completion.op {
                    CompletionOp::Recv => self.post_receive()?,
                    _ => outstanding -= 1,
                }
            }
            std::thread::sleep(EVERY);
        }
        Ok(())
    }
}
