//! Locks as tables: for `foxton locks` and for the shell.

use std::time::Duration;

use foxton::status::{
    Checkpoints, ConflictingOwner, Deadlock, HotName, PageStatus, ResidentStatus, Status, Usage,
    VersionStatus, called,
};
use foxton_lab::report::{
    number::{bytes, duration_us, grouped},
    table::Table,
};

/// Waiters with their obstacles, the longest wait first.
pub(crate) fn waits(status: &Status) -> Table {
    let mut table = Table::new(["waiter", "mode", "on", "for", "age", "behind"]);
    for (queue, waiter) in status.waiters() {
        table.row([
            who(&waiter.owner, &waiter.label),
            waiter.mode.clone(),
            plain(&queue.name),
            time(waiter.waited),
            time(waiter.age),
            behind(&waiter.behind),
        ]);
    }
    table
}

/// Holders, first of the names that others wait for; at most `most`.
pub(crate) fn holders(status: &Status, most: usize) -> Table {
    let mut table = Table::new(["holder", "mode", "on", "age", "waiting"]);
    let holders = status.queues.iter().flat_map(|queue| {
        let waiting = match queue.waiters.len() {
            0 => String::new(),
            count => count.to_string(),
        };
        queue.holders.iter().map(move |holder| {
            [
                who(&holder.owner, &holder.label),
                holder.mode.clone(),
                plain(&queue.name),
                time(holder.age),
                waiting.clone(),
            ]
        })
    });
    holders.take(most).for_each(|row| table.row(row));
    table
}

/// Number of locks held, of those in the snapshot.
pub(crate) fn held_count(status: &Status) -> usize {
    status.queues.iter().map(|queue| queue.holders.len()).sum()
}

/// The names with the most time waited.
pub(crate) fn hot_names(names: &[HotName]) -> Table {
    let mut table = Table::new(["hot name", "waits", "waited", "mean"]);
    for hot in names {
        table.row([
            plain(&hot.name),
            grouped(hot.waits as f64),
            time(hot.waited),
            time(hot.mean_wait()),
        ]);
    }
    table
}

/// Waits by table or by label.
pub(crate) fn usages(what: &'static str, usages: &[Usage]) -> Table {
    let mut table = Table::new([
        what,
        "waits",
        "waited",
        "mean",
        "longest",
        "mean hold",
        "longest hold",
        "deadlocks",
        "timeouts",
    ]);
    for usage in usages {
        table.row([
            named(&usage.name),
            grouped(usage.waits as f64),
            time(usage.waited),
            time(usage.mean_wait()),
            time(usage.longest_wait),
            time(usage.mean_hold()),
            time(usage.longest_hold),
            usage.deadlocks.to_string(),
            usage.timeouts.to_string(),
        ]);
    }
    table
}

/// A deadlock, a row for each member.
pub(crate) fn cycle(deadlock: &Deadlock) -> Table {
    let mut table = Table::new(["member", "requests", "on", "age", "locks", "behind", ""]);
    let next = deadlock.cycle.iter().cycle().skip(1);
    for (member, next) in deadlock.cycle.iter().zip(next) {
        let verb = if member.behind_holder {
            "holds"
        } else {
            "requests"
        };
        table.row([
            who(&member.owner, &member.label),
            member.mode.clone(),
            plain(&member.name),
            time(member.age),
            member.lock_count.to_string(),
            format!("{} {verb} {}", named(&next.label), member.behind_mode),
            if member.victim { "victim" } else { "" }.to_owned(),
        ]);
    }
    table
}

/// The conflicting transactions, in one line.
pub(crate) fn behind(others: &[ConflictingOwner]) -> String {
    let words: Vec<String> = others
        .iter()
        .map(|other| {
            let verb = if other.holds { "holds" } else { "requests" };
            let who = match other.label.as_str() {
                "" => format!("owner {}", other.owner),
                label => plain(label),
            };
            format!("{who} {verb} {}", other.mode)
        })
        .collect();
    words.join(", ")
}

/// Owner and label of a transaction.
pub(crate) fn who(owner: &str, label: &str) -> String {
    plain(&called(owner, label).to_string())
}

/// Progress of the current checkpoint and the commits waiting for it, or the log since the last
/// one.
pub(crate) fn checkpoint(state: &Checkpoints) -> String {
    let log = bytes(state.log_bytes);
    let progress = match state.total_bytes {
        0 => format!("{log} of log since the last checkpoint"),
        total => {
            let done = state.done_bytes * 100 / total;
            format!("checkpoint {done} % of {}, {log} of log", bytes(total))
        }
    };
    let waiting = match state.waiting {
        0 => String::new(),
        1 => "; 1 commit waits for it".to_owned(),
        many => format!("; {} commits wait for it", grouped(many as f64)),
    };
    let failed = match &*state.last_failure {
        "" => String::new(),
        why => format!("; {} failed: {}", state.failed, plain(why)),
    };
    let kept = state
        .log_holder
        .as_ref()
        .map_or_else(String::new, |holder| {
            let who = who(&holder.owner, &holder.label);
            let log = bytes(holder.log_bytes);
            let (age, from) = (time(holder.since), holder.first_lsn);
            format!("; {who}, open for {age}, keeps {log} of log from {from} on")
        });
    progress + &waiting + &failed + &kept
}

