//! Charts as SVG text: axes with titles and round ticks, lines, bands, bars, marks. What is drawn, and in which units,
//! is for `page` and `figures`.
//!
//! Sizes are such that letters can be read on a phone, where a chart is as wide as the screen.

use std::fmt::Write;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;
const LETTERS: u32 = 13;
/// Ticks of an axis, about.
const TICKS: f64 = 8.0;
/// Colours that can be told apart with any eyes (Okabe and Ito, 2008), but for the last, a grey.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#882255", "#777777"];
/// Lines with the same colour differ by their strokes.
const STROKES: [&str; 3] = ["", "6 3", "2 2"];

/// Most lines of a chart that can be told apart.
pub(crate) const MAX_LINES: usize = 8;

/// An axis.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Axis {
    /// With the unit.
    title: String,
    low: f64,
    high: f64,
    logarithmic: bool,
    /// What stands at 0, 1, 2 and so on, in place of numbers.
    names: Vec<String>,
}

impl Axis {
    /// From `low` to `high`, or a little more where they are the same.
    pub(crate) fn new(title: impl Into<String>, low: f64, high: f64) -> Axis {
        let high = if high > low { high } else { low + low.abs().max(1.0) * 0.1 };
        Axis { title: title.into(), low, high, logarithmic: false, names: Vec::new() }
    }

    /// Names in a row, for groups of bars.
    pub(crate) fn of_names(
        title: impl Into<String>,
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> Axis {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let high = names.len() as f64 - 0.5;
        Axis { title: title.into(), low: -0.5, high, logarithmic: false, names }
    }

    /// The same by orders of magnitude; `low` must be above 0.
    pub(crate) fn logarithmic(mut self) -> Axis {
        self.logarithmic = true;
        self
    }

    /// Where a value lies, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let place = match self.logarithmic {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        place.clamp(0.0, 1.0)
    }

    /// Round values with their labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        if !self.names.is_empty() {
            return (0..).map(f64::from).zip(self.names.iter().cloned()).collect();
        }
        if self.logarithmic {
            return self.powers();
        }
        let step = round_step((self.high - self.low) / TICKS);
        let digits = (-step.log10().floor()).max(0.0) as usize;
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|n| (n as f64 * step, format!("{:.digits$}", n as f64 * step))).collect()
    }

    /// 1, 2 and 5 times powers of ten.
    fn powers(&self) -> Vec<(f64, String)> {
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let factors: &[f64] = if decades.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let all = decades.flat_map(|decade| factors.iter().map(move |factor| factor * 10f64.powi(decade)));
        let inside = all.filter(|value| (self.low * 0.999..=self.high * 1.001).contains(value));
        inside.map(|value| (value, plain(value))).collect()
    }
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn round_step(step: f64) -> f64 {
    let unit = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * unit >= step * 0.999);
    factor.unwrap_or(10.0) * unit
}

