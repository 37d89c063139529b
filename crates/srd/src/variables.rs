//! The environment variables that configure OpenSRD, as they are listed.

use serde::Serialize;
use srd_net::{ReadBy, VARIABLES};

/// One variable.
#[derive(Clone, Copy, Serialize, Debug)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// What it sets.
    pub meaning: &'static str,
    /// What holds if it is not set.
    pub default: &'static str,
    /// The values it takes.
    pub allowed: &'static str,
    /// Which part of OpenSRD reads it.
    pub read_by: &'static str,
}

/// All of them.
pub fn all() -> impl Iterator<Item = Variable> {
    VARIABLES.iter().map(|variable| Variable {
        name: variable.name,
        meaning: variable.meaning,
        default: variable.default,
        allowed: variable.allowed,
        read_by: match variable.read_by {
            ReadBy::Transport => "transport",
            ReadBy::Efa => "software EFA",
            ReadBy::Command => "command",
        },
    })
}
