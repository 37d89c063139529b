//! What the two ends of a cable are called.

/// Directed port: cable number times two, plus one for the direction from `b` to `a`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortId(pub u32);

impl PortId {
    /// No port.
    pub(crate) const NONE: PortId = PortId(u32::MAX);

    /// The port at the other end of its cable.
    pub fn other_end(self) -> PortId {
        PortId(self.0 ^ 1)
    }

    /// The port at end `a` of a cable.
    pub fn at_a(cable: u32) -> PortId {
        PortId(2 * cable)
    }

    /// The port at end `b`.
    pub fn at_b(cable: u32) -> PortId {
        PortId(2 * cable + 1)
    }

    /// The cable.
    pub fn cable(self) -> u32 {
        self.0 / 2
    }
}
