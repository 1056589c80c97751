//! Shared latch: many readers or one writer.
//!
//! # State
//!
//! One word.
//!
//! | bits 2..32 | bit 1                | bit 0               |
//! |------------|----------------------|---------------------|
//! | readers in | a writer is waiting  | a writer is in      |
//!
//! # Invariants
//!
//! * I1  Bit 0 and the count are never both set. A reader enters only when bit 0 is clear, a writer
//!   only when the count is zero too, each by a compare-and-exchange on the whole word.
//! * I2  While bit 1 is set no reader enters, so readers that come and go do not keep a writer out.
//!   A writer that leaves clears it, and waiting writers set it again at their next try: between
//!   two writers readers have a chance.
//!
//! # Orderings
//!
//! * O1  a writer leaving (Release) to a reader entering (Acquire): it sees the writer's writes.
//! * O2  a writer leaving (Release) to a writer entering (Acquire): the same.
//! * O3  a reader leaving (Release) to a writer entering (Acquire): the reader's reads come before
//!   the writer's writes. Readers leave by read-modify-writes, so the last to leave passes on what
//!   the others released.

use crate::backoff::Backoff;
use crate::shim::{AtomicU32, Ordering, UnsafeCell};
use crate::site::Site;
use crate::worker::Worker;
use std::fmt;

const WRITER: u32 = 0b01;
const WAITING: u32 = 0b10;
const READER: u32 = 0b100;

/// A value that many threads may read or one may write.
///
/// Readers share the value, so it must be `Sync` as well as `Send`:
///
/// ```compile_fail,E0277
/// fn assert_sync<T: Sync>() {}
/// assert_sync::<foxton_sync::latch::SharedLatched<std::cell::Cell<u8>>>();
/// ```
///
/// ```
/// use foxton_sync::latch::SharedLatched;
/// use foxton_sync::site::{Component, Pattern, Site};
/// use foxton_sync::worker::Workers;
///
/// static SITE: Site = Site::new(Component::Metadata, Pattern::Unbounded, "names");
///
/// let worker = Workers::new().worker();
/// let names = SharedLatched::new(&SITE, vec!["accounts"]);
/// names.write(&worker, |names| names.push("branches"));
/// assert_eq!(names.read(&worker, |names| names.len()), 2);
/// ```
pub struct SharedLatched<T> {
    word: AtomicU32,
    #[cfg(feature = "account")]
    site: &'static Site,
    value: UnsafeCell<T>,
}

// SAFETY: readers get `&T` from many threads (`T: Sync`); a writer gets `&mut T` alone (I1), which
// may move the value between threads (`T: Send`).
unsafe impl<T: Send + Sync> Sync for SharedLatched<T> {}

// SAFETY: no thread is in when the whole is moved.
unsafe impl<T: Send> Send for SharedLatched<T> {}

impl<T> fmt::Debug for SharedLatched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Ordering::Relaxed);
        f.debug_struct("SharedLatched")
            .field("readers", &(word / READER))
            .field("writer", &(word & WRITER != 0))
            .finish_non_exhaustive()
    }
}

impl<T> SharedLatched<T> {
    /// Returns `value` with no thread in; passages count for `site`.
    #[cfg_attr(
        not(feature = "account"),
        expect(unused_variables, reason = "nobody counts")
    )]
    pub fn new(site: &'static Site, value: T) -> Self {
        Self {
            word: AtomicU32::new(0),
            #[cfg(feature = "account")]
            site,
            value: UnsafeCell::new(value),
        }
    }

    /// Calls `body` with the value while no writer is in. A reader that reads again inside may wait
    /// for ever behind a writer that came in between.
    #[inline]
    pub fn read<R>(&self, worker: &Worker, body: impl FnOnce(&T) -> R) -> R {
        self.count(worker);
        if !self.enter_shared() {
            self.wait_shared();
        }
        self.reading(body)
    }

    /// Calls `body` with the value if no writer is in or waiting. Never waits; may fail when
    /// readers come at the same moment.
    #[inline]
    pub fn try_read<R>(&self, worker: &Worker, body: impl FnOnce(&T) -> R) -> Option<R> {
        self.count(worker);
        self.enter_shared().then(|| self.reading(body))
    }

    /// Calls `body` with the value while no other thread is in.
    #[inline]
    pub fn write<R>(&self, worker: &Worker, body: impl FnOnce(&mut T) -> R) -> R {
        let _inside = self.enter_write(worker);
        self.written(body)
    }

    /// Enters as a writer, until the returned guard is dropped.
    #[inline]
    pub(super) fn enter_write(&self, worker: &Worker) -> Leave<'_> {
        self.count(worker);
        if !self.enter_exclusive() {
            self.wait_exclusive();
        }
        Leave(&self.word, leave_exclusive)
    }

    /// Calls `body` with the value if no other thread is in. Never waits.
    #[inline]
    pub fn try_write<R>(&self, worker: &Worker, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.count(worker);
        self.enter_exclusive().then(|| self.writing(body))
    }

    #[inline(always)]
    fn reading<R>(&self, body: impl FnOnce(&T) -> R) -> R {
        let _inside = Leave(&self.word, leave_shared);
        // SAFETY: we have entered, and no writer enters before we leave (I1).
        self.value.with(|value| body(unsafe { &*value }))
    }

    #[inline(always)]
    fn writing<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        let _inside = Leave(&self.word, leave_exclusive);
        self.written(body)
    }

    /// Calls `body` between entering as a writer and leaving.
    #[inline(always)]
    fn written<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: we have entered, and no other thread enters before we leave (I1).
        self.value.with_mut(|value| body(unsafe { &mut *value }))
    }

    /// Returns the value: an exclusive reference needs no latch.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self`.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Returns the value without the latch.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    #[inline]
    fn enter_shared(&self) -> bool {
        // Relaxed: the exchange decides.
        let word = self.word.load(Ordering::Relaxed);
        assert!(word < u32::MAX - READER, "more than a billion readers");
        if word & (WRITER | WAITING) != 0 {
            return false;
        }
        let entered = self.word.compare_exchange(
            word,
            word + READER,
            Ordering::Acquire, // O1
            Ordering::Relaxed,
        );
        entered.is_ok()
    }

    #[inline]
    fn enter_exclusive(&self) -> bool {
        // Relaxed: the exchange decides.
        let word = self.word.load(Ordering::Relaxed);
        if word & !WAITING != 0 {
            return false;
        }
        let entered = self.word.compare_exchange(
            word,
            WRITER, // clears the other bit for all waiters; those that still wait set it again (I2)
            Ordering::Acquire, // O2, O3
            Ordering::Relaxed,
        );
        entered.is_ok()
    }

    #[cold]
    fn wait_shared(&self) {
        let mut backoff = Backoff::new();
        while !self.enter_shared() {
            backoff.snooze();
        }
    }

    #[cold]
    fn wait_exclusive(&self) {
        let mut backoff = Backoff::new();
        while !self.enter_exclusive() {
            // Relaxed: the bit tells readers to wait and nothing else.
            self.word.fetch_or(WAITING, Ordering::Relaxed);
            backoff.snooze();
        }
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

#[inline(always)]
fn leave_shared(word: &AtomicU32) {
    word.fetch_sub(READER, Ordering::Release); // O3
}

#[inline(always)]
fn leave_exclusive(word: &AtomicU32) {
    word.store(0, Ordering::Release); // O1, O2, I2
}

/// Leaves, even if the body panics.
pub(super) struct Leave<'a>(&'a AtomicU32, fn(&AtomicU32));

impl Drop for Leave<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        (self.1)(self.0);
    }
}
