//! Lines and words of htsim's files: words are separated by exactly one space.

use srd_baselines::input::{InputError, shown};
use std::str::FromStr;

/// One line's words.
pub(super) struct Line<'a> {
    /// Name of the file.
    pub(super) file: &'a str,
    /// Number of the line, from 1.
    pub(super) number: u32,
    words: Vec<&'a str>,
    next: usize,
}

impl<'a> Line<'a> {
    /// Splits `text` as htsim's `tokenize` does: one trailing space is harmless, another space too many makes an empty
    /// word, a tab separates nothing.
    pub(super) fn of(file: &'a str, number: u32, text: &'a str) -> Result<Line<'a>, InputError> {
        let text = text.strip_suffix('\r').unwrap_or(text);
        let text = text.strip_suffix(' ').unwrap_or(text);
        let words: Vec<&str> = if text.is_empty() { Vec::new() } else { text.split(' ').collect() };
        let line = Line { file, number, words, next: 0 };
        if line.is_blank() || line.is_comment() {
            return Ok(line);
        }
        if text.contains('\t') {
            return Err(line.error("a tab separates no words here; put one space in its place"));
        }
        if line.words.contains(&"") {
            return Err(
                line.error("a space too many: words are separated by exactly one, and none comes first")
            );
        }
        Ok(line)
    }

    pub(super) fn is_blank(&self) -> bool {
        self.words.is_empty()
    }

    pub(super) fn is_comment(&self) -> bool {
        self.words.first().is_some_and(|word| word.starts_with('#'))
    }

    /// The next word.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.next).copied();
        self.next += 1;
        word
    }

    /// The next word, without taking it.
    pub(super) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).copied()
    }

    /// The whole number that must come next, behind `keyword`, from `least` to 2^31 - 1 (htsim reads an `int`).
    pub(super) fn number<T: TryFrom<u32>>(&mut self, keyword: &str, least: u32) -> Result<T, InputError> {
        let word = self.value(keyword)?;
        let number = plain_number::<u32>(word).filter(|n| (least..=i32::MAX as u32).contains(n));
        number.and_then(|n| T::try_from(n).ok()).ok_or_else(|| {
            let range = format!("a whole number from {least} to {}", i32::MAX);
            self.error(format!("{} is not a value of `{keyword}`: write {range}", shown(word)))
        })
    }

    /// The word that must come next, behind `keyword`.
    pub(super) fn value(&mut self, keyword: &str) -> Result<&'a str, InputError> {
        let missing = || format!("`{keyword}` needs a value behind it, and the line ends there");
        self.word().ok_or_else(|| self.error(missing()))
    }

    /// Complains about words that are left.
    pub(super) fn end(&mut self) -> Result<(), InputError> {
        match self.word() {
            Some(word) => Err(self.error(format!("{} is too much: nothing comes here", shown(word)))),
            None => Ok(()),
        }
    }

    pub(super) fn error(&self, message: impl Into<String>) -> InputError {
        InputError::at(self.file, self.number, message)
    }
}

/// A number of digits alone.
pub(super) fn plain_number<T: FromStr>(word: &str) -> Option<T> {
    match word.bytes().all(|byte| byte.is_ascii_digit()) {
        true => word.parse().ok(),
        false => None,
    }
}
