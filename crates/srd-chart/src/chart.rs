//! Charts as SVG text: axes with titles and round ticks, lines, bands, bars, marks.
//!
//! Sizes are such that letters can be read on a phone, where a chart is as wide as the screen.

use crate::axis::{Axis, plain};
use crate::page::escape;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;
const LETTERS: u32 = 13;
/// Room for a letter of a name, and from a line of names to the next.
const LETTER: f64 = 7.0;
const LINE: f64 = 15.0;
/// Colours that can be told apart with any eyes (Okabe and Ito, 2008), but for the last, a grey.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#882255", "#777777"];
/// Lines with the same colour differ by their strokes.
const STROKES: [&str; 3] = ["", "6 3", "2 2"];

/// What is nearer than this in a chart cannot be told apart.
const APART: f64 = 0.3;

/// Most lines of a chart that can be told apart.
pub const MAX_LINES: usize = 8;

/// A line's label and points.
type Line = (String, Vec<(f64, Option<f64>)>);

/// See the module.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Chart {
    /// What it shows, for those who do not see it.
    name: String,
    x: Axis,
    y: Axis,
    marks: String,
    legend: String,
    lines: usize,
    /// What was drawn, for those who want numbers.
    drawn: Vec<Line>,
}

impl Chart {
    /// An empty one. `name`: what it shows, for those who do not see it.
    pub fn new(name: impl Into<String>, x: Axis, y: Axis) -> Chart {
        Chart {
            name: name.into(),
            x,
            y,
            marks: String::new(),
            legend: String::new(),
            lines: 0,
            drawn: Vec::new(),
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.place(value) * (HEIGHT - TOP - BOTTOM)
    }

    fn lines_of(&self, label: &str) -> Vec<String> {
        self.x.lines(label, (WIDTH - LEFT - RIGHT) / LETTER)
    }

    fn note(&mut self, swatch: &str, label: &str) {
        let label = escape(label);
        let _ = write!(
            self.legend,
            "<span><svg viewBox=\"0 0 22 10\" width=\"22\" height=\"10\" aria-hidden=\"true\">{swatch}</svg> {label}</span> "
        );
    }

    /// A line in the next colour, broken where there is no value.
    pub fn line(&mut self, label: &str, points: impl IntoIterator<Item = (f64, Option<f64>)>) {
        let colour = COLOURS[self.lines % COLOURS.len()];
        let stroke = STROKES[self.lines / COLOURS.len() % STROKES.len()];
        self.lines += 1;
        let points: Vec<(f64, Option<f64>)> = points.into_iter().collect();
        let mut path = String::new();
        let mut pen_down = false;
        for &(x, y) in &points {
            if let Some(y) = y {
                let word = if pen_down { 'L' } else { 'M' };
                let _ = write!(path, "{word}{:.1} {:.1}", self.x(x), self.y(y));
            }
            pen_down = y.is_some();
        }
        let style = format!("fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"{stroke}\"");
        let title = escape(label);
        let _ = writeln!(
            self.marks,
            "<path d=\"{path}\" {style} stroke-width=\"1.6\" stroke-linejoin=\"round\"><title>{title}</title></path>"
        );
        self.note(&format!("<path d=\"M0 5H22\" {style} stroke-width=\"3\"/>"), label);
        self.drawn.push((label.to_string(), points));
    }

    /// Diamonds: values that somebody else has published.
    pub fn published(&mut self, label: &str, points: &[(f64, f64)]) {
        let shape =
            |x: f64, y: f64| format!("<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5Z\" {DIAMOND}/>", y - 5.0);
        for &(x, y) in points {
            let _ = writeln!(self.marks, "{}", shape(self.x(x), self.y(y)));
        }
        self.note(&shape(11.0, 5.0), label);
        self.drawn.push((label.to_string(), points.iter().map(|&(x, y)| (x, Some(y))).collect()));
    }

    /// A bar in each group of an axis of names: number `n` of `of` beside each other, in the next colour.
    pub fn grouped_bars(&mut self, label: &str, (n, of): (usize, usize), values: &[Option<f64>]) {
        let colour = COLOURS[self.lines % COLOURS.len()];
        self.lines += 1;
        let width = 0.8 / of as f64;
        for (group, value) in (0..).map(f64::from).zip(values) {
            let Some(value) = *value else { continue };
            let from = group - 0.4 + n as f64 * width;
            let (left, right, top) = (self.x(from), self.x(from + width), self.y(value));
            let (width, height) = ((right - left - 1.0).max(0.5), (HEIGHT - BOTTOM - top).max(0.5));
            let title = escape(&format!("{label}: {}", plain(value)));
            let _ = writeln!(
                self.marks,
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"><title>{title}</title></rect>"
            );
        }
        self.note(&format!("<rect width=\"22\" height=\"10\" fill=\"{colour}\"/>"), label);
        self.drawn.push((label.to_string(), (0..).map(f64::from).zip(values.iter().copied()).collect()));
    }

    /// How far each of such bars might also have reached, from the least to the most.
    pub fn spreads(&mut self, (n, of): (usize, usize), spreads: &[Option<(f64, f64)>]) {
        for (group, spread) in (0..).map(f64::from).zip(spreads) {
            let Some((least, most)) = *spread else { continue };
            let x = self.x(group - 0.4 + (n as f64 + 0.5) * 0.8 / of as f64) - 0.5;
            let (bottom, top) = (self.y(least), self.y(most));
            let _ = writeln!(
                self.marks,
                "<path d=\"M{x:.1} {bottom:.1}V{top:.1}m-3 0h6M{:.1} {bottom:.1}h6\" fill=\"none\" stroke=\"currentColor\"/>",
                x - 3.0
            );
        }
    }

    /// A time in which something is different, between upright lines.
    pub fn span(&mut self, label: &str, from: f64, to: f64) {
        let (from, to, bottom) = (self.x(from), self.x(to), HEIGHT - BOTTOM);
        let grey = "fill=\"currentColor\" fill-opacity=\"0.07\"";
        let _ = writeln!(
            self.marks,
            "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{}\" {grey}/>\
             <path d=\"M{from:.1} {TOP}V{bottom}M{to:.1} {TOP}V{bottom}\" {DASHED}/>",
            to - from,
            bottom - TOP
        );
        let swatch =
            format!("<rect width=\"22\" height=\"10\" {grey}/><path d=\"M1 0V10M21 0V10\" {DASHED}/>");
        self.note(&swatch, label);
    }

    /// A band in the first colour between lower and upper values, broken where there are none.
    pub fn band(&mut self, label: &str, opacity: f64, points: &[(f64, Option<(f64, f64)>)]) {
        let style = format!("fill=\"{}\" fill-opacity=\"{opacity}\"", COLOURS[0]);
        for run in points.split(|(_, value)| value.is_none()).filter(|run| run.len() > 1) {
            let mut path = String::new();
            let inside = |&(x, value): &(f64, Option<(f64, f64)>)| value.map(|(low, high)| (x, low, high));
            let there = run.iter().filter_map(inside).map(|(x, _, high)| (x, high));
            let back = run.iter().rev().filter_map(inside).map(|(x, low, _)| (x, low));
            for (n, (x, y)) in there.chain(back).enumerate() {
                let word = if n == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{word}{:.1} {:.1}", self.x(x), self.y(y));
            }
            let _ = writeln!(self.marks, "<path d=\"{path}Z\" {style}/>");
        }
        self.note(&format!("<rect width=\"22\" height=\"10\" {style}/>"), label);
    }

    /// Bars in the first colour from 0 up: from where, to where, how high, and what is said of it.
    pub fn bars(&mut self, bars: impl IntoIterator<Item = (f64, f64, f64, String)>) {
        for (from, to, value, label) in bars {
            let (left, right, top) = (self.x(from), self.x(to), self.y(value));
            let (width, height) = ((right - left - 1.0).max(0.5), HEIGHT - BOTTOM - top);
            let (colour, label) = (COLOURS[0], escape(&label));
            let _ = writeln!(
                self.marks,
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"><title>{label}</title></rect>"
            );
        }
    }

    /// Stripes in the next colour that lie around levels of the y axis, each from where to where, and so high: what somebody was doing when. Those
    /// that nobody could tell apart are drawn as one.
    pub fn stripes(&mut self, label: &str, high: f64, stripes: impl IntoIterator<Item = (f64, f64, f64)>) {
        let colour = COLOURS[self.lines % COLOURS.len()];
        self.lines += 1;
        let mut drawn: Vec<(f64, f64, f64)> = Vec::new();
        for (level, from, to) in stripes {
            let (from, to) = (self.x(from), self.x(to));
            match drawn.last_mut() {
                Some((last, _, until)) if *last == level && (0.0..APART).contains(&(from - *until)) => {
                    *until = to
                }
                _ => drawn.push((level, from, to)),
            }
        }
        let mut path = String::new();
        for (level, from, to) in drawn {
            let (top, bottom) = (self.y(level + high / 2.0), self.y(level - high / 2.0));
            let to = to.max(from + APART);
            let _ = write!(path, "M{from:.1} {top:.1}H{to:.1}V{bottom:.1}H{from:.1}Z");
        }
        let title = escape(label);
        let _ = writeln!(self.marks, "<path d=\"{path}\" fill=\"{colour}\"><title>{title}</title></path>");
        self.note(&format!("<rect width=\"22\" height=\"10\" fill=\"{colour}\"/>"), label);
    }

    /// A dashed upright line.
    pub fn upright(&mut self, label: &str, x: f64) {
        let x = self.x(x);
        let _ = writeln!(self.marks, "<path d=\"M{x:.1} {TOP}V{:.1}\" {DASHED}/>", HEIGHT - BOTTOM);
        self.note(&format!("<path d=\"M0 5H22\" {DASHED}/>"), label);
    }

    /// A dashed level line.
    pub fn level(&mut self, label: &str, y: f64) {
        let y = self.y(y);
        let _ = writeln!(self.marks, "<path d=\"M{LEFT} {y:.1}H{:.1}\" {DASHED}/>", WIDTH - RIGHT);
        self.note(&format!("<path d=\"M0 5H22\" {DASHED}/>"), label);
    }

    /// What was drawn, as JSON: axes, and lines with their points.
    pub fn data(&self) -> serde_json::Value {
        let lines: Vec<serde_json::Value> = self
            .drawn
            .iter()
            .map(|(label, points)| serde_json::json!({ "label": label, "points": points }))
            .collect();
        serde_json::json!({ "x": self.x.title, "y": self.y.title, "names": self.x.names, "lines": lines })
    }

    /// The chart with its legend below.
    pub fn html(&self) -> String {
        let most_lines = self.x.names.iter().map(|name| self.lines_of(name).len()).max().unwrap_or(1);
        let height = HEIGHT + (most_lines - 1) as f64 * LINE;
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\" font-size=\"{LETTERS}\" \
             font-family=\"system-ui, sans-serif\" fill=\"currentColor\">\n",
            escape(&self.name)
        );
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let grid = "stroke=\"currentColor\" stroke-opacity=\"0.13\"";
        for (value, label) in self.x.ticks() {
            let (x, lines) = (self.x(value), self.lines_of(&label));
            let label = match &lines[..] {
                [line] => escape(line),
                lines => {
                    let line = |(n, line): (usize, &String)| {
                        let down = if n == 0 { 0.0 } else { LINE };
                        format!("<tspan x=\"{x:.1}\" dy=\"{down}\">{}</tspan>", escape(line))
                    };
                    lines.iter().enumerate().map(line).collect()
                }
            };
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {TOP}V{bottom}\" {grid}/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
                bottom + 17.0
            );
        }
        for (value, label) in self.y.ticks() {
            let y = self.y(value);
            let _ = writeln!(
                out,
                "<path d=\"M{LEFT} {y:.1}H{right}\" {grid}/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 6.0,
                y + 4.5
            );
        }
        out.push_str(&self.marks);
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"currentColor\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(13 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n</svg>",
            (LEFT + right) / 2.0,
            height - 8.0,
            escape(&self.x.title),
            (TOP + bottom) / 2.0,
            escape(&self.y.title),
        );
        if !self.legend.is_empty() {
            let _ = writeln!(out, "<p class=\"legend\">{}</p>", self.legend.trim_end());
        }
        out
    }
}

