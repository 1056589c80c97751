//! Readers that come and go so that there is always one, and writers who want the same name.
//!
//! A writer should wait for the readers before it and for no other, however many come after. That
//! is counted by what each thread knows: a reader that has the lock, and that asked for it when a
//! certain writer's wait had begun, has passed that writer if the same wait still goes on. This
//! needs no clock: while the reader has the name the writer cannot have it.
//!
//! Readers are *plain*, or *awaited*: then each takes one of a few other names first, alone, so
//! that more of them wait for it there. An order that regards who is waited for puts those before
//! the writers, and each writer may be passed eight times by that, or as often as others stood
//! before it when it came; in the order of arrival, never. Nor over `direct`, where writers pass
//! others in their sleep, but readers pass nobody.

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

/// What is measured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Lock managers, by the names of the command line.
    pub locks: Vec<Locks>,
    /// Threads that read.
    pub readers: u32,
    /// Threads that write.
    pub writers: u32,
    /// Time of each run.
    pub window: Duration,
    /// Turns of each writer at least.
    pub least: u32,
    /// Runs of each kind.
    pub reps: u32,
    /// Seed of the other names.
    pub seed: u64,
}

/// One manager, and readers of one kind.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The lock manager.
    pub locks: String,
    /// Whether others wait for the readers, too.
    pub awaited: bool,
    /// How often a writer may be passed in one wait.
    pub bound: u64,
    /// How often one was, at most.
    pub passed: u64,
    /// Waits of writers, and those in which they were passed.
    pub waits: u64,
    /// Waits in which somebody passed.
    pub passed_waits: u64,
    /// The longest wait of a writer, and of a reader for the same name.
    pub longest_write: Duration,
    /// The longest wait of a reader for the name that the writers want.
    pub longest_read: Duration,
    /// Reads of all runs.
    pub reads: u64,
    /// Writes of all runs.
    pub writes: u64,
}

/// Longer than any machine needs: who waits so long is not waiting for readers.
const GRACE: Duration = Duration::from_secs(300);
/// Names that awaited readers take first.
const SIDES: usize = 4;
/// How often a reader gives the processor away while it reads.
const PAUSES: u32 = 3;

const TABLE: Name = Name::table(1);
const READ: Mode = Mode::key(KeyPart::S, GapPart::None);
const WRITE: Mode = Mode::key(KeyPart::X, GapPart::None);

/// Runs readers of both kinds over every manager, in turn.
///
/// # Errors
///
/// If a writer was passed more often than it may be, or somebody waited for minutes.
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
    /// Whether they agree with each other.
    fn sound(&self) -> Result<(), String> {
        if self.locks.contains(&Locks::None) {
            return Err("--locks none has nobody wait: name lock managers".to_owned());
        }
        match self.readers > 0 && self.writers > 0 {
            true => Ok(()),
            false => {
                Err("nobody passes anybody: say 1 or more with --readers and --writers".to_owned())
            }
        }
    }
}

/// What a thread does.
enum Role<'a> {
    /// Reads, with this generator; whether others are to wait for it, too.
    Reader(Random, bool),
    /// Writes, and lets others know of its waits.
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
        // Where nobody waits for a reader, the order puts none before a writer.
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
            "a writer was passed {} times in one wait, and may be {bound} times",
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

/// What a writer lets others know.
#[derive(Debug, Default)]
struct Watched {
    /// Odd from the moment at which a wait has begun until it has ended; never the same twice.
    moment: AtomicU64,
    /// How often it was passed in the wait in progress.
    passed: AtomicU64,
}

impl Watched {
    // O1: who sees a moment (Acquire) that says that a wait goes on asks for the lock after whoever
    // said so (Release) stood in its queue.
    fn begins(&self) {
        self.passed.store(0, Ordering::Relaxed); // Nobody counts before the next store is seen (O1).
        self.moment.fetch_add(1, Ordering::Release); // O1
    }

    /// How often it was passed. The lock is held meanwhile, so nobody counts any more.
    fn ends(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::Release);
        self.passed.load(Ordering::Relaxed)
    }

    fn moment(&self) -> u64 {
        self.moment.load(Ordering::Acquire) // O1
    }

    /// The name is held by somebody who asked for it at `asked`.
    fn held_by_other(&self, asked: u64) {
        if asked % 2 == 1 && self.moment() == asked {
            self.passed.fetch_add(1, Ordering::Relaxed); // Read once the lock has gone from us to it.
        }
    }
}

/// When it goes, a writer is done, or has failed: readers need not go on for it.
struct Done<'a>(&'a AtomicU64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed); // Nothing else is known by it.
    }
}

/// Readers and writers around one name.
///
/// The writers go on until each has waited, so that there is something to be counted; the readers
/// until all writers have done with it, so that there is somebody to wait for.
struct Ring {
    /// Writers that have not done with it.
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

    /// Whether some writer still needs somebody to wait for.
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

    /// Takes `name`, and says how long that took.
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
    fn writers_are_passed_as_often_as_they_may_be_over_every_manager() {
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
            // Both writers have waited: a bound on what nobody met would hold of anything.
            assert!(found.waits >= 2, "{found:?}");
            let bound = match found.locks.as_str() {
                // Eight readers and another writer may have stood before it.
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
    fn whoever_passes_a_wait_that_goes_on_is_counted() {
        let writer = Watched::default();
        writer.held_by_other(writer.moment());
        writer.begins();
        let asked = writer.moment();
        writer.held_by_other(asked);
        writer.held_by_other(asked);
        assert_eq!(writer.ends(), 2);
        writer.begins();
        writer.held_by_other(asked);
        assert_eq!(writer.ends(), 0, "that wait is over");
    }
}
