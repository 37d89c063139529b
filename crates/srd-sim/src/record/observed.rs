//! SRD with somebody looking over its shoulder: a transport that does what SRD does, shows a trace what it does, and if
//! asked to puts every packet that it receives through the wire format.

use super::trace::Trace;
use crate::frame::FrameHead;
use crate::process::Birth;
use crate::srd_card::SrdContent;
use crate::srd_transport::{Srd, SrdAddress};
use crate::transport::{Counts, Order, Outgoing, Report, Transport};
use srd_device::Length;
use srd_proto::Payload;
use srd_wire::{Body, Packet, Time, codec};
use std::sync::{Arc, Mutex, MutexGuard};

/// See the module.
pub struct Observed {
    srd: Srd,
    /// The last moment that it was told.
    now: Time,
    /// Where its doings are written, and its number there.
    trace: Option<(Arc<Mutex<Trace>>, u32)>,
    verify: bool,
    /// First packet that was not the same behind the wire format.
    defect: Option<String>,
}

impl Observed {
    /// A process at its beginning, whom nobody watches yet.
    pub fn new(birth: Birth<'_>) -> Observed {
        Observed { srd: Srd::new(birth), now: Time(0), trace: None, verify: false, defect: None }
    }

    /// The transport.
    pub fn srd(&self) -> &Srd {
        &self.srd
    }

    /// From now on every received packet is encoded, decoded, compared, and only then received.
    pub fn verify(&mut self) {
        self.verify = true;
    }

    /// What verification has found.
    pub fn defect(&self) -> Option<&str> {
        self.defect.as_deref()
    }

    /// From now on `trace` is told what this process, number `process`, does.
    pub(super) fn trace_to(&mut self, trace: Arc<Mutex<Trace>>, process: u32) {
        if lock(&trace).decides(process) {
            let to = trace.clone();
            self.srd.set_tracer(Some(Box::new(move |now, peer, event| {
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
        if let Some((trace, process)) = &self.trace {
            lock(trace).settle(*process, &self.srd);
        }
    }
}

fn lock(trace: &Mutex<Trace>) -> MutexGuard<'_, Trace> {
    trace.lock().expect("nobody panics while writing a trace")
}

/// A packet as its receiver would read it, and whether that is what was sent.
fn through_the_wire(content: &SrdContent) -> Result<Packet<Length>, String> {
    let packet = &content.packet;
    let payload = match &packet.body {
        Body::Data(data) => data.payload.len(),
        _ => 0,
    };
    let datagram = content.datagram as usize;
    let mut bytes = vec![0; datagram.max(codec::MAX_HEADER)];
    let header = codec::encode_header(packet, payload, &mut bytes);
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

impl Transport for Observed {
    type Content = SrdContent;
    type Address = SrdAddress;

    fn address(&self) -> SrdAddress {
        self.srd.address()
    }

    fn expect(&mut self, from: &SrdAddress, inbox: u32, bytes: u64) {
        self.srd.expect(from, inbox, bytes);
    }

    fn start(&mut self, now: Time, order: Order, to: &SrdAddress) {
        self.tell(now, |trace, _| trace.flow_started(now, order.flow));
        self.srd.start(now, order, to);
        self.settle();
    }

    fn stop(&mut self, now: Time, flow: u32) {
        self.now = now;
        self.srd.stop(now, flow);
    }

    fn receive(&mut self, now: Time, arrived: Time, head: &FrameHead, content: &SrdContent) {
        self.tell(now, |trace, process| trace.frame_received(process, now, arrived, content));
        let decoded = if self.verify { Some(through_the_wire(content)) } else { None };
        match decoded {
            None => self.srd.receive(now, arrived, head, content),
            Some(Ok(packet)) => {
                self.srd.receive(now, arrived, head, &SrdContent { packet, ..content.clone() });
            }
            Some(Err(what)) => {
                let packet = &content.packet;
                self.defect.get_or_insert_with(|| format!("{packet:?} does not survive: {what}"));
            }
        }
        self.settle();
    }

    fn poll_transmit<R>(&mut self, now: Time, sink: impl FnMut(Outgoing<SrdContent>) -> R) -> Option<R> {
        self.now = now;
        let result = self.srd.poll_transmit(now, sink);
        self.settle();
        result
    }

    fn set_paused(&mut self, classes: u8) {
        self.srd.set_paused(classes);
    }

    fn senders(&self, now: Time) -> u16 {
        self.srd.senders(now)
    }

    fn set_neighbours(&mut self, senders: u16) {
        self.srd.set_neighbours(senders);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        self.srd.handle_timeout(now);
        self.settle();
    }

    fn next_timeout(&self) -> Time {
        self.srd.next_timeout()
    }

    fn poll_report(&mut self) -> Option<Report> {
        let report = self.srd.poll_report()?;
        let now = self.now;
        self.tell(now, |trace, process| trace.flow_reported(now, process, report));
        Some(report)
    }

    fn delivered(&mut self, inbox: u32) -> u64 {
        self.srd.delivered(inbox)
    }

    fn counts(&self) -> Counts {
        self.srd.counts()
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
        assert_eq!(through_the_wire(&bare(right)), Ok(bare(right).packet));
        assert!(through_the_wire(&bare(right - 1)).is_err_and(|what| what.contains("no room")));
        assert!(through_the_wire(&bare(right + 1)).is_err_and(|what| what.contains("refused")));
    }
}
