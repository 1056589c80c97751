//! Locks that are only remembered until somebody conflicts.
//!
//! Gottemukkala and Lehman's manager for memory-resident tables keeps a flag in each table: while
//! nobody conflicts, a transaction locks the table and only *remembers* the records it touched, in
//! memory of its own. A request that conflicts *de-escalates*: what was remembered becomes real, and
//! goes on being real for a while. Here the flag is finer than a table, the remembered path has
//! neither a read-modify-write nor a fence, and the real locks are those of `bucket`.
//!
//! # State
//!
//! ```text
//!   owner's list, written by the owner alone          granules                real locks: `bucket`
//!   +-----------------------------------+        +----------------+        +----------------------+
//!   | count | block | table IX | ...    |------->| count of strong|------->| heads, queues, waits |
//!   +-----------------------------------+  hash  | locks, or bias |        +----------------------+
//!     converted: name and slot, ...              +----------------+
//! ```
//!
//! What is remembered stands in the list and nowhere else: there the owner itself looks when it is asked for
//! something again, unless a byte of its own (`notes`) says that nothing of the kind can be there.
//!
//! Names fall into *granules*: tables by their hash into granules of their own, keys of up to eight bytes by
//! *blocks* of sixty-four neighbours, and all others by their hash. A request is *weak* if
//! it is IS or IX on a table, S, gap S or both on a key; all others are *strong*. Weak modes of one name
//! are compatible, so among weak requests there is nothing to decide.
//!
//! # Protocol
//!
//! A weak request, for a name that the owner does not hold (the shortest way is `Direct::request`, and
//! nothing on it calls anything where the block of the key is new to the owner):
//!
//! * D1  If the granule is not biased, nor ripe to be biased again (D9), it goes to the real manager.
//! * D2  Else append the entry to the owner's list and publish the count. *Light fence.*
//! * D3  Read the granule again. Biased: the lock is held.
//! * D4  Else take the entry back under the list's latch. If a revoker has converted it, the lock is
//!   held, as a real one; if not, the request goes to the real manager.
//!
//! A strong request:
//!
//! * D5  Count it in the granule. If the granule is real, go to D8.
//! * D6  Else revoke: raise the *mark* of the manager; *heavy fence*; walk all lists, and under each
//!   list's latch grant every entry of the granule, that was not converted yet, to its owner in the
//!   real manager, if nothing stands in its way there; note the slot. Whoever comes while
//!   this goes on does the same walk, and nobody waits for anybody's walk.
//! * D7  Declare the granule real; lower the mark.
//! * D8  Ask the real manager. The count stays until the strong lock has been given back there, or the
//!   request been refused.
//!
//! A weak request that finds the granule real, its count zero and its hold-off past:
//!
//! * D9  Make it biased, by a compare-and-exchange, and go to D2.
//!
//! The end of a transaction:
//!
//! * D10 Set the list's count to zero. *Light fence.* Read the mark, then whether the list was touched.
//!   Neither: everything remembered is forgotten.
//! * D11 Else collect, under the list's latch, what was converted, and give it back in the real
//!   manager with the rest.
//!
//! A short key:
//!
//! * D12 If the owner has an entry for its block, set the bit of the key, or of its gap, or both, in that
//!   entry; if not, append one (D2). Light fence, and D3. So for a scan, from one neighbour to the next, all
//!   that is left to do is to set a bit and to read a word. If the granule turns out not to be biased, the
//!   bit is cleared under the latch, unless the key has been converted (D4).
//! * D13 To a revoker a block is as many locks as it has bits; an entry stays when its bits are converted,
//!   and whoever revokes the next time converts those that came after. A key is held in a block or among
//!   `held`, never both (`notes`); a key that is to be held strong leaves its block, as a real lock. After a
//!   savepoint a block that is older gets another entry, so that it is clear what goes back.
//!
//! Giving back a single name, or making a remembered lock stronger within the weak modes, happens under
//! the list's latch; making it strong is D5, after which the own entry is real, and then a conversion
//! in the real manager.
//!
//! Many keys of one table:
//!
//! * D14 Who holds more keys than a bound tries to have the whole table, without waiting (`escalate`, for all
//!   managers). On the shortest way only a re-asked table looks whether it is time. The attempt is a strong request like any other (D5): while the table is held so, intentions on it are real.
//!
//! A short range that is about to be read:
//!
//! * D15 For each of its blocks, as D12, but with the bits of all its keys at once, whether they are there
//!   or not, and of the gaps before them. So the rows can be read after that without asking anything.
//!
//! Two words of bits are not set in one step. A revoker that comes in between may convert a key without
//! its gap; the owner finds the granule counted then, and under the latch what is missing.
//!
//! # Invariants
//!
//! * I1  A granule is biased only while no strong lock on any of its names is held or awaited.
//! * I2  In a granule that is real every weak lock is in the real manager, or is an entry that is about
//!   to be taken back by its owner.
//! * I3  The locks of the owner are those in its list and those among `held`, and no name is in both. Those
//!   among `held` are in the real manager, but for the mode of a wait that was not collected; those in the
//!   list are there too if and only if they have been converted.
//! * I4  Whoever waits, waits in the real manager, and everything it waits for is there: so the walk
//!   for deadlocks sees every edge.
//!
//! # Why it is right
//!
//! *No conflict is overlooked (L1).* Take a weak lock granted at D3 and a strong request in the same
//! granule. The weak side wrote its entry and then read the granule biased; the strong side wrote the
//! granule and then, after the heavy fence, reads the entries. One of them sees the other
//! (`foxton_sync::asymmetric`). The weak side did not see the strong one, so the revoker sees the
//! entry, if it has not been given back; it converts it, and asks for its own lock after that.
//!
//! *The conversion cannot fail for a lock that is held.* It can fail only where the real manager has
//! something incompatible, held or awaited: a strong lock, which was asked for after D7 of some walk. Let the
//! entry be held, that is, granted at D3 before that strong lock was counted; then the walk that made the
//! granule real before it converted the entry already. So an entry that cannot be converted was never
//! granted: its owner stands between D2 and D4, and will take it back.
//!
//! *The entries that are read are the owner's present ones.* The owner forgets its list at D10 and may
//! then write new entries over the old. If it read the mark before the revoker raised it, the revoker
//! sees the count at zero or what was appended after (fences again), whole (O1 of `remembered`). If
//! it read the mark raised it takes the latch, so not while the revoker has it.
//!
//! *What is converted is given back (L7).* Either the mark was read raised, or it was lowered before, and
//! then whatever that revoker converted shows in `touched` (O1), or it was raised after, and then
//! that revoker found nothing.
//!
//! *Bias comes back only when it may (I1).* The count covers the time from before the request to after
//! the release, and includes every revoker, so at zero no strong lock is left and no walk goes on.
//!
//! *Nobody is held up by a thread that lost its processor.* A weak request takes no latch but its own
//! list's. A strong one helps itself: it walks, however far others have come. What a revoker
//! holds is one list's latch at a time, that sleeps its waiters, for as long as it takes to convert the
//! entries of one owner in one granule: mostly none.
//!
//! # Orderings
//!
//! * O1  lowering the mark (Release) to reading it at the end of a transaction (Acquire): who finds it
//!   lowered sees what was touched.
//!
//! # Differences from the document
//!
//! There the flag is in the table and the table's latch is held whenever it is looked at. Our
//! tables have no such latch, and one written record would make all readers of its table pay; so the
//! granules are small, and found by name: the manager needs no help from whoever stores the records.
//! There a scan remembers each record; here sixty-four neighbours are one entry. A range from one key to
//! another would be fewer words still, but would have to be revoked for all keys of its table at once:
//! one update anywhere would end it, and the next could not begin until no update is left. A block is
//! revoked alone, and its bits say exactly which keys are held.

