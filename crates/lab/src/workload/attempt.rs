//! One transaction: run once, or retried with the same inputs until it commits.
//!
//! After a deadlock, a timeout or an overwritten row there is a short random pause that doubles
//! with each attempt, so that transactions that conflicted do not conflict again at once. Every
//! attempt is counted.
//!
//! # Isolation
//!
//! A transaction that only reads runs at the level of the database's options, which `--isolation`
//! sets. Any other is serializable, unless its workload says otherwise: then reads at snapshots are
//! serializable as well.

use std::{thread, time::Duration};

use foxton::{Database, Error, Isolation, Observe, Transaction, error::ConflictReason};

use crate::{
    measure::outcome::{Ended, Outcome},
    random::Random,
};

/// Planned end of a transaction. A body that always does its full work may return `()` instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Commit: it did its full work.
    Done,
    /// Commit: it found nothing, as expected.
    Missed,
    /// Roll back, and count it as a miss.
    UndoneMissed,
    /// Roll back, because the workload says so.
    Ruled,
}

impl From<()> for End {
    fn from((): ()) -> End {
        End::Done
    }
}

/// Failure of an attempt.
#[derive(Debug)]
pub enum Failure {
    /// The engine refused an operation.
    Engine(Error),
    /// The engine's answer is wrong.
    Wrong(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(error)
    }
}

const FIRST_PAUSE_MICROS: u64 = 50;
const LONGEST_PAUSE_MICROS: u64 = 10_000;

/// Returns the level of the database; if that is serializable, the one that a workload has chosen.
pub fn level(db: &Database, chosen: Isolation) -> Isolation {
    match db.options().isolation {
        Isolation::Serializable => chosen,
        asked => asked,
    }
}

