//! An RDMA write with immediate data: one end writes into the other's memory, and the immediate data tells the other
//! that it is there. The receiving program neither posts a buffer nor copies anything.
//!
//! ```text
//! cargo run --release --example write_imm                     both ends in this process
//! cargo run --release --example write_imm -- serve 10.0.0.1   one end, for a writer on 10.0.0.1; it prints what to
//!                                                             start there:
//! cargo run --release --example write_imm -- 10.0.0.2 2 0x7f0000001000 1
//! ```

use srd_device::{
    Access, CompletionOp, CqId, DeviceError, PdId, QpInit, QpKind, QpModify, SendData, SendOp, SendWr, Sge,
};
use srd_net::{Address, Buffer, Instance, Options};
use srd_wire::{Gid, MrKey, Qkey, Qpn, Status};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Both ends have agreed on it.
const QKEY: Qkey = Qkey(0x1234);

/// RDMA operations may be far longer than a packet, or than a send.
const LEN: usize = 1 << 20;

/// 32 bits that the writer chooses, for instance which part of the memory is ready.
const IMMEDIATE: u32 = 42;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (mut options, warnings) = Options::from_env()?;
    warnings.iter().for_each(|warning| eprintln!("{warning}"));
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            options.addr = Address::Ip(Ipv4Addr::LOCALHOST.into());
            let target = End::open(&options)?;
            let writer = End::open(&options)?;
            target.admit(writer.instance.gid())?;
            let offer = target.offer();
            let waiting = std::thread::spawn(move || target.wait_for_write().map_err(|e| e.to_string()));
            writer.write(&offer)?;
            waiting.join().expect("the target panicked")?;
        }
        ["serve", writer] => {
            let target = End::open(&options)?;
            target.admit(Gid::from(writer.parse::<IpAddr>()?))?;
            let Offer { host, qpn, addr, rkey } = target.offer();
            println!("on the other host: write_imm {} {} {addr:#x} {}", host.ip(), qpn.0, rkey.0);
            target.wait_for_write()?;
        }
        [host, qpn, addr, rkey] => End::open(&options)?.write(&Offer {
            host: Gid::from(host.parse::<IpAddr>()?),
            qpn: Qpn(qpn.parse()?),
            addr: u64::from_str_radix(addr.trim_start_matches("0x"), 16)?,
            rkey: MrKey(rkey.parse()?),
        })?,
        _ => {
            return Err("usage: write_imm | write_imm serve WRITER | write_imm ADDRESS QPN MEMORY KEY".into());
        }
    }
    Ok(())
}

/// What a writer must know of the memory it writes to. How it comes to know is the programs' own business: here a
/// person carries it over; real programs use a message, or a connection of another kind.
struct Offer {
    host: Gid,
    qpn: Qpn,
    addr: u64,
    rkey: MrKey,
}

/// One end: a device with a queue pair and some memory.
struct End {
    instance: Arc<Instance>,
    pd: PdId,
    cq: CqId,
    qpn: Qpn,
    buffer: Buffer,
    key: MrKey,
}

impl End {
    fn open(options: &Options) -> Result<End> {
        let instance = Instance::open_separate(options)?;
        let buffer = Buffer::new(LEN);
        let (pd, cq, key) = instance.with(|device, _now| {
            let pd = device.alloc_pd()?;
            let cq = device.create_cq(64)?;
            // `remote_write`: whoever knows the key may write.
            let access = Access { local_write: true, remote_write: true, ..Access::default() };
            let key = device.reg_mr(pd, buffer.addr(), LEN as u64, buffer.addr(), access)?;
            Ok::<_, DeviceError>((pd, cq, key))
        })??;
        let qpn = instance.create_qp(QpInit {
            kind: QpKind::Srd,
            pd,
            send_cq: cq,
            recv_cq: cq,
            sq_depth: 16,
            rq_depth: 16,
            send_sge: 1,
            recv_sge: 1,
            inline: 0,
            rdma_read: false,
            rdma_write: true,
            // Immediate data makes a completion here without using up a posted receive.
            unsolicited_write_recv: true,
        })??;
        let steps = QpModify::to_ready(QKEY, None);
        instance
            .with(|device, now| steps.into_iter().try_for_each(|step| device.modify_qp(now, qpn, step)))??;
        Ok(End { instance, pd, cq, qpn, buffer, key })
    }

    /// Lets a host's queue pairs at our memory, keys permitting: a device refuses RDMA from hosts that it has no
    /// address handle of.
    fn admit(&self, host: Gid) -> Result<()> {
        self.instance.with(|device, _now| device.create_ah(self.pd, host))??;
        Ok(())
    }

    fn offer(&self) -> Offer {
        Offer { host: self.instance.gid(), qpn: self.qpn, addr: self.buffer.addr(), rkey: self.key }
    }

    /// Writes all of our memory into the memory that is offered.
    fn write(&self, offer: &Offer) -> Result<()> {
        let bytes: Vec<u8> = (0..LEN).map(|i| i as u8).collect();
        self.buffer.write(0, &bytes);
        let ah = self.instance.with(|device, _now| device.create_ah(self.pd, offer.host))??;
        let sges = [Sge { addr: self.buffer.addr(), len: LEN as u32, lkey: self.key }];
        let request = SendWr {
            wr_id: 7,
            op: SendOp::Write { rkey: offer.rkey, addr: offer.addr, imm: Some(IMMEDIATE) },
            ah,
            dst_qpn: offer.qpn,
            qkey: QKEY,
            data: SendData::Sges(&sges),
        };
        let began = Instant::now();
        self.instance.with(|device, now| device.post_send(now, self.qpn, &request))??;
        self.next(CompletionOp::Write, Duration::from_secs(10))?;
        println!("{LEN} bytes written and acknowledged after {:.0} us", began.elapsed().as_secs_f64() * 1e6);
        Ok(())
    }

    /// Sleeps until somebody has written.
    fn wait_for_write(&self) -> Result<()> {
        let imm = self.next(CompletionOp::RecvRdmaWithImm, Duration::from_secs(600))?;
        let right = self.buffer.to_vec(0, LEN).iter().enumerate().all(|(i, &byte)| byte == i as u8);
        println!(
            "memory written, immediate data {imm:?}, content {}",
            if right { "as it should be" } else { "WRONG" }
        );
        Ok(())
    }

    /// The immediate data of the next completion, which must be of this kind. Sleeps instead of polling: ask for a
    /// notification, poll once more for what came in between, then wait.
    fn next(&self, op: CompletionOp, limit: Duration) -> Result<Option<u32>> {
        let deadline = Instant::now() + limit;
        loop {
            self.instance.with(|device, _now| device.arm_cq(self.cq, false))??;
            if let Some(completion) = self.instance.poll_one(self.cq)? {
                return match completion.status {
                    Status::Ok if completion.op == op => Ok(completion.imm),
                    Status::Ok => Err(format!("{:?} has completed instead of {op:?}", completion.op).into()),
                    status => Err(srd_device::describe(status).into()),
                };
            }
            if !self.instance.wait(Some(deadline.saturating_duration_since(Instant::now())))?
                && Instant::now() > deadline
            {
                return Err("nothing has come".into());
            }
        }
    }
}
