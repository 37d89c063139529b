//! Rules of this host's own packet filter that would drop what comes to SRD's ports, as far as they may be read.

mod rules;

use super::finding::Finding;
use super::system::PORTS;
use rules::{Fate, Rules};
use std::process::Command;

/// Tools that list rules, and how.
const TOOLS: [(&str, &[&str]); 2] = [("nft", &["list", "ruleset"]), ("iptables", &["-S"])];

/// Where they are for root, and often not for others: sbin of the Filesystem Hierarchy Standard.
const OF_ROOT: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// What one tool says.
enum Answer {
    /// It is not installed.
    Missing,
    /// The kernel has no tables of its kind.
    NoTables,
    /// They may not be read.
    Forbidden,
    /// It failed for this reason.
    Failed(String),
    /// Its rules.
    Listed(Rules),
}

/// Looks at nft's rules and at iptables'.
pub fn examine(port_base: u16) -> Vec<Finding> {
    judge(&TOOLS.map(|(tool, arguments)| (tool, list(tool, arguments))), port_base)
}

fn judge(answers: &[(&str, Answer)], port_base: u16) -> Vec<Finding> {
    let range = port_base..=port_base.saturating_add(PORTS - 1);
    let ports = format!("{}-{}", range.start(), range.end());
    let mut findings = Vec::new();
    for (tool, answer) in answers {
        let Answer::Listed(rules) = answer else { continue };
        // iptables of today makes its rules with nft's tables, and then both list them.
        let of_nft = *tool == "iptables" && !findings.is_empty();
        let bases = rules.bases().iter().filter(|_| !of_nft);
        findings.extend(bases.filter_map(|base| {
            let fates = range.clone().map(|port| (port, rules.fate(base, port)));
            let mut bad: Vec<_> = fates.filter(|(_, fate)| *fate != Fate::Passes).collect();
            // What is certain comes before doubts.
            bad.sort_by_key(|(_, fate)| matches!(fate, Fate::Perhaps(_)));
            let &(port, fate) = bad.first()?;
            let all = bad.iter().filter(|(_, other)| *other == fate).count() == range.len();
            let dropped =
                if all { format!("UDP ports {ports}") } else { format!("UDP port {port} of {ports}") };
            Some(describe(tool, base, fate, &dropped, &ports))
        }));
    }
    let named = |wanted: fn(&Answer) -> bool| -> Vec<&str> {
        answers.iter().filter(|(_, answer)| wanted(answer)).map(|&(tool, _)| tool).collect()
    };
    if findings.is_empty() {
        findings.push(if let [tool, ..] = named(|answer| matches!(answer, Answer::Forbidden))[..] {
            unknown(format!("only root may read this host's packet filter rules ({tool})"))
                .mend("sudo srd doctor, or srd doctor HOST, which tries the ports")
        } else if let Some((tool, why)) = answers.iter().find_map(|(tool, answer)| match answer {
            Answer::Failed(why) => Some((tool, why)),
            _ => None,
        }) {
            unknown(format!("{tool} does not list this host's packet filter rules: {why}"))
        } else if named(|answer| !matches!(answer, Answer::Missing)).is_empty() {
            unknown(
                "neither nft nor iptables is installed here, so packet filter rules could not be looked at",
            )
        } else {
            let by = named(|answer| !matches!(answer, Answer::Missing)).join(" and ");
            Finding::ok("firewall", format!("no rule of this host's own ({by}) drops UDP ports {ports}"))
        });
    }
    findings
}

fn unknown(why: impl Into<String>) -> Finding {
    Finding::skip("firewall", why).mend("srd doctor HOST, which tries the ports")
}

fn describe(tool: &str, base: &str, fate: Fate<'_>, dropped: &str, ports: &str) -> Finding {
    let mend = match tool {
        "nft" => format!("nft insert rule {base} udp dport {ports} accept"),
        _ => format!("iptables -I {base} -p udp --dport {} -j ACCEPT", ports.replace('-', ":")),
    };
    match fate {
        Fate::Dropped(rule) => {
            Finding::warn("firewall", format!("{tool}'s chain {base} drops {dropped}, by the rule `{rule}`"))
                .mend(mend)
        }
        Fate::Perhaps(rule) => unknown(format!(
            "{tool}'s chain {base} drops some of what comes to {dropped}, by the rule `{rule}`; whether that is from peers is not known here"
        )),
        Fate::Unnamed | Fate::Passes => Finding::warn(
            "firewall",
            format!("{tool}'s chain {base} drops what no rule accepts, and no rule accepts {dropped}"),
        )
        .mend(mend),
    }
}

