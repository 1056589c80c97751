//! Status of a database at one moment, as plain data: for a monitor, another process, or a file.
//!
//! A [`Status`](crate::status::Status) holds no reference to its database.
//! [`Database::status`](crate::Database::status) returns one, and so does another process through a
//! socket (see [`observe`](crate::observe)); both are the same. In JSON, durations are whole
//! microseconds, and the names of their fields say so. A reader ignores unknown fields and treats
//! missing ones as empty, so it works with another version.

/// The wait-for graph.
pub mod wait_graph;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Status of a database at one moment. Each queue is consistent in itself; two queues may be a
/// moment apart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Status {
    /// Id of the process.
    pub process: u32,
    /// Location of the database.
    pub database: String,
    /// The lock manager and its latch.
    pub lock_manager: String,
    /// Wall-clock time of the status: microseconds since 1970.
    pub at_micros: u64,
    /// Time since the database was opened.
    #[serde(with = "micros", rename = "open_micros")]
    pub open: Duration,
    /// Counts of transactions since the database was opened.
    pub transactions: Transactions,
    /// Counts of locks since the database was opened.
    pub locks: Locks,
    /// Names that are locked or waited for: first those with waiters, longest wait first; then the
    /// others, in order.
    pub queues: Vec<QueueStatus>,
    /// True if there are more names than `queues` contains.
    pub left_out: bool,
    /// The names with the most waiting time, in descending order.
    pub hot_names: Vec<HotName>,
    /// Waiting by table, in descending order of time waited.
    pub tables: Vec<Usage>,
    /// Waiting by label, in descending order of time waited. An empty name stands for transactions
    /// without a label.
    pub labels: Vec<Usage>,
    /// The most recent deadlocks, the latest last.
    pub deadlocks: Vec<Deadlock>,
    /// Checkpoints since the database was opened.
    pub checkpoints: Checkpoints,
    /// Pages of paged tables; `None` if there are no paged tables.
    pub pages: Option<PageStatus>,
    /// Memory of the rows of tables in memory.
    pub resident: ResidentStatus,
    /// Snapshots, and the versions that are kept for them.
    pub versions: VersionStatus,
}

/// Snapshots, and the versions that are kept for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct VersionStatus {
    /// Bytes of the versions that are kept, about.
    pub bytes: u64,
    /// [`Options::version_bytes`](crate::Options::version_bytes).
    pub limit: u64,
    /// Versions that were freed because no snapshot needed them.
    pub pruned: u64,
    /// Number of times that a snapshot was ended to free memory.
    pub ended: u64,
    /// Number of times that a reader has waited for a commit that was taking its place in the log.
    pub waits: u64,
    /// Number of active snapshots.
    pub active: u64,
    /// The oldest active snapshots, the oldest first, at most a hundred.
    pub snapshots: Vec<SnapshotStatus>,
}

/// An active snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SnapshotStatus {
    /// Its position in the log, in bytes.
    pub lsn: u64,
    /// Time since its handle was made, or its transaction began.
    #[serde(with = "micros", rename = "age_micros")]
    pub age: Duration,
    /// Label of the handle or of the transaction; empty if it has none.
    pub label: String,
    /// Bytes of the versions that are kept for it, about.
    pub bytes: u64,
}

/// Memory of the rows of tables in memory, with the entries of their indexes. Bytes are
/// approximate, because each worker reports its changes in lots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ResidentStatus {
    /// Bytes in use.
    pub bytes: u64,
    /// [`Options::resident_memory`](crate::Options::resident_memory); `None` for no limit.
    pub limit: Option<u64>,
    /// True if at least four fifths of the limit are in use: convert a table to pages, or raise
    /// the limit, before writes are refused with `resident_room`.
    pub is_nearly_full: bool,
}

