//! Choice of a manager, made when it is opened.

use crate::{
    deadlock::VictimPolicy,
    escalation,
    manager::{LockManager, forward},
    managers::{
        direct::{
            Direct, GranuleOptions,
            grouping::{ByBlock, ByTable},
        },
        inherit::Inherit,
        latched::{
            bucket::Bucket,
            elidable::{ElidableBucket, ElidableGlobal},
            global::Global,
            head::{MAX_BARGES, MAX_OVERTAKEN},
        },
        reference::Reference,
        sharded::{GrantOrder, NoGlobalLatch, PartitionedLatch, Sharded},
        staged::{MOST_REQUESTS, ReuseRule, StackChains, Staged, TailChains},
    },
    mode::Mode,
    name::Name,
    owner::{Owner, Scan, memory_limits::MemoryLimits, owner_table::OwnerTable},
    request::{Reply, WaitMode},
};
use foxton_sync::{anchor::LockAnchor, latch, worker::Worker};
use std::time::Duration;

pub use crate::managers::{direct::Fences, inherit::Inheritance};

/// The managers to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ManagerKind {
    /// One mutex, one map: the oracle of the tests. Slow, and slower the more requests wait.
    Reference,
    /// One latch over a hash table.
    Global,
    /// A latch for each hash bucket.
    Bucket,
    /// Latches for shards. The owner that the most others wait for is granted first.
    Sharded,
    /// As `sharded`, first come, first served.
    ShardedFifo,
    /// As `sharded`, with the global latch and the detector thread of Olchawa and Rejewski: a
    /// deadlock stops all requests.
    ShardedGlobalLatch,
    /// Locks without conflicts are only remembered; the rest is as with `bucket`. A lock granted to
    /// a sleeping waiter may be revoked for a request that comes before the waiter wakes.
    #[default]
    Direct,
    /// As `direct`, first come, first served.
    DirectFifo,
    /// As `direct`, in the form of Gottemukkala and Lehman 1992: all shared keys of a table are
    /// remembered, or all are real. Tables whose numbers differ by a multiple of the number of
    /// granules are taken together.
    DirectTable,
    /// No latch unless a request waits.
    Staged,
    /// As `staged`, in the form of Jung et al. 2013: a request visits all requests for its name,
    /// also those that wait.
    StagedPaper,
    /// As `staged:paper`, with the older rule of memory reuse: memory waits for the oldest running
    /// transaction.
    StagedOldest,
    /// As `global`, with a table laid out for elided latches.
    GlobalElidable,
    /// As `bucket`, with a table laid out for elided latches.
    BucketElidable,
}

foxton_sync::named_enum! {
    ManagerKind, "lock manager":
    Reference = "reference",
    Global = "global",
    Bucket = "bucket",
    Sharded = "sharded",
    ShardedFifo = "sharded:fifo" | "sharded:arrival",
    ShardedGlobalLatch = "sharded:global-latch" | "sharded:world",
    Direct = "direct",
    DirectFifo = "direct:fifo" | "direct:arrival",
    DirectTable = "direct:table",
    Staged = "staged",
    StagedPaper = "staged:paper",
    StagedOldest = "staged:oldest",
    GlobalElidable = "global:elidable",
    BucketElidable = "bucket:elidable",
}

impl ManagerKind {
    /// Returns the maximum number of later conflicting requests granted before a waiter; 0 means
    /// first come, first served. Over `direct` they count for each time that this waiter, or one
    /// before it, is first in the queue. A request barges there only if its mode covers that of the
    /// first waiter (so readers pass no writer), only within [`Options::barging_window`], and not
    /// for numbers ([`Name::advisory`]). Over `sharded` and `sharded:global-latch` the maximum is
    /// the number of waiters that were ahead when the request came, up to 255, if that is larger.
    pub const fn max_overtaken(self) -> u32 {
        match self {
            Self::Sharded | Self::ShardedGlobalLatch => MAX_OVERTAKEN as u32,
            Self::Direct | Self::DirectTable => MAX_BARGES as u32,
            _ => 0,
        }
    }
}

/// Default number of buckets. 512 transactions of ten rows hold five thousand names, and with three
/// buckets for each of them most names have a bucket alone. 1 MiB with `bucket`.
pub const DEFAULT_BUCKET_COUNT: usize = 1 << 14;

