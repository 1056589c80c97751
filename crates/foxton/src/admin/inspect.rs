//! Inspection of a database: lock holders and waiters, recent deadlocks, and statistics.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use foxton_lock::inspect::{LockSnapshot, NameQueue, QueueRequest};
use foxton_lock::manager::LockManager;
use foxton_lock::name::Class;
use foxton_lock::request::MAX_BLOCKERS;

use crate::admin::indexes::IndexStats;
pub use crate::admin::page_stats::PageStats;
use crate::api::database::Database;
use crate::catalog::conversions::RowsPlace;
use crate::catalog::index_catalog::is_index_table;
use crate::catalog::table_store::TableStore;
use crate::engine::Counter;
use crate::error::TableNames;
use crate::observe::capture;
use crate::status::wait_graph::WaitGraph;
use crate::status::{Deadlock, ResidentStatus, Status, VersionStatus};
use crate::types::component::TableComponent;

pub use foxton_lock::inspect::LockStats;
pub use foxton_lock::mode::Mode;
pub use foxton_lock::name::Name;
pub use foxton_lock::request::{DeadlockMember, OwnerId, OwnerLabel as Label};
pub use foxton_log::LogStats;
pub use foxton_sync::htm::Elisions;
pub use foxton_sync::site::AccountSummary as Account;

/// A lock that a transaction holds.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HeldLock {
    /// Name of its table; empty for an advisory lock.
    pub table: String,
    /// The lock's name: the table, a key and the gap before it, the gap after the last key, or an
    /// advisory number.
    pub name: Name,
    /// The mode.
    pub mode: Mode,
    /// Id of the transaction.
    pub owner: OwnerId,
    /// Label of the transaction.
    pub label: Label,
    /// Age of the transaction.
    pub age: Duration,
}

/// A transaction that waits for a lock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WaitingLock {
    /// The lock it waits for, in the mode requested.
    pub lock: HeldLock,
    /// Time waited.
    pub waited: Duration,
    /// The owners it waits for directly, at most 16. First holders, then the nearest of the waiters
    /// ahead.
    pub blockers: Vec<(OwnerId, Label)>,
    /// Number of further owners it waits for directly.
    pub more_blockers: usize,
}

/// A transaction or session that holds a lock or waits for one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenTransaction {
    /// Id of the transaction.
    pub owner: OwnerId,
    /// Label of the transaction.
    pub label: Label,
    /// Age of the transaction. A session's transactions have the session's id, and each has its own
    /// age.
    pub age: Duration,
    /// Time since its program last used it; zero during an operation. Known only with
    /// [`Options::idle_timeout`](crate::Options::idle_timeout).
    pub idle: Option<Duration>,
    /// Number of locks it holds.
    pub locks: usize,
    /// The lock it waits for, in readable form.
    pub awaits: Option<String>,
}

impl OpenTransaction {
    fn new(entry: &QueueRequest) -> OpenTransaction {
        OpenTransaction {
            owner: entry.owner,
            label: entry.label.clone(),
            age: entry.age,
            idle: None,
            locks: 0,
            awaits: None,
        }
    }
}

impl fmt::Display for OpenTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OpenTransaction {
            owner,
            label,
            age,
            locks,
            ..
        } = self;
        write!(f, "{owner} {label} holds {locks} locks ({age:.1?} old")?;
        if let Some(idle) = self.idle.filter(|idle| !idle.is_zero()) {
            write!(f, ", idle for {idle:.1?}")?;
        }
        f.write_str(")")?;
        match &self.awaits {
            Some(place) => write!(f, " and waits for {place}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for HeldLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeldLock {
            mode,
            owner,
            label,
            age,
            ..
        } = self;
        let place = self.place();
        write!(f, "{owner} {label} {mode} on {place} ({age:.1?} old)")
    }
}

impl HeldLock {
    /// Returns the lock's name in readable form: `users`, `users/ann`, `users/end`.
    pub fn place(&self) -> String {
        self.name.in_table(&self.table)
    }
}

impl fmt::Display for WaitingLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has waited {:.1?} for", self.lock, self.waited)?;
        for (owner, label) in &self.blockers {
            write!(f, " {owner} {label}")?;
        }
        match self.more_blockers {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// A deadlock that was detected, and its victim.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeadlockReport {
    /// Time of detection.
    pub at: SystemTime,
    /// Each member waits for the next, the last for the first.
    pub cycle: Vec<DeadlockMember>,
    tables: TableNames,
}

