//! RCCC, the receiver-based congestion control of Ultra Ethernet's transport: the receiver grants credit at the rate of its link,
//! and senders send what was granted.
//!
//! Packets, paths and retransmissions are those of [`Nscc`](crate::Nscc), and so are headers and sizes; credit is in
//! `nscc/credit.rs`. Its behaviour is that of uet-htsim (commit 40ccb0526bb6) with `-receiver_cc_only`, or with `-receiver_cc`
//! where NSCC's window holds as well.

use crate::Surroundings;
use crate::input::InputError;
use crate::nscc::{Control, NsccConfig, PATHS, Relation, Relative, read_common};
use crate::section::Section;

/// A process that speaks RCCC. See the module.
pub type Rccc = Relative<Credit>;

/// What RCCC has of its own.
pub struct Credit;

impl Relation for Credit {
    const NAME: &'static str = "rccc";
    const KEYS: &'static [&'static str] =
        &["payload", "paths", "window", "target_us", "max_window", "ack_every", "rto_us", "control_class"];
    const HAS_HEADERS: bool = true;
    const COUNTS_SENDERS: bool = true;

    fn read(section: &Section<'_>, around: &Surroundings) -> Result<NsccConfig, InputError> {
        let common = read_common(section, around, "rccc", (u64::MAX, 0), (PATHS, 1 << 12))?;
        let window = section.flag("window")?.unwrap_or(false);
        if !window && section.has("target_us") {
            return Err(section.error_at("target_us", "there is no delay to aim at without `window = true`"));
        }
        Ok(NsccConfig { control: if window { Control::Both } else { Control::Credit }, ..common })
    }
}
