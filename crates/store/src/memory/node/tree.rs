//! The tree of nodes: its root, and every change of its shape.
//!
//! A reader takes a [`Pinned`] from the [`TreeRoot`]. A writer takes a [`NodeWriteGuard`] of each
//! node it changes, and each method of a guard is one whole change. Invariants I1 to I6 are those
//! of the nodes, on the page above this one. They hold before and after each method here; only I2
//! and I3 are broken in between. Nothing outside this file unlinks memory.

use super::{IndexNode, follow, publish, untagged};
use crate::memory::record::{self, NewRecord, RecordPointer};
use crate::memory::search_key;
use foxton_sync::epoch::{Domain, Guard};
use foxton_sync::failpoint::Failpoints;
use foxton_sync::latch::Version;
use foxton_sync::shim::{
    AtomicPtr,
    unmodelled::{AtomicU64, Ordering},
};
use foxton_sync::site::{Component, Pattern, Site};
use std::ptr;

/// Site: a node that is about to be changed, counted once for its latch.
static NODE: Site = Site::new(Component::Latch, Pattern::Unbounded, "index node");

/// The root of the tree, and the domain in which its memory is reclaimed.
pub(in crate::memory) struct TreeRoot<const N: usize> {
    pointer: AtomicPtr<IndexNode<N>>,
    domain: Domain,
    /// No other tree of the process has, or had, this number.
    id: u64,
}

/// Returns a number that was not returned before.
fn new_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only the number matters. It does not wrap in the life of a process.
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl<const N: usize> TreeRoot<N> {
    /// Returns an empty tree: one leaf.
    pub(in crate::memory) fn new(domain: &Domain) -> Self {
        let leaf = IndexNode::new(0, &[]).share();
        Self {
            pointer: AtomicPtr::new(leaf),
            domain: domain.clone(),
            id: new_id(),
        }
    }

    /// Returns the tree, as it may be read while `guard` exists.
    ///
    /// # Panics
    ///
    /// If `guard` pins another domain (I6).
    #[inline]
    pub(in crate::memory) fn pin<'g>(&'g self, guard: &'g Guard<'_>) -> Pinned<'g, N> {
        assert!(
            guard.pins(&self.domain),
            "a table is read under a guard of its own domain"
        );
        Pinned { root: self, guard }
    }
}

impl<const N: usize> Drop for TreeRoot<N> {
    fn drop(&mut self) {
        let mut nodes = vec![follow(&self.pointer)];
        while let Some(node) = nodes.pop() {
            // SAFETY: each node is in one slot or the root (I3), so it comes here once; no other
            // thread borrows the tree, and unlinked nodes are not reached from here.
            let node = unsafe { Box::from_raw(node) };
            for slot in node.slots[..node.count()]
                .iter()
                .map(|slot| untagged(follow(slot)))
            {
                if node.level > 0 {
                    nodes.push(slot.cast());
                } else {
                    // SAFETY: each record is in one slot (I3), and no other thread borrows the
                    // tree.
                    unsafe { record::free(slot.cast()) };
                }
            }
        }
    }
}

/// A tree and the guard under which it is read.
pub(in crate::memory) struct Pinned<'g, const N: usize> {
    root: &'g TreeRoot<N>,
    guard: &'g Guard<'g>,
}

impl<const N: usize> Clone for Pinned<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<const N: usize> Copy for Pinned<'_, N> {}