/// Pages of paged tables in memory, and reads and writes since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PageStatus {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Number of pages that fit the memory for pages.
    pub frames: u64,
    /// Number of pages for which there is space in that memory now.
    pub free: u64,
    /// Number of pages that have changed since they were written.
    pub dirty: u64,
    /// Number of pages read from the page file.
    pub reads: u64,
    /// Number of pages written to it.
    pub writes: u64,
    /// Number of operations on the trees of rows and indexes.
    pub lookups: u64,
    /// Number of times that one of them has waited for pages that were not in memory, or waits.
    pub page_waits: u64,
    /// Number of threads and tasks that wait for pages that are not in memory.
    pub waiting_for_pages: u64,
    /// Number of threads that wait for the latch of a page.
    pub waiting_for_latches: u64,
    /// Number of threads that wait for space in the page file or in the log.
    pub waiting_for_space: u64,
    /// Number of threads and tasks that wait for the page cleaner, because too many pages are
    /// dirty.
    pub waiting_for_cleaner: u64,
    /// Number of times that a commit has waited for the page cleaner, or waits.
    pub commit_stalls: u64,
    /// Number of times that a change has waited for the page cleaner, or waits.
    pub change_stalls: u64,
}

/// Checkpoints since the database was opened, and commits that wait for one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Checkpoints {
    /// Number of checkpoints made.
    pub made: u64,
    /// Number of checkpoints that failed.
    pub failed: u64,
    /// Error of the last failure; empty if there was none.
    pub last_failure: String,
    /// Bytes of log after the last checkpoint, which the next restart would replay.
    pub log_bytes: u64,
    /// Bytes read by the checkpoint in progress; 0 if there is none.
    pub done_bytes: u64,
    /// Bytes it has to read in total; 0 if there is none.
    pub total_bytes: u64,
    /// Number of commits that wait because checkpoints fall behind.
    pub waiting: u64,
    /// Number of commits that have waited or wait.
    pub waits: u64,
    /// Total time of completed waits.
    #[serde(with = "micros", rename = "waited_micros")]
    pub waited: Duration,
    /// The open transaction that keeps the most log from being removed, if there is one.
    pub log_holder: Option<LogHolder>,
}

/// An open transaction that has changed pages, or has written parts of its other changes to the
/// log. The log is kept from its first record on, until it ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LogHolder {
    /// Id of the transaction.
    pub owner: String,
    /// Label of the transaction. One without changes of pages is shown with the label that it had
    /// when it wrote its first part.
    pub label: String,
    /// Time since it wrote its first part; of one that has changed pages, since it began.
    #[serde(with = "micros", rename = "since_micros")]
    pub since: Duration,
    /// Position in the log where its first record begins, in bytes.
    pub first_lsn: u64,
    /// Bytes of log from its first record on, those of other transactions included.
    pub log_bytes: u64,
}

/// Counts of transactions since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Transactions {
    /// Committed with changes.
    pub commits: u64,
    /// Committed without changes.
    pub read_only_commits: u64,
    /// Rolled back, for any reason.
    pub rollbacks: u64,
    /// Victims of a deadlock; counted as rolled back, too.
    pub deadlocks: u64,
    /// Times that `run` reran a transaction.
    pub reruns: u64,
}

/// Counts of locks since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Locks {
    /// Names locked by transactions that have ended.
    pub acquisitions: u64,
    /// Requests for a lock that the transaction held already.
    pub re_asks: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Total time waited.
    #[serde(with = "micros", rename = "waited_micros")]
    pub waited: Duration,
    /// Half of the waits took at most this long, rounded up to a power of two of microseconds.
    #[serde(with = "micros", rename = "half_within_micros")]
    pub half_within: Duration,
    /// 99 of 100 waits took at most this long, rounded up likewise.
    #[serde(with = "micros", rename = "most_within_micros")]
    pub most_within: Duration,
    /// Requests refused because they were not to wait.
    pub busy: u64,
    /// Waits that ended at their deadline.
    pub timeouts: u64,
    /// Waits that ended as the victim of a deadlock.
    pub deadlocks: u64,
    /// Waits that a cancel token ended.
    pub cancelled: u64,
    /// Approximate memory of the lock manager, in bytes.
    pub memory_bytes: u64,
}