/// One word: biased or real.
mod granule;

/// Asking, the shortest ways.
mod fast_path;

/// Asking.
mod acquire;

/// Giving back.
mod release;

/// Showing and checking.
mod snapshot;

use super::latched::bucket::Bucket;
use crate::{
    deadlock::VictimPolicy,
    inspect::{LockQueue, LockSnapshot, LockStats},
    manager::{LockManager, forward},
    mode::Mode,
    name::{Class, Name},
    owner::{
        LockSavepoint, Owner, Scan,
        owner_table::{OwnerTable, Wakes},
        remembered::{BlockBits, BlockPosition},
    },
    request::{Outcome, Reply, WaitMode},
};
use fast_path::FastPathResult;
use foxton_sync::{
    asymmetric::Asymmetric,
    cache_line::CachePadded,
    clock::now,
    latch,
    shim::{AtomicU64, Ordering},
    site::{Component, Pattern, Site},
    worker::Worker,
};
use granule::{Granule, HoldOff, Moment};
use snapshot::merge;
use std::{
    fmt,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// A strong lock counted in its granule, and discounted.
static GRANULE: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock granule");
/// A walk over all owners.
static REVOKE: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock revocation");
/// An owner and a revoker at the owner's list.
static LIST: Site = Site::new(Component::Lock, Pattern::Fixed, "remembered locks");

/// Granules of tables. Each has its cache lines alone: every transaction reads its tables'.
const TABLE_GRANULES: u32 = if cfg!(loom) { 1 } else { 64 };

/// The most granules of keys. More would not stay in the nearest cache.
const MAX_GRANULES: usize = if cfg!(any(loom, shuttle)) { 2 } else { 4096 };

/// A manager that remembers weak locks, over a latch for each bucket.
pub struct Direct {
    real: Bucket,
    /// The address of its registry: what opens the shortest way to its owners (`notes`).
    address: usize,
    // Of fixed size, so that none of the two is asked for its length.
    granules: Box<[Granule; MAX_GRANULES]>,
    tables: Box<[CachePadded<Granule>; TABLE_GRANULES as usize]>,
    /// Which bits of a hash choose among those granules that are used.
    mask: u32,
    fence: Asymmetric,
    hold_off: HoldOff,
    /// Revokers between D6 and D7.
    revoking: CachePadded<AtomicU64>,
    revoked: CachePadded<RevocationStats>,
}

/// Which fences stand between those who remember and those who revoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fences {
    /// Where the system runs a barrier on every processor of the process for whoever revokes, that one, and
    /// nothing for whoever remembers. Where it does not, as `Symmetric`.
    #[default]
    Found,
    /// Full fences on both sides, and no shortest way: what systems without such a barrier have.
    Symmetric,
}

