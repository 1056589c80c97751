//! Small structures that threads share behind latches: the isolated use cases of document 001,
//! section 3.3.
//!
//! Each operation takes one latch or two and does little inside, so that what is measured is the
//! latch, and whether those who pass it meet in what it protects. Memory is allocated before a
//! latch is taken and freed after it was given back, since an allocator inside a transaction of the
//! processor aborts it sooner or later.
//!
//! Each structure knows what must be true of it when all threads are done.

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
    /// Does so many operations, drawn by `hand`.
    fn operate(&self, hand: &mut Hand, count: u64);

    /// Whether it is as it must be, now that all hands together have done this.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    fn check(&self, worker: &Worker, done: Done) -> Result<(), String>;
}

/// What one thread has of its own.
#[derive(Debug)]
pub struct Hand {
    /// Who it is to the latches.
    pub worker: Worker,
    /// The thread's number, from 0.
    pub number: usize,
    /// What it did.
    pub done: Done,
    random: Random,
    /// What it has inserted and not removed yet, the oldest first.
    inserted: VecDeque<u32>,
    /// Places in a list that it may fill.
    places: Vec<u32>,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Operations in all.
    pub operations: u64,
    /// Those that inserted something.
    pub inserted: u64,
    /// Those that removed something.
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

/// What an operation on a set is to be.
enum Step {
    Insert,
    Remove(u32),
    Look,
}

impl Hand {
    /// A share of `reads` in a hundred looks; the rest inserts and removes by halves, what it has
    /// inserted itself, the oldest first. With nothing to remove it looks.
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

/// One on a line of its own, as a bucket of the lock manager is.
#[derive(Debug)]
#[repr(align(64))]
struct OneLine<T>(T);

/// That there is as much as was loaded, and what came and went since.
fn as_many(found: usize, loaded: u32, done: Done) -> Result<(), String> {
    let due = u64::from(loaded) + done.inserted - done.removed;
    match found as u64 == due {
        true => Ok(()),
        false => Err(format!(
            "{found} values, where {loaded} were loaded, {} came and {} went: {due} are due",
            done.inserted, done.removed
        )),
    }
}
