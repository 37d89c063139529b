//! The machine's topology as hwloc's XML (version 2.0 of the format), with processors, memory and PCI devices as `/sys` tells of them.
//!
//! hwloc finds PCI devices by itself where it was built with that. The one in the MPICH wheels was not, and MPICH before 5.0.2 ends when its
//! hwloc does not know a card's address (mpir_hwtopo.c, `io_device`). Programs of a machine are given this file.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Where the file is.
pub const FILE: &str = "/sys/devices/virtual/opensrd/hwloc.xml";

/// What hwloc reads before it looks for itself; who has set one of them has a topology of his own.
const OWN: [&str; 5] =
    ["HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT", "HWLOC_COMPONENTS", "HWLOC_DUMPED_HWDATA_DIR"];

/// What leads hwloc to the file, and lets it bind, and lets the system say which processors this process may use.
pub fn variables() -> Vec<(&'static str, &'static str)> {
    if OWN.iter().any(|name| std::env::var_os(name).is_some()) || !Path::new(FILE).exists() {
        return Vec::new();
    }
    vec![("HWLOC_XMLFILE", FILE), ("HWLOC_THISSYSTEM", "1"), ("HWLOC_THISSYSTEM_ALLOWED_RESOURCES", "1")]
}

/// Devices of the system that belong to a card: directory, hwloc's number of their type, and what it tells of each by which file.
/// (PMIx asks for the GUID, or the address.)
const DEVICES: [(&str, u32, Told); 2] = [
    (
        "infiniband",
        3,
        &[
            ("NodeGUID", "node_guid"),
            ("SysImageGUID", "sys_image_guid"),
            ("Port1GID0", "ports/1/gids/0"),
            ("Port1LMC", "ports/1/lid_mask_count"),
        ],
    ),
    ("net", 2, &[("Address", "address")]),
];

/// Names and files.
type Told = &'static [(&'static str, &'static str)];

type Set = BTreeSet<usize>;

/// The kinds of objects that have processors, outer ones first where they have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Group,
    Package,
    L3Cache,
    L2Cache,
    L1Cache,
    Core,
    Pu,
}

/// An object, its number, its size if it is a cache, its processors.
type Object = (Kind, usize, u64, Set);

/// A memory node: number, bytes, processors.
struct Node {
    number: usize,
    bytes: u64,
    processors: Set,
}

struct Writer {
    text: String,
    objects: usize,
    nodes: Vec<Node>,
    pci: String,
}

/// Writes the topology of the system below `sys`. `None`: that does not tell enough of itself.
pub fn xml(sys: &Path) -> Option<String> {
    let read = |path: &str| fs::read_to_string(sys.join(path)).ok().map(|text| text.trim().to_owned());
    let all = list(&read("devices/system/cpu/online")?)?;
    let mut objects: Vec<Object> = Vec::new();
    for &cpu in &all {
        let of = |file: &str| read(&format!("devices/system/cpu/cpu{cpu}/{file}"));
        let siblings = |file: &str| of(file).and_then(|text| list(&text)).unwrap_or_else(|| Set::from([cpu]));
        let number = |file: &str| of(file).and_then(|text| text.parse().ok()).unwrap_or(0);
        objects.push((Kind::Pu, cpu, 0, Set::from([cpu])));
        objects.push((Kind::Core, number("topology/core_id"), 0, siblings("topology/thread_siblings_list")));
        objects.push((
            Kind::Package,
            number("topology/physical_package_id"),
            0,
            siblings("topology/core_siblings_list"),
        ));
        for index in 0..8 {
            let Some(level) = of(&format!("cache/index{index}/level")) else { break };
            let kind = match (level.as_str(), of(&format!("cache/index{index}/type")).as_deref()) {
                ("1", Some("Data" | "Unified")) => Kind::L1Cache,
                ("2", Some("Data" | "Unified")) => Kind::L2Cache,
                ("3", Some("Data" | "Unified")) => Kind::L3Cache,
                _ => continue,
            };
            let size = of(&format!("cache/index{index}/size")).and_then(|text| bytes(&text)).unwrap_or(0);
            objects.push((kind, 0, size, siblings(&format!("cache/index{index}/shared_cpu_list"))));
        }
    }
    let nodes = nodes(&read, &all);
    let is_known =
        |node: &Node| node.processors == all || objects.iter().any(|object| object.3 == node.processors);
    let groups: Vec<Object> = nodes
        .iter()
        .filter(|node| !node.processors.is_empty() && !is_known(node))
        .map(|node| (Kind::Group, node.number, 0, node.processors.clone()))
        .collect();
    objects.extend(groups);
    // What is offline belongs to nothing.
    objects.iter_mut().for_each(|object| object.3.retain(|cpu| all.contains(cpu)));
    objects.sort_by(|a, b| (b.3.len(), a.0, &a.3).cmp(&(a.3.len(), b.0, &b.3)));
    objects.dedup_by(|a, b| (a.0, &a.3) == (b.0, &b.3));
    let mut writer = Writer { text: String::new(), objects: 1, nodes, pci: String::new() };
    writer.pci(sys);
    writer.text += "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n";
    let sets = writer.sets(&all);
    let allowed = sets.replace("complete_", "allowed_");
    let allowed: Vec<&str> = allowed.split(' ').filter(|word| word.starts_with("allowed_")).collect();
    let _ = writeln!(
        writer.text,
        "<object type=\"Machine\" os_index=\"0\" {sets} {} gp_index=\"1\">",
        allowed.join(" ")
    );
    writer.children(&all, None, &objects);
    writer.text += &std::mem::take(&mut writer.pci);
    writer.text += "</object>\n</topology>\n";
    Some(writer.text)
}

