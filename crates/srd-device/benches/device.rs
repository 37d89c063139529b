//! What the device costs on top of the transport: the same messages through two bare endpoints and through two
//! devices, in one run, without wire or copies; and then with the copy into host memory.
//!
//! `cargo bench -p srd-device`

#[path = "../../srd-proto/tests/harness/count.rs"]
mod count;

use count::Count;
use srd_device::*;
use srd_proto::{Config, Endpoint, Token};
use srd_wire::{Gid, Incarnation, InstanceAddr, Nanos, Op, Qkey, Qpn, Route, Status, Time};

const MESSAGES: u64 = 200_000;
const DEPTH: u64 = 64;
const QKEY: Qkey = Qkey(7);

fn gid(host: usize) -> Gid {
    Gid::from(std::net::IpAddr::from([10, 0, 0, host as u8 + 1]))
}

fn incarnation(host: usize) -> Incarnation {
    Incarnation(0x1234_5678_9ABC_DEF0 + host as u64)
}

/// Nanoseconds that this process has computed (proc(5), schedstat). Not time on the wall, so that others on the machine
/// disturb less.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").expect("Linux with schedstat");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("three numbers")
}

struct Figures {
    ns_per_message: f64,
    packets: u64,
}

/// Nanoseconds per message and packets in all, through bare endpoints.
fn transport(len: u32) -> Figures {
    let port = DeviceConfig::default().port_base;
    let mut ends = [0, 1].map(|host| {
        let endpoint: Endpoint<Length> =
            Endpoint::new(Config::default(), incarnation(host), &[port + host as u16], host as u64);
        (endpoint, Count::default())
    });
    let mut now = Time(1_000_000);
    let to = InstanceAddr { gid: gid(1), port: port + 1 };
    let peer = ends[0].0.connect(now, 0, to).unwrap();
    let route = Route { dst_qpn: Qpn(130), src_qpn: Qpn(2), qkey: QKEY };
    let op = Op::Send { route, imm: None, datagram: false };
    let (mut posted, mut packets) = (0, 0);
    let begin = cpu_ns();
    while ends[0].1.completed < MESSAGES {
        while posted < MESSAGES && posted - ends[0].1.completed < DEPTH {
            ends[0].0.send(now, peer, Token(posted), op, Length(len)).unwrap();
            posted += 1;
        }
        let mut moved = false;
        for host in [0, 1] {
            let [first, second] = &mut ends;
            let (sender, (receiver, upper)) = if host == 0 { (first, second) } else { (second, first) };
            while sender
                .0
                .poll_transmit_with(now, |transmit| {
                    let received = Received::new(now, gid(host), &transmit.packet, 1472);
                    receiver.handle_packet(now, 0, received, upper);
                })
                .is_some()
            {
                moved = true;
                packets += 1;
            }
        }
        if !moved {
            now += Nanos(500);
            for (endpoint, upper) in &mut ends {
                if endpoint.next_timeout() <= now {
                    endpoint.handle_timeout(now, upper);
                }
            }
        }
    }
    Figures { ns_per_message: (cpu_ns() - begin) as f64 / MESSAGES as f64, packets }
}

