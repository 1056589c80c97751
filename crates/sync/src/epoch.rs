//! Reclamation by epochs.
//!
//! Who reads a shared structure without latching it *pins* its participant first. What was taken
//! out of the structure is *retired*, not freed, and freed once nobody can still look at it: two
//! epochs later. The epoch advances when every pinned participant has seen the present one.
//!
//! A pin is for a critical region, never for a wait: one participant that stays pinned holds up
//! everybody's memory.
//!
//! # State
//!
//! The domain has the epoch, and a list of slots that only grows. A slot belongs to one participant
//! at a time; its word is `epoch << 1 | pinned`. Each participant has an open bag, and sealed bags
//! tagged with the epoch at which they were sealed. What a dropped participant leaves goes to the
//! domain. How much a participant keeps stands in its slot, for whoever adds it up.
//!
//! # Invariants
//!
//! * I1  A slot's word is written only by whoever has its participant.
//! * I2  The epoch goes from e to e + 1 only after every slot's word was seen unpinned or at e, by
//!   somebody who read epoch e before looking.
//! * I3  A bag is tagged with the epoch read after everything in it was unlinked, with a
//!   sequentially consistent fence in between.
//! * I4  A bag tagged t is freed only at t + 2 or later.
//! * I5  A slot stays on the list, and its `next` as it is, until the domain is dropped; and whoever
//!   has a participant has the domain.
//!
//! # Why nobody looks at what is freed
//!
//! Reader R pinned with the epoch at r, then found X. Retirer W unlinked X, fenced (fence W), read
//! epoch t (I3). Say R's pin read r > t. R's fence (fence R, in `announce`) comes after reading r; W
//! read t after fence W; the epoch only grows, so fence W comes before fence R, and R, reading after
//! its fence what W wrote before its own, finds X unlinked: it never found X. So r <= t, and as long
//! as R's word shows r, the epoch stays at t + 1 or below (I2) and X is not freed (I4).
//!
//! Left is an advance from t + 1 to t + 2 that did not see R's word pinned at r. Its fence (fence
//! A, in `try_advance`) lies between reading t + 1 and reading R's word. Either it read an *older*
//! word, or a list without R's slot: then fence A comes before fence R, and fence W before fence A
//! since A read the later epoch, so again R finds X unlinked. Or it read a *later* word, of R
//! unpinned or pinned again: then O1 and O2 order everything R read before the freeing.
//!
//! The fences are `SeqCst` because each side writes one word and then reads another's (R: its word,
//! then the structure; W: the structure, then the epoch; A stands between them): no acquire or
//! release orders a store before a later load. They are the only sequentially consistent operations
//! in this crate, and they live in `announce`, `seal` and `try_advance`.
//!
//! # Orderings
//!
//! * O1  `unpin` and `announce` (Release) to `has_seen` (Acquire): who sees a participant unpinned,
//!   or pinned again, comes after everything it read before. The second half matters: a plain store
//!   does not continue the release of an earlier one.
//! * O2  `try_advance` (Release) to `due` (Acquire): who sees epoch t + 2 comes after everything that
//!   O1 put before the advance.
//! * O3  the fences in `announce`, `seal` and `try_advance`: the argument above.
//! * O4  a participant giving back its slot (Release) to `try_take` (Acquire): the next participant's
//!   words come after the last one's.
//! * O5  `push` (Release) to `slots` (Acquire): who finds a slot finds it whole. Slots pushed before
//!   it come along, since every push is a read-modify-write of the head.
//!
//! # Differences from crossbeam-epoch
//!
//! Its participants (`LocalHandle`) cannot be sent to another thread, and our transactions move
//! between threads. It keeps garbage in one shared queue; we keep it with the participant, so that
//! retiring touches no shared memory but once a bag. It unlinks slots while others walk the list; we
//! reuse them, as there are never more than there were participants at once.
//!
//! A mutex around the list would be simpler. It was tried: under the model checker every mutex
//! orders all threads, so that fence A and O2 could be weakened and nothing turned red.

use crate::cache_line::CachePadded;
use crate::hook::Hooks;
use crate::shim::{
    Arc, AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Mutex, Ordering, fence, lock, try_lock,
};
use crate::site::{Account, Component, Pattern, Site};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::ptr::{self, NonNull};

/// Trying to advance the epoch: once for each bag filled.
static ADVANCE: Site = Site::new(Component::Metadata, Pattern::Unbounded, "epoch advance");

/// Retired things that fill a bag.
const BAG_CAPACITY: usize = if cfg!(loom) { 1 } else { 64 };

const PINNED: u64 = 1;

