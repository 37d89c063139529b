//! Bytes as people write them: `65536`, `"64KB"`, `"2MB"`, `"1.5bdp"`.

/// What a text may look like, for messages.
pub const EXAMPLES: &str = "\"64KB\" (1000 each), \"64KiB\" (1024 each), \"2MB\" or \"1bdp\"";

/// Largest multiple of the bandwidth-delay product that may be written.
const MOST_BDP: f64 = 1e9;

/// Units, longest first, so that `KiB` is not taken for `B`.
const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// Bytes, or multiples of the bandwidth-delay product, which is known later.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bytes {
    /// So many.
    Count(u64),
    /// So many bandwidth-delay products.
    Bdp(f64),
}

impl Bytes {
    /// In bytes, rounded to the nearest, at least 1.
    pub fn with_bdp(self, bdp: u64) -> u64 {
        match self {
            Bytes::Count(bytes) => bytes,
            Bytes::Bdp(times) => ((bdp as f64 * times).round() as u64).max(1),
        }
    }
}

/// What `text` says, if it is a quantity of bytes.
pub fn bytes(text: &str) -> Option<Bytes> {
    if let Some(times) = text.strip_suffix("bdp").or_else(|| text.strip_suffix("BDP")) {
        let times: f64 = plain(times)?;
        return (times > 0.0 && times <= MOST_BDP).then_some(Bytes::Bdp(times));
    }
    let (number, unit) = UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))?;
    let bytes = plain(number)? * unit as f64;
    // Above 2^53 a float would round silently.
    (bytes.fract() == 0.0 && bytes <= (1u64 << 53) as f64).then_some(Bytes::Count(bytes as u64))
}

/// A number of digits and at most a point.
fn plain(text: &str) -> Option<f64> {
    let text = text.trim_end();
    let plain = text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_people() {
        for (text, expected) in [
            ("64KB", Some(Bytes::Count(64_000))),
            ("64 KiB", Some(Bytes::Count(65_536))),
            ("0.5MB", Some(Bytes::Count(500_000))),
            ("2GB", Some(Bytes::Count(2_000_000_000))),
            ("7B", Some(Bytes::Count(7))),
            ("1.5bdp", Some(Bytes::Bdp(1.5))),
            ("0bdp", None),
            ("0.3B", None),
            ("64", None),
            ("-1KB", None),
            ("1e3KB", None),
            ("infbdp", None),
            ("KB", None),
            ("", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
        assert_eq!(Bytes::Bdp(0.5).with_bdp(101), 51);
    }
}
