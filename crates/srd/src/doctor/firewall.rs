//! Rules of this host's own packet filter that would drop what comes to SRD's ports, as far as they may be read.

use super::finding::Finding;
use super::system::PORTS;
use std::process::Command;

/// What one tool says.
enum Rules {
    /// It is not installed, or there is no such table.
    None,
    /// They may not be read.
    Forbidden,
    /// These.
    Text(String),
}

/// Looks at nft's rules, and at iptables' where nft has none.
pub fn examine(port_base: u16) -> Vec<Finding> {
    let range = format!("{port_base}-{}", port_base.saturating_add(PORTS - 1));
    let add_to_nft = |chain: &str| format!("nft insert rule {chain} udp dport {range} accept");
    let add_to_iptables = format!("iptables -I INPUT -p udp --dport {} -j ACCEPT", range.replace('-', ":"));

    let rules =
        [("nft", list("nft", &["list", "ruleset"])), ("iptables", list("iptables", &["-S", "INPUT"]))];
    if rules.iter().any(|(_, rules)| matches!(rules, Rules::Forbidden)) {
        return vec![
            Finding::skip("firewall", "only root may read this host's packet filter rules")
                .mend("sudo srd doctor, or srd doctor HOST, which tries the ports"),
        ];
    }
    let mut findings = Vec::new();
    for (tool, rules) in rules {
        let Rules::Text(text) = rules else { continue };
        let closed = if tool == "nft" { closed_nft_chain(&text) } else { closed_iptables(&text) };
        let Some(chain) = closed else { continue };
        if names_range(&text, port_base) {
            continue;
        }
        let mend = if tool == "nft" { add_to_nft(&chain) } else { add_to_iptables.clone() };
        findings.push(
            Finding::warn(
                "firewall",
                format!(
                    "{tool}'s chain {chain} drops what no rule accepts, and no rule names UDP ports {range}"
                ),
            )
            .mend(mend),
        );
    }
    if findings.is_empty() {
        findings.push(Finding::ok("firewall", format!("no rule of this host's own drops UDP ports {range}")));
    }
    findings
}

fn list(tool: &str, arguments: &[&str]) -> Rules {
    match Command::new(tool).args(arguments).output() {
        Ok(output) if output.status.success() => {
            Rules::Text(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("ermi") => Rules::Forbidden,
        _ => Rules::None,
    }
}

/// `family table chain` of the first input chain that drops or rejects what falls through.
fn closed_nft_chain(ruleset: &str) -> Option<String> {
    let (mut table, mut chain, mut is_input, mut drops) = (String::new(), String::new(), false, false);
    for line in ruleset.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("table ") {
            table = name.trim_end_matches('{').trim().to_owned();
        } else if let Some(name) = line.strip_prefix("chain ") {
            chain = name.trim_end_matches('{').trim().to_owned();
            (is_input, drops) = (false, false);
        } else if line.contains("hook input") {
            is_input = true;
            drops = line.contains("policy drop");
        } else if line.starts_with("drop") || line.starts_with("reject") {
            drops = true;
        } else if line == "}" && is_input && drops {
            return Some(format!("{table} {chain}"));
        } else if line == "}" {
            is_input = false;
        }
    }
    None
}

fn closed_iptables(rules: &str) -> Option<String> {
    let closes = |line: &str| {
        matches!(line, "-P INPUT DROP" | "-P INPUT REJECT" | "-A INPUT -j DROP")
            || line.starts_with("-A INPUT -j REJECT")
    };
    rules.lines().any(|line| closes(line.trim())).then(|| "INPUT".to_owned())
}

/// Whether a rule about UDP names a port or a range that holds the first of ours. A rule that needs more to be judged
/// is given the benefit of the doubt: `srd doctor HOST` tries the ports themselves.
fn names_range(rules: &str, port: u16) -> bool {
    rules.lines().filter(|line| line.contains("udp") && line.contains("dport")).any(|line| {
        let after = line.split("dport").nth(1).unwrap_or_default();
        after.split(|c: char| !c.is_ascii_digit() && c != '-' && c != ':').any(|word| {
            let (low, high) = word.split_once(['-', ':']).unwrap_or((word, word));
            matches!((low.parse::<u16>(), high.parse::<u16>()), (Ok(low), Ok(high)) if (low..=high).contains(&port))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSED: &str = "\
table inet filter {
\tchain input {
\t\ttype filter hook input priority filter; policy drop;
\t\tiif \"lo\" accept
\t\ttcp dport 22 accept
\t}
\tchain output {
\t\ttype filter hook output priority filter; policy accept;
\t}
}
";

    #[test]
    fn a_dropping_input_chain_is_found() {
        assert_eq!(closed_nft_chain(CLOSED).unwrap(), "inet filter input");
        assert_eq!(closed_nft_chain(&CLOSED.replace("policy drop", "policy accept")), None);
        assert_eq!(closed_nft_chain(&CLOSED.replace("hook input", "hook forward")), None);
    }

    #[test]
    fn a_final_reject_closes_too() {
        let rules =
            CLOSED.replace("policy drop", "policy accept").replace("tcp dport 22 accept", "reject with icmp");
        assert_eq!(closed_nft_chain(&rules).unwrap(), "inet filter input");
        assert!(closed_iptables("-P INPUT ACCEPT\n-A INPUT -i lo -j ACCEPT\n-A INPUT -j DROP\n").is_some());
        assert!(closed_iptables("-P INPUT ACCEPT\n-A INPUT -s 10.0.0.1/32 -j DROP\n").is_none());
    }

    #[test]
    fn a_rule_for_our_ports_opens_it() {
        assert!(!names_range(CLOSED, 17408));
        assert!(names_range("udp dport 17408-17919 accept", 17408));
        assert!(names_range("udp dport { 53, 17000-18000 } accept", 17408));
        assert!(names_range("-A INPUT -p udp -m udp --dport 17408:17919 -j ACCEPT", 17408));
        assert!(!names_range("udp dport 53 accept", 17408));
    }
}
