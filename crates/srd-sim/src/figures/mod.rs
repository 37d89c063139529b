//! Figures and tables that others have published, made again with simulated hosts: which there are, and the page that shows
//! them, each beside what was published. A figure is a file (`file` reads it, `from_file` makes it), or code where a file cannot say
//! what it takes; `lab` runs scenarios for both.

mod broadcom;
mod efa_second_generation;
mod file;
mod from_file;
mod lab;
mod measured;
mod sandia;
mod srd_paper;

use crate::sweep::Key;
use file::FigureFile;
use lab::Lab;
pub use lab::Planned;
use serde::{Deserialize, Serialize};
use srd_chart::{Chart, END, beginning, escape};
use std::fmt::Write;
use std::sync::LazyLock;

/// Something published.
#[derive(Debug)]
pub struct Figure {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    make: Make,
}

/// How a figure is made again.
#[derive(Debug)]
enum Make {
    Code {
        /// The runs that it takes; fewer and shorter ones of a coarse figure.
        runs: fn(bool) -> Vec<Planned>,
        /// Makes them, and draws what came of them. `None` if somebody has seen enough.
        draw: fn(&mut Lab<'_>) -> Option<Drawn>,
    },
    File(&'static FigureFile),
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Drawn {
    chart: Chart,
    caption: String,
    findings: Vec<Finding>,
    /// What did not go as it should, a line each.
    pub complaints: Vec<String>,
}

/// A number that was published, in words, and what it is here.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
struct Finding {
    what: String,
    published: String,
    here: String,
}

/// NSCC as its authors' simulator has it: marks between 0.2 and 0.8 of a bandwidth-delay product, by what a packet leaves behind,
/// and packets without data before those with data. For each use: what ports hold, and what is done with more than that.
pub const NSCC: [&str; 7] = [
    "transport.kind=nscc",
    "transport.class=1",
    "transport.control_class=0",
    "queues.classes=strict",
    "queues.ecn_min=0.2bdp",
    "queues.ecn_max=0.8bdp",
    "queues.ecn_at=leaving",
];
/// The same, and switches cut what does not fit.
pub const NSCC_CUT: [&str; 8] =
    [NSCC[0], NSCC[1], NSCC[2], NSCC[3], NSCC[4], NSCC[5], NSCC[6], "queues.trim=true"];

fn finding(what: impl Into<String>, published: impl Into<String>, here: impl Into<String>) -> Finding {
    Finding { what: what.into(), published: published.into(), here: here.into() }
}

/// Figures of one publication, in the order of the page.
#[derive(Debug)]
pub struct Group {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Its figures.
    pub figures: Vec<&'static Figure>,
}

/// Figures that are code, by group, each with its place on the page. Groups that are not named here follow.
static CODE: [(&str, &[(u64, &Figure)]); 5] = [
    (
        "srd-paper",
        &[
            (1, &srd_paper::INCAST_BY_SIZE),
            (2, &srd_paper::INCAST_DISTRIBUTION),
            (3, &srd_paper::PERSISTENT_INCAST),
            (4, &srd_paper::RACK_TO_RACK),
            (5, &srd_paper::DEAD_LINK),
        ],
    ),
    (
        "efa",
        &[
            (1, &efa_second_generation::DATA_AHEAD),
            (2, &efa_second_generation::IN_FLIGHT),
            (3, &efa_second_generation::ALL_REDUCE),
            (4, &efa_second_generation::GENERATIONS),
        ],
    ),
    ("mellanox", &[]),
    ("broadcom", &[(1, &broadcom::GPCNET), (7, &broadcom::LIVE_LOCK), (8, &broadcom::LATENCY)]),
    ("sandia", &[(4, &sandia::BISECTION)]),
];

/// Figures that are files.
static FILES: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    let figure = |file: &'static FigureFile| Figure {
        name: &file.name,
        title: &file.title,
        source: &file.source,
        make: Make::File(file),
    };
    file::all().iter().map(figure).collect()
});

/// All groups, in the order of the page.
pub static GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| {
    let group = |(name, code): (&'static str, &'static [(u64, &'static Figure)])| {
        let files = file::all().iter().zip(FILES.iter()).filter(|(file, _)| file.group == name);
        let mut figures: Vec<(u64, &'static Figure)> =
            files.map(|(file, figure)| (file.page, figure)).collect();
        figures.extend(code);
        figures.sort_by_key(|(page, _)| *page);
        Group { name, figures: figures.into_iter().map(|(_, figure)| figure).collect() }
    };
    let files_alone = file::groups().into_iter().filter(|name| CODE.iter().all(|(group, _)| group != name));
    CODE.iter().copied().chain(files_alone.map(|name| (name, &[][..]))).map(group).collect()
});

/// What is wrong in files of figures that cannot be read; those figures are missing.
pub fn wrong() -> &'static [String] {
    file::wrong()
}

/// All figures, in the order of the page.
pub fn all() -> impl Iterator<Item = &'static Figure> {
    GROUPS.iter().flat_map(|group| group.figures.iter().copied())
}

impl Group {
    /// The group of that name.
    pub fn named(name: &str) -> Option<&'static Group> {
        GROUPS.iter().find(|group| group.name == name)
    }
}