/// Something to be freed, and how.
struct Deferred {
    address: *mut (),
    free: unsafe fn(*mut ()),
}

// SAFETY: `retire` asks for `Send` content and `retire_raw` for a function that any thread may
// call; the address is used for nothing else.
unsafe impl Send for Deferred {}

impl Deferred {
    fn run(self) {
        // SAFETY: whoever retired it handed over the right to call this once, and `self` is
        // consumed; nobody can still look at it by the argument on the first page.
        unsafe { (self.free)(self.address) }
    }
}

/// Deferred work, and the epoch at which it was complete.
struct Bag {
    tag: u64,
    content: Vec<Deferred>,
}

impl Bag {
    fn run(self) {
        self.content.into_iter().for_each(Deferred::run);
    }
}

/// What everybody may read of a participant.
struct Slot {
    word: CachePadded<AtomicU64>,
    taken: AtomicBool,
    /// What its participant retired and has not freed. Written by the participant alone.
    retired: AtomicUsize,
    next: *const Slot,
}

impl Slot {
    fn try_take(&self) -> bool {
        // Relaxed: a hint; the exchange decides.
        let taken = self.taken.load(Ordering::Relaxed);
        !taken && !self.taken.swap(true, Ordering::Acquire) // O4
    }

    fn give_back(&self) {
        self.taken.store(false, Ordering::Release); // O4
    }

    /// Writes the word so that everything read afterwards was there after the writing.
    #[inline]
    fn announce(&self, epoch: u64) {
        self.word.store(epoch << 1 | PINNED, Ordering::Release); // O1, I1
        fence(Ordering::SeqCst); // O3
    }

    #[inline]
    fn unpin(&self) {
        self.word.store(0, Ordering::Release); // O1, I1
    }

    fn has_seen(&self, epoch: u64) -> bool {
        let word = self.word.load(Ordering::Acquire); // O1
        word & PINNED == 0 || word >> 1 == epoch
    }
}

struct Shared {
    epoch: CachePadded<AtomicU64>,
    head: AtomicPtr<Slot>,
    /// About how many slots nobody has: a hint that spares whoever finds none the search. Too small
    /// makes a slot more than is needed, too large a search in vain.
    free_slots: AtomicUsize,
    /// Whether `orphans` may have content: a hint that spares everybody the mutex.
    orphaned: AtomicBool,
    orphans: Mutex<Vec<Bag>>,
}

impl Shared {
    /// Every slot, in no order that matters.
    fn slots(&self) -> impl Iterator<Item = &Slot> {
        let mut place = self.head.load(Ordering::Acquire).cast_const(); // O5
        std::iter::from_fn(move || {
            // SAFETY: null, or a slot that is whole (O5) and stays (I5).
            let slot = unsafe { place.as_ref() }?;
            place = slot.next;
            Some(slot)
        })
    }

    /// A slot for a new participant: one that was given back, or one more.
    fn take_slot(&self) -> NonNull<Slot> {
        // Relaxed here and where a slot is given back: a hint, which leads to no memory.
        if self.free_slots.load(Ordering::Relaxed) == 0 {
            return self.push();
        }
        match self.slots().find(|slot| slot.try_take()) {
            Some(slot) => {
                self.free_slots.fetch_sub(1, Ordering::Relaxed);
                NonNull::from(slot)
            }
            None => self.push(),
        }
    }

    #[cold]
    fn push(&self) -> NonNull<Slot> {
        // Relaxed: only compared; see O5 for what it points to.
        let mut head = self.head.load(Ordering::Relaxed);
        let slot = Box::into_raw(Box::new(Slot {
            word: CachePadded::new(AtomicU64::new(0)),
            taken: AtomicBool::new(true),
            retired: AtomicUsize::new(0),
            next: head,
        }));
        loop {
            let pushed = self.head.compare_exchange(
                head,
                slot,
                Ordering::Release, // O5
                Ordering::Relaxed,
            );
            match pushed {
                Ok(_) => return NonNull::new(slot).expect("a box is not null"),
                Err(newer) => head = newer,
            }
            // SAFETY: not pushed yet, so nobody else knows it.
            unsafe { (*slot).next = head };
        }
    }

    /// Advances the epoch if every pinned participant has seen the present one. Never waits.
    fn try_advance(&self) {
        // Relaxed: an outdated epoch is refused by the exchange.
        let epoch = self.epoch.load(Ordering::Relaxed);
        fence(Ordering::SeqCst); // O3
        if self.slots().all(|slot| slot.has_seen(epoch)) {
            // Failed, somebody else has advanced it: as good.
            let _ = self.epoch.compare_exchange(
                epoch,
                epoch + 1,
                Ordering::Release, // O2, I2
                Ordering::Relaxed,
            );
        }
    }

