//! Segments without files: those of a run are in a list.

use crate::address::Address;
use crate::layout::{Head, Header, LoanLine, LoanTable, Signals, Slot, State};
use crate::memory::Table;
use crate::process_identity::ProcessIdentity;
use crate::reason::NoLane;
use crate::sync::{AtomicU32, AtomicU64};
use crate::sys::{File, Mapping};
use std::array::from_fn;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What processes share.
struct Shared {
    header: Header,
    file: Arc<crate::sys::Inode>,
    signals: Signals,
    slots: Vec<Slot>,
    loans: Table,
    rings: Vec<Arc<Mapping>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the segment of {}", self.header.address)
    }
}

loom::lazy_static! {
    static ref ALL: loom::sync::Mutex<Vec<Arc<Shared>>> = loom::sync::Mutex::new(Vec::new());
}

#[derive(Debug)]
pub struct Segment {
    pub file: File,
    pub header: Header,
    shared: Arc<Shared>,
}

impl Segment {
    pub fn create(_dir: &Path, header: Header) -> io::Result<Segment> {
        let slot = |_| Slot {
            state: AtomicU32::new(State::Free.with(0)),
            epoch: AtomicU32::new(0),
            endpoint: AtomicU32::new(0),
            pid: AtomicU32::new(0),
            started: AtomicU64::new(0),
            namespace: AtomicU64::new(0),
            ip: from_fn(|_| AtomicU64::new(0)),
            head: Head(AtomicU64::new(0)),
        };
        let shared = Arc::new(Shared {
            header,
            file: Arc::default(),
            signals: Signals {
                news: from_fn(|_| AtomicU64::new(0)),
                asleep: AtomicU32::new(0),
                closed: AtomicU32::new(0),
            },
            loans: Table(Arc::new(LoanTable(from_fn(|_| LoanLine(from_fn(|_| AtomicU32::new(0))))))),
            slots: (0..header.shape.lanes).map(slot).collect(),
            rings: (0..header.shape.lanes)
                .map(|_| Arc::new(Mapping::new(header.shape.ring_bytes as usize)))
                .collect(),
        });
        ALL.lock().unwrap().push(shared.clone());
        Ok(Segment { file: File::of(&shared.file), header, shared })
    }

    pub fn find(_dir: &Path, of: &Address, _this: &ProcessIdentity) -> Result<Segment, NoLane> {
        let all = ALL.lock().unwrap();
        let shared = all.iter().find(|shared| shared.header.address == *of).ok_or(NoLane::NoSegment)?.clone();
        Ok(Segment { file: File::of(&shared.file), header: shared.header, shared })
    }

    pub fn owner_lives(&self) -> io::Result<bool> {
        Ok(true)
    }

    pub fn signals(&self) -> &Signals {
        &self.shared.signals
    }

    pub fn slot(&self, lane: u16) -> &Slot {
        &self.shared.slots[usize::from(lane)]
    }

    pub fn loans(&self) -> Table {
        self.shared.loans.clone()
    }

    pub fn ring_of_owner(&self, lane: u16) -> (Arc<Mapping>, usize) {
        (self.shared.rings[usize::from(lane)].clone(), 0)
    }

    pub fn ring_of_sender(&self, lane: u16) -> Result<Arc<Mapping>, NoLane> {
        Ok(self.shared.rings[usize::from(lane)].clone())
    }

    pub fn remove(&self, _dir: &Path) -> io::Result<()> {
        ALL.lock().unwrap().retain(|shared| !Arc::ptr_eq(shared, &self.shared));
        Ok(())
    }
}

pub fn clear_away(_dir: &Path, _this: &ProcessIdentity) -> usize {
    0
}
