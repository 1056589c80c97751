//! Clients in a closed loop, and what they get done while the clock runs.

use crate::{Outcome, rows::mix};
use std::{
    sync::{
        Barrier,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// How long, and by how many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) clients: usize,
    pub(crate) warm: Duration,
    pub(crate) measured: Duration,
    pub(crate) seed: u64,
}

/// Its outcome.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Count {
    /// Transactions that ended while the clock ran.
    pub(crate) committed: u64,
    /// Attempts that gave way while the clock ran.
    pub(crate) refused: u64,
    /// Changes committed, whether or not the clock ran.
    pub(crate) changes: u64,
}

/// One transaction of a client.
pub(crate) trait Worker {
    /// Draws the next transaction.
    fn draw(&mut self);

    /// Runs what was drawn, once: how many changes it made, or `None` if it gave way to another.
    fn attempt(&mut self) -> Outcome<Option<u64>>;
}

/// Makes a worker for the client of this number, on its thread.
pub(crate) type Make<'m> = dyn Fn(usize) -> Outcome<Box<dyn Worker + 'm>> + Sync + 'm;

const WARMING: u8 = 0;
const RUNNING: u8 = 1;
const ENDED: u8 = 2;

/// Runs `load`, and says what was counted in how long.
///
/// # Errors
///
/// The first error of any client that is not a conflict.
pub(crate) fn run(load: &Load, make: &Make<'_>) -> Outcome<(Count, Duration)> {
    let (phase, ready) = (AtomicU8::new(WARMING), Barrier::new(load.clients + 1));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..load.clients)
            .map(|client| {
                let (phase, ready) = (&phase, &ready);
                scope.spawn(move || {
                    let made = make(client);
                    ready.wait();
                    work(made?.as_mut(), Draw::new(load.seed, client), phase)
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
            all.changes += count.changes;
        }
        Ok((all, took))
    })
}

fn work(worker: &mut dyn Worker, mut pauses: Draw, phase: &AtomicU8) -> Outcome<Count> {
    let mut count = Count::default();
    loop {
        worker.draw();
        let mut attempts = 0;
        let changes = loop {
            if phase.load(Relaxed) == ENDED {
                return Ok(count);
            }
            if let Some(changes) = worker.attempt()? {
                break changes;
            }
            count.refused += u64::from(phase.load(Relaxed) == RUNNING);
            attempts += 1;
            pauses.pause(attempts);
        };
        count.committed += u64::from(phase.load(Relaxed) == RUNNING);
        count.changes += changes;
    }
}

/// Numbers as a client draws them, the same for the same seed and client.
#[derive(Debug, Clone)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64, client: usize) -> Draw {
        Draw(mix(seed ^ mix(client as u64)))
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        ((u128::from(mix(self.0)) * u128::from(bound)) >> 64) as u64
    }

    /// After the first conflict the others go on; after more, a random time that grows to about a
    /// millisecond.
    fn pause(&mut self, attempts: u32) {
        match attempts {
            1 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(self.below(8 << attempts.min(7)))),
        }
    }
}
