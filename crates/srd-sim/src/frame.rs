//! Packets on their way through the fabric. What switches look at lies apart from what only hosts do.

use crate::units::Ps;

/// What a frame carries from one transport to another.
pub trait Content {
    /// Cuts the content down to its headers. Returns the bytes that are left of the frame's, or `None` if the transport
    /// makes nothing of such a frame.
    fn trim(&mut self) -> Option<u32>;
}

/// Name of a frame in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameId(pub u32);

/// What switches look at.
#[derive(Clone, Copy, Debug)]
pub struct FrameHead {
    /// Hash of addresses, ports and protocol: ECMP's input.
    pub tuple_hash: u32,
    /// Destination host.
    pub dst: u32,
    /// Bytes on the wire, everything included.
    pub bytes: u32,
    /// Class, 0 to 7.
    pub class: u8,
    /// Whether the sender understands congestion marks.
    pub ecn_capable: bool,
    /// Whether it carries one.
    pub marked: bool,
    /// Whether a switch has cut it.
    pub trimmed: bool,
    /// Whether it has been damaged on its way.
    pub corrupt: bool,
    /// State of the cable when the frame was put on it; if that has changed, the frame is lost.
    pub epoch: u8,
    /// Process at the destination that it is for.
    pub process: u16,
}

/// All frames in flight.
pub struct FramePool<C> {
    heads: Vec<FrameHead>,
    contents: Vec<Option<C>>,
    free: Vec<u32>,
    /// When each frame came to the host where it waits.
    arrived: Vec<Ps>,
}

impl<C> Default for FramePool<C> {
    fn default() -> FramePool<C> {
        FramePool { heads: Vec::new(), contents: Vec::new(), free: Vec::new(), arrived: Vec::new() }
    }
}

impl<C> FramePool<C> {
    /// Takes a frame in.
    #[inline]
    pub fn put(&mut self, head: FrameHead, content: C) -> FrameId {
        match self.free.pop() {
            Some(index) => {
                self.heads[index as usize] = head;
                self.contents[index as usize] = Some(content);
                FrameId(index)
            }
            None => {
                self.heads.push(head);
                self.contents.push(Some(content));
                self.arrived.push(Ps::ZERO);
                FrameId((self.heads.len() - 1) as u32)
            }
        }
    }

    /// What switches see of it.
    #[inline]
    pub fn head(&mut self, frame: FrameId) -> &mut FrameHead {
        &mut self.heads[frame.0 as usize]
    }

    /// When it came to the host where it waits.
    #[inline]
    pub fn arrived(&mut self, frame: FrameId) -> &mut Ps {
        &mut self.arrived[frame.0 as usize]
    }

    /// What it carries.
    #[inline]
    pub fn content(&mut self, frame: FrameId) -> &mut C {
        self.contents[frame.0 as usize].as_mut().expect("a frame in flight has content")
    }

    /// Takes it out.
    #[inline]
    pub fn drop(&mut self, frame: FrameId) {
        self.contents[frame.0 as usize] = None;
        self.free.push(frame.0);
    }

    /// Frames in flight.
    pub fn in_flight(&self) -> usize {
        self.heads.len() - self.free.len()
    }
}