impl fmt::Display for DeadlockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a deadlock of {}:", self.cycle.len())?;
        let call = |name| self.tables.call(name);
        self.cycle
            .iter()
            .try_for_each(|member| writeln!(f, "  {}", member.with_names(&call)))
    }
}

impl DeadlockReport {
    /// Returns the wait-for graph of the deadlock, with the cycle and the victim.
    pub fn graph(&self) -> WaitGraph {
        WaitGraph::of_deadlock(&Deadlock {
            at_micros: 0,
            cycle: capture::cycle(&self.cycle, |name| self.tables.call(name)),
        })
    }
}

/// Statistics since the database was opened.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Transactions committed with changes.
    pub commits: u64,
    /// Transactions committed without changes.
    pub read_only_commits: u64,
    /// Transactions rolled back, for any reason.
    pub rollbacks: u64,
    /// Victims of a deadlock; counted as rolled back, too.
    pub deadlocks: u64,
    /// Times that `run` reran a transaction.
    pub reruns: u64,
    /// Transactions ended because they were idle for too long; counted as rolled back, too.
    pub idle_ended: u64,
    /// Transactions that a [`CancelToken`](crate::CancelToken) ended; counted as rolled back, too.
    pub cancelled: u64,
    /// Records of deleted keys that were removed.
    pub ghosts_purged: u64,
    /// Records of deleted keys that had to stay for a while, because a transaction had read next to
    /// them.
    pub ghosts_left: u64,
    /// Statistics of the lock manager.
    pub locks: LockStats,
    /// Statistics of the log.
    pub log: LogStats,
    /// Memory of the rows of tables in memory.
    pub resident: ResidentStatus,
    /// Snapshots, and the versions that are kept for them.
    pub versions: VersionStatus,
    /// Pages of paged tables; `None` if there are no paged tables.
    pub pages: Option<PageStats>,
    /// The tables.
    pub tables: Vec<TableStats>,
    /// The secondary indexes.
    pub indexes: Vec<IndexStats>,
    /// Critical sections passed by transactions and other calls, by component and pattern; empty
    /// without the feature `account`.
    pub account: Account,
    /// Critical sections passed by the engine's own threads (flusher, background thread, checkpoint
    /// thread) and by inspections like this one.
    pub background_account: Account,
    /// Statistics of latch elision, by worker; all zero unless the chosen latch elides and the
    /// processor supports it.
    pub elisions: Vec<Elisions>,
}

/// One table.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TableStats {
    /// Name of the table.
    pub name: String,
    /// Where its rows are.
    pub component: TableComponent,
    /// Name of its key type.
    pub key_type: String,
    /// Name of its value type.
    pub value_type: String,
    /// [Hash](crate::types::codec::TypeName::hash) of its key type's name, which may be longer than
    /// the stored name.
    pub key_hash: u64,
    /// Hash of its value type's name.
    pub value_hash: u64,
    /// Number of keys, estimated from a sample of the table's nodes: large tables are wrong by a
    /// few percent, and differently after each opening. Includes deleted keys that are still
    /// linked. 0 for paged tables, whose keys are not counted. For the exact number, count a range:
    /// `tx.range(&TABLE, ..).count()`.
    pub keys: u64,
}

