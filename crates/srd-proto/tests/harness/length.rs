//! A payload that is only a length, for what never looks at bytes.

use srd_proto::Payload;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Length(pub usize);

impl Payload for Length {
    fn empty() -> Length {
        Length(0)
    }

    fn len(&self) -> usize {
        self.0
    }

    fn slice(&self, offset: usize, len: usize) -> Length {
        assert!(offset + len <= self.0);
        Length(len)
    }
}
