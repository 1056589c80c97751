//! Numbers with spread: shown as a table, written as the draft of a record.

use std::{fs, path::Path, process::ExitCode};

use foxton_lab::bench::measured::Measured;

use super::results::{judged, list_written};
use crate::output::{say, show};

/// Writes the record into `directory`, and shows the table and the notes.
pub(crate) fn finish(measured: &Measured, directory: &Path) -> Result<ExitCode, String> {
    let path = directory.join("record.json");
    // Written first: a table that cannot be printed must not lose an hour's results.
    let written = fs::create_dir_all(directory)
        .and_then(|()| fs::write(&path, measured.record()))
        .map(|()| vec![path]);
    say!("{}\n{}\n", measured.title, measured.machine.sentence());
    show(&measured.table().render());
    for note in &measured.notes {
        say!("{note}");
    }
    list_written(written, directory)?;
    Ok(judged(&measured.machine, None))
}
