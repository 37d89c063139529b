//! What baselines' packets look like on a real wire, for captures of simulated cables. The simulation itself never looks at bytes.

use srd_wire::Time;
use std::collections::BTreeMap;

/// The protocol behind IP's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// TCP: the bytes are its header, with a checksum of zero.
    Tcp,
    /// UDP: the bytes are what follows its header.
    Udp,
}

/// The beginning of a packet; zeros follow up to its length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Headers {
    /// What follows IP's header.
    pub protocol: Protocol,
    /// Its bytes, as many as are not zeros all the same.
    pub bytes: Vec<u8>,
}

/// A packet that leaves its host.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    /// When.
    pub now: Time,
    /// Host and process that send it.
    pub from: (u32, u16),
    /// Host and process that it is for.
    pub to: (u32, u16),
    /// Source and destination port.
    pub ports: (u16, u16),
    /// Bytes of the IP datagram.
    pub bytes: u32,
}

/// Where numbered segments lie in their byte streams. Transports of this crate count segments, real ones bytes.
#[derive(Default, Debug)]
pub struct Streams {
    streams: BTreeMap<(u32, u16, u32), Stream>,
}

/// One byte stream, from its beginning.
#[derive(Default, Debug)]
pub struct Stream {
    /// Behind each segment.
    ends: Vec<u32>,
    /// Bytes of the longest.
    longest: u32,
}

/// The first byte of a stream has this number: the handshake, which is not simulated, takes the one before.
pub const FIRST_BYTE: u32 = 1;

impl Streams {
    /// The stream of a connection that `sender` (host and process) has opened.
    pub fn of(&mut self, sender: (u32, u16), connection: u32) -> &mut Stream {
        self.streams.entry((sender.0, sender.1, connection)).or_default()
    }
}

impl Stream {
    /// Segment `number` leaves with so many bytes, perhaps again. Returns where it lies.
    pub fn leaves(&mut self, number: u64, bytes: u32) -> u32 {
        let begin = self.begin_of(number);
        if number as usize == self.ends.len() {
            self.ends.push(begin.wrapping_add(bytes));
            self.longest = self.longest.max(bytes);
        }
        begin
    }

    /// The first byte of a segment that has left, or of the next one.
    pub fn begin_of(&self, number: u64) -> u32 {
        let known = (number as usize).min(self.ends.len());
        known.checked_sub(1).map_or(FIRST_BYTE, |before| self.ends[before])
    }

    /// Bytes of the longest segment.
    pub fn longest(&self) -> u32 {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_lie_one_behind_the_other() {
        let mut streams = Streams::default();
        let stream = streams.of((1, 0), 7);
        assert_eq!([stream.leaves(0, 100), stream.leaves(1, 30), stream.leaves(2, 100)], [1, 101, 131]);
        assert_eq!((stream.leaves(1, 30), stream.begin_of(3), stream.longest()), (101, 231, 100));
        assert_eq!(streams.of((1, 0), 8).begin_of(0), FIRST_BYTE);
    }
}
