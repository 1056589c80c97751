//! Participants: pinning and retiring.
//!
//! # State
//!
//! A participant has a slot and two open bags, one of objects that wait for the epoch and one of
//! hazard-protected objects. Its slot counts the objects in both, for the domain's sum. A full bag
//! is sealed and goes to the domain's list.
//!
//! # Invariants
//!
//! Those of [`epoch`](super): I3 in `seal` and `stamp`, I5 for the slot.
//!
//! # Orderings
//!
//! * O3  the fences in `seal` and `stamp`, fence W of the argument on the page of `epoch`: between
//!   unlinking and reading the epoch.

use super::bag::{Bag, Deferred};
use super::domain::{Domain, Stamp};
use super::hazard::{Hazard, Hazards};
use super::slot::ParticipantSlot;
use crate::failpoint::Failpoints;
use crate::shim::{Arc, Ordering, fence};
use crate::site::{Account, Component, Pattern, Site};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr::NonNull;

/// Ticks that a participant collects before it submits them to its domain.
const TICKS_PER_LOT: u32 = if cfg!(loom) { 1 } else { 512 };

/// Site: sealing a bag, submitting ticks, and trying to advance the epoch.
static ADVANCE: Site = Site::new(Component::Metadata, Pattern::Unbounded, "epoch advance");

/// Site: sealing a bag of hazard-protected objects, and reading all hazards.
static HAZARD_SWEEP: Site = Site::new(Component::Metadata, Pattern::Unbounded, "hazards");

impl Domain {
    /// Returns a new participant, with an account of its own.
    pub fn participant(&self) -> Participant {
        self.participant_counting_in(Arc::new(Account::default()), Failpoints::default())
    }

    /// Returns a new participant that counts its passages in `account`, and passes `failpoints`.
    pub(crate) fn participant_counting_in(
        &self,
        account: Arc<Account>,
        failpoints: Failpoints,
    ) -> Participant {
        let (index, slot) = self.0.slots.acquire();
        Participant {
            slot,
            index,
            domain: self.clone(),
            account,
            failpoints,
            depth: Cell::new(0),
            open: RefCell::new(Bag::default()),
            hazards: Hazards::default(),
            hazard_bag: RefCell::new(Bag::default()),
            ticks: Cell::new(0),
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
    failpoints: Failpoints,
    slot: NonNull<ParticipantSlot>,
    /// Index of the slot.
    index: u32,
    depth: Cell<u32>,
    open: RefCell<Bag>,
    hazards: Hazards,
    hazard_bag: RefCell<Bag>,
    ticks: Cell<u32>,
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

    /// The account of its passages.
    #[inline]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Actions of tests at the points that it passes.
    #[inline]
    pub fn failpoints(&self) -> &Failpoints {
        &self.failpoints
    }

    /// Pins the participant: until the guard is dropped, no object retired from now on is freed,
    /// and none that can still be found. Nests at no cost.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        if depth == 0 {
            // An outdated epoch only keeps the next from coming.
            self.slot().announce(self.domain.0.recent_epoch());
        }
        Guard { participant: self }
    }

    /// True if a guard of this participant exists.
    pub fn is_pinned(&self) -> bool {
        self.depth.get() > 0
    }

