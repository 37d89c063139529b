//! What a shape comes to: every namespace, link, address and route. Nothing is made here.
//!
//! All links of the fabric are between two addresses and routed; there is no bridge and no ARP in it. Both ends of a link
//! have the same MAC address, and devices do not resolve (`arp off`): the kernel then sends to the device's own MAC, which
//! is the other end's. So no fault on a link ever shows as a neighbour that cannot be found, which the kernel would report
//! to senders with ICMP and which a silent fault must not do.

use crate::error::{Error, Result};
use crate::shape::Shape;
use std::net::Ipv4Addr;

/// What a namespace stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A machine.
    Host,
    /// The router that hosts are linked to.
    Leaf,
    /// Second tier of three.
    Aggregation,
    /// Top of a leaf-spine.
    Spine,
    /// Top of three tiers.
    Core,
}

/// A namespace of the fabric.
#[derive(Clone, Debug)]
pub struct Node {
    /// As in `host3`, `leaf0`, `agg1.0`.
    pub name: String,
    /// What it stands for.
    pub role: Role,
    /// Routes beside those that addresses bring.
    pub(crate) routes: Vec<Route>,
}

/// Where packets for a prefix go.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// Address and length, or "default".
    pub prefix: String,
    /// Next hops of equal cost; none: packets are dropped without a word.
    pub via: Vec<(Ipv4Addr, String)>,
}

/// One end of a link.
#[derive(Clone, Debug)]
pub struct End {
    /// Index of the node.
    pub node: usize,
    /// Device in the node's namespace: `e0` in a host, in a router the name of the node at the other end.
    pub device: String,
    /// Address of the device.
    pub address: Ipv4Addr,
    /// What its queue holds.
    pub(crate) buffer_bytes: u32,
}

/// A cable.
#[derive(Clone, Debug)]
pub struct Link {
    /// As in `leaf0-spine1`, `host3-leaf0`: lower end first.
    pub name: String,
    /// The end nearer to hosts.
    pub lower: End,
    /// The end nearer to the top.
    pub upper: End,
    /// Rate each way, Mbit/s.
    pub mbps: f64,
}

/// One way of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Direction {
    /// Index of the link.
    pub link: usize,
    /// From the lower end to the upper one.
    pub upward: bool,
}

/// All of a fabric.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The shape it was made of.
    pub shape: Shape,
    /// Hosts first, then leaves, then what is above.
    pub nodes: Vec<Node>,
    /// Hosts' links first.
    pub links: Vec<Link>,
}

/// A host's device on the fabric.
pub const FABRIC_DEVICE: &str = "e0";
/// A host's device on the management network.
pub const MANAGEMENT_DEVICE: &str = "m0";
/// The namespace that holds the management network.
pub(crate) const MANAGEMENT_NODE: &str = "mgmt";

/// 10.32.0.0/16 is the management network.
const MANAGEMENT_BASE: u32 = 0x0a20_0000;
/// 10.64.0.0/10 holds the links between routers, two addresses each.
const ROUTER_LINKS_BASE: u32 = 0x0a40_0000;
/// 10.128.0.0/9 holds the hosts, a /24 for each leaf.
const HOSTS_BASE: u32 = 0x0a80_0000;

fn leaf_prefix(leaf: u32) -> String {
    format!("{}/24", Ipv4Addr::from(HOSTS_BASE + leaf * 256))
}

impl Plan {
    /// Works out a shape.
    pub fn new(shape: &Shape) -> Result<Plan> {
        shape.check()?;
        let mut plan = Plan { shape: shape.clone(), nodes: Vec::new(), links: Vec::new() };
        plan.add_nodes(shape.hosts(), Role::Host, |host| format!("host{host}"));
        plan.add_nodes(shape.leaves, Role::Leaf, |leaf| format!("leaf{leaf}"));
        if shape.pods > 0 {
            let (count, per_pod) = (shape.pods * shape.aggs_per_pod, shape.aggs_per_pod);
            plan.add_nodes(count, Role::Aggregation, |agg| format!("agg{}.{}", agg / per_pod, agg % per_pod));
            plan.add_nodes(shape.cores, Role::Core, |core| format!("core{core}"));
        } else {
            plan.add_nodes(shape.spines(), Role::Spine, |spine| format!("spine{spine}"));
        }
        plan.link_hosts();
        plan.link_leaves();
        if shape.pods > 0 {
            plan.link_cores();
        }
        plan.route();
        Ok(plan)
    }

