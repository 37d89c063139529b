//! What fuzz targets need of the inside of this crate.

use crate::header::{self, LONGEST};

/// Reads `bytes` as a header. What is read says the same when it has been written and is read again.
///
/// # Panics
///
/// If it does not.
pub fn header(bytes: &[u8]) {
    let Some((common, body, len)) = header::decode(bytes) else { return };
    assert!(len <= bytes.len() && len <= LONGEST, "a header of {len} bytes");
    let mut written = [0; LONGEST];
    let len = header::encode(&common, &body, &mut written);
    let (again, same, read) = header::decode(&written[..len]).expect("what was written is read");
    assert!(same == body && read == len, "{body:?} became {same:?}");
    assert_eq!(again, common);
}
