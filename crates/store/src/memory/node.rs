//! Index nodes, and the safety of their memory.
//!
//! # State
//!
//! Leaves and branches are one type. A node of N slots:
//!
//! ```text
//!   latch | count | level | low key | next | prev | prefix | N heads | N tagged pointers
//! ```
//!
//! Slot i < count of a leaf (level 0) stands for a record. It has the head and the tag of the
//! record's key (`search_key.rs`) behind the node's prefix (`prefix.rs`), and the record's address;
//! the tag is in the low four bits of the address. Slot i of a branch stands for a child: head and
//! tag of the child's *low key*, and its address. Keys of the child are not below its low key, and
//! keys of its left neighbour are. Slot 0 stands for everything below slot 1, has head 0, and its
//! tag is never read. So a branch with c slots has c children and c - 1 separators.
//!
//! Leaves are linked both ways; `next` and `prev` of a branch are null.
//!
//! # Invariants
//!
//! * I1  Level and low key never change. A child is one level below its parent.
//! * I2  Everything else in a node that other threads can reach changes only while its latch is
//!   held, and the latch is released with a new version.
//! * I3  While no latch is held, three things hold. A record is in at most one slot of the tree. A
//!   node is in exactly one slot, or is the root. For leaves, `a.next` is `b` exactly if `b.prev`
//!   is `a`. Slots at or above the count are null, with the largest head.
//! * I4  The thread that took a record out of its slot retires it. The thread that took a node out
//!   of its slot and its neighbours' links, empty, retires it while holding its latch. So once an
//!   object is retired, no node that can still be reached points to it.
//! * I5  The neighbours that an unlinked node points to may be retired later than the node, never
//!   earlier.
//! * I6  A `&'g IndexNode` is borrowed from a guard that pins the domain in which nodes and records
//!   of its tree are retired.
//!
//! # Why every pointer found may be followed
//!
//! A reader found pointer p in node n, perhaps half-way through another thread's change, and has
//! not validated anything yet. It is pinned (I6) since before it found n. If p's target was retired
//! after the reader pinned, it is not freed while the reader is pinned. If it was retired before,
//! then n did not point to it any more when the reader pinned, provided n itself could still be
//! reached then (I4). And if n had been taken out before, the reader would not have found n. A node
//! taken out after the reader pinned points to objects retired later than it (I5). So p is good.
//! The content that p leads to may be outdated, and only the version tells.
//!
//! # Orderings
//!
//! * O1  `publish` (Release) to `follow` (Acquire): a thread that finds a pointer sees the record
//!   or node as it was made. The latch alone would not do: pointers are followed before the version
//!   is validated.

use super::record::{self, RecordPointer};
use super::search_key::{self, LONG, SearchKey};
use foxton_sync::cache_line;
use foxton_sync::latch::VersionLatch;
use foxton_sync::shim::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::cmp;
use std::fmt;
use std::ptr::{self, NonNull};

mod prefix;

mod tree;

pub(super) use tree::{NodeWriteGuard, Pinned, TreeRoot};

/// The bits of a tagged pointer that hold the tag.
const TAG_BITS: usize = record::ALIGN - 1;

const _: () = assert!(LONG <= TAG_BITS);

/// A leaf or a branch with space for `N` records or children.
#[repr(C, align(64))]
pub(super) struct IndexNode<const N: usize> {
    latch: VersionLatch,
    count: AtomicU32,
    level: u8,
    prefix_bytes: AtomicU8,
    low: Box<[u8]>,
    next: AtomicPtr<IndexNode<N>>,
    prev: AtomicPtr<IndexNode<N>>,
    prefix_words: [AtomicU64; prefix::MAX_BYTES / search_key::HEAD_BYTES],
    heads: AlignedLines<[AtomicU64; N]>,
    slots: [AtomicPtr<u8>; N],
}

// All but the slots is one cache line.
#[cfg(not(loom))]
const _: () = assert!(std::mem::offset_of!(IndexNode<64>, heads) == 64);

/// Begins with a cache line, so that a search touches as few as it can.
#[repr(C, align(64))]
struct AlignedLines<T>(T);

/// The head of an unused slot: above all others, so that searches need not know the count.
const UNUSED: u64 = u64::MAX;

/// Makes the target of `pointer` visible together with it.
#[inline]
fn publish<T>(place: &AtomicPtr<T>, pointer: *mut T) {
    place.store(pointer, Ordering::Release); // O1
}

