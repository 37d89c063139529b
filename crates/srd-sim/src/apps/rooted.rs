//! Collective operations that have a root: binomial trees, as MPICH and Open MPI choose for few bytes (Thakur, Rabenseifner and
//! Gropp, 2005, section 4).

use crate::apps::collective::Group;
use crate::apps::writer::Writer;

/// See `collective`.
const UP: u64 = 5 << 32;
const DOWN: u64 = 6 << 32;

/// The place of a rank in the tree.
struct Place {
    /// Whom it is below; the root is below nobody.
    parent: Option<u32>,
    /// How many are in its part of the tree, itself among them.
    ranks: u64,
    /// Who is directly below it, the largest part of the tree first, and how many are there.
    children: Vec<(u32, u64)>,
}

fn place(group: Group<'_>, root: u32) -> Place {
    let size = group.size();
    let own = (group.own + size - root) % size;
    let at = |place: u32| group.at((place + root) % size);
    // A rank has those behind it whose numbers differ from its own in bits below its lowest one.
    let span = if own == 0 { size.next_power_of_two() } else { 1 << own.trailing_zeros() };
    let steps = (0..span.trailing_zeros()).rev().map(|bit| 1 << bit).filter(|step| own + step < size);
    Place {
        parent: (own > 0).then(|| at(own & (own - 1))),
        ranks: u64::from(span.min(size - own)),
        children: steps.map(|step| (at(own + step), u64::from(step.min(size - own - step)))).collect(),
    }
}

impl Writer {
    /// Something comes from all to the root, which is given by its place: so many bytes from so many ranks together.
    pub fn up(&mut self, group: Group<'_>, root: u32, bytes: impl Fn(u64) -> u64) {
        let Place { parent, ranks, children } = place(group, root);
        children.iter().for_each(|&(child, below)| self.recv(child, UP, bytes(below)));
        if !children.is_empty() {
            self.wait();
        }
        if let Some(parent) = parent {
            self.send(parent, UP, bytes(ranks));
            self.wait();
        }
    }

    /// The other way round.
    pub fn down(&mut self, group: Group<'_>, root: u32, bytes: impl Fn(u64) -> u64) {
        let Place { parent, ranks, children } = place(group, root);
        if let Some(parent) = parent {
            self.recv(parent, DOWN, bytes(ranks));
            self.wait();
        }
        children.iter().for_each(|&(child, below)| self.send(child, DOWN, bytes(below)));
        if !children.is_empty() {
            self.wait();
        }
    }
}