    /// Frees `garbage` once no thread can look at it any more. It must have been unlinked: a thread
    /// that pins from now on does not find it.
    pub fn retire<T: Send + 'static>(&self, garbage: Box<T>) {
        unsafe fn free<T>(address: *mut ()) {
            // SAFETY: the address came from `Box::into_raw` of this type, and is used once.
            drop(unsafe { Box::from_raw(address.cast::<T>()) });
        }
        let bytes = size_of::<T>();
        // SAFETY: we own the box, `free` takes it back, and `T: Send`.
        unsafe { self.retire_raw(Box::into_raw(garbage).cast(), bytes, free::<T>) }
    }

    /// Calls `free(address)` once no thread can look at it any more. The more `bytes` it has, the
    /// sooner a try to free comes.
    ///
    /// # Safety
    ///
    /// Calling `free(address)` once, from any thread, at any time after every guard that exists now
    /// is gone, must be sound. In particular, no thread that pins from now on may find `address`.
    pub unsafe fn retire_raw(&self, address: *mut (), bytes: usize, free: unsafe fn(*mut ())) {
        if self.add_to(&self.open, Deferred { address, free }, bytes) {
            self.account.passed(&ADVANCE);
            if self.seal() {
                self.advance_and_free();
            }
        }
    }

    /// Returns a hazard that protects nothing yet. An object that it protects stays, if it was
    /// found as [`Hazard::protect`] says and is [hazard-protected](Self::retire_hazard_protected).
    ///
    /// # Panics
    ///
    /// If four of this participant exist already.
    #[inline]
    pub fn hazard(&self) -> Hazard<'_> {
        let fence = self.domain.0.fence;
        self.hazards.acquire(self.slot(), self.domain.id(), fence)
    }

    /// Calls `free(address)` once no hazard names it. The more `bytes` it has, the sooner the
    /// hazards are checked. A pin does not keep it.
    ///
    /// # Safety
    ///
    /// Calling `free(address)` once, from any thread, at any time when no hazard of this domain
    /// protects `address`, must be sound. In particular it must have been taken out of the source
    /// where others find it, and a thread may look at it only by a hazard of this domain that
    /// [protects](Hazard::protect) it.
    pub unsafe fn retire_hazard_protected(
        &self,
        address: *mut (),
        bytes: usize,
        free: unsafe fn(*mut ()),
    ) {
        if self.add_to(&self.hazard_bag, Deferred { address, free }, bytes) {
            self.account.passed(&HAZARD_SWEEP);
            if self.seal_hazard_bag() {
                self.domain.0.free_unprotected();
            }
        }
    }

    /// Moves the open bag of hazard-protected objects to the domain; returns whether the caller
    /// should sweep.
    fn seal_hazard_bag(&self) -> bool {
        let bag = self.hazard_bag.take();
        if bag.content.is_empty() {
            return false;
        }
        self.subtract_retired(bag.content.len());
        self.domain.0.seal_hazard_bag(bag)
    }

    /// Number of objects retired here that are in no full bag yet.
    pub fn retired(&self) -> usize {
        // Relaxed: no other thread writes it.
        self.slot().retired.load(Ordering::Relaxed)
    }

    /// Tries to advance the epoch and frees what is due, whichever participant retired it. Never
    /// waits. Called whenever many bytes were retired; worth calling by hand before a long idle
    /// time.
    #[cold]
    pub fn collect(&self) {
        self.account.passed(&ADVANCE);
        self.seal();
        self.seal_hazard_bag();
        self.advance_and_free();
        self.domain.0.free_unprotected();
    }

    #[cold]
    fn advance_and_free(&self) {
        self.domain.0.try_advance();
        self.domain.0.free_due();
    }

    /// Adds an object; returns whether the bag is full then.
    #[inline]
    fn add_to(&self, bag: &RefCell<Bag>, one: Deferred, bytes: usize) -> bool {
        let mut bag = bag.borrow_mut();
        bag.content.push(one);
        bag.bytes += bytes;
        // Relaxed, here and below: a number for people and tests, which no other thread writes; see
        // `Domain::retired`.
        self.slot()
            .retired
            .store(self.retired() + 1, Ordering::Relaxed);
        bag.is_full()
    }

    /// Subtracts objects that have left its bags.
    fn subtract_retired(&self, fewer: usize) {
        self.slot()
            .retired
            .store(self.retired() - fewer, Ordering::Relaxed);
    }

    /// Returns the present moment, for callers that keep what they retire themselves: what was
    /// unlinked before may be reused once [`has_passed`](Self::has_passed) says so.
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
        // The fence keeps this from being too old.
        Stamp(self.domain.0.recent_epoch())
    }

    /// True if no thread can still look at what was unlinked before `stamp` was taken.
    #[inline]
    pub fn has_passed(&self, stamp: Stamp) -> bool {
        self.domain.0.due().is_some_and(|due| stamp.0 <= due)
    }

    /// Returns the present epoch, as a stamp: no thread can still look at what was unlinked under a
    /// stamp that is two epochs older. For callers that keep less than a whole [`Stamp`]; others
    /// call [`has_passed`](Self::has_passed).
    #[inline]
    pub fn recent_stamp(&self) -> Stamp {
        Stamp(self.domain.0.acquire_epoch())
    }

    /// Records work for which epochs should pass, though nothing was retired. A try to advance the
    /// epoch comes about each 1,024th tick, of all participants together.
    ///
    /// ```
    /// use foxton_sync::epoch::Domain;
    ///
    /// let domain = Domain::new();
    /// let participant = domain.participant();
    /// for _ in 0..2048 {
    ///     participant.tick();
    /// }
    /// assert_eq!(domain.epoch(), 2);
    /// ```
    #[inline]
    pub fn tick(&self) {
        let ticks = self.ticks.get() + 1;
        self.ticks.set(ticks % TICKS_PER_LOT);
        if ticks == TICKS_PER_LOT {
            self.submit_ticks();
        }
    }

    #[cold]
    fn submit_ticks(&self) {
        self.account.passed(&ADVANCE);
        if self.domain.0.record_tick_lot() {
            self.domain.0.try_advance();
        }
    }

    /// Tries to advance the epoch, by looking at every participant. Never waits.
    #[cold]
    pub fn advance(&self) {
        self.account.passed(&ADVANCE);
        self.domain.0.try_advance();
    }

    fn slot(&self) -> &ParticipantSlot {
        // SAFETY: it stays as long as the domain, which we have (I5).
        unsafe { self.slot.as_ref() }
    }

    /// Moves the open bag to the domain; returns whether the caller should free what is due.
    fn seal(&self) -> bool {
        let bag = self.open.take();
        if bag.content.is_empty() {
            return false;
        }
        fence(Ordering::SeqCst); // O3, I3
        self.subtract_retired(bag.content.len());
        self.domain.0.seal(bag)
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
    /// Leaves what it retired to the domain: others free it with what they retire. A participant
    /// that looked at all others here would make dropping many of them quadratic.
    fn drop(&mut self) {
        if self.domain.0.process.is_inherited() {
            return; // A thread of the parent may have locked the table of slots.
        }
        let sweep_due = self.seal();
        let hazard_sweep_due = self.seal_hazard_bag();
        // A forgotten hazard protects nothing any more, for the same reason as below.
        self.hazards.clear(self.slot());
        // A forgotten guard left the word pinned; nothing is borrowed from it any more.
        self.slot().unpin();
        self.domain.0.slots.release(self.index);
        // As often as for objects that one participant retires.
        if sweep_due {
            self.advance_and_free();
        }
        if hazard_sweep_due {
            self.domain.0.free_unprotected();
        }
    }
}

