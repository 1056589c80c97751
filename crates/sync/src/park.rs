//! Parking: a thread or an async task sleeps and is woken exactly once.
//!
//! A `Parker` has one sleeper at a time and any number of threads that may end its wait. One
//! compare-and-exchange decides which of them does. So of a grant, a timeout, a deadlock victim and
//! a cancellation that arrive together exactly one happens.
//!
//! # State
//!
//! One word and a slot. The word:
//!
//! | bits 24..64   | bits 0..24 | meaning                                                 |
//! |---------------|------------|---------------------------------------------------------|
//! | wait sequence | 0          | open: armed, not resolved yet                           |
//! | wait sequence | all ones   | closed: never armed, or withdrawn                       |
//! | wait sequence | otherwise  | resolved: the verdict, and whether it is only revocable |
//!
//! The slot, behind a mutex, holds the sleeper (a thread or a waker) and the ticket of its wait.
//!
//! # Invariants
//!
//! * I1  The word's sequence only grows, by `arm`, which only the sleeper calls.
//! * I2  A wait leaves *open* once: `resolve`, `grant_revocable` and `disarm` all
//!   compare-and-exchange from it. So of all callers of `resolve` with one ticket at most one gets
//!   a `Wake`, and a ticket of an earlier wait gets none.
//! * I3  A `Wake` wakes only a sleeper that registered under its own ticket.
//! * I4  A *revocable* verdict may be revoked, and then the wait is open again, as if it had never
//!   been resolved. The sleeper makes the verdict final by a compare-and-exchange, and a revoker
//!   revokes it by one: exactly one of them succeeds. The sleeper's side learns of a verdict by no
//!   other call.
//!
//! # Why no wake-up is lost, and none comes twice
//!
//! The sleeper registers in the slot, *then* reads the word, then sleeps. The waker changes the
//! word, *then* looks into the slot. Both take the slot's mutex, so one is first. If the sleeper
//! is, the waker finds it registered and wakes it. If the waker is, the sleeper reads the word
//! after the waker changed it, sees the verdict, and does not sleep.
//!
//! The waker empties the slot, and by I2 there is one `Wake` for a wait, so it wakes once. With
//! revocable verdicts there is one for each grant; a sleeper that was woken and finds the wait open
//! registers anew, reads the word again and sleeps again.
//!
//! The feared interleaving is a late `Wake`: the sleeper saw the verdict without sleeping, armed
//! its next wait and registered again before the old `Wake` looks into the slot. By I3 that `Wake`
//! leaves the sleeper alone. A thread whose wait ended at its deadline may still find a spare token
//! at its next `park`; every sleep here is a loop.
//!
//! # Orderings
//!
//! * O1  `resolve` and `grant_revocable` (Release) to `verdict` (Acquire): a thread that sees the
//!   verdict sees all that was written before it was given.

use crate::clock;
use crate::shim::{AtomicU64, Mutex, Ordering, lock, thread};
use crate::site::{Component, Pattern, Site};
use std::fmt;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Site: ending a wait. Sleeper and waker meet at the parker, two at a time. A parker knows no
/// worker, so the caller of [`Parker::resolve`] counts the passage.
///
/// ```
/// use foxton_sync::{park, worker::Workers};
///
/// let worker = Workers::new().worker();
/// worker.account().passed(&park::WAKING);
/// ```
pub static WAKING: Site = Site::new(Component::Message, Pattern::Fixed, "waking");

const CODE_BITS: u32 = 24;
const CODE_MASK: u64 = (1 << CODE_BITS) - 1;
const OPEN: u64 = 0;
const CLOSED: u64 = CODE_MASK;
/// Set in a verdict that may still be revoked (I4).
const REVOCABLE: u64 = 1 << (CODE_BITS - 1);

/// The end of a wait, as a code of the caller: 1 to 2^23 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verdict(NonZeroU32);

impl Verdict {
    /// Returns the verdict `code`.
    ///
    /// # Panics
    ///
    /// If `code` is 0 or above 2^23 - 1. In a constant this is found when compiling.
    pub const fn new(code: u32) -> Self {
        assert!((code as u64) < REVOCABLE, "a verdict has 23 bits");
        match NonZeroU32::new(code) {
            Some(code) => Self(code),
            None => panic!("a verdict is not zero"),
        }
    }

    /// Returns the code it was made from.
    pub const fn code(self) -> u32 {
        self.0.get()
    }
}

/// One wait of one parker. A later wait has a larger ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// Number of the wait, counted from 1 since the parker was made.
    pub const fn sequence(self) -> u64 {
        self.0
    }

    /// Returns the ticket of wait number `sequence`, for callers that keep it as a number.
    pub const fn from_sequence(sequence: u64) -> Self {
        Self(sequence)
    }

    const fn word(self, code: u64) -> u64 {
        self.0 << CODE_BITS | code
    }
}

