//! Search for a key inside one node.
//!
//! Heads are compared first, without branches to mispredict. Only slots with the head of the
//! searched key are compared further. That touches other memory only for keys that are longer than
//! eight bytes behind the prefix of the node.
//!
//! A search in a node that another thread changes at the same time may find nonsense. The result is
//! always inside the node, and the version tells.

use super::node::IndexNode;
use super::search_key::SearchKey;
use std::cmp::Ordering::{Equal, Less};

/// Heads in a cache line.
const GROUP: usize = 8;

/// Position of a key in a leaf, or where it would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// The first slot whose key is not below the key.
    pub(super) index: usize,
    /// True if that slot has the key.
    pub(super) found: bool,
}

impl<const N: usize> IndexNode<N> {
    /// Returns the position of `search_key` in this leaf.
    #[inline]
    pub(super) fn position(&self, search_key: &SearchKey<'_>) -> Position {
        match self.has_prefix() {
            false => self.position_behind(0, search_key),
            true => self.position_if_behind(search_key),
        }
    }

    #[inline]
    fn position_if_behind(&self, search_key: &SearchKey<'_>) -> Position {
        let prefix = self.prefix();
        let index = match prefix.strip(search_key) {
            Ok(rest) => return self.position_behind(prefix.length(), &rest),
            Err(Less) => 0,
            Err(_) => self.count(),
        };
        Position {
            index,
            found: false,
        }
    }

    /// The same for the bytes of a key behind a prefix of so many bytes.
    #[inline(always)]
    fn position_behind(&self, prefix: usize, rest: &SearchKey<'_>) -> Position {
        let count = self.count();
        let index = self.lower_head(count, rest.head);
        if index == count || self.head(index) != rest.head {
            return Position {
                index,
                found: false,
            };
        }
        let end = self.ties_end(index, count, rest.head);
        self.lower_tie(index, end, prefix, rest)
    }

    /// Returns the slot of the child whose keys may include `search_key`.
    #[inline]
    pub(super) fn child_for(&self, search_key: &SearchKey<'_>) -> usize {
        match self.has_prefix() {
            false => self.child_behind(0, search_key),
            true => self.child_if_behind(search_key),
        }
    }

    #[inline]
    fn child_if_behind(&self, search_key: &SearchKey<'_>) -> usize {
        let prefix = self.prefix();
        match prefix.strip(search_key) {
            Ok(rest) => self.child_behind(prefix.length(), &rest),
            Err(Less) => 0,
            Err(_) => self.count().saturating_sub(1),
        }
    }

    #[inline(always)]
    fn child_behind(&self, prefix: usize, rest: &SearchKey<'_>) -> usize {
        let count = self.count();
        // Slot 0 stands for everything below slot 1, so it is never the one that is above.
        let index = self.lower_head(count, rest.head).max(1.min(count));
        if index == count || self.head(index) != rest.head {
            return index.saturating_sub(1);
        }
        let end = self.ties_end(index, count, rest.head);
        let Position { index, found } = self.lower_tie(index, end, prefix, rest);
        // A low key is the first of its child's keys, not the last of those before.
        if found {
            index
        } else {
            index.saturating_sub(1)
        }
    }

    /// Returns the first slot whose head is not below `head`; the count if there is none.
    ///
    /// Counts the heads that are below, first by the last head of each group, then in one group. A
    /// binary search would wait for each comparison before it knows the next address; here all
    /// addresses of a step are known at once. Slots at or above the count have the largest head.
    #[inline]
    fn lower_head(&self, count: usize, head: u64) -> usize {
        let groups = (0..(N - 1) / GROUP).map(|group| self.head(group * GROUP + GROUP - 1));
        let first = GROUP * groups.map(|last| usize::from(last < head)).sum::<usize>();
        let heads = (first..N.min(first + GROUP)).map(|slot| self.head(slot));
        let index = first + heads.map(|there| usize::from(there < head)).sum::<usize>();
        index.min(count)
    }

    /// Returns the end of the slots with the same head as slot `index`.
    #[inline]
    fn ties_end(&self, index: usize, count: usize, head: u64) -> usize {
        // Mostly there is one.
        if index + 1 >= count || self.head(index + 1) != head {
            return index + 1;
        }
        head.checked_add(1)
            .map_or(count, |above| self.lower_head(count, above))
    }

    /// Returns the first slot of `start..end`, which all have the head of `rest`, that is not below
    /// it.
    #[inline]
    fn lower_tie(&self, start: usize, end: usize, prefix: usize, rest: &SearchKey<'_>) -> Position {
        let (mut start, mut end) = (start, end);
        while start < end {
            let middle = start.midpoint(end);
            match self.compare_tie(middle, prefix, rest) {
                Equal => {
                    return Position {
                        index: middle,
                        found: true,
                    };
                }
                Less => start = middle + 1,
                _ => end = middle,
            }
        }
        Position {
            index: start,
            found: false,
        }
    }
}
