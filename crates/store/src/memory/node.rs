//! Nodes of the index, and everything that could go wrong with their memory.
//!
//! # State
//!
//! Leaves and branches are one type. A node of N slots:
//!
//! ```text
//!   latch | count | level | low key | next | prev | N heads | N tagged pointers
//! ```
//!
//! Slot i < count of a leaf (level 0) stands for a record: head and tag of its key (`probe.rs`), and
//! its address; the tag lies in the low four bits of the address. Slot i of a branch stands for a
//! child: head and tag of the child's *low key*, and its address. Keys of the child are not below its
//! low key, and keys of its left neighbour are. Slot 0 stands for everything below slot 1, has head 0,
//! and its tag is never looked at. So a branch with c slots has c children and c - 1 separators.
//!
//! Leaves are linked both ways; `next` and `prev` of a branch are null.
//!
//! # Invariants
//!
//! * I1  Level and low key never change. A child is one level below its parent.
//! * I2  Everything else in a node that others can reach changes only while its latch is held, and
//!   the latch is given back with a new version.
//! * I3  While no latch is held: a record is in at most one slot of the tree; a node is in exactly one
//!   slot, or is the root; and for leaves, `a.next` is `b` exactly if `b.prev` is `a`. Slots at or
//!   above the count are null, with the largest head.
//! * I4  A record is retired by whoever took it out of its slot; a node by whoever took it out of its
//!   slot and its neighbours' links, empty, while holding its latch. So once something is retired, no
//!   node that can still be reached points to it.
//! * I5  What a node that was taken out points to (its neighbours) may be retired later than the node,
//!   never earlier.
//! * I6  A `&'g Node` is borrowed from a guard that pins the domain in which nodes and records of its
//!   tree are retired.
//!
//! # Why every pointer found may be followed
//!
//! A reader found pointer p in node n, perhaps half-way through somebody's change, and has not
//! validated anything yet. It is pinned (I6) since before it found n. If what p points to was retired
//! after the reader pinned, it is not freed while the reader is pinned. If it was retired before, then n
//! did not point to it any more when the reader pinned, provided n itself could still be reached then
//! (I4); and if n had been taken out before, the reader would not have found n. A node taken out after
//! the reader pinned points to what was retired later than it (I5). So p is good. What p says may be
//! outdated, and only the version tells.
//!
//! # Orderings
//!
//! * O1  `publish` (Release) to `follow` (Acquire): who finds a pointer sees the record or node as it
//!   was made. The latch alone would not do: pointers are followed before the version is validated.

use super::probe::{self, LONG, Probe};
use super::record::{self, NewRecord, Pointer};
use foxton_sync::epoch::{Domain, Guard};
use foxton_sync::latch::{Version, VersionLatch};
use foxton_sync::shim::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::cmp;
use std::fmt;
use std::ptr::{self, NonNull};

/// The bits of a tagged pointer that hold the tag.
const TAG_BITS: usize = record::ALIGN - 1;

const _: () = assert!(LONG <= TAG_BITS);

/// A leaf or a branch with room for `N` records or children.
#[repr(C, align(64))]
pub(super) struct Node<const N: usize> {
    latch: VersionLatch,
    count: AtomicU32,
    level: u8,
    low: Box<[u8]>,
    next: AtomicPtr<Node<N>>,
    prev: AtomicPtr<Node<N>>,
    heads: Lines<[AtomicU64; N]>,
    slots: [AtomicPtr<u8>; N],
}

/// Begins with a cache line, so that a search touches as few as it can.
#[repr(C, align(64))]
struct Lines<T>(T);

/// The head of a slot that is not in use: above all others, so that searches need not know the
/// count.
const UNUSED: u64 = u64::MAX;

/// Makes what `pointer` points to visible together with it.
#[inline]
fn publish<T>(place: &AtomicPtr<T>, pointer: *mut T) {
    place.store(pointer, Ordering::Release); // O1
}

/// The pointer at `place`, good to be followed.
#[inline]
fn follow<T>(place: &AtomicPtr<T>) -> *mut T {
    place.load(Ordering::Acquire) // O1
}

/// The address without its tag.
#[inline]
fn untagged(slot: *mut u8) -> *mut u8 {
    slot.map_addr(|address| address & !TAG_BITS)
}

