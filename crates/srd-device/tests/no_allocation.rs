//! Once every table and queue has grown to what the traffic needs, nothing is allocated any more: not per message, not
//! per packet.

mod harness;

use harness::*;
use srd_device::*;
use srd_wire::{Nanos, Status};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

struct Counting;

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is the system allocator's work; this only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTING.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if COUNTING.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: as promised by the caller.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Two devices joined by nothing: what one transmits the other handles at once. (The harness's wire allocates.)
struct Direct {
    net: Net<LengthMemory>,
    sides: [Side; 2],
}

impl Direct {
    fn new() -> Direct {
        let config = DeviceConfig::default();
        let mut net = Net::new(2, &config, || LengthMemory);
        let sides = [0, 1].map(|host| net.side(host, 0x1000, 1 << 30, srd));
        Direct { net, sides }
    }

    /// Lets everything happen until both have `left` fewer work requests open.
    fn run(&mut self, mut left: [u32; 2]) {
        let mut idle = 0;
        while left != [0, 0] {
            let mut moved = false;
            for host in [0, 1] {
                while let Some(transmit) = self.net.devices[host].poll_transmit(self.net.now) {
                    moved = true;
                    let other = &mut self.net.devices[1 - host];
                    let received = Received::new(self.net.now, gid(host), &transmit.packet, 1500);
                    other.handle_packet(self.net.now, transmit.to.port, received);
                }
                while let Some(completion) = self.net.devices[host].poll_cq(self.sides[host].cq) {
                    assert_eq!(completion.status, Status::Ok);
                    left[host] -= 1;
                }
            }
            if !moved && left != [0, 0] {
                idle += 1;
                assert!(idle < 1_000_000, "no progress: {left:?}");
                let next = self.net.next();
                self.net.now = self.net.now.max(next) + Nanos(500);
                for device in &mut self.net.devices {
                    device.handle_timeout(self.net.now);
                }
            }
        }
    }

    /// A round of everything: sends both ways with and without receives in time, writes, reads.
    fn round(&mut self, [a, b]: &[Side; 2]) {
        let (net, send) = (&mut self.net, SendOp::Send { imm: Some(1) });
        for wr_id in 0..64 {
            net.post_recv(b, wr_id, 0, 9000);
            net.post_recv(a, wr_id, 0, 9000);
            net.post(a, b, wr_id, send, 0, 8000);
            net.post(b, a, wr_id, send, 0, 100);
            net.post(a, b, wr_id, SendOp::Write { rkey: b.key, addr: b.addr, imm: None }, 0, 50_000);
            net.post(b, a, wr_id, SendOp::Read { rkey: a.key, addr: a.addr }, 0, 50_000);
        }
        self.run([192, 192]);
        // Without receives at first: these wait and are retransmitted.
        for wr_id in 0..64 {
            self.net.post(a, b, wr_id, send, 0, 3000);
        }
        // Some packets are lost, too.
        for _ in 0..3 {
            self.net.devices[0].poll_transmit(self.net.now);
        }
        (0..64).for_each(|wr_id| self.net.post_recv(b, wr_id, 0, 9000));
        self.run([64, 64]);
    }
}

#[test]
fn nothing_is_allocated_after_warm_up() {
    let mut direct = Direct::new();
    let sides = direct.sides.clone();
    for _ in 0..50 {
        direct.round(&sides);
    }
    COUNTING.store(true, Ordering::Relaxed);
    for _ in 0..50 {
        direct.round(&sides);
    }
    COUNTING.store(false, Ordering::Relaxed);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0);
    let counters = direct.net.devices[0].counters();
    assert!(counters.retrans_pkts > 0, "losses were part of it");
}
