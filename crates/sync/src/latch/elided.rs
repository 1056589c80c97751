//! A latch that is not taken: who passes it begins a transaction of the processor instead.
//!
//! The transaction reads the latch, and goes on if nobody holds it. From then on whoever takes the latch
//! aborts the transaction, since he writes what it has read; and two transactions abort each other only if
//! one writes what the other touches. So threads that do not meet in the data do not meet at all. What
//! cannot be done that way takes the latch: [`Policy`] says after which aborts.
//!
//! # State
//!
//! The real latch, and how many of its next passes are not to try elision. Whether trying pays at all, one kind learns
//! of all latches of its site together (`htm::trial`). While it does not, the latch is *calm*: its front is plain (`parking`), it is passed
//! without anything here being asked, and only who had to wait for it comes here (`waited`), as every sixteenth begins a
//! trial, if it is time for one.
//!
//! # Invariants
//!
//! * I1  An elided pass has read the latch as free inside its transaction, so it is over before anybody
//!   holds the latch, or did not happen (H1, H2 of `htm::engine`). C1 and C2 of the contract follow: holders
//!   exclude each other as the real latch does, elided passes exclude them, and exclude each other as far
//!   as can be told (I2 of `htm`).
//! * I2  Who passes and finds the latch free is inside a transaction, and otherwise holds it: nobody else
//!   can have freed it. So `release` needs no mark.
//! * I3  No latch that elides is passed inside a transaction: that aborts it, and who began it takes the
//!   latch. Otherwise a thread could pass one latch twice, as it is free to look at, and have the value
//!   twice by `&mut`. A calm one may be passed inside another's transaction: it is taken there, and seen to be.
//! * I4  Only the holder of the real latch writes `rest`, and whether the front is plain: so there is one writer, and no
//!   transaction that is going to commit has the line in its read set, which a write would abort.
//! * I5  An elided pass has read inside its transaction that the front is not plain, so it is not until the end. So who gives back
//!   what is plain holds it.
//!
//! # Against the lemmings
//!
//! One abort takes the latch, which aborts all others; if each of them took the latch in turn, the next
//! would find it held again, and nobody would ever elide [001 §2.2]. So an abort because the latch was held
//! counts for nothing: the thread waits until it is free, and tries again. Over a latch whose waiters sleep, one
//! that was held for all of a wait's patience is slept for and had on waking, which no other pass is made to pay
//! for; and each wait has patience of its own, so that whoever is only late a few times sleeps for none of them.
//!
//! # Differences from the paper
//!
//! Its emulation of lock elision by RTM [001 Algorithm 1] reads the latch at the end too, and aborts if it
//! is held; here that cannot be (I1). A latch held at the beginning aborts at once, not at the next `pause`.
//! Its latches may be nested; these may not (I3), since an elided latch does not appear as held to who
//! passes it, which the document notes and leaves at that.

mod policy;
mod raw;

#[cfg(any(test, loom, feature = "emulated"))]
mod alone;

#[cfg(any(test, loom))]
#[cfg_attr(
    not(loom),
    expect(unreachable_pub, reason = "public to the models in tests/")
)]
pub mod model;

#[cfg(feature = "emulated")]
mod emulated;

#[cfg(all(test, not(loom)))]
mod tests;

use super::Kind;
use super::parking::Parking;
use super::queue::Node;
use super::spin::Spin;
use crate::backoff::Backoff;
use crate::htm::backend::{BUSY, Engine};
use crate::htm::{SITES, Watch, Way};
#[cfg(all(test, not(loom)))]
use crate::shim::Mutex;
use crate::shim::{AtomicU8, Ordering, hint};
use crate::site::{Component, Pattern, Site};
use crate::worker::Worker;
use policy::{Next, Policy, Why};
use raw::Raw;
#[cfg(all(test, not(loom)))]
use std::collections::VecDeque;

#[cfg(not(feature = "emulated"))]
type Native = crate::htm::Rtm;
#[cfg(feature = "emulated")]
type Native = emulated::Emulated;

/// What latches elide by here, if by anything.
fn native() -> Option<Native> {
    #[cfg(not(feature = "emulated"))]
    return crate::htm::rtm().ok();
    #[cfg(feature = "emulated")]
    return crate::htm::switch().ok().map(|()| Native::default());
}

