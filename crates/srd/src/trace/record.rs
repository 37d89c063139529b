//! Records what the transport of a running process decides. The process tells for as long as this one listens: it stops when
//! this side closes, which it does however it ends.

use crate::output;
use crate::top::sample::{self, Chosen, Told};
use anyhow::{Context, bail};
use serde::Deserialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use srd_net::stats_directory;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How soon a signal ends the recording.
const LOOK: Duration = Duration::from_millis(50);
/// Longest that the process has to begin, and to write what is left once it is told to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is said of a process that answers otherwise.
const EARLIER: &str = "it is of an earlier release, which cannot be recorded";

/// What is to be recorded.
pub struct Order<'a> {
    /// The process.
    pub pid: u32,
    /// The instance, if it matters.
    pub address: Option<&'a str>,
    /// For how long; until a signal if none.
    pub duration: Option<Duration>,
    /// Into which file.
    pub out: &'a Path,
    /// So many lines at most.
    pub lines: u64,
}

/// A line of those that matter here.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(default)]
    event: &'a str,
    #[serde(default)]
    missing: u64,
    error: Option<String>,
}

/// The time that a line tells, which stands at its beginning.
fn time_of(line: &[u8]) -> Option<f64> {
    let line = std::str::from_utf8(line).ok()?;
    let (number, _) = line.split_once("\"t_us\":")?.1.split_once([',', '}'])?;
    number.parse().ok()
}

/// Why a recording ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Time,
    Signal,
    Lines,
    Process,
}

/// Records.
pub fn run(order: &Order<'_>) -> anyhow::Result<ExitCode> {
    let told = find(order)?;
    let process = format!("process {} ({}, {})", order.pid, told.stats.program, told.stats.address);
    let file = File::create(order.out).with_context(|| format!("cannot write {}", order.out.display()))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let stream = stats_directory::record(&told.socket).with_context(|| format!("cannot ask {process}"))?;
    let mut recording =
        Recording { stream, file: BufWriter::new(file), line: Vec::new(), lines: 0, last: 0.0, ended: None };
    if order.duration.is_none() {
        eprintln!("srd: recording {process}; ^C ends it");
    }
    let end =
        recording.run(order, &stop).map_err(|error| anyhow::anyhow!("cannot record {process}: {error}"))?;
    recording.file.flush().with_context(|| format!("cannot write {}", order.out.display()))?;
    let (lines, missing) = (recording.lines.saturating_sub(1), recording.ended.unwrap_or(0));
    let why = match end {
        End::Lines => format!("; --lines {} ended it", order.lines),
        End::Process => "; the process ended".into(),
        End::Time | End::Signal => String::new(),
    };
    output::text(&format!(
        "recorded {process}: {lines} lines in {}{why}\n`srd trace {0}` tells of them\n",
        order.out.display()
    ))?;
    if missing > 0 {
        eprintln!(
            "srd: {missing} events are missing: the process decided faster than its lines could be written"
        );
    }
    if recording.ended.is_none() {
        eprintln!("srd: the recording did not end in order: some events at its end are missing");
    }
    Ok(ExitCode::SUCCESS)
}

/// The instance that is meant.
fn find(order: &Order<'_>) -> anyhow::Result<Told> {
    let pid = order.pid;
    let sample = sample::take(&Chosen { pids: vec![pid], program: None });
    let mut instances = sample.instances;
    if let Some(address) = order.address {
        let known: Vec<String> = instances.iter().map(|told| told.stats.address.clone()).collect();
        instances.retain(|told| told.stats.address == address);
        if instances.is_empty() && !known.is_empty() {
            bail!("process {pid} does not receive at {address}, but at {}", known.join(" and "));
        }
    }
    let known: Vec<&str> = instances.iter().map(|told| told.stats.address.as_str()).collect();
    if known.len() > 1 {
        bail!("process {pid} has {} instances; choose one with --address: {}", known.len(), known.join(", "));
    }
    if let Some(told) = instances.pop() {
        return Ok(told);
    }
    match sample.silent.first() {
        Some(silent) => bail!("process {pid}: {}", silent.why),
        None => bail!(
            "there is no process {pid} of this user on this host that uses SRD (and runs without SRD_TOP=off); `srd top` \
             lists those that do"
        ),
    }
}

