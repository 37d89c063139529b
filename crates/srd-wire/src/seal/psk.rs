//! The pre-shared key, as a user gives it.

use core::fmt;
use zeroize::Zeroizing;

/// Key that all instances of a cluster share: 32 bytes, as random as they come.
pub struct Psk(Box<dyn Place>);

/// Memory that holds a pre-shared key, and wipes it when it is dropped.
pub trait Place: Send + Sync {
    /// The key.
    fn key(&self) -> &[u8; Psk::LEN];
}

impl Place for Zeroizing<[u8; Psk::LEN]> {
    fn key(&self) -> &[u8; Psk::LEN] {
        self
    }
}

impl Psk {
    /// Bytes of a key.
    pub const LEN: usize = 32;

    /// The key that `place` holds. No copy of it is kept anywhere else.
    pub fn kept_in(place: impl Place + 'static) -> Psk {
        Psk(Box::new(place))
    }

    /// A key from its 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Psk, PskError> {
        if bytes.len() != Psk::LEN {
            return Err(PskError::Length { bytes: bytes.len() });
        }
        // Where it lies before it is filled: moving it would leave copies behind.
        let mut key = Box::new(Zeroizing::new([0; Psk::LEN]));
        key.copy_from_slice(bytes);
        Ok(Psk(key))
    }

    /// Reads the content of a key file: the 32 bytes, or 64 hexadecimal digits with blanks and line ends around them.
    pub fn read(content: &[u8], key: &mut [u8; Psk::LEN]) -> Result<(), PskError> {
        match core::str::from_utf8(content) {
            Ok(text) if content.len() != Psk::LEN => read_digits(text, key),
            _ if content.len() == Psk::LEN => {
                key.copy_from_slice(content);
                Ok(())
            }
            _ => Err(PskError::Length { bytes: content.len() }),
        }
    }

    pub(super) fn bytes(&self) -> &[u8; Psk::LEN] {
        self.0.key()
    }
}

fn read_digits(text: &str, key: &mut [u8; Psk::LEN]) -> Result<(), PskError> {
    let text = text.trim();
    if let Some(at) = text.chars().position(|c| !c.is_ascii_hexdigit()) {
        return Err(PskError::NotHex { at });
    }
    if text.len() != 2 * Psk::LEN {
        return Err(PskError::Digits { digits: text.len() });
    }
    let digit = |c: u8| (c as char).to_digit(16).expect("checked above") as u8;
    for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0]) << 4 | digit(pair[1]);
    }
    Ok(())
}

impl std::str::FromStr for Psk {
    type Err = PskError;

    /// A key from 64 hexadecimal digits; blanks and a line end around them do not matter.
    fn from_str(text: &str) -> Result<Psk, PskError> {
        let mut key = Box::new(Zeroizing::new([0; Psk::LEN]));
        read_digits(text, &mut key)?;
        Ok(Psk(key))
    }
}

impl PartialEq for Psk {
    fn eq(&self, other: &Psk) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Psk {}

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