/// A number with as many digits as it needs, three that count at most.
pub(crate) fn plain(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_string();
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// A line's label and points.
type Line = (String, Vec<(f64, Option<f64>)>);

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chart {
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
    pub(crate) fn new(name: impl Into<String>, x: Axis, y: Axis) -> Chart {
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

    fn note(&mut self, swatch: &str, label: &str) {
        let label = escape(label);
        let _ = write!(
            self.legend,
            "<span><svg viewBox=\"0 0 22 10\" width=\"22\" height=\"10\" aria-hidden=\"true\">{swatch}</svg> {label}</span> "
        );
    }

    /// A line in the next colour, broken where there is no value.
    pub(crate) fn line(&mut self, label: &str, points: impl IntoIterator<Item = (f64, Option<f64>)>) {
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
    pub(crate) fn published(&mut self, label: &str, points: &[(f64, f64)]) {
        let shape =
            |x: f64, y: f64| format!("<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5Z\" {DIAMOND}/>", y - 5.0);
        for &(x, y) in points {
            let _ = writeln!(self.marks, "{}", shape(self.x(x), self.y(y)));
        }
        self.note(&shape(11.0, 5.0), label);
        self.drawn.push((label.to_string(), points.iter().map(|&(x, y)| (x, Some(y))).collect()));
    }

    /// A bar in each group of an axis of names: number `n` of `of` beside each other, in the next colour.
    pub(crate) fn grouped_bars(&mut self, label: &str, (n, of): (usize, usize), values: &[Option<f64>]) {
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

    /// A band in the first colour between lower and upper values, broken where there are none.
    pub(crate) fn band(&mut self, label: &str, opacity: f64, points: &[(f64, Option<(f64, f64)>)]) {
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
    pub(crate) fn bars(&mut self, bars: impl IntoIterator<Item = (f64, f64, f64, String)>) {
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

    /// A dashed upright line.
    pub(crate) fn upright(&mut self, label: &str, x: f64) {
        let x = self.x(x);
        let _ = writeln!(self.marks, "<path d=\"M{x:.1} {TOP}V{:.1}\" {DASHED}/>", HEIGHT - BOTTOM);
        self.note(&format!("<path d=\"M0 5H22\" {DASHED}/>"), label);
    }

    /// A dashed level line.
    pub(crate) fn level(&mut self, label: &str, y: f64) {
        let y = self.y(y);
        let _ = writeln!(self.marks, "<path d=\"M{LEFT} {y:.1}H{:.1}\" {DASHED}/>", WIDTH - RIGHT);
        self.note(&format!("<path d=\"M0 5H22\" {DASHED}/>"), label);
    }

    /// What was drawn, as JSON: axes, and lines with their points.
    pub(crate) fn data(&self) -> serde_json::Value {
        let lines: Vec<serde_json::Value> = self
            .drawn
            .iter()
            .map(|(label, points)| serde_json::json!({ "label": label, "points": points }))
            .collect();
        serde_json::json!({ "x": self.x.title, "y": self.y.title, "names": self.x.names, "lines": lines })
    }

    /// The chart with its legend below.
    pub(crate) fn html(&self) -> String {
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\" font-size=\"{LETTERS}\" \
             font-family=\"system-ui, sans-serif\" fill=\"currentColor\">\n",
            escape(&self.name)
        );
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let grid = "stroke=\"currentColor\" stroke-opacity=\"0.13\"";
        for (value, label) in self.x.ticks() {
            let x = self.x(value);
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
            HEIGHT - 8.0,
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

/// Text as it stands in HTML and SVG.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        assert_eq!(labels(Axis::new("", 0.0, 104.0)), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(
            labels(Axis::new("", 7.6, 7.74)),
            ["7.60", "7.62", "7.64", "7.66", "7.68", "7.70", "7.72", "7.74"]
        );
        assert_eq!(labels(Axis::new("", 0.0, 1.0)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(Axis::new("", 3.0, 3.0)).len(), 7, "an axis without length gets some");
        assert_eq!(labels(Axis::new("", 30.0, 700.0).logarithmic()), ["50", "100", "200", "500"]);
        assert_eq!(
            labels(Axis::new("", 0.5, 7e5).logarithmic()),
            ["1", "10", "100", "1000", "10000", "100000"]
        );
    }

    #[test]
    fn numbers_have_the_digits_that_count() {
        for (value, text) in
            [(0.0, "0"), (7713.4, "7713"), (12.345, "12.3"), (0.012345, "0.0123"), (2.0, "2")]
        {
            assert_eq!(plain(value), text);
        }
    }

    #[test]
    fn a_line_is_broken_where_there_is_no_value() {
        let mut chart = Chart::new("", Axis::new("", 0.0, 4.0), Axis::new("", 0.0, 1.0));
        chart
            .line("a", [(0.0, Some(0.0)), (1.0, Some(1.0)), (2.0, None), (3.0, Some(0.5)), (4.0, Some(0.5))]);
        let path = chart.marks.split('"').nth(1).unwrap_or_default();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 2), "{path}");
    }

    #[test]
    fn text_cannot_break_out() {
        assert_eq!(escape("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