#[inline]
fn tagged(address: *mut u8, tag: usize) -> *mut u8 {
    address.map_addr(|address| address | tag)
}

#[inline]
fn tag_of(slot: *mut u8) -> usize {
    slot.addr() & TAG_BITS
}

impl<const N: usize> fmt::Debug for Node<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("level", &self.level)
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

/// Reading.
impl<const N: usize> Node<N> {
    const ENOUGH_SLOTS: () = assert!(N >= 4, "a node of fewer than four slots cannot be split");

    fn new(level: u8, low: &[u8]) -> Box<Self> {
        let () = Self::ENOUGH_SLOTS;
        Box::new(Self {
            latch: VersionLatch::default(),
            count: AtomicU32::new(0),
            level,
            low: low.into(),
            next: AtomicPtr::new(ptr::null_mut()),
            prev: AtomicPtr::new(ptr::null_mut()),
            heads: Lines(std::array::from_fn(|_| AtomicU64::new(UNUSED))),
            slots: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        })
    }

    /// The latch, for whoever wants to wait for it or to validate later.
    #[inline]
    pub(super) fn latch(&self) -> &VersionLatch {
        &self.latch
    }

    /// 0 for a leaf.
    #[inline]
    pub(super) fn level(&self) -> u8 {
        self.level
    }

    /// The key that separates this node from its left neighbour; empty for the leftmost.
    pub(super) fn low(&self) -> &[u8] {
        &self.low
    }

    /// Slots in use.
    #[inline]
    pub(super) fn count(&self) -> usize {
        // Relaxed: validated by the version, like everything read here.
        (self.count.load(Ordering::Relaxed) as usize).min(N)
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count() == N
    }

    /// The head in slot `index`.
    #[inline]
    pub(super) fn head(&self, index: usize) -> u64 {
        // Relaxed: validated by the version.
        self.heads.0[index].load(Ordering::Relaxed)
    }

    /// The tag in slot `index`.
    pub(super) fn tag(&self, index: usize) -> usize {
        tag_of(follow(&self.slots[index]))
    }

    /// How the key in slot `index` stands to `probe`, whose head is the same.
    #[inline]
    pub(super) fn tie(&self, index: usize, probe: &Probe<'_>) -> cmp::Ordering {
        let slot = follow(&self.slots[index]);
        let tag = tag_of(slot);
        if tag != LONG || probe.tag != LONG {
            return tag.cmp(&probe.tag);
        }
        self.long_key(slot)[probe::HEAD_BYTES..].cmp(probe.rest())
    }

    /// The key behind a slot whose tag is [`LONG`].
    fn long_key(&self, slot: *mut u8) -> &[u8] {
        let address = NonNull::new(untagged(slot)).expect("a tag stands beside an address");
        if self.level == 0 {
            // SAFETY: slots of leaves point to records, good for as long as we are borrowed.
            unsafe { Pointer::new(address) }.record().key()
        } else {
            // SAFETY: slots of branches point to nodes, good for as long as we are borrowed.
            unsafe { address.cast::<Self>().as_ref() }.low()
        }
    }

    /// The record in slot `index` of a leaf. `None` if there is none, which a reader sees only
    /// while the node changes.
    #[inline]
    pub(super) fn pointer(&self, index: usize) -> Option<Pointer<'_>> {
        debug_assert_eq!(self.level, 0, "records are in leaves");
        let address = NonNull::new(untagged(follow(&self.slots[index])))?;
        // SAFETY: slots of leaves point to records, good for as long as we are borrowed ("Why every
        // pointer found may be followed").
        Some(unsafe { Pointer::new(address) })
    }

    /// The child in slot `index` of a branch. `None` as for [`Node::pointer`].
    #[inline]
    pub(super) fn child(&self, index: usize) -> Option<&Self> {
        debug_assert_ne!(self.level, 0, "children are in branches");
        let address = NonNull::new(untagged(follow(&self.slots[index])))?;
        // SAFETY: slots of branches point to nodes, good for as long as we are borrowed.
        Some(unsafe { address.cast::<Self>().as_ref() })
    }

    /// The children of a branch that were found.
    pub(super) fn children(&self) -> impl Iterator<Item = &Self> {
        (0..self.count()).filter_map(|slot| self.child(slot))
    }

    /// The leaf to the right.
    #[inline]
    pub(super) fn next(&self) -> Option<&Self> {
        // SAFETY: links point to nodes, good for as long as we are borrowed.
        NonNull::new(follow(&self.next)).map(|node| unsafe { node.as_ref() })
    }

    /// The leaf to the left.
    #[inline]
    pub(super) fn prev(&self) -> Option<&Self> {
        // SAFETY: links point to nodes, good for as long as we are borrowed.
        NonNull::new(follow(&self.prev)).map(|node| unsafe { node.as_ref() })
    }

    /// Asks the processor to fetch the beginning of the node, and does not wait.
    #[inline]
    pub(super) fn prefetch(&self) {
        record::prefetch(ptr::from_ref(self).cast());
    }

    fn key(&self, index: usize) -> &[u8] {
        match self.level {
            0 => self.pointer(index).map(|pointer| pointer.record().key()),
            _ => self.child(index).map(Self::low),
        }
        .expect("slots below the count are in use")
    }
}

