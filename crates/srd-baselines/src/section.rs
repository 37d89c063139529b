//! One table of a scenario, read key by key. Every complaint says where, which key, what was written, what may be.

use crate::document::{Content, Document, Node, Origin, Table, entry};
use crate::input::{InputError, listed, shown};
use crate::quantity::{self, Bytes};
use crate::units::Ps;
use srd_wire::BitRate;
use std::ops::RangeInclusive;

/// Longest time that may be written, in microseconds: eleven days. Picoseconds overflow much later.
const LONGEST_US: f64 = 1e12;
/// Fastest cable that may be written, in Gb/s: five times what any roadmap shows.
const FASTEST_GBPS: f64 = 16_000.0;
/// Most bytes that may be written: 1 EB.
const MOST_BYTES: u64 = 1_000_000_000_000_000_000;

/// A table and the keys that it may have.
pub struct Section<'a> {
    document: &'a Document,
    /// As messages call it: `[transport]`.
    name: String,
    table: &'a Table,
    origin: Origin,
    keys: Vec<&'static str>,
}

static EMPTY: Table = Table::new();

impl<'a> Section<'a> {
    /// The top level.
    pub fn root(document: &'a Document, keys: &[&'static str]) -> Result<Section<'a>, InputError> {
        let (name, origin) = ("the top level".to_string(), Origin::Line(1));
        Section { document, name, table: &document.root, origin, keys: Vec::new() }.only(keys)
    }

    /// The section `[name]`, empty if it is not there.
    pub fn of(document: &'a Document, name: &str) -> Result<Section<'a>, InputError> {
        let shown_name = format!("[{name}]");
        match entry(&document.root, name) {
            None => {
                let origin = Origin::Line(1);
                Ok(Section { document, name: shown_name, table: &EMPTY, origin, keys: Vec::new() })
            }
            Some(node) => Section::from_node(document, shown_name, node),
        }
    }

    /// The sections `[[name]]`.
    pub fn all(document: &'a Document, name: &str) -> Result<Vec<Section<'a>>, InputError> {
        let Some(node) = entry(&document.root, name) else { return Ok(Vec::new()) };
        let Content::List(items) = &node.content else {
            return Err(document
                .error(&node.origin, format!("write [[{name}]], in double brackets: there may be several")));
        };
        let sections = items.iter().enumerate();
        sections.map(|(n, item)| Section::from_node(document, format!("[[{name}]] {n}"), item)).collect()
    }

    fn from_node(document: &'a Document, name: String, node: &'a Node) -> Result<Section<'a>, InputError> {
        match &node.content {
            Content::Table(table) => {
                Ok(Section { document, name, table, origin: node.origin.clone(), keys: Vec::new() })
            }
            _ => Err(document
                .error(&node.origin, format!("{name} is a section with keys of its own, not a value"))),
        }
    }

    /// Refuses all keys but these.
    pub fn only(mut self, keys: &[&'static str]) -> Result<Section<'a>, InputError> {
        self.keys = keys.to_vec();
        match self.table.iter().find(|(key, _)| !keys.contains(&key.as_str())) {
            None => Ok(self),
            Some((key, node)) => {
                let may = format!("{} may have {}", self.name, listed(keys));
                Err(self
                    .document
                    .error(&node.origin, format!("{} has no key {}: {may}", self.name, shown(key))))
            }
        }
    }

    /// Adds to the name by which messages call it.
    pub fn called(mut self, addition: &str) -> Section<'a> {
        self.name = format!("{} ({addition})", self.name);
        self
    }

    /// A complaint about the section as a whole.
    pub fn error(&self, message: impl AsRef<str>) -> InputError {
        self.document.error(&self.origin, format!("{}: {}", self.name, message.as_ref()))
    }

    /// A complaint about the value of `key`.
    pub fn error_at(&self, key: &str, message: impl AsRef<str>) -> InputError {
        match self.node(key) {
            Some(node) => {
                self.document.error(&node.origin, format!("{} {key}: {}", self.name, message.as_ref()))
            }
            None => self.error(format!("{key}: {}", message.as_ref())),
        }
    }

    /// Whether `key` is there.
    pub fn has(&self, key: &str) -> bool {
        self.node(key).is_some()
    }

    /// Whether `key` is among those that it may have.
    pub fn may_have(&self, key: &str) -> bool {
        self.keys.contains(&key)
    }

    fn node(&self, key: &str) -> Option<&'a Node> {
        debug_assert!(
            self.keys.is_empty() || self.keys.contains(&key),
            "{key} is not among the keys of {}",
            self.name
        );
        entry(self.table, key)
    }

    /// What `key` holds, if `read` makes something of it; `expected` says what that would be.
    fn read<T>(
        &self,
        key: &str,
        expected: impl Fn() -> String,
        read: impl Fn(&Content) -> Option<T>,
    ) -> Result<Option<T>, InputError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        match read(&node.content) {
            Some(value) => Ok(Some(value)),
            None => {
                Err(self
                    .error_at(key, format!("{} cannot be: write {}", describe(&node.content), expected())))
            }
        }
    }

    /// A value that must be there.
    pub fn needed<T>(&self, key: &str, value: Option<T>, example: &str) -> Result<T, InputError> {
        value
            .ok_or_else(|| self.error(format!("`{key}` is missing: write, for example, `{key} = {example}`")))
    }

    /// A whole number.
    pub fn whole(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, InputError> {
        let expected = || format!("a whole number from {} to {}", range.start(), range.end());
        self.read(key, expected, |content| match content {
            Content::Whole(number) => u64::try_from(*number).ok().filter(|number| range.contains(number)),
            _ => None,
        })
    }

    /// A whole number of 32 bits, at least 1.
    pub fn count(&self, key: &str) -> Result<Option<u32>, InputError> {
        Ok(self.whole(key, 1..=u32::MAX as u64)?.map(|count| count as u32))
    }

    /// A count that must be there.
    pub fn needed_count(&self, key: &str) -> Result<u32, InputError> {
        let count = self.count(key)?;
        self.needed(key, count, "8")
    }

    /// Number of a host; whether there is one, the topology says.
    pub fn host(&self, key: &str) -> Result<Option<u32>, InputError> {
        Ok(self.whole(key, 0..=u32::MAX as u64)?.map(|host| host as u32))
    }

    /// A number in a range.
    pub fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, InputError> {
        let expected = || format!("a number from {} to {}", range.start(), range.end());
        self.read(key, expected, |content| number(content).filter(|number| range.contains(number)))
    }

    /// A probability or share.
    pub fn probability(&self, key: &str) -> Result<Option<f64>, InputError> {
        self.number(key, 0.0..=1.0)
    }

    /// Microseconds.
    pub fn micros(&self, key: &str) -> Result<Option<Ps>, InputError> {
        let expected = || format!("microseconds, from 0 to {LONGEST_US:e}");
        self.read(key, expected, |content| {
            let micros = number(content).filter(|micros| (0.0..=LONGEST_US).contains(micros))?;
            Some(Ps::from_micros_f64(micros))
        })
    }

    /// Microseconds above 0.
    pub fn some_micros(&self, key: &str) -> Result<Option<Ps>, InputError> {
        match self.micros(key)? {
            Some(Ps::ZERO) => Err(self.error_at(key, "0 cannot be: write microseconds above 0")),
            span => Ok(span),
        }
    }

    /// Gb/s above 0.
    pub fn gbps(&self, key: &str) -> Result<Option<BitRate>, InputError> {
        let expected = || format!("Gb/s, above 0 and up to {FASTEST_GBPS}");
        self.read(key, expected, |content| {
            let gbps = number(content).filter(|gbps| (0.0..=FASTEST_GBPS).contains(gbps))?;
            let rate = BitRate((gbps * 1e9).round() as u64);
            (rate.0 > 0).then_some(rate)
        })
    }

    /// Bytes: a number, or text with a unit. At least `least` where they are not given in units of the BDP.
    pub fn bytes(&self, key: &str, least: u64) -> Result<Option<Bytes>, InputError> {
        let expected =
            || format!("bytes, at least {least}: a number, or text such as {}", quantity::EXAMPLES);
        self.read(key, expected, |content| match content {
            Content::Whole(bytes) => u64::try_from(*bytes)
                .ok()
                .filter(|bytes| (least..=MOST_BYTES).contains(bytes))
                .map(Bytes::Count),
            Content::Text(text) => quantity::bytes(text).filter(|bytes| match bytes {
                Bytes::Count(bytes) => (least..=MOST_BYTES).contains(bytes),
                Bytes::Bdp(_) => true,
            }),
            _ => None,
        })
    }

    /// `true` or `false`.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, InputError> {
        self.read(
            key,
            || "true or false".to_string(),
            |content| match content {
                Content::Flag(flag) => Some(*flag),
                _ => None,
            },
        )
    }

    /// Text.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, InputError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        match &node.content {
            Content::Text(text) if !text.is_empty() => Ok(Some(text)),
            other => Err(self.error_at(key, format!("{} cannot be: write text in quotes", describe(other)))),
        }
    }

    /// One of several words.
    pub fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<Option<T>, InputError> {
        let expected = || {
            let words: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            format!("one of {}", listed(&words).replace(" and ", " or "))
        };
        self.read(key, expected, |content| match content {
            Content::Text(text) => words.iter().find(|(word, _)| word == text).map(|(_, meaning)| *meaning),
            _ => None,
        })
    }

    /// A list, each item made by `read`.
    pub fn list<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&Item<'_>) -> Option<T>,
    ) -> Result<Option<Vec<T>>, InputError> {
        let Some(node) = self.node(key) else { return Ok(None) };
        let Content::List(items) = &node.content else {
            return Err(
                self.error_at(key, format!("{} cannot be: write {expected}", describe(&node.content)))
            );
        };
        let items = items.iter().map(|item| match read(&Item(&item.content)) {
            Some(value) => Ok(value),
            None => {
                let what =
                    format!("{} {key}: {} cannot be: write {expected}", self.name, describe(&item.content));
                Err(self.document.error(&item.origin, what))
            }
        });
        Ok(Some(items.collect::<Result<_, _>>()?))
    }
}

