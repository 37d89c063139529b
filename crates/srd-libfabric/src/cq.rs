//! Completion queues (fi_cq(3)). They grow: the size that a program asks for is a hint, and nothing is ever lost.

use crate::boundary::{Absent, Errno, Outcome, abi, object, readable, value_or, writable};
use crate::completions::{Entry, in_words};
use crate::constants::*;
use crate::domain::{Domain, Shared};
use crate::engine::{Bereaved, Engine, is_bound};
use crate::layout::*;
use crate::wait::{self, WaitObject, Waitable, timeout};
use crate::wait_set::{self, control};
use libc::{c_char, c_int, c_void};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Entries for which there is room from the start.
const AT_ONCE: usize = 1024;

/// So many reads in a row may hand out entries that are there without moving packets. A program that always finds something
/// must not keep the rest of the world waiting.
const READS_WITHOUT_ROUND: u32 = 16;

#[repr(C)]
pub(crate) struct Cq {
    fid: fid_cq,
    domain: Arc<Shared>,
    pub queue: Arc<Queue>,
    format: u32,
    has_threshold: bool,
    /// [`signal`] was called and has woken nobody yet.
    signalled: AtomicBool,
}

/// What endpoints keep of it.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Whether there are entries, as of whoever had the lock last: most polls find none, and need no lock for that.
    any: AtomicBool,
    wait: WaitObject,
}

struct Waiting {
    entries: VecDeque<Entry>,
    reads_without_round: u32,
}

/// The entries, for as long as they are locked.
struct Locked<'a> {
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
    #[inline]
    fn lock(&self) -> Locked<'_> {
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
    #[inline]
    unsafe fn take(
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
    let whole = fi_cq_tagged_entry {
        op_context: entry.context as *mut c_void,
        flags: entry.flags,
        len: entry.len as usize,
        buf: entry.buf as *mut c_void,
        data: entry.data,
        tag: entry.tag,
    };
    let size = entry_size(format);
    // SAFETY: as the caller says; no entry is longer than `whole`.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const whole).cast::<u8>(),
            buf.cast::<u8>().add(index * size),
            size,
        );
    }
}

impl Cq {
    /// # Safety
    /// The pointer is NULL or points to a live queue of ours.
    #[inline]
    pub unsafe fn of<'a>(pointer: *mut fid_cq) -> Outcome<&'a Cq> {
        // SAFETY: as the caller says; `fid` is the first field.
        unsafe { object(pointer) }
    }

    pub fn domain(&self) -> &Arc<Shared> {
        &self.domain
    }

    /// # Safety
    /// As of [`Waiting::take`].
    #[inline]
    unsafe fn read(&self, buf: *mut c_void, count: usize, sources: *mut fi_addr_t) -> Outcome<usize> {
        if !self.queue.is_empty() {
            let mut waiting = self.queue.lock();
            if !waiting.entries.is_empty() && waiting.reads_without_round < READS_WITHOUT_ROUND {
                waiting.reads_without_round += 1;
                // SAFETY: as the caller says.
                return unsafe { waiting.take(self.format, buf, count, sources) };
            }
        }
        self.domain.engine.poll()?;
        if self.queue.is_empty() {
            return Err(Errno::AGAIN);
        }
        let mut waiting = self.queue.lock();
        waiting.reads_without_round = 0;
        // SAFETY: as the caller says.
        unsafe { waiting.take(self.format, buf, count, sources) }
    }

    /// # Safety
    /// As of [`Waiting::take`]; `threshold` is NULL or leads to a number.
    unsafe fn wait_and_read(
        &self,
        buf: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
        threshold: *const c_void,
        milliseconds: c_int,
    ) -> Outcome<usize> {
        if self.queue.wait.kind == FI_WAIT_NONE {
            return Err(Errno::INVALID);
        }
        let enough = match self.has_threshold && !threshold.is_null() {
            // SAFETY: by fi_cq(3) a size_t where the queue waits for a threshold.
            true => unsafe { *threshold.cast::<usize>() }.max(1),
            false => 1,
        };
        let mut signalled = false;
        let waited = self.domain.engine.wait(timeout(milliseconds), || {
            signalled = signalled || self.signalled.swap(false, Ordering::SeqCst);
            let waiting = self.queue.lock();
            signalled
                || waiting.entries.len() >= enough
                || waiting.entries.front().is_some_and(|entry| entry.err != 0)
        });
        if self.queue.is_empty() {
            waited?; // otherwise what had completed before the device failed
        }
        // SAFETY: as the caller says.
        unsafe { self.queue.lock().take(self.format, buf, count, sources) }
    }
}

impl Waitable for Cq {
    fn wait_object(&self) -> &WaitObject {
        &self.queue.wait
    }

    fn context(&self) -> *mut c_void {
        self.fid.fid.context
    }

    fn engine(&self) -> Option<&Engine> {
        Some(&self.domain.engine)
    }

    fn is_bound(&self) -> bool {
        is_bound(&self.queue)
    }

    /// Moves packets unless something is there already.
    fn look(&self) -> Outcome<bool> {
        if self.queue.is_empty() {
            self.domain.engine.progress()?;
        }
        Ok(!self.queue.is_empty())
    }
}

static FID_OPS: fi_ops = fi_ops { close, control, ..fi_ops::ABSENT };

static OPS: fi_ops_cq = fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read,
    readfrom,
    readerr,
    sread,
    sreadfrom,
    signal,
    strerror,
    export_xpu: Absent::ABSENT,
};

