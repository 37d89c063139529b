//! What the transport decides, as events: for a trace of a run, not for counting (`stats`).
//!
//! One table defines them all: the enum, the names and units under which a trace is written, and the documentation
//! (`docs/EVENTS.md`, which a test compares with this table). An endpoint without a tracer pays one branch per event.

use crate::{PathState, PeerId};
use srd_wire::{MsgId, Nanos, PathId, Psn, Status, Time};

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// A count, a number, an amount.
    Count(u64),
    /// A quantity.
    Real(f64),
    /// Yes or no.
    Flag(bool),
    /// One of a few words.
    Word(&'static str),
    /// Not known, or there is none.
    Missing,
}

/// A field of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldSchema {
    /// Its name in traces.
    pub name: &'static str,
    /// Its unit; empty for numbers and words.
    pub unit: &'static str,
    /// What it says.
    pub doc: &'static str,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventSchema {
    /// Its name in traces.
    pub name: &'static str,
    /// When it happens.
    pub doc: &'static str,
    /// What it tells, in this order.
    pub fields: &'static [FieldSchema],
}

macro_rules! events {
    ($($(#[doc = $doc:literal])+ $name:ident $text:literal {
        $($field:ident: $type:ty, $unit:literal, $what:literal;)*
    })*) => {
        /// A decision of the transport, or what led to one. See the module.
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub enum Event {
            $($(#[doc = $doc])+ $name { $(#[doc = $what] $field: $type,)* },)*
        }

        /// All events: names, units and meanings.
        pub const EVENTS: &[EventSchema] = &[
            $(EventSchema {
                name: $text,
                doc: concat!($($doc),+),
                fields: &[$(FieldSchema { name: stringify!($field), unit: $unit, doc: $what },)*],
            },)*
        ];

        impl Event {
            /// Name, meaning and fields.
            pub fn schema(&self) -> &'static EventSchema {
                let name = match self { $(Event::$name { .. } => $text,)* };
                EVENTS.iter().find(|schema| schema.name == name).expect("the table has every event")
            }

            /// Calls `field` for each field, in the order of the schema.
            pub fn each_field(&self, mut field: impl FnMut(&'static FieldSchema, Value)) {
                let schemas = self.schema().fields.iter();
                match *self {
                    $(Event::$name { $($field,)* } => {
                        let values: &[Value] = &[$(Value::from($field),)*];
                        schemas.zip(values).for_each(|(schema, &value)| field(schema, value));
                    })*
                }
            }
        }
    };
}

events! {
    /// The program has handed over a message.
    MessageQueued "message_queued" {
        token: u64, "", "The program's name for it.";
        bytes: u32, "B", "Its length.";
        queued: u64, "B", "What waits to be sent for the first time towards this peer, this message included.";
    }
    /// The first packet of a message leaves.
    MessageStarted "message_started" {
        message: MsgId, "", "The message's number on the wire.";
        token: Option<u64>, "", "The program's name for it; none for the transport's own.";
        bytes: u32, "B", "Its length.";
    }
    /// A message has its outcome.
    MessageCompleted "message_completed" {
        token: u64, "", "The program's name for it.";
        status: Status, "", "EFA's completion status; 0 is success.";
    }
    /// A burst begins: the selector has chosen its path.
    PathChosen "path_chosen" {
        path: PathId, "", "The path.";
        rule: &'static str, "", "The selector's rule that applied.";
        other: Option<PathId>, "", "The path that lost in the comparison, if there was one.";
        score: f64, "ns", "Score of the path (lower is better); 0 where nothing was compared.";
        other_score: f64, "ns", "Score of the other path.";
        usable: u32, "", "Paths that might have been chosen.";
    }
    /// A packet leaves for the first time.
    PacketSent "packet_sent" {
        psn: Psn, "", "Packet sequence number.";
        path: PathId, "", "Path slot.";
        message: MsgId, "", "Number of the message on the wire.";
        offset: u32, "B", "Where in the message the packet begins.";
        bytes: u16, "B", "Bytes that count as in flight: headers and payload.";
        inflight: u64, "B", "In flight towards this peer, this packet included.";
    }
    /// A lost packet leaves again.
    PacketResent "packet_resent" {
        psn: Psn, "", "Packet sequence number.";
        path: PathId, "", "Path slot it takes now.";
        lost_on: PathId, "", "Path slot it took before.";
        tx_count: u8, "", "How often it was sent before.";
        bytes: u16, "B", "Bytes that count as in flight: headers and payload.";
        inflight: u64, "B", "In flight towards this peer, this packet included.";
    }
    /// A packet counts as lost.
    PacketLost "packet_lost" {
        psn: Psn, "", "Packet sequence number.";
        path: PathId, "", "Path slot of its last transmission.";
        tx_count: u8, "", "How often it had been sent before that one.";
        cause: LossCause, "", "The rule that found it: path_order, reordering, cut, timer, path_down or silence.";
        age: Nanos, "ns", "Time since it left.";
    }
    /// A packet was retransmitted although its first copy arrived.
    Spurious "spurious" {
        psn: Psn, "", "Packet sequence number.";
        path: PathId, "", "Path slot of the copy that arrived.";
    }
    /// From now on losses are judged by another rule.
    LossRule "loss_rule" {
        rule: &'static str, "", "path_order: paths are FIFO; reordering: they are not.";
        window: Nanos, "ns", "How much later than a lost packet another must have been sent and arrived; 0 with path_order.";
    }
    /// An ACK has been settled.
    AckReceived "ack_received" {
        newly_acked: u32, "", "Packets that it newly acknowledges.";
        inflight: u64, "B", "In flight before it.";
        ce_marks: u32, "", "Congestion marks newly reported.";
        senders: u16, "", "Senders that the receiver serves; 0 if it does not say.";
        delivery_rate: f64, "B/ns", "Rate of arrival that it shows; 0 if it shows none.";
        app_limited: bool, "", "That rate may be the program's and not the network's.";
    }
    /// An ACK tells of one path.
    PathAcked "path_acked" {
        path: PathId, "", "Path slot.";
        psn: Psn, "", "Newest packet that arrived on it.";
        tx_count: u8, "", "Which transmission of it arrived; 0 is the first.";
        rtt: Option<Nanos>, "ns", "Round trip without the receiver's hold time.";
        delay: Option<Nanos>, "ns", "What of that exceeds the configured base round trip.";
        early: bool, "", "It is no later than usual: the path is good.";
        marked: bool, "", "It certainly carried a congestion mark.";
    }
    /// The controller has taken an ACK or a loss into account.
    ControllerUpdated "controller_updated" {
        window: u64, "B", "Most that may be in flight.";
        rate: f64, "B/ns", "Pace; infinite if unpaced.";
        phase: &'static str, "", "The controller's own word for what it does.";
        delay: f64, "ns", "Queueing delay that it goes by.";
        target: f64, "ns", "Queueing delay that it aims at.";
        delivery_rate: f64, "B/ns", "Rate of delivery that it believes in; 0 if it has none.";
        transmit_rate: f64, "B/ns", "Rate at which it has sent of late; 0 if it has none.";
    }
    /// A path changes its state.
    PathChanged "path_changed" {
        path: PathId, "", "Path slot.";
        from: PathState, "", "active, suspect, down or probing.";
        to: PathState, "", "The same.";
    }
    /// A path slot is given another source port.
    PathRerolled "path_rerolled" {
        path: PathId, "", "Path slot.";
        old: u16, "", "Index of its source port so far.";
        new: u16, "", "Index from now on.";
    }
    /// So many paths went down at once that the peer or the first hop must be the reason: all are used again.
    PathsUndone "paths_undone" {
        down: u32, "", "Paths that went down within two round trips.";
    }
    /// A path is asked for a sign of life.
    PathProbed "path_probed" {
        path: PathId, "", "Path slot.";
        number: u32, "", "Number of the probe; 0 if it asks about what has arrived only.";
    }
    /// A timer of this peer has expired.
    TimerFired "timer_fired" {
        outstanding: u32, "", "PSNs sent and not acknowledged.";
        inflight: u64, "B", "In flight.";
    }
    /// Nothing sent since has been answered: a packet is retransmitted to draw an answer.
    TailProbe "tail_probe" {
        psn: Psn, "", "Packet sequence number.";
        path: PathId, "", "Path slot that was silent.";
        probes: u32, "", "Such probes in this silence.";
    }
    /// A peer counts as dead.
    PeerDied "peer_died" {
        silence: Nanos, "ns", "How long it has not answered.";
    }
}

/// The rule that found a packet lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossCause {
    /// One sent later on the same path arrived.
    PathOrder,
    /// One sent a reordering window later on any path arrived.
    Reordering,
    /// Its timer expired although others were answered.
    Timer,
    /// Its headers came, without the payload, which a switch had cut off.
    Cut,
    /// Its path went down.
    PathDown,
    /// Nothing was answered.
    Silence,
}

macro_rules! value_from {
    ($($type:ty: $value:ident => $result:expr;)*) => {
        $(impl From<$type> for Value {
            fn from($value: $type) -> Value {
                $result
            }
        })*
    };
}

value_from! {
    u8: n => Value::Count(n as u64);
    u16: n => Value::Count(n as u64);
    u32: n => Value::Count(n as u64);
    u64: n => Value::Count(n);
    f64: x => Value::Real(x);
    bool: flag => Value::Flag(flag);
    &'static str: word => Value::Word(word);
    Psn: psn => Value::Count(psn.0 as u64);
    MsgId: id => Value::Count(id.0 as u64);
    PathId: path => Value::Count(path.0 as u64);
    Nanos: span => Value::Count(span.0);
    Status: status => Value::Count(status as u64);
    PathState: state => Value::Word(state.name());
    LossCause: cause => Value::Word(match cause {
        LossCause::PathOrder => "path_order",
        LossCause::Reordering => "reordering",
        LossCause::Cut => "cut",
        LossCause::Timer => "timer",
        LossCause::PathDown => "path_down",
        LossCause::Silence => "silence",
    });
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Missing, Into::into)
    }
}

