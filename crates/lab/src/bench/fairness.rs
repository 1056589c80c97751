//! Readers that overlap, and writers that want the same name.
//!
//! A writer should wait for the readers before it and for no later ones. The test counts later
//! readers by the knowledge of the threads. A reader has overtaken a writer if it requested the
//! lock during a wait of that writer, and has the lock while the same wait continues. This needs no
//! clock: while the reader has the name, the writer cannot have it.
//!
//! Readers are *plain* or *awaited*. An awaited reader first takes one of a few other names
//! exclusively, so that more readers wait for it there. An order that regards how many wait for a
//! transaction grants such readers before the writers. It may overtake each writer eight times, or
//! as often as there were requests before it when it came; the order of arrival never may. With
//! `direct`, writers overtake sleeping waiters, but readers overtake none.
//!
//! In the results, *passed* means overtaken.

use std::{
    thread,
    time::{Duration, Instant},
};

use foxton::LockManagerKind;
use foxton_lock::{
    any::AnyManager,
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::Name,
    owner::Owner,
    request::{Outcome, Reply, WaitMode},
};
use foxton_sync::{
    shim::{AtomicU64, Ordering},
    worker::{Worker, Workers},
};

use super::{alone, error::BenchError};
use crate::{
    progress::Audience,
    random::Random,
    system::{Locks, System},
    threads,
};

/// Settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Lock managers, by the names of the command line.
    pub locks: Vec<Locks>,
    /// Number of reading threads.
    pub readers: u32,
    /// Number of writing threads.
    pub writers: u32,
    /// Time of each run.
    pub window: Duration,
    /// Least number of turns of each writer.
    pub least: u32,
    /// Runs of each kind.
    pub reps: u32,
    /// Seed of the other names.
    pub seed: u64,
}

/// Results of one manager with readers of one kind.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The lock manager.
    pub locks: String,
    /// True if other readers wait for the readers.
    pub awaited: bool,
    /// Most times that a writer may be overtaken in one wait.
    pub bound: u64,
    /// Most times that a writer was overtaken in one wait.
    pub passed: u64,
    /// Waits of writers.
    pub waits: u64,
    /// Waits in which a writer was overtaken.
    pub passed_waits: u64,
    /// The longest wait of a writer.
    pub longest_write: Duration,
    /// The longest wait of a reader for the writers' name.
    pub longest_read: Duration,
    /// Reads of all runs.
    pub reads: u64,
    /// Writes of all runs.
    pub writes: u64,
}

/// Longer than any machine needs; a longer wait is not a wait for readers.
const GRACE: Duration = Duration::from_secs(300);
/// Names that awaited readers take first.
const SIDES: usize = 4;
/// Number of times that a reader yields the processor while it reads.
const PAUSES: u32 = 3;

const TABLE: Name = Name::table(1);
const READ: Mode = Mode::key(KeyPart::S, GapPart::None);
const WRITE: Mode = Mode::key(KeyPart::X, GapPart::None);

/// Runs readers of both kinds over every manager, in turn.
///
/// # Errors
///
/// If a writer was overtaken more often than it may be, or a thread waited for minutes.
pub fn run(settings: &Settings, audience: Audience) -> Result<Vec<Found>, BenchError> {
    settings.sound().map_err(BenchError::Settings)?;
    let mut found: Vec<Found> = Vec::new();
    for rep in 0..settings.reps {
        let mut at = 0;
        for awaited in [false, true] {
            let (kind, pass) = (kind(awaited), rep + 1);
            audience.say(&format!("{kind} readers, pass {pass} of {}", settings.reps));
            for &locks in &settings.locks {
                let system = System::new(locks, None);
                let one = once(settings, &system, awaited, rep)?;
                match found.get_mut(at) {
                    Some(found) => found.add(&one),
                    None => found.push(one),
                }
                at += 1;
            }
        }
    }
    Ok(found)
}

fn kind(awaited: bool) -> &'static str {
    if awaited { "awaited" } else { "plain" }
}

impl Settings {
    /// Checks that they agree with each other.
    fn sound(&self) -> Result<(), String> {
        if self.locks.contains(&Locks::None) {
            return Err("--locks none has no waits; name lock managers".to_owned());
        }
        match self.readers > 0 && self.writers > 0 {
            true => Ok(()),
            false => {
                Err("without readers and writers there are no waits; give 1 or more with --readers and --writers".to_owned())
            }
        }
    }
}

/// The part of a thread.
enum Role<'a> {
    /// Reads, with this generator; true if other readers are to wait for it.
    Reader(Random, bool),
    /// Writes, and publishes its waits.
    Writer(&'a Watched),
}