    /// The latest tag whose bags may be freed, if there is one yet.
    fn due(&self) -> Option<u64> {
        self.epoch.load(Ordering::Acquire).checked_sub(2) // O2, I4
    }

    fn leave(&self, bags: impl IntoIterator<Item = Bag>) {
        let mut orphans = lock(&self.orphans);
        orphans.extend(bags);
        // Relaxed: a hint; the mutex orders the bags.
        self.orphaned.store(!orphans.is_empty(), Ordering::Relaxed);
    }

    fn free_orphans(&self) {
        // Relaxed: a hint; the mutex orders the bags.
        if !self.orphaned.load(Ordering::Relaxed) {
            return;
        }
        let Some(due) = self.due() else { return };
        let Some(mut orphans) = try_lock(&self.orphans) else {
            return;
        };
        let (free, keep): (Vec<Bag>, Vec<Bag>) = orphans.drain(..).partition(|bag| bag.tag <= due);
        *orphans = keep;
        self.orphaned.store(!orphans.is_empty(), Ordering::Relaxed);
        // Freed without the mutex: a destructor is foreign code.
        drop(orphans);
        free.into_iter().for_each(Bag::run);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Every participant has the domain: nobody is left to look, or to have a slot.
        lock(&self.orphans).drain(..).for_each(Bag::run);
        let mut place = self.head.load(Ordering::Relaxed).cast_const();
        while !place.is_null() {
            // SAFETY: pushed from a box, and passed by once.
            let slot = unsafe { Box::from_raw(place.cast_mut()) };
            place = slot.next;
        }
    }
}

/// Participants that reclaim together. Cheap to clone; all clones are one domain.
///
/// ```
/// use foxton_sync::epoch::Domain;
///
/// let domain = Domain::new();
/// let participant = domain.participant();
/// let guard = participant.pin();
/// guard.retire(Box::new("not needed any more"));
/// ```
#[derive(Clone)]
pub struct Domain(Arc<Shared>);

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("epoch", &self.epoch())
            .field("retired", &self.retired())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Domain {
    /// Whether both are the same domain.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Domain {}

impl Domain {
    /// A domain without participants.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            epoch: CachePadded::new(AtomicU64::new(0)),
            head: AtomicPtr::new(ptr::null_mut()),
            free_slots: AtomicUsize::new(0),
            orphaned: AtomicBool::new(false),
            orphans: Mutex::new(Vec::new()),
        }))
    }

    /// The present epoch. It only grows.
    pub fn epoch(&self) -> u64 {
        // Relaxed: a number for people.
        self.0.epoch.load(Ordering::Relaxed)
    }

    /// Things retired and not freed yet, by all participants, those that are gone included. Exact
    /// when nobody retires or frees meanwhile.
    pub fn retired(&self) -> usize {
        // Relaxed: a sum for people and tests.
        let kept = self
            .0
            .slots()
            .map(|slot| slot.retired.load(Ordering::Relaxed));
        let orphans = lock(&self.0.orphans);
        kept.sum::<usize>() + orphans.iter().map(|bag| bag.content.len()).sum::<usize>()
    }

    /// A number that no other living domain has.
    #[inline]
    pub fn id(&self) -> usize {
        std::ptr::from_ref(&*self.0).addr()
    }

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
            slot: self.0.take_slot(),
            domain: self.clone(),
            account,
            hooks,
            depth: Cell::new(0),
            open: RefCell::new(Vec::new()),
            sealed: RefCell::new(VecDeque::new()),
        }
    }
}

/// A moment that whoever pins has passed; see [`Participant::stamp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

impl Stamp {
    /// The epoch of that moment, for those who keep it as a number.
    #[inline]
    pub const fn epoch(self) -> u64 {
        self.0
    }

    /// The stamp whose [`epoch`](Self::epoch) was `epoch`.
    #[inline]
    pub const fn from_epoch(epoch: u64) -> Self {
        Self(epoch)
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
            // Relaxed: an outdated epoch only keeps the next from coming.
            self.slot()
                .announce(self.domain.0.epoch.load(Ordering::Relaxed));
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
        // Relaxed: the fence is what keeps this from being too old.
        Stamp(self.domain.0.epoch.load(Ordering::Relaxed))
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
        // Relaxed: the fence is what keeps this from being too old.
        let tag = self.domain.0.epoch.load(Ordering::Relaxed);
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
        // Before the slot is given back, so that the hint never falls below 0.
        self.domain.0.free_slots.fetch_add(1, Ordering::Relaxed);
        self.slot().give_back();
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