/// Takes events as they happen.
pub type Tracer = Box<dyn FnMut(Time, PeerId, &Event) + Send>;

/// Where events go, if anywhere.
#[derive(Default)]
pub(crate) struct Trace(Option<Tracer>);

impl Trace {
    pub(crate) fn set(&mut self, tracer: Option<Tracer>) {
        self.0 = tracer;
    }

    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Tells the tracer, if there is one, what `event` makes.
    #[inline(always)]
    pub(crate) fn emit(&mut self, now: Time, peer: PeerId, event: impl FnOnce() -> Event) {
        if self.0.is_some() {
            self.deliver(now, peer, event);
        }
    }

    /// Out of the way of what is done for every packet.
    #[cold]
    #[inline(never)]
    fn deliver(&mut self, now: Time, peer: PeerId, event: impl FnOnce() -> Event) {
        if let Some(tracer) = &mut self.0 {
            tracer(now, peer, &event());
        }
    }
}

/// The table as a document.
pub fn events_markdown() -> String {
    use std::fmt::Write;
    let mut text = String::from(
        "# Events\n\n\
         What `Endpoint::set_tracer` tells: every decision of the transport, and what led to it. Each event comes with\n\
         the time (ns, the endpoint's clock) and the peer context. `srd sim --trace` writes them between what befalls\n\
         packets, with the time as `t_us` in microseconds and the context as its processes, `src` and `dst`: see\n\
         [OUTPUTS.md](OUTPUTS.md#the-trace); `srd trace --record PID` writes those of a running process in the same form\n\
         ([there](OUTPUTS.md#of-a-running-process)). This file is generated from the table in\n\
         `crates/srd-proto/src/events.rs`; `cargo run -p srd-proto --example events > docs/EVENTS.md` writes it anew.\n",
    );
    for event in EVENTS {
        let _ = write!(
            text,
            "\n## {}\n\n{}\n\n| field | unit | meaning |\n|---|---|---|\n",
            event.name,
            event.doc.trim()
        );
        for field in event.fields {
            let _ = writeln!(text, "| `{}` | {} | {} |", field.name, field.unit, field.doc);
        }
    }
    text
}