impl<'g, const N: usize> Pinned<'g, N> {
    /// Returns the root. A caller that reads its version next must check again that it still is the
    /// root.
    #[inline]
    pub(in crate::memory) fn root(self) -> &'g IndexNode<N> {
        // SAFETY: the root is a node, good for as long as the guard exists.
        unsafe { &*follow(&self.root.pointer) }
    }

    /// The number of the tree.
    #[inline]
    pub(in crate::memory) fn id(self) -> u64 {
        self.root.id
    }

    #[inline]
    pub(in crate::memory) fn is_root(self, node: &IndexNode<N>) -> bool {
        ptr::eq(follow(&self.root.pointer), node)
    }

    /// Actions of tests at the points that it passes.
    #[inline]
    pub(in crate::memory) fn failpoints(self) -> &'g Failpoints {
        self.guard.failpoints()
    }

    /// Latches `node` if it still is at version `seen`. Never waits.
    pub(in crate::memory) fn try_latch(
        self,
        node: &'g IndexNode<N>,
        seen: Version,
    ) -> Option<NodeWriteGuard<'g, N>> {
        self.guard.account().passed(&NODE);
        // Lazily: a `NodeWriteGuard` releases the latch when it is dropped.
        node.latch.try_lock(seen).then(|| NodeWriteGuard {
            node,
            tree: self,
            seen,
            wrote: false,
            removed: None,
        })
    }

    /// Retires `garbage`.
    ///
    /// # Safety
    ///
    /// It was just unlinked (I4).
    unsafe fn retire_node(self, garbage: &'g IndexNode<N>) {
        unsafe fn free<const N: usize>(address: *mut ()) {
            // SAFETY: nodes are boxes; retired once, by I4.
            drop(unsafe { Box::from_raw(address.cast::<IndexNode<N>>()) });
        }
        // SAFETY: a thread that pins from now on does not find it (I4), and a node owns nothing but
        // memory.
        unsafe {
            let address = garbage.address().cast();
            self.guard
                .retire_raw(address, size_of::<IndexNode<N>>(), free::<N>);
        }
    }
}

/// A node whose latch is held. Dropped, it releases the latch.
pub(in crate::memory) struct NodeWriteGuard<'g, const N: usize> {
    node: &'g IndexNode<N>,
    tree: Pinned<'g, N>,
    seen: Version,
    wrote: bool,
    removed: Option<RecordPointer<'g>>,
}

impl<const N: usize> Drop for NodeWriteGuard<'_, N> {
    fn drop(&mut self) {
        if self.wrote {
            self.node.latch.unlock();
        } else {
            self.node.latch.unlock_unchanged(self.seen);
        }
        // After the latch: retiring may free a whole bag.
        if let Some(removed) = self.removed {
            let address = removed.raw().as_ptr().cast();
            // SAFETY: it was in one slot (I3) and is in none, so a thread that pins from now on
            // does not find it; and only we took it out (I4).
            unsafe {
                self.tree
                    .guard
                    .retire_raw(address, record::bytes(removed.record()), record::free);
            };
        }
    }
}

