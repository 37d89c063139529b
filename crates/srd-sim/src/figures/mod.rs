//! Figures and tables that others have published, made again with simulated hosts: which there are, and the page that shows
//! them, each beside what was published. One file for each publication.

mod efa_second_generation;
mod srd_paper;

use crate::record::chart::escape;
use crate::record::page::{END, beginning};
use std::fmt::Write;

/// Something published.
#[derive(Debug)]
pub struct Figure {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// Makes it again. Tells `watch` which share is done; `None` if that returned false.
    make: fn(&mut dyn FnMut(f64) -> bool) -> Option<Drawn>,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Drawn {
    /// SVG with a legend.
    chart: String,
    caption: String,
    findings: Vec<Finding>,
    /// What did not go as it should, a line each.
    pub complaints: Vec<String>,
}

/// A number that was published, in words, and what it is here.
#[derive(Clone, PartialEq, Debug)]
struct Finding {
    what: &'static str,
    published: &'static str,
    here: String,
}

/// All, in the order of the page.
pub static ALL: [&Figure; 7] = [
    &srd_paper::INCAST_BY_SIZE,
    &srd_paper::INCAST_DISTRIBUTION,
    &srd_paper::RACK_TO_RACK,
    &efa_second_generation::DATA_AHEAD,
    &efa_second_generation::IN_FLIGHT,
    &efa_second_generation::ALL_REDUCE,
    &efa_second_generation::GENERATIONS,
];

impl Figure {
    /// The figure of that name.
    pub fn named(name: &str) -> Option<&'static Figure> {
        ALL.into_iter().find(|figure| figure.name == name)
    }

    /// Makes it. `watch` is told now and then which share is done; `None` if it returned false.
    pub fn make(&self, watch: &mut dyn FnMut(f64) -> bool) -> Option<Drawn> {
        (self.make)(watch)
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
            drawn.chart,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_made_and_says_what_was_published() {
        let made: Vec<(&Figure, Drawn)> = ALL
            .into_iter()
            .map(|figure| {
                let mut last = 0.0;
                let drawn = figure.make(&mut |done| {
                    assert!((last..=1.0).contains(&done), "{}: {done} after {last}", figure.name);
                    last = done;
                    true
                });
                (figure, drawn.expect("nobody stopped it"))
            })
            .collect();
        for (figure, drawn) in &made {
            assert_eq!(drawn.complaints, [] as [String; 0], "{}", figure.name);
            assert!(!drawn.findings.is_empty() && drawn.chart.contains("<path"), "{}", figure.name);
            assert!(Figure::named(figure.name).is_some_and(|named| std::ptr::eq(named, *figure)));
        }
        let page = page(&made, "srd figures --out <here>", "a program");
        assert!(page.contains("srd figures --out &lt;here&gt;") && page.ends_with(END));
        assert_eq!(page.matches("<figure").count(), ALL.len());
    }

    #[test]
    fn who_has_seen_enough_stops_it() {
        assert_eq!(srd_paper::INCAST_BY_SIZE.make(&mut |_| false), None);
    }
}