abi! {
    status fn open(domain: *mut fid_domain, attr: *mut fi_cq_attr, cq: *mut *mut fid_cq, context: *mut c_void) {
        let domain = Domain::of(domain)?;
        // A program that gives no attributes wants what suits us (fi_cq(3) has no words for it; others do the same).
        let (format, kind, condition, set) = match attr.as_ref() {
            Some(attr) => (attr.format, attr.wait_obj, attr.wait_cond, attr.wait_set),
            None => (FI_CQ_FORMAT_UNSPEC, FI_WAIT_NONE, FI_CQ_COND_NONE, std::ptr::null_mut()),
        };
        if condition > FI_CQ_COND_THRESHOLD {
            return Err(Errno::INVALID);
        }
        let format = match format {
            FI_CQ_FORMAT_UNSPEC => FI_CQ_FORMAT_TAGGED,
            FI_CQ_FORMAT_CONTEXT..=FI_CQ_FORMAT_TAGGED => format,
            _ => return Err(Errno::NO_SYS),
        };
        let wait = WaitObject::new(kind, wait_set::signal_of(set))?;
        let waiting = Waiting { entries: VecDeque::with_capacity(AT_ONCE), reads_without_round: 0 };
        let made = Box::new(Cq {
            fid: fid_cq { fid: fid { fclass: FI_CLASS_CQ, context, ops: &FID_OPS }, ops: &OPS },
            domain: domain.shared.clone(),
            queue: Arc::new(Queue { waiting: Mutex::new(waiting), any: AtomicBool::new(false), wait }),
            format,
            has_threshold: condition == FI_CQ_COND_THRESHOLD,
            signalled: AtomicBool::new(false),
        });
        made.domain.engine.tell_of_failure(&made.queue);
        let made = Box::into_raw(made);
        wait_set::enter(set, made.cast());
        *writable(cq)? = made.cast();
        Ok(())
    }

    closing fn close(fid: *mut fid) {
        wait::close::<Cq>(fid)
    }

    count fn read(cq: *mut fid_cq, buf: *mut c_void, count: usize) {
        Cq::of(cq)?.read(buf, count, std::ptr::null_mut())
    }

    count fn readfrom(cq: *mut fid_cq, buf: *mut c_void, count: usize, sources: *mut fi_addr_t) {
        Cq::of(cq)?.read(buf, count, sources)
    }

    count fn sread(cq: *mut fid_cq, buf: *mut c_void, count: usize, condition: *const c_void, timeout: c_int) {
        Cq::of(cq)?.wait_and_read(buf, count, std::ptr::null_mut(), condition, timeout)
    }

    count fn sreadfrom(
        cq: *mut fid_cq,
        buf: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
        condition: *const c_void,
        timeout: c_int,
    ) {
        Cq::of(cq)?.wait_and_read(buf, count, sources, condition, timeout)
    }

    /// Structures of programs that are older than 1.20 end before the source.
    count fn readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, _flags: u64) {
        let cq = Cq::of(cq)?;
        readable(buf)?;
        let mut waiting = cq.queue.lock();
        let entry = *waiting.entries.front().filter(|entry| entry.err != 0).ok_or(Errno::AGAIN)?;
        waiting.entries.pop_front();
        drop(waiting);
        (*buf).op_context = entry.context as *mut c_void;
        (*buf).flags = entry.flags;
        (*buf).len = entry.len as usize;
        (*buf).buf = entry.buf as *mut c_void;
        (*buf).data = entry.data;
        (*buf).tag = entry.tag;
        (*buf).olen = entry.over as usize;
        (*buf).err = entry.err;
        (*buf).prov_errno = entry.prov_errno;
        if cq.domain.api() < fi_version(1, 5) {
            (*buf).err_data = std::ptr::null_mut();
        }
        (*buf).err_data_size = 0;
        if cq.domain.api() >= fi_version(1, 20) {
            (*buf).src_addr = entry.source;
        }
        Ok(1)
    }

    status fn signal(cq: *mut fid_cq) {
        let cq = Cq::of(cq)?;
        cq.signalled.store(true, Ordering::SeqCst);
        cq.queue.wait.raise();
        cq.domain.engine.instance.wake();
        Ok(())
    }
}

unsafe extern "C" fn strerror(
    _cq: *mut fid_cq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    value_or("fi_cq_strerror", c"internal error".as_ptr(), || {
        // SAFETY: by fi_cq(3) there is that much room, or none.
        unsafe { copy_text(in_words(prov_errno), buf, len) }
    })
}

/// Copies as much of a text as fits into the program's buffer, if there is one, and returns where to read it.
///
/// # Safety
/// `len` bytes at `buf` may be written, unless it is NULL.
pub(crate) unsafe fn copy_text(text: &'static CStr, buf: *mut c_char, len: usize) -> *const c_char {
    if buf.is_null() || len == 0 {
        return text.as_ptr();
    }
    let n = text.count_bytes().min(len - 1);
    // SAFETY: as the caller says.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buf, n);
        *buf.add(n) = 0;
    }
    buf
}

/// The same for a text that is made for the occasion; `len` says afterwards how much room it needs.
///
/// # Safety
/// `*len` bytes at `buf` may be written, unless it is NULL.
pub(crate) unsafe fn copy_out_text(text: &str, buf: *mut c_char, len: *mut usize) -> *const c_char {
    // SAFETY: as the caller says.
    unsafe {
        let Some(len) = len.as_mut() else { return std::ptr::null() };
        let room = std::mem::replace(len, text.len() + 1);
        if !buf.is_null() && room > 0 {
            let n = text.len().min(room - 1);
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buf, n);
            *buf.add(n) = 0;
        }
    }
    buf
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
