//! Opening a database, with a bar on a terminal.

use std::{path::Path, sync::Mutex};

use foxton::{
    Database, Options,
    progress::{OpenPhase, OpenProgress, ProgressCall},
};
use foxton_lab::progress::{Audience, Progress};

/// Less data than this is read before a user could see a bar.
const WORTH_A_BAR: u64 = 16 << 20;

/// Opens the database in `directory`, with a bar on a terminal.
pub(crate) fn open(directory: &Path, mut options: Options) -> Result<Database, String> {
    if Audience::here() == Audience::Terminal {
        let bar: Mutex<Option<(OpenPhase, Progress)>> = Mutex::new(None);
        options.progress = Some(ProgressCall::new(move |progress| {
            // A bar that panicked must not keep the database from opening.
            if let Ok(mut bar) = bar.lock() {
                show(&mut bar, progress);
            }
        }));
    }
    Database::open_with(directory, options).map_err(|error| error.to_string())
}

fn show(bar: &mut Option<(OpenPhase, Progress)>, progress: OpenProgress) {
    let OpenProgress {
        phase, done, total, ..
    } = progress;
    if done >= total || total < WORTH_A_BAR {
        *bar = None;
        return;
    }
    if bar.as_ref().is_none_or(|(shown, _)| *shown != phase) {
        let what = match phase {
            OpenPhase::Checkpoint => "Loading the checkpoint",
            _ => "Replaying the log",
        };
        *bar = Some((phase, Audience::Terminal.bytes(what, total)));
    }
    if let Some((_, bar)) = bar {
        bar.reach(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_bar_while_a_user_waits() {
        let mut bar = None;
        let mut tell = |phase, done, total| {
            let mut progress = OpenProgress::default();
            (progress.phase, progress.done, progress.total) = (phase, done, total);
            show(&mut bar, progress);
            bar.as_ref().map(|(phase, _)| *phase)
        };
        assert_eq!(
            tell(OpenPhase::Log, 1, 100),
            None,
            "it is too short for a bar"
        );
        let loading = Some(OpenPhase::Checkpoint);
        assert_eq!(tell(OpenPhase::Checkpoint, 0, 1 << 30), loading);
        assert_eq!(tell(OpenPhase::Checkpoint, 1 << 29, 1 << 30), loading);
        assert_eq!(tell(OpenPhase::Log, 0, 1 << 30), Some(OpenPhase::Log));
        assert_eq!(tell(OpenPhase::Log, 1 << 30, 1 << 30), None);
    }
}
