//! What the transport decides, told while it runs: somebody asks on the instance's socket (`stats_socket`), and from then
//! until he goes away each decision is a line of JSON to him, under the names of srd-proto's table (`docs/EVENTS.md`), as in
//! the traces of the simulator.
//!
//! While nobody asks an event costs a branch. While somebody does, the thread that moves packets puts it into a ring of
//! [`RING`] events, and never waits: what finds no room is dropped and counted, and the line that follows says how many are
//! missing. A thread of its own takes events out, finds the peers' addresses and writes the lines.

use crate::log;
use crate::options::LogLevel;
use crate::shared::Shared;
use serde::Serialize;
use srd_proto::{Event, EventLine, PeerId, Tracer};
use srd_trace::{Event as Line, Host};
use srd_wire::Time;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Events that wait to be written at most: 6 MB, and what a transport decides in some 20 ms at a million packets a second.
const RING: usize = 1 << 16;
/// Pause between two looks at the ring, and whether whoever asked is still there.
const LOOK: Duration = Duration::from_millis(5);
/// Events that are written at once at most, so that lines do not pile up in memory.
const AT_ONCE: usize = 1 << 13;
/// Whoever takes no line for so long is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same once the instance ends.
const FAREWELL: Duration = Duration::from_millis(500);
/// Pause between two looks whether the device's lock is free: it is never waited for (see `stats_socket`).
const LOOK_AGAIN: Duration = Duration::from_micros(500);
/// Longest that the device is waited for to be told to begin.
const LONGEST_START: Duration = Duration::from_secs(1);
/// Longest that a new peer's address is waited for.
const LONGEST_LOOK: Duration = Duration::from_millis(50);
/// Addresses that are remembered at most.
const MOST_PEERS: usize = 1 << 16;
/// An event in the ring.
struct Entry {
    at: Time,
    peer: PeerId,
    event: Event,
    /// Events that were dropped before it, since the entry before.
    dropped_before: u64,
}

/// A ring: its end for the transport, and the other.
fn ring() -> (Tracer, Ring) {
    let (put, take) = sync_channel(RING);
    let dropped = Arc::new(AtomicU64::new(0));
    let (count, mut dropped_before) = (dropped.clone(), 0);
    let tracer = Box::new(move |at, peer, event: &Event| {
        offer(&put, Entry { at, peer, event: *event, dropped_before }, &mut dropped_before, &count);
    });
    (tracer, Ring { take, dropped, told: 0 })
}

fn offer(put: &SyncSender<Entry>, entry: Entry, dropped_before: &mut u64, count: &AtomicU64) {
    match put.try_send(entry) {
        Ok(()) => *dropped_before = 0,
        Err(TrySendError::Full(_)) => {
            *dropped_before += 1;
            count.fetch_add(1, Ordering::Relaxed);
        }
        // Nobody listens any more, and the transport is about to be told.
        Err(TrySendError::Disconnected(_)) => {}
    }
}

/// The end at which events are taken out.
struct Ring {
    take: Receiver<Entry>,
    /// Events that found no room.
    dropped: Arc<AtomicU64>,
    /// Those of them that were told of.
    told: u64,
}

/// Why nothing is recorded; in place of the first line.
#[derive(Serialize)]
struct Refusal<'a> {
    error: &'a str,
}

/// Refuses whoever asks.
pub(crate) fn refuse(mut reader: &UnixStream, why: &str) {
    let mut line = Vec::new();
    put(&mut line, &Refusal { error: why });
    let _ = reader.write_all(&line); // who has gone wants no answer
}

/// Puts a line behind the others.
fn put(lines: &mut Vec<u8>, line: &impl Serialize) {
    let before = lines.len();
    match serde_json::to_writer(&mut *lines, line) {
        Ok(()) => lines.push(b'\n'),
        Err(_) => lines.truncate(before), // memory takes everything, and names are text
    }
}

/// The recording of an instance, if there is one at present.
pub(crate) struct Tracing {
    /// One is at work.
    busy: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tracing {
    /// None; `busy` says whether there is one.
    pub fn none(busy: Arc<AtomicBool>) -> Tracing {
        Tracing { busy, thread: None }
    }

    /// Tells `reader` everything from now on until he goes away or the instance ends. Refuses him if somebody else is told
    /// already.
    pub fn start(&mut self, shared: &Weak<Shared>, closing: &Arc<AtomicBool>, reader: UnixStream) {
        if self.busy.swap(true, Ordering::SeqCst) {
            return refuse(&reader, "somebody else records it already; one can at a time");
        }
        self.end();
        let (busy, shared, closing) = (self.busy.clone(), shared.clone(), closing.clone());
        let refused = reader.try_clone();
        let thread = std::thread::Builder::new().name("srd-trace".into()).stack_size(256 << 10);
        // The thread that asks blocks all signals, and this one does, too.
        match thread.spawn(move || {
            Recorder { shared, closing, reader, peers: HashMap::new(), src: String::new(), begin: Time(0) }
                .run();
            busy.store(false, Ordering::SeqCst);
        }) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                self.busy.store(false, Ordering::SeqCst);
                if let Ok(reader) = refused {
                    refuse(&reader, &format!("it cannot start a thread for that: {error}"));
                }
            }
        }
    }

    /// Waits for the end of the thread, which comes soon after the instance's, or of one that has ended.
    pub fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// See the module.
