//! Standard output and standard error.
//!
//! If the reader of standard output stops (`foxton ... | head`), the program ends silently, like
//! other programs in a pipe. If standard output cannot be written for another reason, such as a
//! full disk, the program says so and ends with an exit code of its own. A standard error that
//! cannot be written changes nothing.
//!
//! Nothing is buffered here: the buffer of [`io::stdout`] keeps the end of a text until the program
//! ends, and then ignores a failure.

use std::{
    fmt,
    fs::File,
    io::{self, ErrorKind, IsTerminal, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{self, ExitCode},
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
const READER_STOPPED: i32 = 141;
/// Exit code if standard output could not be written. No command uses it for a result.
const OUTPUT_FAILED: i32 = 3;

/// Prints a line.
macro_rules! say {
    ($($arguments:tt)*) => {
        $crate::output::write(format_args!("{}\n", format_args!($($arguments)*)))
    };
}
pub(crate) use say;

/// Prints a line on standard error.
macro_rules! note {
    ($($arguments:tt)*) => {
        foxton_lab::progress::note(format_args!($($arguments)*))
    };
}
pub(crate) use note;

/// Prints text as it is.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    StandardOutput.put(text.to_string().as_bytes());
}

/// Prints text that ends its own lines.
pub(crate) fn show(text: &str) {
    StandardOutput.put(text.as_bytes());
}

/// Prints the help that the command line requests, or what is wrong with it.
pub(crate) fn help_or_refusal(instead: &clap::Error) -> ExitCode {
    if instead.use_stderr() {
        // There is no other place to report it.
        let _ = instead.print();
    } else if io::stdout().is_terminal() {
        // With colours.
        let printed = instead.print().and_then(|()| io::stdout().flush());
        printed.unwrap_or_else(|error| fail(&error));
    } else {
        show(&instead.render().to_string());
    }
    ExitCode::from(u8::try_from(instead.exit_code()).unwrap_or(2))
}

/// Ends the program, because standard output could not be written.
pub(crate) fn fail(error: &io::Error) -> ! {
    if error.kind() == ErrorKind::BrokenPipe {
        // The reader has stopped, so nothing has to be reported.
        process::exit(READER_STOPPED);
    }
    note!(
        "error: standard output could not be written ({error}); free some space there, or send it \
         elsewhere"
    );
    process::exit(OUTPUT_FAILED);
}

/// Standard output as a file, which reports each failure: [`io::stdout`] takes bytes as written if
/// its descriptor is only open for reading.
pub(crate) fn descriptor() -> io::Result<File> {
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

/// Standard output without a buffer. A failed write ends the program.
#[derive(Debug)]
pub(crate) struct StandardOutput;

impl StandardOutput {
    fn put(&self, bytes: &[u8]) {
        let written = descriptor().and_then(|mut own| own.write_all(bytes));
        written.unwrap_or_else(|error| fail(&error));
    }
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
