//! Latches: short physical exclusion.
//!
//! A latch protects a few words for a few dozen instructions. It has no deadlock detection, no
//! owners and no modes beyond shared and exclusive. Every family member keeps one contract, and
//! `Latched` chooses the member at run time, so that the latched value and the kind of latch can
//! vary independently.
//!
//! # Contract
//!
//! * C1  Between the return of an acquire and the release that follows it, no other acquire
//!   returns.
//! * C2  The next holder sees all writes of a holder.
//! * C3  A try never waits. It may fail only if another thread held the latch.
//! * C4  Every acquire returns once those before it have released, however many threads there are
//!   for each core: a waiter spins a bounded while and then yields or sleeps.
//! * C5  A holder that panics releases.
//!
//! The contract says nothing about order: `tas` and `tas-t` are unfair, `queue` is first come,
//! first served, `parking` is unfair for half a millisecond and then fair. Acquiring a latch that
//! the thread holds waits for ever.
//!
//! The kinds called `elided` let threads pass side by side that touch different parts of the value,
//! where the processor can undo a pass if they do not. Each is over a real latch, and is that latch
//! where the processor cannot.
//!
//! # Invariants
//!
//! * I1  A node given to `acquire` stays where it is until `release`: it is in the frame of
//!   `Latched::with`, which releases before it returns or unwinds.
//! * I2  The value is reached only by the holder, by `&mut self`, or by value.

mod queue;
mod parking;
pub mod shared;
pub mod sharded;
mod spin;
pub mod version;
mod hle;
mod elided;

#[cfg(loom)]
pub use elided::model;
#[cfg(loom)]
pub use parking::model as parking_model;

pub use sharded::ShardedLatched;
pub use shared::SharedLatched;
pub use version::{Version, VersionLatch};

use crate::htm::{self, AttemptTimer};
use crate::shim::UnsafeCell;
use crate::site::Site;
use crate::worker::Worker;
use elided::Elided;
use parking::Parking;
use std::{fmt, hint::cold_path};

/// One exclusive latch, without the value it protects. See the contract above.
trait Latch: Send + Sync {
    /// Takes the latch, waiting for as long as it takes.
    ///
    /// # Safety
    ///
    /// `node` is used for nothing else and neither moved nor dropped before `release` (I1).
    unsafe fn acquire(&self, node: &queue::QueueNode);

    /// Takes the latch if it is free.
    ///
    /// # Safety
    ///
    /// As for `acquire`, if it returns true.
    unsafe fn try_acquire(&self, node: &queue::QueueNode) -> bool;

    /// Releases the latch.
    ///
    /// # Safety
    ///
    /// The caller holds the latch, taken with this `node`.
    unsafe fn release(&self, node: &queue::QueueNode);
}

/// The kinds of exclusive latch to choose from.
///
/// ```
/// use foxton_sync::latch::Kind;
///
/// assert_eq!("tas-t".parse(), Ok(Kind::TasT));
/// assert_eq!(Kind::Queue.to_string(), "queue");
/// assert!("mutex".parse::<Kind>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// Test-and-set, with nothing but the bounded spinning of C4.
    Tas,
    /// Test and test-and-set with exponential backoff.
    TasT,
    /// A queue of waiters, each spinning on its own node (Mellor-Crummey and Scott).
    Queue,
    /// Spins a little, then sleeps until woken, as `parking_lot` does.
    #[default]
    Parking,
    /// As `TasT`, elided by the prefixes of the processor [001 §2.2].
    ElidedHle,
    /// As `TasT`, elided by a transaction; taken after one that aborts [001 Algorithm 1].
    ElidedRtm,
    /// As `TasT`, elided by a transaction that is tried again up to a hundred times [001 §4.2].
    ElidedRetry100,
    /// As `Parking`, elided by a transaction; after one that fails, the next three passes do not
    /// try [001 §3.4].
    ElidedCooldown,
    /// As `Parking`, elided by a transaction where that is faster, which is tried now and then for
    /// all latches of a site together.
    ElidedAdaptive,
}

crate::named_enum! {
    Kind, "latch":
    Tas = "tas",
    TasT = "tas-t",
    Queue = "queue",
    Parking = "parking",
    ElidedHle = "elided:hle",
    ElidedRtm = "elided:rtm",
    ElidedRetry100 = "elided:retry100",
    ElidedCooldown = "elided:cooldown",
    ElidedAdaptive = "elided:adaptive",
}

