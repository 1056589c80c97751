//! Standard output. If its reader stops reading (`foxton ... | head`), the program ends silently,
//! like other programs in a pipe.

use std::{
    fmt,
    io::{self, Write},
    path::{Path, PathBuf},
    process,
};

/// Parses a directory for results, which need not exist. A directory that cannot be written is
/// refused before an hour of measuring.
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
            "{} is a file; name a directory, which is created if it does not exist",
            parent.display()
        ));
    }
    // Tested by writing, because a directory can be unwritable for many reasons.
    match tempfile::tempfile_in(parent) {
        Ok(_) => Ok(place),
        Err(error) => Err(format!(
            "nothing can be written in {} ({error}); name another directory",
            parent.display()
        )),
    }
}

/// Exit code of a program whose reader stopped, as a shell reports one ended by a closed pipe.
pub(crate) const READER_STOPPED: i32 = 141;

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
        process::exit(READER_STOPPED);
    }
}

/// Prints text that ends its own lines.
pub(crate) fn show(text: &str) {
    write(format_args!("{text}"));
}
