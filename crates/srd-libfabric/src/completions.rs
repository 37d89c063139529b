//! From what the messaging layer says has completed to what programs see: which queue and which counter, with which flags
//! (fi_cq(3), fi_cntr(3)), and which error.

use crate::bereaved::Bereaved;
use crate::constants::*;
use crate::entries::{Entry, Queue};
use crate::wait::WaitObject;
use srd_device::accelerator::unmarked;
use srd_msg::{Counted, Done, Failure, Kind, NO_LABEL};
use srd_wire::Status;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What endpoints keep of a counter.
pub(crate) struct Count {
    pub value: AtomicU64,
    pub errors: AtomicU64,
    pub wait: WaitObject,
}

impl Count {
    #[inline]
    pub fn add(&self, n: u64) {
        self.value.fetch_add(n, Ordering::Release);
        self.wait.raise();
    }

    pub fn add_error(&self, n: u64) {
        self.errors.fetch_add(n, Ordering::Release);
        self.wait.raise();
    }

    pub fn sum(&self) -> u64 {
        self.value.load(Ordering::Acquire).wrapping_add(self.errors.load(Ordering::Acquire))
    }
}

impl Bereaved for Count {
    /// fi_cntr_read(3) cannot fail: a program that reads on and on learns from the errors that it waits in vain.
    fn device_failed(&self) {
        self.add_error(1);
    }
}

/// The counters of an endpoint, by what they count.
#[derive(Clone, Default)]
pub(crate) struct Counts {
    pub send: Option<Arc<Count>>,
    pub recv: Option<Arc<Count>>,
    pub read: Option<Arc<Count>>,
    pub write: Option<Arc<Count>>,
    pub remote_read: Option<Arc<Count>>,
    pub remote_write: Option<Arc<Count>>,
}

impl Counts {
    /// What of peers' doing is counted though they do not tell of it.
    pub fn of_peers(&self) -> Counted {
        Counted { reads: self.remote_read.is_some(), writes: self.remote_write.is_some() }
    }
}

/// The counters of a domain's registrations, by what the messaging layer tells of them.
#[derive(Default)]
pub(crate) struct RegionCounts(Mutex<HashMap<u64, RegionCount>>);

/// The counters of a registration.
#[derive(Clone, Default)]
pub(crate) struct RegionCount {
    pub read: Option<Arc<Count>>,
    pub write: Option<Arc<Count>>,
}

impl RegionCount {
    pub fn counted(&self) -> Counted {
        Counted { reads: self.read.is_some(), writes: self.write.is_some() }
    }
}

impl RegionCounts {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, RegionCount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, region: u64, counts: RegionCount) {
        self.lock().insert(region, counts);
    }

    pub fn remove(&self, region: u64) {
        self.lock().remove(&region);
    }

    #[cold]
    fn count(&self, region: u64, write: bool) {
        // One that has gone meanwhile counts nothing.
        let counts = self.lock().get(&region).cloned().unwrap_or_default();
        if let Some(count) = if write { counts.write } else { counts.read } {
            count.add(1);
        }
    }
}

/// Where completions of an endpoint go.
#[derive(Clone, Default)]
pub(crate) struct Reports {
    pub transmit: Option<Arc<Queue>>,
    pub receive: Option<Arc<Queue>>,
    pub counts: Counts,
    pub regions: Arc<RegionCounts>,
    /// Whether the program has asked for FI_SOURCE.
    pub sources: bool,
}

impl Reports {
    /// Enters a completion wherever it belongs.
    #[inline]
    pub fn deliver(&self, done: &Done) {
        let (queue, count, flags) = match done.kind {
            Kind::Access { write } => return self.regions.count(done.context, write),
            kind => self.way_of(kind),
        };
        if let Some(count) = count {
            match done.error {
                None => count.add(1),
                Some(_) => count.add_error(1),
            }
        }
        if (done.report || done.error.is_some())
            && let Some(queue) = queue
        {
            queue.push(self.entry(done, flags));
        }
    }

