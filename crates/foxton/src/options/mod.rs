//! Options of an open database.
//!
//! Options are not stored: a program may open a database with other options each time.

/// Admission: how many transactions run at once.
pub(crate) mod admission;

/// Progress of opening a database.
pub mod progress;

/// Method by which snapshots are taken.
pub(crate) mod snapshot_method;
/// Warnings about versions that snapshots keep.
pub(crate) mod version_warning;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use foxton_lock::any::DEFAULT_BUCKET_COUNT;
use foxton_log::format::segment;
use foxton_store::paged::page::PageSize;
use foxton_store::paged::pool::{BufferPool, CLEAN_BATCH, MIN_FRAMES};
use foxton_sync::failpoint::Failpoints;
use foxton_sync::worker::Workers;

use crate::error::{Request, Result};
use crate::options::admission::Admission;
use crate::options::progress::ProgressCall;
use crate::options::snapshot_method::SnapshotMethod;
use crate::options::version_warning::VersionCall;
use crate::status::WaitDump;
use crate::types::component::TableComponent;
use crate::types::index::Indexes;
use crate::types::isolation::Isolation;

pub use foxton_lock::any::Inheritance as LockInheritance;
pub use foxton_lock::any::ManagerKind as LockManagerKind;
pub use foxton_lock::deadlock::VictimPolicy;
pub use foxton_log::BufferKind as LogBufferKind;
pub use foxton_sync::latch::Kind as LatchKind;
pub use foxton_sync::named_enum::UnknownChoice;

