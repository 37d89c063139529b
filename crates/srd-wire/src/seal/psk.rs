//! The pre-shared key, as a user gives it.

use core::fmt;

/// Key that all instances of a cluster share: 32 bytes, as random as they come.
#[derive(Clone, PartialEq, Eq)]
pub struct Psk(pub(super) [u8; Psk::LEN]);

impl Psk {
    /// Bytes of a key.
    pub const LEN: usize = 32;

    /// A key from its 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Psk, PskError> {
        bytes.try_into().map(Psk).map_err(|_| PskError::Length { bytes: bytes.len() })
    }
}

impl std::str::FromStr for Psk {
    type Err = PskError;

    /// A key from 64 hexadecimal digits; blanks and a line end around them do not matter.
    fn from_str(text: &str) -> Result<Psk, PskError> {
        let text = text.trim();
        if let Some(at) = text.chars().position(|c| !c.is_ascii_hexdigit()) {
            return Err(PskError::NotHex { at });
        }
        let digit = |c: u8| (c as char).to_digit(16).expect("checked above") as u8;
        let pairs = text.as_bytes().chunks_exact(2);
        if text.len() != 2 * Psk::LEN {
            return Err(PskError::Digits { digits: text.len() });
        }
        let bytes: Vec<u8> = pairs.map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
        Psk::from_bytes(&bytes)
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk(secret)")
    }
}

/// Why something is not a pre-shared key. Says nothing of its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PskError {
    /// Not 32 bytes.
    Length {
        /// How many there are.
        bytes: usize,
    },
    /// Not 64 digits.
    Digits {
        /// How many there are.
        digits: usize,
    },
    /// Something that is no hexadecimal digit.
    NotHex {
        /// Where, counted from 0.
        at: usize,
    },
}

impl fmt::Display for PskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PskError::Length { bytes } => {
                write!(
                    f,
                    "pre-shared key of {bytes} bytes; it must have {} ({} hexadecimal digits)",
                    Psk::LEN,
                    2 * Psk::LEN
                )
            }
            PskError::Digits { digits } => {
                write!(f, "pre-shared key of {digits} hexadecimal digits; it must have {}", 2 * Psk::LEN)
            }
            PskError::NotHex { at } => {
                write!(f, "character {} of the pre-shared key is no hexadecimal digit", at + 1)
            }
        }
    }
}

impl std::error::Error for PskError {}