/// An item of a list.
pub struct Item<'a>(&'a Content);

impl<'a> Item<'a> {
    /// Text.
    pub fn text(&self) -> Option<&'a str> {
        match self.0 {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number of 32 bits.
    pub fn whole(&self) -> Option<u32> {
        match self.0 {
            Content::Whole(number) => u32::try_from(*number).ok(),
            _ => None,
        }
    }

    /// A single value as an override has it behind the `=`.
    pub fn value(&self) -> Option<String> {
        match self.0 {
            Content::Text(text) => Some(text.clone()),
            Content::Whole(number) => Some(number.to_string()),
            Content::Number(number) => Some(number.to_string()),
            Content::Flag(flag) => Some(flag.to_string()),
            Content::List(_) | Content::Table(_) | Content::Other(..) => None,
        }
    }

    /// A list of texts.
    pub fn texts(&self) -> Option<Vec<String>> {
        match self.0 {
            Content::List(items) => {
                items.iter().map(|item| Some(Item(&item.content).text()?.into())).collect()
            }
            _ => None,
        }
    }
}

fn number(content: &Content) -> Option<f64> {
    match content {
        Content::Whole(number) => Some(*number as f64),
        Content::Number(number) => Some(*number),
        _ => None,
    }
}

/// A value as messages show it.
fn describe(content: &Content) -> String {
    match content {
        Content::Text(text) => shown(text).replace('`', "\""),
        Content::Whole(number) => number.to_string(),
        Content::Number(number) if number.abs() >= 1e16 => format!("{number:e}"),
        Content::Number(number) => number.to_string(),
        Content::Flag(flag) => flag.to_string(),
        Content::List(_) => "a list".to_string(),
        Content::Table(_) => "a section".to_string(),
        Content::Other(what, text) => format!("{} ({what})", shown(text)),
    }
}