/// Ending a turn of passes of a latch that adapts.
static TRIAL: Site = Site::new(Component::Latch, Pattern::Unbounded, "trial of elision");

/// What is done not to take a latch.
#[derive(Debug)]
pub(super) struct Elided<E = Native> {
    engine: E,
    policy: Policy,
    /// The number of its site.
    site: u8,
    /// The passes that are not to try; while it is calm, those that have waited.
    rest: AtomicU8,
    flag: Spin,
    #[cfg(all(test, not(loom)))]
    told: Option<Mutex<VecDeque<bool>>>,
}

/// Passes that wait for a calm latch before it is asked whether trying may be worth it.
const WAITS: u32 = if cfg!(loom) { 1 } else { 16 };

/// What came of trying not to take the latch.
enum Attempt {
    /// The caller is in a transaction.
    Inside,
    /// Somebody holds the latch.
    Held,
    /// Take it.
    Take(Why),
}

impl Elided {
    /// A latch of `kind` at `site`, if there is something here to elide it by.
    pub(super) fn here(kind: Kind, site: &'static Site) -> Option<Self> {
        native().map(|engine| Self::over(engine, Policy::of(kind), site))
    }
}

impl<E: Engine> Elided<E> {
    fn over(engine: E, policy: Policy, site: &'static Site) -> Self {
        Self {
            engine,
            policy,
            site: site.number(SITES) as u8,
            rest: AtomicU8::new(0),
            flag: Spin::tas_t(),
            #[cfg(all(test, not(loom)))]
            told: None,
        }
    }

    /// Whether it begins calm. Models begin in the middle of a trial.
    pub(super) fn begins_calm(&self) -> bool {
        self.policy == Policy::Adaptive && !cfg!(loom)
    }