fn once(
    settings: &Settings,
    system: &System,
    awaited: bool,
    rep: u32,
) -> Result<Found, BenchError> {
    let kind = kind(awaited);
    let failed = |what| BenchError::Failed(format!("{kind} readers over {system}: {what}"));
    let locks = system.manager();
    let manager = locks.kind();
    let bound = match manager {
        // If no transaction waits for a reader, the order grants none before a writer.
        LockManagerKind::Sharded | LockManagerKind::ShardedGlobalLatch if awaited => {
            let others = settings.readers + settings.writers - 1;
            u64::from(manager.max_overtaken().max(others))
        }
        _ => 0,
    };
    let names = alone::names(0, 1 + SIDES);
    let ring = Ring {
        workers: Workers::with_seed(settings.seed),
        writers: (0..settings.writers).map(|_| Watched::default()).collect(),
        hot: names[0],
        sides: names[1..].to_vec(),
        writing: AtomicU64::new(settings.writers.into()),
        locks,
        end: Instant::now() + settings.window,
    };
    let ring = &ring;
    let readers = (0..settings.readers).map(|number| {
        let random = Random::seeded(&[settings.seed, rep.into(), number.into()]);
        Role::Reader(random, awaited)
    });
    let writers = ring.writers.iter().map(Role::Writer);
    let role = |role| move || ring.play(role, settings.least);
    let (ended, ()) = threads::together(readers.chain(writers).map(role).collect(), || ())?;
    let mut found = Found::default();
    for one in ended {
        found.add(&one.map_err(failed)?);
    }
    found.locks = system.manager_name();
    (found.awaited, found.bound) = (awaited, bound);
    match found.passed <= bound {
        true => Ok(found),
        false => Err(failed(format!(
            "a writer was overtaken {} times in one wait, and may be {bound} times",
            found.passed
        ))),
    }
}

impl Found {
    fn add(&mut self, more: &Found) {
        self.passed = self.passed.max(more.passed);
        self.waits += more.waits;
        self.passed_waits += more.passed_waits;
        self.longest_write = self.longest_write.max(more.longest_write);
        self.longest_read = self.longest_read.max(more.longest_read);
        self.reads += more.reads;
        self.writes += more.writes;
    }
}

/// The published state of a writer.
#[derive(Debug, Default)]
struct Watched {
    /// Odd from the beginning of a wait to its end; never the same value twice.
    moment: AtomicU64,
    /// Number of times it was overtaken in the current wait.
    passed: AtomicU64,
}

impl Watched {
    // O1: a reader that sees a moment (Acquire) within a wait requests the lock after the writer
    // that published the moment (Release) was in its queue.
    fn begins(&self) {
        self.passed.store(0, Ordering::Relaxed); // Nobody counts before the next store is seen (O1).
        self.moment.fetch_add(1, Ordering::Release); // O1
    }

    /// Ends the wait and returns how often the writer was overtaken. The lock is held, so no reader
    /// counts any more.
    fn ends(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::Release);
        self.passed.load(Ordering::Relaxed)
    }

    fn moment(&self) -> u64 {
        self.moment.load(Ordering::Acquire) // O1
    }

    /// Counts a reader that holds the name and requested it at `asked`.
    fn held_by_other(&self, asked: u64) {
        if asked % 2 == 1 && self.moment() == asked {
            self.passed.fetch_add(1, Ordering::Relaxed); // Read once the lock has gone from us to it.
        }
    }
}

/// When it is dropped, a writer is done or has failed, so readers need not continue for it.
struct Done<'a>(&'a AtomicU64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed); // Nothing else is known by it.
    }
}

/// Readers and writers of one name.
///
/// Writers continue until each has waited, so that there is something to count. Readers continue
/// until all writers are done, so that there is something to wait for.
struct Ring {
    /// Writers that are not done.
    writing: AtomicU64,
    locks: AnyManager,
    workers: Workers,
    writers: Vec<Watched>,
    hot: Name,
    sides: Vec<Name>,
    end: Instant,
}

impl Ring {
    fn play(&self, role: Role<'_>, least: u32) -> Result<Found, String> {
        match role {
            Role::Reader(random, awaited) => self.reader(random, awaited, least),
            Role::Writer(watched) => {
                let _done = Done(&self.writing);
                self.writer(watched, least)
            }
        }
    }

    /// True if a writer still needs readers to wait for.
    fn is_awaited(&self) -> bool {
        self.writing.load(Ordering::Relaxed) > 0 // Nothing else is known by it.
    }

