//! MRC, Multipath Reliable Connection (OCP, 2026): RoCEv2's reliable connections over many paths and planes, without lossless
//! classes, from what has been published of it: arXiv 2605.04333 and 2606.18170, both of 2026, and OpenAI's article of 5 May 2026.
//!
//! Its window is NSCC's, by its own account, so this is [`Nscc`] with another choice of paths: `nscc/profile.rs`. What is not
//! public, and what is assumed for it, is in docs/BASELINES.md.

use crate::frame::FrameHead;
use crate::input::InputError;
use crate::nscc::{Nscc, NsccAddress, NsccConfig, Packet, Selector, read_common};
use crate::section::Section;
use crate::transport::{Counts, Order, Outgoing, Report, Role, Transport, WireCost};
use crate::{Baseline, Surroundings};
use srd_wire::Time;

/// EVs in use of a connection, and as many backups: "typically 128 to 256" (arXiv 2605.04333, section 2.1).
const PATHS: u64 = 128;
/// Bytes of a full packet: RoCE's largest.
const PAYLOAD: u64 = 4096;
/// Headers are IPv6 in IPv6 (40 and 40), UDP (8), BTH (12), RETH in every packet (16), a timestamp (4) and the check sequence (4),
/// behind Ethernet's: 124, of which UET's datagram headers here are 50.
const ROUTE_BYTES: u16 = 124 - 50;

/// A process that speaks MRC. See the module.
pub struct Mrc(Nscc);

impl Baseline for Mrc {
    type Config = NsccConfig;

    const NAME: &'static str = "mrc";
    const KEYS: &'static [&'static str] =
        &["payload", "paths", "target_us", "max_window", "ack_every", "rto_us", "control_class"];

    fn read(section: &Section<'_>, around: &Surroundings) -> Result<NsccConfig, InputError> {
        if !around.trims {
            let what = "mrc takes every packet that is gone for a path that is broken, and these switches drop what finds no room: \
                        write `trim = true` in [queues]";
            return Err(section.error(what));
        }
        let common = read_common(section, around, "mrc", (PAYLOAD, ROUTE_BYTES), (PATHS, 1 << 11))?;
        Ok(NsccConfig { selector: Selector::Profile, ..common })
    }

    fn takes_cut_packets(_: &NsccConfig) -> bool {
        true
    }

    fn open(role: &Role, config: &NsccConfig) -> Mrc {
        Mrc(Nscc::open(role, config))
    }

    fn cost(config: &NsccConfig, mtu: u16, overhead: u32) -> WireCost {
        Nscc::cost(config, mtu, overhead)
    }
}

impl Transport for Mrc {
    type Content = Packet;
    type Address = NsccAddress;

    fn address(&self) -> NsccAddress {
        self.0.address()
    }

    fn expect(&mut self, from: &NsccAddress, inbox: u32, bytes: u64) {
        self.0.expect(from, inbox, bytes);
    }

    fn start(&mut self, now: Time, order: Order, to: &NsccAddress) {
        self.0.start(now, order, to);
    }

    fn stop(&mut self, now: Time, flow: u32) {
        self.0.stop(now, flow);
    }

    fn receive(&mut self, now: Time, arrived: Time, head: &FrameHead, content: &Packet) {
        self.0.receive(now, arrived, head, content);
    }

    fn poll_transmit<R>(&mut self, now: Time, sink: impl FnMut(Outgoing<Packet>) -> R) -> Option<R> {
        self.0.poll_transmit(now, sink)
    }

    fn set_paused(&mut self, classes: u8) {
        self.0.set_paused(classes);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.0.handle_timeout(now);
    }

    fn next_timeout(&self) -> Time {
        self.0.next_timeout()
    }

    fn poll_report(&mut self) -> Option<Report> {
        self.0.poll_report()
    }

    fn delivered(&mut self, inbox: u32) -> u64 {
        self.0.delivered(inbox)
    }

    fn counts(&self) -> Counts {
        self.0.counts()
    }
}