foxton_sync::named_enum! {
    Fences, "pair of fences":
    Found = "found",
    Symmetric = "symmetric",
}

/// Where locks are remembered.
#[derive(Debug, Clone, Copy)]
pub struct GranuleOptions {
    /// How many there are for keys, a power of two up to 4096.
    pub count: usize,
    /// How long one stays real after it was revoked for the first time.
    pub hold_off: Duration,
    /// Whether locks on tables are remembered, too.
    pub tables: bool,
    /// Between those who remember and those who revoke.
    pub fences: Fences,
}

/// What revoking came to.
#[derive(Debug, Default)]
struct RevocationStats {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct")
            .field("real", &self.real)
            .field("granules", &self.granules.len())
            .field("fence", &self.fence)
            .field("hold_off", &self.hold_off)
            .finish_non_exhaustive()
    }
}

impl Direct {
    /// A manager with these granules, over a `bucket` manager of the rest.
    pub fn new(
        kind: latch::Kind,
        buckets: usize,
        policy: VictimPolicy,
        granules: GranuleOptions,
    ) -> Self {
        let GranuleOptions {
            count,
            hold_off,
            tables,
            fences,
        } = granules;
        assert!(
            count.is_power_of_two() && count <= MAX_GRANULES,
            "2^n granules, at most {MAX_GRANULES}"
        );
        let table = |_| match tables {
            true => CachePadded::new(Granule::default()),
            false => CachePadded::new(Granule::always_real()),
        };
        let real = Bucket::new(kind, buckets, policy);
        Self {
            address: OwnerTable::address(&real.owners),
            real,
            granules: boxed(|_| Granule::default()),
            tables: boxed(table),
            mask: (count - 1) as u32,
            fence: match fences {
                Fences::Found => Asymmetric::new(),
                Fences::Symmetric => Asymmetric::symmetric(),
            },
            hold_off: HoldOff { first: hold_off },
            revoking: CachePadded::default(),
            revoked: CachePadded::default(),
        }
    }

    /// The same, but a lock that was granted to somebody asleep goes to who asks for it before that one wakes,
    /// for `window` so long.
    pub fn with_barging(self, window: Duration) -> Self {
        Self {
            real: self.real.with_barging(window),
            ..self
        }
    }

    /// A fault on purpose: where it lends, also what was seen.
    #[cfg(feature = "planted")]
    pub fn with_barging_after_seen(self) -> Self {
        Self {
            real: self.real.with_barging_after_seen(),
            ..self
        }
    }

    /// Whether it lends.
    pub fn allows_barging(&self) -> bool {
        self.real.allows_barging()
    }

    pub(crate) fn owners(&self) -> &OwnerTable {
        &self.real.owners
    }

    #[inline(always)]
    fn key_granule(&self, granule_hash: u32) -> &Granule {
        &self.granules[(granule_hash as usize % MAX_GRANULES) & self.mask as usize]
    }

    /// The bits of a hash that choose among the granules of tables, or of keys.
    fn mask(&self, class: Class) -> u32 {
        match class {
            Class::Table => TABLE_GRANULES - 1,
            _ => self.mask,
        }
    }

