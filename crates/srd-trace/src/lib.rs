//! Why was this message late? Reads a trace and tells, for each of some flows, where its time went: before its first
//! packet, between packets, in queues, being retransmitted, on the way.
//!
//! `event` is what a line says, for those who write traces, too (docs/OUTPUTS.md); decisions of transports have the schema of
//! `srd-proto` (docs/EVENTS.md). `lines` reads a file line by line, `listing` prints those that somebody wants to see. `reading`
//! makes flows, packets and their copies of them, and `contexts` of what transports have decided; `flow_report` works out what
//! happened to a flow, `cause` what its transport had to do with it, `calls` which of a
//! program's calls of MPI were slow, and for which message, `report` is the whole answer, `text` puts it into words. The
//! parts of a flow's time add up to the whole: they follow the packet that was acknowledged last, which is the one that it was
//! finished with.
//!
//! Traces that a process has recorded have decisions alone. `host` tells of their messages as much as a host can know, with
//! `send_stalls` for what the window and the pace had to do with it, and `host_text` puts that into words.
#![forbid(unsafe_code)]

mod calls;
mod cause;
mod contexts;
mod event;
mod flow_report;
mod host;
mod host_text;
mod lines;
mod listing;
mod reading;
mod report;
mod send_stalls;
mod text;
mod words;

pub use calls::{CallReport, Link};
pub use cause::HeldBack;
pub use event::{Event, FORMAT, Host};
pub use flow_report::{
    Compared, FlowReport, LastPacket, Loss, Moment, Part, PathUse, PortWaits, Resent, Sending, Verdict,
};
pub use host::{ContextReport, HostReport, MessagePart, MessageStory, Spent};
pub use lines::event_names;
pub use listing::{Form, Wanted, list};
pub use reading::TraceFile;
pub use report::{Question, Report};
