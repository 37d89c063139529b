//! Makes what a plan says: namespaces, links, addresses, routes, shaping. On two threads, since the kernel takes most of the
//! time and has locks of its own.

use crate::bpf::Loaded;
use crate::error::{Error, Result};
use crate::iproute::{Program, batch};
use crate::namespace::{self, create, set, within};
use crate::offload::Offloads;
use crate::plan::{End, MANAGEMENT_DEVICE, MANAGEMENT_NODE, Plan, Role, Route};
use crate::shaping::{class_queues, queues, shaping};
use std::fmt::Write;
use std::path::Path;
use std::thread;

const THREADS: usize = 2;
/// Above what the kernel has given to lo.
const FIRST_INDEX: usize = 10;
/// Behind those of all links, so that a host's first device is the fabric's.
const MANAGEMENT_INDEX: usize = 9000;

/// Names of a lab's namespaces: those of the plan's nodes in their order, then the management network.
pub(crate) fn namespaces(lab: &str, plan: &Plan) -> Vec<String> {
    let names = plan.nodes.iter().map(|node| node.name.as_str());
    names.chain([MANAGEMENT_NODE]).map(|name| format!("{lab}-{name}")).collect()
}

/// Makes everything. What exists when it fails, `down` removes. The answer is the kernel's numbers of the maps in which routers
/// count what they mark and cut, by node.
pub(crate) fn set_up(namespaces: &[String], plan: &Plan) -> Result<Vec<Option<u32>>> {
    Program::Ip.locate()?;
    Program::Tc.locate()?;
    namespace::prepare()?;
    let node_count = plan.nodes.len();
    on_threads(node_count + 1, &|node: usize| {
        let role = plan.nodes.get(node).map(|node| node.role);
        make_namespace(&namespaces[node], role, plan.shape.hash_seed.wrapping_add(node as u32))
    })?;
    let management = &namespaces[node_count];
    within(management, || batch(Program::Ip, management, &devices(namespaces, plan)))?;
    // Routes come when all links are up: a next hop without carrier would count as dead until the kernel tells of the carrier.
    on_threads(node_count - plan.hosts(), &|router: usize| {
        let node = plan.hosts() + router;
        within(&namespaces[node], || batch(Program::Ip, &namespaces[node], &upper_ends(plan, node)))
    })?;
    let counters = on_threads(node_count + 1, &|node: usize| {
        within(&namespaces[node], || match node {
            node if node < node_count => configure(&namespaces[node], plan, node),
            _ => batch(Program::Ip, management, &management_network(plan)).map(|()| None),
        })
    })?;
    Ok(counters)
}

/// Does work of some number on a few threads, none of them this one; the first error ends it.
fn on_threads<T: Send>(count: usize, work: &(impl Fn(usize) -> Result<T> + Sync)) -> Result<Vec<T>> {
    let share = |first: usize| -> Result<Vec<_>> {
        (first..count).step_by(THREADS).map(|index| Ok((index, work(index)?))).collect()
    };
    let mut done = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || share(first))).collect();
        let results = threads.into_iter().map(|thread| thread.join());
        let all: Result<Vec<_>> =
            results.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect();
        all
    })?
    .into_iter()
    .flatten()
    .collect::<Vec<_>>();
    done.sort_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, value)| value).collect())
}

/// Makes a namespace, with all that does not depend on its devices.
fn make_namespace(name: &str, role: Option<Role>, hash_seed: u32) -> Result<()> {
    create(name)?;
    // IPv6's own packets would be counted among those of programs.
    set("ipv6/conf/default/disable_ipv6", "1")?;
    for scope in ["all", "default"] {
        set(&format!("ipv4/conf/{scope}/rp_filter"), "0")?;
        set(&format!("ipv4/conf/{scope}/send_redirects"), "0")?;
    }
    match role {
        Some(Role::Host) => set("ipv4/tcp_no_metrics_save", "1"),
        Some(_) => make_router(hash_seed),
        None => Ok(()),
    }
}

/// Whether routers can be given a seed: before Linux 6.11 the kernel draws one for all namespaces when the machine starts.
pub(crate) fn has_hash_seed() -> bool {
    Path::new("/proc/sys/net/ipv4/fib_multipath_hash_seed").exists()
}

fn make_router(hash_seed: u32) -> Result<()> {
    set("ipv4/ip_forward", "1")?;
    // Policy 3 with these fields hashes source, destination, protocol and ports as they stand in the packet: 0x37 of
    // FIB_MULTIPATH_HASH_FIELD_*, linux' ip-sysctl. Policy 1 would take the sending socket's random txhash, which lets TCP move to
    // another path when it times out: no switch does that (docs/design/host-datapath.md, "Routers that are Linux").
    set("ipv4/fib_multipath_hash_policy", "3")?;
    set("ipv4/fib_multipath_hash_fields", "55")?;
    // 0 would have the kernel draw one.
    if has_hash_seed() {
        set("ipv4/fib_multipath_hash_seed", &hash_seed.max(1).to_string())?;
    }
    set("ipv4/icmp_ratelimit", "0")?;
    // A leaf takes another spine as soon as a link has no carrier.
    set("ipv4/conf/all/ignore_routes_with_linkdown", "1")?;
    set("ipv4/conf/default/ignore_routes_with_linkdown", "1")
}

