//! Pinning and retiring.
//!
//! # State
//!
//! A participant has a slot, an open bag, and sealed bags tagged with the epoch at which they were
//! sealed. How much it keeps stands in its slot, for whoever adds it up.
//!
//! # Invariants
//!
//! Those of [`epoch`](super): I3 in `seal` and `stamp`, I5 for the slot.
//!
//! # Orderings
//!
//! * O3  the fences in `seal` and `stamp`, fence W of the argument on the page of `epoch`: between
//!   unlinking and reading the epoch.

use super::bag::{BAG_CAPACITY, Bag, Deferred};
use super::domain::{Domain, Stamp};
use super::slot::Slot;
use crate::hook::Hooks;
use crate::shim::{Arc, Ordering, fence};
use crate::site::{Account, Component, Pattern, Site};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::ptr::NonNull;

/// Trying to advance the epoch: once for each bag filled.
static ADVANCE: Site = Site::new(Component::Metadata, Pattern::Unbounded, "epoch advance");

impl Domain {
    /// A new participant, with an account of its own.
    pub fn participant(&self) -> Participant {
        self.participant_counting_in(Arc::new(Account::default()), Hooks::default())
    }

    /// A new participant that counts its passages in `account`, and where `hooks` may step in.
    pub(crate) fn participant_counting_in(
        &self,
        account: Arc<Account>,
        hooks: Hooks,
    ) -> Participant {
        Participant {
            slot: self.0.slots.take(),
            domain: self.clone(),
            account,
            hooks,
            depth: Cell::new(0),
            open: RefCell::new(Vec::new()),
            sealed: RefCell::new(VecDeque::new()),
        }
    }
}

/// One reader and retirer of a domain. It may move between threads, but not be shared:
///
/// ```
/// fn assert_send<T: Send>() {}
/// assert_send::<foxton_sync::epoch::Participant>();
/// ```
///
/// ```compile_fail,E0277
/// fn assert_sync<T: Sync>() {}
/// assert_sync::<foxton_sync::epoch::Participant>();
/// ```
pub struct Participant {
    domain: Domain,
    account: Arc<Account>,
    hooks: Hooks,
    slot: NonNull<Slot>,
    depth: Cell<u32>,
    open: RefCell<Vec<Deferred>>,
    sealed: RefCell<VecDeque<Bag>>,
}

// SAFETY: the slot is reached through shared references only, is made of atomics, and stays as long
// as the domain (I5); everything else is `Send` by itself.
unsafe impl Send for Participant {}

impl fmt::Debug for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Participant")
            .field("depth", &self.depth.get())
            .field("retired", &self.retired())
            .finish_non_exhaustive()
    }
}