impl Kind {
    /// The kinds that are always taken. Where the processor has no transactions, the others can be
    /// no faster than these.
    pub const PLAIN: [Self; 4] = [Self::Tas, Self::TasT, Self::Queue, Self::Parking];

    /// Returns whether threads may pass side by side: only the kinds called `elided`.
    ///
    /// # Errors
    /// The reason why they do not on this machine, where the latch is taken.
    pub fn elides(self) -> Result<bool, htm::NotAvailable> {
        match self {
            Self::Tas | Self::TasT | Self::Queue | Self::Parking => Ok(false),
            Self::ElidedHle => htm::hle().map(|_| true),
            Self::ElidedRtm
            | Self::ElidedRetry100
            | Self::ElidedCooldown
            | Self::ElidedAdaptive => BackendKind::available().map(|_| true),
        }
    }

    /// Returns the latch that it is over, and that it is where nothing elides; itself if it elides
    /// nothing.
    ///
    /// ```
    /// use foxton_sync::latch::Kind;
    ///
    /// assert_eq!(Kind::ElidedRtm.plain(), Kind::TasT);
    /// assert_eq!(Kind::Queue.plain(), Kind::Queue);
    /// ```
    pub const fn plain(self) -> Self {
        match self {
            Self::Tas | Self::TasT | Self::Queue | Self::Parking => self,
            Self::ElidedHle | Self::ElidedRtm | Self::ElidedRetry100 => Self::TasT,
            Self::ElidedCooldown | Self::ElidedAdaptive => Self::Parking,
        }
    }
}

/// Kind of the transactions that latches begin, those by prefixes aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// The processor's own.
    Processor,
    /// Emulated by software, in a build with the feature `emulated`: one at a time for each latch,
    /// and one in four aborts. It shows that nothing goes wrong, never how fast elision is.
    Software,
}

impl BackendKind {
    /// Returns the kind of this build on this machine.
    ///
    /// ```
    /// use foxton_sync::latch::{Kind, BackendKind};
    ///
    /// assert_eq!(Kind::ElidedRtm.elides(), BackendKind::available().map(|_| true));
    /// ```
    ///
    /// # Errors
    /// The reason why there are none, so that latches are taken.
    pub fn available() -> Result<Self, htm::NotAvailable> {
        if cfg!(feature = "emulated") {
            return htm::switch().map(|()| Self::Software);
        }
        htm::rtm().map(|_| Self::Processor)
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Processor => "of the processor",
            Self::Software => "emulated by software",
        })
    }
}

/// A latch of any kind.
///
/// While it is parking and nothing else, its front is plain, and a pass looks no further.
#[derive(Debug)]
struct AnyLatch {
    front: Parking,
    other: LatchVariant,
    /// Beside the variants, not among them: they have a few bytes, and all together two words.
    queue: queue::QueueLatch,
}

// A lock's bucket fills its cache line. Emulated transactions come on top.
#[cfg(not(any(loom, shuttle, test, feature = "emulated")))]
const _: () = assert!(size_of::<AnyLatch>() <= 16);

/// The variant, if it is not only parking. Two of them carry their kind, because they replace
/// elided kinds where nothing elides.
#[derive(Debug)]
#[repr(u8)]
enum LatchVariant {
    Parking(Kind),
    Spin(spin::SpinLatch, Kind),
    Queue,
    PrefixElided(hle::PrefixElided),
    Elided(Elided),
}

impl AnyLatch {
    /// Where the processor cannot elide, it is the latch underneath, so that no pass checks for
    /// elision.
    fn new(kind: Kind, site: &'static Site) -> Self {
        let elided = match kind {
            Kind::Tas | Kind::TasT | Kind::Queue | Kind::Parking => None,
            Kind::ElidedHle => hle::PrefixElided::available().map(LatchVariant::PrefixElided),
            Kind::ElidedRtm
            | Kind::ElidedRetry100
            | Kind::ElidedCooldown
            | Kind::ElidedAdaptive => Elided::available(kind, site).map(LatchVariant::Elided),
        };
        let other = elided.unwrap_or_else(|| LatchVariant::without_elision(kind));
        let plain = match &other {
            LatchVariant::Parking(_) => true,
            LatchVariant::Elided(latch) => latch.begins_calm(),
            LatchVariant::Spin(..) | LatchVariant::Queue | LatchVariant::PrefixElided(_) => false,
        };
        Self {
            front: Parking::new(plain),
            other,
            queue: queue::QueueLatch::default(),
        }
    }

