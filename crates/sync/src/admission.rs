//! At most so many at work at once, however many want to be.
//!
//! Threads beyond those that the processors can run do not add work, they add holders of locks that are
//! not running: whoever meets such a lock sleeps, with locks of its own, and soon everybody waits for
//! somebody who waits. With an *admission* of a few seats, what is too much waits before it has anything
//! that others could wait for. The idea is that of concurrency restriction over a contended lock
//! (D. Dice, A. Kogan: *Avoiding Scalability Collapse by Restricting Concurrency*, Euro-Par 2019); here it is
//! done over whole transactions, as some servers do over statements.
//!
//! Passing a seat on costs a switch between threads, and many times what a short transaction costs. So
//! who has a seat keeps its claim to it for a *tenure*, through many transactions: it leaves the seat between
//! them and comes back to it past the line. After its tenure it hands the seat to
//! the first of the line, or to one of the next who ran on the same processor (`queue`), and stands behind; if it comes back too late, the first
//! has the seat, since who joins the line, and who watches, gives it what is free and still is a moment later: what is free for
//! less is between two transactions. A seat that is come back to is in nobody
//! else's hands: each has a cache line of its own (`slots`), where one count of
//! all would go from processor to processor twice in each transaction.
//!
//! Seats may be there only while there is a *crowd*, which the admission then finds out by itself: `load`.
//!
//! # State
//!
//! `seats`, a count of those that are free in each lane. `line`, those who wait, in the order they came, each with a `Place`, of which a
//! word says whether it is waiting, waiting and watching, seated, or let in without a seat; `length`, how many they
//! are. The word is changed under the line's mutex only. A `Claim` belongs to whom it is lent to: one
//! thread at a time.
//!
//! # Invariants
//!
//! * I1  Free seats and taken seats are as many as there are seats, in each lane (`slots`). Who takes one, or is handed one, notes
//!   it and its lane in its claim; who leaves one hands it on or leaves it free.
//! * I2  A line that is not empty has exactly one in it who watches for all: who came to an empty line, and when that
//!   one leaves, who is last then, told under the mutex.
//! * I3  Nobody waits for ever: who watches looks every `WATCH` whether a seat is free, whoever should have
//!   given it to the first, and if nobody has left the line for `WATCHES` of them, the first goes in without a seat, since
//!   those who have the seats may be waiting for something that it holds, or may not be running at all. Seats bound
//!   how many are at work while those at work come and go; they never decide whether somebody may.
//! * I4  When a crowd is over, whoever is in line is let in, at the latest when the one who watches looks. Who joins the
//!   line later watches, or is behind one who does.
//!
//! # Why no wake-up is lost
//!
//! A thread reads its word and then sleeps; who changes the word wakes it after that, and a token that
//! comes early makes the next sleep return at once. Who watches sleeps for a bounded time anyway (I3): nobody is
//! woken when a seat is left free for one whose tenure lasts.
//!
//! Whoever is woken may take the processor from somebody who holds locks. So handing a seat on wakes one, not also
//! the next to be first: to watch is for who has long to wait.
//!
//! # Orderings
//!
//! None. Free seats, `length` and a place's word lead to no memory, and what a client does with its seat is ordered by the
//! locks that it takes, as it must be: a seat that was left free says nothing of who left it, and one that is handed on
//! says no more. A word is read without the mutex, but always after the token of whoever wrote it: parking hands on what
//! was done before the token was given (`park`), so that nobody sleeps again over a word that it has missed. All Relaxed.
//!
//! ```
//! use foxton_sync::admission::{Admission, Claim};
//!
//! let (admission, mut claim) = (Admission::new(4), Claim::default());
//! for _ in 0..1_000 {
//!     admission.enter(&mut claim);
//!     // Here something that takes locks, and gives them back.
//!     admission.leave(&mut claim);
//! }
//! assert_eq!(admission.free(), 4);
//! ```

use std::time::{Duration, Instant};

