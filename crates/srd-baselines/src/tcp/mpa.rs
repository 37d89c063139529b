//! Bytes of MPA and DDP: an FPDU in each TCP segment (RFC 5044, RFC 5041).

/// Length of the ULPDU, in front of it (RFC 5044).
const LENGTH: u32 = 2;
/// CRC32c behind it.
const CRC: u32 = 4;
/// DDP's header of a tagged segment with RDMAP's control byte in it: controls 2, steering tag 4, offset 8
/// (RFC 5041, section 4.2; RFC 5040, section 4.1). RDMA Write has no other.
const TAGGED: u32 = 14;
/// Between markers there are so many bytes of FPDUs, and each marker has four (RFC 5044).
const BETWEEN_MARKERS: u64 = 508;
const MARKER: u64 = 4;

/// Bytes of the flow that fit into a TCP segment of `segment` bytes: MULPDU (RFC 5044, appendix A.1) less the
/// header.
pub fn payload(segment: u32, markers: bool) -> u32 {
    let marked = if markers { MARKER as u32 * segment.div_ceil(512) } else { 0 };
    segment.saturating_sub(LENGTH + CRC + marked + segment % 4 + TAGGED).max(1)
}

/// Bytes of an FPDU with so many of the flow's, without markers. Padding makes it a multiple of four.
fn fpdu(payload: u32) -> u32 {
    (LENGTH + TAGGED + payload).next_multiple_of(4) + CRC
}

/// Bytes of the TCP segment with such an FPDU, if all `number` before it had full ones.
pub fn segment(number: u64, payload: u32, full: u32, markers: bool) -> u32 {
    let bytes = fpdu(payload);
    if !markers {
        return bytes;
    }
    let before = number * fpdu(full) as u64;
    let after = before + bytes as u64;
    let passed = after.div_ceil(BETWEEN_MARKERS) - before.div_ceil(BETWEEN_MARKERS);
    bytes + (passed * MARKER) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: a segment of 1448 bytes holds an FPDU of 2 + 14 + 1428 + 4.
    #[test]
    fn a_full_segment_is_full() {
        assert_eq!(payload(1448, false), 1428);
        assert_eq!(segment(0, 1428, 1428, false), 1448);
        assert_eq!(payload(8948, false), 8928);
        // EMSS that is no multiple of four: 2 + 14 + 1428 + 4 and two bytes that no FPDU uses.
        assert_eq!(payload(1450, false), 1428);
    }

    #[test]
    fn short_segments_are_padded() {
        for (bytes, expected) in [(1, 24), (4, 24), (5, 28), (0, 20)] {
            assert_eq!(segment(0, bytes, 1428, false), expected, "{bytes}");
        }
    }

    /// Over a long stream, 4 bytes in 512 are markers, and no segment is larger than it may be.
    #[test]
    fn markers_come_every_512_bytes() {
        let full = payload(1448, true);
        assert_eq!(full, 1428 - 12);
        let (mut stream, mut markers) = (0u64, 0u64);
        for number in 0..10_000 {
            let bytes = segment(number, full, full, true);
            assert!(bytes <= 1448, "{number}: {bytes}");
            stream += bytes as u64;
            markers += (bytes - fpdu(full)) as u64;
        }
        assert_eq!(markers, stream.div_ceil(512) * 4);
    }
}