    fn kind(&self) -> Kind {
        match &self.other {
            LatchVariant::Spin(_, kind) | LatchVariant::Parking(kind) => *kind,
            LatchVariant::Queue => Kind::Queue,
            LatchVariant::PrefixElided(_) => Kind::ElidedHle,
            LatchVariant::Elided(latch) => latch.kind(),
        }
    }

    /// # Safety
    ///
    /// That of [`Latch::acquire`].
    #[cold]
    unsafe fn acquire(&self, worker: &Worker, node: &queue::QueueNode) {
        match &self.other {
            // SAFETY: passed on to the caller, here and below.
            LatchVariant::Parking(_) => unsafe { self.front.acquire(node) },
            // SAFETY: as above.
            LatchVariant::Spin(latch, _) => unsafe { latch.acquire(node) },
            // SAFETY: as above.
            LatchVariant::Queue => unsafe { self.queue.acquire(node) },
            // SAFETY: as above.
            LatchVariant::PrefixElided(latch) => unsafe { latch.acquire(node) },
            // SAFETY: as above.
            LatchVariant::Elided(latch) => unsafe { latch.acquire(&self.front, worker, node) },
        }
    }

    /// # Safety
    ///
    /// That of [`Latch::try_acquire`].
    #[inline(always)]
    unsafe fn try_acquire(&self, worker: &Worker, node: &queue::QueueNode) -> bool {
        // Emulated transactions do not see that the latch is taken, and must be notified.
        let must_notify =
            cfg!(feature = "emulated") && matches!(self.other, LatchVariant::Elided(_));
        if !must_notify && self.front.try_acquire_plain() {
            return true;
        }
        cold_path();
        match &self.other {
            // SAFETY: passed on to the caller, here and below.
            LatchVariant::Spin(latch, _) => unsafe { latch.try_acquire(node) },
            // SAFETY: as above.
            LatchVariant::Queue => unsafe { self.queue.try_acquire(node) },
            // SAFETY: as above.
            _ => unsafe { self.try_acquire_other(worker, node) },
        }
    }

    /// # Safety
    ///
    /// That of [`Latch::release`].
    #[inline(always)]
    unsafe fn release(&self, timer: AttemptTimer<'_>, node: &queue::QueueNode) {
        // SAFETY: passed on to the caller: while it is plain it is the latch that the caller holds.
        if unsafe { self.front.try_release_plain() } {
            return;
        }
        cold_path();
        match &self.other {
            // SAFETY: passed on to the caller, here and below.
            LatchVariant::Spin(latch, _) => unsafe { latch.release(node) },
            // SAFETY: as above.
            LatchVariant::Queue => unsafe { self.queue.release(node) },
            // SAFETY: as above.
            _ => unsafe { self.release_other(timer, node) },
        }
    }

    // Out of line, and behind a wildcard in the matches above, so that an uncontended pass of the
    // others is short.

    /// # Safety
    ///
    /// That of [`Latch::try_acquire`].
    #[inline(never)]
    unsafe fn try_acquire_other(&self, worker: &Worker, node: &queue::QueueNode) -> bool {
        match &self.other {
            // SAFETY: passed on to the caller, here and below.
            LatchVariant::Elided(latch) => unsafe { latch.try_acquire(&self.front, worker, node) },
            // SAFETY: as above.
            LatchVariant::Parking(_) => unsafe { self.front.try_acquire(node) },
            // SAFETY: as above.
            LatchVariant::PrefixElided(latch) => unsafe { latch.try_acquire(node) },
            LatchVariant::Spin(..) | LatchVariant::Queue => unreachable!("they are inlined"),
        }
    }

    /// # Safety
    ///
    /// That of [`Latch::release`].
    #[inline(never)]
    unsafe fn release_other(&self, timer: AttemptTimer<'_>, node: &queue::QueueNode) {
        match &self.other {
            // SAFETY: passed on to the caller, here and below.
            LatchVariant::Elided(latch) => unsafe { latch.release(&self.front, timer, node) },
            // SAFETY: as above.
            LatchVariant::Parking(_) => unsafe { self.front.release(node) },
            // SAFETY: as above.
            LatchVariant::PrefixElided(latch) => unsafe { latch.release(node) },
            LatchVariant::Spin(..) | LatchVariant::Queue => unreachable!("they are inlined"),
        }
    }
}

impl LatchVariant {
    fn without_elision(kind: Kind) -> Self {
        match kind.plain() {
            Kind::Tas => Self::Spin(spin::SpinLatch::tas(), kind),
            Kind::TasT => Self::Spin(spin::SpinLatch::tas_t(), kind),
            Kind::Queue => Self::Queue,
            Kind::Parking => Self::Parking(kind),
            plain => unreachable!("{plain} is over another"),
        }
    }
}