    /// Where completions of a kind go, and with which flags.
    #[inline(always)]
    fn way_of(&self, kind: Kind) -> (&Option<Arc<Queue>>, &Option<Arc<Count>>, u64) {
        let Reports { transmit, receive, counts, .. } = self;
        match kind {
            Kind::Send { tagged } => (transmit, &counts.send, FI_SEND | of_message(tagged)),
            Kind::Recv { tagged } => (receive, &counts.recv, FI_RECV | of_message(tagged)),
            Kind::Peek { tagged } => (receive, &None, FI_RECV | of_message(tagged)),
            Kind::Read => (transmit, &counts.read, FI_RMA | FI_READ),
            Kind::Write => (transmit, &counts.write, FI_RMA | FI_WRITE),
            Kind::Atomic { fetch: true } => (transmit, &counts.read, FI_ATOMIC | FI_READ),
            Kind::Atomic { fetch: false } => (transmit, &counts.write, FI_ATOMIC | FI_WRITE),
            Kind::RemoteWrite => (receive, &counts.remote_write, FI_RMA | FI_REMOTE_WRITE),
            // These are counted only.
            Kind::RemoteRead => (&None, &counts.remote_read, 0),
            Kind::Access { .. } => (&None, &None, 0),
        }
    }

    #[inline]
    fn entry(&self, done: &Done, mut flags: u64) -> Entry {
        if done.data.is_some() {
            flags |= FI_REMOTE_CQ_DATA;
        }
        if done.buffer_released {
            flags |= FI_MULTI_RECV;
        }
        let known = self.sources && done.source != NO_LABEL;
        let mut entry = Entry {
            context: done.context,
            flags,
            len: done.len,
            buf: unmarked(done.buf),
            data: done.data.unwrap_or(0),
            tag: done.tag,
            source: if known { done.source } else { FI_ADDR_NOTAVAIL },
            ..Entry::default()
        };
        if let Some(failure) = done.error {
            explain(&mut entry, failure);
        }
        entry
    }
}

#[inline]
fn of_message(tagged: bool) -> u64 {
    if tagged { FI_TAGGED } else { FI_MSG }
}

#[cold]
fn explain(entry: &mut Entry, failure: Failure) {
    (entry.err, entry.prov_errno) = match failure {
        Failure::Truncated { over } => {
            entry.over = over;
            (FI_ETRUNC, Reason::Truncated as i32)
        }
        Failure::Canceled => (libc::ECANCELED, Reason::Canceled as i32),
        Failure::Closing => (libc::ECANCELED, Reason::Closing as i32),
        Failure::NoMessage => (libc::ENOMSG, Reason::NoMessage as i32),
        Failure::PeerLost(status) => {
            let err = match status {
                Status::Unreachable => libc::EHOSTUNREACH,
                Status::Unresponsive => libc::ETIMEDOUT,
                _ => libc::ECONNRESET,
            };
            (err, status as i32)
        }
        Failure::RemoteAccess { known: true } => (libc::EACCES, Reason::Access as i32),
        Failure::RemoteAccess { known: false } => (libc::EKEYREJECTED, Reason::UnknownKey as i32),
        Failure::RemoteUnsupported => (libc::EOPNOTSUPP, Reason::Unsupported as i32),
        Failure::MemoryGone => (libc::EFAULT, Reason::MemoryGone as i32),
        Failure::Device(status) => (libc::EIO, status as i32),
    };
}

/// Why something failed of which the device has no status: `prov_errno` of error entries, above all that the device has.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
enum Reason {
    Truncated = 256,
    Canceled,
    Closing,
    NoMessage,
    Access,
    UnknownKey,
    Unsupported,
    MemoryGone,
}

