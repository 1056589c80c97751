//! Opening a database that exists. Commands that inspect one change nothing in it.

use std::{fs, path::Path};

use foxton::{Database, Options, inspect::TableStats};

use crate::opening;

/// Opens the database in `directory` to be read; refuses a directory that is empty or does not
/// exist.
pub(crate) fn open(directory: &Path) -> Result<Database, String> {
    let mut options = Options::default();
    options.read_only = true;
    open_with(directory, options)
}

/// Opens the database in `directory` to change it; refuses a directory that is empty or does not
/// exist.
pub(crate) fn open_to_change(directory: &Path) -> Result<Database, String> {
    open_with(directory, Options::default())
}

fn open_with(directory: &Path, options: Options) -> Result<Database, String> {
    let nothing = |what: &str| {
        format!(
            "{} {what}; name the directory of a database",
            directory.display()
        )
    };
    let entries =
        fs::read_dir(directory).map_err(|error| nothing(&format!("cannot be read ({error})")))?;
    // After an interrupted creation the directory has only the file of the lock.
    if entries.flatten().all(|entry| entry.file_name() == "lock") {
        return Err(nothing("has no database"));
    }
    opening::open(directory, options)
}

/// Returns the table of this name, if there is one.
pub(crate) fn table(db: &Database, name: &str) -> Option<TableStats> {
    let mut tables = db.stats().tables.into_iter();
    tables.find(|table| table.name == name)
}

/// A name as a constant, which tables need. A command uses few names, each once.
pub(crate) fn forever(name: &str) -> &'static str {
    Box::leak(name.to_owned().into_boxed_str())
}
