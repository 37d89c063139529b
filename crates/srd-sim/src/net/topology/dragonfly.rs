//! Dragonflies: groups of routers, all of a group cabled to each other, and all groups to each other.

use super::clos::{MAX_CABLES, Tier, Wiring};
use super::{Role, Topology};

/// Groups of routers (Kim, Dally, Scott and Abts, 2008). Router `r` of group `g` is `router<g>.<r>`. Each router has
/// `global_cables` to other groups: number `n` of a group's goes to the group `1 + n mod (groups - 1)` places further on, and
/// is that of router `n / global_cables`. Shortest ways have one cable between groups at most, and one inside each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dragonfly {
    /// Groups.
    pub groups: u32,
    /// Routers of each group.
    pub routers: u32,
    /// Hosts of each router.
    pub hosts_per_router: u32,
    /// Cables of each router to other groups.
    pub global_cables: u32,
    /// Routers with the cables of their hosts, the cables inside groups, and those between them.
    pub tiers: [Tier; 3],
}

impl Dragonfly {
    /// The topology, or what makes it impossible.
    pub fn build(&self) -> Result<Topology, String> {
        let Dragonfly { groups, routers, hosts_per_router, global_cables, tiers } = *self;
        let [own, local, global] = &tiers;
        if groups < 2 {
            return Err(format!(
                "a dragonfly has at least 2 groups, not {groups}: one group is a leaf-spine fabric's work"
            ));
        }
        let mut wiring =
            Wiring::start(&[groups, routers, hosts_per_router], &[groups, routers, global_cables], &tiers)?;
        wiring.at_most(&[groups, routers, routers], MAX_CABLES, "cables inside groups")?;
        let (per_group, others) = (routers * global_cables, groups - 1);
        if !per_group.is_multiple_of(others) {
            return Err(format!(
                "{routers} routers of {global_cables} cables to other groups make {per_group} for each group, which do not \
                 divide among {others} other groups: write `groups`, `routers` and `global_cables` such that routers times \
                 global_cables is a multiple of groups less one"
            ));
        }
        wiring.switches(groups * routers, own, |n| format!("router{}.{}", n / routers, n % routers));
        for (number, switch) in (0..).zip(&mut wiring.topology.switches) {
            switch.role = Role::Router { group: number / routers };
        }
        wiring.hosts(groups * routers * hosts_per_router, hosts_per_router, own);
        for group in 0..groups {
            for lower in 0..routers {
                for upper in lower + 1..routers {
                    wiring.cable(group * routers + lower, group * routers + upper, own, local);
                }
            }
        }
        for group in 0..groups {
            for number in 0..per_group {
                let (round, step) = (number / others, 1 + number % others);
                let other = (group + step) % groups;
                if group < other {
                    // Seen from there, this group is `groups - step` places further on.
                    let back = round * others + others - step;
                    let (near, far) = (number / global_cables, back / global_cables);
                    wiring.cable(group * routers + near, other * routers + far, own, global);
                }
            }
        }
        Ok(wiring.topology)
    }
}
