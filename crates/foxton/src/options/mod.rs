//! How an open database behaves.
//!
//! Nothing here is kept on disk: a database may be opened with other options each time.

/// Admission: how many transactions run at once.
pub(crate) mod admission;

/// Progress of opening a database.
pub mod progress;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use foxton_lock::any::DEFAULT_BUCKET_COUNT;
use foxton_log::format::segment;

use crate::error::{Request, Result};
use crate::options::admission::Admission;
use crate::options::progress::ProgressCall;
use crate::status::WaitDump;
use crate::testing::injected_fault::Planted;
use crate::types::index::Indexes;
use crate::types::isolation::Isolation;

pub use foxton_lock::any::Inheritance as LockInheritance;
pub use foxton_lock::any::ManagerKind as LockManagerKind;
pub use foxton_lock::deadlock::VictimPolicy;
pub use foxton_log::BufferKind as LogBufferKind;
pub use foxton_sync::latch::Kind as LatchKind;
pub use foxton_sync::named_enum::UnknownChoice;

/// How an open database behaves. Start from [`Options::default`] and change fields.
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
    /// What a commit waits for, unless its transaction says otherwise. Default
    /// [`Durability::Sync`].
    pub durability: Durability,
    /// Whether a commit that waits for the device, or for another thread that writes the log, gives its locks back
    /// before: others go on at once, and are themselves answered only when what they have seen is as safe as it was to
    /// be. Default true.
    pub early_release: bool,
    /// How far transactions are kept apart, unless one says otherwise. Default
    /// [`Isolation::Serializable`].
    pub isolation: Isolation,
    /// Which lock manager decides who may. Default `direct`.
    pub lock_manager: LockManagerKind,
    /// Whether transactions leave their locks on tables to the next of the same worker, so that all
    /// need not meet at one name. Default [`LockInheritance::Off`].
    pub lock_inheritance: LockInheritance,
    /// Which latch guards the lock manager's buckets. Default `parking`.
    pub latch: LatchKind,
    /// Buckets of the lock manager's hash table, rounded up to a power of two. Default 16,384; from
    /// 1 to 2^24. More buckets, fewer transactions that meet at one.
    pub lock_buckets: usize,
    /// Above how many locked keys of one table a transaction trades them for a lock on all of it, and locks
    /// no more keys of it, if nobody is in the way; if somebody is, it goes on with keys and tries again
    /// later. Default 10,000; 0 for never.
    pub lock_escalation: u32,
    /// Bytes that the locks of one transaction may take, about, before it does the same with the tables of
    /// which it has most keys locked. It never waits for that, and nothing is refused: where others are in the
    /// way it goes on with keys. Default 64 MiB, some 700,000 locks.
    pub transaction_lock_bytes: usize,
    /// Bytes that the locks of all transactions may take, about. Above that, a transaction with some 256
    /// locks or more does the same, and if it gets no table and others do not end, what it asks for is refused
    /// with `lock_room`; it can go on with what it has, lock whole tables, or roll back. Default 1 GiB.
    pub lock_bytes: usize,
    /// Who of a cycle of waiters is ended. Default [`VictimPolicy::LeastWork`].
    pub victim: VictimPolicy,
    /// Whether the lock manager may have threads of its own, as `sharded:global-latch` has one to find deadlocks.
    /// Without, whoever begins to wait does what such a thread would. Default true.
    pub lock_threads: bool,
    /// How long one lock request waits before it is refused with `lock_timeout`. Default 10 s. Deadlocks are
    /// found at once and do not wait for this. The refusal comes out of [`Database::run`](crate::Database::run),
    /// too, which does not run the transaction again for it: a wait is over after this time.
    pub lock_wait: Duration,
    /// How long a transaction may hold what it has locked while its program asks nothing of it. Then it is
    /// rolled back, its locks go, and what its program asks next is refused with `ended_idle`. Default
    /// `None`: as long as it likes. At least 1 ms; [`Duration::MAX`] ends nobody and lets
    /// [`Database::transactions`](crate::Database::transactions) say how long each has been idle. With it, each
    /// operation takes a mutex of its own transaction twice. An operation in progress, a range that is being
    /// read one by one, and a session between its transactions are not idle.
    pub idle_timeout: Option<Duration>,
    /// Whether locks are taken at all. Default [`Locking::On`].
    pub locking: Locking,
    /// How many transactions are at work at once. Default [`Admission::Adaptive`].
    pub admission: Admission,
    /// Times [`Database::run`](crate::Database::run) runs a transaction that deadlocks end before it gives the
    /// last of them back. Default 1,000; at least 1.
    pub run_attempts: u32,
    /// Bytes of log kept in memory before writers wait for the device; what is more than a power of
    /// two is not used. Default 4 MiB; from 64 KiB to 1 GiB.
    pub log_buffer_bytes: usize,
    /// How threads come by their places in the log buffer. Default: [`LogBufferKind::default`].
    pub log_buffer: LogBufferKind,
    /// Bytes of one log file. Default 64 MiB; from 64 KiB to 64 GiB.
    pub log_segment_bytes: u64,
    /// Bytes of changes a transaction gathers before it hands them to the log in parts. Default
    /// 1 MiB; from 256 bytes to 128 MiB, since a record of the log takes a part and one change more.
    pub redo_part_bytes: usize,
    /// How long a buffered commit may stay unsynced. Default 1 s; [`Duration::MAX`] for as long as
    /// nobody asks for more.
    pub sync_interval: Duration,
    /// Bytes of log after which a checkpoint is begun. Restart has to replay that much, and what comes while it is made: as a rule
    /// less than twice as much. Where more is written than a checkpoint can keep up with, commits wait for it from one and a half times as
    /// much on ([`CheckpointStats::throttled`](crate::CheckpointStats::throttled)), so that the log stays below
    /// three and a half times as much or, while a large database is rewritten, an eighth of that more. Each thread may be one transaction further, and on a busy machine
    /// some comes before the thread that makes checkpoints runs.
    /// Default 256 MiB; at least 4 KiB; `u64::MAX` for only on [request](crate::Database::checkpoint), and then nobody waits.
    pub checkpoint_log_bytes: u64,
    /// Bytes that a checkpoint which nobody waits for reads and writes in a second at most. Default
    /// `None`: it goes with the log, so that it is done when three quarters of the next one's have come, and takes an eighth of
    /// one processor where none comes. If twice [`checkpoint_log_bytes`](Self::checkpoint_log_bytes) have
    /// come since the last one, the next keeps to neither, nor does one that commits have come to wait for.
    pub checkpoint_rate: Option<u64>,
    /// Threads that load and replay when the database is opened; more than 256 are taken for 256. Default 0:
    /// as many as the process may run at once, but at most 16.
    pub restart_threads: usize,
    /// Hears how far opening the database has come. Default `None`.
    pub progress: Option<ProgressCall>,
    /// The secondary indexes that the program keeps: those that exist are filled when the database is
    /// opened, others are made. Default: none.
    pub indexes: Indexes,
    /// Whether other processes of the same user may look in, and where. Default [`Observe::Off`].
    pub observe: Observe,
    /// A lock wait that lasts longer has everybody who waits dumped to
    /// [`dump_waits_to`](Self::dump_waits_to). Default `None`: no wait does. At least 1 ms; it is
    /// noticed up to a quarter of this, and at most 250 ms, late.
    pub dump_waits_after: Option<Duration>,
    /// Time between two dumps of waits. Default 10 s.
    pub dump_waits_every: Duration,
    /// Where dumps of waits go. Default [`DumpTo::Stderr`].
    pub dump_waits_to: DumpTo,
    /// What is to be done wrong, to see whether it is found. Default `None`.
    #[cfg(feature = "planted")]
    pub planted: Option<crate::testing::injected_fault::Fault>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
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
            checkpoint_rate: None,
            restart_threads: 0,
            progress: None,
            indexes: Indexes::default(),
            observe: Observe::Off,
            dump_waits_after: None,
            dump_waits_every: Duration::from_secs(10),
            dump_waits_to: DumpTo::Stderr,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }
}