#[derive(Debug)]
enum WakeTarget {
    Thread(thread::Thread),
    Task(Waker),
}

impl WakeTarget {
    fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            // Foreign code, in a thread that only ended the wait and may have others to wake. The
            // panic hook has reported the panic, which is enough.
            Self::Task(waker) => drop(catch_unwind(AssertUnwindSafe(|| waker.wake()))),
        }
    }
}

/// A place where one thread or task sleeps and others wake it.
///
/// Its sleeper calls [`arm`](Self::arm), [`wait`](Self::wait) or [`poll`](Self::poll), and
/// [`disarm`](Self::disarm); all other threads call [`resolve`](Self::resolve).
///
/// ```
/// use foxton_sync::park::{Parker, Verdict};
///
/// const GRANTED: Verdict = Verdict::new(1);
///
/// let parker = Parker::new();
/// let ticket = parker.arm();
/// std::thread::scope(|scope| {
///     scope.spawn(|| parker.resolve(ticket, GRANTED).expect("nobody was before us").wake());
///     assert_eq!(parker.wait(ticket, None), Some(GRANTED));
/// });
/// assert!(parker.resolve(ticket, GRANTED).is_none());
/// ```
pub struct Parker {
    word: AtomicU64,
    slot: Mutex<Option<(Ticket, WakeTarget)>>,
}

impl Default for Parker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Parker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Ordering::Relaxed);
        f.debug_struct("Parker")
            .field("wait", &(word >> CODE_BITS))
            .field("code", &(word & CODE_MASK))
            .finish_non_exhaustive()
    }
}

