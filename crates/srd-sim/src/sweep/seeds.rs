//! Ranges of seeds as people write them: `1..8`, or one alone.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// Most seeds of a range.
const MOST: u64 = 100_000;

/// Seeds from one to another, both included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seeds(RangeInclusive<u64>);

impl Seeds {
    /// One alone.
    pub fn one(seed: u64) -> Seeds {
        Seeds(seed..=seed)
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<> {
        self.0.clone()
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        let form = "write two whole numbers, the first and the last seed, such as `1..8`";
        let number = |text: &str| text.trim().parse::<u64>().ok().filter(|&seed| seed <= i64::MAX as u64);
        let (first, last) = match text.split_once("..") {
            Some((first, last)) => (number(first), number(last)),
            None => (number(text), number(text)),
        };
        match (first, last) {
            (Some(first), Some(last)) if last < first => {
                Err(format!("the last seed, {last}, is below the first, {first}: {form}"))
            }
            (Some(first), Some(last)) if last - first >= MOST => {
                Err(format!("these are {} seeds: at most {MOST}", last - first + 1))
            }
            (Some(first), Some(last)) => Ok(Seeds(first..=last)),
            _ => Err(form.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_includes_both_ends() {
        let seeds = |text: &str| text.parse::<Seeds>().map(|seeds| seeds.iter().collect::<Vec<_>>());
        assert_eq!(seeds("2..4"), Ok(vec![2, 3, 4]));
        assert_eq!(seeds("7"), Ok(vec![7]));
        for bad in ["", "..", "1..", "4..2", "-1..2", "1..x", "0..100000", "1...3", "1..9223372036854775808"]
        {
            assert!(seeds(bad).is_err(), "{bad}");
        }
    }
}