/// The epoch of a pin ([`Guard::epoch`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinEpoch(u64);

/// Shows that its participant is pinned. It belongs to the participant's thread:
///
/// ```compile_fail,E0277
/// fn assert_send<T: Send>() {}
/// assert_send::<foxton_sync::epoch::Guard<'static>>();
/// ```
///
/// An object that is found under a guard is borrowed from it, and so cannot outlive the pin.
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

    /// Actions of tests at the points that it passes.
    #[inline]
    pub fn failpoints(&self) -> &Failpoints {
        self.participant.failpoints()
    }

    /// The account of passages under this guard.
    #[inline]
    pub fn account(&self) -> &Account {
        self.participant.account()
    }

    /// True if this guard pins `domain`: a guard of another domain protects nothing there.
    #[inline]
    pub fn pins(&self, domain: &Domain) -> bool {
        self.participant.domain == *domain
    }

    /// The epoch of the pin.
    #[inline]
    pub fn epoch(&self) -> PinEpoch {
        PinEpoch(self.participant.slot().epoch())
    }

    /// True if nothing that was found under a guard of this domain with this epoch has been freed,
    /// nor is while this guard exists. The caller comes after the finding. False means nothing.
    ///
    /// The argument is on the page of [`epoch`](crate::epoch).
    ///
    /// ```
    /// use foxton_sync::epoch::Domain;
    ///
    /// let domain = Domain::new();
    /// let participant = domain.participant();
    /// let epoch = participant.pin().epoch();
    /// assert!(participant.pin().continues(epoch));
    /// participant.advance();
    /// assert!(!participant.pin().continues(epoch));
    /// ```
    #[inline]
    pub fn continues(&self, epoch: PinEpoch) -> bool {
        // The fence of the pin keeps this from being too old.
        self.participant.domain.0.recent_epoch() == epoch.0
    }

    /// The participant that is pinned.
    #[inline]
    pub fn participant(&self) -> &Participant {
        self.participant
    }

    /// See [`Participant::hazard`].
    #[inline]
    pub fn hazard(&self) -> Hazard<'_> {
        self.participant.hazard()
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
    pub unsafe fn retire_raw(&self, address: *mut (), bytes: usize, free: unsafe fn(*mut ())) {
        // SAFETY: passed on to the caller.
        unsafe { self.participant.retire_raw(address, bytes, free) }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.participant.unpin();
    }
}
