//! Opening a database that is there: what looks at one must not make one.

use std::{fs, path::Path};

use foxton::{Database, Options, inspect::TableStats};

use crate::opening;

/// Opens the database in `directory`; refuses a directory that is empty or not there.
pub(crate) fn open(directory: &Path) -> Result<Database, String> {
    let nothing = |what: &str| {
        format!(
            "{} {what}: name the directory of a database",
            directory.display()
        )
    };
    let entries =
        fs::read_dir(directory).map_err(|error| nothing(&format!("cannot be read ({error})")))?;
    // The file of the lock is all that is left where something was cut short at once.
    if entries.flatten().all(|entry| entry.file_name() == "lock") {
        return Err(nothing("holds no database"));
    }
    opening::open(directory, Options::default())
}

/// What is known of the table called `name`, if there is one.
pub(crate) fn table(db: &Database, name: &str) -> Option<TableStats> {
    let mut tables = db.stats().tables.into_iter();
    tables.find(|table| table.name == name)
}

/// A name as a constant, which tables want. A command meets few names, each once.
pub(crate) fn forever(name: &str) -> &'static str {
    Box::leak(name.to_owned().into_boxed_str())
}
