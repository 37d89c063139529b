//! A process with somebody looking over its shoulder: it does what its transport does, shows a trace what it does, gives captures
//! what only it knows of its packets, and if asked to puts every packet of SRD that it receives through the wire format.

use super::frame_metadata::{AnyContent, FrameMetadata};
use super::trace::Trace;
use crate::apps::Place;
use crate::hosts::{AnyHost, Birth, Process, Srd, SrdContent};
use crate::net::{Content, FrameHead};
use srd_baselines::transport::{Counts, Order, Outgoing, Report, Transport};
use srd_baselines::wire::{Departure, Streams};
use srd_baselines::{Mixed, MixedContent};
use srd_device::Length;
use srd_proto::Payload;
use srd_wire::{Body, Packet, Time, codec};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

/// See the module.
pub struct Observed {
    host: AnyHost,
    /// As frames name it.
    at: Place,
    /// The last moment that it was told.
    now: Time,
    /// Where its doings are written, and its number there.
    trace: Option<(Arc<Mutex<Trace>>, u32)>,
    /// Where segments of byte streams lie, for captures.
    streams: Option<Rc<RefCell<Streams>>>,
    verify: bool,
    /// First packet that was not the same behind the wire format.
    defect: Option<String>,
    inbound: Inbound,
}

/// What has come to a process whose transport keeps no count of it.
#[derive(Default)]
struct Inbound {
    /// Inboxes that are not full.
    open: BTreeSet<u32>,
    /// Bytes in those that are, used again or not.
    full: u64,
}

impl Observed {
    /// A process at its beginning, whom nobody watches yet.
    pub fn new(birth: Birth<'_>) -> Observed {
        Observed {
            at: Place { host: birth.role.host, process: birth.role.process },
            host: AnyHost::new(birth),
            now: Time(0),
            trace: None,
            streams: None,
            verify: false,
            defect: None,
            inbound: Inbound::default(),
        }
    }

    /// How frames name it.
    pub(super) fn at(&self) -> Place {
        self.at
    }

    /// The transport, if it is SRD.
    pub fn srd(&self) -> Option<&Srd> {
        match &self.host {
            Mixed::Srd(srd) => Some(srd),
            _ => None,
        }
    }

    /// Bytes that have come to it so far.
    pub(super) fn bytes_in(&mut self) -> u64 {
        if let Mixed::Srd(srd) = &self.host {
            return srd.stats().rx_bytes;
        }
        let host = &mut self.host;
        self.inbound.full + self.inbound.open.iter().map(|&inbox| host.delivered(inbox)).sum::<u64>()
    }

    /// From now on every received packet is encoded, decoded, compared, and only then received.
    pub fn verify(&mut self) {
        self.verify = true;
    }

    /// What verification has found.
    pub fn defect(&self) -> Option<&str> {
        self.defect.as_deref()
    }

    /// From now on its packets tell what captures need, `streams` being those of all processes.
    pub(super) fn capture_with(&mut self, streams: Rc<RefCell<Streams>>) {
        self.streams = Some(streams);
    }

    /// From now on `trace` is told what this process, number `process`, does.
    pub(super) fn trace_to(&mut self, trace: Arc<Mutex<Trace>>, process: u32) {
        if let Mixed::Srd(srd) = &mut self.host
            && lock(&trace).decides(process)
        {
            let to = trace.clone();
            srd.set_tracer(Some(Box::new(move |now, peer, event| {
                lock(&to).decided(process, now, peer, event);
            })));
        }
        self.trace = Some((trace, process));
    }

    fn tell(&mut self, now: Time, tell: impl FnOnce(&mut Trace, u32)) {
        self.now = now;
        if let Some((trace, process)) = &self.trace {
            tell(&mut lock(trace), *process);
        }
    }

    /// What was asked of the transport is done.
    fn settle(&self) {
        if let (Some((trace, process)), Mixed::Srd(srd)) = (&self.trace, &self.host) {
            lock(trace).settle(*process, srd);
        }
    }

    /// The packet as its receiver reads it, if it is put through the wire format: `None` if it does not come through.
    fn verified(&mut self, content: &SrdContent, cut: bool) -> Option<AnyContent> {
        match through_the_wire(content, cut) {
            Ok(packet) => Some(MixedContent::Srd(SrdContent { packet, ..content.clone() })),
            Err(what) => {
                let packet = &content.packet;
                self.defect.get_or_insert_with(|| format!("{packet:?} does not survive: {what}"));
                None
            }
        }
    }
}

fn lock(trace: &Mutex<Trace>) -> MutexGuard<'_, Trace> {
    trace.lock().expect("nobody panics while writing a trace")
}

/// A packet as its receiver would read it, and whether that is what was sent. Of one that a switch has `cut` the headers are compared.
fn through_the_wire(content: &SrdContent, cut: bool) -> Result<Packet<Length>, String> {
    let packet = &content.packet;
    let payload = match &packet.body {
        Body::Data(data) => data.payload.len(),
        _ => 0,
    };
    let datagram = content.datagram as usize;
    let mut bytes = vec![0; datagram.max(codec::MAX_HEADER)];
    let header = codec::encode_header(packet, payload, &mut bytes);
    if cut && payload > 0 {
        let decoded =
            codec::decode_cut(&bytes[..datagram]).map_err(|error| format!("cut, it is refused: {error}"))?;
        return match decoded.map_payload(|_| ()) == packet.clone().map_payload(|_| ()) {
            true => Ok(packet.clone()),
            false => Err(format!("cut, it is not read as it was, from {datagram} bytes")),
        };
    }
    if header + payload > datagram {
        return Err(format!("its datagram of {datagram} bytes has no room for {} bytes", header + payload));
    }
    let decoded = codec::decode(&bytes[..datagram]).map_err(|error| format!("it is refused: {error}"))?;
    let decoded = decoded.map_payload(|bytes| Length(bytes.len() as u32));
    match decoded == *packet {
        true => Ok(decoded),
        false => Err(format!("it is read as {decoded:?}")),
    }
}