/// Runs `body` in a transaction and ends it as `body` says. It retries until that succeeds, or
/// until a failure that a retry would not change. The kind is its index among `kinds`; in an
/// observed database it is the transaction's label too.
pub fn until_committed<E: Into<End>>(
    db: &Database,
    kind: (&[&'static str], usize),
    random: &mut Random,
    mut body: impl FnMut(&mut Transaction) -> Result<E, Failure>,
) -> Ended {
    until_ended(random, || once(db, kind, &mut body))
}

/// The same for a transaction that only reads.
pub fn until_read<E: Into<End>>(
    db: &Database,
    kind: (&[&'static str], usize),
    random: &mut Random,
    mut body: impl FnMut(&mut Transaction) -> Result<E, Failure>,
) -> Ended {
    until_ended(random, || once_read(db, kind, &mut body))
}

fn until_ended(random: &mut Random, mut once: impl FnMut() -> Ended) -> Ended {
    let (mut deadlocks, mut timeouts, mut overwritten) = (0, 0, 0);
    let mut longest = FIRST_PAUSE_MICROS;
    loop {
        let ended = once();
        match ended.outcome {
            Outcome::Deadlock => deadlocks += 1,
            Outcome::Timeout => timeouts += 1,
            Outcome::Overwritten => overwritten += 1,
            _ => {
                return Ended {
                    deadlocks,
                    timeouts,
                    overwritten,
                    ..ended
                };
            }
        }
        thread::sleep(Duration::from_micros(random.uniform(0, longest)));
        longest = (longest * 2).min(LONGEST_PAUSE_MICROS);
    }
}

/// The same with one attempt: for workloads that give up after a deadlock, or draw other inputs.
pub fn once<E: Into<End>>(
    db: &Database,
    kind: (&[&'static str], usize),
    body: impl FnOnce(&mut Transaction) -> Result<E, Failure>,
) -> Ended {
    once_at(db, kind, Isolation::Serializable, body)
}

/// The same for a transaction that only reads.
pub fn once_read<E: Into<End>>(
    db: &Database,
    kind: (&[&'static str], usize),
    body: impl FnOnce(&mut Transaction) -> Result<E, Failure>,
) -> Ended {
    once_at(db, kind, db.options().isolation, body)
}

fn once_at<E: Into<End>>(
    db: &Database,
    (kinds, kind): (&[&'static str], usize),
    isolation: Isolation,
    body: impl FnOnce(&mut Transaction) -> Result<E, Failure>,
) -> Ended {
    let label = (db.options().observe != Observe::Off).then(|| kinds[kind]);
    let (outcome, failure) = match attempt(db, (label, isolation), body) {
        Ok(End::Done) => (Outcome::Ok, None),
        Ok(End::Missed | End::UndoneMissed) => (Outcome::Miss, None),
        Ok(End::Ruled) => (Outcome::Rule, None),
        Err(Failure::Wrong(what)) => (Outcome::Error, Some(what)),
        Err(Failure::Engine(error)) => match reason(&error) {
            Some(ConflictReason::Deadlock) => (Outcome::Deadlock, None),
            Some(ConflictReason::TimedOut) => (Outcome::Timeout, None),
            Some(ConflictReason::Overwritten) => (Outcome::Overwritten, None),
            _ => (Outcome::Error, Some(error.to_string())),
        },
    };
    Ended {
        outcome,
        failure: failure.map(Into::into),
        ..Ended::ok(kind)
    }
}

fn attempt<E: Into<End>>(
    db: &Database,
    (label, isolation): (Option<&'static str>, Isolation),
    body: impl FnOnce(&mut Transaction) -> Result<E, Failure>,
) -> Result<End, Failure> {
    let mut tx = db.begin()?;
    tx.set_isolation(isolation)?;
    if let Some(label) = label {
        tx.set_label(label);
    }
    let end = body(&mut tx)?.into();
    match end {
        End::Done | End::Missed => tx.commit()?,
        End::UndoneMissed | End::Ruled => tx.rollback(),
    }
    Ok(end)
}

fn reason(error: &Error) -> Option<ConflictReason> {
    match error {
        Error::Conflict(conflict) => Some(conflict.reason()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use foxton::{Options, Table};

    use super::*;

    const ROWS: Table<u32, u32> = Table::new("rows");
    const KIND: (&[&str], usize) = (&["work"], 0);

    #[test]
    fn a_transaction_ends_as_its_body_says_and_is_counted_so() {
        let db = Database::in_memory(Options::tiny()).unwrap();
        let rows = |key| db.run(|tx| tx.get(&ROWS, &key)).unwrap();
        let ends = [
            (1, End::Done, Outcome::Ok),
            (2, End::Missed, Outcome::Miss),
            (3, End::UndoneMissed, Outcome::Miss),
            (4, End::Ruled, Outcome::Rule),
        ];
        for (key, end, outcome) in ends {
            let ended = once(&db, KIND, |tx| {
                tx.put(&ROWS, &key, &7)?;
                Ok(end)
            });
            assert_eq!(ended.outcome, outcome);
            let stays = matches!(end, End::Done | End::Missed);
            assert_eq!(rows(key), stays.then_some(7), "{end:?}");
        }
        let wrong = once(&db, KIND, |_| Err::<(), _>(Failure::Wrong("odd".into())));
        assert_eq!(wrong.outcome, Outcome::Error);
        assert_eq!(wrong.failure.as_deref(), Some("odd"));
    }

    #[test]
    fn a_timeout_is_an_outcome_once_and_an_attempt_before_the_last_if_it_is_run_again() {
        let db = Database::in_memory(Options::tiny()).unwrap();
        db.run(|tx| tx.put(&ROWS, &1, &0)).unwrap();
        let mut other = Some(db.begin().unwrap());
        other.as_mut().unwrap().put(&ROWS, &1, &1).unwrap();
        let read = |tx: &mut Transaction| -> Result<(), Failure> {
            let soon = foxton::Lock::Shared.timeout(Duration::from_millis(1));
            Ok(tx.get_locked(&ROWS, &1, soon).map(drop)?)
        };
        assert_eq!(once(&db, KIND, read).outcome, Outcome::Timeout);
        let mut attempts = 0;
        let ended = until_committed(&db, KIND, &mut Random::seeded(&[1]), |tx| {
            attempts += 1;
            if attempts == 3 {
                drop(other.take());
            }
            read(tx)
        });
        assert_eq!((ended.outcome, ended.timeouts), (Outcome::Ok, 2));
    }

    #[test]
    fn reads_run_at_the_level_of_the_database_and_a_changed_row_is_an_attempt_before_the_last() {
        let mut options = Options::tiny();
        options.isolation = Isolation::Snapshot;
        let db = Database::in_memory(options).unwrap();
        let add = |tx: &mut Transaction| {
            let value = tx.get(&ROWS, &1)?.unwrap_or(0);
            tx.put(&ROWS, &1, &(value + 1))
        };
        let other = || db.run(|tx| tx.put(&ROWS, &1, &7)).unwrap();
        other();
        let read = until_read(&db, KIND, &mut Random::seeded(&[1]), |tx| {
            let before = tx.get(&ROWS, &1)?;
            other(); // It would wait for a serializable reader.
            assert_eq!(tx.get(&ROWS, &1)?, before);
            Ok(())
        });
        assert_eq!((read.outcome, read.overwritten), (Outcome::Ok, 0));
        let mut attempts = 0;
        let mut write = |tx: &mut Transaction| -> Result<(), Failure> {
            attempts += 1;
            tx.set_isolation(level(&db, Isolation::Serializable))?;
            tx.get(&ROWS, &1)?;
            if attempts < 3 {
                other();
            }
            Ok(add(tx)?)
        };
        let ended = until_committed(&db, KIND, &mut Random::seeded(&[1]), &mut write);
        assert_eq!((ended.outcome, ended.overwritten), (Outcome::Ok, 2));
        assert_eq!(db.run(|tx| tx.get(&ROWS, &1)).unwrap(), Some(8));
    }
}
