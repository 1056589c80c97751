//! Cache of tables and indexes that a worker has used, found by identity.
//!
//! Every operation looks its table up here. Most transactions use a few tables, and a short list is
//! searched faster than anything is hashed. A transaction that uses thousands of tables finds each
//! by its hash, so an operation costs the same however many tables came before.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Deref;

/// Number of entries that are compared one by one before the hash is used.
const COMPARED: usize = 8;

/// An entry of the cache.
pub(crate) trait Identified {
    type Identity: Copy + Eq + Hash;

    fn identity(&self) -> Self::Identity;
}

/// See the [module](self). An entry keeps its index until the cache is cleared.
#[derive(Debug)]
pub(crate) struct TableCache<E: Identified> {
    entries: Vec<E>,
    by_identity: HashMap<E::Identity, usize>,
}

impl<E: Identified> TableCache<E> {
    pub(super) fn new() -> TableCache<E> {
        TableCache {
            entries: Vec::new(),
            by_identity: HashMap::new(),
        }
    }

    /// Returns the index of the entry that `is_it` accepts, if it is among the first. The caller
    /// compares, because a whole identity takes more instructions.
    #[inline(always)]
    pub(super) fn find_first(&self, is_it: impl Fn(&E) -> bool) -> Option<usize> {
        let compared = self.entries.len().min(COMPARED);
        self.entries[..compared].iter().position(is_it)
    }

    /// Returns the index of an entry.
    pub(super) fn find(&self, identity: E::Identity) -> Option<usize> {
        let found = self.find_first(|entry| entry.identity() == identity);
        found.or_else(|| self.by_identity.get(&identity).copied())
    }

    /// Adds an entry that is not there, and returns its index.
    pub(super) fn push(&mut self, entry: E) -> usize {
        let index = self.entries.len();
        self.by_identity.insert(entry.identity(), index);
        self.entries.push(entry);
        index
    }

    /// Keeps only some entries; the others get new indices.
    pub(super) fn retain(&mut self, keeps: impl FnMut(&E) -> bool) {
        let count = self.entries.len();
        self.entries.retain(keeps);
        if self.entries.len() < count {
            self.by_identity.clear();
            let identities = self.entries.iter().map(E::identity);
            self.by_identity.extend(identities.zip(0..));
        }
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.by_identity.clear();
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut E {
        &mut self.entries[index]
    }
}

impl<E: Identified> Deref for TableCache<E> {
    type Target = [E];

    #[inline(always)]
    fn deref(&self) -> &[E] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Counts how often its identity is read: once for each comparison of the list.
    #[derive(Debug)]
    struct Entry<'c>(u64, &'c Cell<u64>);

    impl Identified for Entry<'_> {
        type Identity = u64;

        fn identity(&self) -> u64 {
            self.1.update(|count| count + 1);
            self.0
        }
    }

    #[test]
    fn a_table_is_found_with_few_comparisons_however_many_there_are() {
        let compared = Cell::new(0);
        let mut cache = TableCache::new();
        for number in 0..4095 {
            assert_eq!(cache.find(number), None);
            assert_eq!(cache.push(Entry(number, &compared)), number as usize);
        }
        for number in 0..4095 {
            compared.set(0);
            assert_eq!(cache.find(number), Some(number as usize));
            assert!(compared.get() <= COMPARED as u64, "table {number}");
        }
    }

    #[test]
    fn entries_are_found_after_others_have_gone() {
        let compared = Cell::new(0);
        let mut cache = TableCache::new();
        (0..100).for_each(|number| assert!(cache.push(Entry(number, &compared)) < 100));
        cache.retain(|entry| entry.0 % 3 == 0);
        for number in 0..100 {
            let index = cache.find(number);
            assert_eq!(index.is_some(), number % 3 == 0);
            assert!(index.is_none_or(|index| cache[index].0 == number));
        }
        cache.clear();
        assert_eq!(cache.find(0), None);
    }
}