/// Options of an open database. Start with [`Options::default`] and change fields.
///
/// ```
/// use foxton::{Database, Durability, Options};
/// use std::time::Duration;
///
/// let mut options = Options::default();
/// options.lock_wait = Duration::from_millis(200);
/// options.durability = Durability::Buffered;
/// let db = Database::in_memory(options)?;
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Whether the database is opened to be read. Default false.
    ///
    /// Opening it then needs no free space and no permission to write: it changes nothing in the
    /// directory, and restores the tables in memory. Reads work as always. Every write, every
    /// change of a table or an index, and every checkpoint is refused with `opened_read_only`.
    /// Several processes may read one database. None of them can while a process has it open for
    /// writing, which is refused with `in_use`, and none can open it for writing meanwhile.
    ///
    /// The lock behind this is a shared one on the file `lock`. If there is no such file, or if
    /// another machine has the file system mounted for writing without passing on locks, the
    /// program must see to it that nothing writes there.
    pub read_only: bool,
    /// When a commit is acknowledged, unless its transaction overrides it. Default
    /// [`Durability::Sync`].
    pub durability: Durability,
    /// Whether a commit releases its locks before the log is written, if it has to wait for the
    /// device or for another thread that writes the log. Other transactions then continue at once.
    /// They are acknowledged only when the commits they have read from are as durable as required.
    /// Default true.
    pub early_release: bool,
    /// Isolation level, unless a transaction overrides it. Default [`Isolation::Serializable`].
    pub isolation: Isolation,
    /// The lock manager. Default `direct`.
    pub lock_manager: LockManagerKind,
    /// Whether a transaction leaves its table locks to the next transaction of the same worker, so
    /// that not every transaction updates the same lock. Default [`LockInheritance::Off`].
    pub lock_inheritance: LockInheritance,
    /// The latch of the lock manager's buckets. Default `parking`.
    pub latch: LatchKind,
    /// Buckets of the lock manager's hash table, rounded up to a power of two. Default 16,384; from
    /// 1 to 2^24. With more buckets, transactions share a bucket more rarely.
    pub lock_buckets: usize,
    /// Number of locked keys in one table above which a transaction trades them for a lock on the
    /// whole table (escalation). It then locks no more keys of that table. If other owners
    /// conflict, it keeps locking keys and tries again later. Default 10,000; 0 for never.
    pub lock_escalation: u32,
    /// Bytes, approximately, that the locks of one transaction may take before it escalates those
    /// tables in which it has locked most keys. It never waits for that, and no request is refused:
    /// if other owners conflict, it keeps locking keys. Default 64 MiB, some 700,000 locks.
    pub transaction_lock_bytes: usize,
    /// Bytes, approximately, that the locks of all transactions may take. Above that, a transaction
    /// with about 256 or more locks escalates too. If it gets no table lock and other transactions
    /// do not end, its request is refused with `lock_room`. It can then continue with the locks it
    /// has, lock whole tables, or roll back. Default 1 GiB.
    pub lock_bytes: usize,
    /// Policy that chooses the victim of a deadlock. Default [`VictimPolicy::LeastWork`].
    pub victim: VictimPolicy,
    /// Whether the lock manager may have threads of its own; `sharded:global-latch` has one that
    /// detects deadlocks. Without it, a request that begins to wait does the thread's work. Default
    /// true.
    pub lock_threads: bool,
    /// Maximum time that one lock request waits before it is refused with `lock_timeout`. Default
    /// 10 s. Deadlocks are found at once and do not depend on this.
    /// [`Database::run`](crate::Database::run) returns this refusal too and does not rerun the
    /// transaction.
    pub lock_wait: Duration,
    /// Maximum time that a transaction may hold locks while its program requests nothing. After
    /// that the database rolls it back and releases its locks, and the program's next request is
    /// refused with `ended_idle`. Default `None`: no limit. At least 1 ms. [`Duration::MAX`] ends
    /// no transaction, but lets [`Database::transactions`](crate::Database::transactions) report
    /// idle times. With a timeout, each operation takes a mutex of its own transaction twice. A
    /// transaction is not idle during an operation or while the program iterates over a range. A
    /// session between its transactions is not idle either. A [`Snapshot`](crate::Snapshot) that
    /// nobody reads is ended likewise.
    pub idle_timeout: Option<Duration>,
    /// Whether transactions take locks. Default [`Locking::On`].
    pub locking: Locking,
    /// Number of transactions that run at once. Default [`Admission::Adaptive`].
    pub admission: Admission,
    /// Maximum number of times that [`Database::run`](crate::Database::run) runs a transaction that
    /// deadlocks end, before it returns the last deadlock. Default 1,000; at least 1.
    pub run_attempts: u32,
    /// Bytes of log kept in memory before writers wait for the device, rounded down to a power of
    /// two. Default 4 MiB; from 64 KiB to 1 GiB.
    pub log_buffer_bytes: usize,
    /// How threads reserve space in the log buffer. Default: [`LogBufferKind::default`].
    pub log_buffer: LogBufferKind,
    /// Bytes of one log file. Default 64 MiB; from 64 KiB to 64 GiB. The first file of a new
    /// database has 64 KiB, and grows by as much as the log has had so far.
    pub log_segment_bytes: u64,
    /// Bytes of changes that a transaction collects before it passes them to the log in parts.
    /// Default 1 MiB; from 256 bytes to 128 MiB, because a log record holds one part plus one
    /// change.
    pub redo_part_bytes: usize,
    /// Maximum time that a buffered commit may stay unsynced. Default 1 s; [`Duration::MAX`] for no
    /// limit, until a sync is requested.
    pub sync_interval: Duration,
    /// Bytes of log after which a checkpoint begins. Default 256 MiB; at least 4 KiB. `u64::MAX`
    /// makes checkpoints only on [request](crate::Database::checkpoint), and then commits never
    /// wait for one.
    ///
    /// A restart replays this much log, plus the log written while the checkpoint was made: as a
    /// rule less than twice as much in total. If commits write faster than a checkpoint can be
    /// made, they wait for it from one and a half times as much on
    /// ([`CheckpointStats::throttled`](crate::CheckpointStats::throttled)). So the log stays below
    /// three and a half times as much. While a large database is being rewritten, an eighth of its
    /// size is added to that. Each thread may exceed this by one transaction, and on a busy machine
    /// some log is written before the checkpoint thread runs.
    pub checkpoint_log_bytes: u64,
    /// Maximum number of bytes of log, approximately, that open transactions may keep from being
    /// removed. The log is kept from the first change of pages of the oldest of them on, and from
    /// the first part of a large one. Beyond the maximum, further changes of pages are refused with
    /// `log_room`, and so are commits of other changes. Commits of changes of pages, rollbacks and
    /// reads go on. [`Options::idle_timeout`] ends a forgotten transaction, and the next checkpoint
    /// then removes the log. Default `None`: no limit. At least 4 KiB; more than
    /// [`checkpoint_log_bytes`](Self::checkpoint_log_bytes) makes sense.
    pub max_kept_log_bytes: Option<u64>,
    /// Maximum number of bytes that a checkpoint reads and writes per second while no caller waits
    /// for it. Default `None`: the rate follows the log. The checkpoint is then done when three
    /// quarters of the log for the next one have been written, and uses an eighth of one processor
    /// while no log is written. Both limits are ignored if twice
    /// [`checkpoint_log_bytes`](Self::checkpoint_log_bytes) have been written since the last
    /// checkpoint, or if commits wait for this one.
    pub checkpoint_rate: Option<u64>,
    /// Component in which a table is made that the program does not declare
    /// [`paged`](crate::Table::paged) or [`resident`](crate::Table::resident). Default
    /// [`TableComponent::Resident`]. Existing tables stay what they are.
    pub component: TableComponent,
    /// Bytes, approximately, that the rows of tables in memory may take, with the entries of their
    /// indexes. Beyond that an operation that would make them grow is refused with `resident_room`;
    /// reads, deletions and rollbacks go on. Each row and each entry counts with its key, its value
    /// and 64 bytes. Each thread may exceed the limit by 64 KiB. Opening a database refuses
    /// nothing. Default `u64::MAX`: no limit.
    /// [`Stats::resident`](crate::inspect::Stats::resident) says how much is used.
    pub resident_memory: u64,
    /// Method by which snapshots are taken. Default [`SnapshotMethod::Lsn`]; the other is there to
    /// be measured beside it.
    pub snapshots: SnapshotMethod,
    /// Bytes that replaced versions may take which snapshots keep. Beyond that the snapshot that
    /// keeps the most is ended: its reads get `snapshot_ended`. Default 1 GiB.
    pub version_bytes: u64,
    /// Callback for warnings: that the kept versions take more than a half of
    /// [`version_bytes`](Self::version_bytes), once until they take less than a quarter; and that a
    /// snapshot is ended because they take more than all. Default `None`.
    pub version_warning: Option<VersionCall>,
    /// Bytes of memory for the pages of paged tables: frames, what belongs to each in memory, and
    /// the buffers of reads and writes. Default 64 MiB; at least 16 pages and buffers for them,
    /// which take about 360,000 bytes if pages have the usual 8 KiB. A database without paged
    /// tables takes none of it. [`Database::set_page_memory`](crate::Database::set_page_memory)
    /// changes it while the database is open.
    pub page_memory: usize,
    /// Largest number of bytes that
    /// [`Database::set_page_memory`](crate::Database::set_page_memory) accepts. Address space is
    /// reserved for that, and a few percent of it as memory. Default `None`:
    /// [`page_memory`](Self::page_memory).
    pub max_page_memory: Option<usize>,
    /// Whether pages pass through the page cache of the operating system. Default false: a page is
    /// in memory once, in the pool, and errors come from the write that made them. A file system
    /// without direct calls uses its cache all the same.
    pub cached_pages: bool,
    /// Time between two collections by the background thread, for which versions are still kept
    /// after the last snapshot. Default 100 ms. For tests, which meet more collections with less.
    #[doc(hidden)]
    pub snapshot_linger: Duration,
    /// Bytes of a page of a new page file: a power of two from 1 KiB to 64 KiB. Default 8 KiB. For
    /// tests, which reach the limits of a page sooner with small ones.
    #[doc(hidden)]
    pub page_bytes: usize,
    /// Maximum number of pages in a slot of the doublewrite buffer, from 1 to 128. Default 128. For
    /// tests, which reach several slots sooner with few.
    #[doc(hidden)]
    pub page_batch: usize,
    /// Failpoints of the database, for tests that use them while it is opened. Default `None`: the
    /// database makes its own.
    #[doc(hidden)]
    pub failpoints: Option<Failpoints>,
    /// Number of threads that load and replay when the database is opened; at most 256 are used.
    /// Default 0: as many as the process may run at once, but at most 16.
    pub restart_threads: usize,
    /// Callback for the progress of opening the database. Default `None`.
    pub progress: Option<ProgressCall>,
    /// The program's secondary indexes. Existing ones are filled when the database is opened;
    /// others are created. Default: none.
    pub indexes: Indexes,
    /// Whether other processes of the same user may read the database's status, and through which
    /// socket. Default [`Observe::Off`].
    pub observe: Observe,
    /// Duration of a lock wait after which all waits are dumped to
    /// [`dump_waits_to`](Self::dump_waits_to). Default `None`: no dumps. At least 1 ms. A long wait
    /// is noticed late, by up to a quarter of this and at most 250 ms.
    pub dump_waits_after: Option<Duration>,
    /// Minimum time between two dumps of waits. Default 10 s.
    pub dump_waits_every: Duration,
    /// Destination of dumps of waits. Default [`DumpTo::Stderr`].
    pub dump_waits_to: DumpTo,
}

