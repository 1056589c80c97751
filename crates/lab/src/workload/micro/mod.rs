//! Small structures that threads share behind latches: the isolated use cases of document 001,
//! section 3.3.
//!
//! Each operation acquires one latch or two and does little under it, so that the latch is
//! measured, and contention for the data it protects. Memory is allocated before a latch is
//! acquired and freed after its release, because an allocator inside a hardware transaction aborts
//! it sooner or later.
//!
//! Each structure checks itself when all threads are done.

/// Accounts.
pub mod bank;

/// Counters, near each other or not.
pub mod counter;

/// A doubly linked list behind one latch.
pub mod list;

/// Chains in buckets.
pub mod hashmap;

use std::{collections::VecDeque, fmt, ops::AddAssign};

use foxton_sync::{
    site::{Component, Pattern, Site},
    worker::Worker,
};

use crate::random::Random;

static SITE: Site = Site::new(
    Component::Latch,
    Pattern::Unbounded,
    "a latch being measured",
);

/// A structure behind latches.
pub trait Structure: fmt::Debug + Send + Sync {
    /// Does `count` operations, drawn by `hand`.
    fn operate(&self, hand: &mut Hand, count: u64);

    /// Checks the structure after the work of all hands.
    ///
    /// # Errors
    ///
    /// The error, in words.
    fn check(&self, worker: &Worker, done: Done) -> Result<(), String>;
}

/// State of one thread.
#[derive(Debug)]
pub struct Hand {
    /// The thread's worker for latches.
    pub worker: Worker,
    /// The thread's number, from 0.
    pub number: usize,
    /// Counts of its operations.
    pub done: Done,
    random: Random,
    /// Values that it has inserted and not removed yet, the oldest first.
    inserted: VecDeque<u32>,
    /// Places in a list that it may fill.
    places: Vec<u32>,
}

/// Counts of operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Operations in all.
    pub operations: u64,
    /// Operations that inserted a value.
    pub inserted: u64,
    /// Operations that removed a value.
    pub removed: u64,
}

impl AddAssign for Done {
    fn add_assign(&mut self, other: Done) {
        self.operations += other.operations;
        self.inserted += other.inserted;
        self.removed += other.removed;
    }
}

impl Hand {
    /// Thread `number`, which draws the same operations whenever `seed` is the same.
    pub fn new(worker: Worker, number: usize, seed: u64) -> Hand {
        let name = u64::from_be_bytes(*b"latches_");
        Hand {
            worker,
            number,
            done: Done::default(),
            random: Random::seeded(&[seed, name, number as u64]),
            inserted: VecDeque::new(),
            places: Vec::new(),
        }
    }
}

/// Kind of the next operation on a set.
enum Step {
    Insert,
    Remove(u32),
    Look,
}

impl Hand {
    /// Searches with a probability of `reads` percent. The rest inserts, or removes its own values,
    /// oldest first, half each. With nothing to remove it searches.
    fn step(&mut self, reads: u32) -> Step {
        if self.random.percent(reads) {
            return Step::Look;
        }
        match self.random.percent(50) {
            true => Step::Insert,
            false => match self.inserted.pop_front() {
                Some(value) => Step::Remove(value),
                None => Step::Look,
            },
        }
    }
}

/// One on a line of its own, like a bucket of the lock manager.
#[derive(Debug)]
#[repr(align(64))]
struct OneLine<T>(T);

/// Checks that the structure has the values loaded and inserted, less those removed.
fn as_many(found: usize, loaded: u32, done: Done) -> Result<(), String> {
    let due = u64::from(loaded) + done.inserted - done.removed;
    match found as u64 == due {
        true => Ok(()),
        false => Err(format!(
            "{found} values, but {loaded} were loaded, {} inserted and {} removed: {due} are expected",
            done.inserted, done.removed
        )),
    }
}
