//! Random numbers of the system.

use crate::boundary::{Errno, Outcome};
use std::num::NonZeroU32;

/// A number that nobody can guess.
pub(crate) fn random() -> Outcome<NonZeroU32> {
    loop {
        let mut bytes = [0; 4];
        // SAFETY: room for four bytes.
        if unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } != 4 {
            return Err(Errno::IO);
        }
        if let Some(number) = NonZeroU32::new(u32::from_ne_bytes(bytes)) {
            return Ok(number);
        }
    }
}
