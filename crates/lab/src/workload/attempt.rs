//! One transaction, run again with the same inputs until it commits.
//!
//! After a deadlock or a timeout comes a short random pause that doubles with each attempt, so
//! that those who met once do not meet again at once. Every attempt is counted.

use std::{thread, time::Duration};

use foxton::{Database, Error, Observe, Transaction, error::ConflictReason};

use crate::{
    measure::outcome::{Ended, Outcome},
    random::Random,
};

/// Why an attempt did not end as planned.
#[derive(Debug)]
pub enum Failure {
    /// The engine refused something.
    Engine(Error),
    /// The engine answered, and the answer is wrong.
    Wrong(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(error)
    }
}

const FIRST_PAUSE_MICROS: u64 = 50;
const LONGEST_PAUSE_MICROS: u64 = 10_000;

/// Runs `body` in a transaction and commits it, again and again until it commits or fails for a
/// reason that another attempt would not change. Its kind is its place among `kinds`; where somebody
/// may look in, it is the transaction's label, too.
pub fn until_committed(
    db: &Database,
    (kinds, kind): (&[&'static str], usize),
    random: &mut Random,
    mut body: impl FnMut(&mut Transaction) -> Result<(), Failure>,
) -> Ended {
    let mut ended = Ended::ok(kind);
    let mut longest = FIRST_PAUSE_MICROS;
    let label = (db.options().observe != Observe::Off).then(|| kinds[kind]);
    loop {
        let failure = match once(db, label, &mut body) {
            Ok(()) => return ended,
            Err(failure) => failure,
        };
        match failure {
            Failure::Engine(error) => match reason(&error) {
                Some(ConflictReason::Deadlock) => ended.deadlocks += 1,
                Some(ConflictReason::TimedOut) => ended.timeouts += 1,
                _ => return failed(ended, error.to_string()),
            },
            Failure::Wrong(what) => return failed(ended, what),
        }
        thread::sleep(Duration::from_micros(random.uniform(0, longest)));
        longest = (longest * 2).min(LONGEST_PAUSE_MICROS);
    }
}

fn once(
    db: &Database,
    label: Option<&'static str>,
    body: &mut impl FnMut(&mut Transaction) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut tx = db.begin()?;
    if let Some(label) = label {
        tx.set_label(label);
    }
    body(&mut tx)?;
    Ok(tx.commit()?)
}

fn reason(error: &Error) -> Option<ConflictReason> {
    match error {
        Error::Conflict(conflict) => Some(conflict.reason()),
        _ => None,
    }
}

fn failed(ended: Ended, what: String) -> Ended {
    Ended {
        outcome: Outcome::Error,
        failure: Some(what.into()),
        ..ended
    }
}