/// Returns the pointer at `place`, good to be followed.
#[inline]
fn follow<T>(place: &AtomicPtr<T>) -> *mut T {
    place.load(Ordering::Acquire) // O1
}

/// Returns the address without its tag.
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

impl<const N: usize> fmt::Debug for IndexNode<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexNode")
            .field("level", &self.level)
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

/// Reading.
impl<const N: usize> IndexNode<N> {
    const ENOUGH_SLOTS: () = assert!(N >= 4, "a node of fewer than four slots cannot be split");

    fn new(level: u8, low: &[u8]) -> Box<Self> {
        let () = Self::ENOUGH_SLOTS;
        Box::new(Self {
            latch: VersionLatch::default(),
            count: AtomicU32::new(0),
            level,
            prefix_bytes: AtomicU8::new(0),
            low: low.into(),
            next: AtomicPtr::new(ptr::null_mut()),
            prev: AtomicPtr::new(ptr::null_mut()),
            prefix_words: std::array::from_fn(|_| AtomicU64::new(0)),
            heads: AlignedLines(std::array::from_fn(|_| AtomicU64::new(UNUSED))),
            slots: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        })
    }

    /// The latch, for callers that wait for it or validate later.
    #[inline]
    pub(super) fn latch(&self) -> &VersionLatch {
        &self.latch
    }

    /// 0 for a leaf.
    #[inline]
    pub(super) fn level(&self) -> u8 {
        self.level
    }

    /// Returns the key that separates this node from its left neighbour; empty for the leftmost.
    pub(super) fn low(&self) -> &[u8] {
        &self.low
    }

    /// Number of slots in use.
    #[inline]
    pub(super) fn count(&self) -> usize {
        // Relaxed: validated by the version, like everything read here.
        (self.count.load(Ordering::Relaxed) as usize).min(N)
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count() == N
    }

    /// Returns the head in slot `index`.
    #[inline]
    pub(super) fn head(&self, index: usize) -> u64 {
        // Relaxed: validated by the version.
        self.heads.0[index].load(Ordering::Relaxed)
    }

    /// Returns the tag in slot `index`.
    pub(super) fn tag(&self, index: usize) -> usize {
        tag_of(follow(&self.slots[index]))
    }

    /// Compares the key in slot `index` with one of the same head, of which `rest` is the part
    /// behind a prefix of so many bytes.
    #[inline]
    pub(super) fn compare_tie(
        &self,
        index: usize,
        prefix: usize,
        rest: &SearchKey<'_>,
    ) -> cmp::Ordering {
        let slot = follow(&self.slots[index]);
        let tag = tag_of(slot);
        if tag != LONG || rest.tag != LONG {
            return tag.cmp(&rest.tag);
        }
        // While the prefix changes, the key found here may be shorter.
        let there = self.long_key(slot).get(prefix + search_key::HEAD_BYTES..);
        there.unwrap_or_default().cmp(rest.rest())
    }

    /// Returns the key of a slot whose tag is [`LONG`].
    fn long_key(&self, slot: *mut u8) -> &[u8] {
        let address = NonNull::new(untagged(slot)).expect("a tag stands beside an address");
        if self.level == 0 {
            // SAFETY: slots of leaves point to records, good for as long as we are borrowed.
            unsafe { RecordPointer::new(address) }.record().key()
        } else {
            // SAFETY: slots of branches point to nodes, good for as long as we are borrowed.
            unsafe { address.cast::<Self>().as_ref() }.low()
        }
    }