/// Options of a lock manager.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The manager. Default `direct`.
    pub kind: ManagerKind,
    /// The latch over its table or buckets; `reference` has a mutex of its own. Default `parking`.
    pub latch: latch::Kind,
    /// Number of hash buckets, a power of two up to 2^31. Default [`DEFAULT_BUCKET_COUNT`].
    pub bucket_count: usize,
    /// Policy that chooses the victim of a deadlock. Default `least-work`.
    pub victim: VictimPolicy,
    /// When transactions leave table locks to the next one with their owner index. Default `off`.
    pub inherit: Inheritance,
    /// True if the manager may have threads of its own: those of `sharded` and
    /// `sharded:global-latch`. If not, each caller does the work of such a thread itself, at once.
    /// Default true.
    pub own_threads: bool,
    /// For `direct`: number of granules in which keys are remembered, a power of two up to 4096,
    /// which is the default: 32 KiB.
    pub granule_count: usize,
    /// For `direct`: how long nothing is remembered in a granule after its first revocation.
    /// Default 10 ms; up to a thousand times as long after repeated revocations.
    pub hold_off: Duration,
    /// For `direct`: how long later requests may barge past a sleeping waiter, from the first time
    /// on, to within a clock tick. After that a grant to the waiter is final. Default 50 ms.
    pub barging_window: Duration,
    /// For `direct`: fences between owners that remember and owners that revoke. Default `found`,
    /// the best that the system has; on a system that has no better ones, `found` is `symmetric`.
    pub fences: Fences,
    /// Number of keys of one table above which a transaction tries to lock the whole table instead,
    /// without waiting; 0 for never. Default 10,000.
    ///
    /// This limit and the next two need tables to be locked before their keys. They count entries
    /// of the list of locks: a block of neighbours that `direct` remembers is one entry.
    pub escalation: u32,
    /// Bytes of the locks of one transaction, about, above which it tries to lock the tables with
    /// the most keys. If such a request is blocked the transaction goes on with keys. Default 64
    /// MiB.
    pub owner_bytes: usize,
    /// Bytes of the locks of all transactions, about. Above that, a transaction that has acquired
    /// some 256 locks or more does the same. If that frees too little, its request is refused
    /// ([`RefusalReason::Full`](crate::request::RefusalReason::Full)), unless a table lock covers
    /// it. Default 1 GiB.
    pub total_bytes: usize,
    /// For `staged`: maximum number of requests at once, including those that wait for reuse.
    /// Further requests are refused ([`RefusalReason::Full`](crate::request::RefusalReason::Full)).
    /// 40 bytes each. Default and maximum: 2^26.
    pub request_limit: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kind: ManagerKind::default(),
            latch: latch::Kind::default(),
            bucket_count: DEFAULT_BUCKET_COUNT,
            victim: VictimPolicy::default(),
            inherit: Inheritance::default(),
            own_threads: true,
            granule_count: 4096,
            hold_off: Duration::from_millis(10),
            barging_window: Duration::from_millis(50),
            fences: Fences::default(),
            escalation: 10_000,
            owner_bytes: 64 << 20,
            total_bytes: 1 << 30,
            request_limit: MOST_REQUESTS,
        }
    }
}

impl Options {
    /// Returns options for tests. Two buckets and granules, so that names often share them. No
    /// hold-off, so that locks are often remembered and made real. No threads, so that all effects
    /// of a call have happened when it returns. No escalation, so that every requested name is
    /// locked.
    pub fn tiny() -> Self {
        Self {
            bucket_count: 2,
            own_threads: false,
            granule_count: 2,
            hold_off: Duration::ZERO,
            barging_window: Duration::MAX,
            escalation: 0,
            owner_bytes: usize::MAX,
            total_bytes: usize::MAX,
            ..Self::default()
        }
    }
}

/// Returns the number of chains of one word for so many buckets. A bucket is a cache line, and with
/// eight chains in its place few names share one. If there are few buckets, so that names share
/// them on purpose, names share chains, too.
const fn stacks(bucket_count: usize) -> usize {
    if bucket_count < 64 {
        bucket_count
    } else {
        bucket_count * 8
    }
}

