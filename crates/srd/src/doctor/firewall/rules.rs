//! What a packet filter does with a datagram to a UDP port, read from how nft and iptables print their rules. Of a rule that
//! looks at more than protocol and port (an address, an interface, a rate) nobody knows here whether it holds for peers.

use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Chains that call each other are followed so far; the kernel's own limit is 16 (`NFT_JUMP_STACK_SIZE`).
const DEEPEST: u32 = 16;

/// Hooks that packets to this host and from it pass.
const HOOKS: [&str; 6] = ["ingress", "prerouting", "input", "output", "postrouting", "egress"];

/// What nft prints in several lines, besides sets of ports and addresses.
const BLOCKS: [&str; 9] = ["table", "chain", "set", "map", "flowtable", "counter", "quota", "limit", "ct"];

/// All chains of a tool.
#[derive(Default)]
pub struct Rules {
    chains: HashMap<String, Chain>,
    /// Those that the kernel itself calls, in the order in which they are printed.
    bases: Vec<String>,
}

#[derive(Default)]
struct Chain {
    rules: Vec<Rule>,
    /// A base chain drops what no rule accepts.
    closed: bool,
}

struct Rule {
    text: String,
    ports: Ports,
    /// It looks at nothing else.
    certain: bool,
    verdict: Verdict,
}

/// Which UDP ports a rule is for.
enum Ports {
    /// It is for another protocol.
    None,
    All,
    In(Vec<RangeInclusive<u16>>),
    NotIn(Vec<RangeInclusive<u16>>),
}

#[derive(Clone)]
enum Verdict {
    /// None: the next rule says.
    Next,
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
}

/// What becomes of datagrams to a port in a base chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate<'a> {
    /// They pass, or a rule for their port says so that looks at more.
    Passes,
    /// This rule drops them.
    Dropped(&'a str),
    /// No rule accepts them, and then they are dropped.
    Unnamed,
    /// This rule drops some of them.
    Perhaps(&'a str),
}

enum End<'a> {
    Accepted,
    Dropped(&'a str),
    /// The chain has no more to say.
    Through,
}

impl Rules {
    /// As `nft list ruleset` prints them.
    pub fn of_nft(text: &str) -> Rules {
        let mut rules = Rules::default();
        let (mut table, mut chain) = (String::new(), None);
        for line in whole_lines(text) {
            let line = line.trim();
            let name = |rest: &str| rest.split('{').next().unwrap_or_default().trim().to_owned();
            if let Some(rest) = line.strip_prefix("table ") {
                table = name(rest);
            } else if let Some(rest) = line.strip_prefix("chain ") {
                chain = Some(format!("{table} {}", name(rest)));
            } else if line == "}" {
                chain = None;
            } else if let Some(name) = &chain {
                let of_kernel = line.split_once(" hook ").filter(|_| line.starts_with("type "));
                if let Some((_, rest)) = of_kernel {
                    if rest.split_whitespace().next().is_some_and(|hook| HOOKS.contains(&hook)) {
                        rules.bases.push(name.clone());
                    }
                    rules.chains.entry(name.clone()).or_default().closed = line.contains("policy drop");
                } else {
                    let rule = Rule::of_nft(line, &table);
                    rules.chains.entry(name.clone()).or_default().rules.push(rule);
                }
            }
        }
        rules
    }

    /// As `iptables -S` prints them.
    pub fn of_iptables(text: &str) -> Rules {
        let mut rules = Rules::default();
        for line in text.lines().map(str::trim) {
            let words = words(line);
            match *words.as_slice() {
                ["-P", name, policy] => {
                    rules.chains.entry(name.to_owned()).or_default().closed = policy != "ACCEPT";
                    if matches!(name, "INPUT" | "OUTPUT") {
                        rules.bases.push(name.to_owned());
                    }
                }
                ["-A", name, ref rest @ ..] => {
                    let rule = Rule::of_iptables(line, rest);
                    rules.chains.entry(name.to_owned()).or_default().rules.push(rule);
                }
                _ => {}
            }
        }
        rules
    }

    /// The chains that the kernel calls.
    pub fn bases(&self) -> &[String] {
        &self.bases
    }

    /// What `base` does with datagrams to `port`.
    pub fn fate(&self, base: &str, port: u16) -> Fate<'_> {
        let mut doubt = None;
        match self.follow(base, port, (true, false), DEEPEST, &mut doubt) {
            End::Dropped(rule) => Fate::Dropped(rule),
            End::Through if self.chains.get(base).is_some_and(|chain| chain.closed) => Fate::Unnamed,
            End::Through | End::Accepted => doubt.map_or(Fate::Passes, Fate::Perhaps),
        }
    }

    /// `certain`: whoever has called this chain did so with all datagrams to the port. `named`: it did so for the port.
    fn follow<'a>(
        &'a self,
        chain: &str,
        port: u16,
        (certain, named): (bool, bool),
        depth: u32,
        doubt: &mut Option<&'a str>,
    ) -> End<'a> {
        let Some(chain) = self.chains.get(chain).filter(|_| depth > 0) else { return End::Through };
        for rule in chain.rules.iter().filter(|rule| rule.ports.contain(port)) {
            let certain = certain && rule.certain;
            let named = named || !matches!(rule.ports, Ports::All);
            match &rule.verdict {
                // One that looks at more and is for this port is meant for the peers that there are.
                Verdict::Accept if certain || named => return End::Accepted,
                Verdict::Drop if certain => return End::Dropped(&rule.text),
                Verdict::Drop if named => {
                    doubt.get_or_insert(&rule.text);
                }
                Verdict::Return if certain => return End::Through,
                Verdict::Jump(to) | Verdict::Goto(to) => {
                    let end = self.follow(to, port, (certain, named), depth - 1, doubt);
                    let left = certain && matches!(rule.verdict, Verdict::Goto(_));
                    if left || !matches!(end, End::Through) {
                        return end;
                    }
                }
                Verdict::Next | Verdict::Accept | Verdict::Drop | Verdict::Return => {}
            }
        }
        End::Through
    }
}

