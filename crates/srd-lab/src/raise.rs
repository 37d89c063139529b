//! Makes what a plan says: namespaces, links, addresses, routes, shaping. On two threads, since the kernel takes most of the
//! time and has locks of its own.

use crate::error::{Error, Result};
use crate::iproute::{Program, batch};
use crate::namespace::{self, create, set, within};
use crate::offload::Offloads;
use crate::plan::{Direction, MANAGEMENT_DEVICE, MANAGEMENT_NODE, Plan, Role, Route};
use std::fmt::Write;
use std::thread;

const THREADS: usize = 2;

/// Names of a lab's namespaces: those of the plan's nodes in their order, then the management network.
pub(crate) fn namespaces(lab: &str, plan: &Plan) -> Vec<String> {
    let names = plan.nodes.iter().map(|node| node.name.as_str());
    names.chain([MANAGEMENT_NODE]).map(|name| format!("{lab}-{name}")).collect()
}

/// Makes everything. What exists when it fails, `down` removes.
pub(crate) fn raise(namespaces: &[String], plan: &Plan) -> Result<()> {
    Program::Ip.locate()?;
    Program::Tc.locate()?;
    namespace::prepare()?;
    let node_count = plan.nodes.len();
    on_threads(node_count + 1, |node| {
        let role = plan.nodes.get(node).map(|node| node.role);
        make_namespace(&namespaces[node], role, plan.shape.hash_seed.wrapping_add(node as u32))
    })?;
    let management = &namespaces[node_count];
    within(management, || batch(Program::Ip, management, &devices(namespaces, plan)))?;
    on_threads(node_count + 1, |node| {
        within(&namespaces[node], || match node {
            node if node < node_count => configure(&namespaces[node], plan, node),
            _ => batch(Program::Ip, management, &management_network(plan)),
        })
    })
}

/// Does work of some number on a few threads; the first error ends it.
fn on_threads(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let share = |first: usize| (first..count).step_by(THREADS).try_for_each(&work);
    thread::scope(|scope| {
        let others: Vec<_> = (1..THREADS).map(|first| scope.spawn(move || share(first))).collect();
        let own = thread::scope(|scope| scope.spawn(|| share(0)).join());
        let results = others.into_iter().map(|other| other.join()).chain([own]);
        results.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
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

fn make_router(hash_seed: u32) -> Result<()> {
    set("ipv4/ip_forward", "1")?;
    // Policy 3 with these fields hashes source, destination, protocol and ports as they stand in the packet: 0x37 of
    // FIB_MULTIPATH_HASH_FIELD_*, linux' ip-sysctl. Policy 1 would take the sending socket's random txhash, which lets TCP move to
    // another path when it times out: no switch does that.
    set("ipv4/fib_multipath_hash_policy", "3")?;
    set("ipv4/fib_multipath_hash_fields", "55")?;
    set("ipv4/fib_multipath_hash_seed", &hash_seed.max(1).to_string())?;
    set("ipv4/icmp_ratelimit", "0")?;
    // A leaf takes another spine as soon as a link has no carrier.
    set("ipv4/conf/all/ignore_routes_with_linkdown", "1")?;
    set("ipv4/conf/default/ignore_routes_with_linkdown", "1")
}

/// Commands for ip that make all links, each end where it belongs from the beginning.
fn devices(namespaces: &[String], plan: &Plan) -> String {
    let (mut commands, mtu, management) =
        (String::new(), plan.shape.mtu_bytes, &namespaces[plan.nodes.len()]);
    for (index, link) in plan.links.iter().enumerate() {
        // Locally administered, the same at both ends (see plan.rs); the rest is "srd" and the link's number.
        let mac = format!("02:73:72:64:{:02x}:{:02x}", index >> 8, index & 255);
        let end = |device: &str, node: usize| {
            format!("{device} netns {} mtu {mtu} address {mac}", namespaces[node])
        };
        let lower = end(&link.lower.device, link.lower.node);
        let upper = end(&link.upper.device, link.upper.node);
        let _ = writeln!(commands, "link add {lower} type veth peer name {upper}");
    }
    for (host, namespace) in namespaces[..plan.hosts()].iter().enumerate() {
        let _ = writeln!(
            commands,
            "link add {MANAGEMENT_DEVICE} netns {namespace} type veth peer name host{host} netns {management}"
        );
    }
    commands
}

/// Addresses, routes, offloads and shaping of a node, in its namespace.
fn configure(namespace: &str, plan: &Plan, node: usize) -> Result<()> {
    let offloads = Offloads::open()?;
    let (mut ip, mut tc) = (String::from("link set lo up\n"), String::new());
    for direction in plan.directions() {
        let end = plan.sender(direction);
        if end.node == node {
            let (device, address) = (&end.device, end.address);
            let _ = writeln!(ip, "addr add {address}/31 dev {device}\nlink set {device} arp off up");
            let _ = writeln!(tc, "{}", shaping(plan, direction, plan.links[direction.link].mbps));
            offloads.switch_off(device)?;
        }
    }
    if node < plan.hosts() {
        let address = plan.management_address(node);
        let _ =
            writeln!(ip, "addr add {address}/16 dev {MANAGEMENT_DEVICE}\nlink set {MANAGEMENT_DEVICE} up");
    }
    for route in &plan.nodes[node].routes {
        let _ = writeln!(ip, "{}", route.command());
    }
    batch(Program::Ip, namespace, &ip)?;
    batch(Program::Tc, namespace, &tc).map_err(missing_shaper)
}

fn missing_shaper(error: Error) -> Error {
    match error {
        Error::Refused { command, reason, .. } if reason.contains("qdisc kind is unknown") => {
            Error::MissingFeature { what: command, reason, option: "CONFIG_NET_SCH_TBF" }
        }
        other => other,
    }
}

/// The command for tc that gives a direction its rate and queue: a token bucket whose queue holds a buffer of bytes.
pub(crate) fn shaping(plan: &Plan, direction: Direction, mbps: f64) -> String {
    let end = plan.sender(direction);
    let (device, buffer) = (&end.device, end.buffer_bytes);
    // Two full frames of burst: less cannot send at line rate, more would let bursts through a wire.
    let burst = 2 * plan.shape.frame_bytes();
    format!("qdisc replace dev {device} root tbf rate {:.0} burst {burst} limit {buffer}", mbps * 1e6)
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
