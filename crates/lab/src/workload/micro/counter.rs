//! Counters that threads increment: one, or one for each processor [001 §3.3.2].

use std::{fmt, ptr};

use foxton_sync::{
    cache_line::CachePadded,
    latch::{Kind, Latched},
    worker::Worker,
};

use super::{Done, Hand, SITE, Structure};

/// Layout of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One counter with one latch.
    One,
    /// A counter and a latch for each processor, side by side in memory.
    Adjacent,
    /// A counter for each thread, each with its latch on lines of its own.
    Apart,
    /// Counters on lines of their own, with one latch for all.
    Global,
}

foxton_sync::named_enum! {
    Layout, "layout of counters":
    One = "one",
    Adjacent = "adjacent",
    Apart = "apart",
    Global = "global",
}

const LINE: usize = 64;
/// Each step advances by a multiple of eight bytes, and so repeats after some steps.
const SPARE: usize = LINE / 8;

/// Counters side by side from the beginning of a cache line, so that each run has the same number
/// on a line. Otherwise the allocator's placement would decide whether two of them share a line.
struct Beside {
    all: Vec<Latched<u64>>,
    first: usize,
}

impl Beside {
    fn new(count: usize, one: impl Fn(usize) -> Latched<u64>) -> Self {
        let all: Vec<_> = (0..count + SPARE).map(one).collect();
        let begins_a_line = |one: &Latched<u64>| ptr::from_ref(one).addr().is_multiple_of(LINE);
        let first = all[..SPARE].iter().position(begins_a_line).unwrap_or(0);
        Self { all, first }
    }

    fn counters(&self) -> &[Latched<u64>] {
        let count = self.all.len() - SPARE;
        &self.all[self.first..self.first + count]
    }
}

enum Counters {
    Adjacent(Beside),
    Apart(Vec<CachePadded<Latched<u64>>>),
    Global(CachePadded<Latched<Vec<CachePadded<u64>>>>),
}

/// Counters, incremented in a loop; thread i uses counter i modulo their number.
pub struct Counter(Counters);

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").finish_non_exhaustive()
    }
}

impl Counter {
    /// Counters at zero for `threads` threads, one in the layout that has one.
    pub fn new(layout: Layout, kind: Kind, count: usize) -> Counter {
        let one = |_: usize| Latched::new(kind, &SITE, 0);
        Counter(match layout {
            Layout::One => Counters::Adjacent(Beside::new(1, one)),
            Layout::Adjacent => Counters::Adjacent(Beside::new(count, one)),
            Layout::Apart => {
                let padded = (0..count).map(|at| CachePadded::new(one(at)));
                Counters::Apart(padded.collect())
            }
            Layout::Global => {
                let counters = (0..count).map(|_| CachePadded::new(0)).collect();
                Counters::Global(CachePadded::new(Latched::new(kind, &SITE, counters)))
            }
        })
    }
}

impl Structure for Counter {
    fn operate(&self, hand: &mut Hand, count: u64) {
        let (worker, number) = (&hand.worker, hand.number);
        let increment = |latched: &Latched<u64>| {
            for _ in 0..count {
                latched.with(worker, |counter| *counter += 1);
            }
        };
        match &self.0 {
            Counters::Adjacent(beside) => {
                let all = beside.counters();
                increment(&all[number % all.len()]);
            }
            Counters::Apart(all) => increment(&all[number % all.len()]),
            Counters::Global(latched) => {
                for _ in 0..count {
                    latched.with(worker, |all| {
                        let at = number % all.len();
                        *all[at] += 1;
                    });
                }
            }
        }
        hand.done.operations += count;
    }

    fn check(&self, worker: &Worker, done: Done) -> Result<(), String> {
        let of = |latched: &Latched<u64>| latched.with(worker, |counter| *counter);
        let sum: u64 = match &self.0 {
            Counters::Adjacent(beside) => beside.counters().iter().map(of).sum(),
            Counters::Apart(all) => all.iter().map(|padded| of(padded)).sum(),
            Counters::Global(latched) => {
                latched.with(worker, |all| all.iter().map(|counter| **counter).sum())
            }
        };
        match sum == done.operations {
            true => Ok(()),
            false => Err(format!(
                "the counters have {sum} after {} increments",
                done.operations
            )),
        }
    }
}
