//! What is wrong with an input, and where: the one error of all that reads files.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// The largest file that is read: the connection matrix of the most flows that a run may have, several times over.
const MOST_BYTES: u64 = 256 << 20;

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

/// The text of a file that a person has named.
pub fn read_text(path: &Path) -> Result<String, InputError> {
    let place = path.display().to_string();
    let told = |error: std::io::Error| {
        let what = match error.kind() {
            ErrorKind::NotFound => "there is no such file".to_string(),
            ErrorKind::IsADirectory => "this is a directory: name a file in it".to_string(),
            ErrorKind::PermissionDenied => "you may not read this file: `chmod +r` lets you".to_string(),
            _ => format!("it cannot be read: {error}"),
        };
        InputError::of(&place, what)
    };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes)).map_err(told)?;
    if bytes.len() as u64 > MOST_BYTES {
        let what = format!("it has more than {} MiB: this is no input of the simulator", MOST_BYTES >> 20);
        return Err(InputError::of(&place, what));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..good].iter().filter(|&&byte| byte == b'\n').count();
        let what = "here it is no longer text in UTF-8: if it is text, save it as UTF-8";
        InputError::at(&place, line as u32, what)
    })
}

/// `1 flow`, `12 flows`.
pub fn counted(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// `a, b and c`.
pub fn listed(items: &[impl AsRef<str>]) -> String {
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
pub fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        out.push_str("...");
    }
    format!("`{out}`")
}