/// Writing: by whoever holds the latch, or made the node and has not shown it yet.
impl<const N: usize> Node<N> {
    fn set_count(&self, count: usize) {
        let count = u32::try_from(count).expect("N is small");
        // Relaxed: published by the latch.
        self.count.store(count, Ordering::Relaxed);
    }

    fn set_slot(&self, index: usize, head: u64, slot: *mut u8) {
        // Relaxed: published by the latch.
        self.heads.0[index].store(head, Ordering::Relaxed);
        publish(&self.slots[index], slot);
    }

    fn copy_slot(&self, from: usize, to: usize) {
        self.set_slot(to, self.head(from), follow(&self.slots[from]));
    }

    fn clear_slot(&self, index: usize) {
        self.set_slot(index, UNUSED, ptr::null_mut());
    }

    fn insert_slot(&self, index: usize, key: &[u8], address: *mut u8) {
        let count = self.count();
        assert!(
            index <= count && count < N,
            "a slot is inserted where there is room"
        );
        for from in (index..count).rev() {
            self.copy_slot(from, from + 1);
        }
        self.set_slot(index, probe::head(key), tagged(address, probe::tag(key)));
        self.set_count(count + 1);
    }

    fn remove_slot(&self, index: usize) {
        let count = self.count();
        assert!(index < count, "only slots in use are removed");
        for to in index..count - 1 {
            self.copy_slot(to + 1, to);
        }
        self.clear_slot(count - 1);
        self.set_count(count - 1);
        self.level_low();
    }

    /// Slot 0 of a branch stands for everything below slot 1, whatever its child's low key.
    fn level_low(&self) {
        if self.level > 0 && self.count() > 0 {
            // Relaxed: published by the latch.
            self.heads.0[0].store(0, Ordering::Relaxed);
        }
    }

    /// The pointer as it was made, good for freeing, too: `Node::share` exposed it.
    fn address(&self) -> *mut Self {
        ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr())
    }

    /// Makes a node ready to be pointed to.
    fn share(self: Box<Self>) -> *mut Self {
        let node = Box::into_raw(self);
        node.expose_provenance();
        node
    }
}

/// The tree itself: where its root is, and in which domain its memory is reclaimed.
pub(super) struct Root<const N: usize> {
    pointer: AtomicPtr<Node<N>>,
    domain: Domain,
}

impl<const N: usize> Root<N> {
    /// An empty tree: one leaf.
    pub(super) fn new(domain: &Domain) -> Self {
        let leaf = Node::new(0, &[]).share();
        Self {
            pointer: AtomicPtr::new(leaf),
            domain: domain.clone(),
        }
    }

    /// The tree, as it may be read while `guard` lives.
    ///
    /// # Panics
    ///
    /// If `guard` pins another domain (I6).
    #[inline]
    pub(super) fn pin<'g>(&'g self, guard: &'g Guard<'_>) -> Pinned<'g, N> {
        assert!(
            guard.pins(&self.domain),
            "a table is read under a guard of its own domain"
        );
        Pinned { root: self, guard }
    }
}

