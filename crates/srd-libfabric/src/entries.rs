//! Entries of completion queues: where they wait, and how they are written into a program's array.

use crate::bereaved::Bereaved;
use crate::boundary::{Errno, Outcome};
use crate::constants::*;
use crate::layout::*;
use crate::wait::WaitObject;
use libc::c_void;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Entries for which there is room from the start.
const AT_ONCE: usize = 1024;

/// An entry of a completion queue, of any format.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    pub context: u64,
    pub flags: u64,
    pub len: u64,
    pub buf: u64,
    pub data: u64,
    pub tag: u64,
    /// The sender's fi_addr_t, or FI_ADDR_NOTAVAIL.
    pub source: u64,
    /// Bytes that did not fit.
    pub over: u64,
    /// 0 unless it is an error.
    pub err: i32,
    /// Why, for `in_words`.
    pub prov_errno: i32,
}

/// What endpoints keep of a completion queue.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Whether there are entries, as of whoever had the lock last: most polls find none, and need no lock for that.
    any: AtomicBool,
    pub wait: WaitObject,
}

pub(crate) struct Waiting {
    pub entries: VecDeque<Entry>,
    /// Reads in a row that have moved no packets.
    pub reads_without_round: u32,
}

/// The entries, for as long as they are locked.
pub(crate) struct Locked<'a> {
    waiting: MutexGuard<'a, Waiting>,
    any: &'a AtomicBool,
}

impl Deref for Locked<'_> {
    type Target = Waiting;

    #[inline]
    fn deref(&self) -> &Waiting {
        &self.waiting
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Waiting {
        &mut self.waiting
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.any.store(!self.waiting.entries.is_empty(), Ordering::Release);
    }
}

impl Queue {
    pub fn new(wait: WaitObject) -> Queue {
        let waiting = Waiting { entries: VecDeque::with_capacity(AT_ONCE), reads_without_round: 0 };
        Queue { waiting: Mutex::new(waiting), any: AtomicBool::new(false), wait }
    }

    #[inline]
    pub fn lock(&self) -> Locked<'_> {
        Locked { waiting: self.waiting.lock().unwrap_or_else(PoisonError::into_inner), any: &self.any }
    }

    #[inline]
    pub fn push(&self, entry: Entry) {
        self.lock().entries.push_back(entry);
        self.wait.raise();
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }
}

impl Bereaved for Queue {
    fn device_failed(&self) {
        self.wait.raise();
    }
}

impl Waiting {
    /// Takes entries up to the first error. -FI_EAVAIL if that comes first, -FI_EAGAIN if there is nothing.
    ///
    /// # Safety
    /// There is room for `count` entries of that format at `buf`, and for as many addresses at `sources`, if not NULL.
    #[inline(always)]
    pub unsafe fn take(
        &mut self,
        format: u32,
        buf: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
    ) -> Outcome<usize> {
        let mut n = 0;
        while n < count {
            let Some(entry) = self.entries.front() else { break };
            if entry.err != 0 {
                break;
            }
            // SAFETY: as the caller says.
            unsafe {
                write(format, buf, n, entry);
                if !sources.is_null() {
                    *sources.add(n) = entry.source;
                }
            }
            self.entries.pop_front();
            n += 1;
        }
        match self.entries.front() {
            _ if n > 0 => Ok(n),
            Some(entry) if entry.err != 0 => Err(Errno(FI_EAVAIL)),
            _ => Err(Errno::AGAIN),
        }
    }
}

/// Bytes of an entry: each format is the beginning of the next.
fn entry_size(format: u32) -> usize {
    use std::mem::offset_of;
    match format {
        FI_CQ_FORMAT_CONTEXT => offset_of!(fi_cq_tagged_entry, flags),
        FI_CQ_FORMAT_MSG => offset_of!(fi_cq_tagged_entry, buf),
        FI_CQ_FORMAT_DATA => offset_of!(fi_cq_tagged_entry, tag),
        _ => size_of::<fi_cq_tagged_entry>(),
    }
}

/// # Safety
/// There is room for an entry of that format behind `index` others at `buf`.
#[inline]
unsafe fn write(format: u32, buf: *mut c_void, index: usize, entry: &Entry) {
    // SAFETY: as the caller says; each format is the beginning of the next.
    unsafe {
        let to = buf.cast::<u8>().add(index * entry_size(format)).cast::<fi_cq_tagged_entry>();
        (&raw mut (*to).op_context).write_unaligned(entry.context as *mut c_void);
        if format == FI_CQ_FORMAT_CONTEXT {
            return;
        }
        (&raw mut (*to).flags).write_unaligned(entry.flags);
        (&raw mut (*to).len).write_unaligned(entry.len as usize);
        if format == FI_CQ_FORMAT_MSG {
            return;
        }
        (&raw mut (*to).buf).write_unaligned(entry.buf as *mut c_void);
        (&raw mut (*to).data).write_unaligned(entry.data);
        if format != FI_CQ_FORMAT_DATA {
            (&raw mut (*to).tag).write_unaligned(entry.tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(errors: &[i32]) -> Waiting {
        let entries = errors.iter().enumerate();
        Waiting {
            entries: entries
                .map(|(i, &err)| Entry { context: i as u64 + 1, tag: 9, err, ..Entry::default() })
                .collect(),
            reads_without_round: 0,
        }
    }

    #[test]
    fn reads_stop_at_an_error() {
        let mut waiting = waiting(&[0, 0, 5, 0]);
        let mut buf = [0u64; 8];
        let mut take = |waiting: &mut Waiting, count| {
            // SAFETY: room for eight contexts.
            unsafe {
                waiting.take(FI_CQ_FORMAT_CONTEXT, buf.as_mut_ptr().cast(), count, std::ptr::null_mut())
            }
        };
        assert_eq!(take(&mut waiting, 8), Ok(2));
        assert_eq!(take(&mut waiting, 8), Err(Errno(FI_EAVAIL)));
        waiting.entries.pop_front();
        assert_eq!(take(&mut waiting, 8), Ok(1));
        assert_eq!(take(&mut waiting, 8), Err(Errno::AGAIN));
    }

    #[test]
    fn entries_have_the_size_of_their_format() {
        assert_eq!([1, 2, 3, 4].map(entry_size), [8, 24, 40, 48]);
        let mut buf = [0u64; 12];
        let mut sources = [0u64; 2];
        // SAFETY: room for two of the longest entries and their sources.
        let n = unsafe {
            waiting(&[0, 0]).take(FI_CQ_FORMAT_TAGGED, buf.as_mut_ptr().cast(), 2, sources.as_mut_ptr())
        };
        assert_eq!((n, buf[0], buf[5], buf[6], buf[11]), (Ok(2), 1, 9, 2, 9));
    }
}