/// Filled with the colour of text.
const DIAMOND: &str = "fill=\"currentColor\" fill-opacity=\"0.75\"";
const DASHED: &str = "fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.4\" stroke-dasharray=\"5 4\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_where_there_is_no_value() {
        let mut chart = Chart::new("", Axis::new("", 0.0, 4.0), Axis::new("", 0.0, 1.0));
        chart
            .line("a", [(0.0, Some(0.0)), (1.0, Some(1.0)), (2.0, None), (3.0, Some(0.5)), (4.0, Some(0.5))]);
        let path = chart.marks.split('"').nth(1).unwrap_or_default();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 2), "{path}");
    }

    #[test]
    fn a_chart_grows_with_the_names_below_it() {
        let chart = |name: &str| {
            let x = Axis::of_names("", [name, "b", "c", "d", "e", "f"]).broken();
            Chart::new("", x, Axis::new("", 0.0, 1.0)).html()
        };
        assert!(chart("short").contains("viewBox=\"0 0 480 290\""));
        let long = chart("a name of words");
        assert!(long.contains("viewBox=\"0 0 480 305\"") && long.matches("<tspan").count() == 2, "{long}");
    }

    #[test]
    fn spreads_stand_on_their_bars() {
        let mut chart = Chart::new("", Axis::of_names("", ["a", "b"]), Axis::new("", 0.0, 10.0));
        chart.grouped_bars("one", (0, 2), &[Some(5.0), None]);
        chart.spreads((0, 2), &[Some((4.0, 6.0)), None]);
        let bar = chart.marks.split("rect x=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let spread = chart.marks.split("<path d=\"M").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let (bar, spread): (f64, f64) = (bar.parse().unwrap(), spread.parse().unwrap());
        assert!((bar..bar + 80.0).contains(&spread), "{}", chart.marks);
        assert_eq!(chart.marks.matches("<path").count(), 1, "{}", chart.marks);
    }
}