/// Time for which versions are still kept after the last snapshot, unless an option says otherwise.
pub(crate) const LINGER: Duration = Duration::from_millis(100);

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: false,
            durability: Durability::Sync,
            early_release: true,
            isolation: Isolation::Serializable,
            lock_manager: LockManagerKind::default(),
            lock_inheritance: LockInheritance::Off,
            latch: LatchKind::Parking,
            lock_buckets: DEFAULT_BUCKET_COUNT,
            lock_escalation: 10_000,
            transaction_lock_bytes: 64 << 20,
            lock_bytes: 1 << 30,
            victim: VictimPolicy::LeastWork,
            lock_threads: true,
            lock_wait: Duration::from_secs(10),
            idle_timeout: None,
            locking: Locking::On,
            admission: Admission::Adaptive,
            run_attempts: 1_000,
            log_buffer_bytes: 4 << 20,
            log_buffer: LogBufferKind::default(),
            log_segment_bytes: 64 << 20,
            redo_part_bytes: 1 << 20,
            sync_interval: Duration::from_secs(1),
            checkpoint_log_bytes: 256 << 20,
            max_kept_log_bytes: None,
            checkpoint_rate: None,
            component: TableComponent::default(),
            resident_memory: u64::MAX,
            snapshots: SnapshotMethod::Lsn,
            version_bytes: 1 << 30,
            version_warning: None,
            page_memory: 64 << 20,
            max_page_memory: None,
            cached_pages: false,
            snapshot_linger: LINGER,
            page_bytes: PageSize::default().bytes(),
            page_batch: CLEAN_BATCH,
            failpoints: None,
            restart_threads: 0,
            progress: None,
            indexes: Indexes::default(),
            observe: Observe::Off,
            dump_waits_after: None,
            dump_waits_every: Duration::from_secs(10),
            dump_waits_to: DumpTo::Stderr,
        }
    }
}