impl<const N: usize> Drop for Root<N> {
    fn drop(&mut self) {
        let mut nodes = vec![follow(&self.pointer)];
        while let Some(node) = nodes.pop() {
            // SAFETY: each node is in one slot or the root (I3), so it comes here once; nobody else
            // borrows the tree, and what was taken out of it is not reached from here.
            let node = unsafe { Box::from_raw(node) };
            for slot in node.slots[..node.count()]
                .iter()
                .map(|slot| untagged(follow(slot)))
            {
                if node.level > 0 {
                    nodes.push(slot.cast());
                } else {
                    // SAFETY: each record is in one slot (I3), and nobody else borrows the tree.
                    unsafe { record::free(slot.cast()) };
                }
            }
        }
    }
}

/// A tree and the guard under which it is read.
pub(super) struct Pinned<'g, const N: usize> {
    root: &'g Root<N>,
    guard: &'g Guard<'g>,
}

impl<const N: usize> Clone for Pinned<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<const N: usize> Copy for Pinned<'_, N> {}

impl<'g, const N: usize> Pinned<'g, N> {
    /// The root. Who reads its version next must ask again whether it still is the root.
    #[inline]
    pub(super) fn root(self) -> &'g Node<N> {
        // SAFETY: the root is a node, good for as long as the guard lives.
        unsafe { &*follow(&self.root.pointer) }
    }

    #[inline]
    pub(super) fn is_root(self, node: &Node<N>) -> bool {
        ptr::eq(follow(&self.root.pointer), node)
    }

    /// Latches `node` if it still is at version `seen`. Never waits.
    pub(super) fn hold(self, node: &'g Node<N>, seen: Version) -> Option<Hold<'g, N>> {
        // Lazily: a `Hold` gives the latch back when it is dropped.
        node.latch.try_lock(seen).then(|| Hold {
            node,
            tree: self,
            seen,
            wrote: false,
            removed: None,
        })
    }

    /// Takes `garbage` out of use.
    ///
    /// # Safety
    ///
    /// It was just taken out (I4).
    unsafe fn retire_node(self, garbage: &'g Node<N>) {
        unsafe fn free<const N: usize>(address: *mut ()) {
            // SAFETY: nodes are boxes; retired once, by I4.
            drop(unsafe { Box::from_raw(address.cast::<Node<N>>()) });
        }
        // SAFETY: who pins from now on does not find it (I4), and a node owns nothing but memory.
        unsafe { self.guard.retire_raw(garbage.address().cast(), free::<N>) }
    }
}

/// A node whose latch is held. Dropped, it gives the latch back.
pub(super) struct Hold<'g, const N: usize> {
    node: &'g Node<N>,
    tree: Pinned<'g, N>,
    seen: Version,
    wrote: bool,
    removed: Option<Pointer<'g>>,
}

impl<const N: usize> Drop for Hold<'_, N> {
    fn drop(&mut self) {
        if self.wrote {
            self.node.latch.unlock();
        } else {
            self.node.latch.unlock_unchanged(self.seen);
        }
        // After the latch: retiring may free a whole bag.
        if let Some(removed) = self.removed {
            let address = removed.raw().as_ptr().cast();
            // SAFETY: it was in one slot (I3) and is in none, so who pins from now on does not find
            // it; and only we took it out (I4).
            unsafe { self.tree.guard.retire_raw(address, record::free) };
        }
    }
}