fn nodes(read: &dyn Fn(&str) -> Option<String>, all: &Set) -> Vec<Node> {
    let numbers = read("devices/system/node/online").and_then(|text| list(&text)).unwrap_or_default();
    let node = |number: usize| {
        let of = |file: &str| read(&format!("devices/system/node/node{number}/{file}"));
        let memory = of("meminfo").and_then(|text| {
            let line = text.lines().find(|line| line.contains("MemTotal:"))?.to_owned();
            line.split_whitespace().rev().nth(1)?.parse::<u64>().ok()
        });
        let mut processors = of("cpulist").and_then(|text| list(&text)).unwrap_or_default();
        processors.retain(|cpu| all.contains(cpu));
        Node { number, bytes: memory.unwrap_or(0) << 10, processors }
    };
    let mut nodes: Vec<Node> = numbers.into_iter().map(node).collect();
    if nodes.is_empty() {
        nodes.push(Node { number: 0, bytes: 0, processors: all.clone() });
    }
    nodes
}

impl Writer {
    fn number(&mut self) -> usize {
        self.objects += 1;
        self.objects
    }

    /// Processors and memory nodes of an object, twice: those that are there, and all.
    fn sets(&self, processors: &Set) -> String {
        let near = |node: &&Node| node.processors.is_empty() || !node.processors.is_disjoint(processors);
        let nodes: Set = self.nodes.iter().filter(near).map(|node| node.number).collect();
        let (cpus, nodes) = (bitmap(processors), bitmap(&nodes));
        format!(
            "cpuset=\"{cpus}\" complete_cpuset=\"{cpus}\" nodeset=\"{nodes}\" complete_nodeset=\"{nodes}\""
        )
    }

    /// What is within `set`, of which `of` is the kind: the largest first, each with what is within it.
    fn children(&mut self, set: &Set, of: Option<Kind>, objects: &[Object]) {
        self.memory(set, of, objects);
        let mut rest = objects;
        let mut done = Set::new();
        while let Some(((kind, os_index, size, processors), after)) = rest.split_first() {
            rest = after;
            if !processors.is_subset(set) || !processors.is_disjoint(&done) {
                continue;
            }
            done.extend(processors);
            let (sets, number) = (self.sets(processors), self.number());
            let name = if *kind == Kind::Pu { "PU".to_owned() } else { format!("{kind:?}") };
            let depth = match kind {
                Kind::L1Cache => 1,
                Kind::L2Cache => 2,
                Kind::L3Cache => 3,
                _ => 0,
            };
            let attributes = match (depth, kind) {
                (0, Kind::Group) => "kind=\"1000\" subkind=\"0\"".to_owned(),
                (0, _) => format!("os_index=\"{os_index}\""),
                (depth, _) => format!(
                    "cache_size=\"{size}\" depth=\"{depth}\" cache_linesize=\"64\" cache_associativity=\"0\" cache_type=\"{}\"",
                    if depth == 1 { 1 } else { 0 }
                ),
            };
            let _ = writeln!(self.text, "<object type=\"{name}\" {attributes} {sets} gp_index=\"{number}\">");
            self.children(processors, Some(*kind), after);
            self.text += "</object>\n";
        }
    }

