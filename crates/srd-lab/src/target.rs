//! Names of links, ways and routers, as faults give them.
//!
//! - `leaf0-spine1`: a link, both ways; `spine1-leaf0` is the same.
//! - `leaf0>spine1`: that way of it.
//! - `spine1`, `host3`: all links of it, both ways.
//! - `*` at an end stands for anything: `leaf0-*`, `*>host0`.

use crate::error::{Error, Result};
use crate::plan::{Direction, Plan, Role, range};

/// Directions that a name stands for, at least one.
pub(crate) fn directions(plan: &Plan, name: &str) -> Result<Vec<Direction>> {
    let found: Vec<_> = plan.directions().filter(|direction| matches(plan, *direction, name)).collect();
    if found.is_empty() {
        return Err(Error::NoSuchPart { what: "link or router", name: name.into(), there: overview(plan) });
    }
    Ok(found)
}

/// Links that a name stands for, at least one; a single way of a link is not enough.
pub(crate) fn links(plan: &Plan, name: &str) -> Result<Vec<usize>> {
    if name.contains('>') {
        return Err(Error::BadFault(format!(
            "{name} is one way of a link, but a link goes down both ways; name it {}, or cut one way with blackhole",
            name.replace('>', "-")
        )));
    }
    let mut links: Vec<_> = directions(plan, name)?.into_iter().map(|direction| direction.link).collect();
    links.dedup();
    Ok(links)
}

fn matches(plan: &Plan, direction: Direction, name: &str) -> bool {
    let from = &plan.nodes[plan.sender(direction).node].name;
    let to = &plan.nodes[plan.receiver(direction).node].name;
    if let Some((first, second)) = name.split_once('>') {
        is(from, first) && is(to, second)
    } else if let Some((first, second)) = name.split_once('-') {
        (is(from, first) && is(to, second)) || (is(to, first) && is(from, second))
    } else {
        is(from, name) || is(to, name)
    }
}

/// Whether a node has a name: its own, `h3` for `host3`, or with `*` for any letters.
fn is(node: &str, name: &str) -> bool {
    let name = name.trim();
    if let Some((head, tail)) = name.split_once('*') {
        return node.len() >= head.len() + tail.len() && node.starts_with(head) && node.ends_with(tail);
    }
    node == name
        || (node.strip_prefix("host").is_some() && node.strip_prefix("host") == name.strip_prefix('h'))
}

/// What there is, in few words.
fn overview(plan: &Plan) -> String {
    let of = |role: Role| {
        let nodes: Vec<_> = plan.nodes.iter().filter(|node| node.role == role).cloned().collect();
        (!nodes.is_empty()).then(|| range(&nodes))
    };
    let roles = [Role::Host, Role::Leaf, Role::Aggregation, Role::Spine, Role::Core];
    let nodes: Vec<_> = roles.into_iter().filter_map(of).collect();
    let links: Vec<_> = plan.links[plan.hosts()..].iter().map(|link| link.name.as_str()).collect();
    // All of a small fabric, the first and the last of a large one.
    let links = match &links[..] {
        few if few.len() <= 32 => few.join(", "),
        many => format!("{} to {} ({} links)", many[0], many[many.len() - 1], many.len()),
    };
    format!("{}; between routers {links}; one way of a link is a>b", nodes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    fn count(name: &str) -> usize {
        directions(&Plan::new(&Shape::default()).unwrap(), name).map_or(0, |found| found.len())
    }

    #[test]
    fn names_stand_for_links_ways_and_routers() {
        assert_eq!(count("leaf0-spine1"), 2);
        assert_eq!(count("spine1-leaf0"), 2);
        assert_eq!(count("leaf0>spine1"), 1);
        assert_eq!(count("spine1"), 8);
        assert_eq!(count("h3"), 2);
        assert_eq!(count("host1"), 2, "not host10 as well");
        assert_eq!(count("leaf0-spine*"), 8);
        assert_eq!(count("*>host0"), 1);
        assert_eq!(count("*"), 64);
    }

    #[test]
    fn what_does_not_exist_is_refused_with_what_does() {
        let plan = Plan::new(&Shape::default()).unwrap();
        for name in ["leaf0-spine4", "leaf0-leaf1", "leaf9", "", "spine1>", "host0-host1", "h"] {
            let error = directions(&plan, name).unwrap_err().to_string();
            assert!(error.contains("leaf0-spine0") && error.contains("host0 to host15"), "{name}: {error}");
        }
        assert!(links(&plan, "leaf0>spine1").is_err());
    }
}