impl Database {
    /// Returns all locks and their holders. Each lock was held at some moment during the call; no
    /// transaction is stopped.
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const T: Table<u64, u64> = Table::new("stock");
    /// # let db = Database::in_memory(Options::default())?;
    /// let mut tx = db.begin()?;
    /// tx.set_label("restock");
    /// tx.put(&T, &7, &1)?;
    /// let locks = db.locks();
    /// assert!(locks.iter().any(|lock| lock.label == "restock" && lock.table == "stock"));
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// The result can be grouped, for example by owner:
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use foxton::Database;
    /// use foxton::inspect::{Mode, Name, OwnerId};
    ///
    /// fn by_owner(db: &Database) -> HashMap<OwnerId, Vec<(Name, Mode)>> {
    ///     let mut held: HashMap<_, Vec<_>> = HashMap::new();
    ///     for lock in db.locks() {
    ///         held.entry(lock.owner).or_default().push((lock.name, lock.mode));
    ///     }
    ///     held
    /// }
    /// # let db = Database::in_memory(foxton::Options::default())?;
    /// # let mut tx = db.begin()?;
    /// # tx.put(&foxton::Table::<u64, u64>::new("stock"), &7, &1)?;
    /// assert_eq!(by_owner(&db).len(), 1);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    pub fn locks(&self) -> Vec<HeldLock> {
        let snapshot = self.lock_snapshot();
        let held = |queue: &NameQueue| {
            let describe = |entry: &QueueRequest| self.describe(queue.name, entry);
            queue.holders.iter().map(describe).collect::<Vec<_>>()
        };
        snapshot.queues.iter().flat_map(held).collect()
    }

    /// Returns all transactions that hold or wait for locks, oldest first. A transaction that was
    /// forgotten, or that its program does not end, stands out by its age. With
    /// [`Options::idle_timeout`](crate::Options::idle_timeout) it also stands out by its idle time.
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const T: Table<u64, u64> = Table::new("stock");
    /// # let db = Database::in_memory(Options::default())?;
    /// let mut tx = db.begin()?;
    /// tx.set_label("restock");
    /// tx.put(&T, &7, &1)?;
    /// std::mem::forget(tx);
    /// let open = db.transactions();
    /// assert_eq!((open.len(), &*open[0].label), (1, "restock"));
    /// assert!(open[0].locks > 0);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    pub fn transactions(&self) -> Vec<OpenTransaction> {
        let snapshot = self.lock_snapshot();
        let engine = self.engine();
        let mut open: HashMap<OwnerId, OpenTransaction> = HashMap::new();
        if engine.is_inherited() {
            return Vec::new();
        }
        for queue in &snapshot.queues {
            for holder in &queue.holders {
                let new = || OpenTransaction::new(holder);
                open.entry(holder.owner).or_insert_with(new).locks += 1;
            }
            for waiter in &queue.waiters {
                let new = || OpenTransaction::new(waiter);
                let place = self.describe(queue.name, waiter).place();
                open.entry(waiter.owner).or_insert_with(new).awaits = Some(place);
            }
        }
        if engine.options.idle_timeout.is_some() {
            let now = engine.workers.clock().now();
            let idle: HashMap<OwnerId, _> = engine.idle.all().into_iter().collect();
            for (owner, open) in &mut open {
                let since = idle.get(owner).copied().unwrap_or(now);
                open.idle = Some(now.saturating_duration_since(since));
            }
        }
        let mut open: Vec<OpenTransaction> = open.into_values().collect();
        open.sort_by_key(|open| std::cmp::Reverse(open.age));
        open
    }

    /// Returns the status of the database as plain data of bounded size. Names with waiters come
    /// first, then as many other locked names as fit.
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const T: Table<u64, u64> = Table::new("stock");
    /// # let db = Database::in_memory(Options::default())?;
    /// # let mut tx = db.begin()?;
    /// tx.put(&T, &7, &1)?;
    /// let status = db.status();
    /// assert!(status.queues.iter().any(|queue| queue.name == "stock"));
    /// assert!(status.waiters().is_empty());
    /// # Ok::<(), foxton::Error>(())
    /// ```
    pub fn status(&self) -> Status {
        match self.engine().is_inherited() {
            false => capture::status(self.engine()),
            true => Status::default(),
        }
    }

    /// Returns the wait-for graph.
    pub fn wait_graph(&self) -> WaitGraph {
        WaitGraph::of_status(&self.status())
    }

    /// Returns all waiting transactions and the owners they wait for, longest wait first. Time and
    /// memory are of the order of the number of holders and waiters.
    pub fn waits(&self) -> Vec<WaitingLock> {
        let snapshot = self.lock_snapshot();
        let waits = snapshot.queues.iter().flat_map(|queue| {
            let blocked = queue.blocked(MAX_BLOCKERS);
            blocked.map(|blocked| WaitingLock {
                lock: self.describe(queue.name, blocked.waiter),
                waited: blocked.waiter.waited,
                blockers: blocked
                    .blockers
                    .iter()
                    .map(|blocking| (blocking.request.owner, blocking.request.label.clone()))
                    .collect(),
                more_blockers: blocked.more,
            })
        });
        let mut waits: Vec<WaitingLock> = waits.collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.waited));
        waits
    }

    /// Returns the most recent deadlocks, the latest last.
    pub fn deadlocks(&self) -> Vec<DeadlockReport> {
        let engine = self.engine();
        if engine.is_inherited() {
            return Vec::new();
        }
        let report = |found: foxton_lock::inspect::DeadlockCycle| DeadlockReport {
            at: found.at,
            tables: TableNames::of(
                found.cycle.iter().map(|member| member.waits_for.0),
                |table| engine.catalog.name_of(table),
            ),
            cycle: found.cycle,
        };
        engine.locks.deadlocks().into_iter().map(report).collect()
    }

    /// Returns the statistics since the database was opened.
    pub fn stats(&self) -> Stats {
        let engine = self.engine();
        if engine.is_inherited() {
            return Stats::default();
        }
        let worker = engine.workers.background_worker();
        let count = |count: Counter| engine.counters.sum(count as usize);
        let guard = worker.pin();
        let table = |table: &crate::catalog::OpenTable| TableStats {
            name: table.record.name.clone(),
            component: match &table.store {
                TableStore::Resident(_) => TableComponent::Resident,
                TableStore::Paged(_) => TableComponent::Paged,
            },
            key_type: table.record.key_type.0.clone(),
            value_type: table.record.value_type.0.clone(),
            key_hash: table.record.key_type.1,
            value_hash: table.record.value_type.1,
            keys: match &table.store {
                TableStore::Resident(rows) => rows.len_estimate(&guard),
                TableStore::Paged(_) => 0,
            },
        };
        Stats {
            commits: count(Counter::Commits),
            read_only_commits: count(Counter::ReadOnlyCommits),
            rollbacks: count(Counter::Rollbacks),
            deadlocks: count(Counter::Deadlocks),
            reruns: count(Counter::Reruns),
            idle_ended: count(Counter::IdleEnded),
            cancelled: count(Counter::Cancelled),
            ghosts_purged: count(Counter::GhostsPurged),
            ghosts_left: count(Counter::GhostsLeft),
            locks: engine.locks.stats(&worker),
            log: engine
                .log()
                .map_or_else(LogStats::default, |log| log.stats(&worker)),
            resident: capture::resident(engine),
            versions: capture::versions(engine),
            pages: engine.pages().map(PageStats::of),
            tables: engine
                .catalog
                .tables()
                .iter()
                .filter(|open| open.place.is(RowsPlace::Current))
                .filter(|open| !is_index_table(&open.record.name))
                .map(|open| table(open))
                .collect(),
            indexes: self.indexes(),
            account: engine.workers.account(),
            background_account: engine.workers.background_account(),
            elisions: engine.workers.elisions_by_worker(),
        }
    }

    /// Returns the critical sections passed so far: by transactions and other calls, and by the
    /// engine's own threads and inspections. Both are empty without the feature `account`. This
    /// call passes none, whereas [`stats`](Self::stats) visits every part of the engine.
    pub fn accounts(&self) -> (Account, Account) {
        if self.engine().is_inherited() {
            return Default::default();
        }
        let workers = &self.engine().workers;
        (workers.account(), workers.background_account())
    }

    /// Panics if an invariant of the locks or of a table is broken. Slow, and only while no
    /// transaction runs; for tests.
    pub fn verify(&self) {
        let engine = self.engine();
        if engine.is_inherited() {
            return;
        }
        let worker = engine.workers.background_worker();
        // Site: "large values": for tests. The thread that frees them has locks and pages.
        let freeing = engine.pages().map(|pages| &pages.values.freeing);
        let _rest = freeing.map(foxton_sync::shim::lock);
        engine.locks.verify(&worker);
        let guard = worker.pin();
        for table in engine.catalog.tables() {
            if let TableStore::Resident(rows) = &table.store {
                rows.verify(&guard);
            }
        }
        if let Some(pages) = engine.pages() {
            pages.verify(&worker);
        }
        for index in engine.catalog.indexes() {
            if let Some(open) = index.open
                && let TableStore::Resident(entries) = &open.entries.store
            {
                entries.verify(&guard);
            }
        }
    }

    fn lock_snapshot(&self) -> LockSnapshot {
        let engine = self.engine();
        if engine.is_inherited() {
            return LockSnapshot::default();
        }
        engine.locks.inspect(&engine.workers.background_worker())
    }

    fn describe(&self, name: Name, entry: &QueueRequest) -> HeldLock {
        let table = match name.class() {
            Class::Advisory => String::new(),
            _ => self.engine().catalog.name_of(name.space()),
        };
        let QueueRequest {
            owner,
            label,
            mode,
            age,
            ..
        } = entry.clone();
        HeldLock {
            table,
            name,
            mode,
            owner,
            label,
            age,
        }
    }
}
