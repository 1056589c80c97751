//! Adds up all accounts, again and again, while others move money between them.
//!
//! Each audit is a serializable transaction, or one at a snapshot, that reads every account. It may
//! be a deadlock victim, like any transaction; then it is retried. The auditor ends after at least
//! one audit.

use std::{
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use foxton::{Database, Isolation};

use super::ACCOUNTS;
use crate::{
    measure::outcome::Outcome,
    workload::attempt::{Failure, once_read},
};

/// Time between the end of an audit and the beginning of the next.
pub const EVERY: Duration = Duration::from_millis(10);

/// Results of the audits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Audits {
    /// Made to the end.
    pub made: u64,
    /// Begun again, since they were the victim of a deadlock.
    pub gave_way: u64,
}

/// A thread that audits until it is stopped or dropped.
#[derive(Debug)]
pub struct Auditor {
    /// Nothing is ever sent; dropping it tells the auditor to make its last audit.
    open: Option<Sender<()>>,
    thread: Option<JoinHandle<Result<Audits, String>>>,
}

impl Auditor {
    /// Audits `db`, whose accounts add up to `sum`.
    ///
    /// # Panics
    ///
    /// If the system does not start a thread.
    pub fn of(db: Database, sum: i64) -> Auditor {
        let (open, closed) = mpsc::channel();
        let work = move || -> Result<Audits, String> {
            let mut audits = Audits::default();
            loop {
                let is_last = closed.recv_timeout(EVERY) == Err(RecvTimeoutError::Disconnected);
                match audit(&db, sum)? {
                    true => audits.made += 1,
                    false => audits.gave_way += 1,
                }
                if is_last && audits.made > 0 {
                    return Ok(audits);
                }
            }
        };
        let thread = thread::Builder::new()
            .name("auditor".to_owned())
            .spawn(work);
        Auditor {
            open: Some(open),
            thread: Some(thread.expect("the system has a thread for the auditor")),
        }
    }

    /// Makes the last audit, and returns the results of all.
    ///
    /// # Errors
    ///
    /// The first audit with a wrong sum, or with an error of the engine.
    ///
    /// # Panics
    ///
    /// If the auditor panicked.
    pub fn ends(mut self) -> Result<Audits, String> {
        drop(self.open.take());
        let thread = self.thread.take().expect("it ends once");
        thread.join().expect("the auditor does not panic")
    }
}

impl Drop for Auditor {
    fn drop(&mut self) {
        drop(self.open.take());
        if let Some(thread) = self.thread.take() {
            // The result is not needed: the run failed for another reason.
            drop(thread.join());
        }
    }
}

/// True if it was completed; it may have been a deadlock victim.
fn audit(db: &Database, sum: i64) -> Result<bool, String> {
    // At any other level it may find another sum.
    let isolation = match db.options().isolation {
        Isolation::Snapshot => Isolation::Snapshot,
        _ => Isolation::Serializable,
    };
    let ended = once_read(db, (&["audit"], 0), |tx| {
        tx.set_isolation(isolation)?;
        let (mut found, mut accounts) = (0, 0_u64);
        tx.range(&ACCOUNTS, ..).for_each(|_, balance| {
            found += balance;
            accounts += 1;
        })?;
        match found == sum {
            true => Ok(()),
            false => Err(Failure::Wrong(format!(
                "an audit found {found} cents in {accounts} accounts, not {sum}"
            ))),
        }
    });
    match (ended.outcome, ended.failure) {
        (Outcome::Deadlock | Outcome::Timeout, _) => Ok(false),
        (_, Some(wrong)) => Err(wrong.to_string()),
        _ => Ok(true),
    }
}
