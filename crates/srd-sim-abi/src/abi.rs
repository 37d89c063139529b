//! The edge to C: what `srd_sim.h` declares. Nothing here is a pointer into this library but texts; a simulation is a number, which its thread
//! knows, so a wrong one is an error and no crash.
#![allow(unsafe_code)]

use crate::session::{Next, Refused, Session, Status};
use libc::{c_char, c_int, c_void, size_t};
use srd_baselines::units::Ps;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// As `SRD_SIM_VERSION` in `srd_sim.h`: counted up when a function changes, not when one is added.
const VERSION: u32 = 1;

/// Whom to call back, and with what; nobody, if there is no function.
#[derive(Clone, Copy)]
pub struct Callback {
    function: Option<unsafe extern "C" fn(*mut c_void, c_int)>,
    argument: *mut c_void,
}

/// See `srd_sim.h`.
#[repr(C)]
#[allow(missing_docs, non_camel_case_types)]
pub struct srd_sim_totals {
    pub messages_sent: u64,
    pub bytes_sent: u64,
    pub messages_received: u64,
    pub failed: u64,
    pub last_ns: u64,
}

thread_local! {
    static SESSIONS: RefCell<HashMap<u64, Rc<RefCell<Session>>>> = RefCell::default();
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// The number of the next simulation; 0 is none.
static NEXT: AtomicU64 = AtomicU64::new(1);

fn tell(message: &str) {
    let message = CString::new(message.replace('\0', " ")).expect("no zeros are left");
    MESSAGE.with(|it| *it.borrow_mut() = message);
}

/// Runs `body`: what it refuses, and a panic of it, become a status, with a message.
fn guarded(body: impl FnOnce() -> Result<(), Refused>) -> c_int {
    let internal = "an error of the simulator itself (it is on standard error): please report it";
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err((Status::Internal, internal.into())));
    match result {
        Ok(()) => Status::Ok.into(),
        Err((status, message)) => {
            tell(&message);
            status.into()
        }
    }
}

fn find(simulation: u64) -> Result<Rc<RefCell<Session>>, Refused> {
    let found = SESSIONS.with(|sessions| sessions.borrow().get(&simulation).cloned());
    found.ok_or_else(|| {
        let message =
            "this thread has no such simulation: it was closed, opened by another thread, or never opened";
        (Status::NoSimulation, format!("{simulation}: {message}"))
    })
}

/// As [`guarded`], on a simulation, which is of no use any more if something in it panics.
fn on(simulation: u64, body: impl FnOnce(&RefCell<Session>) -> Result<(), Refused>) -> c_int {
    guarded(|| {
        let session = find(simulation)?;
        catch_unwind(AssertUnwindSafe(|| body(&session))).unwrap_or_else(|panic| {
            session.borrow_mut().breaks();
            std::panic::resume_unwind(panic)
        })
    })
}

fn null(what: &str) -> Refused {
    (Status::Invalid, format!("{what} is NULL"))
}

/// Text of the caller's.
///
/// # Safety
/// NULL, or text that ends with a zero and stays for the call.
unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a CStr, Refused> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: as the caller of this function promises.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

fn utf8<'a>(text: &'a CStr, what: &str) -> Result<&'a str, Refused> {
    text.to_str().map_err(|_| (Status::Invalid, format!("{what} is no text in UTF-8")))
}

/// Many things of the caller's.
///
/// # Safety
/// NULL, or so many of them, which stay for the call.
unsafe fn many<'a, T>(pointer: *const T, count: usize, what: &str) -> Result<&'a [T], Refused> {
    match (pointer.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(what)),
        // SAFETY: as the caller of this function promises.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}

/// Writes an answer.
///
/// # Safety
/// NULL, or room for one.
unsafe fn answer<T>(pointer: *mut T, value: T, what: &str) -> Result<(), Refused> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: as the caller of this function promises.
    unsafe { pointer.write(value) };
    Ok(())
}

/// See `srd_sim.h`.
#[unsafe(no_mangle)]
pub extern "C" fn srd_sim_version() -> u32 {
    VERSION
}

/// See `srd_sim.h`.
#[unsafe(no_mangle)]
pub extern "C" fn srd_sim_message() -> *const c_char {
    MESSAGE.with(|it| it.borrow().as_ptr())
}

/// See `srd_sim.h`.
///
/// # Safety
/// As there: pointers are NULL or point to what they are said to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_sim_open(
    file: *const c_char,
    sets: *const *const c_char,
    set_count: size_t,
    simulation: *mut u64,
) -> c_int {
    guarded(|| {
        if simulation.is_null() {
            return Err(null("simulation"));
        }
        // SAFETY: as the caller promises, here and for each below.
        let file = unsafe { text(file, "file") }?;
        // SAFETY: see above.
        let pointers = unsafe { many(sets, set_count, "sets") }?;
        let sets: Result<Vec<String>, Refused> = pointers
            .iter()
            .map(|&set| {
                // SAFETY: see above.
                let set = unsafe { text(set, "one of sets") }?;
                utf8(set, "one of sets").map(String::from)
            })
            .collect();
        let path = Path::new(OsStr::from_bytes(file.to_bytes()));
        let (session, notes) = Session::open(path, &sets?)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        SESSIONS.with(|sessions| sessions.borrow_mut().insert(number, Rc::new(RefCell::new(session))));
        tell(&notes);
        // SAFETY: see above.
        unsafe { answer(simulation, number, "simulation") }
    })
}

