//! One thing that was looked at, how it is, and how to mend it.

use serde::Serialize;

/// How it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It could not be looked at.
    Skip,
    /// It works, but not as well as it could.
    Warn,
    /// It will not work.
    Fail,
}

/// A finding.
#[derive(Clone, Serialize, Debug)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How it is.
    pub level: Level,
    /// In words.
    pub what: String,
    /// The command that mends it, or where it cannot be one command, what to do.
    pub mend: Option<String>,
}

impl Finding {
    fn new(check: &'static str, level: Level, what: impl Into<String>) -> Finding {
        Finding { check, level, what: what.into(), mend: None }
    }

    /// As it should be.
    pub fn ok(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Level::Ok, what)
    }

    /// Not looked at.
    pub fn skip(check: &'static str, why: impl Into<String>) -> Finding {
        Finding::new(check, Level::Skip, why)
    }

    /// Not as good as it could be.
    pub fn warn(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Level::Warn, what)
    }

    /// Will not work.
    pub fn fail(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Level::Fail, what)
    }

    /// Adds how to mend it.
    pub fn mend(self, how: impl Into<String>) -> Finding {
        Finding { mend: Some(how.into()), ..self }
    }
}

/// A line for each, and one more for each remedy.
pub fn describe(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { check, level, what, mend } in findings {
        let level = format!("{level:?}").to_lowercase();
        text += &format!("{level:4}  {check:width$}  {what}\n");
        if let Some(mend) = mend {
            text += &format!("{:4}  {:width$}  -> {mend}\n", "", "");
        }
    }
    text
}
