//! The live view on a terminal: processes above, peers and paths of the chosen one below.

use super::cells::{
    Column, PATH_COLUMNS, PEER_COLUMNS, PROCESS_COLUMNS, causes, path_rows, peer_cells, process_cells,
};
use super::rates::Process;
use super::text::named;
use super::view::View;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState, Wrap};

const KEYS: &str = "q end   up/down choose   s order   p freeze";
const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
const BAD: Style = Style::new().fg(Color::Red);

/// Draws everything. `nobody`: what is said if there is nothing to see.
pub fn draw(frame: &mut Frame<'_>, view: &View, nobody: &str) {
    let rows = view.overview().processes.len() as u16;
    let silent = view.overview().silent.len() as u16;
    // A frame and titles; the lower tables keep at least half.
    let most = (frame.area().height / 2).max(4);
    let upper = Constraint::Length((rows + 2).clamp(3, most));
    let areas = Layout::vertical([
        upper,
        Constraint::Length(silent.min(3)),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [processes, silent, lower, keys] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(KEYS).style(FAINT), keys);
    if view.overview().processes.is_empty() {
        let text = if view.has_looked() { nobody } else { "looking..." };
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), processes);
    } else {
        draw_processes(frame, processes, view);
    }
    let lines = view.overview().silent.iter();
    let lines =
        lines.map(|silent| Line::from(format!("{}{}: {}", silent.pid, named(&silent.program), silent.why)));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).style(BAD), silent);
    if let Some(process) = view.chosen() {
        draw_chosen(frame, lower, process);
    }
}

fn draw_processes(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let frozen = if view.is_frozen() { ", frozen" } else { "" };
    let count = view.overview().processes.len();
    let title = format!("{count} processes, by {}{frozen}", view.order().name());
    let mut state = TableState::default().with_selected(view.chosen_row());
    let rows = view.overview().processes.iter().map(|process| (process_cells(process), false));
    let table = table(&title, &PROCESS_COLUMNS, rows).row_highlight_style(CHOSEN);
    frame.render_stateful_widget(table, area, &mut state);
}

fn draw_chosen(frame: &mut Frame<'_>, area: Rect, process: &Process) {
    let paths = path_rows(process);
    let wanted = paths.len().min(12) as u16 + 2;
    let paths_room = Constraint::Length(wanted.min(area.height / 2));
    let [peers_area, causes_area, paths_area] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(1), paths_room]).areas(area);
    let listed = process.peers.len();
    let near = process.shared_memory_peers;
    let title = format!(
        "peers of {} {}: {} over the network, {near} through shared memory",
        process.pid, process.program, process.peer_count
    );
    let is_bad = |cells: &[String; PEER_COLUMNS.len()]| cells[12].contains("not answer");
    let rows = process.peers.iter().take(listed).map(peer_cells).map(|cells| {
        let bad = is_bad(&cells);
        (cells, bad)
    });
    frame.render_widget(table(&title, &PEER_COLUMNS, rows), peers_area);
    frame.render_widget(Paragraph::new(causes(process)), causes_area);
    draw_paths(frame, paths_area, process, paths);
}

/// Those out of use first, then the busiest.
fn draw_paths(
    frame: &mut Frame<'_>,
    area: Rect,
    process: &Process,
    rows: Vec<([String; PATH_COLUMNS.len()], bool)>,
) {
    let down = process.paths.iter().filter(|path| path.down > 0).count();
    let title =
        format!("paths; {} source ports, {down} of them out of use for some peer", process.paths.len());
    frame.render_widget(table(&title, &PATH_COLUMNS, rows.into_iter()), area);
}

