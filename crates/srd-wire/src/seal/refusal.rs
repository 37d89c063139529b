//! Why a packet is not sealed, or not opened.

use crate::packet::VERSION;
use core::fmt;

/// Why a packet cannot be sealed. Each is a mistake of the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SealError {
    /// It is no packet of this instance in clear.
    NotAPacket,
    /// The buffer has no room for the trailer.
    NoRoom,
    /// To a peer whose incarnation is unknown only a hello (alone, or with a reset) may go.
    NotAnIntroduction,
    /// The destination tag is not that of the peer's incarnation.
    WrongDestination,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SealError::NotAPacket => "not a packet of this instance in clear",
            SealError::NoRoom => "no room for the seal's trailer",
            SealError::NotAnIntroduction => "only an introduction may go to a peer of unknown incarnation",
            SealError::WrongDestination => "destination tag is not that of the peer's incarnation",
        })
    }
}

impl std::error::Error for SealError {}

/// Why a datagram was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum OpenError {
    /// It is shorter than a sealed packet can be.
    Truncated,
    /// It is of another protocol version.
    Version {
        /// The version it names.
        version: u8,
    },
    /// It is in clear.
    NotSealed,
    /// It is sealed under an introduction key, but is more than an introduction.
    NotAnIntroduction,
    /// It is for another incarnation than this.
    WrongDestination,
    /// There is no context with its sender, and it does not say enough to begin one.
    NoContext,
    /// Its sender is a peer that is known at another address.
    WrongAddress,
    /// The sender's incarnation in the trailer is not that of the source tag or of the hello.
    IncarnationMismatch,
    /// It comes from another address, but this instance has sealed it.
    Reflected,
    /// It is not authentic: changed on its way, or forged.
    BadTag,
    /// It is an introduction that is not authentic: its sender has another key, most likely.
    WrongKey,
    /// It has been received before, or is too old to tell.
    Replayed,
}

impl OpenError {
    /// Name of the cause, for counters.
    pub fn name(self) -> &'static str {
        match self {
            OpenError::Truncated => "truncated",
            OpenError::Version { .. } => "version",
            OpenError::NotSealed => "not_sealed",
            OpenError::NotAnIntroduction => "not_an_introduction",
            OpenError::WrongDestination => "wrong_destination",
            OpenError::NoContext => "no_context",
            OpenError::WrongAddress => "wrong_address",
            OpenError::IncarnationMismatch => "incarnation_mismatch",
            OpenError::Reflected => "reflected",
            OpenError::BadTag => "bad_tag",
            OpenError::WrongKey => "wrong_key",
            OpenError::Replayed => "replayed",
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OpenError::Truncated => "shorter than a sealed packet",
            OpenError::Version { version } => {
                return write!(f, "packet of protocol version {version}; this end speaks version {VERSION}");
            }
            OpenError::NotSealed => "packet in clear, but a pre-shared key is configured here",
            OpenError::NotAnIntroduction => "introduction key used for more than an introduction",
            OpenError::WrongDestination => "packet for another incarnation than this",
            OpenError::NoContext => "no key context with the sender",
            OpenError::WrongAddress => "from a peer that is known at another address",
            OpenError::IncarnationMismatch => "trailer names an incarnation that is not the packet's",
            OpenError::Reflected => "a packet of our own came back from another address",
            OpenError::BadTag => "not authentic: changed on its way, or forged",
            OpenError::WrongKey => {
                "an introduction that is not authentic: sealed with another key, or changed on its way"
            }
            OpenError::Replayed => "received before, or too old to tell",
        })
    }
}

impl std::error::Error for OpenError {}
