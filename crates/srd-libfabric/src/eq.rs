//! Event queues (fi_eq(3)): what has become of insertions and registrations that a program did not wait for, and events that
//! the program writes itself.

use crate::bereaved::{Bereaved, is_bound};
use crate::boundary::{Errno, Outcome, abi, array, copy_text, object, value_or, writable};
use crate::completions::in_words;
use crate::constants::*;
use crate::fabric::{Fabric, Shared};
use crate::layout::*;
use crate::wait::{WaitObject, timeout};
use crate::wait_set::signal_of;
use crate::waitable::{self, Waitable};
use libc::{c_char, c_int, c_void};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[repr(C)]
pub(crate) struct Eq {
    fid: fid_eq,
    _fabric: Arc<Shared>,
    pub events: Arc<Events>,
}

/// What objects keep of it.
pub(crate) struct Events {
    waiting: Mutex<VecDeque<Event>>,
    come: Condvar,
    wait: WaitObject,
}

enum Event {
    Plain { event: u32, data: Vec<u8> },
    Error(fi_eq_err_entry),
}

// SAFETY: pointers that are handed back to the program as they came.
unsafe impl Send for Event {}

impl Events {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: Event) {
        self.lock().push_back(event);
        self.come.notify_all();
        self.wait.raise();
    }

    /// An operation on an object is complete.
    pub fn report(&self, event: u32, entry: fi_eq_entry) {
        // SAFETY: a structure without padding, of pointers and a number.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const entry).cast::<u8>(), size_of::<fi_eq_entry>()) };
        self.push(Event::Plain { event, data: bytes.to_vec() });
    }

    /// A part of it has failed; `data` says which.
    pub fn report_error(&self, fid: *mut fid, context: *mut c_void, data: u64, errno: Errno) {
        self.push(Event::Error(fi_eq_err_entry {
            fid,
            context,
            data,
            err: errno.0,
            prov_errno: 0,
            err_data: std::ptr::null_mut(),
            err_data_size: 0,
        }));
    }

    /// Takes the oldest event, or with FI_PEEK looks at it. -FI_EAVAIL if it is an error, -FI_EAGAIN if there is none.
    ///
    /// # Safety
    /// `len` bytes at `buf` may be written.
    unsafe fn read(&self, event: *mut u32, buf: *mut c_void, len: usize, flags: u64) -> Outcome<usize> {
        let mut waiting = self.lock();
        let n = match waiting.front() {
            None => return Err(Errno::AGAIN),
            Some(Event::Error(_)) => return Err(Errno(FI_EAVAIL)),
            Some(Event::Plain { data, .. }) if len < data.len() => return Err(TOO_SMALL),
            Some(Event::Plain { event: kind, data }) => {
                // SAFETY: as the caller says.
                unsafe {
                    *writable(event)? = *kind;
                    if !data.is_empty() {
                        std::ptr::copy_nonoverlapping(data.as_ptr(), buf.cast(), data.len());
                    }
                }
                data.len()
            }
        };
        if flags & FI_PEEK == 0 {
            waiting.pop_front();
        }
        Ok(n)
    }
}

impl Bereaved for Events {
    fn device_failed(&self) {
        self.report_error(std::ptr::null_mut(), std::ptr::null_mut(), 0, Errno::IO);
    }
}

impl Eq {
    /// # Safety
    /// The pointer is NULL or points to a live queue of ours.
    pub unsafe fn of<'a>(pointer: *mut fid_eq) -> Outcome<&'a Eq> {
        // SAFETY: as the caller says; `fid` is the first field.
        unsafe { object(pointer) }
    }
}

impl Waitable for Eq {
    fn wait_object(&self) -> &WaitObject {
        &self.events.wait
    }

    fn context(&self) -> *mut c_void {
        self.fid.fid.context
    }

    fn is_bound(&self) -> bool {
        is_bound(&self.events)
    }

    fn look(&self) -> Outcome<bool> {
        Ok(!self.events.lock().is_empty())
    }
}

static FID_OPS: fi_ops = fi_ops { close, control, ..fi_ops::ABSENT };

static OPS: fi_ops_eq = fi_ops_eq { size: size_of::<fi_ops_eq>(), read, readerr, write, sread, strerror };

abi! {
    status fn open(
        fabric: *mut fid_fabric,
        attr: *mut fi_eq_attr,
        eq: *mut *mut fid_eq,
        context: *mut c_void,
    ) {
        let fabric = Fabric::of(fabric)?;
        let (kind, set) = match attr.as_ref() {
            Some(attr) => (attr.wait_obj, attr.wait_set),
            None => (FI_WAIT_UNSPEC, std::ptr::null_mut()),
        };
        let wait = WaitObject::new(kind, signal_of(set))?;
        let made = Box::into_raw(Box::new(Eq {
            fid: fid_eq { fid: fid { fclass: FI_CLASS_EQ, context, ops: &FID_OPS }, ops: &OPS },
            _fabric: fabric.shared.clone(),
            events: Arc::new(Events { waiting: Mutex::default(), come: Condvar::new(), wait }),
        }));
        waitable::enter(made);
        *writable(eq)? = made.cast();
        Ok(())
    }

    closing fn close(fid: *mut fid) {
        waitable::close::<Eq>(fid)
    }

    status fn control(fid: *mut fid, command: c_int, arg: *mut c_void) {
        Eq::of(fid.cast())?.events.wait.control(command, arg)
    }

    count fn read(eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, flags: u64) {
        Eq::of(eq)?.events.read(event, buf, len, flags)
    }

    count fn readerr(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) {
        let mut waiting = Eq::of(eq)?.events.lock();
        let buf = writable(buf)?;
        let Some(Event::Error(entry)) = waiting.front() else { return Err(Errno::AGAIN) };
        // err_data belongs to the program from API 1.5 on: there is never any.
        *buf = fi_eq_err_entry { err_data: buf.err_data, ..std::ptr::read(entry) };
        if flags & FI_PEEK == 0 {
            waiting.pop_front();
        }
        Ok(size_of::<fi_eq_err_entry>())
    }

    count fn write(eq: *mut fid_eq, event: u32, buf: *const c_void, len: usize, _flags: u64) {
        let data = array(buf.cast::<u8>(), len)?.to_vec();
        Eq::of(eq)?.events.push(Event::Plain { event, data });
        Ok(len)
    }

    count fn sread(
        eq: *mut fid_eq,
        event: *mut u32,
        buf: *mut c_void,
        len: usize,
        milliseconds: c_int,
        flags: u64,
    ) {
        let events = &Eq::of(eq)?.events;
        let until = timeout(milliseconds).map(|timeout| Instant::now() + timeout);
        let mut waiting = events.lock();
        while waiting.is_empty() {
            waiting = match until {
                None => events.come.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    events.come.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        drop(waiting);
        events.read(event, buf, len, flags)
    }
}

unsafe extern "C" fn strerror(
    _eq: *mut fid_eq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    value_or("fi_eq_strerror", c"internal error".as_ptr(), || {
        // SAFETY: by fi_eq(3) there is that much room, or none.
        unsafe { copy_text(in_words(prov_errno), buf, len) }
    })
}
