//! Shards: parts of a sweep, each for a worker of its own.

use std::fmt;
use std::str::FromStr;

/// One of so many parts, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    number: u32,
    of: u32,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Shard = Shard { number: 1, of: 1 };

    /// All parts of so many.
    pub fn all(of: u32) -> impl Iterator<Item = Shard> {
        (1..=of).map(move |number| Shard { number, of })
    }

    /// Whether a run belongs to it. Neighbours, which often take equally long, are in different ones.
    pub fn holds(self, run: usize) -> bool {
        run % self.of as usize == self.number as usize - 1
    }

    /// As a part of file names.
    pub(super) fn stem(self) -> String {
        format!("shard-{}-of-{}", self.number, self.of)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let numbers = text
            .split_once('/')
            .and_then(|(number, of)| Some(Shard { number: number.parse().ok()?, of: of.parse().ok()? }));
        numbers.filter(|shard| (1..=shard.of).contains(&shard.number)).ok_or_else(|| {
            "write which part of how many, counted from 1: 1/8 is the first of eight, 8/8 the last"
                .to_string()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_in_one_shard() {
        for of in [1, 2, 3, 7, 50] {
            for run in 0..40 {
                assert_eq!(Shard::all(of).filter(|shard| shard.holds(run)).count(), 1);
            }
        }
    }

    #[test]
    fn shards_are_written_as_they_are_read() {
        for text in ["1/1", "2/3", "1000/1000"] {
            assert_eq!(text.parse::<Shard>().unwrap().to_string(), text);
        }
        for bad in ["", "1", "0/3", "4/3", "1/0", "a/3", "1/3/5", "-1/3", "1.5/3"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }
}