    #[inline]
    fn granule(&self, name: &Name, hash: u32) -> &Granule {
        match name.class() {
            Class::Table => self.table_granule(hash),
            _ => self.key_granule(name.near_hash()),
        }
    }

    #[inline(always)]
    fn table_granule(&self, hash: u32) -> &Granule {
        &self.tables[(hash % TABLE_GRANULES) as usize]
    }

    fn moment(&self) -> Moment {
        Moment::at(self.real.owners.now())
    }

    /// D5 to D7: counts a strong request, and sees to it that the granule is real.
    #[inline]
    fn enter_strong(&self, worker: &Worker, granule: &Granule, name: &Name, hash: u32) {
        worker.account().passed(&GRANULE);
        if !granule.add_strong() {
            let hash = match name.class() {
                Class::Table => hash,
                _ => name.near_hash(),
            };
            self.revoke(worker, granule, (hash, self.mask(name.class()))); // D6
        }
    }

    fn leave_strong(&self, worker: &Worker, granule: &Granule) {
        worker.account().passed(&GRANULE);
        granule.remove_strong();
    }

    #[cold]
    #[inline(never)]
    fn revoke(&self, worker: &Worker, granule: &Granule, (hash, mask): (u32, u32)) {
        worker.account().passed(&REVOKE);
        let began = now();
        // Relaxed: the fence is what puts it before the reading of the lists.
        self.revoking.fetch_add(1, Ordering::Relaxed);
        self.fence.heavy();
        for record in self.real.owners.records() {
            if granule.is_real() {
                break; // Somebody else came to the end.
            }
            let Some(list) = record.remembered().filter(|list| !list.is_empty()) else {
                continue;
            };
            worker.account().passed(&LIST);
            let owner_index = record.owner_index();
            list.revoke(hash, mask, |name, mode| {
                let hash = name.hash() as u32;
                let here = std::ptr::eq(self.granule(&name, hash), granule);
                here.then(|| self.real.grant_to(worker, owner_index, name, hash, mode))?
            });
        }
        let cost = began.elapsed();
        let overloaded = self.record_revocation(cost);
        granule.make_real(self.hold_off, self.moment(), cost, overloaded); // D7
        self.revoking.fetch_sub(1, Ordering::Release); // O1
    }

    /// Notes a revocation, and says whether more than a hundredth of all time goes into them.
    fn record_revocation(&self, cost: Duration) -> bool {
        let RevocationStats { count, nanos } = &*self.revoked;
        let cost = cost.as_nanos() as u64;
        // Relaxed: plain counting.
        count.fetch_add(1, Ordering::Relaxed);
        let spent = nanos.fetch_add(cost, Ordering::Relaxed) + cost;
        u128::from(spent) * 100 > self.real.owners.now().as_nanos()
    }
}

/// So many granules.
fn boxed<T, const N: usize>(make: impl Fn(usize) -> T) -> Box<[T; N]> {
    let all: Box<[T]> = (0..N).map(make).collect();
    match all.try_into() {
        Ok(all) => all,
        Err(_) => unreachable!("N were made"),
    }
}

impl LockManager for Direct {
    fn owner(&self) -> Owner {
        Owner::remembering(&self.real.owners, self.fence.is_expedited())
    }

    // The shortest way stands where it is called: its values stay in registers.
    #[inline(always)]
    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        // In words, so that the name need not be in memory on this way.
        let words = name.words();
        let name = || Name::from_words(words);
        match self.try_remember(owner, &name(), mode) {
            Some(FastPathResult::Held) => {
                owner.re_asks += 1;
                Reply::Held
            }
            Some(FastPathResult::Appended(granule)) => {
                // Who comes this way knows that the fence is expedited.
                self.fence.light_expedited();
                match granule.is_biased() {
                    true => Reply::Granted, // D3
                    false => self.recheck_bias(worker, owner, name(), mode, wait_mode),
                }
            }
            None => self.request_general(worker, owner, name(), mode, wait_mode), // D1
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
        // The same block, so the name is short.
        let [head, _, origin] = name.words();
        let BlockPosition { index, block } = scan.position;
        let at = head.wrapping_sub(block.base);
        let neighbour = origin == block.origin
            && at < 64
            && (owner.lookup.is_fast_path_open(self.address) || self.may_extend(owner, index));
        // And nothing of it is held by itself.
        if neighbour && mode.is_weak(Class::Key) && !owner.lookup.may_have_single(scan.hash) {
            let fresh = BlockBits::one(at as u32, mode);
            if owner.list().extend(scan.position, at as u32, fresh) {
                self.fence.light();
                if self.key_granule(scan.hash).is_biased()
                    || self.keep_converted(worker, owner, (index, scan.hash), fresh)
                {
                    owner.lookup.count_scanned(1);
                    return Reply::Granted; // D3, D4
                }
            }
        }
        self.request_in_next_block(worker, owner, scan, name, mode, wait_mode)
    }

