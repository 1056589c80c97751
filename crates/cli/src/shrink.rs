//! `foxton shrink`: the page file of a database becomes as short as its rows allow.

use std::{ops::ControlFlow, process::ExitCode};

use foxton::shrink::{ShrinkPhase, ShrinkProgress};
use foxton_lab::{
    progress::{Audience, Progress},
    report::{
        number::{bytes, grouped},
        table::Table,
    },
};

use crate::{
    arguments::Shrink,
    existing,
    output::{say, show},
};

/// Shrinks the page file, and prints its size before and after.
pub(crate) fn run(what: &Shrink) -> Result<ExitCode, String> {
    let directory = what.directory.display();
    let db = existing::open_to_change(&what.directory)?;
    let mut bar = None;
    let shrunk = db.shrink_with(|progress| {
        advance(&mut bar, progress);
        ControlFlow::Continue(())
    });
    drop(bar);
    let shrunk = shrunk.map_err(|error| error.to_string())?;
    db.close().map_err(|error| error.to_string())?;
    if shrunk.bytes_before == 0 {
        say!("{directory}: there are no paged tables, so there is nothing to shrink");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["file", "before", "after", "given back", "pages moved"]);
    table.row([
        "rows".to_owned(),
        bytes(shrunk.bytes_before),
        bytes(shrunk.bytes_after),
        bytes(shrunk.bytes_before.saturating_sub(shrunk.bytes_after)),
        grouped(shrunk.pages_moved as f64),
    ]);
    say!("{directory}\n");
    show(&table.render());
    Ok(ExitCode::SUCCESS)
}

/// Shows the progress of the present step, in a bar of its own.
fn advance(bar: &mut Option<(ShrinkPhase, Progress)>, progress: ShrinkProgress) {
    let ShrinkProgress {
        phase, done, total, ..
    } = progress;
    if bar.as_ref().is_none_or(|(shown, _)| *shown != phase) {
        let what = match phase {
            ShrinkPhase::Free => "freeing deleted rows",
            ShrinkPhase::Fill => "filling pages",
            ShrinkPhase::Move => "moving pages",
            _ => "cutting the file",
        };
        *bar = Some((phase, Audience::here().count_about(what, total, "pages")));
    }
    if let Some((_, bar)) = bar {
        bar.reach(done);
    }
}