    fn reader(&self, mut random: Random, awaited: bool, least: u32) -> Result<Found, String> {
        let worker = self.workers.worker();
        let (mut owner, mut found) = (self.locks.owner(), Found::default());
        let mut asked = vec![0; self.writers.len()];
        while found.reads < least.into() || self.is_awaited() || Instant::now() < self.end {
            owner.begin();
            if awaited {
                let side = random.uniform(0, self.sides.len() as u64 - 1) as usize;
                self.take(&worker, &mut owner, TABLE, Mode::IX)?;
                self.take(&worker, &mut owner, self.sides[side], WRITE)?;
            } else {
                self.take(&worker, &mut owner, TABLE, Mode::IS)?;
            }
            for (asked, writer) in asked.iter_mut().zip(&self.writers) {
                *asked = writer.moment();
            }
            let waited = self.take(&worker, &mut owner, self.hot, READ)?;
            for (&asked, writer) in asked.iter().zip(&self.writers) {
                writer.held_by_other(asked);
            }
            found.longest_read = found.longest_read.max(waited);
            (0..PAUSES).for_each(|_| thread::yield_now());
            self.locks.release_all(&worker, &mut owner);
            found.reads += 1;
        }
        Ok(found)
    }

    fn writer(&self, watched: &Watched, least: u32) -> Result<Found, String> {
        let worker = self.workers.worker();
        let (mut owner, mut found) = (self.locks.owner(), Found::default());
        while found.writes < least.into() || found.waits == 0 || Instant::now() < self.end {
            owner.begin();
            self.take(&worker, &mut owner, TABLE, Mode::IX)?;
            let began = Instant::now();
            let reply = (self.locks).request(&worker, &mut owner, self.hot, WRITE, WaitMode::Wait);
            if matches!(reply, Reply::Waiting) {
                watched.begins();
                let outcome = self.locks.wait(&worker, &mut owner, Some(began + GRACE));
                let passed = watched.ends();
                granted(outcome)?;
                found.waits += 1;
                found.passed_waits += u64::from(passed > 0);
                found.passed = found.passed.max(passed);
            }
            found.longest_write = found.longest_write.max(began.elapsed());
            self.locks.release_all(&worker, &mut owner);
            found.writes += 1;
            thread::yield_now();
        }
        Ok(found)
    }

    /// Takes `name`, and returns how long that took.
    fn take(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
    ) -> Result<Duration, String> {
        let began = Instant::now();
        granted((self.locks).lock(worker, owner, name, mode, Some(began + GRACE)))?;
        Ok(began.elapsed())
    }
}

fn granted(outcome: Outcome) -> Result<(), String> {
    outcome
        .refusal()
        .map_or(Ok(()), |refusal| Err(refusal.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_overtaken_at_most_as_often_as_they_may_be_over_every_manager() {
        let settings = Settings {
            locks: LockManagerKind::ALL.map(Locks::Manager).to_vec(),
            readers: 8,
            writers: 2,
            window: Duration::ZERO,
            least: 50,
            reps: 1,
            seed: 1,
        };
        let found = run(&settings, Audience::Nobody).unwrap();
        assert_eq!(found.len(), 2 * LockManagerKind::ALL.len());
        for found in found {
            assert!(found.reads >= 8 * 50 && found.writes >= 2 * 50, "{found:?}");
            // Both writers have waited: without waits any bound would hold.
            assert!(found.waits >= 2, "{found:?}");
            let bound = match found.locks.as_str() {
                // Eight readers and another writer may have been before it.
                "sharded" | "sharded:global-latch" if found.awaited => 9,
                _ => 0,
            };
            assert_eq!(found.bound, bound, "{found:?}");
        }
    }

    #[test]
    fn settings_that_measure_nothing_are_refused() {
        let settings = |locks, readers, writers| Settings {
            locks: vec![locks],
            readers,
            writers,
            window: Duration::ZERO,
            least: 1,
            reps: 1,
            seed: 1,
        };
        let refused = [
            (settings(Locks::None, 1, 1), "--locks none"),
            (settings(Locks::Default, 0, 1), "--readers"),
            (settings(Locks::Default, 1, 0), "--writers"),
        ];
        for (settings, words) in refused {
            let refused = run(&settings, Audience::Nobody).unwrap_err();
            assert!(matches!(&refused, BenchError::Settings(what) if what.contains(words)));
        }
    }

    #[test]
    fn a_reader_that_overtakes_a_current_wait_is_counted() {
        let writer = Watched::default();
        writer.held_by_other(writer.moment());
        writer.begins();
        let asked = writer.moment();
        writer.held_by_other(asked);
        writer.held_by_other(asked);
        assert_eq!(writer.ends(), 2);
        writer.begins();
        writer.held_by_other(asked);
        assert_eq!(writer.ends(), 0, "that wait has ended");
    }
}