struct Recorder {
    shared: Weak<Shared>,
    closing: Arc<AtomicBool>,
    reader: UnixStream,
    /// Addresses of peers.
    peers: HashMap<PeerId, String>,
    /// Ours.
    src: String,
    begin: Time,
}

/// Why a recording ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// Whoever asked wants no more.
    Asked,
    /// He has gone, or takes nothing any more.
    Gone,
    /// The instance ends.
    Closing,
}

impl Recorder {
    fn run(mut self) {
        let Some((ring, header)) = self.begin() else {
            return refuse(&self.reader, "it is in one long call of the device, or has failed; try again");
        };
        log::say(LogLevel::Info, format_args!("what the transport decides is recorded from now on"));
        let mut ring = ring;
        let mut lines = Vec::new();
        put(&mut lines, &header);
        let end = loop {
            if !self.send(&lines, PATIENCE) {
                break End::Gone;
            }
            lines.clear();
            if self.closing.load(Ordering::SeqCst) || self.shared.strong_count() == 0 {
                break End::Closing;
            }
            if let Some(end) = self.rest() {
                break end;
            }
            self.take(&mut ring, AT_ONCE, &mut lines);
        };
        self.switch_off();
        log::say(
            LogLevel::Info,
            format_args!("the recording of what the transport decides has ended ({end:?})"),
        );
        if end != End::Gone {
            self.finish(ring);
        }
    }

    /// Switches the events on.
    fn begin(&mut self) -> Option<(Ring, Line)> {
        let until = Instant::now() + LONGEST_START;
        let (tracer, ring) = ring();
        let shared = self.shared.upgrade()?;
        let began = loop {
            if let Some(mut core) = shared.core.try_lock() {
                self.begin = crate::clock::now();
                core.device.set_tracer(Some(tracer));
                let peers = core.device.endpoint().peers();
                self.peers = peers.map(|peer| (peer.id, peer.addr.to_string())).collect();
                break SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            }
            if shared.core.has_failed() || Instant::now() >= until || self.closing.load(Ordering::SeqCst) {
                return None;
            }
            std::thread::sleep(LOOK_AGAIN);
        };
        let text = |path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        self.src = shared.address.to_string();
        let (pid, program, name) =
            (std::process::id(), text("/proc/self/comm"), text("/proc/sys/kernel/hostname"));
        let host = Host { pid, program, address: self.src.clone(), name, began_unix_s: began.as_secs_f64() };
        let header = Line::Run {
            format: srd_trace::FORMAT,
            scenario: format!("{}, process {pid} on {}", host.program, host.name),
            seed: 0,
            flows: 0,
            traced: 0,
            base_rtt_us: 0.0,
            host: Some(host),
        };
        Some((ring, header))
    }

    /// Switches them off. Nothing else ends that the program wants, so this waits for its turn for as long as it takes, unless
    /// the instance ends, of which nobody wants events any more.
    fn switch_off(&self) {
        let began = Instant::now();
        while let Some(shared) = self.shared.upgrade() {
            if let Some(mut core) = shared.core.try_lock() {
                core.device.set_tracer(None);
                return;
            }
            let late = began.elapsed() > FAREWELL && self.closing.load(Ordering::SeqCst);
            if shared.core.has_failed() || late {
                return;
            }
            drop(shared);
            std::thread::sleep(if began.elapsed() > FAREWELL { LOOK } else { LOOK_AGAIN });
        }
    }