impl Options {
    /// Everything as small as it may be, so that log files fill, large transactions come in parts
    /// and keys share buckets at once; and no threads for locks, so that whatever a request brings
    /// about has happened when it returns. Tests start from here.
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

    /// What is to be done wrong; nothing, but in tests of tests.
    #[inline(always)]
    pub(crate) fn planted(&self) -> Planted {
        #[cfg(feature = "planted")]
        return Planted(self.planted);
        #[cfg(not(feature = "planted"))]
        Planted()
    }

    /// Threads for [`restart_threads`](Self::restart_threads).
    pub(crate) fn threads_for_restart(&self) -> usize {
        let machine = || std::thread::available_parallelism().map_or(1, usize::from);
        match self.restart_threads {
            0 => machine().min(16),
            threads => threads.min(256),
        }
    }

    /// Refuses options out of their range.
    pub(crate) fn check(&self) -> Result<()> {
        let rules = [
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
                self.checkpoint_rate.is_none_or(|rate| rate > 0),
                "checkpoint_rate must be at least 1 byte a second",
            ),
            (
                self.idle_timeout
                    .is_none_or(|timeout| timeout >= Duration::from_millis(1)),
                "idle_timeout must be at least 1 ms",
            ),
            (
                self.dump_waits_after
                    .is_none_or(|bound| bound >= Duration::from_millis(1)),
                "dump_waits_after must be at least 1 ms",
            ),
        ];
        match rules.iter().find(|(kept, _)| !kept) {
            Some((_, rule)) => Err(Request::Option(rule).into()),
            None => Ok(()),
        }
    }
}