/// The same through devices over some memory, whose registered range begins at `addrs`.
fn device<M: Memory>(len: u32, memory: impl Fn() -> M, addrs: [u64; 2]) -> Figures {
    let config = DeviceConfig::default();
    let mut now = Time(1_000_000);
    let mut sides = [0, 1].map(|host| {
        let port = config.port_base + host as u16;
        let mut device =
            Device::new(config.clone(), gid(host), port, incarnation(host), host as u64, memory());
        let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(4096).unwrap());
        let access = Access { local_write: true, ..Access::default() };
        let key = device.reg_mr(pd, addrs[host], 1 << 16, addrs[host], access).unwrap();
        let ah = device.create_ah(pd, gid(1 - host)).unwrap();
        let qpn = device.create_qp(queue_pair(pd, cq)).unwrap();
        for change in QpModify::to_ready(QKEY, None) {
            device.modify_qp(now, qpn, change).unwrap();
        }
        (device, cq, qpn, ah, Sge { addr: addrs[host], len, lkey: key })
    });
    let (mut posted, mut done, mut packets) = (0, 0, 0);
    let begin = cpu_ns();
    while done < MESSAGES {
        while posted < MESSAGES && posted - done < DEPTH {
            let (receiver, _, dst_qpn, _, sink) = &mut sides[1];
            let dst_qpn = *dst_qpn;
            receiver.post_recv(dst_qpn, &RecvWr { wr_id: posted, sges: &[*sink] }).unwrap();
            let (sender, _, qpn, ah, source) = &mut sides[0];
            let data = SendData::Sges(std::slice::from_ref(source));
            let op = SendOp::Send { imm: None };
            let wr = SendWr { wr_id: posted, op, ah: *ah, dst_qpn, qkey: QKEY, data };
            sender.post_send(now, *qpn, &wr).unwrap();
            posted += 1;
        }
        let mut moved = false;
        for host in [0, 1] {
            let [first, second] = &mut sides;
            let (sender, receiver) = if host == 0 { (first, second) } else { (second, first) };
            while sender
                .0
                .poll_transmit_with(now, |transmit| {
                    let port = transmit.to.port;
                    let received = Received::new(now, gid(host), &transmit.packet, 1472);
                    receiver.0.handle_packet(now, port, received);
                })
                .is_some()
            {
                moved = true;
                packets += 1;
            }
            let (device, cq, ..) = &mut sides[host];
            while let Some(completion) = device.poll_cq(*cq) {
                assert_eq!(completion.status, Status::Ok);
                done += (host == 0) as u64;
            }
        }
        if !moved {
            now += Nanos(500);
            for (device, ..) in &mut sides {
                if device.next_timeout() <= now {
                    device.handle_timeout(now);
                }
            }
        }
    }
    Figures { ns_per_message: (cpu_ns() - begin) as f64 / MESSAGES as f64, packets }
}

fn queue_pair(pd: PdId, cq: CqId) -> QpInit {
    QpInit {
        kind: QpKind::Srd,
        pd,
        send_cq: cq,
        recv_cq: cq,
        sq_depth: 1024,
        rq_depth: 1024,
        send_sge: 2,
        recv_sge: 2,
        inline: 0,
        rdma_read: false,
        rdma_write: false,
        unsolicited_write_recv: false,
    }
}

fn main() {
    println!("{MESSAGES} messages, {DEPTH} at a time; CPU ns per message (send and receive together)");
    println!(
        "{:>8} {:>10} {:>10} {:>7} {:>14} {:>12}",
        "bytes", "transport", "+ device", "ratio", "device/packet", "+ copy"
    );
    for len in [0, 64, 1024, 8192] {
        let best = |run: &dyn Fn() -> Figures| {
            (0..3).map(|_| run()).min_by(|a, b| a.ns_per_message.total_cmp(&b.ns_per_message)).unwrap()
        };
        let bare = best(&|| transport(len));
        let whole = best(&|| device(len, || LengthMemory, [0x1000; 2]));
        let memory: [Vec<u8>; 2] = [vec![1; 1 << 16], vec![2; 1 << 16]];
        let addrs = [memory[0].as_ptr() as u64, memory[1].as_ptr() as u64];
        // SAFETY: `memory` outlives the devices, and nobody refers to it meanwhile.
        let copied = best(&|| device(len, || unsafe { HostMemory::new() }, addrs));
        let data_packets = whole.packets as f64 / MESSAGES as f64;
        println!(
            "{len:>8} {:>10.0} {:>10.0} {:>7.2} {:>14.1} {:>12.0}",
            bare.ns_per_message,
            whole.ns_per_message,
            whole.ns_per_message / bare.ns_per_message,
            (whole.ns_per_message - bare.ns_per_message) / data_packets,
            copied.ns_per_message,
        );
    }
}
