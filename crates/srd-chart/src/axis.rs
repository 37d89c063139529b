//! Axes: from where to where, and the round values or names that stand along them.

use serde::{Deserialize, Serialize};

/// Ticks of an axis, about.
const TICKS: f64 = 8.0;

/// An axis.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Axis {
    /// With the unit.
    pub(crate) title: String,
    low: f64,
    high: f64,
    logarithmic: bool,
    /// What stands at 0, 1, 2 and so on, in place of numbers.
    pub(crate) names: Vec<String>,
    /// Whether names are broken into lines.
    broken: bool,
}

impl Axis {
    /// From `low` to `high`, or a little more where they are the same.
    pub fn new(title: impl Into<String>, low: f64, high: f64) -> Axis {
        let high = if high > low { high } else { low + low.abs().max(1.0) * 0.1 };
        Axis { title: title.into(), low, high, logarithmic: false, names: Vec::new(), broken: false }
    }

    /// Names in a row, for groups of bars.
    pub fn of_names(title: impl Into<String>, names: impl IntoIterator<Item = impl Into<String>>) -> Axis {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let high = names.len() as f64 - 0.5;
        Axis { title: title.into(), low: -0.5, high, logarithmic: false, names, broken: false }
    }

    /// The same by orders of magnitude; `low` must be above 0.
    pub fn logarithmic(mut self) -> Axis {
        self.logarithmic = true;
        self
    }

    /// The same with long names in as many lines as they need.
    pub fn broken(mut self) -> Axis {
        self.broken = true;
        self
    }

    /// Lines of a tick's label, where an axis has room for `letters` of them beside each other.
    pub(crate) fn lines(&self, label: &str, letters: f64) -> Vec<String> {
        let room = (letters / self.names.len().max(1) as f64) as usize;
        let mut lines: Vec<String> = Vec::new();
        for word in label.split(' ') {
            match lines.last_mut() {
                Some(line) if !self.broken || line.chars().count() + 1 + word.chars().count() <= room => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_string()),
            }
        }
        lines
    }

    /// Where a value lies, from 0 to 1.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let place = match self.logarithmic {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        place.clamp(0.0, 1.0)
    }

    /// Round values with their labels.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
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
pub fn plain(value: f64) -> String {
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
    fn names_that_are_too_long_are_broken_between_words() {
        let axis = Axis::of_names("", ["20 KB, queues of 150 KB", "b"]).broken();
        assert_eq!(axis.lines("20 KB, queues of 150 KB", 24.0), ["20 KB,", "queues of", "150 KB"]);
        assert_eq!(axis.lines("indivisible wholes", 24.0), ["indivisible", "wholes"]);
        assert_eq!(Axis::of_names("", ["a b"]).lines("a b", 1.0), ["a b"], "nobody has asked for it");
    }

    #[test]
    fn numbers_have_the_digits_that_count() {
        for (value, text) in
            [(0.0, "0"), (7713.4, "7713"), (12.345, "12.3"), (0.012345, "0.0123"), (2.0, "2")]
        {
            assert_eq!(plain(value), text);
        }
    }
}