/// What a commit waits for before it is acknowledged.
///
/// | | survives the process | survives the power |
/// |---|---|---|
/// | `Sync` | yes | yes |
/// | `Buffered` | yes | yes, once [`Options::sync_interval`] has passed |
/// | `None` | what was written by then | what was synced by then |
///
/// A transaction that only read promises the same of what it read: its commit waits until the commits
/// it saw are as durable as they said they would be, and as it says itself. Until then, what it read may
/// be lost with them.
///
/// Whatever is lost is lost from the end: restart finds every commit up to some point in commit
/// order, whole, and none after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Durability {
    /// The commit is on the device when `commit` returns.
    #[default]
    Sync,
    /// The commit is with the operating system when `commit` returns, and synced soon after.
    Buffered,
    /// `commit` waits for nothing.
    None,
}

foxton_sync::named_enum! {
    Durability, "durability":
    Sync = "sync",
    Buffered = "buffered",
    None = "none",
}

/// Whether locks are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Locking {
    /// Transactions lock what they read and write.
    #[default]
    On,
    /// No locks. Only one transaction may be open at a time, and a second one is refused. This is
    /// for measuring what locking costs.
    Off,
}

/// Whether other processes of the same user may look in: `foxton top`, `foxton locks`,
/// [`Watcher`](crate::observe::Watcher).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Observe {
    /// Nobody may. There is no socket and no thread.
    #[default]
    Off,
    /// By the socket `observe.sock` in the database's directory, or, where that takes no sockets,
    /// in `/tmp/foxton-UID`; viewers find either by the name of the directory. Refused for a
    /// database that has no directory.
    InDirectory,
    /// By a socket at this path, whose directory must exist.
    At(PathBuf),
}

/// Where dumps of waits go.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum DumpTo {
    /// To the standard error output, as text.
    #[default]
    Stderr,
    /// To the end of this file, as text; it is made when the database is opened.
    File(PathBuf),
    /// To a function: see [`DumpTo::call`].
    Call(DumpCall),
}

impl DumpTo {
    /// To `function`, on a thread of the database that has nothing else to do. It should not keep
    /// the database open: give it no handle of it.
    pub fn call(function: impl Fn(&WaitDump) + Send + Sync + 'static) -> DumpTo {
        DumpTo::Call(DumpCall(Arc::new(function)))
    }
}

/// A function that takes dumps of waits.
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
            |options| options.redo_part_bytes = usize::MAX,
            |options| options.dump_waits_after = Some(Duration::ZERO),
            |options| options.idle_timeout = Some(Duration::ZERO),
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