/// Commands for ip that make all links, each end where it belongs from the beginning.
///
/// Indexes of devices are given, because those that the kernel chooses may be the same at both ends of a link. Then it takes the
/// device for a plain one, and tells of its carrier up to a second late (linux, linkwatch_urgent_event).
fn devices(namespaces: &[String], plan: &Plan) -> String {
    let (mut commands, mtu, management) =
        (String::new(), plan.shape.mtu_bytes, &namespaces[plan.nodes.len()]);
    for (number, link) in plan.links.iter().enumerate() {
        // Locally administered, the same at both ends (see plan.rs); the rest is "srd" and the link's number.
        let mac = format!("02:73:72:64:{:02x}:{:02x}", number >> 8, number & 255);
        let index = FIRST_INDEX + 2 * number;
        let end = |end: &End, index: usize| {
            let (device, namespace) = (&end.device, &namespaces[end.node]);
            format!("{device} index {index} netns {namespace} mtu {mtu} address {mac} arp off")
        };
        let (lower, upper) = (end(&link.lower, index), end(&link.upper, index + 1));
        let _ = writeln!(commands, "link add {lower} up type veth peer name {upper}");
    }
    for (host, namespace) in namespaces[..plan.hosts()].iter().enumerate() {
        let (own, other) = (MANAGEMENT_INDEX, FIRST_INDEX + host);
        let _ = writeln!(
            commands,
            "link add {MANAGEMENT_DEVICE} index {own} netns {namespace} up \
             type veth peer name host{host} index {other} netns {management}"
        );
    }
    commands
}

/// Commands for ip that bring up those devices of a node which are upper ends of links; the kernel brings up only one end of a
/// link while it makes it.
fn upper_ends(plan: &Plan, node: usize) -> String {
    let ends = plan.links.iter().map(|link| &link.upper).filter(|end| end.node == node);
    ends.map(|end| format!("link set {} up\n", end.device)).collect()
}

/// Addresses, routes, offloads and shaping of a node, in its namespace.
fn configure(namespace: &str, plan: &Plan, node: usize) -> Result<Option<u32>> {
    let offloads = Offloads::open()?;
    let (mut ip, mut tc) = (String::from("link set lo up\n"), String::new());
    for direction in plan.directions() {
        let end = plan.sender(direction);
        if end.node == node {
            let (device, address) = (&end.device, end.address);
            let _ = writeln!(ip, "addr add {address}/31 dev {device}");
            tc += &queues(plan, direction);
            tc += &shaping(plan, direction, plan.links[direction.link].mbps);
            tc += &class_queues(plan, direction);
            offloads.switch_off(device)?;
        }
    }
    if node < plan.hosts() {
        let address = plan.management_address(node);
        let _ = writeln!(ip, "addr add {address}/16 dev {MANAGEMENT_DEVICE}");
    }
    for route in &plan.nodes[node].routes {
        let _ = writeln!(ip, "{}", route.command());
    }
    batch(Program::Ip, namespace, &ip)?;
    batch(Program::Tc, namespace, &tc).map_err(missing_shaper)?;
    let (marks, cuts) = (plan.shape.ecn_bytes, plan.shape.trim.then_some(plan.shape.buffer_bytes));
    if node < plan.hosts() || (marks.is_none() && cuts.is_none()) {
        return Ok(None);
    }
    let mut program = Loaded::queue(marks, cuts)?;
    for end in plan.directions().map(|direction| plan.sender(direction)).filter(|end| end.node == node) {
        program.attach(namespace, &end.device)?;
    }
    Ok(program.counter())
}

fn missing_shaper(error: Error) -> Error {
    match error {
        Error::Refused { command, reason, .. } if reason.contains("qdisc kind is unknown") => {
            Error::MissingFeature {
                what: command,
                reason,
                option: "CONFIG_NET_SCH_TBF, and CONFIG_NET_SCH_HTB for routers that cut packets",
            }
        }
        other => other,
    }
}

fn management_network(plan: &Plan) -> String {
    let mut commands = String::from("link add br0 type bridge\nlink set br0 up\n");
    for host in 0..plan.hosts() {
        let _ = writeln!(commands, "link set host{host} master br0 up");
    }
    commands
}

impl Route {
    /// The command for ip that sets it, whether it is there or not.
    pub(crate) fn command(&self) -> String {
        match &self.via[..] {
            [] => format!("route replace blackhole {}", self.prefix),
            [(gateway, device)] => format!("route replace {} via {gateway} dev {device}", self.prefix),
            several => {
                several.iter().fold(format!("route replace {}", self.prefix), |line, (gateway, device)| {
                    format!("{line} nexthop via {gateway} dev {device}")
                })
            }
        }
    }
}
