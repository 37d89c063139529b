//! Where the command's results go: standard output, as text or as one line of JSON.

use anyhow::Context;
use serde::Serialize;
use std::io::{self, Write};

/// Writes text as it is. A reader that has seen enough (`srd env --list | head`) is no error.
pub fn text(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result.context("cannot write to standard output"),
    }
}

/// Writes a value as JSON on one line.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    text(&format!("{}\n", serde_json::to_string(value)?))
}

/// Lines of two columns, the first as wide as its widest entry.
pub fn columns<'a>(rows: impl IntoIterator<Item = (&'a str, String)> + Clone) -> String {
    let width = rows.clone().into_iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.into_iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}
