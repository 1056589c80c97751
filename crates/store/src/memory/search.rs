//! Finding a key inside one node.
//!
//! Heads are compared first, by a search without branches to mispredict. Only slots whose head is
//! that of the key looked for are compared further, and only between keys longer than eight bytes
//! does that touch other memory.
//!
//! What is found in a node that somebody changes at the same time may be nonsense; it is always
//! inside the node, and the version tells.

use super::node::Node;
use super::probe::Probe;
use std::cmp::Ordering::{Equal, Less};

/// Where a key is in a leaf, or would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// The first slot whose key is not below the key.
    pub(super) index: usize,
    /// Whether that slot has the key.
    pub(super) found: bool,
}

impl<const N: usize> Node<N> {
    /// Where `probe` is in this leaf.
    #[inline]
    pub(super) fn position(&self, probe: &Probe<'_>) -> Position {
        let count = self.count();
        let index = self.lower_head(0, count, probe.head);
        if index == count || self.head(index) != probe.head {
            return Position {
                index,
                found: false,
            };
        }
        let end = self.ties_end(index, count, probe.head);
        self.lower_tie(index, end, probe)
    }

    /// The slot of the child whose keys may include `probe`.
    #[inline]
    pub(super) fn child_for(&self, probe: &Probe<'_>) -> usize {
        let count = self.count();
        // Slot 0 stands for everything below slot 1.
        let first = 1.min(count);
        let index = self.lower_head(first, count, probe.head);
        if index == count || self.head(index) != probe.head {
            return index.saturating_sub(1);
        }
        let end = self.ties_end(index, count, probe.head);
        let Position { index, found } = self.lower_tie(index, end, probe);
        // A low key is the first of its child's keys, not the last of those before.
        if found {
            index
        } else {
            index.saturating_sub(1)
        }
    }

    /// The first slot from `start` on whose head is not below `head`; `end` if there is none.
    #[inline]
    fn lower_head(&self, start: usize, end: usize, head: u64) -> usize {
        let mut base = start;
        let mut size = end - start;
        while size > 1 {
            let half = size / 2;
            let below = self.head(base + half - 1) < head;
            base = std::hint::select_unpredictable(below, base + half, base);
            size -= half;
        }
        base + usize::from(size == 1 && self.head(base) < head)
    }

    /// Past the last slot with the same head as slot `index`.
    #[inline]
    fn ties_end(&self, index: usize, count: usize, head: u64) -> usize {
        // Mostly there is one.
        if index + 1 >= count || self.head(index + 1) != head {
            return index + 1;
        }
        match head.checked_add(1) {
            Some(above) => self.lower_head(index, count, above),
            None => count,
        }
    }

    /// The first slot of `start..end`, which all have the head of `probe`, that is not below it.
    #[inline]
    fn lower_tie(&self, start: usize, end: usize, probe: &Probe<'_>) -> Position {
        let (mut start, mut end) = (start, end);
        while start < end {
            let middle = start.midpoint(end);
            match self.tie(middle, probe) {
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