    fn add_nodes(&mut self, count: u32, role: Role, name: impl Fn(u32) -> String) {
        self.nodes.extend((0..count).map(|index| Node { name: name(index), role, routes: Vec::new() }));
    }

    /// Index of the first node of a role.
    fn first(&self, role: Role) -> usize {
        self.nodes.iter().position(|node| node.role == role).unwrap_or(self.nodes.len())
    }

    fn link_hosts(&mut self) {
        let shape = self.shape.clone();
        for host in 0..shape.hosts() {
            let (leaf, port) = (host / shape.hosts_per_leaf, host % shape.hosts_per_leaf);
            let base = HOSTS_BASE + leaf * 256 + 2 * port;
            let (lower, upper) = (host as usize, self.first(Role::Leaf) + leaf as usize);
            self.add_link(lower, upper, base, shape.host_mbps);
            let link = self.links.last_mut().expect("just added");
            link.lower.device = FABRIC_DEVICE.into();
            // The leaf's port is the even address of the pair: hosts have odd ones.
            std::mem::swap(&mut link.lower.address, &mut link.upper.address);
            link.lower.buffer_bytes = shape.host_buffer();
        }
    }

    fn link_leaves(&mut self) {
        let shape = self.shape.clone();
        let (leaves, above) = (self.first(Role::Leaf), self.first(Role::Leaf) + shape.leaves as usize);
        for leaf in 0..shape.leaves {
            let (first, count) = if shape.pods > 0 {
                (leaf / shape.leaves_per_pod() * shape.aggs_per_pod, shape.aggs_per_pod)
            } else {
                (0, shape.spines())
            };
            for upper in first..first + count {
                self.add_router_link(leaves + leaf as usize, above + upper as usize, shape.uplink_mbps);
            }
        }
    }

    fn link_cores(&mut self) {
        let shape = self.shape.clone();
        let (aggs, cores) = (self.first(Role::Aggregation), self.first(Role::Core));
        for agg in 0..shape.pods * shape.aggs_per_pod {
            let position = agg % shape.aggs_per_pod;
            for core in (position..shape.cores).step_by(shape.aggs_per_pod as usize) {
                self.add_router_link(aggs + agg as usize, cores + core as usize, shape.core_mbps());
            }
        }
    }

    fn add_router_link(&mut self, lower: usize, upper: usize, mbps: f64) {
        let base = ROUTER_LINKS_BASE + 2 * self.links.len() as u32;
        self.add_link(lower, upper, base, mbps);
    }

    fn add_link(&mut self, lower: usize, upper: usize, base: u32, mbps: f64) {
        let end = |node: usize, other: usize, address: u32| End {
            node,
            device: self.nodes[other].name.clone(),
            address: address.into(),
            buffer_bytes: self.shape.buffer_bytes,
        };
        self.links.push(Link {
            name: format!("{}-{}", self.nodes[lower].name, self.nodes[upper].name),
            lower: end(lower, upper, base),
            upper: end(upper, lower, base + 1),
            mbps,
        });
    }

    /// Routes: upwards over all links by the hash, downwards over the one link there is.
    fn route(&mut self) {
        for node in 0..self.nodes.len() {
            let up: Vec<_> = self
                .links
                .iter()
                .filter(|link| link.lower.node == node)
                .map(|link| (link.upper.address, link.lower.device.clone()))
                .collect();
            let mut routes = Vec::new();
            // What has nowhere to go is dropped in silence, as in a switch without a route; the kernel would send ICMP.
            routes.push(Route { prefix: "default".into(), via: up });
            for leaf in 0..self.shape.leaves {
                let via = self.downward(node, leaf);
                let role = self.nodes[node].role;
                let is_own_leaf = role == Role::Leaf && node == self.first(Role::Leaf) + leaf as usize;
                if is_own_leaf {
                    // While a host's link is down its packets must not come back from above.
                    routes.push(Route { prefix: leaf_prefix(leaf), via: Vec::new() });
                } else if let Some(via) = via {
                    // The same: the route by the link is the first one, and goes with the link.
                    routes.push(Route {
                        prefix: format!("{} metric 1000", leaf_prefix(leaf)),
                        via: Vec::new(),
                    });
                    routes.push(Route { prefix: leaf_prefix(leaf), via: vec![via] });
                }
            }
            self.nodes[node].routes = routes;
        }
    }