const REASONS: [(Reason, &CStr); 8] = [
    (Reason::Truncated, c"the message was longer than the buffer of its receive"),
    (Reason::Canceled, c"the program has cancelled it"),
    (Reason::Closing, c"the endpoint is being closed"),
    (Reason::NoMessage, c"no such message has come so far"),
    (Reason::Access, c"the key does not cover the range, or does not permit the access"),
    (Reason::UnknownKey, c"the peer has no memory under this key: it never had, or has closed it"),
    (Reason::Unsupported, c"the peer's provider does not offer this operation"),
    (
        Reason::MemoryGone,
        c"the GPU's driver could not reach the program's memory: it has been freed, or the GPU has failed",
    ),
];

/// What `prov_errno` of an error entry means: one of our reasons, or a status of the device.
pub(crate) fn in_words(prov_errno: i32) -> &'static CStr {
    if let Some((_, words)) = REASONS.iter().find(|(reason, _)| *reason as i32 == prov_errno) {
        return words;
    }
    static WORDS: OnceLock<Vec<CString>> = OnceLock::new();
    let words = WORDS.get_or_init(|| {
        let known = |n| Status::from_u8(n).filter(|status| *status != Status::Ok).map(srd_device::describe);
        (0..=LAST_STATUS).map(|n| CString::new(known(n).unwrap_or(UNKNOWN)).unwrap_or_default()).collect()
    });
    words.get(usize::try_from(prov_errno).unwrap_or(0)).unwrap_or(&words[0])
}

const LAST_STATUS: u8 = Status::FeatureMismatch as u8;
const UNKNOWN: &str = "no more is known";

#[cfg(test)]
mod tests {
    use super::*;
    use srd_msg::EndpointId;

    fn done(kind: Kind) -> Done {
        Done {
            endpoint: EndpointId(0),
            kind,
            context: 7,
            report: true,
            len: 8,
            buf: 0,
            tag: 9,
            data: None,
            source: 3,
            from: None,
            buffer_released: false,
            error: None,
        }
    }

    fn entry_of(reports: &Reports, done: &Done) -> Entry {
        reports.entry(done, reports.way_of(done.kind).2)
    }

    #[test]
    fn flags_say_what_has_completed() {
        let reports = Reports::default();
        for (kind, flags) in [
            (Kind::Send { tagged: false }, FI_SEND | FI_MSG),
            (Kind::Recv { tagged: true }, FI_RECV | FI_TAGGED),
            (Kind::Peek { tagged: true }, FI_RECV | FI_TAGGED),
            (Kind::Read, FI_RMA | FI_READ),
            (Kind::Atomic { fetch: true }, FI_ATOMIC | FI_READ),
            (Kind::Atomic { fetch: false }, FI_ATOMIC | FI_WRITE),
        ] {
            assert_eq!(entry_of(&reports, &done(kind)).flags, flags, "{kind:?}");
        }
        let written = Done { data: Some(5), ..done(Kind::RemoteWrite) };
        assert_eq!(entry_of(&reports, &written).flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    }

    #[test]
    fn the_source_is_told_to_who_has_asked_for_it() {
        let recv = done(Kind::Recv { tagged: false });
        assert_eq!(entry_of(&Reports::default(), &recv).source, FI_ADDR_NOTAVAIL);
        assert_eq!(entry_of(&Reports { sources: true, ..Reports::default() }, &recv).source, 3);
    }

    #[test]
    fn an_error_has_its_number_and_what_is_left_over() {
        let truncated =
            Done { error: Some(Failure::Truncated { over: 4 }), ..done(Kind::Recv { tagged: true }) };
        let entry = entry_of(&Reports::default(), &truncated);
        assert_eq!((entry.err, entry.over), (FI_ETRUNC, 4));
        assert!(in_words(entry.prov_errno).to_string_lossy().contains("longer than the buffer"));
        let lost = Done { error: Some(Failure::PeerLost(Status::Unreachable)), ..done(Kind::Write) };
        assert_eq!(entry_of(&Reports::default(), &lost).err, libc::EHOSTUNREACH);
    }
}
