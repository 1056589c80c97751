//! Storms: many threads that want the same few names, so that deadlocks are the rule.
//!
//! | storm | a transaction |
//! | --- | --- |
//! | `convert` | reads one row shared, as all others do, and then writes it |
//! | `update` | the same, but reads it for update, so that there are no deadlocks |
//! | `every-row` | writes each of a few rows, in random order |
//!
//! A victim is retried with the same rows, and knows how often it was a victim; at once, or after a
//! short random pause that grows, as in `Database::run`. Between two locks a thread yields its
//! processor, so that few processors show what many would.
//!
//! # Checks
//!
//! Each thread records the locks it held and requested, with moments of a shared clock. Afterwards
//! each report of a deadlock is compared with these records. Also, all transactions must be done,
//! no lock may be left in the manager, and it must have counted as many deadlocks as there were
//! victims. If threads hang, the error lists the waits.

/// Records of the locks that each transaction held and requested.
mod journal;

/// The threads.
mod crew;

/// Checks of the reports.
mod judge;

use std::{fmt, time::Duration};

use foxton::{LockManagerKind, VictimPolicy};

use super::error::BenchError;
use crate::{
    measure::spread::Spread,
    progress::Audience,
    system::{Locks, System},
};

/// The transactions of a storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Storm {
    /// Read one row shared, then write it.
    Convert,
    /// Read one row for update, then write it.
    Update,
    /// Write a few rows in random order.
    EveryRow,
}

foxton_sync::named_enum! {
    Storm, "storm":
    Convert = "convert",
    Update = "update",
    EveryRow = "every-row",
}

/// Settings of the storms.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Lock managers, by the names of the command line.
    pub locks: Vec<Locks>,
    /// The victim policies.
    pub victims: Vec<VictimPolicy>,
    /// The storms.
    pub storms: Vec<Storm>,
    /// Threads, each with one transaction after another.
    pub threads: u32,
    /// Rows that `every-row` writes.
    pub rows: u32,
    /// Time of each run.
    pub window: Duration,
    /// Least number of transactions of each thread, however long they take.
    pub least: u32,
    /// Runs of each kind.
    pub reps: u32,
    /// True to retry a victim at once, without a pause.
    pub at_once: bool,
    /// Seed of the orders.
    pub seed: u64,
}

/// Results of one storm over one manager under one policy.
#[derive(Debug, Clone)]
pub struct Found {
    /// The lock manager.
    pub locks: String,
    /// The victim policy.
    pub victim: VictimPolicy,
    /// The storm.
    pub storm: Storm,
    /// Commits a second over the runs.
    pub rate: Spread,
    /// Commits of all runs.
    pub commits: u64,
    /// Deadlocks of all runs, each with one victim and a right report.
    pub deadlocks: u64,
    /// Largest number of members of a cycle.
    pub longest_cycle: usize,
    /// The longest wait.
    pub longest_wait: Duration,
}

/// A failed check.
#[derive(Debug)]
pub struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The managers that are compared by default: all.
pub fn all_locks() -> Vec<Locks> {
    LockManagerKind::ALL.map(Locks::Manager).to_vec()
}

/// Runs every storm over every manager under every policy, in turn.
///
/// # Errors
///
/// If a check failed; the text names the storm and what is wrong.
pub fn run(settings: &Settings, audience: Audience) -> Result<Vec<Found>, BenchError> {
    settings.sound().map_err(BenchError::Settings)?;
    let mut found: Vec<Found> = Vec::new();
    let mut rates: Vec<Vec<f64>> = Vec::new();
    let runs = settings.runs();
    let what = format!("{runs} storms of {} threads", settings.threads);
    let progress = audience.count(&what, runs, "storms");
    for rep in 0..settings.reps {
        let mut at = 0;
        for &storm in &settings.storms {
            let pass = format!("{storm}, pass {} of {}", rep + 1, settings.reps);
            if audience == Audience::Log {
                audience.say(&pass);
            }
            for &locks in &settings.locks {
                for &victim in &settings.victims {
                    let system = System::new(locks, None).with_victim(victim);
                    progress.now(&format!("{pass}, {system}, victim {victim}"));
                    let (rate, one) = once(settings, &system, (storm, victim), rep.into())?;
                    progress.advance(1);
                    if rep == 0 {
                        found.push(one);
                        rates.push(vec![rate]);
                    } else {
                        found[at].add(&one);
                        rates[at].push(rate);
                    }
                    at += 1;
                }
            }
        }
    }
    for (found, rates) in found.iter_mut().zip(rates) {
        found.rate = Spread::new(rates);
    }
    Ok(found)
}