/// Any of the managers.
///
/// ```
/// use foxton_lock::{any::{AnyManager, ManagerKind, Options}, manager::LockManager};
///
/// let mut options = Options::default();
/// options.kind = "global".parse().unwrap();
/// let locks = AnyManager::new(&options);
/// assert_eq!(locks.kind(), ManagerKind::Global);
/// let _owner = locks.owner();
/// ```
// A tag of its own: otherwise every lock would compute the kind from values that a field of one
// manager cannot have.
#[derive(Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum AnyManager {
    /// One mutex, one map.
    Reference(Reference),
    /// One latch over a hash table.
    Global(Global),
    /// A latch for each hash bucket.
    Bucket(Bucket),
    /// One latch over a table laid out for elided latches.
    GlobalElidable(ElidableGlobal),
    /// A latch for each bucket of a table laid out for elided latches.
    BucketElidable(ElidableBucket),
    /// Latches for shards, and an order of grants.
    Sharded(Sharded<NoGlobalLatch>),
    /// Sharded latches below a global latch.
    ShardedGlobalLatch(Sharded<PartitionedLatch>),
    /// Inheritance over any of the others.
    Inherit(Box<Inherit<AnyManager>>),
    /// Biased locks, by blocks of keys.
    Direct(Direct<ByBlock>),
    /// Biased locks, by tables.
    DirectTable(Direct<ByTable>),
    /// No latch unless a request waits.
    Staged(Staged<StackChains>),
    /// The same in the form of the paper, with either rule of memory reuse.
    StagedPaper(Staged<TailChains>, ManagerKind),
}

/// Dispatches one call to every manager: a branch, and no call through a table.
macro_rules! each {
    ($self:ident, $manager:ident => $call:expr) => {
        match $self {
            Self::Reference($manager) => $call,
            Self::Global($manager) => $call,
            Self::Bucket($manager) => $call,
            Self::GlobalElidable($manager) => $call,
            Self::BucketElidable($manager) => $call,
            Self::Sharded($manager) => $call,
            Self::ShardedGlobalLatch($manager) => $call,
            Self::Inherit(boxed) => {
                let $manager = &**boxed;
                $call
            }
            Self::Direct($manager) => $call,
            Self::DirectTable($manager) => $call,
            Self::Staged($manager) => $call,
            Self::StagedPaper($manager, _) => $call,
        }
    };
}

impl AnyManager {
    /// Returns the manager that `options` describe.
    ///
    /// # Panics
    ///
    /// If the number of buckets is not a power of two up to 2^31.
    pub fn new(options: &Options) -> Self {
        let Options {
            kind,
            latch,
            bucket_count,
            victim,
            inherit,
            own_threads,
            granule_count,
            hold_off,
            barging_window,
            fences,
            escalation,
            owner_bytes,
            total_bytes,
            request_limit,
        } = *options;
        let sharded = |order| {
            let manager = Sharded::new(latch, bucket_count, victim, order, own_threads);
            Self::Sharded(manager)
        };
        let manager = match kind {
            ManagerKind::Reference => Self::Reference(Reference::new(victim)),
            ManagerKind::Global => Self::Global(Global::new(latch, bucket_count, victim)),
            ManagerKind::Bucket => Self::Bucket(Bucket::new(latch, bucket_count, victim)),
            ManagerKind::GlobalElidable => {
                Self::GlobalElidable(ElidableGlobal::new(latch, bucket_count, victim))
            }
            ManagerKind::BucketElidable => {
                Self::BucketElidable(ElidableBucket::new(latch, bucket_count, victim))
            }
            ManagerKind::Sharded => sharded(GrantOrder::Contention),
            ManagerKind::ShardedFifo => sharded(GrantOrder::Fifo),
            ManagerKind::ShardedGlobalLatch => {
                let order = GrantOrder::Contention;
                let manager = Sharded::new(latch, bucket_count, victim, order, own_threads);
                Self::ShardedGlobalLatch(manager)
            }
            ManagerKind::Staged => {
                let count = stacks(bucket_count);
                Self::Staged(Staged::over(
                    count,
                    latch,
                    victim,
                    ReuseRule::Epoch,
                    request_limit,
                ))
            }
            ManagerKind::StagedPaper | ManagerKind::StagedOldest => {
                let rule = match kind {
                    ManagerKind::StagedPaper => ReuseRule::Epoch,
                    _ => ReuseRule::Oldest,
                };
                let manager = Staged::over(bucket_count, latch, victim, rule, request_limit);
                Self::StagedPaper(manager, kind)
            }
            ManagerKind::Direct | ManagerKind::DirectFifo | ManagerKind::DirectTable => {
                // An inherited lock is real: it is in a queue while its owner index has no
                // transaction.
                let tables = inherit == Inheritance::Off;
                let granules = GranuleOptions {
                    count: granule_count,
                    hold_off,
                    tables,
                    fences,
                };
                if kind == ManagerKind::DirectTable {
                    let manager = Direct::new(latch, bucket_count, victim, granules);
                    Self::DirectTable(manager.with_barging(barging_window))
                } else {
                    let manager = Direct::new(latch, bucket_count, victim, granules);
                    Self::Direct(match kind {
                        ManagerKind::Direct => manager.with_barging(barging_window),
                        _ => manager,
                    })
                }
            }
        };
        manager.owners().limit(MemoryLimits {
            keys: if escalation == 0 {
                u32::MAX
            } else {
                escalation
            },
            owner_bytes,
            total_bytes,
        });
        let always = inherit == Inheritance::Always;
        match inherit {
            Inheritance::Off => manager,
            Inheritance::Hot | Inheritance::Always => {
                Self::Inherit(Box::new(Inherit::new(manager, always)))
            }
        }
    }

