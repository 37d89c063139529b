//! Which receive takes which message: receives in the order of posting, messages in the order of arrival (fi_tagged(3)).
//!
//! Receives that ignore the same bits of the tag, and either all name a source or none do, form a shape. Programs use few
//! shapes (a process of MPI two or three), and within one a message and a receive match if their keys are equal: the
//! tag's bits that count, and the source. So each shape has a table of queues by key. A posted receive waits in the
//! queue of its own shape; a message that arrives looks at one queue of every shape and takes the receive that was posted
//! first. A message that nobody has asked for waits in one queue of every shape that has been asked for so far, so that a
//! receive looks at one queue. Either search takes the same time however many wait.
//!
//! The first few receives that wait do so in a row before all tables: to compare a few tags costs less than to hash one, and
//! most programs have no more posted at a time.

use arrayvec::ArrayVec;
use srd_wire::KeyedHash;
use std::collections::HashMap;

/// A hash map for keys that peers choose: it is keyed.
pub(crate) type FastMap<K, V> = HashMap<K, V, KeyedHash>;

const NONE: u32 = u32::MAX;

/// Any source.
pub(crate) const ANY: u32 = u32::MAX;

/// Shapes of which unexpected messages keep a table; for others they are looked through one by one.
const TABLES: usize = 4;

/// Receives that wait in the row: those that are not found there cost no more for it than a tenth of a search in a table.
const ROW: usize = 4;

/// What a receive asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    /// The tag; 0 for messages without.
    pub tag: u64,
    /// Its bits that do not count.
    pub ignore: u64,
    /// The sender, or [`ANY`].
    pub peer: u32,
}

impl Wanted {
    fn shape(&self) -> Shape {
        Shape { ignore: self.ignore, directed: self.peer != ANY }
    }

    #[inline]
    pub fn matches(&self, tag: u64, peer: u32) -> bool {
        (self.tag ^ tag) & !self.ignore == 0 && (self.peer == ANY || self.peer == peer)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    ignore: u64,
    directed: bool,
}

impl Shape {
    #[inline]
    fn key(&self, tag: u64, peer: u32) -> Key {
        Key { bits: tag & !self.ignore, peer: if self.directed { peer } else { ANY } }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    bits: u64,
    peer: u32,
}

/// A queue in a table: the first and the last of its nodes.
#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
}

/// A place in a queue.
#[derive(Clone, Copy, Debug)]
struct Node {
    item: u32,
    /// Place in the order of all.
    order: u64,
    prev: u32,
    next: u32,
    key: Key,
}

/// A table of queues.
#[derive(Debug)]
struct Table {
    shape: Shape,
    queues: FastMap<Key, Queue>,
}

/// Nodes of many queues; free ones are used again.
#[derive(Debug, Default)]
struct Nodes {
    nodes: Vec<Node>,
    free: Vec<u32>,
}

impl Nodes {
    fn append(&mut self, table: &mut Table, key: Key, item: u32, order: u64) -> u32 {
        let queue = table.queues.entry(key).or_insert(Queue { head: NONE, tail: NONE });
        let node = Node { item, order, prev: queue.tail, next: NONE, key };
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        match queue.tail {
            NONE => queue.head = index,
            tail => self.nodes[tail as usize].next = index,
        }
        queue.tail = index;
        index
    }

    fn remove(&mut self, table: &mut Table, index: u32) {
        let Node { prev, next, key, .. } = self.nodes[index as usize];
        self.free.push(index);
        if prev == NONE && next == NONE {
            table.queues.remove(&key);
            return;
        }
        let queue = table.queues.get_mut(&key).expect("a node's queue is there");
        match prev {
            NONE => queue.head = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NONE => queue.tail = prev,
            next => self.nodes[next as usize].prev = prev,
        }
    }

    #[inline]
    fn first(&self, table: &Table, key: Key) -> Option<(u32, &Node)> {
        let queue = table.queues.get(&key)?;
        Some((queue.head, &self.nodes[queue.head as usize]))
    }
}

/// Receives that wait for messages. Items are numbers of the caller's.
#[derive(Debug)]
pub(crate) struct Posted {
    hash: KeyedHash,
    /// In the order of posting.
    row: ArrayVec<InRow, ROW>,
    nodes: Nodes,
    tables: Vec<Table>,
    /// Of all.
    order: u64,
    in_tables: usize,
}

/// A receive that waits in the row.
#[derive(Clone, Copy, Debug)]
struct InRow {
    wanted: Wanted,
    item: u32,
    order: u64,
}

/// Where a receive waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// [`NONE`]: in the row.
    node: u32,
    order: u64,
}

