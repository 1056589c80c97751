//! `foxton locks`: the locks of a running database, once.

use std::process::ExitCode;

use foxton::{
    observe::Watcher,
    status::{Deadlock, Status},
    wait_graph::WaitGraph,
};

use crate::{
    arguments::LocksView,
    output::{say, show},
    tables, wait_graph_svg,
};

/// Number of holders listed without `--all`.
const LISTED: usize = 50;

/// Takes one snapshot, and shows it as the arguments say.
pub(crate) fn run(what: &LocksView) -> Result<ExitCode, String> {
    let status = Watcher::connect(&what.directory).and_then(|mut watcher| watcher.status());
    let status = status.map_err(|error| error.to_string())?;
    if what.json {
        let text = serde_json::to_string_pretty(&status).map_err(|error| error.to_string())?;
        say!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    if what.dot || what.svg {
        let graph = match what.deadlock {
            true => WaitGraph::of_deadlock(latest(&status)?),
            false => WaitGraph::of_status(&status),
        };
        let drawn = if what.dot {
            graph.to_dot()
        } else {
            wait_graph_svg::draw(&graph)
        };
        show(&drawn);
        return Ok(ExitCode::SUCCESS);
    }
    match what.deadlock {
        true => show(&tables::cycle(latest(&status)?).render()),
        false => print(&status, if what.all { usize::MAX } else { LISTED }),
    }
    Ok(ExitCode::SUCCESS)
}

fn latest(status: &Status) -> Result<&Deadlock, String> {
    let latest = status.deadlocks.last();
    latest.ok_or_else(|| "there was no deadlock; leave --deadlock out to see the waits".to_owned())
}

fn print(status: &Status, most: usize) {
    say!(
        "{}: process {}, {}, open for {}\n",
        tables::plain(&status.database),
        status.process,
        status.lock_manager,
        tables::time(status.open)
    );
    match status.waiters().len() {
        0 => say!("  no transaction waits for a lock"),
        _ => show(&tables::waits(status).render()),
    }
    say!("");
    let held = tables::held_count(status);
    match held {
        0 => say!("  no transaction holds a lock"),
        _ => show(&tables::holders(status, most).render()),
    }
    if held > most {
        say!("  and {} more; --all lists them", held - most);
    }
    if status.left_out {
        say!("  some locks were left out: there are more than one snapshot can hold");
    }
    if !status.hot_names.is_empty() {
        say!("");
        let hot = &status.hot_names;
        show(&tables::hot_names(&hot[..hot.len().min(10)]).render());
        say!("");
        show(&tables::usages("table", &status.tables).render());
        say!("");
        show(&tables::usages("label", &status.labels).render());
        say!("\n  hold times are those of locks that a transaction waited for");
    }
    say!("\n  {}", tables::checkpoint(&status.checkpoints));
    match status.checkpoints.waits {
        0 => {}
        waits => say!(
            "  {waits} commits waited for checkpoints, {} in all",
            tables::time(status.checkpoints.waited)
        ),
    }
    match status.deadlocks.len() {
        0 => {}
        count => say!("\n  {count} deadlocks; --deadlock shows the latest"),
    }
}