/// Rates of pages, each second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PageRates {
    /// Pages read from the file.
    pub(crate) reads: f64,
    /// Pages written to it.
    pub(crate) writes: f64,
    /// Operations on trees.
    pub(crate) lookups: f64,
    /// Those that waited for pages.
    pub(crate) waits: f64,
}

/// A share in percent: one decimal, unless it is all.
pub(crate) fn percent(share: f64) -> String {
    match share {
        1.0.. => "100 %".to_owned(),
        // Rounded down: 100 % is said of all alone.
        _ => format!("{:.1} %", (share * 1_000.0).floor() / 10.0),
    }
}

/// Use of the memory for pages, and what pages did each second.
pub(crate) fn pages(status: &PageStatus, rates: PageRates) -> String {
    let share = |count: u64| count * 100 / status.frames.max(1);
    let hits = match rates.lookups {
        0.0 => "-".to_owned(),
        lookups => percent((lookups - rates.waits).max(0.0) / lookups),
    };
    format!(
        "pages: {} % of {} used, {} % dirty, hits {hits}; {} reads/s, {} writes/s",
        share(status.frames.saturating_sub(status.free)),
        grouped(status.frames as f64),
        share(status.dirty),
        grouped(rates.reads),
        grouped(rates.writes)
    )
}

/// Threads and tasks that wait, by what they need of the pages.
pub(crate) fn page_waits(status: &PageStatus) -> String {
    format!(
        "waiting: {} for a page, {} for a latch, {} for space, {} for the page cleaner",
        grouped(status.waiting_for_pages as f64),
        grouped(status.waiting_for_latches as f64),
        grouped(status.waiting_for_space as f64),
        grouped(status.waiting_for_cleaner as f64)
    )
}

/// Snapshots that `versions` shows one by one.
const SNAPSHOTS: usize = 3;

/// Lines on snapshots and the versions that they keep; none if there was no snapshot.
pub(crate) fn versions(status: &VersionStatus) -> Vec<String> {
    if status.active == 0 && status.pruned == 0 {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "versions: {} of {} kept, {} freed, {} snapshots ended, {} waits",
        bytes(status.bytes),
        bytes(status.limit),
        grouped(status.pruned as f64),
        grouped(status.ended as f64),
        grouped(status.waits as f64),
    )];
    let shown = status.snapshots.iter().take(SNAPSHOTS);
    lines.extend(shown.map(|snapshot| {
        format!(
            "snapshot {} at {}, {} old, keeps {}",
            named(&snapshot.label),
            snapshot.lsn,
            time(snapshot.age),
            bytes(snapshot.bytes)
        )
    }));
    lines
}

/// Memory of the rows in memory, if it has a limit.
pub(crate) fn resident(status: &ResidentStatus) -> Option<String> {
    let limit = status.limit?;
    let warning = match status.is_nearly_full {
        true => "; nearly full: convert a table to pages, or raise resident_memory",
        false => "",
    };
    let (used, share) = (
        status.bytes,
        status.bytes.saturating_mul(100) / limit.max(1),
    );
    Some(format!(
        "rows in memory: {} of {}, {share} %{warning}",
        bytes(used),
        bytes(limit)
    ))
}

/// A name that may be missing.
pub(crate) fn named(name: &str) -> String {
    match name {
        "" => "(no label)".to_owned(),
        name => plain(name),
    }
}

/// A duration, or a dash if there was none.
pub(crate) fn time(duration: Duration) -> String {
    match duration.as_nanos() {
        0 => "-".to_owned(),
        nanos => duration_us(nanos as f64 / 1e3),
    }
}

/// Text without control characters, which could change a terminal.
pub(crate) fn plain(text: &str) -> String {
    let visible = |c: char| if c.is_control() { '·' } else { c };
    text.chars().map(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_would_move_the_cursor_does_not() {
        assert_eq!(who("1.2", "\x1b[2Jgone\n"), "·[2Jgone· (owner 1.2)");
    }

    #[test]
    fn a_checkpoint_shows_its_progress_its_waiters_and_its_last_failure() {
        let words = |json: &str| checkpoint(&serde_json::from_str(json).unwrap());
        let since = r#"{"log_bytes":3145728}"#;
        assert_eq!(words(since), "3 MiB of log since the last checkpoint");
        let made = r#"{"log_bytes":3145728,"done_bytes":512,"total_bytes":1024,"waiting":1}"#;
        assert_eq!(
            words(made),
            "checkpoint 50 % of 1 KiB, 3 MiB of log; 1 commit waits for it"
        );
        let kept = r#"{"log_holder":{"owner":"12.7","label":"load","since_micros":1500,"first_lsn":99,"log_bytes":3145728}}"#;
        let expected = "0 B of log since the last checkpoint; load (owner 12.7), open for 1.5 ms, \
                        keeps 3 MiB of log from 99 on";
        assert_eq!(words(kept), expected);
        let failed = r#"{"log_bytes":1,"waiting":1200,"failed":2,"last_failure":"full\n"}"#;
        assert_eq!(
            words(failed),
            "1 B of log since the last checkpoint; 1,200 commits wait for it; 2 failed: full·"
        );
    }

    #[test]
    fn a_duration_of_zero_is_a_dash() {
        assert_eq!(time(Duration::ZERO), "-");
        assert_eq!(time(Duration::from_micros(1_500)), "1.5 ms");
    }
}
