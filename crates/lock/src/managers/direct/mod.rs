//! Biased locks, which the owner only remembers until a conflicting request arrives, and anchored
//! ones, whose words are in the records.
//!
//! Gottemukkala and Lehman's manager for memory-resident tables keeps a flag in each table. Without
//! conflicts a transaction locks the table and only *remembers* the records it touched, in memory
//! of its own. A conflicting request *de-escalates*: remembered locks become real, and stay real
//! for a while. Here the flag is mostly finer than a table, and the remembered path has neither a
//! read-modify-write nor a fence. The lock data of their manager is attached to the records. Here a
//! record has an *anchor*, one word that holds a real lock as long as it has one owner and no
//! waiter; everything else is in the queues of `bucket`.
//!
//! # State
//!
//! ```text
//!   owner's list, which it alone writes         granules               real locks: `bucket`
//!   +------------------------------+        +-----------------+        +----------------------+
//!   | count | block | table IX ... |------->| count of strong |------->| heads, queues, waits |
//!   +------------------------------+  hash  | locks, or bias  |        +----------------------+
//!     converted: name and slot, ...         +-----------------+
//! ```
//!
//! A real lock is in the word of its record (`foxton_sync::anchor`) or in a queue of `bucket`,
//! where absent keys, ends of tables, tables and numbers always have theirs. The owner's list shows
//! it to others, too.
//!
//! A remembered lock is in the owner's list and nowhere else. The owner searches the list when it
//! requests a name again, unless a byte of its own (`remembered_index`) shows that the list cannot
//! have the name.
//!
//! Names are grouped into *granules*: tables by their hash, into granules of their own; keys of up
//! to eight bytes by *blocks* of sixty-four neighbours; all other names by their hash. In the form
//! `direct:table` all keys of a table and its end are one granule, the flag of the paper
//! (`grouping`).
//!
//! A request is *weak* if it is IS or IX on a table, or S, gap S or both on a key; all others are
//! *strong*. Weak modes of one name are compatible, so weak requests never conflict.
//!
//! # Protocol
//!
//! A weak request, for a name that the owner does not hold (the fast path is `Direct::request`,
//! which calls no function if the block of the key is new to the owner):
//!
//! * D1  If the granule is not biased, and may not be biased again (D9), the request goes to the
//!   real manager.
//! * D2  Else append the entry to the owner's list and publish the count. *Light fence.*
//! * D3  Read the granule again. If it is biased, the lock is held.
//! * D4  Else remove the entry under the list's latch. If a revoker has converted it, the lock is
//!   held, as a real one. If not, the request goes to the real manager.
//!
//! A strong request:
//!
//! * D5  Count the request in the granule. If the granule is real, go to D8.
//! * D6  Else revoke: increment the manager's count of revokers, `revoking`; *heavy fence*; walk
//!   all lists. Under each list's latch, grant every entry of the granule that was not converted
//!   yet to its owner in the real manager, if nothing conflicts there, and store the slot. Other
//!   strong requests that come meanwhile do the same walk, and none waits for another's walk.
//! * D7  Make the granule real; decrement `revoking`.
//! * D8  Request the lock from the real manager. The count stays until the strong lock has been
//!   released there, or the request was refused.
//!
//! A weak request that finds the granule real, its count zero and its hold-off over:
//!
//! * D9  Make the granule biased, by a compare-and-exchange, and go to D2.
//!
//! The end of a transaction:
//!
//! * D10 Set the list's count to zero. *Light fence.* Read `revoking`, then whether some entry was
//!   converted. If neither, all remembered locks are gone.
//! * D11 Else take the converted locks, under the list's latch, and release them in the real
//!   manager with the other locks.
//!
//! A short key:
//!
//! * D12 If the owner has an entry for the key's block, set the bit of the key, or of its gap, or
//!   both, in that entry; if not, append one (D2). Light fence, and D3. So a scan only sets a bit
//!   and reads a word for each neighbour. If the granule turns out not to be biased, clear the bit
//!   under the latch, unless the key has been converted (D4).
//! * D13 To a revoker a block is as many locks as it has bits. An entry stays when its bits are
//!   converted, and the next revoker converts those that were set later. A key is held in a block
//!   or in `locks`, never in both (`remembered_index`). A key that is to be held strong leaves its
//!   block, as a real lock. After a savepoint an older block gets another entry, so that it is
//!   clear which keys a return to the savepoint releases.
//!
//! The release of a single name, and a conversion within the weak modes, happen under the list's
//! latch. A conversion to a strong mode begins with D5, which makes the own entry real, and goes on
//! as a conversion in the real manager.
//!
//! Many keys of one table:
//!
//! * D14 An owner that holds more keys than a limit tries to lock the whole table, without waiting
//!   (`escalation`, for all managers). On the fast path only a repeated request for a table checks
//!   the limits. The attempt is a strong request like any other (D5): while the table is held,
//!   intentions on it are real.
//!
//! In the form `direct:table`, an owner that gets a whole table (S, X or SIX):
//!
//! * T1  End the hold-off of the table's flag (D9). So the keys are remembered again as soon as no
//!   strong lock on one is left. While the owner has the table, every strong request of another for
//!   a key there waits for an intention on the table first, and so makes nothing real.
//!
//! A short range that is about to be read:
//!
//! * D15 For each of its blocks, as D12, but with the bits of all its keys at once, existing or
//!   not, and of the gaps before them. So the rows can be read after that without further requests.
//!
//! A request for a key that comes with the anchor of its record, for a name that identifies its
//! key:
//!
//! * A1  If it is weak and its granule is biased, it is remembered (D1 to D4). If not, and the
//!   anchor is free, and the owner does not hold the name: count a strong request (D5 to D7), and
//!   look whether the granule has converted locks. If it is weak, or there are none, exchange free
//!   for held by this owner in this mode. Then the lock is held, and the list gets an entry.
//! * A2  A release exchanges held for free. If the anchor has become inflated, the owner takes the
//!   latch of the queue, releases its lock there, and makes the anchor queued, or free if the queue
//!   is empty.
//! * A3  A request that A1 does not grant takes the latch of the queue. It makes a held anchor
//!   inflated, and enters its holder's lock in the queue. It makes a free one queued if there are
//!   converted locks. Then it is a request in the queue (D8), which is granted or waits there.
//! * A4  A conversion exchanges the mode in the word. If the anchor is inflated, or there are
//!   converted locks, the lock moves to the queue first, and is converted there.
//! * A5  A request that finds the anchor queued and the queue empty, under its latch, makes it held
//!   by this owner. No other step makes an anchor leave the queue, but A2.
//! * A6  A request without an anchor, because no record was found, is granted by the queue. Its
//!   owner then searches for the record again. If there is one now, it requests the name with the
//!   anchor, under the latch of the queue. The grant was made beside the anchor if that is free or
//!   held, or if another grant in the queue conflicts. Then it is released, and the request is a
//!   new one (A1). If not, it is confirmed.
//! * A7  If the owner's lock on the name is a converted one, the anchor is made queued or inflated
//!   (A3) before that lock is converted to a stronger mode.
//! * A8  An owner that removes a record holds its key and gap exclusively. It moves that lock to
//!   the queue, and the anchor becomes dead once the record is out of the table. If the queue then
//!   has a grant that conflicts, made beside the anchor and not confirmed yet (A6), the record
//!   stays. Without it the other owner would find no record, and keep its grant.
//!
//! D6 converts locks without knowing their anchors. So it counts each before it does, and converts
//! it only if the granule is not real yet. The count goes down when the lock is released.
//!
//! The two words of bits are not set in one step. A revoker that reads between the two may convert
//! a key without its gap. The owner then finds the granule counted, and finds under the latch which
//! part is missing.
//!
//! # Invariants
//!
//! * I1  A granule is biased only while no strong lock on any of its names is held or waited for.
//! * I2  In a real granule every weak lock is in the real manager, or is an entry that its owner is
//!   about to remove.
//! * I3  The locks of the owner are those in its list and those in `locks`, and no name is in both.
//!   Those in `locks` are in the real manager, except for the mode of a wait that was not
//!   collected. Those in the list are there, too, if and only if they have been converted.
//! * I4  Every waiter waits in the real manager, and everything it waits for is there. So the
//!   search for deadlocks sees every edge.
//!
//! * I5  While the anchor of a record in its table is free or held, the queue of its name has no
//!   request, except converted locks, which are weak, and grants that A6 will take back.
//! * I6  A new record is queued. So whatever is held on its name when it is inserted, is found.
//!
//! # Why it is right
//!
//! *No conflict is overlooked (L1).* Take a weak lock granted at D3 and a strong request in the
//! same granule. The weak side wrote its entry and then read the granule biased. The strong side
//! wrote the granule and then, after the heavy fence, reads the entries. One of them sees the other
//! (`foxton_sync::asymmetric`). The weak side did not see the strong one, so the revoker sees the
//! entry, if it has not been released. It converts the entry, and requests its own lock after that.
//!
//! *Nor by anchors.* Two locks of one anchor are ordered by its word. A lock of the anchor and one
//! of the queue meet under the latch of the queue, which every way into the queue takes, and on
//! which the anchor becomes inflated (A3, A4, A7). By I5 two kinds of lock are left. A converted
//! lock is weak, so it can conflict only with a strong request, and this has looked at the count.
//! If it found none, the revoker counts later, and finds the granule real. So it does not convert,
//! and the entry that it saw is one that its owner removes (D4). A grant of A6 is not relied upon
//! before the second search. If that finds no record, a record inserted later is queued (I6), and
//! stays so while the grant is there (A5). If it finds one, A6 confirms the grant only where the
//! anchor is queued or inflated, and so it stays while the grant is there. A lock
//! that the anchor held before is in the queue then, and no grant there conflicts.
//!
//! *An inflated holder's lock is entered whatever conflicts* (A3). Only a grant that A6 has not
//! confirmed can conflict with it, and its owner takes it back without waiting for anything.
//!
//! *No anchor is used after its record is gone.* Removal excludes all other holders (A8), and a
//! thread that still has a reference finds the anchor dead, and goes to the queue. The memory stays
//! while the word is held or inflated, whatever callers do (`foxton_sync::anchor`).
//!
//! *The conversion cannot fail for a lock that is held.* It can fail only where the real manager
//! has an incompatible lock, held or waited for: a strong lock, requested after D7 of some walk.
//! Let the entry be held, that is, granted at D3 before that strong lock was counted. Then the walk
//! that made the granule real before it has converted the entry already. So an entry that cannot be
//! converted was never granted: its owner is between D2 and D4, and will remove it.
//!
//! *The entries that are read are the owner's present ones.* The owner clears its list at D10 and
//! may then write new entries over the old. If it read `revoking` before the revoker's increment,
//! the revoker sees the count at zero or what was appended after (fences again), whole (O1 of
//! `remembered`). If it read the increment, it takes the latch, and so does not write while the
//! revoker has it.
//!
//! *Every converted lock is released (L7).* There are three cases for the owner's read of
//! `revoking`. It saw the revoker. Or the revoker had decremented before, and then its conversions
//! show in `any_converted` (O1). Or the revoker incremented after, and then it found nothing.
//!
//! *Bias comes back only when it may (I1).* The count covers the time from before the request to
//! after the release, and includes every revoker. So at zero there is no strong lock and no walk.
//!
//! *A descheduled thread holds up no other.* A weak request takes no latch but that of its own
//! list. A strong one does its own walk, however far others have come. A revoker holds the latch of
//! one list at a time, a latch that puts its waiters to sleep, while it converts the entries of one
//! owner in one granule: mostly none.
//!
//! # Orderings
//!
//! * O1  decrementing `revoking` (Release) to reading it at the end of a transaction (Acquire): an
//!   owner that finds it zero sees what was converted.
//!
//! # Differences from the paper
//!
//! There the queue of a lock hangs from its record. Here a record has four bytes, which hold the
//! common case, and waiters are in the hash table, where no memory is needed for records without.
//!
//! There the flag is in the table and the table's latch is held whenever it is read. Our tables
//! have no such latch, and one written record would make all readers of its table pay. So the
//! granules are small and found by name, and the manager needs no help from the store. The form
//! `direct:table` has one for each table, to be compared. There, X locks of a transaction alone in
//! a table are remembered, too, and the flag comes back at the first release that finds no wait.
//! Here a lock that can conflict is real, and the hold-off (D9) may be 0.
//!
//! There a scan remembers each record; here sixty-four neighbours are one entry. A range from one
//! key to another would be fewer words still, but would have to be revoked for all keys of its
//! table at once. One update anywhere would end it, and the next range could not begin while any
//! update is left. A block is revoked alone, and its bits say exactly which keys are held.
//!
//! There, a table is escalated when sharing is no longer needed. Here sharing costs nothing until a
//! conflict, so escalation only saves memory and release time. Escalated table locks are not split
//! again when another owner conflicts: that needs the keys, which were dropped to free their
//! memory. Only remembered locks are de-escalated (`Stats::revocations`).
//!
//! A system without a barrier for other processors (`membarrier`) uses full fences on both sides
//! (`Fences::Symmetric`).