    /// Returns the record in slot `index` of a leaf. `None` if there is none, which a reader sees
    /// only while the node changes.
    #[inline]
    pub(super) fn pointer(&self, index: usize) -> Option<RecordPointer<'_>> {
        debug_assert_eq!(self.level, 0, "records are in leaves");
        let address = NonNull::new(untagged(follow(&self.slots[index])))?;
        // SAFETY: slots of leaves point to records, good for as long as we are borrowed ("Why every
        // pointer found may be followed").
        Some(unsafe { RecordPointer::new(address) })
    }

    /// Returns the child in slot `index` of a branch. `None` as for [`IndexNode::pointer`].
    #[inline]
    pub(super) fn child(&self, index: usize) -> Option<&Self> {
        debug_assert_ne!(self.level, 0, "children are in branches");
        let address = NonNull::new(untagged(follow(&self.slots[index])))?;
        // SAFETY: slots of branches point to nodes, good for as long as we are borrowed.
        Some(unsafe { address.cast::<Self>().as_ref() })
    }

    /// Returns the children of a branch that were found.
    pub(super) fn children(&self) -> impl Iterator<Item = &Self> {
        (0..self.count()).filter_map(|slot| self.child(slot))
    }

    /// Returns the leaf to the right.
    #[inline]
    pub(super) fn next(&self) -> Option<&Self> {
        // SAFETY: links point to nodes, good for as long as we are borrowed.
        NonNull::new(follow(&self.next)).map(|node| unsafe { node.as_ref() })
    }

    /// Returns the leaf to the left.
    #[inline]
    pub(super) fn prev(&self) -> Option<&Self> {
        // SAFETY: links point to nodes, good for as long as we are borrowed.
        NonNull::new(follow(&self.prev)).map(|node| unsafe { node.as_ref() })
    }

    /// Asks the processor to fetch the beginning of the node, and does not wait.
    #[inline]
    pub(super) fn prefetch(&self) {
        cache_line::prefetch(ptr::from_ref(self).cast());
    }

    fn key(&self, index: usize) -> &[u8] {
        match self.level {
            0 => self.pointer(index).map(|pointer| pointer.record().key()),
            _ => self.child(index).map(Self::low),
        }
        .expect("slots below the count are in use")
    }
}

/// Writing: by the holder of the latch, or by the thread that made the node and has not published
/// it yet.
impl<const N: usize> IndexNode<N> {
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

    /// The same for a slot whose address stays.
    fn set_key(&self, index: usize, head: u64, tag: usize) {
        let address = untagged(follow(&self.slots[index]));
        self.set_slot(index, head, tagged(address, tag));
    }

    fn copy_slot(&self, from: usize, to: usize) {
        self.set_slot(to, self.head(from), follow(&self.slots[from]));
    }

    fn clear_slot(&self, index: usize) {
        self.set_slot(index, UNUSED, ptr::null_mut());
    }

    #[inline]
    fn insert_slot(&self, index: usize, key: &[u8], address: *mut u8) {
        let count = self.count();
        assert!(
            index <= count && count < N,
            "a slot is inserted where there is room"
        );
        // The key of a branch's first child is never read.
        if self.level == 0 || index > 0 {
            self.fit_prefix(key);
        }
        for from in (index..count).rev() {
            self.copy_slot(from, from + 1);
        }
        let rest = self.without_prefix(key);
        self.set_slot(
            index,
            search_key::head(rest),
            tagged(address, search_key::tag(rest)),
        );
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
        self.reset_first_head();
    }

    /// Slot 0 of a branch stands for everything below slot 1, whatever its child's low key.
    fn reset_first_head(&self) {
        if self.level > 0 && self.count() > 0 {
            // Relaxed: published by the latch.
            self.heads.0[0].store(0, Ordering::Relaxed);
        }
    }

    /// Returns the pointer as it was made, also good for freeing: `IndexNode::share` exposed it.
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

#[cfg(all(test, loom))]
mod models {
    //! Models of the ordering O1, on nodes alone: pointers are followed without checking any
    //! version.

    use super::*;
    use crate::memory::record::NewRecord;
    use foxton_sync::epoch::Domain;
    use foxton_sync::shim::{Arc, thread};

    /// Fills the leaf in another thread while `look` reads it in this one.
    fn meet(look: impl Fn(Pinned<'_, 4>) + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let domain = Domain::new();
            let (ours, theirs) = (domain.participant(), domain.participant());
            let root = Arc::new(TreeRoot::<4>::new(&domain));
            let writer = {
                let root = root.clone();
                thread::spawn(move || {
                    let guard = theirs.pin();
                    let tree = root.pin(&guard);
                    let leaf = tree.root();
                    let seen = leaf.latch().version().expect("nobody holds it");
                    let mut write_guard = tree.try_latch(leaf, seen).expect("nobody else writes");
                    let record = NewRecord::new(b"key", None).expect("short");
                    write_guard.insert_record(0, record);
                    assert!(write_guard.grow_root());
                })
            };
            look(root.pin(&ours.pin()));
            writer.join().unwrap();
        });
    }

    #[test]
    fn o1_a_record_is_seen_as_it_was_made() {
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
    fn o1_a_node_is_seen_as_it_was_made() {
        meet(|tree| {
            let node = tree.root();
            if node.level() == 1 {
                assert_eq!(node.count(), 1);
                assert!(node.child(0).is_some());
            }
        });
    }
}