/// The holders and waiters of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct QueueStatus {
    /// The locked name in readable form: `users`, `users/ann`, `users/end`.
    pub name: String,
    /// The holders, in no order.
    pub holders: Vec<RequestStatus>,
    /// The waiters, first come first. A conversion is among the holders too, with its present mode.
    pub waiters: Vec<RequestStatus>,
}

/// A holder or a waiter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RequestStatus {
    /// Id of the transaction.
    pub owner: String,
    /// Label of the transaction.
    pub label: String,
    /// Mode it holds, or would hold if granted.
    pub mode: String,
    /// Age of the transaction, to within a clock tick.
    #[serde(with = "micros", rename = "age_micros")]
    pub age: Duration,
    /// For a waiter: time waited.
    #[serde(with = "micros", rename = "waited_micros")]
    pub waited: Duration,
    /// For a waiter: the owners it waits for directly, at most eight. First holders, then the
    /// nearest of the waiters ahead.
    pub behind: Vec<ConflictingOwner>,
}

/// An owner that conflicts with a waiter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ConflictingOwner {
    /// Id of the transaction.
    pub owner: String,
    /// Label of the transaction.
    pub label: String,
    /// Mode it holds, or waits for ahead of the waiter.
    pub mode: String,
    /// Age of the transaction.
    #[serde(with = "micros", rename = "age_micros")]
    pub age: Duration,
    /// True if it holds the name; false if it waits for it ahead.
    pub holds: bool,
}

/// A name with waits. Counts are lower bounds, because only the worst names are tracked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct HotName {
    /// The name.
    pub name: String,
    /// Requests that had to wait for it.
    pub waits: u64,
    /// Total time waited.
    #[serde(with = "micros", rename = "waited_micros")]
    pub waited: Duration,
}

/// Waiting for a table or a label. Hold times cover only locks that had to be waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// The table or the label.
    pub name: String,
    /// Requests that had to wait.
    pub waits: u64,
    /// Total time waited.
    #[serde(with = "micros", rename = "waited_micros")]
    pub waited: Duration,
    /// The longest wait.
    #[serde(with = "micros", rename = "longest_wait_micros")]
    pub longest_wait: Duration,
    /// Locks that were granted after a wait and released.
    pub holds: u64,
    /// Total time they were held.
    #[serde(with = "micros", rename = "held_micros")]
    pub held: Duration,
    /// The longest time one was held.
    #[serde(with = "micros", rename = "longest_hold_micros")]
    pub longest_hold: Duration,
    /// Waits that ended at their deadline.
    pub timeouts: u64,
    /// Waits that ended as the victim of a deadlock.
    pub deadlocks: u64,
}

/// A deadlock that was detected, and its victim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Deadlock {
    /// Time of detection: microseconds since 1970.
    pub at_micros: u64,
    /// Each member waits for the next, the last for the first.
    pub cycle: Vec<CycleMember>,
}

/// One transaction of a deadlock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CycleMember {
    /// Id of the transaction.
    pub owner: String,
    /// Label of the transaction.
    pub label: String,
    /// Age of the transaction.
    #[serde(with = "micros", rename = "age_micros")]
    pub age: Duration,
    /// Number of locks it held.
    pub lock_count: u64,
    /// Name it waits for.
    pub name: String,
    /// Mode it waits for.
    pub mode: String,
    /// Conflicting mode of the next member, which that member holds or waits for ahead.
    pub behind_mode: String,
    /// True if the next member holds the name; false if it waits for it ahead.
    pub behind_holder: bool,
    /// True if this member is the victim.
    pub victim: bool,
}