    /// The latch that it is over.
    #[inline(always)]
    fn raw<'a>(&'a self, front: &'a Parking) -> Raw<'a> {
        #[cfg(all(test, not(loom)))]
        if let Some(looks) = &self.told {
            return Raw::Told(looks);
        }
        match self.policy {
            Policy::Once | Policy::Retry100 => Raw::Spin(&self.flag),
            Policy::Cooldown | Policy::Adaptive => Raw::Parking(front),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.policy.kind()
    }

    /// As [`Latch::try_acquire`](super::Latch::try_acquire).
    ///
    /// # Safety
    ///
    /// That of the contract.
    pub(super) unsafe fn try_acquire(&self, front: &Parking, worker: &Worker, node: &Node) -> bool {
        let raw = self.raw(front);
        let try_raw = || self.engine.exclusively_now(|| raw.try_acquire(node));
        if front.is_plain() {
            return try_raw();
        }
        self.engine.leave_others(); // I3
        let way = self.way(worker);
        let passed = match way {
            Way::Calm => {
                let taken = try_raw();
                if taken {
                    self.calm(front, worker);
                }
                return taken;
            }
            Way::Taken => try_raw(),
            Way::Tried => match self.attempt(front, worker) {
                Attempt::Inside => true,
                Attempt::Held => false,
                Attempt::Take(why) => self.took_if(try_raw(), worker, why),
            },
        };
        if !passed && self.policy == Policy::Adaptive {
            // Not counted: if the caller waits, that counts anew.
            worker.tally().take_back(self.site(), way);
        }
        passed
    }

    /// Whether this pass takes the latch as if there were no transactions, since trying does not pay.
    #[inline(always)]
    fn way(&self, worker: &Worker) -> Way {
        if self.policy != Policy::Adaptive {
            return Way::Tried;
        }
        let way = worker.tally().next_way(self.site());
        way.unwrap_or_else(|| self.way_of_next_turn(worker))
    }

    #[cold]
    fn way_of_next_turn(&self, worker: &Worker) -> Way {
        worker.account().passed(&TRIAL);
        let now = self.engine.now();
        match (worker.trials()).next_turn(worker.turns(), self.site(), now) {
            0 => Way::Calm,
            passes => worker.tally().grant(self.site(), passes),
        }
    }

    /// The caller holds the real latch: from now on it is that and nothing else.
    fn calm(&self, front: &Parking, worker: &Worker) {
        worker.tally().real();
        self.set_rest(0);
        front.set_plain(true);
    }

    /// The caller holds the real latch, and had to wait for it while it was calm.
    fn waited(&self, front: &Parking, worker: &Worker) {
        if !front.is_plain() {
            return;
        }
        let waits = self.rest() + 1;
        if waits < WAITS {
            return self.set_rest(waits);
        }
        self.set_rest(0);
        if worker.trials().are_worth_it(self.site(), self.engine.now()) {
            front.set_plain(false);
        }
    }

    #[inline(always)]
    fn site(&self) -> usize {
        usize::from(self.site)
    }

    /// Gives the latch back, or ends the transaction.
    ///
    /// # Safety
    ///
    /// The caller has acquired it, with this node.
    pub(super) unsafe fn release(&self, front: &Parking, watch: Watch<'_>, node: &Node) {
        let raw = self.raw(front);
        if self.engine.may_be_inside() && raw.is_free() {
            // SAFETY: the caller is in a transaction (I2), which it began by acquiring.
            unsafe { self.engine.end() }
            watch.committed();
        } else {
            // SAFETY: the caller holds the real latch (I2, I5).
            unsafe { raw.release(node) }
        }
    }

    /// Tries not to take the latch.
    #[inline]
    fn attempt(&self, front: &Parking, worker: &Worker) -> Attempt {
        if self.rest() > 0 {
            return Attempt::Take(Why::Resting);
        }
        let raw = self.raw(front);
        let watch = worker.watch();
        let mut failures = 0;
        loop {
            watch.start();
            let Err(abort) = self.engine.begin(|| raw.is_free() && !front.is_plain()) else {
                worker.tally().committed();
                return Attempt::Inside;
            };
            watch.aborted();
            worker.tally().aborted(abort.cause());
            match self.policy.after(abort, failures) {
                Next::Again => failures += 1,
                Next::WhenFree => {
                    worker.tally().busy();
                    return Attempt::Held;
                }
                Next::Take => return Attempt::Take(Why::GaveUp),
            }
            hint::spin_loop();
        }
    }

    #[inline(always)]
    fn rest(&self) -> u32 {
        // Relaxed: a hint for whoever does not hold the latch; who does is the only one to write it (I4).
        u32::from(self.rest.load(Ordering::Relaxed))
    }

    fn set_rest(&self, rest: u32) {
        self.rest.store(rest as u8, Ordering::Relaxed); // Relaxed: see `rest`.
    }

    #[inline]
    fn took_if(&self, taken: bool, worker: &Worker, why: Why) -> bool {
        if taken {
            self.took(worker, why);
        }
        taken
    }

    #[inline]
    fn took(&self, worker: &Worker, why: Why) {
        worker.tally().real();
        let before = self.rest();
        let after = self.policy.rest(before, why);
        if before != after {
            self.set_rest(after);
        }
    }

    /// As [`Latch::acquire`](super::Latch::acquire).
    ///
    /// # Safety
    ///
    /// That of the contract.
    #[cold]
    pub(super) unsafe fn acquire(&self, front: &Parking, worker: &Worker, node: &Node) {
        let raw = self.raw(front);
        let take = || self.engine.exclusively(|| raw.acquire(node));
        if front.is_plain() {
            take();
            return self.waited(front, worker);
        }
        self.engine.leave_others(); // I3
        match self.way(worker) {
            Way::Calm => {
                take();
                return self.calm(front, worker);
            }
            Way::Taken => return take(),
            Way::Tried => {}
        }
        let mut backoff = Backoff::new();
        loop {
            if front.is_plain() {
                return take();
            }
            while !raw.is_free() {
                // A model has no time to be patient in.
                if raw.sleeps() && (cfg!(loom) || backoff.is_yielding()) {
                    take();
                    return self.took(worker, Why::Waited);
                }
                backoff.snooze();
            }
            match self.attempt(front, worker) {
                Attempt::Inside => return,
                // Another holder, and so another wait.
                Attempt::Held => backoff = Backoff::new(),
                Attempt::Take(why) => {
                    let taken = self.engine.exclusively(|| raw.try_acquire(node));
                    if self.took_if(taken, worker, why) {
                        return;
                    }
                }
            }
        }
    }
}

// What the abort of a latch that is held means is the policy's to say; that it is this code is not.
const _: () = assert!(BUSY == 0xFF);