impl Parker {
    /// Returns a parker without a sleeper.
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(Ticket(0).word(CLOSED)),
            slot: Mutex::new(None),
        }
    }

    /// Begins a wait. Until it is resolved or withdrawn, any thread that has the ticket may end it.
    ///
    /// # Panics
    ///
    /// If the previous wait is still open: two waits of one sleeper.
    pub fn arm(&self) -> Ticket {
        // Relaxed: only the sleeper writes the sequence (I1), and no other thread changes a word
        // that is not open (I2).
        let word = self.word.load(Ordering::Relaxed);
        assert!(
            word & CODE_MASK != OPEN,
            "armed while the previous wait is open"
        );
        let ticket = Ticket((word >> CODE_BITS) + 1);
        // Relaxed: the ticket itself reaches other threads by something that synchronizes.
        self.word.store(ticket.word(OPEN), Ordering::Relaxed);
        ticket
    }

    /// Returns how the wait was resolved, if it was. Never waits. For the sleeper: a revocable
    /// verdict becomes final by this call (I4).
    #[inline]
    pub fn verdict(&self, ticket: Ticket) -> Option<Verdict> {
        let mut word = self.word.load(Ordering::Acquire); // O1
        loop {
            let verdict = verdict_in(word, ticket)?;
            if word & REVOCABLE == 0 {
                return Some(verdict);
            }
            let kept = self.word.compare_exchange(
                word,
                word & !REVOCABLE,
                Ordering::Acquire, // O1
                Ordering::Acquire, // O1: it was revoked, and perhaps granted again
            );
            match kept {
                Ok(_) => return Some(verdict),
                Err(now) => word = now,
            }
        }
    }

    /// True if the wait is neither resolved nor withdrawn now.
    #[inline]
    pub fn is_open(&self, ticket: Ticket) -> bool {
        // Relaxed: a hint, which may be outdated on return.
        self.word.load(Ordering::Relaxed) == ticket.word(OPEN)
    }

    /// Sleeps until the wait is resolved. `None`: the deadline passed first and the wait is still
    /// open; withdraw it with [`disarm`](Self::disarm), or wait on.
    ///
    /// # Panics
    ///
    /// If the wait was withdrawn, or is not this parker's latest: no thread would ever end it.
    pub fn wait(&self, ticket: Ticket, deadline: Option<Instant>) -> Option<Verdict> {
        if let Some(verdict) = self.verdict(ticket) {
            return Some(verdict);
        }
        loop {
            // Each time, because the waker emptied the slot.
            self.register(ticket, WakeTarget::Thread(thread::current()));
            if let Some(verdict) = self.verdict(ticket) {
                return Some(verdict);
            }
            self.assert_open(ticket);
            match deadline {
                None => thread::park(),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(clock::now());
                    if left.is_zero() {
                        return None;
                    }
                    thread::park_timeout(left);
                }
            }
        }
    }

    /// Returns the verdict, or `Pending` with the task registered to be woken for it.
    ///
    /// # Panics
    ///
    /// If the wait was withdrawn, or is not this parker's latest.
    pub fn poll(&self, ticket: Ticket, context: &mut Context<'_>) -> Poll<Verdict> {
        if let Some(verdict) = self.verdict(ticket) {
            return Poll::Ready(verdict);
        }
        self.register(ticket, WakeTarget::Task(context.waker().clone()));
        match self.verdict(ticket) {
            Some(verdict) => Poll::Ready(verdict),
            None => {
                self.assert_open(ticket);
                Poll::Pending
            }
        }
    }

    /// Ends the wait with `verdict`, for the first caller while it is open; all others get `None`.
    /// The sleeper may continue at once; [`Wake::wake`] wakes it, and is best called once no latch
    /// is held.
    #[must_use = "the sleeper sleeps until it is woken"]
    pub fn resolve(&self, ticket: Ticket, verdict: Verdict) -> Option<Wake<'_>> {
        let won = self.word.compare_exchange(
            ticket.word(OPEN),
            ticket.word(u64::from(verdict.code())),
            Ordering::Release, // O1, I2
            Ordering::Relaxed,
        );
        won.is_ok().then_some(Wake {
            parker: self,
            ticket,
        })
    }

    /// As [`resolve`](Self::resolve), but until the sleeper has seen the verdict it can be
    /// [revoked](Self::revoke): it binds the sleeper only once that is awake.
    #[must_use = "the sleeper sleeps until it is woken"]
    pub fn grant_revocable(&self, ticket: Ticket, verdict: Verdict) -> Option<Wake<'_>> {
        let won = self.word.compare_exchange(
            ticket.word(OPEN),
            ticket.word(u64::from(verdict.code()) | REVOCABLE),
            Ordering::Release, // O1, I2
            Ordering::Relaxed,
        );
        won.is_ok().then_some(Wake {
            parker: self,
            ticket,
        })
    }

    /// Opens a wait again whose verdict is revocable and that its sleeper has not seen; returns
    /// whether it did. The caller must resolve the wait anew later.
    pub fn revoke(&self, ticket: Ticket, verdict: Verdict) -> bool {
        // Relaxed: revoking makes nothing visible; the next verdict makes visible what it has to
        // (O1).
        let taken = self.word.compare_exchange(
            ticket.word(u64::from(verdict.code()) | REVOCABLE),
            ticket.word(OPEN),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        taken.is_ok()
    }

    /// Withdraws the wait. `None`: no thread had resolved it, and none will. `Some`: it was
    /// resolved before, and its resolver relies on that.
    pub fn disarm(&self, ticket: Ticket) -> Option<Verdict> {
        // Relaxed: withdrawing makes nothing visible to others except that they are too late.
        // `verdict` reads what a verdict makes visible (O1).
        let (open, closed) = (ticket.word(OPEN), ticket.word(CLOSED));
        while let Err(word) =
            (self.word).compare_exchange(open, closed, Ordering::Relaxed, Ordering::Relaxed)
        {
            match self.verdict(ticket) {
                // Granted, and revoked between the two reads: it is open again.
                None if verdict_in(word, ticket).is_some() => {}
                verdict => return verdict,
            }
        }
        // No thread will come for the sleeper (I2). A task's waker should not outlive its wait.
        let sleeper = lock(&self.slot).take();
        drop(sleeper);
        None
    }

    fn register(&self, ticket: Ticket, sleeper: WakeTarget) {
        // The old sleeper is dropped after the mutex: dropping a waker runs foreign code.
        let old = lock(&self.slot).replace((ticket, sleeper));
        drop(old);
    }

    fn assert_open(&self, ticket: Ticket) {
        // Resolved since the caller looked is fine; withdrawn or overtaken is not.
        let word = self.word.load(Ordering::Relaxed);
        assert!(
            word >> CODE_BITS == ticket.0 && word & CODE_MASK != CLOSED,
            "waiting on a wait that was withdrawn or is over"
        );
    }
}

fn verdict_in(word: u64, ticket: Ticket) -> Option<Verdict> {
    match word & CODE_MASK {
        OPEN | CLOSED => None,
        code if word >> CODE_BITS == ticket.0 => Some(Verdict::new((code & !REVOCABLE) as u32)),
        _ => None,
    }
}

/// The duty to wake the sleeper of one wait. Dropping it wakes, too. A panic in a task's waker does
/// not propagate.
#[derive(Debug)]
#[must_use = "the sleeper sleeps until it is woken; dropping this wakes it"]
pub struct Wake<'p> {
    parker: &'p Parker,
    ticket: Ticket,
}

impl Wake<'_> {
    /// Wakes the sleeper, if it sleeps. Costs a system call for a thread: call it with no latch
    /// held.
    pub fn wake(self) {
        drop(self);
    }
}

impl Drop for Wake<'_> {
    fn drop(&mut self) {
        let mut slot = lock(&self.parker.slot);
        // I3: a sleeper of another wait is not ours.
        let sleeper = slot.take_if(|(ticket, _)| *ticket == self.ticket);
        drop(slot);
        if let Some((_, sleeper)) = sleeper {
            sleeper.wake();
        }
    }
}