impl Status {
    /// Returns all waiters and the queues they wait in, longest wait first.
    pub fn waiters(&self) -> Vec<(&QueueStatus, &RequestStatus)> {
        let of = |queue| -> &'_ QueueStatus { queue };
        let mut waiters: Vec<(&QueueStatus, &RequestStatus)> = Vec::new();
        for queue in self.queues.iter().map(of) {
            waiters.extend(queue.waiters.iter().map(|waiter| (queue, waiter)));
        }
        waiters.sort_by_key(|(_, waiter)| std::cmp::Reverse(waiter.waited));
        waiters
    }

    /// Returns the number of committed transactions.
    pub fn all_commits(&self) -> u64 {
        self.transactions.commits + self.transactions.read_only_commits
    }
}

impl Usage {
    /// Returns the mean duration of a wait.
    pub fn mean_wait(&self) -> Duration {
        mean(self.waited, self.waits)
    }

    /// Returns the mean time that a lock was held after a wait for it.
    pub fn mean_hold(&self) -> Duration {
        mean(self.held, self.holds)
    }
}

impl HotName {
    /// Returns the mean duration of a wait.
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

/// A dump of all waits, made when one lasts too long.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WaitDump {
    /// The limit that a wait has exceeded.
    pub bound: Duration,
    /// Duration of the longest wait.
    pub longest: Duration,
    /// Status of the database.
    pub status: Status,
}

impl fmt::Display for WaitDump {
    /// Writes a line for each waiter, one for each owner it waits for, one for the transaction that
    /// keeps the most log, and a blank line at the end.
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
        if let Some(holder) = &self.status.checkpoints.log_holder {
            writeln!(
                f,
                "  {} has kept the log for {:.1?}, {} bytes from {} on",
                called(&holder.owner, &holder.label),
                holder.since,
                holder.log_bytes,
                holder.first_lsn
            )?;
        }
        writeln!(f)
    }
}

/// Returns the name of a transaction for display: its label and its id, or its id.
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

/// Serialization of a duration as whole microseconds.
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
    fn a_status_survives_a_round_trip_through_json() {
        let status = Status {
            process: 7,
            open: Duration::from_millis(1_500),
            queues: vec![QueueStatus {
                name: "users/ann".into(),
                waiters: vec![RequestStatus {
                    waited: Duration::from_micros(12),
                    behind: vec![ConflictingOwner::default()],
                    ..RequestStatus::default()
                }],
                ..QueueStatus::default()
            }],
            ..Status::default()
        };
        let json = serde_json::to_string(&status).unwrap();
        assert!(json.contains("\"open_micros\":1500000"), "{json}");
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
    }

    #[test]
    fn a_dump_names_the_transaction_that_keeps_the_log() {
        let mut dump = WaitDump {
            bound: Duration::from_secs(1),
            longest: Duration::from_secs(2),
            status: Status::default(),
        };
        assert!(!dump.to_string().contains("kept"), "{dump}");
        dump.status.checkpoints.log_holder = Some(LogHolder {
            owner: "12.7".into(),
            label: "load".into(),
            since: Duration::from_secs(60),
            first_lsn: 900,
            log_bytes: 4096,
        });
        let line = "  load (owner 12.7) has kept the log for 60.0s, 4096 bytes from 900 on\n\n";
        assert!(dump.to_string().ends_with(line), "{dump}");
    }

    #[test]
    fn unknown_and_missing_fields_do_no_harm() {
        let status: Status =
            serde_json::from_str(r#"{"process":7,"weather":"fair","locks":{"waits":3}}"#).unwrap();
        assert_eq!((status.process, status.locks.waits), (7, 3));
        assert!(serde_json::from_str::<Status>(r#"{"process":"seven"}"#).is_err());
    }

    #[test]
    fn the_longest_wait_comes_first() {
        let waiter = |owner: &str, millis| RequestStatus {
            owner: owner.into(),
            waited: Duration::from_millis(millis),
            ..RequestStatus::default()
        };
        let queue = |waiters| QueueStatus {
            waiters,
            ..QueueStatus::default()
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
