//! `foxton locks`: the locks of a running database, once.

use std::process::ExitCode;

use foxton::{
    graph::WaitGraph,
    observe::Watcher,
    status::{Deadlock, Status},
};

use crate::{
    arguments::LocksView,
    output::{say, show},
    tables,
};

/// Number of holders listed without `--all`.
const LISTED: usize = 50;

/// Takes one snapshot, and shows it as the arguments say.
pub(crate) fn run(what: &LocksView) -> Result<ExitCode, String> {
    let picture = Watcher::connect(&what.directory).and_then(|mut watcher| watcher.status());
    let picture = picture.map_err(|error| error.to_string())?;
    if what.json {
        let text = serde_json::to_string_pretty(&picture).map_err(|error| error.to_string())?;
        say!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    if what.dot || what.svg {
        let graph = match what.deadlock {
            true => WaitGraph::of_deadlock(latest(&picture)?),
            false => WaitGraph::of_picture(&picture),
        };
        let drawn = if what.dot {
            graph.to_dot()
        } else {
            graph.to_svg()
        };
        show(&drawn);
        return Ok(ExitCode::SUCCESS);
    }
    match what.deadlock {
        true => show(&tables::cycle(latest(&picture)?).render()),
        false => print(&picture, if what.all { usize::MAX } else { LISTED }),
    }
    Ok(ExitCode::SUCCESS)
}

fn latest(picture: &Status) -> Result<&Deadlock, String> {
    let latest = picture.deadlocks.last();
    latest.ok_or_else(|| "there was no deadlock; leave --deadlock out to see the waits".to_owned())
}

fn print(picture: &Status, most: usize) {
    say!(
        "{}: process {}, {}, open for {}\n",
        tables::plain(&picture.database),
        picture.process,
        picture.lock_manager,
        tables::time(picture.open)
    );
    match picture.waiters().len() {
        0 => say!("  no transaction waits for a lock"),
        _ => show(&tables::waits(picture).render()),
    }
    say!("");
    let held = tables::held_count(picture);
    match held {
        0 => say!("  no transaction holds a lock"),
        _ => show(&tables::holders(picture, most).render()),
    }
    if held > most {
        say!("  and {} more; --all lists them", held - most);
    }
    if picture.left_out {
        say!("  some locks were left out: there are more than one snapshot can hold");
    }
    if !picture.hot_names.is_empty() {
        say!("");
        let hot = &picture.hot_names;
        show(&tables::hot_names(&hot[..hot.len().min(10)]).render());
        say!("");
        show(&tables::usages("table", &picture.tables).render());
        say!("");
        show(&tables::usages("label", &picture.labels).render());
        say!("\n  hold times are those of locks that a transaction waited for");
    }
    say!("\n  {}", tables::checkpoint(&picture.checkpoints));
    match picture.checkpoints.waits {
        0 => {}
        waits => say!(
            "  {waits} commits waited for checkpoints, {} in all",
            tables::time(picture.checkpoints.waited)
        ),
    }
    match picture.deadlocks.len() {
        0 => {}
        count => say!("\n  {count} deadlocks; --deadlock shows the latest"),
    }
}