impl Posted {
    pub fn new(hash: KeyedHash) -> Posted {
        let (row, nodes) = (ArrayVec::new(), Nodes::default());
        Posted { hash, row, nodes, tables: Vec::new(), order: 0, in_tables: 0 }
    }

    /// A receive waits from now on.
    #[inline]
    pub fn add(&mut self, wanted: &Wanted, item: u32) -> Place {
        self.order += 1;
        let order = self.order;
        match self.row.try_push(InRow { wanted: *wanted, item, order }) {
            Ok(()) => Place { node: NONE, order },
            Err(_) => self.add_to_table(wanted, item),
        }
    }

    #[inline(never)]
    fn add_to_table(&mut self, wanted: &Wanted, item: u32) -> Place {
        let (shape, order) = (wanted.shape(), self.order);
        let table = match self.tables.iter().position(|table| table.shape == shape) {
            Some(table) => table,
            None => self.add_table(shape),
        };
        self.in_tables += 1;
        let key = shape.key(wanted.tag, wanted.peer);
        Place { node: self.nodes.append(&mut self.tables[table], key, item, order), order }
    }

    #[cold]
    fn add_table(&mut self, shape: Shape) -> usize {
        // Shapes that are not in use any more make every search longer.
        self.tables.retain(|table| !table.queues.is_empty());
        self.tables.push(Table { shape, queues: FastMap::with_hasher(self.hash) });
        self.tables.len() - 1
    }

    /// The receive that takes a message with this tag from this peer. It goes on waiting until [`Posted::remove`].
    #[inline]
    pub fn find(&self, tag: u64, peer: u32) -> Option<u32> {
        let in_row = self.row.iter().find(|waits| waits.wanted.matches(tag, peer));
        match self.in_tables {
            0 => in_row.map(|waits| waits.item),
            _ => self.first_of_all(in_row.map(|waits| (waits.order, waits.item)), tag, peer),
        }
    }

    /// That which was posted first of `first` and of those in tables.
    #[inline(never)]
    fn first_of_all(&self, mut first: Option<(u64, u32)>, tag: u64, peer: u32) -> Option<u32> {
        for table in &self.tables {
            if let Some((_, node)) = self.nodes.first(table, table.shape.key(tag, peer))
                && first.is_none_or(|(order, _)| node.order < order)
            {
                first = Some((node.order, node.item));
            }
        }
        first.map(|(_, item)| item)
    }

    /// A receive does not wait any more.
    #[inline]
    pub fn remove(&mut self, wanted: &Wanted, place: Place) {
        if place.node != NONE {
            return self.remove_from_table(wanted, place.node);
        }
        let at = self.row.iter().position(|waits| waits.order == place.order);
        self.row.remove(at.expect("it waits in the row"));
    }

    #[inline(never)]
    fn remove_from_table(&mut self, wanted: &Wanted, node: u32) {
        let shape = wanted.shape();
        let table = self.tables.iter_mut().find(|table| table.shape == shape);
        self.nodes.remove(table.expect("a waiting receive has its table"), node);
        self.in_tables -= 1;
    }
}

/// Messages that nobody has asked for. Items are numbers of the caller's.
#[derive(Debug)]
pub(crate) struct Unexpected {
    hash: KeyedHash,
    nodes: Nodes,
    tables: Vec<Table>,
    /// All of them, in the order of arrival.
    all: std::collections::BTreeMap<u64, (u32, u64, u32)>,
    order: u64,
}

/// Where a message waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    order: u64,
    nodes: [u32; TABLES],
}

impl Unexpected {
    pub fn new(hash: KeyedHash) -> Unexpected {
        Unexpected { hash, nodes: Nodes::default(), tables: Vec::new(), all: Default::default(), order: 0 }
    }

    /// A message waits from now on. `place` is asked for by [`Unexpected::remove`].
    pub fn add(&mut self, tag: u64, peer: u32, item: u32) -> Waiting {
        self.order += 1;
        self.all.insert(self.order, (item, tag, peer));
        let mut nodes = [NONE; TABLES];
        for (node, table) in nodes.iter_mut().zip(&mut self.tables) {
            let key = table.shape.key(tag, peer);
            *node = self.nodes.append(table, key, item, self.order);
        }
        Waiting { order: self.order, nodes }
    }