impl Figure {
    /// The figure of that name.
    pub fn named(name: &str) -> Option<&'static Figure> {
        all().find(|figure| figure.name == name)
    }

    /// By what its result is found again. All else that decides it is in the program.
    pub fn key(&self, quick: bool) -> Key {
        Key::of(self.name, &(self.name, quick))
    }

    /// The runs that it takes, in their order.
    pub fn runs(&self, quick: bool) -> Vec<Planned> {
        match self.make {
            Make::Code { runs, .. } => runs(quick),
            Make::File(file) => from_file::runs(file, quick),
        }
    }

    /// Makes it, `quick` with fewer and shorter runs. `watch` is told now and then which share is done; `None` if it returned
    /// false.
    pub fn make(&self, quick: bool, watch: &mut dyn FnMut(f64) -> bool) -> Option<Drawn> {
        let mut lab = Lab::new(quick, watch);
        match self.make {
            Make::Code { draw, .. } => draw(&mut lab),
            Make::File(file) => from_file::make(file, &mut lab),
        }
    }
}

/// The page of these figures. `command` made it, `program` ran.
pub fn page(figures: &[(&Figure, Drawn)], command: &str, program: &str) -> String {
    let summary =
        "Figures and tables that others have published, made again with simulated hosts that run OpenSRD.";
    let mut out = beginning("Published figures", summary);
    out.push_str("<div class=\"figures\">\n");
    for (figure, drawn) in figures {
        let _ = writeln!(
            out,
            "<figure id=\"{}\">\n<h3>{}</h3>\n{}<figcaption>{}</figcaption>",
            figure.name,
            escape(figure.title),
            drawn.chart.html(),
            escape(&drawn.caption)
        );
        for complaint in &drawn.complaints {
            let _ = writeln!(out, "<p class=\"complaint\">{}</p>", escape(complaint));
        }
        out.push_str("<table>\n<tr><th><th>published<th>here</tr>\n");
        for Finding { what, published, here } in &drawn.findings {
            let (what, published, here) = (escape(what), escape(published), escape(here));
            let _ = writeln!(out, "<tr><th>{what}<td>{published}<td>{here}</tr>");
        }
        let _ = writeln!(
            out,
            "</table>\n<p class=\"from\">After {} &middot; <code>srd figures {}</code> &middot; {}</p>\n</figure>",
            escape(figure.source),
            figure.name,
            escape(program)
        );
    }
    let _ = writeln!(out, "</div>\n<p class=\"from\"><code>{}</code></p>", escape(command));
    out.push_str(END);
    out
}

/// The same as JSON, for programs: what was published, what it is here, and the points of every line.
pub fn data(figures: &[(&Figure, Drawn)], command: &str, program: &str) -> serde_json::Value {
    let figures: Vec<serde_json::Value> = figures
        .iter()
        .map(|(figure, drawn)| {
            serde_json::json!({
                "name": figure.name,
                "title": figure.title,
                "source": figure.source,
                "findings": drawn.findings,
                "chart": drawn.chart.data(),
                "complaints": drawn.complaints,
            })
        })
        .collect();
    serde_json::json!({ "command": command, "program": program, "figures": figures })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::batch;
    use std::sync::atomic::AtomicBool;

    /// They take as long as all others together: `make figures` makes them, here they are begun.
    const LONG: [&str; 5] =
        ["gpcnet", "osu-alltoall", "osu-ialltoall", "roce-beside-tcp", "roce-queue-pairs"];
    /// How far, at least.
    const BEGUN: f64 = 0.1;

    #[test]
    fn every_figure_is_made_and_says_what_was_published() {
        let figures: Vec<&Figure> = all().collect();
        let drawn =
            batch::run_all(figures.len(), batch::cores(), &AtomicBool::new(false), &|_| {}, &|number, _| {
                let (figure, mut last) = (figures[number], 0.0);
                let drawn = figure.make(true, &mut |done| {
                    assert!((last..=1.0).contains(&done), "{}: {done} after {last}", figure.name);
                    last = done;
                    done < BEGUN || !LONG.contains(&figure.name)
                });
                assert!(drawn.is_some() || last >= BEGUN, "{}: ended after {last}", figure.name);
                drawn
            });
        let made: Vec<(&Figure, Drawn)> =
            figures.into_iter().zip(drawn).filter_map(|(figure, drawn)| Some((figure, drawn?))).collect();
        assert_eq!(made.len(), all().count() - LONG.len());
        for (figure, drawn) in &made {
            assert_eq!(drawn.complaints, [] as [String; 0], "{}", figure.name);
            assert!(!drawn.findings.is_empty() && drawn.chart.html().contains("<path"), "{}", figure.name);
            assert!(Figure::named(figure.name).is_some_and(|named| std::ptr::eq(named, *figure)));
        }
        let page = page(&made, "srd figures --out <here>", "a program");
        assert!(page.contains("srd figures --out &lt;here&gt;") && page.ends_with(END));
        assert_eq!(page.matches("<figure").count(), made.len());
    }

    #[test]
    fn every_name_is_one_figures_or_one_groups() {
        let mut names: Vec<&str> = all().map(|figure| figure.name).collect();
        names.extend(GROUPS.iter().map(|group| group.name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn who_has_seen_enough_stops_it() {
        assert_eq!(srd_paper::INCAST_BY_SIZE.make(true, &mut |_| false), None);
    }
}
