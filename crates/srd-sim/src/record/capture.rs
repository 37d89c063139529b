//! Captures of cables, in the classic pcap format with nanoseconds, which Wireshark and tcpdump read: every frame that
//! begins to leave either end, at that moment.

use super::folder::Folder;
use super::frame_bytes::OnWire;
use super::name_index::bundled;
use crate::input::Scenario;
use crate::net::{FrameHead, PortId, Sight};
use srd_baselines::input::shown;
use srd_baselines::units::Ps;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// Most cables that a run captures.
pub const MAX_CABLES: usize = 64;
/// Most frames of a capture: some 150 MB of headers.
pub const MAX_FRAMES: u64 = 1 << 20;
/// Most bytes of frames in a capture, for those that keep more than headers.
pub const MAX_BYTES: u64 = 1 << 30;
/// Of times in nanoseconds, and the version (draft-ietf-opsawg-pcap).
const MAGIC: u32 = 0xA1B2_3C4D;
const VERSION: [u16; 2] = [2, 4];
const LINKTYPE_ETHERNET: u32 = 1;
/// The longest frame that readers must expect: that of an IP datagram of full size.
pub const LONGEST_FRAME: u32 = 65_535 + 14;

/// A frame that has joined a queue, and when it will begin to leave.
struct Waiting {
    at: Ps,
    order: u64,
    length: u32,
    bytes: Vec<u8>,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// One capture file.
pub(super) struct PcapWriter {
    name: String,
    out: BufWriter<File>,
    /// Frames not yet written: those of one end are seen in order, those of both are not.
    waiting: BinaryHeap<Reverse<Waiting>>,
    seen: u64,
    /// Frames and bytes taken.
    taken: (u64, u64),
    /// Bytes kept of a frame; `None`: its headers.
    keep: Option<u32>,
    failed: Option<io::Error>,
}

impl PcapWriter {
    fn create(folder: &Folder, name: String, keep: Option<u32>) -> io::Result<PcapWriter> {
        let mut out = folder.create(&name)?;
        out.write_all(&MAGIC.to_le_bytes())?;
        VERSION.iter().try_for_each(|part| out.write_all(&part.to_le_bytes()))?;
        out.write_all(&[0; 8])?; // times are UTC and of unknown accuracy
        out.write_all(&keep.unwrap_or(LONGEST_FRAME).to_le_bytes())?;
        out.write_all(&LINKTYPE_ETHERNET.to_le_bytes())?;
        Ok(PcapWriter { name, out, waiting: BinaryHeap::new(), seen: 0, taken: (0, 0), keep, failed: None })
    }

    fn add(&mut self, now: Ps, leaves: Ps, head: &FrameHead, seen: &impl OnWire) {
        self.write_until(now);
        self.seen += 1;
        if self.taken.0 + 1 < self.seen || self.taken.0 == MAX_FRAMES || self.taken.1 >= MAX_BYTES {
            return; // once one is missing, so are all after it
        }
        let mut bytes = Vec::new();
        let length = seen.write(head, self.keep.is_some(), &mut bytes);
        if let Some(keep) = self.keep {
            bytes.resize(length.min(keep as usize), 0);
        }
        self.taken = (self.taken.0 + 1, self.taken.1 + bytes.len() as u64);
        self.waiting.push(Reverse(Waiting { at: leaves, order: self.seen, length: length as u32, bytes }));
    }

    /// Writes the frames that have begun to leave.
    fn write_until(&mut self, now: Ps) {
        while let Some(Reverse(frame)) = self.waiting.peek()
            && frame.at <= now
        {
            let nanos = frame.at.0 / 1000;
            let mut record = [0; 16];
            let words = [
                (nanos / 1_000_000_000) as u32,
                (nanos % 1_000_000_000) as u32,
                frame.bytes.len() as u32,
                frame.length,
            ];
            for (place, word) in record.chunks_mut(4).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            let result = self.out.write_all(&record).and_then(|()| self.out.write_all(&frame.bytes));
            if let Err(error) = result {
                self.failed.get_or_insert(error);
            }
            self.waiting.pop();
        }
    }
}

/// All captures of a run.
#[derive(Default)]
pub(super) struct Captures {
    files: Vec<PcapWriter>,
    by_port: HashMap<PortId, usize>,
}

/// Cables that are to be captured, and the names of their files.
pub(super) fn chosen(scenario: &Scenario, names: &[String]) -> io::Result<Vec<(u32, String)>> {
    let topology = &scenario.topology;
    let refused =
        |message: String| io::Error::new(io::ErrorKind::InvalidInput, format!("capture: {message}"));
    let mut speak = scenario.settings.transports.iter();
    if let Some(mute) = speak.find(|transport| !transport.choice.has_headers() && !names.is_empty()) {
        return Err(refused(format!(
            "packets of {} have no form on a wire here: record without captures",
            shown(&mute.name)
        )));
    }
    let bundled = bundled(topology);
    let mut cables: Vec<(u32, String)> = Vec::new();
    for name in names {
        let found = topology.cables_named(name).map_err(refused)?;
        if found.len() + cables.len() > MAX_CABLES {
            return Err(refused(format!(
                "{} means {} cables, and a run captures at most {MAX_CABLES}: name those that matter",
                shown(name),
                found.len()
            )));
        }
        for cable in found {
            let number = bundled.get(&cable.cable).map_or_else(String::new, |number| format!("#{number}"));
            let file = format!("{}{number}.pcap", topology.cable_name(cable.cable));
            if !cables.iter().any(|(known, _)| *known == cable.cable) {
                cables.push((cable.cable, file));
            }
        }
    }
    Ok(cables)
}

impl Captures {
    pub(super) fn create(
        folder: &Folder,
        cables: &[(u32, String)],
        keep: Option<u32>,
    ) -> io::Result<Captures> {
        let mut captures = Captures::default();
        for (cable, name) in cables {
            let number = captures.files.len();
            captures.files.push(PcapWriter::create(folder, name.clone(), keep)?);
            captures.by_port.insert(PortId::at_a(*cable), number);
            captures.by_port.insert(PortId::at_b(*cable), number);
        }
        Ok(captures)
    }

    /// Ports to be watched.
    pub(super) fn ports(&self) -> impl Iterator<Item = PortId> {
        self.by_port.keys().copied()
    }

    pub(super) fn add(&mut self, now: Ps, port: PortId, head: &FrameHead, seen: &impl OnWire, sight: Sight) {
        if let Sight::Leaves(at) = sight
            && let Some(&file) = self.by_port.get(&port)
        {
            self.files[file].add(now, at, head, seen);
        }
    }

    /// The run has ended: frames that wait will not leave any more. Returns what a person should know.
    pub(super) fn finish(self, now: Ps) -> io::Result<Vec<String>> {
        let mut notes = Vec::new();
        for mut file in self.files {
            file.write_until(now);
            if let Some(error) = file.failed {
                return Err(error);
            }
            file.out.flush()?;
            let (taken, missing) = (file.taken.0, file.seen - file.taken.0);
            if missing > 0 {
                notes.push(format!("{} has the first {taken} frames; {missing} more are missing", file.name));
            }
        }
        Ok(notes)
    }
}
