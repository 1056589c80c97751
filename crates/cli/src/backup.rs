//! `foxton backup` and `foxton restore`.

use std::{process::ExitCode, time::UNIX_EPOCH};

use foxton::backup::{self, Backup};
use foxton_lab::{
    measure::machine::utc,
    progress::Audience,
    report::number::{bytes, grouped},
};

use crate::{arguments, output::say};

/// Copies a database to a backup.
pub(crate) fn run(what: &arguments::Backup) -> Result<ExitCode, String> {
    let made = with_bar("backup", |progress| {
        backup::of_directory(&what.directory, &what.target, progress)
    })?;
    say!(
        "{} is a backup of {} at log position {}, {}; it was read again and is complete",
        what.target.display(),
        what.directory.display(),
        made.end,
        bytes(made.bytes)
    );
    Ok(ExitCode::SUCCESS)
}

/// Creates a database from a backup, or prints what the backup contains.
pub(crate) fn restore(what: &arguments::Restore) -> Result<ExitCode, String> {
    let Some(target) = &what.target else {
        let held = backup::inspect(&what.backup).map_err(|error| error.to_string())?;
        say!("{} {}", what.backup.display(), words(&held));
        return Ok(ExitCode::SUCCESS);
    };
    let restored = with_bar("restore", |progress| {
        backup::restore(&what.backup, target, what.to, progress)
    })?;
    say!(
        "{} is the database at log position {}, {}; it was read again and is complete",
        target.display(),
        restored.end,
        bytes(restored.bytes)
    );
    Ok(ExitCode::SUCCESS)
}

fn words(held: &Backup) -> String {
    let since_1970 = held.taken.duration_since(UNIX_EPOCH);
    format!(
        "was taken at {} UTC, has {} in {} records of log, and can be restored to log positions \
         from {} to {}",
        utc(since_1970.map_or(0, |at| at.as_secs())),
        bytes(held.bytes),
        grouped(held.records as f64),
        held.earliest,
        held.end
    )
}

/// Calls `work` with a bar that shows its progress.
fn with_bar(
    what: &str,
    work: impl FnOnce(backup::CopyProgress<'_>) -> foxton::Result<Backup>,
) -> Result<Backup, String> {
    let (mut bar, mut shown) = (None, 0);
    let done = work(&mut |done, total| {
        let bar = bar.get_or_insert_with(|| Audience::here().bytes(what, total));
        // After a failed attempt it begins again.
        bar.advance(done.saturating_sub(shown));
        shown = done;
    });
    done.map_err(|error| error.to_string())
}
