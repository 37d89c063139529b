//! Cables by name: `leaf0-spine2`, `h3-leaf0`, `leaf0-*`, `agg0.1-core3#1`.

use super::{NodeId, Topology};
use srd_baselines::input::shown;
use std::collections::{BTreeMap, HashMap};

/// A cable that a name means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedCable {
    /// Index into [`Topology::cables`].
    pub cable: u32,
    /// Whether the name gave its ends the other way round: `spine2-leaf0`.
    pub reversed: bool,
}

impl Topology {
    /// The cables that `name` means, never none. A name is two ends joined by `-`, either way round; `*` in an end
    /// stands for anything, `*` alone for every cable. Of a bundle all are meant, or with `#n` the one with number `n`.
    pub fn cables_named(&self, name: &str) -> Result<Vec<NamedCable>, String> {
        let (ends, number) = match name.split_once('#') {
            Some((ends, number)) => {
                let number = number.parse::<u32>().map_err(|_| {
                    format!("{}: behind # stands a cable's number in its bundle, from 0 on", shown(name))
                })?;
                (ends, Some(number))
            }
            None => (name, None),
        };
        let (left, right) = match ends.split_once('-') {
            Some((left, right)) => (left, right),
            None if ends == "*" => ("*", "*"),
            None => {
                return Err(format!(
                    "{} is no cable's name: write both ends, such as `leaf0-spine1`, or `leaf0-*`. {}",
                    shown(name),
                    self.cables_there_are()
                ));
            }
        };
        let found = self.cables_between(left, right, number);
        if found.is_empty() {
            return Err(format!("no cable is called {}. {}", shown(name), self.cables_there_are()));
        }
        Ok(found)
    }

    fn cables_between(&self, left: &str, right: &str, number: Option<u32>) -> Vec<NamedCable> {
        let nodes = self.hosts + self.switches.len() as u32;
        let meant: Vec<[bool; 2]> = (0..nodes)
            .map(|node| {
                let name = self.name(NodeId(node));
                [matches(left, &name), matches(right, &name)]
            })
            .collect();
        let mut in_bundle: HashMap<(NodeId, NodeId), u32> = HashMap::new();
        let mut found = Vec::new();
        for (index, cable) in self.cables.iter().enumerate() {
            let (a, b) = (meant[cable.a.0 as usize], meant[cable.b.0 as usize]);
            let forward = a[0] && b[1];
            if !(forward || b[0] && a[1]) {
                continue;
            }
            let place = in_bundle.entry((cable.a, cable.b)).or_default();
            if number.is_none_or(|number| number == *place) {
                found.push(NamedCable { cable: index as u32, reversed: !forward });
            }
            *place += 1;
        }
        found
    }

    /// `h0-leaf0` or `leaf0-spine2`, lower end first.
    pub fn cable_name(&self, cable: u32) -> String {
        let cable = &self.cables[cable as usize];
        format!("{}-{}", self.name(cable.a), self.name(cable.b))
    }

    /// For messages: the kinds of cables, each with its first and last name.
    fn cables_there_are(&self) -> String {
        let mut kinds: BTreeMap<(String, String), (u32, u32, u32)> = BTreeMap::new();
        let kind = |node: NodeId| match node.0 < self.hosts {
            true => "h".to_string(),
            false => self.name(node).chars().take_while(|c| !c.is_ascii_digit()).collect(),
        };
        for (index, cable) in self.cables.iter().enumerate() {
            let index = index as u32;
            let seen = kinds.entry((kind(cable.a), kind(cable.b))).or_insert((index, index, 0));
            seen.1 = index;
            seen.2 += 1;
        }
        let mut kinds: Vec<_> = kinds.into_values().collect();
        kinds.sort_unstable();
        let kinds: Vec<String> = kinds
            .into_iter()
            .map(|(first, last, n)| match n {
                1 => self.cable_name(first),
                _ => format!("{} to {} ({n})", self.cable_name(first), self.cable_name(last)),
            })
            .collect();
        format!("There are {}", kinds.join(", "))
    }
}

/// Whether `name` fits `pattern`, in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, fits) in [
            ("leaf1", "leaf1", true),
            ("leaf1", "leaf12", false),
            ("leaf*", "leaf12", true),
            ("*", "", true),
            ("agg*.1", "agg12.1", true),
            ("agg*.1", "agg12.11", false),
            ("a*g*1", "agg0.1", true),
            ("*1*1", "1", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
