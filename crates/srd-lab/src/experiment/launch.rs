//! The processes of an MPI job: its launcher, what it says and when, and its end.

use crate::error::{Doing, Error, Result, bad};
use crate::flow::clock::now_ns;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Lines that are shown of a job that has failed.
const TAIL: usize = 20;
/// How long a launcher may need for its last words.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// A line that a job has printed.
pub struct Line {
    /// When, in the machine's monotonic nanoseconds.
    pub at_ns: u64,
    /// What.
    pub text: String,
    is_output: bool,
}

/// A job that runs. Dropped, its launcher is killed; its ranks end with the lab.
pub struct Launched {
    what: String,
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<Line>,
    tail: VecDeque<String>,
}

impl Launched {
    /// Starts it. `what` names it in errors.
    pub fn start(what: String, mut command: Command) -> Result<Launched> {
        // A group of its own: an interrupt at the terminal is for the experiment, which ends after this run.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().doing(|| format!("starting {what}"))?;
        let (sender, lines) = channel();
        read(child.stdout.take().expect("it is a pipe"), true, sender.clone());
        read(child.stderr.take().expect("it is a pipe"), false, sender);
        let orders = child.stdin.take();
        Ok(Launched { what, child, orders, lines, tail: VecDeque::new() })
    }

    /// Gives rank 0 a line to read.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let orders = self.orders.as_mut().expect("input is open until the end");
        if writeln!(orders, "{line}").and_then(|()| orders.flush()).is_err() {
            return Err(self.failed("has ended"));
        }
        Ok(())
    }

    /// The next line of output; `None` at its end. What is said on standard error is kept for when something goes wrong.
    pub fn hear(&mut self, until: Instant) -> Result<Option<Line>> {
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.keep(&line);
                    if line.is_output {
                        return Ok(Some(line));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => return Err(self.failed("has not come to its end in time")),
            }
        }
    }

    /// Hears until such a line comes; others are handed to `other`.
    pub fn wait_for(&mut self, line: &str, until: Instant, mut other: impl FnMut(&str)) -> Result<()> {
        loop {
            match self.hear(until)? {
                Some(heard) if heard.text == line => return Ok(()),
                Some(heard) => other(&heard.text),
                None => return Err(self.failed("has ended")),
            }
        }
    }

    /// Closes the input and waits for the end, which must be a good one; the answer is when that was.
    pub fn end(mut self, until: Instant) -> Result<u64> {
        self.orders = None;
        while self.hear(until)?.is_some() {}
        let status = self.child.wait().doing(|| format!("waiting for {}", self.what))?;
        let at_ns = now_ns();
        match status.success() {
            true => Ok(at_ns),
            false => Err(self.failed("has failed")),
        }
    }

    /// An error that shows how the job ended and what it said last.
    fn failed(&mut self, how: &str) -> Error {
        let until = Instant::now() + LAST_WORDS;
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.keep(&line);
        }
        let status = match self.child.try_wait() {
            Ok(Some(status)) => format!(" ({status})"),
            _ => String::new(),
        };
        let said: Vec<String> = self.tail.iter().map(|line| format!("\n  {line}")).collect();
        let said = if said.is_empty() { "\n  (nothing)".into() } else { said.concat() };
        bad(format!("{} {how}{status}; the last it said:{said}", self.what))
    }

    fn keep(&mut self, line: &Line) {
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        // Some lines are numbers by the thousand.
        self.tail.push_back(line.text.chars().take(300).collect());
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines on a thread that ends with them.
fn read(from: impl Read + Send + 'static, is_output: bool, lines: Sender<Line>) {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut bytes = Vec::new();
        while from.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            bytes.clear();
            if lines.send(Line { at_ns: now_ns(), text, is_output }).is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Launched {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Launched::start("the job".into(), command).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn a_job_is_told_and_heard_to_its_end() {
        let mut job = shell("echo ready; read word; echo $word is heard >&2; echo done; cat");
        job.wait_for("ready", soon(), |_| ()).unwrap();
        job.tell("something").unwrap();
        let mut heard = Vec::new();
        job.wait_for("done", soon(), |line| heard.push(line.to_owned())).unwrap();
        assert!(heard.is_empty(), "{heard:?}");
        job.end(soon()).unwrap();
    }

    #[test]
    fn a_job_that_fails_is_quoted() {
        let error = shell("echo first; echo second >&2; exit 3").end(soon()).unwrap_err().to_string();
        assert!(
            ["the job has failed", "3", "first", "second"].iter().all(|word| error.contains(word)),
            "{error}"
        );
        let mut job = shell("echo only this");
        let error = job.wait_for("ready", soon(), |_| ()).unwrap_err().to_string();
        assert!(error.contains("has ended") && error.contains("only this"), "{error}");
    }

    #[test]
    fn a_job_that_does_not_end_is_ended() {
        let error =
            shell("echo begun; sleep 1000").end(Instant::now() + Duration::from_millis(300)).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("in time") && error.contains("begun"), "{error}");
    }
}
