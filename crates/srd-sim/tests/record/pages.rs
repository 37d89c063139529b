//! The page stands alone and says what it shows.

use crate::{FAULTS, INCAST, directory, record, scenario, text};
use srd_sim::record::{PAGE, Recording, Traced};

fn page(name: &str, of: &str, sets: &[&str]) -> String {
    let recording = Recording {
        command: "srd sim a.toml --set \"name=<b>\"".into(),
        program: "OpenSRD 1.2.3 (abcdef)".into(),
        ..Recording::to(directory(name))
    };
    record(&scenario(of, sets), &recording);
    text(&recording, PAGE)
}

#[test]
fn the_page_needs_nothing_else() {
    let page = page("alone-page", INCAST, &[]);
    for word in ["http:", "https:", "<script", "<link", "<img", "@import", "url("] {
        assert!(!page.contains(word), "{word} on the page");
    }
}

#[test]
fn every_figure_says_what_it_is_and_where_it_comes_from() {
    let page = page("figures", &format!("{INCAST}{FAULTS}"), &[]);
    let figures: Vec<&str> =
        page.split("<figure>").skip(1).map(|rest| rest.split("</figure>").next().unwrap()).collect();
    let titles = [
        "completion time (us)",
        "rate of a flow (Gb/s)",
        "all flows together (Gb/s)",
        "waiting (KB)",
        "paths (%)",
    ];
    assert_eq!(figures.len(), titles.len());
    for (figure, title) in figures.iter().zip(titles) {
        assert!(figure.contains(&format!(">{title}</text>")), "no axis {title}");
        assert!(
            figure.contains("seed 7") && figure.contains("--set &quot;name=&lt;b&gt;&quot;"),
            "{title}: whence"
        );
        assert!(
            figure.contains("OpenSRD 1.2.3 (abcdef)") && figure.contains("<figcaption>"),
            "{title}: whence"
        );
        assert!(figure.matches("<text").count() > 6, "{title}: ticks");
        assert!(figure.contains("<h3>"), "{title}: a figure that travels alone has a title");
    }
    assert!(page.contains("Why the slowest flow took so long"));
}

#[test]
fn few_queues_are_drawn_by_name_and_many_together() {
    let queues = |name: &str, of: &str| {
        let page = page(name, of, &["queues.capacity=1MB"]);
        let figure = page.split("<h3>Queues over time</h3>").nth(1).unwrap_or_default();
        figure.split("</figure>").next().unwrap_or_default().to_string()
    };
    let one = queues("one-queue", INCAST);
    assert!(one.contains("<title>leaf0-&gt;h0</title>") && one.contains("longest of the others"), "{one}");
    let senders = INCAST.find("[[workload]]").unwrap();
    let everyone = format!("{}[[workload]]\nkind = \"all-to-all\"\nsize = \"300KB\"\n", &INCAST[..senders]);
    let many = queues("many-queues", &everyone);
    assert!(many.contains("longest of all") && many.contains("a tenth is longer"), "{many}");
    assert!(many.matches("<title>").count() == 2, "lines hide one another");
}

#[test]
fn the_program_says_of_which_commit_it_is() {
    let program = srd_sim::record::program();
    let version = concat!("OpenSRD ", env!("CARGO_PKG_VERSION"), " (commit ");
    let commit = program.strip_prefix(version).and_then(|rest| rest.strip_suffix(')'));
    let named = |commit: &str| commit.len() >= 12 && commit.chars().all(|c| c.is_ascii_hexdigit());
    assert!(commit.is_some_and(|commit| commit == "unknown" || named(commit)), "{program}");
}

#[test]
fn what_a_run_has_not_is_not_drawn() {
    let text = INCAST.replace("size = \"300KB\"\n", "persistent = true\n");
    let page = page("endless-page", &text, &["end_us=300", "transport.paths=1"]);
    assert!(!page.contains("completion time (us)") && !page.contains("paths (%)"));
    assert!(page.contains("8 without end") && page.contains("Jain"), "what such flows come to");
    assert!(!page.contains("NaN") && !page.contains("inf"), "no number is none");
}

#[test]
fn a_scenario_of_one_byte_has_a_page() {
    let text = INCAST.replace("senders = 8", "sender_hosts = [4]");
    let recording = Recording { traced: Traced::No, ..Recording::to(directory("byte")) };
    record(&scenario(&text, &["workload.size=1B"]), &recording);
    let page = crate::text(&recording, PAGE);
    assert!(page.contains("1 flow on a fabric of 12 hosts") && !page.contains("NaN"));
}
