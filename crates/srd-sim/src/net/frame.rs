//! Packets on their way through the fabric. What switches look at lies apart from what only hosts do.

pub use srd_baselines::frame::{Content, DataPacket, ETHERNET_HEADER, FrameHead};
use srd_baselines::units::Ps;

/// Bits of the hash that say by which port a card sends a frame: those of its source port.
const LANE: u32 = 0xFF;

/// The hash with the source port in it, for cards of several ports.
pub(crate) fn with_lane(tuple_hash: u32, source_port: u16) -> u32 {
    tuple_hash & !LANE | source_port as u32 & LANE
}

/// What [`with_lane`] has put in.
pub(crate) fn lane_of(tuple_hash: u32) -> u32 {
    tuple_hash & LANE
}

/// Name of a frame in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameId(pub u32);

/// Frames of a chunk: tables of millions grow without being copied.
const CHUNK: usize = 1 << 12;

/// What the fabric needs of a frame: half a cache line.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Near {
    head: FrameHead,
    /// Number among the frames of its flow, where switches give it one.
    order: u16,
    /// What its first switch has chosen for it.
    way: u16,
    /// When the frame came to the host where it waits.
    arrived: Ps,
}

const _: () = assert!(size_of::<Near>() == 32);

/// A frame between two pools.
pub struct Parcel<C> {
    near: Near,
    content: C,
}

/// All frames in flight.
pub struct FramePool<C> {
    near: Vec<Vec<Near>>,
    contents: Vec<Vec<Option<C>>>,
    free: Vec<u32>,
}

impl<C> Default for FramePool<C> {
    fn default() -> FramePool<C> {
        FramePool { near: Vec::new(), contents: Vec::new(), free: Vec::new() }
    }
}

/// Chunk and place in it.
#[inline]
fn place(frame: FrameId) -> (usize, usize) {
    (frame.0 as usize / CHUNK, frame.0 as usize % CHUNK)
}

impl<C> FramePool<C> {
    /// Takes a frame in.
    #[inline]
    pub fn put(&mut self, head: FrameHead, content: C) -> FrameId {
        let near = Near { head, order: 0, way: 0, arrived: Ps::ZERO };
        let Some(index) = self.free.pop() else { return self.grow(near, content) };
        let (chunk, at) = place(FrameId(index));
        self.near[chunk][at] = near;
        self.contents[chunk][at] = Some(content);
        FrameId(index)
    }

    fn grow(&mut self, near: Near, content: C) -> FrameId {
        let frame = FrameId(self.made() as u32);
        let (chunk, at) = place(frame);
        if at == 0 {
            self.near.push(Vec::with_capacity(CHUNK));
            self.contents.push(Vec::with_capacity(CHUNK));
        }
        self.near[chunk].push(near);
        self.contents[chunk].push(Some(content));
        frame
    }

    /// Frames that are under way.
    pub fn live(&self) -> usize {
        self.made() - self.free.len()
    }

    /// Frames that there is room for: all chunks but the last are full.
    fn made(&self) -> usize {
        self.near.last().map_or(0, |last| (self.near.len() - 1) * CHUNK + last.len())
    }

    #[inline]
    fn near(&mut self, frame: FrameId) -> &mut Near {
        let (chunk, at) = place(frame);
        &mut self.near[chunk][at]
    }

    /// What switches see of it.
    #[inline]
    pub fn head(&mut self, frame: FrameId) -> &mut FrameHead {
        &mut self.near(frame).head
    }

    /// Number among the frames of its flow, where switches give it one.
    pub(crate) fn order(&mut self, frame: FrameId) -> &mut u16 {
        &mut self.near(frame).order
    }

    /// What its first switch has chosen for it.
    pub(crate) fn way(&mut self, frame: FrameId) -> &mut u16 {
        &mut self.near(frame).way
    }

    /// When it came to the host where it waits.
    #[inline]
    pub fn arrived(&mut self, frame: FrameId) -> &mut Ps {
        &mut self.near(frame).arrived
    }

    /// What it carries.
    #[inline]
    pub fn content(&mut self, frame: FrameId) -> &mut C {
        let (chunk, at) = place(frame);
        self.contents[chunk][at].as_mut().expect("a frame in flight has content")
    }

    /// Reads what the fabric needs of a frame, so that it is at hand soon.
    #[inline]
    pub fn touch(&self, frame: FrameId) {
        let (chunk, at) = place(frame);
        std::hint::black_box(self.near[chunk][at].head.dst);
    }

    /// Takes it out, to be put into another pool.
    pub fn take(&mut self, frame: FrameId) -> Parcel<C> {
        let (chunk, at) = place(frame);
        let near = self.near[chunk][at];
        let content = self.contents[chunk][at].take().expect("a frame in flight has content");
        self.free.push(frame.0);
        Parcel { near, content }
    }

    /// Takes in what another pool had.
    pub fn put_parcel(&mut self, parcel: Parcel<C>) -> FrameId {
        let frame = self.put(parcel.near.head, parcel.content);
        *self.near(frame) = parcel.near;
        frame
    }

    /// Takes it out.
    #[inline]
    pub fn drop(&mut self, frame: FrameId) {
        let (chunk, at) = place(frame);
        self.contents[chunk][at] = None;
        self.free.push(frame.0);
    }

    /// Frames in flight.
    pub fn in_flight(&self) -> usize {
        self.made() - self.free.len()
    }
}