/// One granule: a word that makes its names biased or real.
mod granule;

/// Rule that groups keys into granules.
pub mod grouping;

/// Fast paths of requests.
mod fast_path;

/// Requests.
mod acquire;

/// Anchored requests, and their releases.
mod anchored;

/// Requests for neighbouring keys.
mod neighbours;

/// Releases.
mod release;

/// Snapshots and checks.
mod snapshot;

use super::latched::bucket::Bucket;
use crate::{
    deadlock::VictimPolicy,
    inspect::{LockSnapshot, LockStats, NameQueue},
    manager::{LockManager, forward},
    mode::Mode,
    name::{Class, Name},
    owner::{
        LockSavepoint, Owner, Scan,
        owner_table::{OwnerTable, Wakes},
        remembered::{BlockBits, BlockPosition, EntryPlace},
    },
    request::{Outcome, Reply, WaitMode},
};
use anchored::Converted;
use fast_path::FastPathResult;
use foxton_sync::{
    anchor::LockAnchor,
    asymmetric::Asymmetric,
    cache_line::CachePadded,
    clock::now,
    latch,
    shim::{AtomicU64, Ordering, fence},
    site::{Component, Pattern, Site},
    worker::Worker,
};
use granule::{Granule, HoldOff, Moment};
use grouping::Grouping;
use snapshot::merge;
use std::{
    fmt,
    marker::PhantomData,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// A strong lock counted in its granule, or uncounted.
static GRANULE: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock granule");
/// An anchor that an owner takes, or releases.
static ANCHOR: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock anchor");
/// A walk over all owners.
static REVOKE: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock revocation");
/// An owner and a revoker at the owner's list.
static LIST: Site = Site::new(Component::Lock, Pattern::Fixed, "remembered locks");

/// Granules of tables. Each is alone on its cache lines, because every transaction reads those of
/// its tables.
const TABLE_GRANULES: u32 = if cfg!(loom) { 1 } else { 64 };

/// Most granules of keys. More would not stay in the nearest cache.
const MAX_GRANULES: usize = if cfg!(any(loom, shuttle)) { 2 } else { 4096 };

/// Counts of converted locks, each for some of the granules.
const CONVERTED: usize = if cfg!(any(loom, shuttle)) { 2 } else { 256 };

/// Manager that remembers weak locks, over a latch for each bucket. The rule `G` groups keys.
pub struct Direct<G> {
    real: Bucket,
    /// Address of the table of owners, for which the fast path of an owner is opened
    /// (`remembered_index`).
    address: usize,
    // Of fixed size, so that no length need be loaded.
    granules: Box<[Granule; MAX_GRANULES]>,
    tables: Box<[CachePadded<Granule>; TABLE_GRANULES as usize]>,
    converted: Box<[Converted; CONVERTED]>,
    /// Bits of a number that choose among the granules in use.
    mask: u32,
    fence: Asymmetric,
    hold_off: HoldOff,
    /// Number of revokers between D6 and D7.
    revoking: CachePadded<AtomicU64>,
    revoked: CachePadded<RevocationStats>,
    /// By tables: granule of numbers, which no table is to be made real for.
    numbers: Granule,
    grouping: PhantomData<G>,
}

/// Fences between owners that remember and owners that revoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fences {
    /// A barrier on every processor of the process for a revoker, and no fence for an owner that
    /// remembers, if the system has such a barrier. If not, as `Symmetric`.
    #[default]
    Found,
    /// Full fences on both sides, and no fast path, as on systems without such a barrier.
    Symmetric,
}