impl Process for Observed {
    type Near = Infallible;

    fn new(birth: Birth<'_>) -> Observed {
        Observed::new(birth)
    }
}

impl Transport for Observed {
    type Content = FrameMetadata;
    type Address = <AnyHost as Transport>::Address;

    fn address(&self) -> Self::Address {
        self.host.address()
    }

    fn expect(&mut self, from: &Self::Address, inbox: u32, bytes: u64) {
        if !matches!(self.host, Mixed::Srd(_)) {
            self.inbound.open.insert(inbox);
        }
        self.host.expect(from, inbox, bytes);
    }

    fn start(&mut self, now: Time, order: Order, to: &Self::Address) {
        self.tell(now, |trace, _| trace.flow_started(now, order.flow));
        self.host.start(now, order, to);
        self.settle();
    }

    fn stop(&mut self, now: Time, flow: u32) {
        self.now = now;
        self.host.stop(now, flow);
    }

    fn receive(&mut self, now: Time, arrived: Time, head: &FrameHead, seen: &FrameMetadata) {
        self.tell(now, |trace, process| trace.frame_received(process, now, arrived, head, seen));
        match &seen.content {
            MixedContent::Srd(content) if self.verify => {
                if let Some(content) = self.verified(content, head.trimmed) {
                    self.host.receive(now, arrived, head, &content);
                }
            }
            content => self.host.receive(now, arrived, head, content),
        }
        self.settle();
    }

    fn poll_transmit<R>(
        &mut self,
        now: Time,
        mut sink: impl FnMut(Outgoing<FrameMetadata>) -> R,
    ) -> Option<R> {
        self.now = now;
        let Observed { host, at, trace, streams, .. } = self;
        let result = host.poll_transmit(now, |outgoing| {
            let headers = streams.as_ref().and_then(|streams| {
                let Outgoing { to, process, ports, bytes, .. } = outgoing;
                let from = (at.host, at.process);
                let leaves = Departure { now, from, to: (to, process), ports, bytes };
                outgoing.content.headers(&leaves, &mut streams.borrow_mut())
            });
            let tx = match (&outgoing.content, &trace) {
                (MixedContent::Srd(content), _) => match &content.packet.body {
                    Body::Data(data) => data.tx_count,
                    _ => 0,
                },
                (content, Some((trace, _))) => {
                    let to = Place { host: outgoing.to, process: outgoing.process };
                    content.data().map_or(0, |data| lock(trace).times_sent(to, &data))
                }
                (_, None) => 0,
            };
            let (from, ports, bytes) = (*at, outgoing.ports, outgoing.bytes);
            sink(outgoing.map(|content| FrameMetadata { from, ports, bytes, tx, headers, content }))
        });
        self.settle();
        result
    }

    fn set_paused(&mut self, classes: u8) {
        self.host.set_paused(classes);
    }

    fn senders(&self, now: Time) -> u16 {
        self.host.senders(now)
    }

    fn set_neighbours(&mut self, senders: u16) {
        self.host.set_neighbours(senders);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        self.host.handle_timeout(now);
        self.settle();
    }

    fn next_timeout(&self) -> Time {
        self.host.next_timeout()
    }

    fn poll_report(&mut self) -> Option<Report> {
        let report = self.host.poll_report()?;
        if let Report::Received { inbox } = report
            && self.inbound.open.remove(&inbox)
        {
            self.inbound.full += self.host.delivered(inbox);
        }
        let now = self.now;
        self.tell(now, |trace, process| trace.flow_reported(now, process, report));
        Some(report)
    }

    fn delivered(&mut self, inbox: u32) -> u64 {
        self.host.delivered(inbox)
    }

    fn counts(&self) -> Counts {
        self.host.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_wire::Tag;

    fn bare(datagram: u16) -> SrdContent {
        let (dst_tag, src_tag) = (Tag(7), Tag(9));
        let packet = Packet { src_port: 1, dst_tag, src_tag, hello: None, ack: None, body: Body::None };
        SrdContent { from: 0, ports: (2, 1), datagram, packet }
    }

    #[test]
    fn what_the_wire_format_would_not_carry_is_found() {
        let right = codec::COMMON_LEN as u16;
        assert_eq!(through_the_wire(&bare(right), false), Ok(bare(right).packet));
        assert!(through_the_wire(&bare(right - 1), false).is_err_and(|what| what.contains("no room")));
        assert!(through_the_wire(&bare(right + 1), false).is_err_and(|what| what.contains("refused")));
    }

    #[test]
    fn of_a_packet_that_was_cut_the_headers_are_compared() {
        let data = srd_wire::Data {
            psn: srd_wire::Psn(1),
            stamp: srd_wire::Stamp(2),
            path: srd_wire::PathId(3),
            tx_count: 0,
            ack_request: false,
            more: true,
            msg: srd_wire::MsgId(4),
            len: 4096,
            offset: 0,
            op: srd_wire::Op::ReadResponse { read: 5 },
            payload: Length(4096),
        };
        let packet = Packet { body: Body::Data(data), ..bare(0).packet };
        let header = codec::header_len(&packet) as u16;
        let content = |datagram| SrdContent { datagram, packet: packet.clone(), ..bare(0) };
        assert_eq!(through_the_wire(&content(header), true), Ok(packet.clone()));
        assert!(through_the_wire(&content(header - 1), true).is_err_and(|what| what.contains("refused")));
    }
}
