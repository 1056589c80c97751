//! The choice of a manager, made when it is opened.

use crate::{
    deadlock::VictimPolicy,
    escalation,
    manager::{LockManager, forward},
    managers::{
        direct::{Direct, GranuleOptions},
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
use foxton_sync::{latch, worker::Worker};
use std::time::Duration;

pub use crate::managers::{direct::Fences, inherit::Inheritance};

/// The managers to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ManagerKind {
    /// One mutex, one map: the oracle of the tests. Slow.
    Reference,
    /// One latch over a hash table.
    Global,
    /// A latch for each hash bucket.
    Bucket,
    /// Latches for shards, and whom most wait for goes first.
    Sharded,
    /// The same, and who came first goes first.
    ShardedFifo,
    /// As `sharded`, with its document's latch above all shards, and its detector: a deadlock stops everybody.
    ShardedGlobalLatch,
    /// What nobody conflicts with is only remembered; the rest as with `bucket`, but that a lock granted to
    /// somebody asleep goes to who asks for it before that one wakes.
    #[default]
    Direct,
    /// The same, and who came first goes first.
    DirectFifo,
    /// No latch while nobody waits.
    Staged,
    /// The same, as its document has it.
    StagedPaper,
    /// The document's form, whose memory waits for the oldest transaction that runs.
    StagedOldest,
    /// `global` with a table that is made for a latch that is elided.
    GlobalElidable,
    /// `bucket` likewise.
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
    Staged = "staged",
    StagedPaper = "staged:paper",
    StagedOldest = "staged:oldest",
    GlobalElidable = "global:elidable",
    BucketElidable = "bucket:elidable",
}

impl ManagerKind {
    /// How often, at most, a request is granted that came later than another which waits and conflicts with
    /// it: for each time that this other one, or one before it, is the first of those who wait. 0: in the order of arrival.
    /// Over `direct` only by requests that ask for no less than the first does (readers pass no writer), only for a while
    /// ([`Options::barging_window`]), and not for numbers ([`Name::advisory`]). Over the two that put whom most wait for first, as
    /// often as others stood before it when it came, up to 255, if these were more than this number.
    pub const fn max_overtaken(self) -> u32 {
        match self {
            Self::Sharded | Self::ShardedGlobalLatch => MAX_OVERTAKEN as u32,
            Self::Direct => MAX_BARGES as u32,
            _ => 0,
        }
    }
}

/// Buckets unless somebody says otherwise: 512 transactions of ten rows hold five thousand names, and
/// with three buckets for each of those most have one alone. 1 MiB with `bucket`.
pub const DEFAULT_BUCKET_COUNT: usize = 1 << 14;

/// How a lock manager is made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Which one. Default `direct`.
    pub kind: ManagerKind,
    /// The latch over its table or buckets; `reference` has a mutex of its own. Default `parking`.
    pub latch: latch::Kind,
    /// How many hash buckets, a power of two up to 2^31. Default
    /// [`DEFAULT_BUCKET_COUNT`].
    pub bucket_count: usize,
    /// Who of a deadlock gives way. Default `least-work`.
    pub victim: VictimPolicy,
    /// Whether transactions leave locks on tables to the next at their place. Default `off`.
    pub inherit: Inheritance,
    /// Whether the manager may have threads of its own: those of `sharded` and `sharded:world`. Without, whoever
    /// needs what such a thread does does it itself, at once. Default true.
    pub own_threads: bool,
    /// For `direct`: in how many granules keys are remembered, a power of two up to 4096, which is
    /// the default: 32 KiB.
    pub granule_count: usize,
    /// For `direct`: for how long nothing is remembered in a granule after it was revoked the first
    /// time. Default 10 ms; up to a thousand times as long where that happens again and again.
    pub hold_off: Duration,
    /// For `direct`: for how long, from the first time on, somebody may be passed in its sleep, to within a tick of the
    /// clock; after that what is granted to it is not lent any more. Default 50 ms.
    pub barging_window: Duration,
    /// For `direct`: the fences between those who remember and those who revoke. Default `found`: the best that
    /// the system has; `symmetric` is what it comes to where that is little.
    pub fences: Fences,
    /// A fault on purpose, for `direct`: what is lent goes to who asks for it also after it was seen. Default false.
    #[cfg(feature = "planted")]
    pub barge_after_seen: bool,
    /// Above how many keys of one table a transaction tries to have all of it, without waiting, in the place
    /// of those; 0 for never. Default 10,000.
    ///
    /// This and the next two need tables to be locked before their keys, and count what a list of locks has: a
    /// block of neighbours that `direct` remembers is one.
    pub escalation: u32,
    /// Bytes of the locks of one transaction, about, above which it tries to have the tables that it has most
    /// keys of, and goes on with keys where somebody is in the way. Default 64 MiB.
    pub owner_bytes: usize,
    /// Bytes of the locks of all transactions, about. Above that, whoever has acquired some 256 locks or more
    /// tries the same, and is refused ([`RefusalReason::Full`](crate::request::RefusalReason::Full)) if that makes no
    /// room, unless it asks for what a table that it got so covers. Default 1 GiB.
    pub total_bytes: usize,
    /// For `staged`: how many requests there may be at once, those included that wait to be used again;
    /// who asks for more is refused ([`RefusalReason::Full`](crate::request::RefusalReason::Full)). 40 bytes each.
    /// Default and most: 2^26.
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
            #[cfg(feature = "planted")]
            barge_after_seen: false,
            escalation: 10_000,
            owner_bytes: 64 << 20,
            total_bytes: 1 << 30,
            request_limit: MOST_REQUESTS,
        }
    }
}