foxton_sync::named_enum! {
    Fences, "pair of fences":
    Found = "found",
    Symmetric = "symmetric",
}

/// Options of the granules.
#[derive(Debug, Clone, Copy)]
pub struct GranuleOptions {
    /// Number of granules for keys, a power of two up to 4096.
    pub count: usize,
    /// How long a granule stays real after its first revocation.
    pub hold_off: Duration,
    /// True if locks on tables are remembered, too.
    pub tables: bool,
    /// Fences between owners that remember and owners that revoke.
    pub fences: Fences,
}

/// Statistics of revocations.
#[derive(Debug, Default)]
struct RevocationStats {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl<G: Grouping> fmt::Debug for Direct<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct")
            .field("real", &self.real)
            .field("granules", &self.granules.len())
            .field("fence", &self.fence)
            .field("hold_off", &self.hold_off)
            .finish_non_exhaustive()
    }
}

impl<G: Grouping> Direct<G> {
    /// Returns a manager with these granules, over a `bucket` manager for real locks.
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
            converted: boxed(|_| Converted::default()),
            mask: (count - 1) as u32,
            fence: match fences {
                Fences::Found => Asymmetric::new(),
                Fences::Symmetric => Asymmetric::symmetric(),
            },
            hold_off: HoldOff { first: hold_off },
            revoking: CachePadded::default(),
            revoked: CachePadded::default(),
            numbers: Granule::always_real(),
            grouping: PhantomData,
        }
    }

    /// Returns the manager with barging: for up to `window`, a lock granted to a sleeping waiter
    /// goes to a request that comes before the waiter wakes.
    pub fn with_barging(self, window: Duration) -> Self {
        Self {
            real: self.real.with_barging(window),
            ..self
        }
    }

    /// True with barging.
    pub fn allows_barging(&self) -> bool {
        self.real.allows_barging()
    }

    pub(crate) fn owners(&self) -> &OwnerTable {
        &self.real.owners
    }

    #[inline(always)]
    fn key_granule(&self, near: u32, space: u32) -> &Granule {
        self.granule_at(self.granule_number(near, space))
    }

    /// Returns the number of the granule of a key.
    #[inline(always)]
    fn granule_number(&self, near: u32, space: u32) -> u32 {
        grouping::number::<G>(near, space) & self.mask
    }

    /// Returns the granule that has this number.
    #[inline(always)]
    fn granule_at(&self, number: u32) -> &Granule {
        &self.granules[number as usize % MAX_GRANULES]
    }

    #[inline]
    fn granule(&self, name: &Name, hash: u32) -> &Granule {
        match name.class() {
            Class::Table => self.table_granule(hash),
            Class::Advisory if G::BY_TABLE => &self.numbers,
            _ => self.key_granule(name.near_hash(), name.space()),
        }
    }

    #[inline(always)]
    fn table_granule(&self, hash: u32) -> &Granule {
        &self.tables[(hash % TABLE_GRANULES) as usize]
    }

    fn moment(&self) -> Moment {
        Moment::at(self.real.owners.now())
    }

    /// D5 to D7: counts a strong request, and ensures that the granule is real.
    #[inline]
    fn enter_strong(&self, worker: &Worker, granule: &Granule, name: &Name, hash: u32) {
        worker.account().passed(&GRANULE);
        if !granule.add_strong() {
            let number = match name.class() {
                Class::Table => hash,
                _ => grouping::number::<G>(name.near_hash(), name.space()),
            };
            self.revoke(worker, granule, (name.class(), number)); // D6
        }
    }

    fn leave_strong(&self, worker: &Worker, granule: &Granule) {
        worker.account().passed(&GRANULE);
        granule.remove_strong();
    }

    #[cold]
    #[inline(never)]
    fn revoke(&self, worker: &Worker, granule: &Granule, (class, number): (Class, u32)) {
        let (mask, by_table) = match class {
            Class::Table => (TABLE_GRANULES - 1, false),
            _ => (self.mask, G::BY_TABLE),
        };
        // True unless an entry shows that none of its names is in the granule.
        let may_be_here = |place: EntryPlace| {
            let (other, known) = match by_table {
                true => (grouping::number::<G>(0, place.space), u32::MAX),
                false => (place.hash, place.known),
            };
            (other ^ number) & mask & known == 0
        };
        worker.account().passed(&REVOKE);
        let began = now();
        // Relaxed: the fence puts it before the reads of the lists.
        self.revoking.fetch_add(1, Ordering::Relaxed);
        self.fence.heavy();
        for record in self.real.owners.records() {
            if granule.is_real() {
                break; // Another revoker has finished.
            }
            let Some(list) = record.remembered() else {
                continue;
            };
            worker.account().passed(&LIST);
            let owner_index = record.owner_index();
            list.revoke(may_be_here, |name, mode| {
                let hash = name.hash() as u32;
                let here = std::ptr::eq(self.granule(&name, hash), granule);
                let places = (granule, owner_index);
                here.then(|| self.convert_remembered(worker, places, (name, mode)))?
            });
        }
        let cost = began.elapsed();
        let overloaded = self.record_revocation(cost);
        granule.make_real(self.hold_off, self.moment(), cost, overloaded); // D7
        fence(Ordering::SeqCst); // O1 of `anchored`.
        self.revoking.fetch_sub(1, Ordering::Release); // O1
    }

    /// T1: after the grant of a whole table, its keys need no hold-off.
    #[inline(always)]
    fn coarsen(&self, worker: &Worker, name: Name, mode: Mode) {
        if G::BY_TABLE && name.class() == Class::Table && !mode.is_weak(Class::Table) {
            worker.account().passed(&GRANULE);
            self.key_granule(0, name.space()).coarsen(self.moment());
        }
    }

    /// Returns the lock on a whole table that the owner waits for.
    fn awaited_table(&self, owner: &Owner) -> Option<(Name, Mode)> {
        let wait = owner.pending.filter(|_| G::BY_TABLE)?;
        Some((wait.name, wait.mode))
    }

    /// Records a revocation, and returns true if revocations take more than a hundredth of all
    /// time.
    fn record_revocation(&self, cost: Duration) -> bool {
        let RevocationStats { count, nanos } = &*self.revoked;
        let cost = cost.as_nanos() as u64;
        // Relaxed: plain counting.
        count.fetch_add(1, Ordering::Relaxed);
        let spent = nanos.fetch_add(cost, Ordering::Relaxed) + cost;
        u128::from(spent) * 100 > self.real.owners.now().as_nanos()
    }
}

