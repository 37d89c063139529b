//! A steady stream of every operation, some of its packets lost.

use super::Gauge;
use super::lengths::{End, QKEY, Wire};
use srd_device::{AhNumber, DeviceConfig, RecvWr, SendData, SendOp, SendWr, Sge};
use srd_wire::{MrKey, Nanos, Qpn, Status, Time};

/// Nothing may be allocated in any call of the device once the stream has run for a while.
pub fn steady(gauge: &Gauge) -> Result<String, String> {
    let config = DeviceConfig::default();
    let told = |error| format!("{error:?}");
    let mut ends = [End::new(0, &config).map_err(told)?, End::new(1, &config).map_err(told)?];
    let gids = [ends[0].gid, ends[1].gid];
    let handles = [ends[0].handle(gids[1]).map_err(told)?, ends[1].handle(gids[0]).map_err(told)?];
    let mut stream = Stream {
        gauge: *gauge,
        now: Time(1_000_000_000),
        wire: Wire::default(),
        far: [(handles[0], ends[1].qpn, ends[1].key), (handles[1], ends[0].qpn, ends[0].key)],
        posted: [0; 2],
        outstanding: [0; 2],
        completed: 0,
        calls: 0,
    };
    stream.wire.flying.reserve(1 << 16);
    stream.run(&mut ends, 40_000)?;
    stream.calls = 0;
    stream.run(&mut ends, 120_000)?;
    match stream.calls {
        0 => Ok(format!("{} packets after warm-up, no allocation", stream.wire.packets)),
        calls => Err(format!("{calls} allocations in 80,000 operations after 40,000 of warm-up")),
    }
}

struct Stream {
    gauge: Gauge,
    now: Time,
    wire: Wire,
    far: [(AhNumber, Qpn, MrKey); 2],
    posted: [u64; 2],
    outstanding: [u64; 2],
    completed: u64,
    calls: u64,
}

/// Operations that each side keeps outstanding.
const DEPTH: u64 = 64;

impl Stream {
    /// Calls a device and counts what it allocates.
    fn count<T>(&mut self, call: impl FnOnce(&mut Stream) -> T) -> T {
        let before = (self.gauge.calls)();
        let result = call(self);
        self.calls += (self.gauge.calls)() - before;
        result
    }

    fn run(&mut self, ends: &mut [End; 2], until: u64) -> Result<(), String> {
        while self.completed < until {
            for (side, end) in ends.iter_mut().enumerate() {
                self.post(side, end)?;
                let now = self.now;
                // One packet in two hundred is lost; the wire's room is reserved, so this allocates nothing itself.
                self.count(|stream| stream.wire.collect(now, end, |n| n % 200 == 0));
            }
            self.advance(ends);
            let now = self.now;
            let [a, b] = ends;
            self.count(|stream| while stream.wire.deliver(now, a) | stream.wire.deliver(now, b) {});
            for (side, end) in ends.iter_mut().enumerate() {
                self.count(|_| {
                    if end.device.next_timeout() <= now {
                        end.device.handle_timeout(now);
                    }
                });
                while let Some(completion) = self.count(|_| end.device.poll_cq(end.cq)) {
                    if completion.status != Status::Ok {
                        return Err(format!("{completion:?}"));
                    }
                    if completion.wr_id == 1 {
                        self.receive(end)?;
                    } else {
                        self.outstanding[side] -= 1;
                        self.completed += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// To whatever comes next.
    fn advance(&mut self, ends: &[End; 2]) {
        let arrival = self.wire.flying.front().map_or(Time::NEVER, |first| first.at);
        let next = ends.iter().map(|end| end.device.next_timeout()).fold(arrival, Time::min);
        self.now = next.max(self.now + Nanos(100)).min(self.now + Nanos::from_millis(1));
    }

    fn receive(&mut self, end: &mut End) -> Result<(), String> {
        let sges = [Sge { addr: 0, len: 8_192, lkey: end.key }];
        self.count(|_| end.device.post_recv(end.qpn, &RecvWr { wr_id: 1, sges: &sges }))
            .map_err(|error| format!("{error:?}"))
    }

    fn post(&mut self, side: usize, end: &mut End) -> Result<(), String> {
        if self.posted[side] == 0 {
            for _ in 0..256 {
                self.receive(end)?;
            }
        }
        while self.outstanding[side] < DEPTH {
            let n = self.posted[side];
            let (ah, dst_qpn, rkey) = self.far[side];
            let (op, len) = match n % 5 {
                0 => (SendOp::Send { imm: None }, 8_192),
                1 => (SendOp::Send { imm: Some(1) }, 64),
                2 => (SendOp::Write { rkey, addr: 1 << 20, imm: None }, 20_000),
                3 => (SendOp::Write { rkey, addr: 1 << 20, imm: Some(2) }, 100),
                _ => (SendOp::Read { rkey, addr: 1 << 20 }, 10_000),
            };
            let sges = [Sge { addr: 1 << 30, len, lkey: end.key }];
            let wr = SendWr { wr_id: 2, op, ah, dst_qpn, qkey: QKEY, data: SendData::Sges(&sges) };
            let now = self.now;
            self.count(|_| end.device.post_send(now, end.qpn, &wr)).map_err(|error| format!("{error:?}"))?;
            self.posted[side] += 1;
            self.outstanding[side] += 1;
        }
        Ok(())
    }
}