/// A value behind a latch whose kind is chosen at run time.
///
/// The closure form hides the node that a queue latch keeps on the stack of each waiter. The value
/// may move between threads through the latch, so it must be `Send`:
///
/// ```compile_fail,E0277
/// fn assert_sync<T: Sync>() {}
/// assert_sync::<foxton_sync::latch::Latched<std::rc::Rc<u8>>>();
/// ```
///
/// ```
/// use foxton_sync::latch::{Kind, Latched};
/// use foxton_sync::site::{Component, Pattern, Site};
/// use foxton_sync::worker::Workers;
///
/// static SITE: Site = Site::new(Component::Metadata, Pattern::Unbounded, "total");
///
/// let workers = Workers::new();
/// for kind in Kind::ALL {
///     let total = Latched::new(kind, &SITE, 0);
///     std::thread::scope(|scope| {
///         for worker in [workers.worker(), workers.worker()] {
///             let total = &total;
///             scope.spawn(move || total.with(&worker, |total| *total += 1));
///         }
///     });
///     assert_eq!(total.into_inner(), 2);
/// }
/// ```
pub struct Latched<T> {
    latch: AnyLatch,
    #[cfg(feature = "account")]
    site: &'static Site,
    value: UnsafeCell<T>,
}

// SAFETY: the latch lets one thread at a time reach the value (C1, I2), so sharing the whole is
// passing the value from thread to thread.
unsafe impl<T: Send> Sync for Latched<T> {}

// SAFETY: the latch is a few words that belong to no thread while it is free, and it is free when
// the whole is moved.
unsafe impl<T: Send> Send for Latched<T> {}

impl<T> fmt::Debug for Latched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latched")
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

impl<T> Latched<T> {
    /// Returns `value` behind a latch of `kind`; passages count for `site`.
    pub fn new(kind: Kind, site: &'static Site, value: T) -> Self {
        Self {
            latch: AnyLatch::new(kind, site),
            #[cfg(feature = "account")]
            site,
            value: UnsafeCell::new(value),
        }
    }

    /// The kind of its latch.
    pub fn kind(&self) -> Kind {
        self.latch.kind()
    }

    /// Calls `body` with the value, once no other thread has it.
    #[inline]
    pub fn with<R>(&self, worker: &Worker, body: impl FnOnce(&mut T) -> R) -> R {
        self.count(worker);
        let node = queue::QueueNode::new();
        // SAFETY: the node is in this frame, and `_guard` releases before it is dropped (I1).
        if !unsafe { self.latch.try_acquire(worker, &node) } {
            worker.record_contention();
            // SAFETY: as above; a failed try has left the node alone.
            unsafe { self.latch.acquire(worker, &node) };
        }
        let _guard = LatchGuard {
            latch: &self.latch,
            timer: worker.attempt_timer(),
            node: &node,
        };
        // SAFETY: we hold the latch until `_guard` is dropped, so no other thread has the value
        // (I2).
        self.value.with_mut(|value| body(unsafe { &mut *value }))
    }

    /// Calls `body` with the value if no other thread has it. Never waits.
    #[inline]
    pub fn try_with<R>(&self, worker: &Worker, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.count(worker);
        let node = queue::QueueNode::new();
        // SAFETY: as in `with`.
        if !unsafe { self.latch.try_acquire(worker, &node) } {
            return None;
        }
        let _guard = LatchGuard {
            latch: &self.latch,
            timer: worker.attempt_timer(),
            node: &node,
        };
        // SAFETY: as in `with`.
        Some(self.value.with_mut(|value| body(unsafe { &mut *value })))
    }

    /// Returns the value: an exclusive reference needs no latch.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` (I2).
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Returns the value without the latch.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    #[inline(always)]
    #[cfg_attr(
        not(feature = "account"),
        expect(unused_variables, reason = "nobody counts")
    )]
    fn count(&self, worker: &Worker) {
        #[cfg(feature = "account")]
        worker.account().passed(self.site);
    }
}

/// Releases, even if the body panics (C5).
struct LatchGuard<'a> {
    latch: &'a AnyLatch,
    timer: AttemptTimer<'a>,
    node: &'a queue::QueueNode,
}

impl Drop for LatchGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: made right after an acquire with this node, and dropped once.
        unsafe { self.latch.release(self.timer, self.node) }
    }
}