fn list(tool: &str, arguments: &[&str]) -> Answer {
    let path = std::env::var("PATH").unwrap_or_default();
    let Ok(program) = which::which_in(tool, Some(format!("{path}:{OF_ROOT}")), "/") else {
        return Answer::Missing;
    };
    let output = match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) => return Answer::Failed(error.to_string()),
    };
    let listed = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    match said.trim() {
        _ if output.status.success() && tool == "nft" => Answer::Listed(Rules::of_nft(&listed)),
        _ if output.status.success() => Answer::Listed(Rules::of_iptables(&listed)),
        // "Permission denied", "Operation not permitted"
        said if said.contains("ermi") => Answer::Forbidden,
        said if said.contains("Table does not exist") || said.contains("Protocol not supported") => {
            Answer::NoTables
        }
        said => Answer::Failed(said.lines().last().unwrap_or("it says nothing").to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn nft(policy: &str, rule: &str) -> Answer {
        Answer::Listed(Rules::of_nft(&format!(
            "table inet filter {{\n\tchain input {{\n\t\ttype filter hook input priority filter; policy {policy};\n\t\t{rule}\n\t}}\n}}\n"
        )))
    }

    fn only(answers: &[(&str, Answer)]) -> Finding {
        let findings = judge(answers, 17408);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings.into_iter().next().unwrap()
    }

    #[test]
    fn a_dropping_rule_is_quoted_and_its_remedy_comes_before_it() {
        let found = only(&[("nft", nft("accept", "udp dport 17408-17919 drop"))]);
        assert_eq!(found.level, Level::Warn);
        assert_eq!(
            found.what,
            "nft's chain inet filter input drops UDP ports 17408-17919, by the rule `udp dport 17408-17919 drop`"
        );
        assert_eq!(found.mend.unwrap(), "nft insert rule inet filter input udp dport 17408-17919 accept");
        let found = only(&[("nft", nft("accept", "udp dport 17500 drop"))]);
        assert!(found.what.contains("UDP port 17500 of 17408-17919"), "{}", found.what);
    }

    #[test]
    fn a_closed_chain_is_found() {
        let found = only(&[("nft", nft("drop", "tcp dport 22 accept"))]);
        assert_eq!(found.level, Level::Warn);
        assert!(found.what.ends_with("no rule accepts UDP ports 17408-17919"), "{}", found.what);
        assert_eq!(only(&[("nft", nft("drop", "udp dport 17408-17919 accept"))]).level, Level::Ok);
        let rules = Rules::of_iptables("-P INPUT DROP\n-P OUTPUT ACCEPT\n");
        let found = only(&[("nft", Answer::Missing), ("iptables", Answer::Listed(rules))]);
        assert_eq!(found.mend.unwrap(), "iptables -I INPUT -p udp --dport 17408:17919 -j ACCEPT");
    }

    #[test]
    fn rules_that_both_tools_list_are_found_once() {
        let rules = Rules::of_iptables("-P INPUT DROP\n-P OUTPUT ACCEPT\n");
        only(&[("nft", nft("drop", "counter")), ("iptables", Answer::Listed(rules))]);
    }

    #[test]
    fn what_could_not_be_looked_at_is_not_said_to_be_well() {
        for (answers, why) in [
            ([("nft", Answer::Missing), ("iptables", Answer::Missing)], "neither nft nor iptables"),
            ([("nft", Answer::Missing), ("iptables", Answer::Forbidden)], "only root"),
            ([("nft", Answer::Failed("no".into())), ("iptables", Answer::NoTables)], "nft does not list"),
            ([("nft", nft("accept", "counter")), ("iptables", Answer::Forbidden)], "only root"),
            (
                [
                    ("nft", nft("accept", "ip saddr 192.0.2.1 udp dport 17408-17919 drop")),
                    ("iptables", Answer::Missing),
                ],
                "some of what",
            ),
        ] {
            let found = only(&answers);
            assert_eq!(found.level, Level::Skip, "{}", found.what);
            assert!(found.what.contains(why) && found.mend.is_some(), "{}", found.what);
        }
    }

    #[test]
    fn what_was_looked_at_is_named() {
        let found = only(&[("nft", nft("accept", "counter")), ("iptables", Answer::NoTables)]);
        assert_eq!(found.level, Level::Ok);
        assert!(found.what.contains("(nft and iptables)"), "{}", found.what);
    }
}