/// Makes a boxed array of N elements.
fn boxed<T, const N: usize>(make: impl Fn(usize) -> T) -> Box<[T; N]> {
    let all: Box<[T]> = (0..N).map(make).collect();
    match all.try_into() {
        Ok(all) => all,
        Err(_) => unreachable!("N were made"),
    }
}

impl<G: Grouping> LockManager for Direct<G> {
    fn owner(&self) -> Owner {
        Owner::remembering(&self.real.owners, self.fence.is_expedited())
    }

    // The fast path is inlined into the caller, so that its values stay in registers.
    #[inline(always)]
    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        // In words, so that the name need not be in memory on this path.
        let words = name.words();
        let name = || Name::from_words(words);
        match self.try_remember(owner, &name(), mode) {
            Some(FastPathResult::Held) => {
                owner.re_asks += 1;
                Reply::Held
            }
            Some(FastPathResult::Appended(granule)) => {
                // The fast path is open only with an expedited fence.
                self.fence.light_expedited();
                match granule.is_biased() {
                    true => Reply::Granted, // D3
                    false => self.recheck_bias(worker, owner, (name(), None), mode, wait_mode),
                }
            }
            None => self.request_general(worker, owner, name(), mode, wait_mode), // D1
        }
    }

    #[inline(always)]
    fn request_anchored(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, anchor): (Name, &LockAnchor),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        // As in `request`.
        let words = name.words();
        let name = || Name::from_words(words);
        match self.try_remember(owner, &name(), mode) {
            Some(FastPathResult::Held) => {
                owner.re_asks += 1;
                Reply::Held
            }
            Some(FastPathResult::Appended(granule)) => {
                self.fence.light_expedited();
                match granule.is_biased() {
                    true => Reply::Granted, // D3
                    false => {
                        let target = (name(), Some(anchor));
                        self.recheck_bias(worker, owner, target, mode, wait_mode)
                    }
                }
            }
            None => self.request_at_anchor(worker, owner, (name(), anchor), mode, wait_mode),
        }
    }

    #[inline(always)]
    fn request_in_scan(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        scan: &mut Scan,
        (name, anchor): (Name, Option<&LockAnchor>),
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
        // And no key of the block is held in `locks`.
        if neighbour && mode.is_weak(Class::Key) && !owner.lookup.may_have_single(scan.hash) {
            let fresh = BlockBits::one(at as u32, mode);
            if owner.list().extend(scan.position, at as u32, fresh) {
                self.fence.light();
                if self.key_granule(scan.hash, block.space()).is_biased()
                    || self.keep_converted(worker, owner, (index, scan.hash), fresh)
                {
                    owner.lookup.count_scanned(1);
                    return Reply::Granted; // D3, D4
                }
            }
        }
        self.request_in_next_block(worker, owner, scan, (name, anchor), mode, wait_mode)
    }

    fn unanchor(&self, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
        self.unanchor_lock(worker, owner, name)
    }

    #[inline]
    fn lock_range(&self, worker: &Worker, owner: &mut Owner, first: Name, last: Name) -> bool {
        owner.assert_usable(&self.real.owners);
        self.lock_blocks(worker, owner, first, last)
    }

    fn cancel(&self, worker: &Worker, owner: &mut Owner) {
        let counted_granule = self.counted_granule(owner);
        self.real.cancel(worker, owner);
        self.uncount_granule(worker, counted_granule);
    }

    fn wait(&self, worker: &Worker, owner: &mut Owner, deadline: Option<Instant>) -> Outcome {
        let counted_granule = self.counted_granule(owner);
        let awaited = self.awaited_table(owner);
        let outcome = self.real.wait(worker, owner, deadline);
        self.uncount_granule(worker, counted_granule.filter(|_| !outcome.is_held()));
        if let Some((name, mode)) = awaited.filter(|_| outcome.is_held()) {
            self.coarsen(worker, name, mode);
        }
        outcome
    }

    fn poll_wait(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        context: &mut Context<'_>,
    ) -> Poll<Outcome> {
        let counted_granule = self.counted_granule(owner);
        let awaited = self.awaited_table(owner);
        let poll = self.real.poll_wait(worker, owner, context);
        let refused = matches!(poll, Poll::Ready(Outcome::Refused(_)));
        self.uncount_granule(worker, counted_granule.filter(|_| refused));
        let is_held = matches!(&poll, Poll::Ready(outcome) if outcome.is_held());
        if let Some((name, mode)) = awaited.filter(|_| is_held) {
            self.coarsen(worker, name, mode);
        }
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
        // If no acquisition is in `locks`, only converted and anchored locks are real.
        if owner.lookup.is_fast_path_open(self.address) && owner.locks.acquired() == 0 {
            owner.list().clear(); // D10
            if !owner.anchored.is_empty() {
                self.release_all_anchored(worker, owner);
            }
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
        // First the remembered locks: what is converted meanwhile is seen twice, not missed.
        let remembered = self.remembered(worker, usize::MAX);
        let mut snapshot = self.real.inspect(worker);
        merge(&mut snapshot, remembered);
        snapshot
    }

    fn inspect_limited(&self, worker: &Worker, most: usize) -> LockSnapshot {
        let mut remembered = self.remembered(worker, most);
        let mut snapshot = self.real.inspect_limited(worker, most);
        let size = |queue: &NameQueue| queue.holders.len() + queue.waiters.len();
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

    forward! { (real) trim end_wait longest_wait deadlocks }
}
