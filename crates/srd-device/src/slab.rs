//! A table whose entries are named by slot and generation, so that an old name never finds a new entry.

/// Name of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// Slot.
    pub index: u32,
    /// Use of the slot.
    pub generation: u32,
}

/// Generations wrap at 2^30, so that a key and two more bits fit a 64-bit token.
const GENERATION_MASK: u32 = (1 << 30) - 1;

/// See the module. Grows by what is needed at once; freed slots are used again, last freed first. A table that has grown
/// beyond [`STAYS`] gives its memory back when it is empty.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    len: u32,
    /// Of slots that have not been used since the table was empty.
    generation: u32,
}

/// Slots that an empty table keeps.
const STAYS: usize = 1 << 13;

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    generation: u32,
    next_free: u32,
}

const END: u32 = u32::MAX;

impl<T> Slab<T> {
    /// An empty table.
    pub fn new() -> Slab<T> {
        Slab { slots: Vec::new(), free: END, len: 0, generation: 0 }
    }

    /// Makes room for `n`, when anything is in it: objects that are never used cost nothing.
    pub fn reserve_first(&mut self, n: usize) {
        if self.slots.capacity() < n {
            self.slots.reserve(n - self.slots.len());
        }
    }

    /// Entries in use.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes a slot for `value`.
    #[inline]
    pub fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        if self.free == END {
            let index = self.slots.len() as u32;
            let generation = self.generation;
            self.slots.push(Slot { value: Some(value), generation, next_free: END });
            return Key { index, generation };
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        self.free = slot.next_free;
        slot.value = Some(value);
        Key { index, generation: slot.generation }
    }

    /// The entry of that name.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.slots.get(key.index as usize).filter(|slot| slot.generation == key.generation)?.value.as_ref()
    }

    /// The entry of that name.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slots
            .get_mut(key.index as usize)
            .filter(|slot| slot.generation == key.generation)?
            .value
            .as_mut()
    }

    /// The entry in slot `index`, with its full name.
    #[inline]
    pub fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        slot.value.is_some().then_some(Key { index, generation: slot.generation })
    }

    /// The entry in slot `index`.
    #[inline]
    pub fn at(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    /// The entry in slot `index`.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// Takes the entry out; its slot is free.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.next_free = self.free;
        self.free = key.index;
        self.len -= 1;
        if self.len == 0 && self.slots.len() > STAYS {
            self.give_back();
        }
        Some(value)
    }

    /// Nothing is in use: all slots go, and the next ones have generations that none of these has had.
    #[cold]
    fn give_back(&mut self) {
        let newest = self.slots.iter().map(|slot| slot.generation).max().unwrap_or(0);
        // After a wrap no generation is above all others; what names are left of before the wrap are very old.
        self.generation = (newest + 1) & GENERATION_MASK;
        self.slots = Vec::new();
        self.free = END;
    }

    /// All entries, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let key = Key { index: index as u32, generation: slot.generation };
            slot.value.as_ref().map(|value| (key, value))
        })
    }

    /// All entries, by slot.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let key = Key { index: index as u32, generation: slot.generation };
            slot.value.as_mut().map(|value| (key, value))
        })
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_name_does_not_find_a_new_entry() {
        let mut slab = Slab::new();
        let a = slab.insert('a');
        assert_eq!(slab.remove(a), Some('a'));
        let b = slab.insert('b');
        assert_eq!(a.index, b.index);
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get(b), Some(&'b'));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn a_table_that_was_large_gives_its_memory_back_and_knows_old_names_no_more() {
        let mut slab = Slab::new();
        let again = slab.insert(0);
        slab.remove(again);
        let keys: Vec<Key> = (0..STAYS + 1).map(|n| slab.insert(n)).collect();
        keys.iter().for_each(|&key| assert!(slab.remove(key).is_some()));
        assert_eq!(slab.slots.capacity(), 0);
        let new = slab.insert(7);
        assert!(keys.iter().chain([&again]).all(|&key| key != new && slab.get(key).is_none()));
    }
}