impl Rule {
    fn of_nft(text: &str, table: &str) -> Rule {
        let mut rule =
            Rule { text: one_spaced(text), ports: Ports::All, certain: true, verdict: Verdict::Next };
        let words = words(text);
        let mut rest = words.as_slice();
        loop {
            rest = match *rest {
                [] => return rule,
                ["udp" | "th", "dport", "vmap", ..] => {
                    rule.certain = false;
                    &rest[3..]
                }
                ["udp" | "th", "dport", "!=", ports, ..] => {
                    rule.look_at_ports(ports, true);
                    &rest[4..]
                }
                ["udp" | "th", "dport", ports, ..] => {
                    rule.look_at_ports(ports, false);
                    &rest[3..]
                }
                ["meta", "l4proto", "!=", protocols, ..]
                | ["ip", "protocol", "!=", protocols, ..]
                | ["ip6", "nexthdr", "!=", protocols, ..] => {
                    rule.look_at_protocols(protocols, true);
                    &rest[4..]
                }
                ["meta", "l4proto", protocols, ..]
                | ["ip", "protocol", protocols, ..]
                | ["ip6", "nexthdr", protocols, ..] => {
                    rule.look_at_protocols(protocols, false);
                    &rest[3..]
                }
                ["tcp" | "sctp" | "dccp" | "udplite" | "icmp" | "icmpv6" | "igmp" | "esp" | "ah", ..] => {
                    rule.ports = Ports::None;
                    return rule;
                }
                // The first datagram to a port begins a connection, so to speak.
                ["ct", "state", states, ..] if states.contains("new") => &rest[3..],
                ["iif" | "iifname" | "oif" | "oifname", "!=", "\"lo\"" | "lo", ..] => &rest[3..],
                ["meta", "nfproto", _, ..] => &rest[3..],
                ["counter", "packets", _, "bytes", _, ..] => &rest[5..],
                ["counter", "name", _, ..] => &rest[3..],
                ["counter" | "log", ..] => &rest[1..],
                [
                    "comment" | "prefix" | "level" | "group" | "snaplen" | "queue-threshold" | "flags",
                    _,
                    ..,
                ] => &rest[2..],
                ["accept", ..] => return rule.end(Verdict::Accept),
                ["drop" | "reject", ..] => return rule.end(Verdict::Drop),
                ["return", ..] => return rule.end(Verdict::Return),
                ["jump", to, ..] => return rule.end(Verdict::Jump(format!("{table} {to}"))),
                ["goto", to, ..] => return rule.end(Verdict::Goto(format!("{table} {to}"))),
                [_, ..] => {
                    rule.certain = false;
                    &rest[1..]
                }
            };
        }
    }