    /// Returns the kind of this manager; with inheritance, of the manager below.
    pub fn kind(&self) -> ManagerKind {
        match self {
            Self::Reference(_) => ManagerKind::Reference,
            Self::Global(_) => ManagerKind::Global,
            Self::Bucket(_) => ManagerKind::Bucket,
            Self::GlobalElidable(_) => ManagerKind::GlobalElidable,
            Self::BucketElidable(_) => ManagerKind::BucketElidable,
            Self::Sharded(manager) => match manager.order() {
                GrantOrder::Contention => ManagerKind::Sharded,
                GrantOrder::Fifo => ManagerKind::ShardedFifo,
            },
            Self::ShardedGlobalLatch(_) => ManagerKind::ShardedGlobalLatch,
            Self::Inherit(manager) => manager.inner().kind(),
            Self::Direct(manager) => match manager.allows_barging() {
                true => ManagerKind::Direct,
                false => ManagerKind::DirectFifo,
            },
            Self::DirectTable(_) => ManagerKind::DirectTable,
            Self::Staged(_) => ManagerKind::Staged,
            Self::StagedPaper(_, kind) => *kind,
        }
    }

    /// Requests from any manager but the default, whose fast path is shorter than this call.
    #[inline(never)]
    fn request_of_other(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        if owner.must_check_limits() {
            return self.check_and_request(worker, owner, name, mode, wait_mode);
        }
        each!(self, manager => manager.request(worker, owner, name, mode, wait_mode))
    }

    /// Requests for a scan from any manager but the default. Only inheritance and `direct:table`
    /// take the scan, and the anchor.
    #[inline(never)]
    fn request_in_scan_of_other(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        scan: &mut Scan,
        (name, anchor): (Name, Option<&LockAnchor>),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        match self {
            _ if owner.must_check_limits() => match anchor {
                Some(anchor) => {
                    self.request_anchored_of_other(worker, owner, (name, anchor), mode, wait_mode)
                }
                None => self.check_and_request(worker, owner, name, mode, wait_mode),
            },
            Self::Inherit(manager) => {
                manager.request_in_scan(worker, owner, scan, (name, anchor), mode, wait_mode)
            }
            Self::DirectTable(manager) => {
                manager.request_in_scan(worker, owner, scan, (name, anchor), mode, wait_mode)
            }
            _ => each!(self, manager => manager.request(worker, owner, name, mode, wait_mode)),
        }
    }

