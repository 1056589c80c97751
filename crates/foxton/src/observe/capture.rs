//! Capture of the status of an engine: one queue at a time, with a limited number of entries.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foxton_lock::inspect::{self, LockSnapshot};
use foxton_lock::manager::LockManager;
use foxton_lock::name::{Class, Name};
use foxton_sync::shim::{AtomicU64, Ordering};

use crate::engine::page_store::OpenPages;
use crate::engine::{Counter, Engine};
use crate::status::{
    Checkpoints, ConflictingOwner, CycleMember, Deadlock, HotName, Locks, PageStatus, QueueStatus,
    RequestStatus, ResidentStatus, SnapshotStatus, Status, Transactions, Usage, VersionStatus,
};

/// Maximum number of holders and waiters in a status, approximately.
const ENTRIES: usize = 4_000;
/// Maximum number of conflicting owners listed for a waiter.
const NAMED: usize = 8;
/// Maximum number of tables, of labels and of hot names in a status.
const LISTED: usize = 100;

/// Names of tables by number; each is looked up once.
struct Names<'e> {
    engine: &'e Engine,
    known: HashMap<u32, String>,
}

impl Names<'_> {
    fn call(&mut self, name: Name) -> String {
        let engine = self.engine;
        let table = self.known.entry(name.space());
        name.in_table(table.or_insert_with(|| engine.catalog.name_of(name.space())))
    }
}

/// Captures the status.
pub(crate) fn status(engine: &Engine) -> Status {
    let worker = engine.workers.background_worker();
    let stats = engine.locks.stats(&worker);
    // Read together with the counts, so that rates are right.
    let open = engine.opened.elapsed();
    let snapshot = engine.locks.inspect_limited(&worker, ENTRIES);
    let names = &mut Names {
        engine,
        known: HashMap::new(),
    };
    let since_1970 = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let count = |count: Counter| engine.counters.sum(count as usize);
    Status {
        process: std::process::id(),
        database: engine.location.clone(),
        lock_manager: format!(
            "{} over {}",
            engine.options.lock_manager, engine.options.latch
        ),
        at_micros: micros(since_1970(SystemTime::now())),
        open,
        transactions: Transactions {
            commits: count(Counter::Commits),
            read_only_commits: count(Counter::ReadOnlyCommits),
            rollbacks: count(Counter::Rollbacks),
            deadlocks: count(Counter::Deadlocks),
            reruns: count(Counter::Reruns),
        },
        locks: Locks {
            acquisitions: stats.acquisitions,
            re_asks: stats.re_asks,
            waits: stats.waits,
            waited: Duration::from_micros(stats.wait_micros),
            half_within: stats.wait_quantile(0.5),
            most_within: stats.wait_quantile(0.99),
            busy: stats.busy,
            timeouts: stats.timeouts,
            deadlocks: stats.deadlocks,
            cancelled: stats.cancelled,
            memory_bytes: stats.memory_bytes as u64,
        },
        left_out: snapshot.truncated,
        queues: queues(snapshot, names),
        hot_names: stats
            .hot_names
            .iter()
            .take(LISTED)
            .map(|hot| HotName {
                name: names.call(hot.name),
                waits: hot.waits,
                waited: hot.waited,
            })
            .collect(),
        tables: stats
            .tables
            .iter()
            .take(LISTED)
            .map(|(table, source)| match table.class() {
                Class::Advisory => usage("(advisory)".to_owned(), source),
                _ => usage(names.call(*table), source),
            })
            .collect(),
        labels: stats
            .labels
            .iter()
            .take(LISTED)
            .map(|(label, source)| usage(label.to_string(), source))
            .collect(),
        checkpoints: checkpoints(engine),
        pages: engine.pages().map(page_status),
        resident: resident(engine),
        versions: versions(engine),
        deadlocks: engine
            .locks
            .deadlocks()
            .iter()
            .map(|found| Deadlock {
                at_micros: micros(since_1970(found.at)),
                cycle: cycle(&found.cycle, |name| names.call(name)),
            })
            .collect(),
    }
}

/// Returns the memory of resident rows.
pub(crate) fn resident(engine: &Engine) -> ResidentStatus {
    let memory = &engine.catalog.resident;
    let (bytes, limit) = (memory.bytes(), memory.limit());
    ResidentStatus {
        bytes,
        limit,
        is_nearly_full: limit
            .is_some_and(|limit| bytes.saturating_mul(5) >= limit.saturating_mul(4)),
    }
}

