//! Backups of a database in use, taken one after the other, and a list of them.
//!
//! The thread that takes them belongs to a process that will be killed. So it records, in a file
//! outside the database, what was acknowledged when a backup was begun, and which backups are done.
//! Every other backup is taken as [`foxton::Database::backup_to`] does, and the others as another
//! process would, from the files. [`crate::kill`] compares the list with the backups it finds.

use crate::{ledger::mix, notebook::Notebook};
use foxton::{Database, backup};
use std::{
    error::Error,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    path::PathBuf,
    thread,
    time::Duration,
};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Where database, backups and list are.
#[derive(Debug, Clone)]
pub struct Backups {
    /// Directory of the database.
    pub database: PathBuf,
    /// Directory of the backups, each of which has a directory of its own.
    pub shelf: PathBuf,
    /// File with the list.
    pub list: PathBuf,
}

/// Entry of one backup in the list.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    /// Number of transactions that each client had acknowledged before.
    pub(crate) acknowledged: Vec<u64>,
    /// True if it was done.
    pub(crate) done: bool,
}

impl Backups {
    /// Takes one backup of `db` after the other, until killed. With `early` it records a backup as
    /// done when it was only begun: an injected fault, to see that it is found.
    ///
    /// # Errors
    ///
    /// Any error of the database or of the list.
    pub fn take(
        &self,
        db: &Database,
        (notebook, clients): (&Notebook, u32),
        early: bool,
    ) -> Outcome {
        fs::create_dir_all(&self.shelf)?;
        let options = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.list);
        let mut list = options?;
        for number in self.begun()?.len().. {
            let mut line = format!("begun {number}");
            for client in 0..clients {
                line += &format!(" {}", notebook.client(client)?.acknowledged);
            }
            note(&mut list, &line)?;
            let done = format!("done {number}");
            if early {
                note(&mut list, &done)?;
            }
            if is_from_files(number) {
                backup::of_directory(&self.database, self.path(number), &mut |_, _| {})?;
            } else {
                db.backup_to(self.path(number))?;
            }
            note(&mut list, &done)?;
            // So that backups begin at different moments of a checkpoint.
            thread::sleep(Duration::from_micros(mix(number as u64) % 8_000));
        }
        Ok(())
    }

    /// Returns the directory of backup `number`.
    pub(crate) fn path(&self, number: usize) -> PathBuf {
        self.shelf.join(number.to_string())
    }

    /// Reads the list.
    pub(crate) fn begun(&self) -> Outcome<Vec<Begun>> {
        let text = match fs::read_to_string(&self.list) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let mut all: Vec<Begun> = Vec::new();
        let lines = text.split_inclusive('\n');
        for line in lines.filter_map(|line| line.strip_suffix('\n')) {
            let mut words = line.split(' ');
            let (what, number) = (words.next(), words.next());
            let number: usize = number.ok_or("a line without a number")?.parse()?;
            match what {
                Some("begun") if number == all.len() => all.push(Begun {
                    acknowledged: words.map(str::parse).collect::<Result<_, _>>()?,
                    done: false,
                }),
                Some("done") if number < all.len() => all[number].done = true,
                _ => return Err(format!("the list has an unknown line {line:?}").into()),
            }
        }
        Ok(all)
    }
}

/// Writes one line by one call: a kill leaves all of it, or a part without its end.
fn note(list: &mut File, line: &str) -> io::Result<()> {
    list.write_all(format!("{line}\n").as_bytes())
}

/// True if backup `number` is taken from the files. Then commits of durability *none* need not be
/// in it.
pub(crate) fn is_from_files(number: usize) -> bool {
    number % 2 == 1
}