/// Threads of the largest storm. Each is a thread of the system.
pub const MOST_THREADS: u32 = 4_096;
/// Rows of the largest storm: every transaction of `every-row` locks them all, one after the other.
pub const MOST_ROWS: u32 = 10_000;
/// The longest run, because each thread records all its waits.
pub const LONGEST: Duration = Duration::from_secs(3_600);

impl Settings {
    /// Number of runs.
    fn runs(&self) -> u64 {
        let each = self.storms.len() * self.locks.len() * self.victims.len();
        each as u64 * u64::from(self.reps)
    }

    /// Checks that they agree with each other, and are within the limits.
    fn sound(&self) -> Result<(), String> {
        if self.locks.contains(&Locks::None) {
            return Err("--locks none has no deadlocks; name lock managers".to_owned());
        }
        let within = |name: &str, number: u32, most: u32| match (1..=most).contains(&number) {
            true => Ok(()),
            false => Err(format!("{name} {number} is out of range; give 1 to {most}")),
        };
        within("--threads", self.threads, MOST_THREADS)?;
        within("--rows", self.rows, MOST_ROWS)?;
        within("--reps", self.reps, u32::MAX)?;
        if self.window > LONGEST {
            let seconds = LONGEST.as_secs();
            return Err(format!(
                "a storm records every wait; give {seconds} or less with --seconds"
            ));
        }
        match self.window.is_zero() && self.least == 0 {
            true => Err("no transaction would run; give more than 0 with --seconds".to_owned()),
            false => Ok(()),
        }
    }
}

/// One run: commits a second, and the other results.
fn once(
    settings: &Settings,
    system: &System,
    (storm, victim): (Storm, VictimPolicy),
    rep: u64,
) -> Result<(f64, Found), BenchError> {
    let crew = crew::Crew {
        storm,
        threads: settings.threads,
        rows: settings.rows,
        window: settings.window,
        least: settings.least,
        at_once: settings.at_once,
        seed: [settings.seed, rep],
    };
    let came = crew::send(crew, system.manager())?.come_back();
    let found = came.and_then(|came| judged(system, (storm, victim), &came));
    found.map_err(|Wrong(what)| {
        let run = format!("{storm} over {system} with victim {victim}");
        BenchError::Failed(format!("{run}: {what}"))
    })
}

/// Checks the records, and returns the results.
fn judged(
    system: &System,
    (storm, victim): (Storm, VictimPolicy),
    came: &crew::Came,
) -> Result<(f64, Found), Wrong> {
    let judged = judge::judge(&came.journals, victim, !reorders(system))?;
    if judged.reports != came.counted {
        let (reports, counted) = (judged.reports, came.counted);
        let what = format!("there were {reports} victims, and the manager counted {counted}");
        return Err(Wrong(what));
    }
    if storm == Storm::Update && judged.reports > 0 {
        let what = format!("{} deadlocks among readers for update", judged.reports);
        return Err(Wrong(what));
    }
    let found = Found {
        locks: system.manager_name(),
        victim,
        storm,
        rate: Spread::default(),
        commits: judged.commits,
        deadlocks: judged.reports,
        longest_cycle: judged.longest_cycle,
        longest_wait: judged.longest_wait,
    };
    Ok((judged.commits as f64 / came.took.as_secs_f64(), found))
}

/// True if later requests may be granted before earlier ones.
fn reorders(system: &System) -> bool {
    system.manager().kind().max_overtaken() > 0
}

