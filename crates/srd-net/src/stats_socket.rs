//! An instance's counters for whoever asks: a Unix socket to which the instance writes one JSON document per connection, or,
//! if that is asked for, what its transport decides from then on (`trace`). The request is a line, `stats` or `trace`; whoever
//! says nothing wants the counters.
//!
//! A thread of its own sleeps in `accept`. The progress thread could not do it on the side: while the program polls it
//! sleeps on nothing but its kick, and a descriptor that stays readable would wake polls that rest. It never waits for the
//! device's lock, so that a program that polls is not made to wake it, and a reader that does not read keeps it no longer
//! than [`PATIENCE`].

use crate::log;
use crate::options::LogLevel;
use crate::shared::Shared;
use crate::stats::Stats;
use crate::stats_directory::{COUNTERS, DECISIONS, candidates, clear, clear_some, prepare, socket_name};
use crate::sys::process;
use crate::sys::unix::{connect, stop_listening};
use crate::trace::{self, Tracing};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Longest that one who asks is attended to.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two looks whether the device's lock is free, or the instance ends.
const LOOK_AGAIN: Duration = Duration::from_micros(500);
/// The same while the reader reads nothing.
const WRITE_AGAIN: Duration = Duration::from_millis(50);
/// Longest that a request takes. (It is sent with the connection; earlier releases send none.)
const LONGEST_REQUEST: Duration = Duration::from_millis(50);
/// Longest that the end of a process waits for that of a recording.
const LONGEST_END: Duration = Duration::from_millis(200);
/// Pause where the process has no descriptor left for one who asks.
const NO_DESCRIPTOR: Duration = Duration::from_secs(1);
/// Most sockets of one process.
const MOST_SOCKETS: u32 = 1024;

