//! The preloaded library of a process in a simulated fabric.

use srd_virtual::API_SYMBOL;
use srd_virtual::api::{Api, VERSION};
use srd_virtual::layout::{Head, NEVER, Place};
use std::sync::OnceLock;
use std::time::Duration;

/// Its functions.
#[derive(Clone, Copy, Debug)]
pub struct Library(&'static Api);

/// That of this process with its place in a simulated fabric, once it has one.
static TAKEN: OnceLock<(Library, Place)> = OnceLock::new();

/// The library and the process's place, if it has one in a simulated fabric.
#[inline]
pub fn known() -> Option<&'static (Library, Place)> {
    TAKEN.get()
}

/// The library, if it is in this process.
pub fn library() -> Option<Library> {
    // SAFETY: the name is a C string; the symbol, if there is one, is a function of that type.
    let api = unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, API_SYMBOL.as_ptr());
        if symbol.is_null() {
            return None;
        }
        let function: extern "C" fn() -> *const Api = std::mem::transmute(symbol);
        &*function()
    };
    (api.version == VERSION).then_some(Library(api))
}

impl Library {
    /// Takes the process's place; or an error's number.
    pub fn attach(self) -> Result<(), i32> {
        let mut place = Place::default();
        match (self.0.attach)(&mut place) {
            0 => {
                let _ = TAKEN.set((self, place)); // another thread has taken the same
                Ok(())
            }
            errno => Err(errno),
        }
    }

    /// As [`Api::now`].
    pub fn now(self) -> u64 {
        (self.0.now)()
    }

    /// As [`Api::enter`], and the same for the others.
    #[cold]
    pub fn enter(self) {
        (self.0.enter)();
    }

    /// It has used it; the transport wants to run so many nanoseconds later.
    #[cold]
    pub fn leave(self, span: u64) {
        (self.0.set_due)(span);
        (self.0.leave)();
    }

    /// See there.
    #[cold]
    pub fn polled(self, found: bool) {
        (self.0.polled)(found);
    }

    /// Waits for packets, or for so long: deadlines of the transport are not later.
    pub fn wait(self, span: Option<Duration>) {
        let span = span.map_or(NEVER, |span| span.as_nanos() as u64);
        self.leave(span);
        (self.0.wait)(span);
    }

    /// See there.
    pub fn wait_as_card(self) {
        (self.0.wait_as_card)();
    }

    /// See there.
    pub fn close(self) {
        (self.0.close)();
    }

    /// See there.
    pub fn set_senders(self, count: u16) {
        (self.0.set_senders)(count.into());
    }

    /// See there.
    pub fn set_more(self, more: bool) {
        (self.0.set_more)(more);
    }

    /// See there.
    pub fn neighbours(self) -> u16 {
        u16::try_from((self.0.neighbours)()).unwrap_or(u16::MAX)
    }

    /// See there.
    pub fn has_room(self) -> bool {
        (self.0.has_room)()
    }

    /// See there.
    pub fn send(self, head: &Head, bytes: &[u8]) -> bool {
        debug_assert_eq!(head.len as usize, bytes.len());
        (self.0.send)(head, bytes.as_ptr())
    }

    /// All that has come, a datagram at a time.
    pub fn receive(self, mut take: impl FnMut(&Head, &mut [u8])) {
        let mut head = Head::default();
        loop {
            let bytes = (self.0.receive)(&mut head);
            if bytes.is_null() {
                return;
            }
            // SAFETY: so many bytes are there, to be written to, until the device is left.
            take(&head, unsafe { std::slice::from_raw_parts_mut(bytes, head.len as usize) });
        }
    }
}
