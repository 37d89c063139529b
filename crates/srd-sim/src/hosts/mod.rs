//! Hosts: processes that carry what is to be sent over the network.
//!
//! A process (`process`) is a transport of one kind: `srd_transport` moves flows over `srd-device`, `srd_messaging` runs a program
//! over `srd-msg` and `srd-device` (what both have in common is in `srd_nic`); `any_host` is either SRD's or a baseline's;
//! `rank_process` is a real process of a program of the user's, which sits in a `rank_seat`; `rank_host` is one of those, or one that carries flows beside them.
//! Programs over transports that move flows are `flow_messaging`, real processes over them `rank_flows`, and those of another simulator `matched_messages`; `message_flows` is what they have in common. `intra_node` is shared memory between programs of a host,
//! `foreign_flows` counts the connections that a host's card sees beside SRD's, `settings` is what all of that is told.

mod any_host;
mod flow_messaging;
mod foreign_flows;
mod intra_node;
mod matched_messages;
mod message_flows;
mod process;
mod rank_flows;
mod rank_host;
mod rank_process;
mod rank_seat;
mod settings;
mod srd_messaging;
mod srd_nic;
mod srd_transport;

pub use any_host::AnyHost;
pub(crate) use flow_messaging::Messages;
pub(crate) use foreign_flows::ForeignFlows;
pub(crate) use matched_messages::MatchedMessages;
pub use matched_messages::{Ending, Envelope, Failure};
pub(crate) use message_flows::Programs;
pub(crate) use process::{Birth, Process};
pub(crate) use rank_flows::RankFlows;
pub use rank_host::{RankContent, RankHost};
pub use rank_process::Datagram;
pub(crate) use rank_seat::{Crowd, RankSeat};
pub use settings::OnNode;
pub(crate) use settings::{HostSettings, MessageProtocol, Settings, SrdSettings, TransportSettings};
pub(crate) use srd_messaging::MsgProcess;
pub(crate) use srd_nic::covers;
pub(crate) use srd_nic::{FIRST_SOURCE_PORT, gid, host_of};
pub use srd_nic::{SrdContent, wire_cost};
pub use srd_transport::Srd;