/// See the module.
pub(crate) struct StatsSocket {
    path: PathBuf,
    listener: Arc<UnixListener>,
    closing: Arc<AtomicBool>,
    tracing: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl StatsSocket {
    /// Offers the counters of `shared`; none if that cannot be, which is said where everything is.
    pub fn open(shared: &Arc<Shared>) -> Option<StatsSocket> {
        for directory in candidates() {
            match StatsSocket::open_in(&directory, Arc::downgrade(shared)) {
                Ok(socket) => return Some(socket),
                Err(error) => log::say(
                    LogLevel::Info,
                    format_args!("no counters for `srd top` in {}: {error}", directory.display()),
                ),
            }
        }
        None
    }

    fn open_in(directory: &Path, shared: Weak<Shared>) -> io::Result<StatsSocket> {
        prepare(directory)?;
        clear_some(directory, SystemTime::now());
        let (path, listener) = bind(directory)?;
        let (listener, closing) = (Arc::new(listener), Arc::new(AtomicBool::new(false)));
        let tracing = Arc::new(AtomicBool::new(false));
        let server =
            Server { listener: listener.clone(), closing: closing.clone(), tracing: tracing.clone(), shared };
        let thread = start(server).inspect_err(|_| {
            let _ = fs::remove_file(&path);
        })?;
        Ok(StatsSocket { path, listener, closing, tracing, thread: Mutex::new(Some(thread)) })
    }

    /// From now on nobody can ask.
    pub fn close(&self) {
        if !self.closing.swap(true, Ordering::SeqCst) {
            let _ = fs::remove_file(&self.path); // whoever has removed it before has done this
            stop_listening(&*self.listener);
        }
    }

    /// After [`StatsSocket::close`]: gives a recording a moment to write its end. The process exits.
    pub fn wait_for_trace(&self) {
        let until = Instant::now() + LONGEST_END;
        while self.tracing.load(Ordering::SeqCst) && Instant::now() < until {
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// As [`StatsSocket::close`], and the thread has ended.
    pub fn end(&self) {
        self.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Binds to the first free name of this process, or to one that a dead process of that number has left.
fn bind(directory: &Path) -> io::Result<(PathBuf, UnixListener)> {
    for number in 0..MOST_SOCKETS {
        let path = directory.join(socket_name(number));
        if matches!(connect(&path), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused) {
            clear(&path, SystemTime::now());
        }
        match UnixListener::bind(&path) {
            Ok(listener) => {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
                return Ok((path, listener));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, format!("all {MOST_SOCKETS} names are taken")))
}

/// As the progress thread is started: with no signal of the program's, and its memory before the program goes on.
fn start(server: Server) -> io::Result<JoinHandle<()>> {
    let (ready, started) = mpsc::channel();
    let thread = process::with_signals_blocked(|| {
        std::thread::Builder::new().name("srd-stats".into()).stack_size(256 << 10).spawn(move || {
            drop(std::hint::black_box(Box::new([0u8; 256]))); // makes the thread's heap
            let _ = ready.send(());
            drop(ready);
            server.run();
        })
    })?;
    let _ = started.recv();
    Ok(thread)
}

struct Server {
    listener: Arc<UnixListener>,
    closing: Arc<AtomicBool>,
    /// A recording is at work.
    tracing: Arc<AtomicBool>,
    shared: Weak<Shared>,
}

impl Server {
    fn run(&self) {
        let mut tracing = Tracing::none(self.tracing.clone());
        self.serve(&mut tracing);
        tracing.end();
    }

    fn serve(&self, tracing: &mut Tracing) {
        while !self.is_closing() {
            match self.listener.accept() {
                Ok((reader, _)) => match request(&reader).as_str() {
                    "" | COUNTERS => self.answer(&reader),
                    DECISIONS => tracing.start(&self.shared, &self.closing, reader),
                    _ => {
                        trace::refuse(&reader, "it is of another release and does not know what is asked for")
                    }
                },
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR | libc::ECONNABORTED) => {}
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        std::thread::park_timeout(NO_DESCRIPTOR);
                    }
                    // The socket was closed, by us or with all others by the program.
                    _ => return,
                },
            }
        }
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    fn answer(&self, reader: &UnixStream) {
        let until = Instant::now() + PATIENCE;
        let Some(stats) = self.collect(until) else { return };
        let Ok(json) = serde_json::to_vec(&stats) else { return };
        send(reader, &json, until, || self.is_closing());
    }

    /// The counters; none if the device is held or has failed.
    fn collect(&self, until: Instant) -> Option<Stats> {
        let shared = self.shared.upgrade()?;
        loop {
            if let Some(mut core) = shared.core.try_lock() {
                return Some(shared.stats_of(&mut core));
            }
            if self.is_closing() || shared.core.has_failed() || Instant::now() >= until {
                return None;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// What the reader wants: his first line, or what there is of it.
fn request(mut reader: &UnixStream) -> String {
    let mut said = Vec::new();
    let until = Instant::now() + LONGEST_REQUEST;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut piece = [0; 64];
        if left.is_zero() || said.len() > piece.len() || reader.set_read_timeout(Some(left)).is_err() {
            break;
        }
        match reader.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(n) => said.extend_from_slice(&piece[..n]),
        }
        if said.contains(&b'\n') {
            break;
        }
    }
    let line = said.split(|&byte| byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line).into_owned()
}

/// Sends as much as the reader takes until then. (A reader that has gone sends a signal, which this thread blocks.)
fn send(mut reader: &UnixStream, mut bytes: &[u8], until: Instant, is_over: impl Fn() -> bool) {
    if reader.set_write_timeout(Some(WRITE_AGAIN)).is_err() {
        return;
    }
    while !bytes.is_empty() && !is_over() && Instant::now() < until {
        match reader.write(bytes) {
            Ok(0) => return,
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const LONG: usize = 64 << 20;

    #[test]
    fn a_reader_that_reads_gets_everything() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).unwrap();
            got
        });
        let bytes: Vec<u8> = (0..LONG).map(|i| (i / 7) as u8).collect();
        send(&ours, &bytes, Instant::now() + Duration::from_secs(600), || false);
        drop(ours);
        assert!(reader.join().unwrap() == bytes);
    }

    #[test]
    fn a_reader_that_never_reads_is_given_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // Whatever the limit, this returns: at the end of the time, and when the instance ends.
        send(&ours, &vec![0; LONG], Instant::now() + Duration::from_millis(10), || false);
        send(&ours, &vec![0; LONG], Instant::now() + Duration::from_secs(1 << 20), || true);
        drop(theirs);
        send(&ours, &vec![0; LONG], Instant::now() + Duration::from_secs(1 << 20), || false);
    }
}
