//! What runs leave behind in directories, as the command line asks for it.

use anyhow::bail;
use srd_sim::input::Scenario;
use srd_sim::record::{self, Recording, Traced};
use srd_sim::run::Ran;
use srd_sim::units::Ps;
use std::path::PathBuf;
use std::str::FromStr;

/// What a run is to leave behind, beside its outcome.
#[derive(clap::Args, Clone, Debug)]
pub struct Record {
    /// Write tables, figures and the outcome into this directory; with --seeds, into seed-N in it (docs/OUTPUTS.md)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    cables: Cables,
    /// Write a trace of packets: of as many flows as fit 25 MB, of `all`, of `slowest:N`, or of those with these numbers
    #[arg(long, value_name = "FLOWS", requires = "out", num_args = 0..=1, require_equals = true, default_missing_value = "fit")]
    trace: Option<Wanted>,
    /// Put every packet through its wire format and compare
    #[arg(long)]
    pub verify: bool,
}

/// Cables that are captured, into the directory of `--out`.
#[derive(clap::Args, Clone, Debug)]
pub struct Cables {
    /// Capture a cable for Wireshark: --pcap leaf0-spine1 (may be given again)
    #[arg(long, value_name = "LINK", requires = "out")]
    pub pcap: Vec<String>,
    /// Keep so many bytes of each captured frame, 65549 for all of them [default: the headers]
    #[arg(long, value_name = "BYTES", requires = "pcap", value_parser = clap::value_parser!(u32).range(1..=record::LONGEST_FRAME as i64))]
    pub snap_len: Option<u32>,
}

impl Cables {
    /// Refuses those that there are not.
    pub fn check(&self, scenario: &Scenario) -> anyhow::Result<()> {
        for link in &self.pcap {
            scenario
                .topology
                .cables_named(link)
                .map_err(|message| anyhow::anyhow!("--pcap {link}: {message}"))?;
        }
        Ok(())
    }
}

/// Which flows to trace.
#[derive(Clone, PartialEq, Debug)]
struct Wanted(Traced);

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Wanted, String> {
        let form = "write `fit`, `all`, `slowest:5`, or numbers of flows, such as `3,17`";
        let traced = match (text, text.strip_prefix("slowest:")) {
            ("fit", _) => Traced::AsManyAsFit,
            ("all", _) => Traced::All,
            (_, Some(count)) => match count.parse() {
                Ok(0) | Err(_) => return Err(form.to_string()),
                Ok(count) => Traced::Slowest(count),
            },
            (numbers, None) => {
                let numbers = numbers.split(',').map(|number| number.trim().parse::<u32>());
                Traced::Flows(numbers.collect::<Result<_, _>>().map_err(|_| form.to_string())?)
            }
        };
        Ok(Wanted(traced))
    }
}

impl Record {
    /// Refuses cables that there are not, before anything runs, and says what will have no effect.
    pub fn check(&self, scenario: &Scenario) -> anyhow::Result<()> {
        if self.out.is_none() && scenario.settings.sample_every > Ps::ZERO {
            eprintln!("srd: [sample] has no effect without --out DIR: samples go into tables there");
        }
        if scenario.settings.over_srd_messaging && (self.out.is_some() || self.verify) {
            bail!(
                "programs over SRD's own messaging layer are not recorded: without --out and --verify, or without `layer` of [messages]"
            );
        }
        self.cables.check(scenario)
    }

    #[allow(clippy::type_complexity)]
    /// Runs and records, if there is somewhere to write to. `None` inside: it was interrupted.
    pub fn run(
        &self,
        scenario: &Scenario,
        several: bool,
        watch: &mut dyn FnMut(f64) -> bool,
    ) -> Option<anyhow::Result<Option<(Ran, Vec<String>)>>> {
        let out = self.out.as_ref()?;
        let dir = if several { out.join(format!("seed-{}", scenario.settings.seed)) } else { out.clone() };
        let recording = Recording {
            pcap: self.cables.pcap.clone(),
            snap_len: self.cables.snap_len,
            traced: self.trace.as_ref().map_or(Traced::No, |Wanted(traced)| traced.clone()),
            verify: self.verify,
            command: command_line(),
            ..Recording::to(&dir)
        };
        Some(match record::run(scenario, &recording, watch) {
            Ok(recorded) => Ok(recorded.map(|recorded| {
                let mut notes = recorded.notes;
                notes.extend(recorded.ran.warnings.iter().map(|warning| format!("warning: {warning}")));
                notes.push(format!("{} has {}", dir.display(), recorded.files.join(", ")));
                (recorded.ran, notes)
            })),
            Err(error) => Err(error.into()),
        })
    }
}

/// This command as it may be typed again.
pub fn command_line() -> String {
    let arguments = std::env::args_os().skip(1).map(|argument| shell_word(&argument.to_string_lossy()));
    std::iter::once("srd".to_string()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it for itself.
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_string()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_to_trace_are_chosen_in_four_ways() {
        for (text, traced) in [
            ("fit", Traced::AsManyAsFit),
            ("all", Traced::All),
            ("slowest:3", Traced::Slowest(3)),
            ("4, 7", Traced::Flows(vec![4, 7])),
        ] {
            assert_eq!(text.parse(), Ok(Wanted(traced)));
        }
        for bad in ["", "slowest", "slowest:0", "slowest:x", "-1", "1,,2"] {
            assert!(bad.parse::<Wanted>().is_err(), "{bad}");
        }
    }
}
