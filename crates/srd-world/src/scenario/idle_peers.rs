//! Ten thousand peers, each idle after one exchange.

use super::Gauge;
use super::lengths::{End, QKEY, Wire, gid};
use srd_device::{DeviceConfig, RecvWr, SendData, SendOp, SendWr, Sge};
use srd_wire::{Nanos, Status, Time};

/// Most bytes that a peer may cost: with 10,000 peers that is 160 MiB.
const MAX_BYTES_PER_PEER: i64 = 16 << 10;

/// Memory per peer after the exchange and when idle, and what happens in ten idle seconds.
pub fn idle_peers(gauge: &Gauge) -> Result<String, String> {
    let few = after_exchanges(100, gauge)?;
    let many = after_exchanges(10_000, gauge)?;
    let report = format!(
        "{} B per peer after the exchange, {} B when idle; in 10 idle s {} wake-ups and {} packets ({} and {} with 100 peers)",
        many.fresh_bytes, many.idle_bytes, many.wakes, many.packets, few.wakes, few.packets
    );
    if many.idle_bytes > MAX_BYTES_PER_PEER {
        return Err(format!("more than {MAX_BYTES_PER_PEER} B per peer: {report}"));
    }
    if many.wakes > few.wakes + 10 || many.packets > 0 {
        return Err(format!("idle peers make work: {report}"));
    }
    Ok(report)
}

struct Cost {
    fresh_bytes: i64,
    idle_bytes: i64,
    wakes: u64,
    packets: u64,
}

fn after_exchanges(peers: u32, gauge: &Gauge) -> Result<Cost, String> {
    let config = DeviceConfig::default();
    let mut hub = End::new(0, &config).map_err(|error| format!("{error:?}"))?;
    let before = (gauge.live)();
    let mut now = Time(1_000_000_000);
    let mut wire = Wire::default();
    for n in 1..=peers {
        now = exchange(now, &mut hub, n, &config, &mut wire).map_err(|why| format!("peer {n}: {why}"))?;
    }
    wire.flying = Default::default();
    let fresh_bytes = ((gauge.live)() - before) / peers as i64;
    // Past the time after which a context gives its buffers back.
    let idle = now + config.transport.idle_release + Nanos::from_secs(3);
    rest(&mut now, idle, &mut hub, &mut wire);
    let idle_bytes = ((gauge.live)() - before) / peers as i64;
    let (packets, end) = (wire.packets, now + Nanos::from_secs(10));
    let wakes = rest(&mut now, end, &mut hub, &mut wire);
    Ok(Cost { fresh_bytes, idle_bytes, wakes, packets: wire.packets - packets })
}

/// Runs the hub alone; how often it wanted to be called.
fn rest(now: &mut Time, until: Time, hub: &mut End, wire: &mut Wire) -> u64 {
    let mut wakes = 0;
    while hub.device.next_timeout() <= until {
        *now = hub.device.next_timeout().max(*now + Nanos(1));
        hub.device.handle_timeout(*now);
        wire.collect(*now, hub, |_| true);
        wakes += 1;
    }
    *now = until;
    wakes
}

/// A fresh peer and the hub send each other a message; the peer then goes away without a word.
fn exchange(
    mut now: Time,
    hub: &mut End,
    n: u32,
    config: &DeviceConfig,
    wire: &mut Wire,
) -> Result<Time, String> {
    let told = |error| format!("{error:?}");
    let mut peer = End::new(n, config).map_err(told)?;
    let to_hub = peer.handle(gid(0)).map_err(told)?;
    let to_peer = hub.handle(gid(n)).map_err(told)?;
    let (hub_qpn, peer_qpn) = (hub.qpn, peer.qpn);
    for (end, ah, qpn) in [(&mut *hub, to_peer, peer_qpn), (&mut peer, to_hub, hub_qpn)] {
        let sge = |addr| [Sge { addr, len: 8_192, lkey: end.key }];
        end.device.post_recv(end.qpn, &RecvWr { wr_id: 1, sges: &sge(0) }).map_err(told)?;
        let op = SendOp::Send { imm: None };
        let data = sge(8_192);
        let wr = SendWr { wr_id: 2, op, ah, dst_qpn: qpn, qkey: QKEY, data: SendData::Sges(&data) };
        end.device.post_send(now, end.qpn, &wr).map_err(told)?;
    }
    let mut completed = 0;
    let deadline = now + Nanos::from_millis(100);
    // Beyond the last completion for as long as an ACK may wait.
    let mut quiet = 0;
    while completed < 4 || quiet < 20 {
        if now > deadline {
            return Err(format!("{completed} of 4 completions after 100 ms"));
        }
        for end in [&mut *hub, &mut peer] {
            wire.collect(now, end, |_| false);
        }
        now += Nanos::from_micros(1);
        while wire.deliver(now, hub) | wire.deliver(now, &mut peer) {}
        for end in [&mut *hub, &mut peer] {
            if end.device.next_timeout() <= now {
                end.device.handle_timeout(now);
            }
            while let Some(completion) = end.device.poll_cq(end.cq) {
                if completion.status != Status::Ok {
                    return Err(format!("{completion:?}"));
                }
                completed += 1;
            }
        }
        quiet += (completed == 4) as u32;
    }
    Ok(now)
}
