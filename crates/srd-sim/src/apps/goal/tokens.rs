//! Words, numbers and signs of a GOAL file, and where its statements end.

use srd_baselines::input::{InputError, shown};

/// What a statement is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'a> {
    /// A letter, then letters, digits and underscores.
    Word(&'a str),
    /// Digits.
    Number(u64),
    /// A bracket, a colon, a minus.
    Sign(char),
    /// A line's end, or a semicolon.
    End,
}

/// See the module.
pub(super) struct Tokens<'a> {
    pub file: &'a str,
    text: &'a str,
    at: usize,
    /// The line of what comes next, and of the last token.
    next_line: u32,
    pub line: u32,
    /// The file's end has been told as a statement's.
    ended: bool,
}

impl<'a> Tokens<'a> {
    pub fn new(text: &'a str, file: &'a str) -> Tokens<'a> {
        Tokens { file, text, at: 0, next_line: 1, line: 1, ended: false }
    }

    /// A fault in the line of the last token.
    pub fn error(&self, message: impl Into<String>) -> InputError {
        InputError::at(self.file, self.line, message)
    }

    fn take(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let rest = &self.text[self.at..];
        let length = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// Passes over blanks and comments. Those between /* and */ may go over lines.
    fn skip(&mut self) -> Result<(), InputError> {
        loop {
            self.take(|c| c != '\n' && c.is_whitespace());
            let rest = &self.text[self.at..];
            if rest.starts_with("//") {
                self.take(|c| c != '\n');
            } else if rest.starts_with("/*") {
                let Some(length) = rest.find("*/") else {
                    let message = "the comment that begins here has no end: write */ behind it";
                    return Err(InputError::at(self.file, self.next_line, message));
                };
                self.next_line += rest[..length].matches('\n').count() as u32;
                self.at += length + 2;
            } else {
                return Ok(());
            }
        }
    }

    /// The next token; `None` at the end of the file, of which a statement's end is told first.
    pub fn next(&mut self) -> Result<Option<Token<'a>>, InputError> {
        self.skip()?;
        self.line = self.next_line;
        let Some(first) = self.text[self.at..].chars().next() else {
            let ended = std::mem::replace(&mut self.ended, true);
            return Ok((!ended).then_some(Token::End));
        };
        let token = match first {
            '0'..='9' => {
                let digits = self.take(|c| c.is_ascii_digit());
                let number = digits.parse().map_err(|_| {
                    self.error(format!("{} is too large: at most {}", shown(digits), u64::MAX))
                })?;
                return Ok(Some(Token::Number(number)));
            }
            'a'..='z' | 'A'..='Z' => {
                return Ok(Some(Token::Word(self.take(|c| c.is_ascii_alphanumeric() || c == '_'))));
            }
            '\n' => {
                self.next_line += 1;
                Token::End
            }
            ';' => Token::End,
            '{' | '}' | ':' | '-' => Token::Sign(first),
            other => {
                let other = shown(&other.to_string());
                return Err(self.error(format!("{other} cannot be here: see the GOAL format")));
            }
        };
        self.at += first.len_utf8();
        Ok(Some(token))
    }
}