impl Found {
    fn add(&mut self, more: &Found) {
        self.commits += more.commits;
        self.deadlocks += more.deadlocks;
        self.longest_cycle = self.longest_cycle.max(more.longest_cycle);
        self.longest_wait = self.longest_wait.max(more.longest_wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(storms: &[Storm], victims: &[VictimPolicy], threads: u32, least: u32) -> Settings {
        Settings {
            locks: all_locks(),
            victims: victims.to_vec(),
            storms: storms.to_vec(),
            threads,
            rows: 4,
            window: Duration::ZERO,
            least,
            reps: 1,
            at_once: true,
            seed: 1,
        }
    }

    /// Every storm, over every manager and under every policy: all transactions are done, and each
    /// report is right. The managers have their storms at the same time, because a storm spends
    /// most of its time yielding its processor; one after the other, they would take long on a busy
    /// machine.
    #[test]
    fn few_threads_get_through_every_storm() {
        let over = |locks: Locks| {
            let settings = Settings {
                locks: vec![locks],
                ..settings(&Storm::ALL, &VictimPolicy::ALL, 4, 10)
            };
            let all = run(&settings, Audience::Nobody).unwrap();
            assert_eq!(all.len(), Storm::ALL.len() * VictimPolicy::ALL.len());
            for found in all {
                assert_eq!(found.commits, 4 * 10, "{found:?}");
            }
        };
        std::thread::scope(|scope| {
            for locks in all_locks() {
                scope.spawn(move || over(locks));
            }
        });
    }

    #[test]
    fn a_manager_that_counts_another_number_of_deadlocks_is_noticed() {
        let system = System::new(all_locks()[0], None);
        let came = |counted| crew::Came {
            journals: Vec::new(),
            took: Duration::from_secs(1),
            counted,
        };
        let judged = |counted| {
            let what = (Storm::Convert, VictimPolicy::default());
            judged(&system, what, &came(counted)).map(|(_, found)| found.deadlocks)
        };
        assert_eq!(judged(0).unwrap(), 0);
        let wrong = judged(1).unwrap_err().to_string();
        assert!(wrong.contains("the manager counted 1"), "{wrong}");
    }

    #[test]
    fn storms_out_of_range_are_refused_with_the_option_to_change() {
        let sound = settings(&[Storm::Convert], &[VictimPolicy::default()], 1, 1);
        assert_eq!(sound.sound(), Ok(()));
        let refused = |change: &dyn Fn(&mut Settings), words: &str| {
            let mut settings = sound.clone();
            change(&mut settings);
            let refused = run(&settings, Audience::Nobody).unwrap_err();
            assert!(matches!(&refused, BenchError::Settings(what) if what.contains(words)));
        };
        refused(&|it| it.locks = vec![Locks::None], "--locks none");
        refused(&|it| it.threads = 0, "--threads");
        refused(&|it| it.threads = MOST_THREADS + 1, "--threads");
        refused(&|it| it.rows = 0, "--rows");
        refused(&|it| it.rows = MOST_ROWS + 1, "--rows");
        refused(&|it| it.reps = 0, "--reps");
        refused(&|it| it.least = 0, "--seconds");
        refused(&|it| it.window = LONGEST * 2, "--seconds");
    }

    #[test]
    fn readers_who_write_the_same_row_deadlock_under_every_policy() {
        let storms = [Storm::Convert, Storm::Update];
        let settings = settings(&storms, &VictimPolicy::ALL, 24, 1);
        let found = run(&settings, Audience::Nobody).unwrap();
        assert!(found.iter().all(|found| found.commits == 24));
    }

    /// Under the default policy: frequent victims are spared. `requester` has no such memory; with
    /// so many threads that retry at once, it needs thousands of deadlocks for a commit.
    #[test]
    fn far_more_threads_than_processors_each_get_every_row() {
        let settings = settings(&[Storm::EveryRow], &[VictimPolicy::default()], 16, 1);
        let found = run(&settings, Audience::Nobody).unwrap();
        assert!(found.iter().all(|found| found.commits == 16));
    }
}
