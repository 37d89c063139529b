//! The lines of a trace that are not decisions of transports: what befalls flows and packets, which a simulation knows and
//! a host does not, and how a recording begins and ends. Decisions stand between them, by the schema of `srd-proto`.

use serde::{Deserialize, Serialize};

/// Version of the format, in the first line.
pub const FORMAT: u32 = 2;

/// A line of a trace. Times are microseconds since the beginning of the run; `flow` is the flow's number; `psn` and
/// `tx` together name one transmission of a packet: the first has `tx` 0.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Which run this is.
    Run {
        /// Version of the format.
        format: u32,
        /// The scenario's name.
        scenario: String,
        /// The seed.
        seed: u64,
        /// Flows of the run.
        flows: u32,
        /// Those of which packets are told.
        traced: u32,
        /// Longest unloaded round trip.
        base_rtt_us: f64,
        /// Whose trace it is, where a process has recorded what its transport decided (`srd trace --record`); none in a
        /// simulator's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<Host>,
    },
    /// A flow begins.
    FlowStarted {
        /// When.
        t_us: f64,
        /// The flow.
        flow: u32,
        /// Sending process.
        src: String,
        /// Receiving process.
        dst: String,
        /// Bytes to be moved; none for a flow without end.
        bytes: Option<u64>,
    },
    /// A packet begins to leave its host.
    FrameSent {
        /// When.
        t_us: f64,
        /// The flow.
        flow: u32,
        /// Sequence number.
        psn: u32,
        /// Which transmission.
        tx: u8,
        /// Path slot.
        path: u16,
        /// UDP source port, of which ECMP makes a path.
        source_port: u16,
        /// The host's port.
        port: String,
        /// Bytes on the wire.
        bytes: u32,
        /// Of those, the flow's own.
        payload: u32,
        /// Since the flow's last packet (or its start) the host's link has stood idle for so long: the transport was
        /// waiting for its window or its pace, or the host was busy.
        idle_us: f64,
        /// And carried other packets for so long.
        others_us: f64,
    },
    /// A packet comes to a switch's port.
    FrameQueued {
        /// When.
        t_us: f64,
        /// The flow.
        flow: u32,
        /// Sequence number.
        psn: u32,
        /// Which transmission.
        tx: u8,
        /// The port.
        port: String,
        /// When it begins to leave.
        leaves_us: f64,
        /// Whether it carries a congestion mark.
        marked: bool,
    },
    /// A packet is lost on its way.
    FrameLost {
        /// When.
        t_us: f64,
        /// The flow.
        flow: u32,
        /// Sequence number.
        psn: u32,
        /// Which transmission.
        tx: u8,
        /// The port: where it did not fit, or where the cable begins that lost it.
        port: String,
        /// `queue_full`, `trimmed`, `cable` or `no_route`.
        why: String,
    },
    /// The receiving host looks at a packet.
    FrameArrived {
        /// When.
        t_us: f64,
        /// The flow.
        flow: u32,
        /// Sequence number.
        psn: u32,
        /// Which transmission.
        tx: u8,
        /// When it came to the network card.
        arrived_us: f64,
    },
    /// The sender learns that a packet has arrived.
    PacketAcked {
        /// When.
        t_us: f64,
        /// The flow.
        flow: u32,
        /// Sequence number.
        psn: u32,
    },
    /// The receiver has every byte of a flow.
    FlowReceived {
        /// When.
        t_us: f64,
        /// The flow.
        flow: u32,
    },
    /// The sender has every byte of a flow acknowledged.
    FlowSent {
        /// When.
        t_us: f64,
        /// The flow.
        flow: u32,
    },
    /// The transport gives a flow up.
    FlowFailed {
        /// When.
        t_us: f64,
        /// The flow.
        flow: u32,
        /// Why.
        why: String,
    },
    /// A call of MPI has returned, in a rank of a real program. All of these stand behind everything else.
    CallReturned {
        /// When.
        t_us: f64,
        /// Its job, where there are several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<u32>,
        /// The rank.
        rank: u32,
        /// Its process, as flows name it.
        process: String,
        /// The thread.
        thread: u16,
        /// The function.
        call: String,
        /// When it began.
        began_us: f64,
        /// The other rank or the root, in the call's communicator.
        peer: Option<u32>,
        /// Bytes of the buffer that it names.
        bytes: u64,
    },
    /// The trace ends before the run does.
    Truncated {
        /// Lines that are missing.
        missing: u64,
    },
    /// A process could not keep up with recording: lines are missing before the next.
    Dropped {
        /// When the next event happened.
        t_us: f64,
        /// Lines that are missing here.
        missing: u64,
    },
    /// A process's recording has ended in order.
    RecordingEnded {
        /// When.
        t_us: f64,
        /// Lines that are missing in all.
        missing: u64,
    },
}

/// The process of a trace that was recorded on a host (`srd-net`, `trace.rs`, writes it).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    /// Its number.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// Where it receives.
    pub address: String,
    /// The host's name.
    pub name: String,
    /// When the recording began, in seconds since 1970: time 0 of the trace.
    pub began_unix_s: f64,
}
