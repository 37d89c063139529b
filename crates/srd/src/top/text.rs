//! The tables as plain text.

use super::cells::{
    Column, PATH_COLUMNS, PEER_COLUMNS, PROCESS_COLUMNS, causes, path_rows, peer_cells, process_cells,
};
use super::rates::{Overview, Process};
use std::fmt::Write;

/// Most peers of a process that are listed; `--json` has all that the process tells of.
const MOST_PEERS: usize = 32;

/// Most paths out of use that are listed unless all are asked for.
const MOST_PATHS: usize = 32;

/// Most numbers of endpoints that are listed.
const MOST_ENDPOINTS: usize = 8;

/// All processes, and the peers of each.
///
/// `all_paths`: with every path that is told of, not only those out of use.
pub fn describe(overview: &Overview, all_paths: bool) -> String {
    let mut text = String::new();
    if !overview.processes.is_empty() {
        text += &table(&PROCESS_COLUMNS, overview.processes.iter().map(process_cells));
    }
    for process in &overview.processes {
        text.push('\n');
        text += &describe_process(process, all_paths);
    }
    for silent in &overview.silent {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "{}{}: {}", silent.pid, named(&silent.program), silent.why);
    }
    text
}

/// A program's name after a number, if it is known.
pub fn named(program: &str) -> String {
    if program.is_empty() { String::new() } else { format!(" {program}") }
}

fn describe_process(process: &Process, all_paths: bool) -> String {
    let mut text = format!("{} {}, {}", process.pid, process.program, process.address);
    if !process.endpoints.is_empty() {
        let listed = process.endpoints.iter().take(MOST_ENDPOINTS).map(u16::to_string);
        let more = if process.endpoints.len() > MOST_ENDPOINTS { " and more" } else { "" };
        let _ = write!(text, ", endpoints {}{more}", listed.collect::<Vec<_>>().join(" "));
    }
    text.push(':');
    if process.peers.is_empty() {
        text += " no peers\n";
        return text;
    }
    let down = process.paths.iter().filter(|path| path.down > 0).count();
    let _ = writeln!(text, " {} source ports in use, {down} of them down for some peer", process.paths.len());
    text += &table(&PEER_COLUMNS, process.peers.iter().take(MOST_PEERS).map(peer_cells));
    let more = process.peers.len().saturating_sub(MOST_PEERS);
    if more > 0 {
        let _ = writeln!(text, "and {more} more, which move less (--json lists them)");
    }
    let _ = writeln!(text, "{}", causes(process));
    let rows = path_rows(process).into_iter().filter(|(_, out_of_use)| all_paths || *out_of_use);
    let mut paths: Vec<[String; PATH_COLUMNS.len()]> = rows.map(|(cells, _)| cells).collect();
    let more = if all_paths { 0 } else { paths.len().saturating_sub(MOST_PATHS) };
    paths.truncate(paths.len() - more);
    if !paths.is_empty() {
        text += &table(&PATH_COLUMNS, paths.into_iter());
    }
    if more > 0 {
        let _ = writeln!(text, "and {more} more paths out of use (--paths lists them)");
    }
    text
}

fn table<const N: usize>(columns: &[Column; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let titles = columns.map(|column| column.title.to_owned());
    let lines: Vec<[String; N]> = std::iter::once(titles).chain(rows).collect();
    let widths: [usize; N] =
        std::array::from_fn(|i| lines.iter().map(|line| line[i].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for ((cell, column), width) in line.iter().zip(columns).zip(widths) {
            let _ = match column.right {
                true => write!(row, "{cell:>width$}  "),
                false => write!(row, "{cell:<width$}  "),
            };
        }
        text += row.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rates::{CauseRow, Over, PeerPathRow, PeerRow};
    use crate::top::sample::Silent;
    use srd_net::PathStates;

    #[test]
    fn paths_out_of_use_are_listed_and_others_if_asked_for() {
        let path = |path: u8, state: &'static str| PeerPathRow {
            path,
            state: state.into(),
            ..PeerPathRow::default()
        };
        let peer = PeerRow {
            address: "10.0.0.2:17408".into(),
            paths: Some(2),
            paths_down: Some(1),
            path_states: Some(PathStates { active: 1, suspect: 1, ..PathStates::default() }),
            path_list: vec![path(0, "active"), path(1, "suspect")],
            ..PeerRow::default()
        };
        let causes = vec![CauseRow { cause: "path_order", per_s: Some(2.0), packets: 7 }];
        let process = Process { pid: 1, peers: vec![peer], causes, ..Process::default() };
        let overview = Overview { processes: vec![process], silent: Vec::new() };
        let text = describe(&overview, false);
        assert!(text.contains("1/2 (1 suspect)"), "{text}");
        assert!(text.contains("by cause (and since the beginning): path order 2.0 (7)\n"), "{text}");
        assert!(text.contains("10.0.0.2:17408     1            0  suspect"), "{text}");
        assert!(!text.contains("active") && describe(&overview, true).contains(" active "), "{text}");
    }

    #[test]
    fn every_process_is_listed_with_its_peers() {
        let peer = |i: usize| PeerRow {
            address: format!("10.0.0.2:{i}"),
            over: if i == 0 { Over::SharedMemory } else { Over::Network },
            note: (i == 1).then(|| "SRD_SHM=off in this process".into()),
            ..PeerRow::default()
        };
        let process = |pid, peers| Process {
            pid,
            program: "lmp".into(),
            address: "10.0.0.1:17408".into(),
            endpoints: if pid == 1 { (128..138).collect() } else { Vec::new() },
            peers,
            ..Process::default()
        };
        let overview = Overview {
            processes: vec![process(1, (0..MOST_PEERS + 3).map(peer).collect()), process(20, Vec::new())],
            silent: vec![Silent { pid: 9, program: "stopped".into(), why: "it does not answer".into() }],
        };
        let text = describe(&overview, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("pid  program  tx Gb/s"), "{text}");
        assert!(lines[1].starts_with("  1  lmp            -"), "{text}");
        assert!(
            text.contains("1 lmp, 10.0.0.1:17408, endpoints 128 129 130 131 132 133 134 135 and more:"),
            "{text}"
        );
        assert!(text.contains("10.0.0.2:0   shared memory"), "{text}");
        assert!(text.contains("SRD_SHM=off in this process\n"), "{text}");
        assert!(text.contains("and 3 more, which move less"), "{text}");
        assert!(text.contains("20 lmp, 10.0.0.1:17408: no peers\n"), "{text}");
        assert!(text.ends_with("\n\n9 stopped: it does not answer\n"), "{text}");
        let nobody = Overview { processes: Vec::new(), ..overview };
        assert_eq!(describe(&nobody, false), "9 stopped: it does not answer\n");
    }
}
