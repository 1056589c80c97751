//! Lists of sealed bags, until they are due.
//!
//! If each participant freed only its own retired objects, they would wait for as long as it
//! sleeps. With some hundred threads on few processors that is most of what was retired lately:
//! more than the caches hold, and new objects are made in memory that has been out of them for
//! long.
//!
//! # State
//!
//! A stack of sealed bags, each tagged with the epoch at which it was sealed (hazard-protected
//! objects need none: 0), and its size. A thread that frees takes the whole stack, puts back what
//! is not due or what a hazard names, and frees the rest.
//!
//! # Invariants
//!
//! * I6  A sealed bag is on one stack or belongs to one thread.
//! * I7  The stack is only ever taken whole: so no thread holds a pointer to a bag that another
//!   takes, and it does not matter if a top address comes back.
//!
//! # Orderings
//!
//! * O6  `push` (Release) to `take` (Acquire): a thread that takes a bag finds it whole, and its
//!   objects as their retirer left them. Bags pushed before come along, because every push and
//!   every taking is a read-modify-write of the top.

use super::bag::{Bag, Deferred};
use crate::cache_line::CachePadded;
use crate::shim::{AtomicPtr, AtomicUsize, Ordering, UnsafeCell};
use std::ptr;

/// Bytes pushed after which every participant's epoch is checked.
pub(super) const EPOCH_SWEEP_BYTES: usize = if cfg!(loom) { 1 } else { 256 << 10 };

/// Bytes pushed after which every hazard is read. More, because the heavy fence interrupts all
/// processors for some microseconds; with still more, freed memory has left the caches. (Chosen by
/// measuring powers of four from 64 KiB to 4 MiB with hundreds of updating clients.)
pub(super) const HAZARD_SWEEP_BYTES: usize = if cfg!(loom) { 1 } else { 1 << 20 };

/// A smaller object counts as this, because its existence costs something, too.
const MIN_OBJECT_BYTES: usize = 256;

/// A bag, and the epoch at which it was sealed.
struct SealedBag {
    tag: u64,
    bag: Bag,
    next: UnsafeCell<*mut SealedBag>,
}

impl SealedBag {
    fn boxed(tag: u64, bag: Bag) -> *mut SealedBag {
        Box::into_raw(Box::new(SealedBag {
            tag,
            bag,
            next: UnsafeCell::new(ptr::null_mut()),
        }))
    }
}

/// See the [module](self).
pub(super) struct RetiredList {
    top: CachePadded<AtomicPtr<SealedBag>>,
    /// Objects in all bags.
    objects: AtomicUsize,
    /// Bytes pushed since the last sweep was due, and their limit.
    bytes_since_sweep: AtomicUsize,
    limit: usize,
}

impl RetiredList {
    pub(super) fn new(limit: usize) -> RetiredList {
        RetiredList {
            top: CachePadded::new(AtomicPtr::new(ptr::null_mut())),
            objects: AtomicUsize::new(0),
            bytes_since_sweep: AtomicUsize::new(0),
            limit,
        }
    }

    /// Adds a bag that was sealed at epoch `tag`; returns whether so much was added that the caller
    /// should free what is due.
    pub(super) fn push(&self, tag: u64, bag: Bag) -> bool {
        let objects = bag.content.len();
        let bytes = bag.bytes.max(objects * MIN_OBJECT_BYTES);
        let sealed = SealedBag::boxed(tag, bag);
        // Relaxed, here and below: numbers, which lead to no memory. First, so that the sum never
        // falls below 0.
        self.objects.fetch_add(objects, Ordering::Relaxed);
        self.push_chain(sealed, sealed);
        let bytes_since_sweep = self.bytes_since_sweep.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let sweep_due = bytes_since_sweep >= self.limit;
        if sweep_due {
            self.bytes_since_sweep.store(0, Ordering::Relaxed);
        }
        sweep_due
    }

    /// Number of objects on the stack.
    pub(super) fn objects(&self) -> usize {
        self.objects.load(Ordering::Relaxed)
    }

    /// Frees what was sealed at epoch `due` or before. Never waits; bags that another thread has
    /// taken are left to it.
    pub(super) fn free_due(&self, due: u64) {
        let mut all = self.take();
        let (mut keep, mut free): (*mut SealedBag, *mut SealedBag) =
            (ptr::null_mut(), ptr::null_mut());
        let mut last: *mut SealedBag = ptr::null_mut();
        while !all.is_null() {
            let current = all;
            // SAFETY: a taken bag is ours (I6), and whole (O6).
            let sealed = unsafe { &*current };
            // SAFETY: ours, as above.
            all = sealed.next.with(|next| unsafe { *next });
            let onto = if sealed.tag <= due {
                &mut free
            } else {
                if keep.is_null() {
                    last = current;
                }
                &mut keep
            };
            // SAFETY: ours, as above.
            sealed.next.with_mut(|next| unsafe { *next = *onto });
            *onto = current;
        }
        if !keep.is_null() {
            self.push_chain(keep, last);
        }
        // Afterwards: a destructor is foreign code.
        self.free_chain(free);
    }

    /// Frees all but the objects in the sorted list that `protected` returns; it is called when the
    /// stack is taken. Never waits; bags that another thread has taken are left to it.
    pub(super) fn free_unprotected(&self, protected: impl FnOnce() -> Vec<*mut ()>) {
        let all = self.take();
        if all.is_null() {
            return;
        }
        let protected = protected();
        let is_protected = |one: &Deferred| protected.binary_search(&one.address).is_ok();
        let mut kept = Vec::new();
        let mut current = all;
        while !current.is_null() && !protected.is_empty() {
            // SAFETY: a taken bag is ours (I6), and whole (O6).
            let sealed = unsafe { &mut *current };
            kept.extend(sealed.bag.content.extract_if(.., |one| is_protected(one)));
            // SAFETY: ours, as above.
            current = sealed.next.with(|next| unsafe { *next });
        }
        if !kept.is_empty() {
            let kept = SealedBag::boxed(0, Bag::of(kept));
            self.push_chain(kept, kept);
        }
        self.free_chain(all);
    }

    /// Frees everything. The caller knows that no thread looks any more.
    pub(super) fn free_all(&self) {
        let all = self.take();
        self.free_chain(all);
    }

    fn free_chain(&self, mut chain: *mut SealedBag) {
        while !chain.is_null() {
            // SAFETY: ours (I6), made from a box, and passed by once.
            let sealed = *unsafe { Box::from_raw(chain) };
            chain = sealed.next.into_inner();
            self.objects
                .fetch_sub(sealed.bag.content.len(), Ordering::Relaxed);
            sealed.bag.free();
        }
    }

    fn take(&self) -> *mut SealedBag {
        self.top.swap(ptr::null_mut(), Ordering::Acquire) // O6
    }

    /// Puts a chain on top.
    fn push_chain(&self, first: *mut SealedBag, last: *mut SealedBag) {
        // Relaxed: only compared; see O6 for what it points to.
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // SAFETY: not on the stack, so ours (I6).
            unsafe { (*last).next.with_mut(|next| *next = top) };
            let put = self.top.compare_exchange_weak(
                top,
                first,
                Ordering::Release, // O6
                Ordering::Relaxed,
            );
            match put {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }
}

// SAFETY: the pointers are to bags, each of which belongs to the stack or to one thread (I6), and a
// bag is `Send`.
unsafe impl Send for RetiredList {}
// SAFETY: as above; all shared fields are atomics.
unsafe impl Sync for RetiredList {}
