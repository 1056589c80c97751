//! What goes on in a database at one moment, as plain data: for a monitor, another process, a file.
//!
//! A [`Status`](crate::status::Picture) holds no reference to the database it was taken of. It is made by
//! [`Database::picture`](crate::Database::picture), or by another process that looks through a socket
//! (see [`observe`](crate::observe)), and is the same in both cases. As JSON its durations are whole
//! microseconds, and their names say so; fields that are not known are ignored and those that are
//! missing are empty, so that a viewer of another version sees what both know.

/// The wait-for graph, and its drawing.
pub mod wait_graph;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What goes on in a database at one moment. Each queue is consistent in itself; two queues may be
/// a moment apart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Status {
    /// The process.
    pub process: u32,
    /// Where the database is.
    pub database: String,
    /// Its lock manager and that one's latch.
    pub lock_manager: String,
    /// Microseconds since 1970, by the clock on the wall.
    pub at_micros: u64,
    /// How long it has been open.
    #[serde(with = "micros", rename = "open_micros")]
    pub open: Duration,
    /// Transactions since it was opened.
    pub transactions: Transactions,
    /// Locks since it was opened.
    pub locks: Locks,
    /// Names that somebody holds or waits for: first those with waiters, the longest wait first;
    /// then the others, in order.
    pub queues: Vec<LockQueue>,
    /// Whether there were more names than are shown.
    pub left_out: bool,
    /// The names that cost most time waited, that first.
    pub hot_names: Vec<HotName>,
    /// What waiting cost by table, most time waited first.
    pub tables: Vec<Usage>,
    /// What waiting cost by label, most time waited first; the first empty name is for
    /// transactions without one.
    pub labels: Vec<Usage>,
    /// The last deadlocks, the latest last.
    pub deadlocks: Vec<Deadlock>,
    /// Checkpoints since it was opened.
    pub checkpoints: Checkpoints,
}

/// Checkpoints since the database was opened, and who waits for one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Checkpoints {
    /// How many were made.
    pub made: u64,
    /// How many failed.
    pub failed: u64,
    /// Why the last one failed, or nothing.
    pub last_failure: String,
    /// Bytes of log behind the last one, which the next restart would replay.
    pub log_bytes: u64,
    /// Bytes that the one at hand has read; and 0 if none is being made.
    pub done_bytes: u64,
    /// Of how many; and 0 if none is being made.
    pub total_bytes: u64,
    /// Commits that wait for it now, since it cannot keep up with what is written.
    pub waiting: u64,
    /// Commits that have waited or do.
    pub waits: u64,
    /// How long those that have waited did, together.
    #[serde(with = "micros", rename = "waited_micros")]
    pub waited: Duration,
}

/// Transactions since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Transactions {
    /// Committed, with changes.
    pub commits: u64,
    /// Committed, without.
    pub read_only_commits: u64,
    /// Rolled back, whoever wanted it.
    pub rollbacks: u64,
    /// Ended because of a deadlock; counted as rolled back, too.
    pub deadlocks: u64,
    /// Times that `run` ran one again.
    pub reruns: u64,
}

/// Locks since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Locks {
    /// Names that came to be held, by transactions that have ended.
    pub acquisitions: u64,
    /// Requests for what was held already.
    pub re_asks: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// How long they waited, together.
    #[serde(with = "micros", rename = "waited_micros")]
    pub waited: Duration,
    /// Half of the waits took no longer, rounded up to a power of two of microseconds.
    #[serde(with = "micros", rename = "half_within_micros")]
    pub half_within: Duration,
    /// 99 of 100 waits took no longer, rounded up likewise.
    #[serde(with = "micros", rename = "most_within_micros")]
    pub most_within: Duration,
    /// Requests refused because they were not to wait.
    pub busy: u64,
    /// Waits that ended at their deadline.
    pub timeouts: u64,
    /// Waits that ended as the victim of a deadlock.
    pub deadlocks: u64,
    /// Waits that somebody ended from outside.
    pub cancelled: u64,
    /// Memory of the lock manager, about.
    pub memory_bytes: u64,
}