    /// The link of a node that leads down to a leaf's hosts.
    fn downward(&self, node: usize, leaf: u32) -> Option<(Ipv4Addr, String)> {
        let leaf_node = self.first(Role::Leaf) + leaf as usize;
        let pod = leaf / self.shape.leaves_per_pod().max(1);
        let leads_there = |below: usize| match self.nodes[below].role {
            Role::Leaf => below == leaf_node,
            Role::Aggregation => {
                (below - self.first(Role::Aggregation)) as u32 / self.shape.aggs_per_pod == pod
            }
            _ => false,
        };
        self.links
            .iter()
            .find(|link| link.upper.node == node && leads_there(link.lower.node))
            .map(|link| (link.lower.address, link.upper.device.clone()))
    }

    /// Number of hosts; they are the first nodes.
    pub fn hosts(&self) -> usize {
        self.shape.hosts() as usize
    }

    /// A host's address on the fabric.
    pub fn fabric_address(&self, host: usize) -> Ipv4Addr {
        self.links[host].lower.address
    }

    /// A host's address on the management network.
    pub fn management_address(&self, host: usize) -> Ipv4Addr {
        Ipv4Addr::from(MANAGEMENT_BASE + 10 + host as u32)
    }

    /// Where a direction begins.
    pub fn sender(&self, direction: Direction) -> &End {
        let link = &self.links[direction.link];
        if direction.upward { &link.lower } else { &link.upper }
    }

    /// Where a direction ends.
    pub fn receiver(&self, direction: Direction) -> &End {
        self.sender(Direction { upward: !direction.upward, ..direction })
    }

    /// As in `leaf0>spine1`.
    pub fn direction_name(&self, direction: Direction) -> String {
        let name = |end: &End| self.nodes[end.node].name.clone();
        format!("{}>{}", name(self.sender(direction)), name(self.receiver(direction)))
    }

    /// Every direction of every link.
    pub fn directions(&self) -> impl Iterator<Item = Direction> + use<> {
        (0..self.links.len()).flat_map(|link| [true, false].map(|upward| Direction { link, upward }))
    }

    /// A host by `host3` or `h3`.
    pub fn host(&self, name: &str) -> Result<usize> {
        name.strip_prefix("host")
            .or(name.strip_prefix('h'))
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .filter(|host| *host < self.hosts())
            .ok_or_else(|| Error::NoSuchPart {
                what: "host",
                name: name.into(),
                there: range(&self.nodes[..self.hosts()]),
            })
    }
}

/// `host0 to host15`.
pub(crate) fn range(nodes: &[Node]) -> String {
    match nodes {
        [] => "none".into(),
        [only] => only.name.clone(),
        [first, .., last] => format!("{} to {}", first.name, last.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn three_tiers() -> Plan {
        let shape =
            Shape { pods: 2, leaves: 4, hosts_per_leaf: 2, aggs_per_pod: 2, cores: 4, ..Shape::default() };
        Plan::new(&shape).unwrap()
    }

    #[test]
    fn addresses_are_unique() {
        for plan in [Plan::new(&Shape::default()).unwrap(), three_tiers()] {
            let addresses: Vec<_> =
                plan.links.iter().flat_map(|link| [link.lower.address, link.upper.address]).collect();
            assert_eq!(addresses.iter().collect::<HashSet<_>>().len(), addresses.len());
        }
    }

    #[test]
    fn three_tiers_are_linked_as_a_clos() {
        let plan = three_tiers();
        let names: HashSet<_> = plan.links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!(names.len(), 8 + 4 * 2 + 4 * 2);
        assert!(names.contains("leaf2-agg1.0") && !names.contains("leaf2-agg0.0"));
        assert!(names.contains("agg1.1-core3") && !names.contains("agg1.1-core2"));
    }

    #[test]
    fn a_core_reaches_each_leaf_over_one_link() {
        let plan = three_tiers();
        for core in plan.nodes.iter().filter(|node| node.role == Role::Core) {
            assert_eq!(core.routes.iter().filter(|route| route.via.len() == 1).count(), 4, "{}", core.name);
        }
    }

    #[test]
    fn what_does_not_exist_is_refused_with_what_does() {
        let plan = Plan::new(&Shape::default()).unwrap();
        assert_eq!(plan.host("h3").unwrap(), 3);
        let error = plan.host("host16").unwrap_err().to_string();
        assert!(error.contains("host0 to host15"), "{error}");
    }
}
