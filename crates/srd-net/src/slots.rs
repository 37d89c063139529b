//! How many instances an address has room for.

/// Receive ports that a host has: 16-bit queue pair numbers, 128 to a port.
pub const SLOTS: u16 = 512;