use crate::cache_line::CachePadded;
use crate::clock;
use crate::shim::{self, Arc, AtomicUsize, Mutex, MutexGuard, Ordering, hint, thread};
use crate::site::{Component, Pattern, Site};

mod policy;
mod load;
mod queue;
mod slots;

use load::{Crowd, Own};
use queue::{Line, Place};
use slots::Seats;

/// Seats and the line. An admission knows no worker, so whoever calls [`Admission::enter`] or
/// [`Admission::leave`] counts it.
///
/// ```
/// use foxton_sync::{admission, worker::Workers};
///
/// let worker = Workers::new().worker();
/// worker.account().passed(&admission::SEATS);
/// ```
pub static SEATS: Site = Site::new(Component::Transaction, Pattern::Unbounded, "admission");

/// How many are blocked. Whoever calls [`Admission::blocks`] or [`Admission::goes_on`] counts it.
pub static BLOCKED: Site = Site::new(
    Component::Transaction,
    Pattern::Unbounded,
    "blocked transactions",
);

/// How long a claim lasts while others wait.
const TENURE: Duration = Duration::from_micros(500);
/// A look at the clock costs as much as a part of a short transaction: so many end without one at most.
const MOST_UNSEEN: u32 = 16;
/// Where few are blocked it lasts so many times as long.
const LONG: u32 = 4;
/// How many turns of a loop those who are between two transactions have to come back to a seat that was found free: one or
/// two microseconds. Who stays away for longer has other things to do, and others the seat.
const MOMENT: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 50 };
/// How often it is looked for those in line.
const WATCH: Duration = Duration::from_millis(1);
/// How often it is looked, while nobody leaves the line, before the first goes in without a seat.
const WATCHES: u32 = if cfg!(loom) { 1 } else { 10 };

/// What a place's word says.
const WAITING: u32 = 0;
const WATCHING: u32 = 1;
const LET_IN: u32 = 2;
/// This and more: a seat of the lane whose number is the difference.
const SEATED: u32 = 3;

/// See the [module](self).
pub struct Admission {
    tenure: Duration,
    watch: Duration,
    seats: Seats,
    length: CachePadded<AtomicUsize>,
    line: Mutex<Line>,
    /// If there are seats only while there is one.
    crowd: Option<Crowd>,
}

/// What one client of an admission has: a seat, or the right to come back to one.
#[derive(Debug, Default)]
pub struct Claim {
    is_seated: bool,
    /// Of which lane its seat is, or was.
    lane: u32,
    /// Since when the tenure runs.
    since: Option<Instant>,
    /// How often it left its seat in this tenure while others waited, and at which of those times the clock is looked at.
    left: u32,
    look_at: u32,
    /// What it counts by itself for the crowd.
    own: Own,
}

impl Claim {
    fn begin_tenure(&mut self) {
        self.since = Some(clock::now());
        (self.left, self.look_at) = (0, 0);
    }

