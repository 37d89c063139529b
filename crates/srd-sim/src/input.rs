//! What is wrong with an input, and where: the one error of all that reads files.

use std::fmt;

/// A fault of an input, for the person who wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputError {
    /// The file's name, or the override (`--set transport.paths=0`) that is at fault.
    pub place: String,
    /// Line, counted from 1, where one is to blame.
    pub line: Option<u32>,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl InputError {
    /// A fault of the whole of `place`.
    pub fn of(place: &str, message: impl Into<String>) -> InputError {
        InputError { place: place.to_string(), line: None, message: message.into() }
    }

    /// A fault in line `line` of `place`.
    pub fn at(place: &str, line: u32, message: impl Into<String>) -> InputError {
        InputError { place: place.to_string(), line: Some(line), message: message.into() }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.message),
            None => write!(f, "{}: {}", self.place, self.message),
        }
    }
}

impl std::error::Error for InputError {}

/// `1 flow`, `12 flows`.
pub(crate) fn counted(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// `a, b and c`.
pub(crate) fn listed(items: &[impl AsRef<str>]) -> String {
    match items {
        [] => "none".to_string(),
        [one] => one.as_ref().to_string(),
        [most @ .., last] => {
            let most: Vec<&str> = most.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", most.join(", "), last.as_ref())
        }
    }
}

/// A name from a file as it may stand in a message: no control characters, not longer than a line.
pub(crate) fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        out.push_str("...");
    }
    format!("`{out}`")
}