impl<'g, const N: usize> NodeWriteGuard<'g, N> {
    pub(in crate::memory) fn node(&self) -> &'g IndexNode<N> {
        self.node
    }

    /// True if `other` is held here.
    pub(in crate::memory) fn is(&self, other: &IndexNode<N>) -> bool {
        ptr::eq(self.node, other)
    }

    fn write(&mut self) -> &'g IndexNode<N> {
        self.wrote = true;
        self.node
    }

    /// Puts `record` into slot `index` of a leaf that is not full.
    pub(in crate::memory) fn insert_record(
        &mut self,
        index: usize,
        record: NewRecord,
    ) -> RecordPointer<'g> {
        let node = self.write();
        assert_eq!(node.level, 0, "records go into leaves");
        let raw = record.into_linked(self.tree.root.domain.id());
        // SAFETY: ours until a slot has it, and a table record from then on (I3).
        let pointer = unsafe { RecordPointer::new(raw) };
        node.insert_slot(index, pointer.record().key(), raw.as_ptr());
        pointer
    }

    /// Takes the record out of slot `index` of a leaf and marks it; it is retired when the latch is
    /// released. Once per guard.
    pub(in crate::memory) fn remove_record(&mut self, index: usize) {
        let node = self.write();
        let pointer = node.pointer(index).expect("only slots in use are removed");
        pointer.record().set_unlinked();
        node.remove_slot(index);
        let before = self.removed.replace(pointer);
        assert!(before.is_none(), "one record is removed in a hold");
    }

    /// Moves the slots of `child` from `at` on into a new right neighbour, and puts that into the
    /// slot behind the child's. `next` is the leaf to the right of the child, if there is one.
    pub(in crate::memory) fn split_child(
        &mut self,
        index: usize,
        child: &mut NodeWriteGuard<'g, N>,
        next: Option<&mut NodeWriteGuard<'g, N>>,
        at: usize,
    ) {
        let parent = self.write();
        let left = child.write();
        let count = left.count();
        assert!(0 < at && at < count, "both halves of a split have slots");
        assert!(
            parent.child(index).is_some_and(|node| child.is(node)),
            "the child's slot"
        );
        assert!(!parent.is_full(), "a split needs room in the parent");
        let right = match left.level {
            0 => IndexNode::new(0, search_key::separator(left.key(at - 1), left.key(at))),
            level => IndexNode::new(level, left.key(at)),
        };
        right.set_prefix(left.prefix());
        for (to, from) in (at..count).enumerate() {
            right.set_slot(to, left.head(from), follow(&left.slots[from]));
        }
        right.set_count(count - at);
        right.reset_first_head();
        right.lengthen_prefix();
        let low: Box<[u8]> = right.low.clone();
        let right = right.share();
        if left.level == 0 {
            let old_next = follow(&left.next);
            // SAFETY: just made, and no other thread has it.
            let links = unsafe { (&(*right).next, &(*right).prev) };
            publish(links.0, old_next);
            publish(links.1, left.address());
            match next {
                Some(next) => {
                    assert!(ptr::eq(old_next, next.node), "the neighbour's link");
                    publish(&next.write().prev, right);
                }
                None => assert!(old_next.is_null(), "a neighbour is held"),
            }
            publish(&left.next, right);
        }
        parent.insert_slot(index + 1, &low, right.cast());
        // Last: slots at or above the count are null (I3), so that no record is found in two nodes.
        for slot in at..count {
            left.clear_slot(slot);
        }
        left.set_count(at);
        left.lengthen_prefix();
    }

    /// Puts a branch above the root, whose only child it becomes. Returns whether this node was the
    /// root.
    pub(in crate::memory) fn grow_root(&mut self) -> bool {
        if !self.tree.is_root(self.node) {
            return false;
        }
        let old = self.write();
        let root = IndexNode::new(old.level + 1, &[]);
        root.insert_slot(0, &[], old.address().cast());
        publish(&self.tree.root.pointer, root.share());
        true
    }

    /// Retires a root with one child, and makes the child the root.
    pub(in crate::memory) fn shrink_root(&mut self) {
        if self.node.level == 0 || self.node.count() != 1 || !self.tree.is_root(self.node) {
            return;
        }
        let old = self.write();
        let child = old.child(0).expect("slots below the count are in use");
        publish(&self.tree.root.pointer, child.address());
        old.remove_slot(0);
        // SAFETY: it was the root, and in no slot (I3, I4).
        unsafe { self.tree.retire_node(old) };
    }

    /// Unlinks a chain of nodes that ends in an empty leaf: `chain[0]` is in slot `index` of this
    /// branch, every other is the only child of the one before it. `prev` and `next` are the leaf's
    /// neighbours.
    pub(in crate::memory) fn unlink(
        &mut self,
        index: usize,
        chain: &mut [NodeWriteGuard<'g, N>],
        prev: Option<&mut NodeWriteGuard<'g, N>>,
        next: Option<&mut NodeWriteGuard<'g, N>>,
    ) {
        let mut parent = self.write();
        let mut slot = index;
        for write_guard in chain.iter_mut() {
            let node = write_guard.write();
            assert!(
                parent.child(slot).is_some_and(|child| ptr::eq(child, node)),
                "a chain"
            );
            assert!(
                node.count() == usize::from(node.level > 0),
                "nothing else is in the chain"
            );
            (parent, slot) = (node, 0);
        }
        let leaf = parent;
        assert_eq!(leaf.level, 0, "the chain ends in a leaf");
        let (left, right) = (follow(&leaf.prev), follow(&leaf.next));
        match prev {
            Some(prev) => {
                assert!(ptr::eq(left, prev.node), "the neighbour's link");
                publish(&prev.write().next, right);
            }
            None => assert!(left.is_null(), "a neighbour is held"),
        }
        match next {
            Some(next) => {
                assert!(ptr::eq(right, next.node), "the neighbour's link");
                publish(&next.write().prev, left);
            }
            None => assert!(right.is_null(), "a neighbour is held"),
        }
        self.node.remove_slot(index);
        for write_guard in chain {
            // No pointer leads down the chain any more: unlinked nodes own nothing.
            if write_guard.node.count() > 0 {
                write_guard.node.remove_slot(0);
            }
            // SAFETY: out of its slot and its neighbours' links, latched and empty (I4).
            unsafe { self.tree.retire_node(write_guard.node) };
        }
    }
}
