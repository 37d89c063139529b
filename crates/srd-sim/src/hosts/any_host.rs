//! A process that speaks whatever the scenario wants: SRD or a baseline.

use crate::hosts::process::{Birth, Process};
use crate::hosts::srd_transport::Srd;
use srd_baselines::Mixed;
use std::convert::Infallible;

/// See the module.
pub type AnyHost = Mixed<Srd>;

impl Process for AnyHost {
    type Near = Infallible;

    fn new(birth: Birth<'_>) -> AnyHost {
        let baseline = Mixed::open(&birth.role, &birth.transport.choice);
        baseline.unwrap_or_else(|| Mixed::Srd(Srd::new(birth)))
    }
}