impl Participant {
    /// Its domain.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Where its passages are counted.
    #[inline]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// What tests have asked for.
    #[inline]
    pub fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    /// Pins the participant: until the guard is dropped, nothing retired from now on is freed, and
    /// nothing that can still be found. Nests at no cost.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        if depth == 0 {
            // An outdated epoch only keeps the next from coming.
            self.slot().announce(self.domain.0.about_now());
        }
        Guard { participant: self }
    }

    /// Whether a guard of this participant lives.
    pub fn is_pinned(&self) -> bool {
        self.depth.get() > 0
    }

    /// Frees `garbage` once nobody can look at it any more. It must have been unlinked: whoever
    /// pins from now on does not find it.
    pub fn retire<T: Send + 'static>(&self, garbage: Box<T>) {
        unsafe fn free<T>(address: *mut ()) {
            // SAFETY: the address came from `Box::into_raw` of this type, and is used once.
            drop(unsafe { Box::from_raw(address.cast::<T>()) });
        }
        // SAFETY: we own the box, `free` takes it back, and `T: Send`.
        unsafe { self.retire_raw(Box::into_raw(garbage).cast(), free::<T>) }
    }

    /// Calls `free(address)` once nobody can look at it any more.
    ///
    /// # Safety
    ///
    /// Calling `free(address)` once, from any thread, at any time after every guard that lives now
    /// is gone, must be sound. In particular whoever pins from now on must not find `address`.
    pub unsafe fn retire_raw(&self, address: *mut (), free: unsafe fn(*mut ())) {
        let full = {
            let mut open = self.open.borrow_mut();
            open.push(Deferred { address, free });
            open.len() >= BAG_CAPACITY
        };
        self.count(self.retired() + 1);
        if full {
            self.collect();
        }
    }

    /// Things retired here and not freed yet.
    pub fn retired(&self) -> usize {
        // Relaxed: nobody else writes it.
        self.slot().retired.load(Ordering::Relaxed)
    }

    /// Tries to advance the epoch and frees what is due. Never waits. Called for each bag filled;
    /// worth calling by hand before a long idle time.
    #[cold]
    pub fn collect(&self) {
        self.account.passed(&ADVANCE);
        self.seal();
        self.domain.0.try_advance();
        if let Some(due) = self.domain.0.due() {
            while let Some(bag) = self.pop_due(due) {
                self.count(self.retired() - bag.content.len());
                bag.run();
            }
        }
        self.domain.0.free_orphans();
    }

    fn count(&self, retired: usize) {
        // Relaxed: a number for people and tests; see `Domain::retired`.
        self.slot().retired.store(retired, Ordering::Relaxed);
    }

    /// The present moment, for those who keep what they retire themselves: what was unlinked before
    /// may be used again once [`has_passed`](Self::has_passed) says so.
    ///
    /// ```
    /// use foxton_sync::worker::Workers;
    ///
    /// let worker = Workers::new().worker();
    /// let participant = worker.participant();
    /// let stamp = participant.stamp();
    /// assert!(!participant.has_passed(stamp));
    /// for _ in 0..2 {
    ///     participant.advance();
    /// }
    /// assert!(participant.has_passed(stamp));
    /// ```
    pub fn stamp(&self) -> Stamp {
        fence(Ordering::SeqCst); // O3, I3
        // The fence is what keeps this from being too old.
        Stamp(self.domain.0.about_now())
    }

    /// Whether nobody can still look at what was unlinked before `stamp` was taken.
    #[inline]
    pub fn has_passed(&self, stamp: Stamp) -> bool {
        self.domain.0.due().is_some_and(|due| stamp.0 <= due)
    }

    /// Tries to advance the epoch, by looking at every participant. Never waits.
    #[cold]
    pub fn advance(&self) {
        self.account.passed(&ADVANCE);
        self.domain.0.try_advance();
    }

    fn slot(&self) -> &Slot {
        // SAFETY: it stays as long as the domain, which we have (I5).
        unsafe { self.slot.as_ref() }
    }

    fn pop_due(&self, due: u64) -> Option<Bag> {
        let mut sealed = self.sealed.borrow_mut();
        let is_due = sealed.front().is_some_and(|bag| bag.tag <= due);
        is_due.then(|| sealed.pop_front()).flatten()
    }

    fn seal(&self) {
        let content = self.open.take();
        if content.is_empty() {
            return;
        }
        fence(Ordering::SeqCst); // O3, I3
        // The fence is what keeps this from being too old.
        let tag = self.domain.0.about_now();
        self.sealed.borrow_mut().push_back(Bag { tag, content });
    }

    #[inline]
    fn unpin(&self) {
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth == 0 {
            self.slot().unpin();
        }
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        self.seal();
        let sealed = self.sealed.take();
        let left_something = !sealed.is_empty();
        if left_something {
            self.domain.0.leave(sealed);
        }
        self.count(0);
        // A guard that was forgotten left the word pinned; nothing is borrowed from it any more.
        self.slot().unpin();
        self.domain.0.slots.give_back(self.slot());
        // Advancing looks at every participant: when thousands go, only those that left something
        // need it.
        if left_something {
            self.domain.0.try_advance();
            self.domain.0.free_orphans();
        }
    }
}

/// Shows that its participant is pinned. It belongs to the participant's thread:
///
/// ```compile_fail,E0277
/// fn assert_send<T: Send>() {}
/// assert_send::<foxton_sync::epoch::Guard<'static>>();
/// ```
///
/// What is found under a guard is borrowed from it, and so cannot outlive the pin.
pub struct Guard<'p> {
    participant: &'p Participant,
}

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("participant", self.participant)
            .finish()
    }
}

impl Guard<'_> {
    /// The domain that is pinned.
    pub fn domain(&self) -> &Domain {
        &self.participant.domain
    }

    /// What tests have asked for.
    #[inline]
    pub fn hooks(&self) -> &Hooks {
        self.participant.hooks()
    }

    /// Where passages under this guard are counted.
    #[inline]
    pub fn account(&self) -> &Account {
        self.participant.account()
    }

    /// Whether this guard pins `domain`: a guard of another domain protects nothing there.
    #[inline]
    pub fn pins(&self, domain: &Domain) -> bool {
        self.participant.domain == *domain
    }

    /// See [`Participant::retire`].
    pub fn retire<T: Send + 'static>(&self, garbage: Box<T>) {
        self.participant.retire(garbage);
    }

    /// See [`Participant::retire_raw`].
    ///
    /// # Safety
    ///
    /// That of [`Participant::retire_raw`].
    pub unsafe fn retire_raw(&self, address: *mut (), free: unsafe fn(*mut ())) {
        // SAFETY: passed on to the caller.
        unsafe { self.participant.retire_raw(address, free) }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.participant.unpin();
    }
}