/// Returns the snapshots, and what is kept for them.
pub(crate) fn versions(engine: &Engine) -> VersionStatus {
    let snapshots = &engine.snapshots;
    let active = snapshots.active_list();
    // Relaxed: counted for people.
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    VersionStatus {
        bytes: count(&snapshots.retained),
        limit: engine.options.version_bytes,
        pruned: count(&snapshots.pruned),
        ended: count(&snapshots.ended),
        waits: snapshots.lsn_waits.read().count,
        active: active.len() as u64,
        snapshots: active
            .into_iter()
            .take(LISTED)
            .map(|snapshot| SnapshotStatus {
                lsn: snapshot.lsn.bytes(),
                age: snapshot.age,
                label: snapshot.label,
                bytes: snapshot.bytes,
            })
            .collect(),
    }
}

fn page_status(pages: &OpenPages) -> PageStatus {
    let stats = pages.pool().stats();
    PageStatus {
        page_bytes: pages.pool().page_size().bytes() as u64,
        frames: stats.frames as u64,
        free: stats.free as u64,
        dirty: stats.dirty as u64,
        reads: stats.reads,
        writes: stats.writes,
        lookups: stats.lookups,
        page_waits: stats.page_waits,
        waiting_for_pages: stats.waiters.pages + pages.waits.queued() as u64,
        waiting_for_latches: stats.waiters.latches,
        waiting_for_space: stats.waiters.space,
        waiting_for_cleaner: stats.stalled as u64,
        commit_stalls: stats.commit_stalls,
        change_stalls: stats.change_stalls,
    }
}

fn checkpoints(engine: &Engine) -> Checkpoints {
    let Some(logged) = engine.logged() else {
        return Checkpoints::default();
    };
    let stats = logged.checkpoints.stats();
    let (done, total) = stats.progress.unwrap_or_default();
    Checkpoints {
        made: stats.made,
        failed: stats.failed,
        last_failure: stats.last_failure.unwrap_or_default(),
        log_bytes: logged.log.written().since(stats.checkpoint_lsn),
        done_bytes: done,
        total_bytes: total,
        waiting: stats.waiting,
        waits: stats.throttled,
        waited: stats.throttled_for,
        log_holder: logged.log_holder(),
    }
}

/// Converts the members of a deadlock; `call` returns readable names.
pub(crate) fn cycle(
    members: &[foxton_lock::request::DeadlockMember],
    mut call: impl FnMut(Name) -> String,
) -> Vec<CycleMember> {
    let member = |member: &foxton_lock::request::DeadlockMember| CycleMember {
        owner: member.owner.to_string(),
        label: member.label.to_string(),
        age: member.age,
        lock_count: member.lock_count as u64,
        name: call(member.waits_for.0),
        mode: member.waits_for.1.to_string(),
        behind_mode: member.blocking_mode.to_string(),
        behind_holder: member.blocked_by_holder,
        victim: member.victim,
    };
    members.iter().map(member).collect()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn usage(name: String, source: &inspect::WaitUsage) -> Usage {
    Usage {
        name,
        waits: source.waits,
        waited: source.waited,
        longest_wait: source.longest_wait,
        holds: source.holds,
        held: source.held,
        longest_hold: source.longest_hold,
        timeouts: source.timeouts,
        deadlocks: source.deadlocks,
    }
}

fn queues(snapshot: LockSnapshot, names: &mut Names<'_>) -> Vec<QueueStatus> {
    let mut queues = snapshot.queues;
    // The sort is stable: names without waiters keep their order.
    queues.sort_by_key(|queue| {
        let longest = queue.waiters.iter().map(|waiter| waiter.waited).max();
        std::cmp::Reverse(longest)
    });
    let queue = |queue: &inspect::NameQueue| QueueStatus {
        name: names.call(queue.name),
        holders: queue
            .holders
            .iter()
            .map(|holder| entry(holder, Vec::new()))
            .collect(),
        waiters: queue
            .blocked(NAMED)
            .map(|blocked| entry(blocked.waiter, behind(&blocked)))
            .collect(),
    };
    queues.iter().map(queue).collect()
}

fn entry(source: &inspect::QueueRequest, behind: Vec<ConflictingOwner>) -> RequestStatus {
    RequestStatus {
        owner: source.owner.to_string(),
        label: source.label.to_string(),
        mode: source.mode.to_string(),
        // The age is coarse, the time waited is not.
        age: source.age.max(source.waited),
        waited: source.waited,
        behind,
    }
}

/// Returns the owners that a waiter waits for: holders, then the waiters ahead of it, nearest
/// first.
fn behind(blocked: &inspect::BlockedRequest<'_>) -> Vec<ConflictingOwner> {
    let blockers = blocked.blockers.iter();
    let source = blockers.map(|blocking| ConflictingOwner {
        owner: blocking.request.owner.to_string(),
        label: blocking.request.label.to_string(),
        mode: blocking.request.mode.to_string(),
        age: blocking.request.age,
        holds: blocking.holds,
    });
    source.collect()
}