impl Options {
    /// Returns the smallest options. Log files fill quickly, large transactions are written in
    /// parts, and keys share buckets. The lock manager has no threads, so all effects of a request
    /// have happened when it returns. Tests start from these.
    pub fn tiny() -> Options {
        Options {
            lock_buckets: 4,
            lock_threads: false,
            log_buffer_bytes: 64 << 10,
            log_segment_bytes: 64 << 10,
            redo_part_bytes: 256,
            sync_interval: Duration::from_millis(20),
            checkpoint_log_bytes: 64 << 10,
            ..Options::default()
        }
    }

    /// Returns the workers of a database, with its failpoints.
    pub(crate) fn workers(&self) -> Workers {
        Workers::with_failpoints(self.failpoints.clone().unwrap_or_default())
    }

    /// Returns the number of threads for [`restart_threads`](Self::restart_threads).
    pub(crate) fn threads_for_restart(&self) -> usize {
        let machine = || std::thread::available_parallelism().map_or(1, usize::from);
        match self.restart_threads {
            0 => machine().min(16),
            threads => threads.min(256),
        }
    }

    /// Returns the size of the pages of a new page file.
    pub(crate) fn page_size(&self) -> PageSize {
        PageSize::new(self.page_bytes).unwrap_or_default()
    }