impl Options {
    /// Two buckets and granules, so that names share them all the time, no hold-off, so that locks
    /// are remembered and made real all the time, and no threads, so that whatever happens has
    /// happened when a call returns. What is asked for is locked, name by name: no escalation.
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

/// Chains of one word for so many buckets: a bucket is a cache line, and with eight chains in its place few
/// names share one. Where buckets are so few that names are meant to share them, they do.
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
// A tag of its own: without it the kind would be worked out, at every lock, from values that a
// field of one manager cannot have.
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
    /// One latch over a table made to be elided.
    GlobalElidable(ElidableGlobal),
    /// A latch for each bucket of a table made to be elided.
    BucketElidable(ElidableBucket),
    /// Latches for shards, and an order.
    Sharded(Sharded<NoGlobalLatch>),
    /// The same, in its document's form.
    ShardedGlobalLatch(Sharded<PartitionedLatch>),
    /// Any of the others, and inheritance over it.
    Inherit(Box<Inherit<AnyManager>>),
    /// Locks that are only remembered until somebody conflicts.
    Direct(Direct),
    /// No latch while nobody waits.
    Staged(Staged<StackChains>),
    /// The same, as its document has it: under either rule of reclaiming memory.
    StagedPaper(Staged<TailChains>, ManagerKind),
}

/// The same call, whichever manager it is: a branch, and no call through a table.
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
            Self::Staged($manager) => $call,
            Self::StagedPaper($manager, _) => $call,
        }
    };
}

impl AnyManager {
    /// The manager that `options` describe.
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
            #[cfg(feature = "planted")]
            barge_after_seen,
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
            ManagerKind::Direct | ManagerKind::DirectFifo => {
                // What is inherited is real: it stands in a queue while its place sleeps.
                let tables = inherit == Inheritance::Off;
                let granules = GranuleOptions {
                    count: granule_count,
                    hold_off,
                    tables,
                    fences,
                };
                let manager = Direct::new(latch, bucket_count, victim, granules);
                #[cfg(feature = "planted")]
                let manager = match barge_after_seen {
                    true => manager.with_barging_after_seen(),
                    false => manager,
                };
                Self::Direct(match kind {
                    ManagerKind::Direct => manager.with_barging(barging_window),
                    _ => manager,
                })
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

    /// Which one this is; under inheritance, what is under it.
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
            Self::Staged(_) => ManagerKind::Staged,
            Self::StagedPaper(_, kind) => *kind,
        }
    }

    /// A request to any but the default, whose shortest way is shorter than this call.
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

    /// A request of a scan to any but the default. Only inheritance passes the scan on.
    #[inline(never)]
    fn request_in_scan_of_other(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        scan: &mut Scan,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        match self {
            _ if owner.must_check_limits() => {
                self.check_and_request(worker, owner, name, mode, wait_mode)
            }
            Self::Inherit(manager) => {
                manager.request_in_scan(worker, owner, scan, name, mode, wait_mode)
            }
            _ => each!(self, manager => manager.request(worker, owner, name, mode, wait_mode)),
        }
    }

    /// A request when it is time to look how much is held: apart, so that above nothing need be kept for it.
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

    /// Its owners' records. Not under inheritance, which has those of what is under it.
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
            Self::Staged(manager) => manager.owners(),
            Self::StagedPaper(manager, _) => manager.owners(),
        }
    }

    /// What is about to be asked of any but the default.
    #[inline(never)]
    fn prefetch_of_other(&self, name: Name) {
        each!(self, manager => manager.prefetch(name));
    }

    /// A release by any but the default.
    #[inline(never)]
    fn release_all_of_other(&self, worker: &Worker, owner: &mut Owner) {
        each!(self, manager => manager.release_all(worker, owner));
    }

    /// For what is not worth a branch of its own.
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
        // In words, so that the name need not be in memory on the shortest way.
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
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        match self {
            Self::Direct(manager) => {
                manager.request_in_scan(worker, owner, scan, name, mode, wait_mode)
            }
            _ => self.request_in_scan_of_other(worker, owner, scan, name, mode, wait_mode),
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
        owner cancel end_wait wait poll_wait release release_since inspect inspect_limited longest_wait
        deadlocks stats verify
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod orders;