/// A table whose columns are as wide as what is in them. Rows that are marked are bad.
fn table<'a, const N: usize>(
    title: &str,
    columns: &[Column; N],
    rows: impl Iterator<Item = ([String; N], bool)>,
) -> Table<'a> {
    let rows: Vec<_> = rows.collect();
    let width = |i: usize| {
        let cells = rows.iter().map(|(cells, _)| cells[i].chars().count());
        cells.chain([columns[i].title.len()]).max().unwrap_or(0) as u16
    };
    let widths: [Constraint; N] = std::array::from_fn(|i| Constraint::Length(width(i)));
    let cell = |text: String, column: &Column| {
        let alignment = if column.right { Alignment::Right } else { Alignment::Left };
        Cell::from(Text::from(text).alignment(alignment))
    };
    let line = |cells: [String; N]| {
        Row::new(cells.into_iter().zip(columns).map(|(text, column)| cell(text, column)))
    };
    let titles = line(columns.map(|column| column.title.to_owned())).style(TITLE);
    let block = Block::new().borders(Borders::TOP).title(title.to_owned());
    let rows: Vec<Row<'a>> = rows
        .iter()
        .map(|(cells, bad)| line(cells.clone()).style(if *bad { BAD } else { Style::new() }))
        .collect();
    Table::new(rows, widths).header(titles).block(block).column_spacing(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rates::{CauseRow, Over, Overview, PathRow, PeerPathRow, PeerRow, PeerState, Rates};
    use crate::top::sample::Silent;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// The lines of a terminal of that size.
    fn drawn(view: &View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view, "nobody here")).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn process(pid: u32) -> Process {
        let peer = |address: &str, over, state| PeerRow {
            address: address.into(),
            over,
            state,
            tx_gbps: Some(1.5),
            path_list: vec![
                PeerPathRow { path: 4, state: "active".into(), tx_gbps: Some(1.5), ..PeerPathRow::default() },
                PeerPathRow { path: 9, state: "probing".into(), ..PeerPathRow::default() },
            ],
            ..PeerRow::default()
        };
        Process {
            pid,
            program: "lmp".into(),
            address: "10.0.0.1:17408".into(),
            interface: "eth1".into(),
            mtu: 9000,
            rates: Some(Rates { tx_gbps: f64::from(pid), ..Rates::default() }),
            peer_count: 1,
            shared_memory_peers: 1,
            peers: vec![
                peer("10.0.0.1:7", Over::SharedMemory, None),
                peer("10.0.0.2:17408", Over::Network, Some(PeerState::Silent)),
            ],
            paths: vec![
                PathRow { path: 1, tx_gbps: Some(1.0), tx_bytes: 1, ..PathRow::default() },
                PathRow { path: 2, tx_gbps: Some(0.0), tx_bytes: 2, down: 1, ..PathRow::default() },
            ],
            causes: vec![CauseRow { cause: "timer", per_s: Some(2.0), packets: 9 }],
            ..Process::default()
        }
    }

    #[test]
    fn processes_stand_above_the_peers_and_paths_of_the_chosen_one() {
        let silent = vec![Silent { pid: 99, program: "stopped".into(), why: "no answer".into() }];
        let mut view = View::default();
        view.update(Overview { processes: vec![process(7), process(8)], silent });
        let lines = drawn(&view, 160, 30);
        let at = |text: &str| {
            lines
                .iter()
                .position(|line| line.contains(text))
                .unwrap_or_else(|| panic!("{text} in {lines:#?}"))
        };
        assert!(lines[0].starts_with("2 processes, by rate"), "{lines:#?}");
        assert!(lines[1].contains("pid  program  tx Gb/s"), "{lines:#?}");
        assert!(
            lines[2].contains("8  lmp         8.00") && lines[3].contains("7  lmp         7.00"),
            "{lines:#?}"
        );
        assert!(lines[2].contains("MTU 9000, in clear"));
        let order = [
            at("99 stopped: no answer"),
            at("peers of 8 lmp: 1 over the network, 1 through shared memory"),
            at("10.0.0.1:7      shared memory"),
            at("does not answer any more"),
            at("timer 2.0 (9)"),
            at("paths; 2 source ports, 1 of them out of use for some peer"),
            at("probing"),
            at("active"),
            at(KEYS),
        ];
        assert!(order.is_sorted(), "{order:?} {lines:#?}");
    }

    #[test]
    fn small_terminals_show_what_fits() {
        let mut view = View::default();
        view.update(Overview { processes: (1..40).map(process).collect(), silent: Vec::new() });
        for (width, height) in [(1, 1), (10, 3), (80, 24), (40, 5)] {
            drawn(&view, width, height);
        }
        let lines = drawn(&view, 80, 24);
        assert!(lines[2].starts_with(" 39  lmp"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("peers of 39")), "{lines:#?}");
    }

    #[test]
    fn the_chosen_process_is_in_sight() {
        let mut view = View::default();
        view.update(Overview { processes: (1..40).map(process).collect(), silent: Vec::new() });
        for _ in 0..38 {
            view.press(ratatui::crossterm::event::KeyCode::Down.into());
        }
        let lines = drawn(&view, 80, 24);
        assert!(lines.iter().any(|line| line.starts_with("  1  lmp")), "{lines:#?}");
    }

    #[test]
    fn an_empty_host_is_said_to_be_empty() {
        let mut view = View::default();
        assert_eq!(drawn(&view, 40, 10)[0], "looking...");
        view.update(Overview::default());
        assert_eq!(drawn(&view, 40, 10)[0], "nobody here");
    }
}
