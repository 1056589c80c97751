//! `foxton locks`: who holds and awaits what in a running database, once.

use std::process::ExitCode;

use foxton::{
    graph::WaitGraph,
    observe::Watcher,
    picture::{Deadlock, Picture},
};

use crate::{
    arguments::LocksView,
    output::{say, show},
    tables,
};

/// Holders listed unless all are asked for.
const LISTED: usize = 50;

/// Looks once, and shows it as asked.
pub(crate) fn run(what: &LocksView) -> Result<ExitCode, String> {
    let picture = Watcher::connect(&what.directory).and_then(|mut watcher| watcher.picture());
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
        false => tell(&picture, if what.all { usize::MAX } else { LISTED }),
    }
    Ok(ExitCode::SUCCESS)
}

fn latest(picture: &Picture) -> Result<&Deadlock, String> {
    let latest = picture.deadlocks.last();
    latest.ok_or_else(|| "there was no deadlock".to_owned())
}

fn tell(picture: &Picture, most: usize) {
    say!(
        "{}: process {}, {}, open for {}\n",
        tables::plain(&picture.database),
        picture.process,
        picture.lock_manager,
        tables::time(picture.open)
    );
    match picture.waiters().len() {
        0 => say!("  nobody waits"),
        _ => show(&tables::waits(picture).render()),
    }
    say!("");
    let held = tables::held_count(picture);
    match held {
        0 => say!("  nobody holds a lock"),
        _ => show(&tables::holders(picture, most).render()),
    }
    if held > most {
        say!("  and {} more: --all lists them", held - most);
    }
    if picture.left_out {
        say!("  there are more than can be seen at once");
    }
    if !picture.hot_names.is_empty() {
        say!("");
        let hot = &picture.hot_names;
        show(&tables::hot_names(&hot[..hot.len().min(10)]).render());
        say!("");
        show(&tables::usages("table", &picture.tables).render());
        say!("");
        show(&tables::usages("label", &picture.labels).render());
        say!("\n  hold times are those of locks that had to be waited for");
    }
    say!("\n  {}", tables::checkpoint(&picture.checkpoints));
    match picture.checkpoints.waits {
        0 => {}
        waits => say!(
            "  {waits} commits waited for checkpoints, {} together",
            tables::time(picture.checkpoints.waited)
        ),
    }
    match picture.deadlocks.len() {
        0 => {}
        count => say!("\n  {count} deadlocks: --deadlock shows the latest"),
    }
}