struct Recording {
    stream: UnixStream,
    file: BufWriter<File>,
    /// The beginning of a line.
    line: Vec<u8>,
    lines: u64,
    /// Time of the last line.
    last: f64,
    /// The last line has come; so many events are missing.
    ended: Option<u64>,
}

impl Recording {
    fn run(&mut self, order: &Order<'_>, stop: &AtomicBool) -> io::Result<End> {
        self.stream.set_read_timeout(Some(LOOK))?;
        let begin = Instant::now();
        let mut until = order.duration.map(|duration| begin + duration);
        let mut end = None;
        let mut piece = vec![0; 256 << 10];
        loop {
            let now = Instant::now();
            let over = match () {
                () if end.is_some() => None,
                () if self.lines >= order.lines => Some(End::Lines),
                () if stop.load(Ordering::Relaxed) => Some(End::Signal),
                () if until.is_some_and(|until| now >= until) => Some(End::Time),
                () => None,
            };
            if over.is_some() {
                // The process writes what is left, and closes.
                end = over;
                until = Some(now + PATIENCE);
                self.stream.shutdown(Shutdown::Write)?;
            } else if end.is_some() && until.is_some_and(|until| now >= until) {
                break;
            }
            if self.lines == 0 && now > begin + PATIENCE {
                return Err(io::Error::new(ErrorKind::TimedOut, "it does not answer"));
            }
            match self.stream.read(&mut piece) {
                Ok(0) => break,
                Ok(n) => self.take(&piece[..n], order.lines)?,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error),
            }
        }
        match self.lines {
            // Earlier releases give their counters, which are no line, to whoever asks for anything.
            0 if !self.line.is_empty() => Err(io::Error::other(EARLIER)),
            0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "it has just ended")),
            _ => Ok(end.unwrap_or(End::Process)),
        }
    }

    /// Writes the lines that are whole.
    fn take(&mut self, bytes: &[u8], most: u64) -> io::Result<()> {
        self.line.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(end) = self.line[from..].iter().position(|&byte| byte == b'\n') {
            let line = from..from + end + 1;
            from += end + 1;
            self.look_at(line.clone())?;
            let line = &self.line[line];
            match (self.ended, self.lines < most) {
                (_, true) => {
                    self.file.write_all(line)?;
                    self.lines += 1;
                    self.last = time_of(line).unwrap_or(self.last);
                }
                // Lines were left out behind the last that counts: that is where the trace ends.
                (Some(missing), false) => {
                    let (t_us, event) = (self.last, "recording_ended");
                    let end = serde_json::json!({ "event": event, "t_us": t_us, "missing": missing });
                    writeln!(self.file, "{end}")?;
                }
                (None, false) => {}
            }
        }
        self.line.drain(..from);
        Ok(())
    }

    /// Looks for what this command wants to know: that it begins, and that it ends.
    fn look_at(&mut self, range: std::ops::Range<usize>) -> io::Result<()> {
        let line = &self.line[range];
        let marker = b"{\"event\":\"recording_ended\"";
        if self.lines > 0 && !line.starts_with(marker) {
            return Ok(());
        }
        let said = serde_json::from_slice::<Line<'_>>(line).ok();
        match said {
            Some(Line { error: Some(why), .. }) => Err(io::Error::other(why)),
            Some(Line { event: "run", .. }) => Ok(()),
            Some(Line { event: "recording_ended", missing, .. }) if self.lines > 0 => {
                self.ended = Some(missing);
                Ok(())
            }
            _ => Err(io::Error::other(EARLIER)),
        }
    }
}