    fn of_iptables(text: &str, words: &[&str]) -> Rule {
        let mut rule =
            Rule { text: one_spaced(text), ports: Ports::All, certain: true, verdict: Verdict::Next };
        let mut rest = words;
        loop {
            let not = rest.first() == Some(&"!");
            rest = &rest[usize::from(not)..];
            rest = match *rest {
                [] => return rule,
                ["-p", protocol, ..] => {
                    rule.look_at_protocols(protocol, not);
                    &rest[2..]
                }
                ["--dport" | "--dports", ports, ..] => {
                    rule.look_at_ports(ports, not);
                    &rest[2..]
                }
                ["--ctstate" | "--state", states, ..] if !not && states.contains("NEW") => &rest[2..],
                ["-i" | "-o", "lo", ..] if not => &rest[2..],
                ["-m", "udp" | "multiport" | "comment" | "conntrack" | "state", ..] => &rest[2..],
                ["--comment", _, ..] => &rest[2..],
                ["-j", "ACCEPT", ..] => return rule.end(Verdict::Accept),
                ["-j", "DROP" | "REJECT", ..] => return rule.end(Verdict::Drop),
                ["-j", "RETURN", ..] => return rule.end(Verdict::Return),
                ["-j", to, ..] => return rule.end(Verdict::Jump(to.to_owned())),
                ["-g", to, ..] => return rule.end(Verdict::Goto(to.to_owned())),
                [_, ..] => {
                    rule.certain = false;
                    &rest[1..]
                }
            };
        }
    }

    fn end(self, verdict: Verdict) -> Rule {
        Rule { verdict, ..self }
    }

    /// `17408`, `17408-17919`, `17408:17919`, `{ 53, 17408-17919 }`, `53,17408:17919`. Sets that have names are not looked up.
    fn look_at_ports(&mut self, text: &str, not: bool) {
        let ranges: Option<Vec<_>> = text
            .trim_matches(['{', '}'])
            .split(',')
            .map(|range| {
                let (low, high) = range.split_once(['-', ':']).unwrap_or((range, range));
                Some(low.trim().parse().ok()?..=high.trim().parse().ok()?)
            })
            .collect();
        match ranges {
            _ if matches!(self.ports, Ports::None) => {}
            Some(ranges) if not => self.ports = Ports::NotIn(ranges),
            Some(ranges) => self.ports = Ports::In(ranges),
            // Perhaps among them, perhaps not.
            None => (self.certain, self.ports) = (false, Ports::In(vec![0..=u16::MAX])),
        }
    }

    fn look_at_protocols(&mut self, text: &str, not: bool) {
        let mut protocols = text.trim_matches(['{', '}']).split(',').map(str::trim);
        if protocols.any(|protocol| matches!(protocol, "udp" | "17" | "all")) == not {
            self.ports = Ports::None;
        }
    }
}

