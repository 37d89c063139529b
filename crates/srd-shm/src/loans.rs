//! What the owner of a segment lends: memory of its process that peers may copy from, each piece by a key.
//!
//! A peer is told of a piece by a record, and copies it when it has a place for it, which may be long afterwards: then the
//! owner may have given up, and its program have put something else there. So a key stands in the segment for as long as
//! its piece is lent, and a copy counts if the key is there before it (or it need not be begun) and after it.
//!
//! The owner takes the key out before its program hears that the memory is free again, with a fence behind that: whatever
//! the program writes there is written later. A peer loads the key behind a fence after all that it has copied: if it has
//! copied anything that was written later, it sees that the key has gone. No key is given out twice while somebody may
//! still ask for it, but for one in 2^32.

use crate::layout::LoanLine;
use crate::memory::Table;
use crate::sync::{AtomicU32, LOAN_LINES, Ordering, fence};

/// The owner's side. Whoever calls it does so one at a time, but for [`Loans::end_all`].
#[derive(Clone, Debug)]
pub struct Loans(Table);

impl Loans {
    pub(crate) fn new(table: Table) -> Loans {
        Loans(table)
    }

    /// Peers may copy what has this key, which is not 0, from now on. Where too many of its line are lent already they may
    /// not, and have to get it in another way.
    #[inline]
    pub fn lend(&self, key: u32) {
        let free = |word: &&AtomicU32| word.load(Ordering::Relaxed) == 0;
        if let Some(word) = line(&self.0, key).0.iter().find(free) {
            // Whoever is told of the key later sees it: what tells him is released later.
            word.store(key, Ordering::Relaxed);
        }
    }

    /// They may not any more: no copy counts that has anything of what this thread writes from now on.
    #[inline]
    pub fn end(&self, key: u32) {
        if let Some(word) = find(&self.0, key) {
            word.store(0, Ordering::Relaxed);
            fence(Ordering::Release);
        }
    }

    /// Nothing is lent any more. Any thread may call this, at any time.
    pub fn end_all(&self) {
        self.0.words().0.iter().flat_map(|line| &line.0).for_each(|word| word.store(0, Ordering::Relaxed));
        fence(Ordering::Release);
    }
}

/// What a peer sees of what the owner lends.
#[derive(Debug)]
pub(crate) struct Lent(Table);

impl Lent {
    pub fn new(table: Table) -> Lent {
        Lent(table)
    }

    /// Runs `copy`, if that key is lent. `None`: it was not, or not until the end of the copy.
    #[inline]
    pub fn during<T>(&self, key: u32, copy: impl FnOnce() -> T) -> Option<T> {
        let word = find(&self.0, key)?;
        let copied = copy();
        fence(Ordering::Acquire);
        (word.load(Ordering::Relaxed) == key).then_some(copied)
    }
}

/// The line where a key stands, if it stands anywhere. Keys are random in all bits.
#[inline]
fn line(table: &Table, key: u32) -> &LoanLine {
    &table.words().0[key as usize % LOAN_LINES]
}

#[inline]
fn find(table: &Table, key: u32) -> Option<&AtomicU32> {
    // 0 is what a word holds that has no key.
    line(table, key).0.iter().find(|word| key != 0 && word.load(Ordering::Relaxed) == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::LOANS;
    use crate::sys::Mapping;
    use std::sync::Arc;

    fn both_sides() -> (Loans, Lent) {
        let table = Table::new(Arc::new(Mapping::anonymous(size_of::<crate::layout::LoanTable>())), 0);
        (Loans::new(table.clone()), Lent::new(table))
    }

    #[test]
    fn what_is_lent_is_copied_and_what_is_not_is_not_touched() {
        let (loans, lent) = both_sides();
        let copies = |key| lent.during(key, || ()).is_some();
        for key in [1, 256, 512, u32::MAX] {
            assert_eq!(lent.during(key, || unreachable!("not lent")), None::<()>);
            loans.lend(key);
            assert!(copies(key));
        }
        loans.end(256);
        assert_eq!([1, 256, 512, u32::MAX].map(copies), [true, false, true, true]);
        loans.end(256);
        loans.end_all();
        assert_eq!([1, 256, 512, u32::MAX].map(copies), [false; 4]);
    }

    #[test]
    fn a_copy_does_not_count_if_the_loan_ends_meanwhile() {
        let (loans, lent) = both_sides();
        loans.lend(7);
        assert_eq!(lent.during(7, || loans.end(7)), None);
        // Its place may have been given to another.
        loans.lend(7);
        let another = || {
            loans.end(7);
            loans.lend(7 + LOAN_LINES as u32);
        };
        assert_eq!(lent.during(7, another), None);
    }

    #[test]
    fn no_key_is_none() {
        let (loans, lent) = both_sides();
        loans.lend(0);
        assert_eq!(lent.during(0, || ()), None);
        loans.end(0);
    }

    #[test]
    fn who_finds_no_place_is_not_lent_and_takes_nobodys() {
        let (loans, lent) = both_sides();
        let key = |n: usize| (3 + n * LOAN_LINES) as u32;
        (0..=LOANS).for_each(|n| loans.lend(key(n)));
        let there: Vec<bool> = (0..=LOANS).map(|n| lent.during(key(n), || ()).is_some()).collect();
        assert_eq!((there.iter().filter(|&&is| is).count(), there[LOANS]), (LOANS, false));
        // It changes nothing when that one ends, and the next one has the place of one that has ended.
        loans.end(key(LOANS));
        loans.end(key(5));
        loans.lend(key(LOANS + 1));
        assert!([0, 4, 6, LOANS + 1].iter().all(|&n| lent.during(key(n), || ()).is_some()));
    }
}