impl<'g, const N: usize> Hold<'g, N> {
    pub(super) fn node(&self) -> &'g Node<N> {
        self.node
    }

    /// Whether `other` is held here.
    pub(super) fn is(&self, other: &Node<N>) -> bool {
        ptr::eq(self.node, other)
    }

    fn write(&mut self) -> &'g Node<N> {
        self.wrote = true;
        self.node
    }

    /// Puts `record` into slot `index` of a leaf with room.
    pub(super) fn insert_record(&mut self, index: usize, record: NewRecord) -> Pointer<'g> {
        let node = self.write();
        assert_eq!(node.level, 0, "records go into leaves");
        let raw = record.into_linked(self.tree.root.domain.id());
        // SAFETY: ours until a slot has it, and a table record from then on (I3).
        let pointer = unsafe { Pointer::new(raw) };
        node.insert_slot(index, pointer.record().key(), raw.as_ptr());
        pointer
    }

    /// Takes the record out of slot `index` of a leaf and marks it; it is retired when the latch is
    /// given back. Once in a hold.
    pub(super) fn remove_record(&mut self, index: usize) {
        let node = self.write();
        let pointer = node.pointer(index).expect("only slots in use are removed");
        pointer.record().set_unlinked();
        node.remove_slot(index);
        let before = self.removed.replace(pointer);
        assert!(before.is_none(), "one record is removed in a hold");
    }

    /// Moves the slots of `child` from `at` on into a new right neighbour, and puts that into the
    /// slot behind the child's. `next` is the leaf to the right of the child, if there is one.
    pub(super) fn split_child(
        &mut self,
        index: usize,
        child: &mut Hold<'g, N>,
        next: Option<&mut Hold<'g, N>>,
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
            0 => Node::new(0, probe::separator(left.key(at - 1), left.key(at))),
            level => Node::new(level, left.key(at)),
        };
        for (to, from) in (at..count).enumerate() {
            right.set_slot(to, left.head(from), follow(&left.slots[from]));
        }
        right.set_count(count - at);
        right.level_low();
        let low: Box<[u8]> = right.low.clone();
        let right = right.share();
        if left.level == 0 {
            let old_next = follow(&left.next);
            // SAFETY: just made, and nobody else has it.
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
    }

    /// Puts a branch above the root, whose only child it becomes. Returns whether this node was the
    /// root.
    pub(super) fn grow_root(&mut self) -> bool {
        if !self.tree.is_root(self.node) {
            return false;
        }
        let old = self.write();
        let root = Node::new(old.level + 1, &[]);
        root.insert_slot(0, &[], old.address().cast());
        publish(&self.tree.root.pointer, root.share());
        true
    }

    /// Takes a root with one child out of use, and makes the child the root.
    pub(super) fn shrink_root(&mut self) {
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

    /// Takes a chain of nodes out of use that ends in an empty leaf: `chain[0]` is in slot `index` of
    /// this branch, every other is the only child of the one before it. `prev` and `next` are the
    /// leaf's neighbours.
    pub(super) fn unlink(
        &mut self,
        index: usize,
        chain: &mut [Hold<'g, N>],
        prev: Option<&mut Hold<'g, N>>,
        next: Option<&mut Hold<'g, N>>,
    ) {
        let mut parent = self.write();
        let mut slot = index;
        for hold in chain.iter_mut() {
            let node = hold.write();
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
        for hold in chain {
            // Nothing points down the chain any more: what is taken out of use owns nothing.
            if hold.node.count() > 0 {
                hold.node.remove_slot(0);
            }
            // SAFETY: out of its slot and its neighbours' links, latched and empty (I4).
            unsafe { self.tree.retire_node(hold.node) };
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    //! The ordering O1, on nodes alone: pointers are followed without asking any version.

    use super::*;
    use foxton_sync::shim::{Arc, thread};

    /// Fills the leaf in another thread while `look` reads it in this one.
    fn meet(look: impl Fn(Pinned<'_, 4>) + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let domain = Domain::new();
            let (ours, theirs) = (domain.participant(), domain.participant());
            let root = Arc::new(Root::<4>::new(&domain));
            let writer = {
                let root = root.clone();
                thread::spawn(move || {
                    let guard = theirs.pin();
                    let tree = root.pin(&guard);
                    let leaf = tree.root();
                    let seen = leaf.latch().version().expect("nobody holds it");
                    let mut hold = tree.hold(leaf, seen).expect("nobody else writes");
                    let record = NewRecord::new(b"key", None).expect("short");
                    hold.insert_record(0, record);
                    assert!(hold.grow_root());
                })
            };
            look(root.pin(&ours.pin()));
            writer.join().unwrap();
        });
    }

    #[test]
    fn o1_who_finds_a_record_sees_it_as_it_was_made() {
        meet(|tree| {
            let node = tree.root();
            if node.level() == 0
                && let Some(pointer) = node.pointer(0)
            {
                assert!(pointer.record().is_linked());
            }
        });
    }

    #[test]
    fn o1_who_finds_a_node_sees_it_as_it_was_made() {
        meet(|tree| {
            let node = tree.root();
            if node.level() == 1 {
                assert_eq!(node.count(), 1);
                assert!(node.child(0).is_some());
            }
        });
    }
}
