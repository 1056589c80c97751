//! Standard output. Whoever reads it may stop reading (`foxton ... | head`): then there is nobody
//! to tell, and the program ends quietly, as programs in a pipe do.

use std::{
    fmt,
    io::{self, Write},
    path::{Path, PathBuf},
    process,
};

/// A directory for results, which need not be there: whether it could be written is found before an
/// hour is measured, and not after it.
pub(crate) fn results_place(words: &str) -> Result<PathBuf, String> {
    let place = PathBuf::from(words);
    let parent = place
        .ancestors()
        .find(|above| above.as_os_str().is_empty() || above.exists());
    let parent = match parent {
        Some(some) if !some.as_os_str().is_empty() => some,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        return Err(format!(
            "{} is a file: name a directory, which is made if it is not there",
            parent.display()
        ));
    }
    // Asked of the system by doing it: there are many ways in which a place cannot be written.
    match tempfile::tempfile_in(parent) {
        Ok(_) => Ok(place),
        Err(error) => Err(format!(
            "nothing can be written in {} ({error}): name another directory",
            parent.display()
        )),
    }
}

/// What the shell of a program ended by a closed pipe reports.
pub(crate) const NOBODY_LISTENS: i32 = 141;

/// Prints a line.
macro_rules! say {
    ($($arguments:tt)*) => {
        $crate::output::write(format_args!("{}\n", format_args!($($arguments)*)))
    };
}
pub(crate) use say;

/// Prints text as it is.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    if io::stdout().write_fmt(text).is_err() {
        process::exit(NOBODY_LISTENS);
    }
}

/// Prints text that ends its own lines.
pub(crate) fn show(text: &str) {
    write(format_args!("{text}"));
}
