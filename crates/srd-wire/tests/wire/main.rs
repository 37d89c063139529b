//! The format as a whole: the codec, the keyrings, and the bytes that the specification shows.

mod codec;
mod packets;
mod seal;
mod vectors;