impl Ports {
    fn contain(&self, port: u16) -> bool {
        let among = |ranges: &[RangeInclusive<u16>]| ranges.iter().any(|range| range.contains(&port));
        match self {
            Ports::None => false,
            Ports::All => true,
            Ports::In(ranges) => among(ranges),
            Ports::NotIn(ranges) => !among(ranges),
        }
    }
}

/// Lines, those of one set put together.
fn whole_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut open = 0;
    for line in text.lines() {
        let head = line.split('#').next().unwrap_or_default().trim();
        let block = head.ends_with('{') && head.split(' ').next().is_some_and(|word| BLOCKS.contains(&word));
        match lines.last_mut().filter(|_| open > 0) {
            Some(last) => *last += &format!(" {}", line.trim()),
            None => lines.push(line.to_owned()),
        }
        if !(open == 0 && (block || line.trim() == "}")) {
            open += line.matches('{').count();
            open = open.saturating_sub(line.matches('}').count());
        }
    }
    lines
}

fn one_spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What spaces divide, but for those between quotation marks and within a set.
fn words(text: &str) -> Vec<&str> {
    let (mut words, mut begin, mut quoted, mut depth) = (Vec::new(), None, false, 0u32);
    for (at, character) in text.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '{' if !quoted => depth += 1,
            '}' if !quoted => depth = depth.saturating_sub(1),
            ' ' | '\t' if !quoted && depth == 0 => {
                words.extend(begin.take().map(|begin| &text[begin..at]));
                continue;
            }
            _ => {}
        }
        begin.get_or_insert(at);
    }
    words.extend(begin.map(|begin| &text[begin..]));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 17408;

    /// An input chain with these rules.
    fn chain(policy: &str, rules: &[&str]) -> String {
        format!(
            "table inet filter {{ # progname x\n\tset ours {{\n\t\ttype inet_service\n\t\tflags interval\n\t\telements = {{ 53,\n\t\t\t     80 }}\n\t}}\n\n\
             \tchain input {{\n\t\ttype filter hook input priority filter; policy {policy};\n\t\t{}\n\t}}\n\n\
             \tchain more {{\n\t\tip saddr 10.0.0.0/8 accept\n\t\tdrop\n\t}}\n}}\n",
            rules.join("\n\t\t")
        )
    }

    fn nft(policy: &str, rules: &[&str]) -> &'static str {
        let rules = Rules::of_nft(&chain(policy, rules));
        assert_eq!(rules.bases(), ["inet filter input"]);
        told(rules.fate("inet filter input", PORT))
    }

    fn iptables(text: &str) -> &'static str {
        told(Rules::of_iptables(text).fate("INPUT", PORT))
    }

    fn told(fate: Fate<'_>) -> &'static str {
        match fate {
            Fate::Passes => "passes",
            Fate::Dropped(_) => "dropped",
            Fate::Unnamed => "unnamed",
            Fate::Perhaps(_) => "perhaps",
        }
    }

    #[test]
    fn a_rule_that_drops_our_ports_is_no_rule_that_accepts_them() {
        for rule in [
            "udp dport 17408-17919 drop",
            "udp dport 17408-17919 counter packets 0 bytes 0 reject with icmp port-unreachable",
            "udp dport { 53, 17000-18000 } log prefix \"no, accept \" drop comment \"accept\"",
            "udp dport != 53 drop",
            "meta l4proto { tcp, udp } th dport 17408 drop",
            "meta l4proto udp drop",
            "iifname != \"lo\" udp dport 17408 drop",
            "ct state new udp dport 17408 drop",
            "udp dport 17408 jump more2",
            "drop",
        ] {
            let text = chain("accept", &[rule]) + "table inet filter {\n\tchain more2 {\n\t\tdrop\n\t}\n}\n";
            assert_eq!(told(Rules::of_nft(&text).fate("inet filter input", PORT)), "dropped", "{rule}");
        }
    }

    #[test]
    fn the_first_rule_that_holds_decides() {
        let (accept, drop) = ("udp dport 17408-17919 accept", "udp dport 17408-17919 drop");
        assert_eq!(nft("accept", &[accept, drop]), "passes");
        assert_eq!(nft("accept", &[drop, accept]), "dropped");
        assert_eq!(nft("drop", &[accept]), "passes");
        assert_eq!(nft("drop", &["tcp dport 22 accept", "iif \"lo\" accept"]), "unnamed");
        assert_eq!(nft("drop", &["udp dport { 53, 17000-18000 } accept"]), "passes");
        assert_eq!(nft("drop", &["udp dport 53 accept"]), "unnamed");
        assert_eq!(nft("drop", &["ip saddr 10.0.0.0/8 udp dport 17408-17919 accept"]), "passes");
        assert_eq!(nft("accept", &["tcp dport 17408 drop", "ct state invalid drop"]), "passes");
        assert_eq!(nft("accept", &["ip protocol icmp drop", "udp dport 17407 drop"]), "passes");
    }

    #[test]
    fn what_looks_at_more_leaves_a_doubt() {
        assert_eq!(nft("accept", &["ip saddr 192.0.2.1 udp dport 17408-17919 drop"]), "perhaps");
        assert_eq!(nft("accept", &["udp dport 17408-17919 limit rate over 5/second drop"]), "perhaps");
        assert_eq!(nft("accept", &["ip saddr 192.0.2.1 drop"]), "passes");
        assert_eq!(nft("accept", &["udp dport @ours drop"]), "perhaps");
        assert_eq!(nft("drop", &["udp dport @ours accept"]), "passes");
    }

    #[test]
    fn chains_that_are_called_are_followed() {
        assert_eq!(nft("accept", &["udp dport 17408-17919 jump more"]), "passes");
        assert_eq!(nft("accept", &["jump more"]), "dropped");
        assert_eq!(nft("accept", &["goto nowhere", "drop"]), "passes");
        assert_eq!(nft("drop", &["jump input"]), "unnamed");
    }

    #[test]
    fn only_hooks_of_this_hosts_packets_count() {
        let text = chain("drop", &[]).replace("hook input", "hook forward");
        assert!(Rules::of_nft(&text).bases().is_empty());
    }

    #[test]
    fn iptables_says_the_same_in_other_words() {
        let open = "-P INPUT ACCEPT\n-P FORWARD DROP\n-P OUTPUT ACCEPT\n-N OURS\n-A OURS -j DROP\n";
        for (rules, fate) in [
            ("", "passes"),
            ("-A INPUT -p udp -m udp --dport 17408:17919 -j DROP", "dropped"),
            (
                "-A INPUT ! -i lo -p udp -m multiport --dports 53,17408:17919 -j REJECT --reject-with x",
                "dropped",
            ),
            ("-A INPUT -p udp -m udp --dport 17408:17919 -m comment --comment \"a b\" -j OURS", "dropped"),
            ("-A INPUT -p udp -j DROP", "dropped"),
            ("-A INPUT -i lo -j ACCEPT\n-A INPUT -j DROP", "dropped"),
            ("-A INPUT -p udp -m udp --dport 17408:17919 -j ACCEPT\n-A INPUT -j DROP", "passes"),
            ("-A INPUT -s 10.0.0.1/32 -j DROP", "passes"),
            ("-A INPUT -s 10.0.0.1/32 -p udp -m udp --dport 17408:17919 -j DROP", "perhaps"),
            ("-A INPUT -p tcp -m tcp --dport 17408 -j DROP", "passes"),
            ("-A INPUT -j LOG --log-prefix x", "passes"),
        ] {
            assert_eq!(iptables(&format!("{open}{rules}\n")), fate, "{rules}");
        }
        assert_eq!(iptables("-P INPUT DROP\n-A INPUT -i lo -j ACCEPT\n"), "unnamed");
    }
}
