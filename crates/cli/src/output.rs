//! Standard output. Whoever reads it may stop reading (`foxton ... | head`): then there is nobody to
//! tell, and the program ends quietly, as programs in a pipe do.

use std::{
    fmt,
    io::{self, Write},
    process,
};

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