/// One name, who holds it and who waits for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LockQueue {
    /// What is locked, as a person would call it: `users`, `users/ann`, `users/end`.
    pub name: String,
    /// Who holds it, in no order.
    pub holders: Vec<QueueEntry>,
    /// Who waits, first come first. A conversion also stands among the holders, with what it has.
    pub waiters: Vec<QueueEntry>,
}

/// A holder or a waiter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct QueueEntry {
    /// Which transaction.
    pub owner: String,
    /// What people call it.
    pub label: String,
    /// What it holds, or would hold if granted.
    pub mode: String,
    /// How long ago it began, to within a clock tick.
    #[serde(with = "micros", rename = "age_micros")]
    pub age: Duration,
    /// For a waiter, how long it has waited.
    #[serde(with = "micros", rename = "waited_micros")]
    pub waited: Duration,
    /// For a waiter, whom it waits for directly: holders, then the nearest of those ahead of it;
    /// not more than eight.
    pub behind: Vec<ConflictingOwner>,
}

/// Somebody in the way of a waiter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ConflictingOwner {
    /// Which transaction.
    pub owner: String,
    /// What people call it.
    pub label: String,
    /// What it holds, or waits for earlier.
    pub mode: String,
    /// How long ago it began.
    #[serde(with = "micros", rename = "age_micros")]
    pub age: Duration,
    /// Whether it holds the name, or waits for it earlier.
    pub holds: bool,
}

/// A name that was waited for. Counts are lower bounds: only the worst names are followed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct HotName {
    /// The name.
    pub name: String,
    /// Requests that had to wait for it.
    pub waits: u64,
    /// How long, together.
    #[serde(with = "micros", rename = "waited_micros")]
    pub waited: Duration,
}

/// What waiting cost, for a table or for a label. Hold times are those of locks that had to be
/// waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// The table or the label.
    pub name: String,
    /// Requests that had to wait.
    pub waits: u64,
    /// How long they waited, together.
    #[serde(with = "micros", rename = "waited_micros")]
    pub waited: Duration,
    /// The longest of the waits.
    #[serde(with = "micros", rename = "longest_wait_micros")]
    pub longest_wait: Duration,
    /// Locks that were granted after a wait and have been given back.
    pub holds: u64,
    /// How long they were held, together.
    #[serde(with = "micros", rename = "held_micros")]
    pub held: Duration,
    /// The longest of the holds.
    #[serde(with = "micros", rename = "longest_hold_micros")]
    pub longest_hold: Duration,
    /// Waits that ended at their deadline.
    pub timeouts: u64,
    /// Waits that ended as the victim of a deadlock.
    pub deadlocks: u64,
}

/// A cycle of waits that was found, and who gave way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Deadlock {
    /// When it was found: microseconds since 1970.
    pub at_micros: u64,
    /// Each member waits for the next, the last for the first.
    pub cycle: Vec<CycleMember>,
}

/// One transaction of a cycle of waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CycleMember {
    /// Which transaction.
    pub owner: String,
    /// What people call it.
    pub label: String,
    /// How long ago it began.
    #[serde(with = "micros", rename = "age_micros")]
    pub age: Duration,
    /// How many locks it held.
    pub lock_count: u64,
    /// What it waits for.
    pub name: String,
    /// How it would hold it.
    pub mode: String,
    /// How the next one stands in its way: the mode it holds, or awaits earlier.
    pub behind_mode: String,
    /// Whether the next one holds the name, or waits for it earlier.
    pub behind_holder: bool,
    /// Whether it was chosen to give way.
    pub victim: bool,
}

impl Status {
    /// Everybody who waits, and for what; the longest wait first.
    pub fn waiters(&self) -> Vec<(&LockQueue, &QueueEntry)> {
        let of = |queue| -> &'_ LockQueue { queue };
        let mut waiters: Vec<(&LockQueue, &QueueEntry)> = Vec::new();
        for queue in self.queues.iter().map(of) {
            waiters.extend(queue.waiters.iter().map(|waiter| (queue, waiter)));
        }
        waiters.sort_by_key(|(_, waiter)| std::cmp::Reverse(waiter.waited));
        waiters
    }

    /// Transactions that were committed.
    pub fn all_commits(&self) -> u64 {
        self.transactions.commits + self.transactions.read_only_commits
    }
}

impl Usage {
    /// What a wait took on average.
    pub fn mean_wait(&self) -> Duration {
        mean(self.waited, self.waits)
    }

