//! Captures: written with frames of IPv4 and UDP, and read, in the classic format.

use std::path::Path;

/// Of times in microseconds, and in nanoseconds.
const MAGIC: u32 = 0xA1B2_C3D4;
const MAGIC_NANOS: u32 = 0xA1B2_3C4D;
const ETHERNET: u32 = 1;
/// Ethernet, IPv4 without options, UDP.
const HEADERS: usize = 14 + 20 + 8;

/// A frame, as far as it was captured.
#[derive(Clone, Debug)]
pub struct Frame {
    pub captured: Vec<u8>,
    pub length: usize,
}

impl Frame {
    /// A datagram to `port` of 10.0.0.2.
    pub fn udp(payload: &[u8], port: u16) -> Frame {
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0];
        bytes.extend([0x45, 2]);
        bytes.extend(((payload.len() + 28) as u16).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend(50_000u16.to_be_bytes());
        bytes.extend(port.to_be_bytes());
        bytes.extend(((payload.len() + 8) as u16).to_be_bytes());
        bytes.extend([0, 0]); // no checksum
        bytes.extend(payload);
        Frame { length: bytes.len(), captured: bytes }
    }

    /// The same with so many bytes of the datagram.
    pub fn cut_to(mut self, bytes: usize) -> Frame {
        self.captured.truncate(HEADERS + bytes);
        self
    }

    /// What was captured of its datagram; none if it is of another kind.
    pub fn datagram(&self) -> Option<&[u8]> {
        let ip = self.captured.get(14..)?;
        let is_udp = self.captured.get(12..14)? == [0x08, 0] && ip.first()? >> 4 == 4 && *ip.get(9)? == 17;
        let header = (ip.first()? & 15) as usize * 4;
        is_udp.then(|| ip.get(header + 8..)).flatten()
    }

    /// The same in its full length.
    pub fn datagram_with_zeros(&self) -> Vec<u8> {
        let mut bytes = self.datagram().expect("a datagram").to_vec();
        bytes.resize(self.length - HEADERS, 0);
        bytes
    }
}

/// A capture.
pub struct Pcap(pub Vec<u8>);

impl Pcap {
    pub fn of(frames: impl IntoIterator<Item = Frame>) -> Pcap {
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend((1u32 << 18).to_le_bytes());
        bytes.extend(ETHERNET.to_le_bytes());
        for (i, frame) in (0u32..).zip(frames) {
            for word in [1, i, frame.captured.len() as u32, frame.length as u32] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(frame.captured);
        }
        Pcap(bytes)
    }

    pub fn read(path: &Path) -> Pcap {
        Pcap(std::fs::read(path).unwrap())
    }

    pub fn frames(&self) -> Vec<Frame> {
        let word = |at: usize| u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap());
        assert!([MAGIC, MAGIC_NANOS].contains(&word(0)), "a capture of this machine's byte order");
        let mut frames = Vec::new();
        let mut at = 24;
        while at < self.0.len() {
            let (captured, length) = (word(at + 8) as usize, word(at + 12) as usize);
            frames.push(Frame { captured: self.0[at + 16..at + 16 + captured].to_vec(), length });
            at += 16 + captured;
        }
        frames
    }
}