    /// The message that this receive takes. It goes on waiting until [`Unexpected::remove`]. `moved` is told where those
    /// that wait are to be found from now on, by item.
    #[inline]
    pub fn find(&mut self, wanted: &Wanted, moved: impl FnMut(u32, usize, u32)) -> Option<u32> {
        if self.all.is_empty() {
            return None;
        }
        let shape = wanted.shape();
        let table = match self.tables.iter().position(|table| table.shape == shape) {
            Some(table) => table,
            None if self.tables.len() < TABLES => self.add_table(shape, moved),
            None => {
                let found = self.all.values().find(|(_, tag, peer)| wanted.matches(*tag, *peer));
                return found.map(|&(item, ..)| item);
            }
        };
        let table = &self.tables[table];
        self.nodes.first(table, shape.key(wanted.tag, wanted.peer)).map(|(_, node)| node.item)
    }

    #[cold]
    fn add_table(&mut self, shape: Shape, mut moved: impl FnMut(u32, usize, u32)) -> usize {
        let index = self.tables.len();
        self.tables.push(Table { shape, queues: FastMap::with_hasher(self.hash) });
        let table = &mut self.tables[index];
        for (&order, &(item, tag, peer)) in &self.all {
            moved(item, index, self.nodes.append(table, shape.key(tag, peer), item, order));
        }
        index
    }

    /// A message does not wait any more.
    pub fn remove(&mut self, waiting: &Waiting) {
        self.all.remove(&waiting.order);
        for (&node, table) in waiting.nodes.iter().zip(&mut self.tables) {
            if node != NONE {
                self.nodes.remove(table, node);
            }
        }
    }
}

impl Waiting {
    /// As [`Unexpected::find`] tells.
    pub fn moved(&mut self, table: usize, node: u32) {
        self.nodes[table] = node;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Post(Wanted),
        Arrive(u64, u32),
        Cancel(usize),
    }

    fn wanted() -> impl Strategy<Value = Wanted> {
        let ignore = prop_oneof![Just(0), Just(1), Just(3), Just(6), Just(u64::MAX), 0u64..8];
        let peer = prop_oneof![Just(ANY), 0u32..3];
        (0u64..8, ignore, peer).prop_map(|(tag, ignore, peer)| Wanted { tag, ignore, peer })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => wanted().prop_map(Step::Post),
            4 => (0u64..8, 0u32..3).prop_map(|(tag, peer)| Step::Arrive(tag, peer)),
            1 => any::<usize>().prop_map(Step::Cancel),
        ]
    }

    proptest! {
        /// Against two plain lists.
        #[test]
        fn the_oldest_that_matches_is_taken(steps in proptest::collection::vec(step(), 0..200)) {
            let (mut posted, mut unexpected) = (Posted::new(KeyedHash::new(1)), Unexpected::new(KeyedHash::new(1)));
            let mut receives: Vec<(u32, Wanted, Place)> = Vec::new();
            let mut messages: Vec<(u32, u64, u32)> = Vec::new();
            let mut waiting: HashMap<u32, Waiting> = HashMap::new();
            for (item, step) in (0u32..).zip(steps) {
                match step {
                    Step::Post(wanted) => {
                        let model = messages.iter().position(|&(_, tag, peer)| wanted.matches(tag, peer));
                        let found = unexpected.find(&wanted, |item, table, node| {
                            waiting.get_mut(&item).unwrap().moved(table, node);
                        });
                        prop_assert_eq!(found, model.map(|at| messages[at].0));
                        match model {
                            Some(at) => {
                                let (item, ..) = messages.remove(at);
                                unexpected.remove(&waiting.remove(&item).unwrap());
                            }
                            None => receives.push((item, wanted, posted.add(&wanted, item))),
                        }
                    }
                    Step::Arrive(tag, peer) => {
                        let model = receives.iter().position(|(_, wanted, _)| wanted.matches(tag, peer));
                        prop_assert_eq!(posted.find(tag, peer), model.map(|at| receives[at].0));
                        match model {
                            Some(at) => {
                                let (_, wanted, place) = receives.remove(at);
                                posted.remove(&wanted, place);
                            }
                            None => {
                                messages.push((item, tag, peer));
                                waiting.insert(item, unexpected.add(tag, peer, item));
                            }
                        }
                    }
                    Step::Cancel(which) if !receives.is_empty() => {
                        let (_, wanted, place) = receives.remove(which % receives.len());
                        posted.remove(&wanted, place);
                    }
                    Step::Cancel(_) => {}
                }
                let waiting = unexpected.all.values().map(|&(item, ..)| item);
                prop_assert!(waiting.eq(messages.iter().map(|&(item, ..)| item)));
            }
        }
    }
}
