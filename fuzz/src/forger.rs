//! Datagrams and messages of an attacker: what was heard on the way, with fields at their edges. It works on bytes, so
//! that a change of a format does not change it.

use arbitrary::{Result, Unstructured};
use srd_wire::{Body, Incarnation, Packet, Tag};
use std::collections::{HashSet, VecDeque};

/// Most that is remembered: a forger that knew everything would say little about what came last.
const MOST_HEARD: usize = 32;
/// Most changes of one forgery.
const MOST_CHANGES: usize = 4;

/// What was heard so far.
#[derive(Default)]
pub struct Forger {
    heard: VecDeque<Vec<u8>>,
    /// Destination and source of each packet so far.
    tags: HashSet<(Tag, Tag)>,
    incarnations: HashSet<Incarnation>,
}

impl Forger {
    /// Remembers `bytes`, and forgets the oldest.
    pub fn hear(&mut self, bytes: Vec<u8>) {
        if self.heard.len() == MOST_HEARD {
            self.heard.pop_front();
        }
        self.heard.push_back(bytes);
    }

    /// As [`Forger::hear`], of a packet that was sent as `bytes`.
    pub fn hear_packet<P>(&mut self, packet: &Packet<P>, bytes: Vec<u8>) {
        self.tags.insert((packet.dst_tag, packet.src_tag));
        self.incarnations.extend(packet.hello.map(|hello| hello.incarnation));
        self.hear(bytes);
    }

    /// Whether this may keep a message from ever coming to an end. Who hears both tags can, in clear mode, acknowledge what has
    /// not arrived, begin a message that takes the place of another, say that somebody has forgotten what he has acknowledged, or
    /// that who has a tag is somebody else: docs/SECURITY.md promises nothing against that. What was said before may be repeated.
    pub fn may_block<P>(&self, packet: &Packet<P>, bytes: &[u8]) -> bool {
        let is_heard = self.heard.iter().any(|heard| heard == bytes);
        let names_both = self.tags.contains(&(packet.dst_tag, packet.src_tag));
        let passes_for_another = packet.hello.is_some_and(|hello| {
            let who = hello.incarnation;
            !self.incarnations.contains(&who) && self.tags.iter().any(|&(_, source)| source == who.tag())
        });
        matches!(packet.body, Body::Reset { .. }) || !is_heard && names_both || passes_for_another
    }

    fn any(&self, u: &mut Unstructured<'_>) -> Result<Option<&Vec<u8>>> {
        // The newest first: it fits best what the listener is in.
        let back = u.int_in_range(0..=MOST_HEARD - 1)?;
        Ok(self.heard.len().checked_sub(1 + back).and_then(|at| self.heard.get(at)))
    }

    /// Something heard, or `fresh` where that picks nothing, changed in up to four places.
    pub fn forge(&self, u: &mut Unstructured<'_>, fresh: Vec<u8>) -> Result<Vec<u8>> {
        let mut bytes = self.any(u)?.cloned().unwrap_or(fresh);
        for _ in 0..u.int_in_range(0..=MOST_CHANGES)? {
            self.change(u, &mut bytes)?;
        }
        Ok(bytes)
    }

    fn change(&self, u: &mut Unstructured<'_>, bytes: &mut Vec<u8>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let width = 1 << u.int_in_range(0..=3)?;
        // Fields lie where a multiple of their width does, mostly in the first bytes.
        let places = (bytes.len() / width).clamp(1, 64);
        let at = u.int_in_range(0..=places - 1)? * width;
        let field = at..(at + width).min(bytes.len());
        let mut old = [0; 8];
        old[..field.len()].copy_from_slice(&bytes[field.clone()]);
        let old = u64::from_le_bytes(old);
        let new = match u.int_in_range(0..=8)? {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => u64::MAX >> (64 - 8 * width + 1),
            4 => 1 << (8 * width - 1),
            5 => old.wrapping_add(u.int_in_range(-16i64..=16)? as u64),
            6 => old ^ 1 << u.int_in_range(0..=8 * width - 1)?,
            7 => match self.any(u)?.and_then(|other| other.get(field.clone())) {
                // The same field of something else: a number that means something to somebody.
                Some(theirs) => {
                    bytes[field].copy_from_slice(theirs);
                    return Ok(());
                }
                None => {
                    let len = u.int_in_range(0..=bytes.len())?;
                    bytes.truncate(len);
                    return Ok(());
                }
            },
            _ => u.arbitrary()?,
        };
        let len = field.len();
        bytes[field].copy_from_slice(&new.to_le_bytes()[..len]);
        Ok(())
    }
}