    /// The memory nodes that belong here: those with these very processors, if nothing within has them, too; at the root those without any.
    fn memory(&mut self, set: &Set, of: Option<Kind>, inner: &[Object]) {
        let is_inner =
            inner.iter().any(|(kind, _, _, processors)| processors == set && *kind < Kind::L3Cache);
        let here = |node: &Node| {
            (node.processors == *set && !is_inner) || (of.is_none() && node.processors.is_empty())
        };
        let is_outermost = of.is_none_or(|kind| kind < Kind::L3Cache);
        if !is_outermost {
            return;
        }
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            if !here(node) {
                continue;
            }
            let (cpus, own) = (bitmap(&node.processors), bitmap(&Set::from([node.number])));
            let (bytes, os_index) = (node.bytes, node.number);
            let number = self.number();
            let _ = writeln!(
                self.text,
                "<object type=\"NUMANode\" os_index=\"{os_index}\" cpuset=\"{cpus}\" complete_cpuset=\"{cpus}\" nodeset=\"{own}\" \
                 complete_nodeset=\"{own}\" gp_index=\"{number}\" local_memory=\"{bytes}\"><page_type size=\"4096\" count=\"{}\"/></object>",
                bytes / 4096
            );
        }
    }

    /// Devices on PCI, below a bridge for each bus: hwloc wants one, and ours have no other.
    fn pci(&mut self, sys: &Path) {
        let mut devices: Vec<(String, String)> = Vec::new();
        for entry in fs::read_dir(sys.join("bus/pci/devices")).into_iter().flatten().flatten() {
            let address = entry.file_name().to_string_lossy().into_owned();
            let number = |file: &str| {
                let text = fs::read_to_string(entry.path().join(file)).unwrap_or_default();
                u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap_or(0)
            };
            let class = number("class") >> 8;
            let Some((domain, rest)) = address.split_once(':') else { continue };
            let Some((bus, _)) = rest.split_once(':') else { continue };
            let buses = format!("{domain}:[{bus}-{bus}]");
            // Bridges.
            if class >> 8 == 6 {
                continue;
            }
            let mut text = format!(
                "<object type=\"PCIDev\" gp_index=\"{}\" pci_busid=\"{address}\" pci_type=\"{class:04x} [{:04x}:{:04x}] \
                 [{:04x}:{:04x}] {:02x}\" pci_link_speed=\"{:.6}\">",
                self.number(),
                number("vendor"),
                number("device"),
                number("subsystem_vendor"),
                number("subsystem_device"),
                number("revision"),
                link_gigabytes(&entry.path()),
            );
            for (directory, kind, told) in DEVICES {
                for device in fs::read_dir(entry.path().join(directory)).into_iter().flatten().flatten() {
                    let name = device.file_name().to_string_lossy().into_owned();
                    let number = self.number();
                    let _ = write!(
                        text,
                        "<object type=\"OSDev\" gp_index=\"{number}\" name=\"{name}\" osdev_type=\"{kind}\">"
                    );
                    for (what, file) in told {
                        let value = fs::read_to_string(device.path().join(file)).unwrap_or_default();
                        let _ = write!(text, "<info name=\"{what}\" value=\"{}\"/>", value.trim());
                    }
                    text += "</object>";
                }
            }
            devices.push((buses, text + "</object>\n"));
        }
        devices.sort();
        for of_bus in devices.chunk_by(|a, b| a.0 == b.0) {
            let number = self.number();
            let _ = writeln!(
                self.pci,
                "<object type=\"Bridge\" gp_index=\"{number}\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"{}\">",
                of_bus[0].0
            );
            of_bus.iter().for_each(|(_, text)| self.pci += text);
            self.pci += "</object>\n";
        }
    }
}

/// Bytes a second of a device's link, in GB/s: 128 of 130 bits are payload from 8 GT/s on.
fn link_gigabytes(device: &Path) -> f64 {
    let number = |file: &str| {
        let text = fs::read_to_string(device.join(file)).unwrap_or_default();
        text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0)
    };
    number("current_link_speed") * number("current_link_width") * 128.0 / 130.0 / 8.0
}