    #[inline]
    fn lock_range(&self, worker: &Worker, owner: &mut Owner, first: Name, last: Name) -> bool {
        owner.assert_usable(&self.real.owners);
        self.lock_blocks(worker, owner, first, last)
    }

    /// What is remembered is on its owner's side already.
    #[inline]
    fn prefetch(&self, name: Name) {
        if !self.key_granule(name.near_hash()).is_biased() {
            self.real.prefetch(name);
        }
    }

    fn cancel(&self, worker: &Worker, owner: &mut Owner) {
        let counted_granule = self.counted_granule(owner);
        self.real.cancel(worker, owner);
        self.uncount_granule(worker, counted_granule);
    }

    fn wait(&self, worker: &Worker, owner: &mut Owner, deadline: Option<Instant>) -> Outcome {
        let counted_granule = self.counted_granule(owner);
        let outcome = self.real.wait(worker, owner, deadline);
        self.uncount_granule(worker, counted_granule.filter(|_| !outcome.is_held()));
        outcome
    }

    fn poll_wait(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        context: &mut Context<'_>,
    ) -> Poll<Outcome> {
        let counted_granule = self.counted_granule(owner);
        let poll = self.real.poll_wait(worker, owner, context);
        let refused = matches!(poll, Poll::Ready(Outcome::Refused(_)));
        self.uncount_granule(worker, counted_granule.filter(|_| refused));
        poll
    }

    fn release(&self, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
        owner.assert_usable(&self.real.owners);
        let Some(at) = owner.locks.find(name, name.hash() as u32) else {
            return self.release_remembered(worker, owner, name);
        };
        let entry = owner.locks.remove(at);
        let mut wakes = Wakes::new();
        self.release_lock(worker, &entry, &mut wakes);
        true
    }

    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: LockSavepoint) {
        owner.assert_usable(&self.real.owners);
        let mut wakes = Wakes::new();
        while let Some(entry) = owner.locks.pop_since(savepoint.order()) {
            self.release_lock(worker, &entry, &mut wakes);
        }
        self.release_remembered_since(worker, owner, savepoint.order(), &mut wakes);
    }

    #[inline(always)]
    fn release_all(&self, worker: &Worker, owner: &mut Owner) {
        // If all that was ever acquired was remembered, none is real but what was converted.
        if owner.lookup.is_fast_path_open(self.address) && owner.locks.acquired() == 0 {
            owner.list().clear(); // D10
            self.fence.light_expedited();
            match self.is_revoked(owner.list()) {
                false => owner.clear_remembered_fast(),
                true => self.release_real(worker, owner, true),
            }
        } else {
            self.release_general(worker, owner);
        }
    }

    fn inspect(&self, worker: &Worker) -> LockSnapshot {
        // First what is remembered: what is converted meanwhile is then seen twice, not missed.
        let remembered = self.remembered(worker, usize::MAX);
        let mut snapshot = self.real.inspect(worker);
        merge(&mut snapshot, remembered);
        snapshot
    }

    fn inspect_limited(&self, worker: &Worker, most: usize) -> LockSnapshot {
        let mut remembered = self.remembered(worker, most);
        let mut snapshot = self.real.inspect_limited(worker, most);
        let size = |queue: &LockQueue| queue.holders.len() + queue.waiters.len();
        let shown: usize = snapshot.queues.iter().map(size).sum();
        remembered.truncate(most.saturating_sub(shown));
        snapshot.truncated |= shown + remembered.len() >= most;
        merge(&mut snapshot, remembered);
        snapshot
    }

    fn stats(&self, worker: &Worker) -> LockStats {
        let mut stats = self.real.stats(worker);
        stats.memory_bytes += size_of_val(&*self.granules) + size_of_val(&*self.tables);
        stats.revocations = self.revoked.count.load(Ordering::Relaxed);
        stats.revocation_nanos = self.revoked.nanos.load(Ordering::Relaxed);
        stats
    }

    fn verify(&self, worker: &Worker) {
        self.verify_counts(worker);
    }

    forward! { (real) end_wait longest_wait deadlocks }
}