    /// Whether it has a seat now.
    pub fn is_seated(&self) -> bool {
        self.is_seated
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission")
            .field("free", &self.free())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

impl Admission {
    /// An admission of so many seats, with the usual tenure of half a millisecond.
    pub fn new(seats: u32) -> Admission {
        Admission::with_tenure(seats, TENURE)
    }

    /// An admission of so many seats. A claim lasts for `tenure` while others wait.
    pub fn with_tenure(seats: u32, tenure: Duration) -> Admission {
        Admission {
            tenure,
            watch: WATCH,
            seats: Seats::new(seats),
            length: CachePadded::new(AtomicUsize::new(0)),
            line: Mutex::new(Line::default()),
            crowd: None,
        }
    }

    /// An admission of three seats for each of `processors`, which counts only while most of those at work block
    /// each other and keep the processors busy with it, and more is committed with seats than without.
    pub fn adaptive(processors: u32) -> Admission {
        Admission::new(processors * 3).only_in_crowds(processors)
    }

    /// The same, but its seats count only while there is a crowd on so many processors.
    pub fn only_in_crowds(self, processors: u32) -> Admission {
        Admission {
            crowd: Some(Crowd::new(processors)),
            ..self
        }
    }

    /// Begins or ends a crowd, for the model checker.
    #[cfg(loom)]
    pub fn set_crowd(&self, is_on: bool) {
        if let Some(crowd) = &self.crowd {
            crowd.set(is_on);
        }
    }

    /// Whether who enters needs a seat at this moment.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.crowd.as_ref().is_none_or(Crowd::is_on)
    }

    /// How many are blocked at this moment, where that is counted.
    pub fn blocked(&self) -> u32 {
        self.crowd.as_ref().map_or(0, Crowd::blocked)
    }

    /// Someone at work goes to sleep behind another's lock. It says so when it goes on, too.
    pub fn blocks(&self) {
        if let Some(crowd) = &self.crowd {
            crowd.blocks();
        }
    }

    /// Someone at work has committed. Says how often that passed what all share: seldom, for a few commits are counted
    /// at a time, and only while seats count or are tried.
    #[inline]
    pub fn commits(&self, claim: &mut Claim) -> u64 {
        let crowd = self.crowd.as_ref();
        crowd.map_or(0, |crowd| crowd.commits(&mut claim.own))
    }

    /// See [`blocks`](Self::blocks).
    pub fn goes_on(&self) {
        if let Some(crowd) = &self.crowd {
            crowd.goes_on();
        }
    }

    /// Seats that nobody has at this moment.
    pub fn free(&self) -> u32 {
        self.seats.free()
    }

    /// How many stand in line at this moment.
    pub fn waiting(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    /// Takes a seat; waits for one if there is none. In rare cases it returns without (I3). Says how often it
    /// passed what all share.
    ///
    /// # Panics
    ///
    /// If the claim has a seat.
    #[inline]
    pub fn enter(&self, claim: &mut Claim) -> u64 {
        assert!(!claim.is_seated, "entered twice");
        if let Some(crowd) = &self.crowd {
            if crowd.comes(&mut claim.own) {
                crowd.is_over(self.waiting());
            }
            if !crowd.is_on() {
                return 0;
            }
        }
        if self.comes_back(claim) {
            claim.is_seated = true;
            return 1;
        }
        1 + self.find_seat(claim)
    }

    /// Whether its seat is still free, which is its own as long as nobody has given it to those in line.
    #[inline]
    fn comes_back(&self, claim: &Claim) -> bool {
        claim.since.is_some() && self.seats.take_of(claim.lane)
    }

    /// Takes a free seat if nobody is in line, or else stands there. Says how often it passed that.
    #[cold]
    fn find_seat(&self, claim: &mut Claim) -> u64 {
        if self.waiting() > 0 {
            return self.stand_in_line(claim);
        }
        let Some(lane) = self.seats.take() else {
            return self.stand_in_line(claim);
        };
        claim.is_seated = true;
        claim.lane = lane;
        claim.begin_tenure();
        0
    }

    /// Whether seats do not count any more, or will not from now on.
    fn is_over(&self) -> bool {
        let crowd = self.crowd.as_ref();
        crowd.is_some_and(|crowd| crowd.is_over(self.waiting()))
    }

    /// Whether it was seated so lately that it may keep its seat from those who wait, or if that was found a moment ago.
    fn has_tenure(&self, claim: &mut Claim) -> bool {
        claim.left = claim.left.saturating_add(1);
        if claim.left < claim.look_at {
            return true;
        }
        // The next look is due after an eighth as many as there have been.
        claim.look_at = claim
            .left
            .saturating_add((claim.left / 8).clamp(1, MOST_UNSEEN));
        let is_long = self.crowd.as_ref().is_some_and(Crowd::is_long);
        let tenure = self.tenure.saturating_mul(if is_long { LONG } else { 1 });
        claim.since.is_some_and(|since| since.elapsed() < tenure)
    }

    /// Leaves the seat, and says whether the claim had one. Where others wait and the tenure is over, the
    /// first of them has it then.
    #[inline]
    pub fn leave(&self, claim: &mut Claim) -> bool {
        let was_seated = std::mem::take(&mut claim.is_seated);
        if was_seated {
            if self.waiting() > 0 && !self.has_tenure(claim) {
                claim.since = None;
                self.hand_on(claim.lane);
            } else {
                self.seats.leave(claim.lane);
            }
        }
        was_seated
    }

    /// Gives a seat that was left to the next of the line.
    #[cold]
    fn hand_on(&self, lane: u32) {
        let here = queue::processor();
        let line = shim::lock(&self.line);
        let index = line.nearest(here);
        self.give(line, index, lane);
    }

    /// Gives a seat of this lane to one of the line; says whether there was one. Otherwise the seat is free.
    fn give(&self, line: MutexGuard<'_, Line>, index: usize, lane: u32) -> bool {
        let is_there = self.becomes(line, index, SEATED + lane);
        if !is_there {
            self.seats.leave(lane);
        }
        is_there
    }

    /// Takes one out of the line, and tells it with what; says whether there was one.
    fn becomes(&self, mut line: MutexGuard<'_, Line>, index: usize, word: u32) -> bool {
        let told = line.take(index, word);
        self.length.store(line.len(), Ordering::Relaxed);
        drop(line);
        told.inspect(|told| told.wake()).is_some()
    }

    /// Waits; says how often it passed the line.
    #[cold]
    fn stand_in_line(&self, claim: &mut Claim) -> u64 {
        let place = Place::new();
        let joined = self.join(&place);
        // How many had left the line when it looked last, and how often it looked since somebody did.
        let (mut left, mut in_vain) = (None, 0);
        let mut watches = 0_u64;
        loop {
            match place.word.load(Ordering::Relaxed) {
                LET_IN => break,
                WAITING => thread::park(),
                WATCHING => {
                    thread::park_timeout(self.watch);
                    watches += 1;
                    if self.is_over() {
                        self.let_in(); // I4
                    }
                    let now = self.watch(in_vain + 1 >= WATCHES);
                    in_vain = if left == Some(now) { in_vain + 1 } else { 0 };
                    left = Some(now);
                }
                seated => {
                    claim.is_seated = true;
                    claim.lane = seated - SEATED;
                    break;
                }
            }
        }
        match claim.is_seated {
            true => claim.begin_tenure(),
            false => claim.since = None,
        }
        joined + watches
    }

    /// Puts it at the end of the line. A seat that was left free for one who did not come back in time goes to
    /// the first, perhaps to itself. Says how often it passed the line.
    fn join(&self, place: &Arc<Place>) -> u64 {
        let mut line = shim::lock(&self.line);
        line.join(place);
        self.length.store(line.len(), Ordering::Relaxed);
        drop(line);
        let Some(lane) = self.take_left() else {
            return 1;
        };
        self.give(shim::lock(&self.line), 0, lane);
        2
    }

    /// Takes a seat that is free, and still is a moment later: whoever is only between two transactions comes back in that.
    fn take_left(&self) -> Option<u32> {
        let left = self.seats.take_left();
        if left.is_some() || self.seats.free() == 0 {
            return left;
        }
        for _ in 0..MOMENT {
            hint::spin_loop();
        }
        self.seats.take_left()
    }

    /// Lets everybody in, without seats.
    fn let_in(&self) {
        while self.becomes(shim::lock(&self.line), 0, LET_IN) {}
    }

    /// The first has a seat if one was left free, or goes in without if those in line are out of patience. Says how many
    /// have left the line.
    fn watch(&self, is_out_of_patience: bool) -> u64 {
        let free = self.take_left();
        let line = shim::lock(&self.line);
        let before = line.left;
        let left = match free {
            Some(lane) => self.give(line, 0, lane),
            None => is_out_of_patience && self.becomes(line, 0, LET_IN),
        };
        before + u64::from(left)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
