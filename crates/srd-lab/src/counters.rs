//! Counters of every way of every link: what has passed its queue, what waits in it, what it has dropped. Asked of the kernel
//! directly, so that many times a second costs little.

use crate::bpf::Counts;
use crate::error::{Doing, Result};
use crate::namespace::{self, enter};
use crate::plan::{Direction, Plan};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use serde::Serialize;
use std::collections::HashMap;
use std::io;
use std::thread;

/// What a queue has done so far.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Sent into the link.
    pub packets: u64,
    /// Sent into the link, with Ethernet headers.
    pub bytes: u64,
    /// In the queue now.
    pub queue_packets: u32,
    /// In the queue now.
    pub queue_bytes: u32,
    /// Dropped because the queue was full.
    pub drops: u32,
    /// Marked (ECN) because the queue was long.
    pub marked: u64,
    /// Cut to their headers because the queue was full.
    pub trimmed: u64,
}

/// Reads counters of a fabric: a socket in each namespace, kept open.
pub struct Sampler {
    /// What tells the first node's namespace from any other.
    identity: Option<(u64, u64)>,
    sockets: Vec<Socket>,
    /// By node, what its routers' programs count, by index of the device.
    marks: Vec<Option<Counts>>,
    /// For each socket, which direction a device's index stands for.
    devices: Vec<HashMap<i32, usize>>,
    directions: Vec<Direction>,
}

impl Sampler {
    pub(crate) fn open(plan: &Plan, namespaces: &[String], marks: &[Option<u32>]) -> Result<Sampler> {
        let directions: Vec<_> = plan.directions().collect();
        let identity = first_identity(namespaces);
        let nodes = 0..plan.nodes.len();
        let opened: Result<Vec<_>> = thread::scope(|scope| {
            let each = nodes.map(|node| {
                let directions = &directions;
                let open = move || {
                    enter(&namespaces[node])?;
                    open_node(plan, node, directions)
                };
                scope.spawn(open).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            each.collect()
        });
        let (sockets, devices) = opened?.into_iter().unzip();
        let marks = marks.iter().map(|map| map.and_then(Counts::open)).collect();
        Ok(Sampler { identity, sockets, marks, devices, directions })
    }

    /// Whether these are the namespaces that it reads, and not others of the same names.
    pub(crate) fn is_of(&self, namespaces: &[String]) -> bool {
        self.identity.is_some() && self.identity == first_identity(namespaces)
    }

    /// Counters of every direction.
    pub fn sample(&self) -> Result<Vec<(Direction, Counters)>> {
        let mut all: Vec<_> =
            self.directions.iter().map(|direction| (*direction, Counters::default())).collect();
        for (node, (socket, devices)) in self.sockets.iter().zip(&self.devices).enumerate() {
            let marks = self.marks.get(node).and_then(Option::as_ref);
            dump(socket, |message| {
                if message.header.parent != TcHandle::ROOT {
                    return;
                }
                if let Some(index) = devices.get(&message.header.index) {
                    all[*index].1 = counters(message);
                    if let Some(marks) = marks {
                        let device = message.header.index as u32;
                        all[*index].1.marked = marks.get(2 * device);
                        all[*index].1.trimmed = marks.get(2 * device + 1);
                    }
                }
            })
            .doing(|| "cannot read the counters of a namespace".into())?;
        }
        Ok(all)
    }
}

fn first_identity(namespaces: &[String]) -> Option<(u64, u64)> {
    namespace::identity(&namespace::path(namespaces.first()?))
}

/// In the calling thread's namespace.
fn open_node(plan: &Plan, node: usize, directions: &[Direction]) -> Result<(Socket, HashMap<i32, usize>)> {
    let what = || format!("cannot ask for the counters of {}", plan.nodes[node].name);
    let mut socket = Socket::new(NETLINK_ROUTE).doing(what)?;
    socket.bind_auto().doing(what)?;
    socket.connect(&SocketAddr::new(0, 0)).doing(what)?;
    let mut devices = HashMap::new();
    for (index, direction) in directions.iter().enumerate() {
        let end = plan.sender(*direction);
        if end.node == node {
            let device = nix::net::if_::if_nametoindex(end.device.as_str()).doing(what)?;
            devices.insert(device as i32, index);
        }
    }
    Ok((socket, devices))
}

/// Asks for all queueing disciplines of the socket's namespace.
fn dump(socket: &Socket, mut each: impl FnMut(&TcMessage)) -> io::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let ask = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(ask));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    loop {
        let (received, _) = socket.recv_from_full()?;
        let mut rest = &received[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| io::Error::other(error.to_string()))?;
            match &message.payload {
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewQueueDiscipline(message)) => {
                    each(message)
                }
                _ => {}
            }
            let length = message.header.length as usize;
            if length == 0 || length > rest.len() {
                break;
            }
            rest = &rest[length..];
        }
    }
}

fn counters(message: &TcMessage) -> Counters {
    let mut counters = Counters::default();
    for attribute in &message.attributes {
        let TcAttribute::Stats2(parts) = attribute else { continue };
        for part in parts {
            match part {
                TcStats2::Basic(basic) => {
                    counters.packets = u64::from(basic.packets);
                    counters.bytes = basic.bytes;
                }
                TcStats2::Queue(queue) => {
                    counters.queue_packets = queue.qlen;
                    counters.queue_bytes = queue.backlog;
                    counters.drops = queue.drops;
                }
                _ => {}
            }
        }
    }
    counters
}
