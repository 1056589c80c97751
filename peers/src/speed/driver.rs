//! Clients in a closed loop, and what they get done while the clock runs.

use super::contract::{Attempt, Client, Job, READS, ROWS, Store, UPDATES};
use crate::{Outcome, rows::mix};
use std::{
    sync::{
        Barrier,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// How long, by how many, and what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) clients: usize,
    /// Transactions of a hundred that update.
    pub(crate) updating: u64,
    pub(crate) warm: Duration,
    pub(crate) measured: Duration,
    pub(crate) seed: u64,
}

/// What came of it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Count {
    /// Transactions that ended while the clock ran.
    pub(crate) committed: u64,
    /// Attempts that gave way while the clock ran.
    pub(crate) refused: u64,
    /// Increments committed, whether or not the clock ran.
    pub(crate) increments: u64,
}

const WARMING: u8 = 0;
const RUNNING: u8 = 1;
const ENDED: u8 = 2;

/// Runs `load`, and says what was counted in how long.
///
/// # Errors
///
/// What any client gets that is not a conflict, and a sum of marks that is wrong.
pub(crate) fn run(store: &dyn Store, load: &Load) -> Outcome<(Count, Duration)> {
    let (phase, ready) = (AtomicU8::new(WARMING), Barrier::new(load.clients + 1));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..load.clients)
            .map(|client| {
                let (phase, ready) = (&phase, &ready);
                scope.spawn(move || {
                    let made = store.client();
                    ready.wait();
                    work(made?.as_mut(), &mut Draw::new(load, client), phase)
                })
            })
            .collect();
        ready.wait();
        thread::sleep(load.warm);
        // Relaxed, here and below: the phase leads to no memory.
        phase.store(RUNNING, Relaxed);
        let begun = Instant::now();
        thread::sleep(load.measured);
        phase.store(ENDED, Relaxed);
        let took = begun.elapsed();
        let mut all = Count::default();
        for client in clients {
            let count = client.join().map_err(|_| "a client panicked")??;
            all.committed += count.committed;
            all.refused += count.refused;
            all.increments += count.increments;
        }
        Ok((all, took))
    })
}

fn work(client: &mut dyn Client, draw: &mut Draw, phase: &AtomicU8) -> Outcome<Count> {
    let mut count = Count::default();
    loop {
        let job = draw.job();
        let mut attempts = 0;
        loop {
            if phase.load(Relaxed) == ENDED {
                return Ok(count);
            }
            match client.attempt(&job)? {
                Attempt::Committed(marks) if marks == job.marks() => break,
                Attempt::Committed(_) => return Err("a transaction read something else".into()),
                Attempt::Refused => {}
            }
            count.refused += u64::from(phase.load(Relaxed) == RUNNING);
            attempts += 1;
            draw.pause(attempts);
        }
        count.committed += u64::from(phase.load(Relaxed) == RUNNING);
        count.increments += job.updates.map_or(0, |keys| keys.len() as u64);
    }
}

/// What a client draws: jobs, and how long to wait after a conflict.
struct Draw {
    state: u64,
    updating: u64,
}

impl Draw {
    fn new(load: &Load, client: usize) -> Draw {
        Draw {
            state: mix(load.seed ^ mix(client as u64)),
            updating: load.updating,
        }
    }

    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(1);
        ((u128::from(mix(self.state)) * u128::from(bound)) >> 64) as u64
    }

    fn job(&mut self) -> Job {
        let updates = self.below(100) < self.updating;
        let mut reads = [0; READS];
        reads.fill_with(|| self.below(ROWS));
        let updates = updates.then(|| self.distinct());
        Job { reads, updates }
    }

    fn distinct(&mut self) -> [u64; UPDATES] {
        loop {
            let mut keys = [0; UPDATES];
            keys.fill_with(|| self.below(ROWS));
            keys.sort_unstable();
            if keys.is_sorted_by(|one, next| one < next) {
                return keys;
            }
        }
    }

    /// After the first conflict the others go on; after more, a random time that grows to about a millisecond.
    fn pause(&mut self, attempts: u32) {
        match attempts {
            1 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(self.below(8 << attempts.min(7)))),
        }
    }
}