/// "0-3,8"
fn list(text: &str) -> Option<Set> {
    let mut set = Set::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        set.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(set)
}

/// "32K"
fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.strip_suffix('K') {
        Some(digits) => (digits, 10),
        None => (text.strip_suffix('M').unwrap_or(text), if text.ends_with('M') { 20 } else { 0 }),
    };
    Some(digits.parse::<u64>().ok()? << shift)
}

/// As hwloc writes sets: words of 32 bits, the highest first.
fn bitmap(set: &Set) -> String {
    let words = set.last().map_or(1, |last| last / 32 + 1);
    let word = |at: usize| set.range(at * 32..(at + 1) * 32).fold(0u32, |word, bit| word | 1 << (bit % 32));
    (0..words).rev().map(|at| format!("0x{:08x}", word(at))).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_and_written() {
        assert_eq!(list("0-2,5\n"), Some(Set::from([0, 1, 2, 5])));
        assert_eq!(list("x"), None);
        assert_eq!(bitmap(&Set::from([0, 5])), "0x00000021");
        assert_eq!(bitmap(&Set::from([33])), "0x00000002,0x00000000");
        assert_eq!(bytes("32K"), Some(32768));
    }

    /// Two packages of a core with two threads each, a node for each package, and a card.
    fn example(root: &Path) {
        let put = |path: String, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("devices/system/cpu/online".into(), "0-3\n");
        put("devices/system/node/online".into(), "0-1\n");
        for cpu in 0..4 {
            let siblings = if cpu < 2 { "0-1\n" } else { "2-3\n" };
            let of = |file: &str| format!("devices/system/cpu/cpu{cpu}/{file}");
            put(of("topology/core_id"), "0\n");
            put(of("topology/physical_package_id"), if cpu < 2 { "0\n" } else { "1\n" });
            put(of("topology/thread_siblings_list"), siblings);
            put(of("topology/core_siblings_list"), siblings);
            put(of("cache/index0/level"), "1\n");
            put(of("cache/index0/type"), "Data\n");
            put(of("cache/index0/size"), "32K\n");
            put(of("cache/index0/shared_cpu_list"), siblings);
        }
        for (node, cpus) in [(0, "0-1\n"), (1, "2-3\n")] {
            put(format!("devices/system/node/node{node}/cpulist"), cpus);
            put(
                format!("devices/system/node/node{node}/meminfo"),
                &format!("Node {node} MemTotal:  1024 kB\n"),
            );
        }
        let link = [("current_link_speed", "16.0 GT/s PCIe\n"), ("current_link_width", "8\n")];
        for (file, text) in
            [("class", "0x020000\n"), ("vendor", "0x1d0f\n"), ("device", "0xefa1\n")].into_iter().chain(link)
        {
            put(format!("bus/pci/devices/0000:4f:00.0/{file}"), text);
        }
        put("bus/pci/devices/0000:4f:00.0/infiniband/rdmap79s0/node_type".into(), "7\n");
    }

    #[test]
    fn processors_memory_and_cards_are_where_they_belong() {
        let root = std::env::temp_dir().join(format!("srd-topology-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        example(&root);
        let text = xml(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        let count = |what: &str| text.matches(what).count();
        for (kind, many) in [
            ("Machine", 1),
            ("Package", 2),
            ("L1Cache", 2),
            ("Core", 2),
            ("PU", 4),
            ("NUMANode", 2),
            ("Group", 0),
        ] {
            assert_eq!(count(&format!("type=\"{kind}\"")), many, "{kind}\n{text}");
        }
        assert!(text.contains("pci_busid=\"0000:4f:00.0\" pci_type=\"0200 [1d0f:efa1] "), "{text}");
        assert!(
            text.contains("pci_link_speed=\"15.75") && text.contains("bridge_pci=\"0000:[4f-4f]\""),
            "{text}"
        );
        assert!(text.contains("name=\"rdmap79s0\""), "{text}");
        let (first, second) = (text.find("NUMANode").unwrap(), text.find("os_index=\"1\"").unwrap());
        assert!(text.find("Package").unwrap() < first && first < second, "{text}");
    }
}