/// See `srd_sim.h`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_sim_hosts(simulation: u64, hosts: *mut u32) -> c_int {
    on(simulation, |session| {
        let count = session.borrow_mut().hosts()?;
        // SAFETY: as the caller promises.
        unsafe { answer(hosts, count, "hosts") }
    })
}

/// See `srd_sim.h`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_sim_add_job(
    simulation: u64,
    transport: *const c_char,
    hosts: *const u32,
    ranks: u32,
    job: *mut u32,
) -> c_int {
    on(simulation, |session| {
        if job.is_null() {
            return Err(null("job"));
        }
        let name = match transport.is_null() {
            true => None,
            // SAFETY: as the caller promises, here and for each below.
            false => Some(utf8(unsafe { text(transport, "transport") }?, "transport")?),
        };
        // SAFETY: see above.
        let hosts = unsafe { many(hosts, ranks as usize, "hosts") }?;
        let number = session.borrow_mut().add_job(name, hosts)?;
        // SAFETY: see above.
        unsafe { answer(job, number, "job") }
    })
}

/// See `srd_sim.h`.
#[unsafe(no_mangle)]
pub extern "C" fn srd_sim_send(
    simulation: u64,
    job: u32,
    from: u32,
    to: u32,
    tag: u64,
    bytes: i64,
    function: Option<unsafe extern "C" fn(*mut c_void, c_int)>,
    argument: *mut c_void,
) -> c_int {
    let callback = Callback { function, argument };
    on(simulation, |session| session.borrow_mut().send((job, from, to, tag), bytes, callback))
}

/// See `srd_sim.h`.
#[unsafe(no_mangle)]
pub extern "C" fn srd_sim_recv(
    simulation: u64,
    job: u32,
    from: u32,
    to: u32,
    tag: u64,
    bytes: i64,
    function: Option<unsafe extern "C" fn(*mut c_void, c_int)>,
    argument: *mut c_void,
) -> c_int {
    let callback = Callback { function, argument };
    on(simulation, |session| session.borrow_mut().recv((job, from, to, tag), bytes, callback))
}

/// See `srd_sim.h`.
#[unsafe(no_mangle)]
pub extern "C" fn srd_sim_schedule(
    simulation: u64,
    delay_ns: u64,
    function: Option<unsafe extern "C" fn(*mut c_void, c_int)>,
    argument: *mut c_void,
) -> c_int {
    on(simulation, |session| {
        if function.is_none() {
            return Err(null("the callback"));
        }
        session.borrow_mut().schedule(delay_ns, Callback { function, argument })
    })
}

/// See `srd_sim.h`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_sim_now(simulation: u64, now_ns: *mut u64) -> c_int {
    on(simulation, |session| {
        let now = session.borrow_mut().now()?;
        // SAFETY: as the caller promises.
        unsafe { answer(now_ns, now, "now_ns") }
    })
}

/// Runs up to a moment. The session is not borrowed while the program is called back.
fn run(session: &RefCell<Session>, until: Ps) -> Result<(), Refused> {
    session.borrow_mut().set_running(true)?;
    let result = loop {
        let next = session.borrow_mut().next(until);
        match next {
            Ok(Next::Call(Callback { function: None, .. }, ..)) => {}
            Ok(Next::Call(Callback { function: Some(function), argument }, status, why)) => {
                if let Some(why) = why {
                    tell(&why);
                }
                // SAFETY: the program gave function and argument to be called so.
                unsafe { function(argument, status.into()) };
            }
            Ok(Next::Return) => break Ok(()),
            Err(refused) => break Err(refused),
        }
    };
    session.borrow_mut().set_running(false)?;
    result
}

/// See `srd_sim.h`.
#[unsafe(no_mangle)]
pub extern "C" fn srd_sim_run(simulation: u64) -> c_int {
    on(simulation, |session| run(session, Ps::NEVER))
}

/// See `srd_sim.h`.
#[unsafe(no_mangle)]
pub extern "C" fn srd_sim_run_until(simulation: u64, time_ns: u64) -> c_int {
    on(simulation, |session| {
        let until = time_ns.checked_mul(1000).map(Ps).filter(|until| *until < Ps::NEVER);
        let until =
            until.ok_or((Status::Invalid, format!("{time_ns} ns: at most {} ns", (u64::MAX - 1) / 1000)))?;
        let now = session.borrow_mut().now()?;
        if time_ns < now {
            return Err((Status::Invalid, format!("{time_ns} ns are over: it is {now} ns")));
        }
        run(session, until)
    })
}

/// See `srd_sim.h`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_sim_job_totals(simulation: u64, job: u32, totals: *mut srd_sim_totals) -> c_int {
    on(simulation, |session| {
        let of_job = session.borrow_mut().totals(job)?;
        let value = srd_sim_totals {
            messages_sent: of_job.sent,
            bytes_sent: of_job.bytes,
            messages_received: of_job.received,
            failed: of_job.failed,
            last_ns: of_job.last.0 / 1000,
        };
        // SAFETY: as the caller promises.
        unsafe { answer(totals, value, "totals") }
    })
}

/// See `srd_sim.h`.
#[unsafe(no_mangle)]
pub extern "C" fn srd_sim_statistics(simulation: u64) -> *const c_char {
    let mut text = std::ptr::null();
    on(simulation, |session| {
        text = session.borrow_mut().statistics()?.as_ptr();
        Ok(())
    });
    text
}

/// See `srd_sim.h`.
#[unsafe(no_mangle)]
pub extern "C" fn srd_sim_close(simulation: u64) -> c_int {
    on(simulation, |session| {
        session.borrow().check_idle()?;
        SESSIONS.with(|sessions| sessions.borrow_mut().remove(&simulation));
        Ok(())
    })
}