    /// Sleeps a little. Whether whoever asked has had enough.
    fn rest(&self) -> Option<End> {
        let mut said = [0; 64];
        if self.reader.set_read_timeout(Some(LOOK)).is_err() {
            return Some(End::Gone);
        }
        match (&self.reader).read(&mut said) {
            Ok(0) => Some(End::Asked), // he has closed his side, or died
            Ok(_) => None,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                None
            }
            Err(_) => Some(End::Gone),
        }
    }

    fn micros(&self, at: Time) -> f64 {
        at.since(self.begin).0 as f64 / 1e3
    }

    /// Makes lines of what is in the ring, at most so many. Whether that was all.
    fn take(&mut self, ring: &mut Ring, most: usize, lines: &mut Vec<u8>) -> bool {
        for _ in 0..most {
            let Ok(Entry { at, peer, event, dropped_before }) = ring.take.try_recv() else { return true };
            let t_us = self.micros(at);
            if dropped_before > 0 {
                ring.told += dropped_before;
                put(lines, &Line::Dropped { t_us, missing: dropped_before });
            }
            self.know(peer);
            let dst = self.peers.get(&peer).map_or("unknown", String::as_str);
            put(lines, &EventLine { t_us, src: self.src.as_str(), dst, event });
        }
        false
    }

    /// Looks for the address of a peer that is new.
    fn know(&mut self, peer: PeerId) {
        if self.peers.contains_key(&peer) {
            return;
        }
        let until = Instant::now() + LONGEST_LOOK;
        while let Some(shared) = self.shared.upgrade() {
            if let Some(core) = shared.core.try_lock() {
                if self.peers.len() >= MOST_PEERS {
                    self.peers.clear();
                }
                let peers = core.device.endpoint().peers();
                self.peers.extend(peers.map(|peer| (peer.id, peer.addr.to_string())));
                // One that has made way for another will not come back under this number.
                self.peers.entry(peer).or_insert_with(|| "unknown".into());
                return;
            }
            if Instant::now() >= until {
                return;
            }
            drop(shared);
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Writes what is left, and the last line.
    fn finish(&mut self, mut ring: Ring) {
        let mut lines = Vec::new();
        loop {
            let all = self.take(&mut ring, AT_ONCE, &mut lines);
            if !self.send(&lines, FAREWELL) {
                return;
            }
            lines.clear();
            if all {
                break;
            }
        }
        let t_us = self.micros(crate::clock::now());
        let missing = ring.dropped.load(Ordering::Relaxed);
        if missing > ring.told {
            put(&mut lines, &Line::Dropped { t_us, missing: missing - ring.told });
        }
        put(&mut lines, &Line::RecordingEnded { t_us, missing });
        self.send(&lines, FAREWELL);
    }

    /// Whether the reader has taken all of it: he may rest, but not for longer than `patience`.
    fn send(&self, mut bytes: &[u8], patience: Duration) -> bool {
        if self.reader.set_write_timeout(Some(10 * LOOK)).is_err() {
            return false;
        }
        let mut until = Instant::now() + patience;
        while !bytes.is_empty() {
            match (&self.reader).write(bytes) {
                Ok(0) => return false,
                Ok(sent) => {
                    bytes = &bytes[sent..];
                    until = Instant::now() + patience;
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                {
                    let closing = patience > FAREWELL && self.closing.load(Ordering::SeqCst);
                    if Instant::now() >= until || closing {
                        return false;
                    }
                }
                Err(_) => return false, // he has gone
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_wire::{PathId, Psn};

    fn event(n: u32) -> Event {
        Event::Spurious { psn: Psn(n), path: PathId(3) }
    }

    #[test]
    fn what_finds_no_room_is_dropped_and_the_next_event_says_how_much() {
        let (mut tracer, ring) = ring();
        let peer = PeerId { slot: 0, generation: 0 };
        for n in 0..RING as u32 + 5 {
            tracer(Time(n as u64), peer, &event(n));
        }
        assert_eq!(ring.dropped.load(Ordering::Relaxed), 5);
        assert_eq!(ring.take.try_recv().unwrap().at, Time(0));
        tracer(Time(7), peer, &event(7));
        let last = std::iter::from_fn(|| ring.take.try_recv().ok()).last().unwrap();
        assert_eq!((last.at, last.dropped_before), (Time(7), 5));
    }

    #[test]
    fn lines_have_the_fields_of_the_table_in_its_order() {
        let event = Event::PathChosen {
            path: PathId(3),
            rule: "first",
            other: None,
            score: f64::INFINITY,
            other_score: 1.5,
            usable: 16,
        };
        let mut lines = Vec::new();
        put(&mut lines, &EventLine { t_us: 1.25, src: "10.0.0.1:17408", dst: "[fd00::2]:17408", event });
        assert_eq!(
            String::from_utf8(lines).unwrap(),
            "{\"event\":\"path_chosen\",\"t_us\":1.25,\"src\":\"10.0.0.1:17408\",\"dst\":\"[fd00::2]:17408\",\"path\":3,\
             \"rule\":\"first\",\"other\":null,\"score\":null,\"other_score\":1.5,\"usable\":16}\n"
        );
    }
}