    /// How long a lock that had been waited for was held, on average.
    pub fn mean_hold(&self) -> Duration {
        mean(self.held, self.holds)
    }
}

impl HotName {
    /// What a wait took on average.
    pub fn mean_wait(&self) -> Duration {
        mean(self.waited, self.waits)
    }
}

fn mean(sum: Duration, count: u64) -> Duration {
    match count {
        0 => Duration::ZERO,
        _ => Duration::from_nanos((sum.as_nanos() / u128::from(count)) as u64),
    }
}

/// What a wait that lasts too long makes known: everybody who waits, behind whom, since when.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WaitDump {
    /// What no wait was to exceed.
    pub bound: Duration,
    /// How long the longest has lasted.
    pub longest: Duration,
    /// What goes on.
    pub status: Status,
}

impl fmt::Display for WaitDump {
    /// A line for each waiter, one for each in its way, and a blank line at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiters = self.status.waiters();
        let Status {
            process,
            database,
            at_micros,
            ..
        } = &self.status;
        writeln!(
            f,
            "a lock wait has lasted {:.1?}, longer than {:.1?}; {} wait (process {process}, \
             database {database}, {}.{:06} s since 1970):",
            self.longest,
            self.bound,
            waiters.len(),
            at_micros / 1_000_000,
            at_micros % 1_000_000
        )?;
        for (queue, waiter) in waiters {
            writeln!(
                f,
                "  {} has waited {:.1?} for {} on {}, {:.1?} old, behind",
                called(&waiter.owner, &waiter.label),
                waiter.waited,
                waiter.mode,
                queue.name,
                waiter.age
            )?;
            for other in &waiter.behind {
                let verb = if other.holds { "holds" } else { "waits for" };
                let who = called(&other.owner, &other.label);
                writeln!(f, "    {who}, {verb} {}, {:.1?} old", other.mode, other.age)?;
            }
        }
        writeln!(f)
    }
}

/// A transaction as it is called where there is room for one word: its label, or its owner.
pub fn called<'a>(owner: &'a str, label: &'a str) -> impl fmt::Display + 'a {
    struct Called<'a>(&'a str, &'a str);
    impl fmt::Display for Called<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.1 {
                "" => write!(f, "owner {}", self.0),
                label => write!(f, "{label} (owner {})", self.0),
            }
        }
    }
    Called(owner, label)
}

/// A duration as whole microseconds.
mod micros {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(value.as_micros()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_the_same_after_it_was_json() {
        let status = Status {
            process: 7,
            open: Duration::from_millis(1_500),
            queues: vec![LockQueue {
                name: "users/ann".into(),
                waiters: vec![QueueEntry {
                    waited: Duration::from_micros(12),
                    behind: vec![ConflictingOwner::default()],
                    ..QueueEntry::default()
                }],
                ..LockQueue::default()
            }],
            ..Status::default()
        };
        let json = serde_json::to_string(&status).unwrap();
        assert!(json.contains("\"open_micros\":1500000"), "{json}");
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
    }

    #[test]
    fn what_another_version_adds_or_leaves_out_does_no_harm() {
        let status: Status =
            serde_json::from_str(r#"{"process":7,"weather":"fair","locks":{"waits":3}}"#).unwrap();
        assert_eq!((status.process, status.locks.waits), (7, 3));
        assert!(serde_json::from_str::<Status>(r#"{"process":"seven"}"#).is_err());
    }

    #[test]
    fn the_longest_wait_comes_first_whatever_it_is_for() {
        let waiter = |owner: &str, millis| QueueEntry {
            owner: owner.into(),
            waited: Duration::from_millis(millis),
            ..QueueEntry::default()
        };
        let queue = |waiters| LockQueue {
            waiters,
            ..LockQueue::default()
        };
        let status = Status {
            queues: vec![
                queue(vec![waiter("a", 5), waiter("b", 1)]),
                queue(vec![waiter("c", 3)]),
            ],
            ..Status::default()
        };
        let order: Vec<&str> = status
            .waiters()
            .iter()
            .map(|(_, waiter)| waiter.owner.as_str())
            .collect();
        assert_eq!(order, ["a", "c", "b"]);
    }
}
