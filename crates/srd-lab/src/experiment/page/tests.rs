use super::*;
use crate::experiment::campaign::Machine;
use crate::experiment::measure::{Completion, Figures, Throughput};
use crate::experiment::plan::Experiment;

const FILE: &str = "\
name = \"Made <up>\"
about = \"A test\"
repeats = 3
transports = [\"srd\", \"tcp-cubic\"]
[[case]]
name = \"sized\"
traffic = { kind = \"incast\", flows = 2, from = [\"host1\"], to = \"host0\", bytes = 1000 }
[[case]]
name = \"timed\"
fault = [{ at_ms = 500, heal_ms = 1500, kind = \"blackhole\", at = \"spine1\" }]
traffic = { kind = \"pairs\", pairs = [\"host0->host4\", \"host1->host5\"], seconds = 2 }
";

fn figures() -> Figures {
    let (complaints, times_ms) = (Vec::new(), Vec::new());
    Figures {
        again_percent: Some(0.0),
        incomplete: 0,
        complaints,
        times_ms,
        completion: None,
        throughput: None,
        job: None,
    }
}

fn run(cpu_percent: f64, figures: Figures, series_mbps: Vec<Vec<f64>>) -> RunResult {
    let beside_series_mbps = Vec::new();
    RunResult {
        seed: 1,
        cpu_percent,
        longest_pause_ms: 0.0,
        figures,
        beside: None,
        bin_ms: 20.0,
        series_mbps,
        beside_series_mbps,
    }
}

fn sized(last_ms: f64) -> RunResult {
    let completion = Completion {
        first_ms: 1.0,
        median_ms: last_ms,
        last_ms,
        ideal_ms: 1.5,
        last_by_ideal: last_ms / 1.5,
        last_by_first: last_ms,
    };
    run(30.0, Figures { times_ms: vec![1.0, last_ms], completion: Some(completion), ..figures() }, Vec::new())
}

fn timed(cpu_percent: f64, stall_ms: f64) -> RunResult {
    let throughput = Throughput {
        flows_mbps: vec![stall_ms; 2],
        sum_mbps: 90.0,
        of_possible: 0.9,
        slowest_of_share: 0.8,
        longest_stall_ms: stall_ms,
        longest_stall_at_ms: 0.0,
        jain: Some(1.0),
        settling: None,
    };
    let figures = Figures { throughput: Some(throughput), ..figures() };
    run(cpu_percent, figures, vec![vec![stall_ms; 100], vec![40.0; 100]])
}

fn report() -> Report {
    let experiment: Experiment = Experiment::from_toml(FILE).unwrap();
    let of = |value: f64| Spread { median: value, least: value / 2.0, most: value * 2.0 };
    let mut results = Vec::new();
    for transport in ["srd", "tcp-cubic"] {
        let summary = vec![("last_by_ideal".to_string(), of(2.0)), ("cpu_percent".to_string(), of(30.0))];
        let runs = [6.0, 3.0, 4.0].map(sized).to_vec();
        results.push(CaseResult {
            case: "sized".into(),
            transport: transport.into(),
            runs,
            discarded: 0,
            failed: None,
            summary,
        });
    }
    for (transport, stall_ms, cpu_percent) in [("srd", 5.0, 30.0), ("tcp-cubic", 3000.0, 82.0)] {
        let summary =
            vec![("a_new_name".to_string(), of(7.0)), ("longest_stall_ms".to_string(), of(stall_ms))];
        let runs = vec![timed(cpu_percent, stall_ms)];
        results.push(CaseResult {
            case: "timed".into(),
            transport: transport.into(),
            runs,
            discarded: 4,
            failed: None,
            summary,
        });
    }
    let why = "this kernel has no congestion control \"dctcp\"".to_string();
    let left_out = vec![LeftOut { transport: "tcp-dctcp".into(), why }];
    let machine = Machine { kernel: "6.1".into(), processors: 2 };
    Report { experiment, left_out, machine, whole: true, results, discarded: 8 }
}

/// The figures whose titles are or begin with that.
fn figures_called<'a>(page: &'a str, title: &str) -> Vec<&'a str> {
    let begins = format!("<figure>\n<h3>{title}");
    page.match_indices(&begins).map(|(at, _)| page[at..].split("</figure>").next().unwrap()).collect()
}

#[test]
fn a_page_needs_nothing_else_and_names_cannot_break_out() {
    let page = page(&report(), "srd lab experiment a&b.toml", "a program");
    assert!(page.contains("Made &lt;up&gt;") && !page.contains("<up>") && page.contains("a&amp;b.toml"));
    assert!(!page.contains("<script") && !page.contains("http"), "{page}");
    assert!(page.contains("color-scheme: light dark"));
    assert!(page.ends_with(END));
}

#[test]
fn what_a_reader_must_know_is_said() {
    let page = page(&report(), "", "");
    assert!(page.contains("tcp-dctcp was left out: this kernel has no"), "{page}");
    assert!(page.contains("<tr><th>Runs discarded<td>8: "), "{page}");
    assert!(page.contains("tcp-cubic: the machine was never quiet enough"), "{page}");
    assert!(!page.contains("srd: the machine was never quiet enough"), "{page}");
    assert!(page.contains("Linux 6.1, 2 processors"), "{page}");
    assert!(page.contains("From 500 to 1500 ms: spine1 swallows all packets."), "{page}");
}

#[test]
fn a_run_in_which_the_machine_stood_still_is_named() {
    let mut report = report();
    report.results[2].runs[0].longest_pause_ms = 900.0;
    let page = page(&report, "", "");
    assert!(
        page.contains("srd: the machine was never quiet enough; its last run stands, with processors"),
        "{page}"
    );
    assert!(page.contains("standing still for 900 ms"), "{page}");
}

#[test]
fn what_was_measured_stands_in_tables_and_bars_with_its_spread() {
    let page = page(&report(), "", "");
    assert!(page.contains("<tr><th>srd<td>2.000<br>(1.000-4.000)<td>30<br>(15-60)<td>0</tr>"), "{page}");
    let bars = figures_called(&page, "Last arrival by the ideal");
    assert_eq!(bars.len(), 1, "{page}");
    assert!(bars[0].contains("<title>srd: 2</title>") && bars[0].contains("<title>tcp-cubic: 2</title>"));
    assert!(bars[0].contains("sized") && !bars[0].contains(">timed<"), "only where it was measured");
}

#[test]
fn what_has_no_name_yet_is_shown_under_its_own() {
    let page = page(&report(), "", "");
    assert!(page.contains("<th>a_new_name") && page.contains("<td>7<td>"), "{page}");
    assert_eq!(figures_called(&page, "A_new_name").len(), 1, "{page}");
}

#[test]
fn wide_ranges_are_drawn_by_orders_of_magnitude() {
    let page = page(&report(), "", "");
    let stalls = figures_called(&page, "Longest stall");
    assert!(
        stalls[0].contains("By orders of magnitude.") && stalls[0].contains(">1000</text>"),
        "{stalls:?}"
    );
    assert!(!figures_called(&page, "Last arrival by the ideal")[0].contains("By orders of magnitude."));
}

#[test]
fn each_transport_has_a_figure_over_time_with_the_faults() {
    let page = page(&report(), "", "");
    let figures = figures_called(&page, "Throughput of each flow over time, ");
    assert_eq!(figures.len(), 2, "timed flows only");
    for figure in figures {
        assert!(
            figure.contains("<title>host0 to host4</title>") && figure.contains("host1 to host5"),
            "{figure}"
        );
        assert!(figure.contains("spine1 swallows all packets"), "{figure}");
        assert_eq!(figure.contains("Peaks are cut"), figure.contains("over time, tcp-cubic"), "{figure}");
        // The plot is 408 wide from 58 on, and 2 s long.
        assert!(figure.contains("M160.0 12V244M364.0 12V244"), "{figure}");
    }
}

#[test]
fn of_several_runs_the_middle_one_is_drawn() {
    let mut report = report();
    report.results[2].runs = [40.0, 20.0, 30.0].map(|stall| timed(30.0, stall)).to_vec();
    let page = page(&report, "", "");
    let figure = figures_called(&page, "Throughput of each flow over time, srd")[0];
    assert!(figure.contains("Of 3 runs the one whose longest stall is the middle one, 30.0 ms."), "{figure}");
    let times = figures_called(&page, "Completion times");
    assert_eq!(times.len(), 1, "flows with a size only");
    assert!(times[0].contains("<title>srd</title>") && times[0].contains("ideal"), "{times:?}");
}

#[test]
fn what_did_not_finish_is_in_no_step() {
    let mut report = report();
    for result in &mut report.results[..2] {
        for run in &mut result.runs {
            run.figures = Figures { times_ms: vec![1.0], incomplete: 1, completion: None, ..figures() };
        }
    }
    let page = page(&report, "", "");
    let line = figures_called(&page, "Completion times")[0];
    // From the bottom to half of the height of 232.
    assert!(line.contains("244.0L") && line.contains(" 128.0\"") && !line.contains(" 12.0\""), "{line}");
    assert!(page.contains("srd: 3 flows did not finish"), "{page}");
}