    /// Returns the number of pages of `size` for which [`page_memory`](Self::page_memory) has
    /// space, and the number for which [`max_page_memory`](Self::max_page_memory) has.
    ///
    /// # Errors
    /// A request error, if they are too few.
    pub(crate) fn page_counts(&self, size: PageSize) -> Result<(usize, usize)> {
        let most = self.max_page_memory.unwrap_or(self.page_memory);
        let maximum = BufferPool::maximum_within(most, size);
        Ok((page_count(self.page_memory, maximum, size)?, maximum))
    }

    /// Returns an error if an option is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        let rules = [
            (
                self.max_page_memory
                    .is_none_or(|most| most >= self.page_memory),
                "max_page_memory must not be below page_memory",
            ),
            (
                (1..=1 << 24).contains(&self.lock_buckets),
                "lock_buckets takes 1 to 16,777,216 buckets",
            ),
            (self.run_attempts >= 1, "run_attempts must be at least 1"),
            (
                (64 << 10..=1 << 30).contains(&self.log_buffer_bytes),
                "log_buffer_bytes takes 65,536 to 1,073,741,824",
            ),
            (
                (64 << 10..=segment::MAX_BYTES).contains(&self.log_segment_bytes),
                "log_segment_bytes takes 65,536 to 68,719,476,736",
            ),
            (
                (256..=128 << 20).contains(&self.redo_part_bytes),
                "redo_part_bytes takes 256 to 134,217,728",
            ),
            (
                self.checkpoint_log_bytes >= 4 << 10,
                "checkpoint_log_bytes must be at least 4,096",
            ),
            (
                self.max_kept_log_bytes
                    .is_none_or(|most| (4 << 10..=1 << 60).contains(&most)),
                "max_kept_log_bytes takes 4,096 to 2^60",
            ),
            (
                self.checkpoint_rate.is_none_or(|rate| rate > 0),
                "checkpoint_rate must be at least 1 byte a second",
            ),
            (
                self.idle_timeout
                    .is_none_or(|timeout| timeout >= Duration::from_millis(1)),
                "idle_timeout must be at least 1 ms",
            ),
            (
                PageSize::new(self.page_bytes).is_some(),
                "page_bytes must be a power of two from 1,024 to 65,536",
            ),
            (
                !(self.read_only && self.observe == Observe::InDirectory),
                "read_only makes no socket in the directory: observe = At names another place",
            ),
            (
                self.dump_waits_after
                    .is_none_or(|bound| bound >= Duration::from_millis(1)),
                "dump_waits_after must be at least 1 ms",
            ),
        ];
        match rules.iter().find(|(kept, _)| !kept) {
            Some((_, rule)) => Err(Request::Option(rule).into()),
            None => self.page_counts(self.page_size()).map(drop),
        }
    }
}

/// Returns the number of pages of `size` for which `bytes` have space, in a pool that may have
/// `maximum` of them.
///
/// # Errors
/// A request error, if they are too few.
pub(crate) fn page_count(bytes: usize, maximum: usize, size: PageSize) -> Result<usize> {
    match BufferPool::bytes_of(MIN_FRAMES, maximum, size) <= bytes {
        true => Ok(BufferPool::frames_within(bytes, maximum, size)),
        false => Err(Request::Option(
            "page_memory must have space for 16 pages and their buffers: about 360,000 bytes if \
             pages have 8 KiB, and a few percent of max_page_memory",
        )
        .into()),
    }
}

