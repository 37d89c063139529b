//! MRC, Multipath Reliable Connection (OCP, 2026): RoCEv2's reliable connections over many paths and planes, without lossless
//! classes, from what has been published of it: arXiv 2605.04333 and 2606.18170, both of 2026, and OpenAI's article of 5 May 2026.
//!
//! Its window is NSCC's, by its own account, so this is [`Nscc`](crate::Nscc) with another choice of paths: `nscc/profile.rs`. What
//! is not public, and what is assumed for it, is in docs/BASELINES.md.

use crate::Surroundings;
use crate::input::InputError;
use crate::nscc::{NsccConfig, Relation, Relative, Selector, read_common};
use crate::section::Section;

/// EVs in use of a connection, and as many backups: "typically 128 to 256" (arXiv 2605.04333, section 2.1).
const PATHS: u64 = 128;
/// Bytes of a full packet: RoCE's largest.
const PAYLOAD: u64 = 4096;
/// Headers are IPv6 in IPv6 (40 and 40), UDP (8), BTH (12), RETH in every packet (16), a timestamp (4) and the check sequence (4),
/// behind Ethernet's: 124, of which UET's datagram headers here are 50.
const ROUTE_BYTES: u16 = 124 - 50;

/// A process that speaks MRC. See the module.
pub type Mrc = Relative<OtherPaths>;

/// What MRC has of its own.
pub struct OtherPaths;

impl Relation for OtherPaths {
    const NAME: &'static str = "mrc";
    const KEYS: &'static [&'static str] =
        &["payload", "paths", "target_us", "max_window", "ack_every", "rto_us", "control_class"];
    const HAS_HEADERS: bool = false;
    const COUNTS_SENDERS: bool = false;

    fn read(section: &Section<'_>, around: &Surroundings) -> Result<NsccConfig, InputError> {
        if !around.trims {
            let what = "mrc takes every packet that is gone for a path that is broken, and these switches drop what finds no room: \
                        write `trim = true` in [queues]";
            return Err(section.error(what));
        }
        let common = read_common(section, around, "mrc", (PAYLOAD, ROUTE_BYTES), (PATHS, 1 << 11))?;
        Ok(NsccConfig { selector: Selector::Profile, ..common })
    }
}
