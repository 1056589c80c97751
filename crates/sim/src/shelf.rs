//! Checks of the backups that a killed process took.
//!
//! Each backup on its [list](crate::backups) is inspected when the process is dead.
//!
//! # What must hold
//!
//! * B1  A backup that is done is there.
//! * B2  A backup that is there can be restored, and the restored database opens. It has everything
//!   that was acknowledged when the backup was begun (for those from files: with *sync* or
//!   *buffered*), and otherwise fulfils the [ledger](crate::ledger).
//! * B3  A directory that is no whole backup is refused as such, by [`backup::inspect`],
//!   [`backup::restore`] and [`Database::open`], and nothing is made of it.
//! * B4  A backup that was found whole stays so through the next kill, with the same contents.

use crate::{
    backups::{Begun, is_from_files},
    ledger::{Contents, Expectations, check, is_abandoned},
    load,
    notebook::Slot,
    victim::{self, Orders, durability},
};
use foxton::{Database, Durability, backup};
use std::{
    error::Error,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Error codes for a directory that is no whole backup.
const CODES: [&str; 2] = ["not_a_backup", "not_a_database"];

/// State of the backups of one database, from kill to kill.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    /// Number of backups that were inspected.
    seen: usize,
    /// One that was whole, and its contents.
    kept: Option<(usize, Contents)>,
}

/// Numbers of inspected backups, by kind.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) whole: u64,
    pub(crate) refused: u64,
    pub(crate) again: u64,
}

/// State of the clients.
pub(crate) struct Known<'k> {
    /// Contents that the database had to have, and had, before this victim started.
    pub(crate) settled: &'k Expectations,
    /// The record of each client when this victim started.
    pub(crate) before: &'k [Slot],
    /// The record of each client when this victim was dead.
    pub(crate) after: &'k [Slot],
}

impl Shelf {
    /// Inspects every backup that the dead victim of `orders` began, and again the one that was
    /// kept.
    pub(crate) fn look(&mut self, orders: &Orders, known: &Known<'_>) -> Outcome<Counts> {
        let mut counts = Counts::default();
        if let Some((number, held)) = &self.kept {
            let found = restore(orders, *number).map_err(|e| format!("B4 backup {number}: {e}"))?;
            if found != *held {
                return Err(format!("B4 backup {number} has other contents now").into());
            }
            counts.again += 1;
        }
        let begun = orders.backups().begun()?;
        for (number, begun) in begun.iter().enumerate().skip(self.seen) {
            match backup::inspect(orders.backups().path(number)) {
                Ok(_) => {
                    counts.whole += 1;
                    self.keep(orders, number, whole(orders, known, number, begun)?)?;
                }
                Err(error) => {
                    counts.refused += 1;
                    refused(orders, number, begun, &error)?;
                    remove(&orders.backups().path(number))?;
                }
            }
        }
        self.seen = begun.len();
        Ok(counts)
    }

    /// Keeps this backup, and removes the one that was kept before.
    fn keep(&mut self, orders: &Orders, number: usize, contents: Contents) -> io::Result<()> {
        match self.kept.replace((number, contents)) {
            Some((before, _)) => fs::remove_dir_all(orders.backups().path(before)),
            None => Ok(()),
        }
    }
}

/// B2: returns the contents of the backup.
fn whole(orders: &Orders, known: &Known<'_>, number: usize, begun: &Begun) -> Outcome<Contents> {
    let found = restore(orders, number).map_err(|error| format!("B2 backup {number}: {error}"))?;
    let mut expected = known.settled.clone();
    expected.loaded = true;
    for (client, (before, after)) in (0..).zip(known.before.iter().zip(known.after)) {
        let expectation = expected.clients.entry(client).or_default();
        let promised = !is_from_files(number) || durability(client) != Durability::None;
        let acknowledged = begun.acknowledged[client as usize];
        for n in (before.begun + 1..=after.begun).filter(|&n| !is_abandoned(n)) {
            let kind = match promised && n <= acknowledged {
                true => &mut expectation.must,
                false => &mut expectation.may,
            };
            kind.insert(n);
        }
    }
    check(orders.seed, orders.scale(), &expected, &found)
        .map_err(|faults| format!("B2 backup {number}: {}", faults.join("; ")))?;
    Ok(found)
}

/// B1 and B3: checks whether it may be refused, and whether every function refuses it.
fn refused(orders: &Orders, number: usize, begun: &Begun, error: &foxton::Error) -> Outcome {
    let path = orders.backups().path(number);
    if begun.done {
        return Err(format!("B1 backup {number} was done, but is refused: {error}").into());
    }
    let target = scratch(orders);
    let restored = backup::restore(&path, &target, None, &mut |_, _| {});
    let mut answers = vec![
        error.code(),
        restored.map_or_else(|error| error.code(), |_| "restored"),
    ];
    if target.exists() {
        return Err(
            format!("B3 a database was made of backup {number}, which is not whole").into(),
        );
    }
    if holds_something(&path)? {
        answers.push(Database::open(&path).map_or_else(|error| error.code(), |_| "opened"));
    }
    match answers.iter().find(|answer| !CODES.contains(answer)) {
        Some(answer) => {
            Err(format!("B3 backup {number}, which is not whole, gives {answer}").into())
        }
        None => Ok(()),
    }
}

/// True if anything but the lock is in the directory. A database may be made in a directory with
/// nothing.
fn holds_something(path: &Path) -> io::Result<bool> {
    match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        entries => {
            let mut names = entries?.map(|entry| Ok(entry?.file_name()));
            names.try_fold(false, |known, name: io::Result<_>| {
                Ok(known || name? != "lock")
            })
        }
    }
}

/// Removes half a backup: there would soon be many, and their device is small.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn scratch(orders: &Orders) -> PathBuf {
    orders.folder.join("restored")
}

/// Restores and opens the backup, and returns its contents.
fn restore(orders: &Orders, number: usize) -> Outcome<Contents> {
    let target = scratch(orders);
    backup::restore(orders.backups().path(number), &target, None, &mut |_, _| {})?;
    let found = load::read(&victim::open(&target, orders)?)?;
    fs::remove_dir_all(target)?;
    Ok(found)
}
