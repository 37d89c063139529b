//! A ping: two queue pairs send a message to and fro, and the time it takes is printed.
//!
//! ```text
//! cargo run --release --example ping                        both ends in this process
//! cargo run --release --example ping -- serve               one end; it prints what to start on the other host:
//! cargo run --release --example ping -- 10.0.0.2 2          the other end
//! ```
//!
//! SRD is connectionless: a queue pair sends to any other whose host, number and key it knows. Messages arrive once
//! and whole, but in any order.

use srd_device::{
    Access, AhNumber, Completion, CompletionOp, CqId, PdId, QpInit, QpKind, QpModify, QpState, RecvWr,
    SendData, SendOp, SendWr, Sge,
};
use srd_net::{Address, Buffer, Instance, Options};
use srd_wire::{Gid, MrKey, Qkey, Qpn, Status};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Both ends have agreed on it: a queue pair takes only messages that carry its key.
const QKEY: Qkey = Qkey(0x1234);

const MESSAGE: &[u8; 32] = b"ping, across all the paths there";

const PINGS: u32 = 1000;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // SRD_ADDR and the other variables that `srd env --list` names.
    let (mut options, warnings) = Options::from_env()?;
    warnings.iter().for_each(|warning| eprintln!("{warning}"));
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            options.addr = Address::Ip(Ipv4Addr::LOCALHOST.into());
            let mut server = End::open(&options)?;
            let mut client = End::open(&options)?;
            let to = (server.instance.gid(), server.qpn);
            let serving = std::thread::spawn(move || server.echo(PINGS).map_err(|e| e.to_string()));
            client.ping(to)?;
            serving.join().expect("the server panicked")?;
        }
        ["serve"] => {
            let mut server = End::open(&options)?;
            println!("on the other host: ping {} {}", server.instance.gid().ip(), server.qpn.0);
            server.echo(PINGS)?;
        }
        [host, qpn] => End::open(&options)?.ping((Gid::from(host.parse::<IpAddr>()?), Qpn(qpn.parse()?)))?,
        _ => return Err("usage: ping | ping serve | ping ADDRESS QPN".into()),
    }
    Ok(())
}

/// One end: a device with a queue pair and a little memory.
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
        // A device of its own with its own UDP port. `Instance::open` shares one within the process.
        let instance = Instance::open_separate(options)?;

        // Memory that messages are received into must be registered; the key names it to the device.
        let buffer = Buffer::new(4096);
        let (pd, cq, key) = instance.with(|device, _now| {
            let pd = device.alloc_pd()?;
            let cq = device.create_cq(64)?;
            let access = Access { local_write: true, ..Access::default() };
            let key = device.reg_mr(pd, buffer.addr(), buffer.len() as u64, buffer.addr(), access)?;
            Ok::<_, srd_device::DeviceError>((pd, cq, key))
        })??;

        // Sends and receives may complete in queues of their own; here one serves for both.
        let qpn = instance.create_qp(QpInit {
            kind: QpKind::Srd,
            pd,
            send_cq: cq,
            recv_cq: cq,
            sq_depth: 16,
            rq_depth: 16,
            send_sge: 1,
            recv_sge: 1,
            inline: 32,
            rdma_read: false,
            rdma_write: false,
            unsolicited_write_recv: false,
        })??;

        // The states of a queue pair, as in verbs: reset, initialised, ready to receive, ready to send.
        let qkey = Some(QKEY);
        let init = QpModify {
            state: Some(QpState::Init),
            qkey,
            pkey_index: Some(0),
            port: Some(1),
            ..QpModify::default()
        };
        let rtr = QpModify { state: Some(QpState::Rtr), ..QpModify::default() };
        let rts = QpModify {
            state: Some(QpState::Rts),
            sq_psn: Some(0),
            rnr_retry: Some(7),
            ..QpModify::default()
        };
        instance.with(|device, now| {
            [init, rtr, rts].into_iter().try_for_each(|step| device.modify_qp(now, qpn, step))
        })??;

        let end = End { instance, pd, cq, qpn, buffer, key };
        end.post_receive()?;
        Ok(end)
    }

    /// Offers a buffer for the next message that comes.
    fn post_receive(&self) -> Result<()> {
        let sges = [Sge { addr: self.buffer.addr(), len: 4096, lkey: self.key }];
        Ok(self
            .instance
            .with(|device, _now| device.post_recv(self.qpn, &RecvWr { wr_id: 0, sges: &sges }))??)
    }

    /// An address handle stands for a host.
    fn handle(&self, host: Gid) -> Result<AhNumber> {
        Ok(self.instance.with(|device, _now| device.create_ah(self.pd, host))??)
    }

    fn send(&self, ah: AhNumber, qpn: Qpn) -> Result<()> {
        let request = SendWr {
            wr_id: 1,
            op: SendOp::Send { imm: None },
            ah,
            dst_qpn: qpn,
            qkey: QKEY,
            // Up to 32 bytes travel with the request; more lie in registered memory: `SendData::Sges`.
            data: SendData::Inline(MESSAGE),
        };
        Ok(self.instance.with(|device, now| device.post_send(now, self.qpn, &request))??)
    }

    /// Waits for the next message. Completions of our own sends, which say that the other device has the message,
    /// come through the same queue.
    fn receive(&self, limit: Duration) -> Result<Completion> {
        let deadline = Instant::now() + limit;
        loop {
            // Every poll also moves packets.
            match self.instance.poll_one(self.cq)? {
                Some(completion) if completion.status != Status::Ok => {
                    return Err(srd_device::describe(completion.status).into());
                }
                Some(completion) if completion.op == CompletionOp::Recv => return Ok(completion),
                Some(_) => {}
                None if Instant::now() > deadline => return Err("nothing has come".into()),
                None => {}
            }
        }
    }

    /// Sends every message back to where it came from.
    fn echo(&mut self, count: u32) -> Result<()> {
        for _ in 0..count {
            let message = self.receive(Duration::from_secs(600))?;
            assert_eq!(self.buffer.to_vec(0, message.byte_len as usize), MESSAGE);
            self.post_receive()?;
            // A handle of the same host is the same number each time.
            self.send(self.handle(message.src_gid)?, message.src_qpn)?;
        }
        Ok(())
    }

    fn ping(&mut self, (host, qpn): (Gid, Qpn)) -> Result<()> {
        let ah = self.handle(host)?;
        let began = Instant::now();
        for _ in 0..PINGS {
            self.send(ah, qpn)?;
            self.receive(Duration::from_secs(10))?;
            self.post_receive()?;
        }
        let round_trip = began.elapsed() / PINGS;
        println!("{PINGS} pings, {:.1} us for a round trip on average", round_trip.as_secs_f64() * 1e6);
        Ok(())
    }
}