/// When a commit is acknowledged.
///
/// | | survives a crash of the process | survives a power failure |
/// |---|---|---|
/// | `Sync` | yes | yes |
/// | `Buffered` | yes | yes, once [`Options::sync_interval`] has passed |
/// | `None` | what was written by then | what was synced by then |
///
/// A read-only transaction gives the same guarantee for what it read. Its commit waits until the
/// commits it has read from are as durable as they promised to be, and as the transaction itself
/// requires. Until then, a crash may lose what it read together with those commits.
///
/// Losses are always at the end: a restart finds a prefix of the commits in commit order, each
/// complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Durability {
    /// The commit is on the device when `commit` returns.
    #[default]
    Sync,
    /// The operating system has the commit when `commit` returns; it is synced soon after.
    Buffered,
    /// `commit` does not wait.
    None,
}

foxton_sync::named_enum! {
    Durability, "durability":
    Sync = "sync",
    Buffered = "buffered",
    None = "none",
}

/// Whether transactions take locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Locking {
    /// Transactions lock what they read and write.
    #[default]
    On,
    /// No locks. Only one transaction may be open at a time; a second one is refused. This is for
    /// measuring the cost of locking.
    Off,
}

/// Whether other processes of the same user may read the database's status with `foxton top`,
/// `foxton locks` or [`Watcher`](crate::observe::Watcher).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Observe {
    /// They may not. There is neither socket nor thread.
    #[default]
    Off,
    /// Through the socket `observe.sock` in the database's directory or, if that cannot hold
    /// sockets, in `/tmp/foxton-UID`. Viewers find either by the name of the directory. Refused for
    /// a database without a directory.
    InDirectory,
    /// Through a socket at this path, whose directory must exist.
    At(PathBuf),
}

/// Destination of dumps of waits.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum DumpTo {
    /// The standard error output, as text.
    #[default]
    Stderr,
    /// The end of this file, as text. The file is created when the database is opened.
    File(PathBuf),
    /// A callback: see [`DumpTo::call`].
    Call(DumpCall),
}

impl DumpTo {
    /// Calls `function` on a thread of the database that does nothing else. Do not give it a handle
    /// to the database, because that would keep the database open.
    pub fn call(function: impl Fn(&WaitDump) + Send + Sync + 'static) -> DumpTo {
        DumpTo::Call(DumpCall(Arc::new(function)))
    }
}

/// A callback that receives dumps of waits.
#[derive(Clone)]
pub struct DumpCall(Arc<dyn Fn(&WaitDump) + Send + Sync>);

impl DumpCall {
    pub(crate) fn call(&self, dump: &WaitDump) {
        (self.0)(dump);
    }
}

impl fmt::Debug for DumpCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DumpCall")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_the_tiniest_are_in_range_and_the_rest_is_refused() {
        Options::default().check().unwrap();
        Options::tiny().check().unwrap();
        for change in [
            (|options: &mut Options| options.lock_buckets = 0) as fn(&mut Options),
            |options| options.lock_buckets = usize::MAX,
            |options| options.run_attempts = 0,
            |options| options.log_buffer_bytes = 1,
            |options| options.log_buffer_bytes = usize::MAX,
            |options| options.log_segment_bytes = 1,
            |options| options.log_segment_bytes = u64::MAX,
            |options| options.redo_part_bytes = 0,
            |options| options.checkpoint_log_bytes = 0,
            |options| options.checkpoint_rate = Some(0),
            |options| options.max_kept_log_bytes = Some(0),
            |options| options.max_kept_log_bytes = Some(u64::MAX),
            |options| options.redo_part_bytes = usize::MAX,
            |options| options.page_memory = 100 << 10,
            |options| options.page_memory = 0,
            |options| options.max_page_memory = Some(1 << 20),
            |options| options.max_page_memory = Some(usize::MAX >> 8),
            |options| options.page_bytes = 5000,
            |options| options.dump_waits_after = Some(Duration::ZERO),
            |options| options.idle_timeout = Some(Duration::ZERO),
            |options| (options.read_only, options.observe) = (true, Observe::InDirectory),
        ] {
            let mut options = Options::default();
            change(&mut options);
            assert_eq!(options.check().unwrap_err().code(), "option");
        }
    }

    #[test]
    fn durability_reads_what_it_prints() {
        for kind in Durability::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!(
            "fsync"
                .parse::<Durability>()
                .unwrap_err()
                .to_string()
                .contains("buffered")
        );
    }
}