    /// Requests with an anchor from any manager but the default. Only inheritance and
    /// `direct:table` take it.
    #[inline(never)]
    fn request_anchored_of_other(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, anchor): (Name, &LockAnchor),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        match self {
            Self::Inherit(manager) => {
                if owner.must_check_limits()
                    && let Some(reply) = escalation::check_limits(self, worker, owner, (name, mode))
                {
                    return reply;
                }
                manager.request_anchored(worker, owner, (name, anchor), mode, wait_mode)
            }
            // Checks the limits itself.
            Self::DirectTable(manager) => {
                manager.request_anchored(worker, owner, (name, anchor), mode, wait_mode)
            }
            _ => self.request_of_other(worker, owner, name, mode, wait_mode),
        }
    }

    /// Checks the memory limits and then requests; a function of its own, so that the callers save
    /// no registers for it.
    #[cold]
    #[inline(never)]
    fn check_and_request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let reply = escalation::check_limits(self, worker, owner, (name, mode));
        reply.unwrap_or_else(|| self.member().request(worker, owner, name, mode, wait_mode))
    }

    /// Returns the table of owners. Inheritance uses that of the manager below.
    fn owners(&self) -> &OwnerTable {
        match self {
            Self::Reference(manager) => manager.owners(),
            Self::Global(manager) => manager.owners(),
            Self::Bucket(manager) => manager.owners(),
            Self::GlobalElidable(manager) => manager.owners(),
            Self::BucketElidable(manager) => manager.owners(),
            Self::Sharded(manager) => manager.owners(),
            Self::ShardedGlobalLatch(manager) => manager.owners(),
            Self::Inherit(manager) => manager.inner().owners(),
            Self::Direct(manager) => manager.owners(),
            Self::DirectTable(manager) => manager.owners(),
            Self::Staged(manager) => manager.owners(),
            Self::StagedPaper(manager, _) => manager.owners(),
        }
    }

    /// Prefetches for any manager but the default.
    #[inline(never)]
    fn prefetch_of_other(&self, name: Name) {
        each!(self, manager => manager.prefetch(name));
    }

    /// Releases at any manager but the default.
    #[inline(never)]
    fn release_all_of_other(&self, worker: &Worker, owner: &mut Owner) {
        each!(self, manager => manager.release_all(worker, owner));
    }

    /// Returns the manager for calls that are not worth a branch of their own.
    fn member(&self) -> &dyn LockManager {
        each!(self, manager => manager)
    }
}

impl LockManager for AnyManager {
    #[inline(always)]
    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        // In words, so that the name need not be in memory on the fast path.
        let words = name.words();
        let name = || Name::from_words(words);
        match self {
            Self::Direct(manager) => manager.request(worker, owner, name(), mode, wait_mode),
            _ => self.request_of_other(worker, owner, name(), mode, wait_mode),
        }
    }

    #[inline(always)]
    fn request_in_scan(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        scan: &mut Scan,
        target: (Name, Option<&LockAnchor>),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        match self {
            Self::Direct(manager) => {
                manager.request_in_scan(worker, owner, scan, target, mode, wait_mode)
            }
            _ => self.request_in_scan_of_other(worker, owner, scan, target, mode, wait_mode),
        }
    }

    #[inline(always)]
    fn request_anchored(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        target: (Name, &LockAnchor),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        match self {
            Self::Direct(manager) => {
                manager.request_anchored(worker, owner, target, mode, wait_mode)
            }
            _ => self.request_anchored_of_other(worker, owner, target, mode, wait_mode),
        }
    }

    #[inline]
    fn prefetch(&self, name: Name) {
        match self {
            Self::Direct(manager) => manager.prefetch(name),
            _ => self.prefetch_of_other(name),
        }
    }

    #[inline]
    fn lock_range(&self, worker: &Worker, owner: &mut Owner, first: Name, last: Name) -> bool {
        match self {
            Self::Direct(manager) => manager.lock_range(worker, owner, first, last),
            Self::DirectTable(manager) => manager.lock_range(worker, owner, first, last),
            Self::Inherit(manager) => manager.lock_range(worker, owner, first, last),
            _ => false,
        }
    }

    #[inline(always)]
    fn release_all(&self, worker: &Worker, owner: &mut Owner) {
        match self {
            Self::Direct(manager) => manager.release_all(worker, owner),
            _ => self.release_all_of_other(worker, owner),
        }
    }

    forward! {
        (member())
        owner unanchor cancel dismiss trim end_wait wait poll_wait release release_since inspect
        inspect_limited longest_wait deadlocks stats verify
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod orders;
