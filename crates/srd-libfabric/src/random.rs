//! Random numbers.

use crate::boundary::{Errno, Outcome};
use std::num::NonZeroU32;

/// A number that nobody can guess.
pub(crate) fn random() -> Outcome<NonZeroU32> {
    loop {
        let number = srd_net::random().map_err(|_| Errno::IO)?;
        if let Some(number) = NonZeroU32::new(number as u32) {
            return Ok(number);
        }
    }
}
