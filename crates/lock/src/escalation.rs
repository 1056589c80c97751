//! Lock escalation: a table lock replaces many key locks, when locks exceed their memory limits.
//!
//! Every few hundred acquisitions an owner checks three limits:
//!
//! | limit | exceeded by | then |
//! |---|---|---|
//! | keys of one table | one owner | it requests that table |
//! | bytes of one owner | one owner | it requests its tables, the fullest first |
//! | bytes of all owners | their published sum | every owner that checks does the same |
//!
//! If the bytes of all owners are still exceeded then, a request that needs more memory is refused:
//! [`Full`](crate::request::RefusalReason::Full).
//!
//! The owner requests a mode that covers its locks there: S if it mostly shares, X otherwise. It
//! never waits. If the request is blocked the owner goes on with keys, and tries again only after a
//! number of further acquisitions.
//!
//! # Why no key is unprotected meanwhile
//!
//! The table is held before any of its keys is released, and only keys that the table's mode covers
//! are released (`Owner::covers`). So no other owner can hold them in a conflicting mode, as long
//! as the table is held. The table is released at the end, or by a return to a savepoint. A
//! savepoint older than the table's lock releases the table with everything that came after it. A
//! later savepoint finds the table *converted*, and a conversion stays. That needs tables to be
//! locked before their keys, as all callers do that lock parents first.
//!
//! All this goes through the contract: a request for the table, and a release of each key. So it is
//! the same over every manager, and no manager need know of it.
//!
//! # What it costs
//!
//! A request compares two numbers of the owner's own. If other owners remember a table in `direct`,
//! a request for all of it makes their locks real; that is why attempts are postponed after a
//! refusal.

use crate::{
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{Class, Name},
    owner::{
        Owner,
        memory_limits::{LOCK_BYTES, MemoryLimits},
        owner_table::add,
    },
    request::{Blocker, OwnerId, Refusal, Reply, WaitMode},
};
use foxton_sync::{
    site::{Component, Pattern, Site},
    worker::Worker,
};
use std::collections::BTreeMap;

/// Sum of the published memory of all owners.
static MEMORY: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock room");

/// Most holders named by a refusal for lack of memory.
const MAX_NAMED: usize = 8;
/// Holders inspected to find the largest, if no owner has published anything.
const SAMPLE: usize = 256;

/// Entries of an owner's lists for one table. An entry may have several keys.
#[derive(Debug, Clone, Copy, Default)]
struct KeyCounts {
    shared: u32,
    others: u32,
}

impl KeyCounts {
    fn all(self) -> u32 {
        self.shared + self.others
    }
}

/// Limits that are exceeded.
#[derive(Debug, Clone, Copy)]
struct ExceededLimits {
    keys: bool,
    owner: bool,
    total: bool,
}

impl ExceededLimits {
    /// Publishes the memory of `owner`, and compares.
    fn by(worker: &Worker, owner: &mut Owner, limits: &MemoryLimits) -> Self {
        let bytes = owner.lock_bytes();
        let mut total = bytes;
        if limits.total_bytes < usize::MAX {
            owner.publish_memory(bytes);
            if bytes <= limits.total_bytes {
                worker.account().passed(&MEMORY);
                let records = owner.owners().records();
                total = records.map(|record| record.memory.bytes()).sum();
            }
        }
        Self {
            keys: owner.entry_count() > limits.keys,
            owner: bytes > limits.owner_bytes,
            total: total > limits.total_bytes,
        }
    }

    fn bytes(self) -> bool {
        self.owner || self.total
    }
}

/// Checks the limits of `owner` before a request, and trades keys for tables if it exceeds one.
/// Returns the answer to the request, if nothing more is to be done.
#[cold]
#[inline(never)]
pub(crate) fn check_limits(
    manager: &dyn LockManager,
    worker: &Worker,
    owner: &mut Owner,
    (name, mode): (Name, Mode),
) -> Option<Reply> {
    let limits = *owner.owners().limits();
    // No check on the way: the following requests check, too.
    owner.check_limits_after(u32::MAX);
    let mut exceeded = ExceededLimits::by(worker, owner, &limits);
    let may_try = owner.may_escalate();
    let mut refusal = None;
    if exceeded.total || ((exceeded.keys || exceeded.owner) && may_try) {
        let attempt = EscalationAttempt {
            manager,
            worker,
            limits: &limits,
        };
        let for_bytes = exceeded.bytes();
        refusal = attempt.run(owner, exceeded);
        exceeded = ExceededLimits::by(worker, owner, &limits);
        // In proportion to the number of entries that each attempt walks over.
        let held = owner.entry_count();
        owner.postpone_escalation(match (&refusal, for_bytes) {
            (None, false) => attempt.keys_to_limit(owner).max(held / 64),
            (Some(_), false) => limits.keys,
            (_, true) => limits.check_interval().saturating_mul(4).max(held / 4),
        });
    }
    let until_full = limits.keys.saturating_sub(owner.entry_count());
    owner.check_limits_after(limits.check_interval().min(until_full.saturating_add(1)));
    // A request for a table may be the way to fewer keys. A name that is held, or covered by a
    // table that its keys were traded for, takes no memory.
    let is_covered = owner.has_escalated() && owner.covers(name, mode);
    // Only where it matters, because it walks over all held locks.
    let is_held = exceeded.total && owner.held_mode(name).is_some_and(|held| held.covers(mode));
    let takes_memory = name.class() != Class::Table && !is_covered && !is_held;
    if exceeded.total && takes_memory {
        owner.check_limits_after(0);
        let blockers = memory_blockers(manager, worker, owner, refusal);
        return Some(owner.refuse_full(name, mode, blockers));
    }
    if exceeded.total && is_held {
        owner.check_limits_after(0); // The next request needs a check, too.
    }
    is_covered.then(|| {
        owner.re_asks += 1;
        Reply::Held
    })
}

/// Attempt of an owner that has reached a limit.
struct EscalationAttempt<'a> {
    manager: &'a dyn LockManager,
    worker: &'a Worker,
    limits: &'a MemoryLimits,
}

impl EscalationAttempt<'_> {
    /// Locks the fullest tables, until no limit is exceeded. Returns the refusal, if some request
    /// was blocked.
    fn run(&self, owner: &mut Owner, exceeded: ExceededLimits) -> Option<Box<Refusal>> {
        let mut tables: Vec<(Name, KeyCounts)> = counts(owner).into_iter().collect();
        tables.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.all()));
        let (mut exceeded, mut refusal) = (exceeded, None);
        for (table, mut counts) in tables {
            // At most twice: first shared, then exclusive.
            while exceeded.bytes() || counts.all() > self.limits.keys {
                let before = counts.all();
                match self.lock_table(owner, table, counts, exceeded) {
                    Ok(left) => counts = left,
                    Err(refused) => {
                        refusal = refused.or(refusal);
                        break;
                    }
                }
                exceeded = ExceededLimits::by(self.worker, owner, self.limits);
                if counts.all() == before {
                    break;
                }
            }
        }
        refusal
    }

    /// Locks `table` in a mode that covers more, and trades. Returns the remaining keys.
    fn lock_table(
        &self,
        owner: &mut Owner,
        table: Name,
        counts: KeyCounts,
        exceeded: ExceededLimits,
    ) -> Result<KeyCounts, Option<Box<Refusal>>> {
        let Some(held) = owner.held_mode(table) else {
            return Err(None); // A caller that does not lock parents needs none.
        };
        let is_shared = held.covers(Mode::S);
        if held != Mode::X && !(is_shared && counts.shared > 0) {
            // With the whole table shared and few other keys, a stronger mode is not needed.
            if is_shared && counts.others <= self.limits.keys && !exceeded.bytes() {
                return Err(None);
            }
            let mode = match !is_shared && counts.shared >= counts.others {
                true => Mode::S,
                false => Mode::X,
            };
            let (manager, worker) = (self.manager, self.worker);
            match manager.request(worker, owner, table, mode, WaitMode::Refuse) {
                Reply::Granted | Reply::Held => {
                    owner.record_table_lock();
                    add(&owner.details().escalations.done, 1);
                }
                Reply::Refused(refusal) => {
                    add(&owner.details().escalations.refused, 1);
                    return Err(Some(refusal));
                }
                Reply::Waiting | Reply::Skipped => unreachable!("it is refused instead"),
            }
        }
        self.release_covered(owner, table);
        Ok(counts_of(owner, table))
    }

    /// Releases the keys of `table` that it covers, the latest first.
    fn release_covered(&self, owner: &mut Owner, table: Name) {
        let keys = owner.held().filter(|(name, mode)| {
            name.parent() == Some(table) && owner.covers_as(table, *name, *mode)
        });
        let keys: Vec<Name> = keys.map(|(name, _)| name).collect();
        for &name in keys.iter().rev() {
            self.manager.release(self.worker, owner, name);
        }
        let traded = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        owner.record_traded(traded);
        add(&owner.details().escalations.traded, u64::from(traded));
    }

    /// Returns how many more keys the owner may acquire before it checks its tables again.
    fn keys_to_limit(&self, owner: &Owner) -> u32 {
        let fullest = counts(owner).into_values().map(KeyCounts::all).max();
        self.limits.keys.saturating_sub(fullest.unwrap_or(0))
    }
}

/// Returns the entries of an owner for each table.
fn counts(owner: &Owner) -> BTreeMap<Name, KeyCounts> {
    let mut tables = BTreeMap::<Name, KeyCounts>::new();
    for (name, mode) in owner.entries() {
        if let Some(table) = name.parent() {
            let counts = tables.entry(table).or_default();
            match mode.is_weak(name.class()) {
                true => counts.shared += 1,
                false => counts.others += 1,
            }
        }
    }
    tables
}

fn counts_of(owner: &Owner, table: Name) -> KeyCounts {
    counts(owner).remove(&table).unwrap_or_default()
}

/// Returns the blockers of an owner that exceeds the memory limit: the owners because of which it
/// did not get a table, and the others with the most locks.
fn memory_blockers(
    manager: &dyn LockManager,
    worker: &Worker,
    owner: &Owner,
    refusal: Option<Box<Refusal>>,
) -> Vec<Blocker> {
    let mut blockers = refusal.map_or(Vec::new(), |refusal| refusal.blockers);
    let owners = owner.owners();
    let mut largest: Vec<(usize, OwnerId)> = owners
        .records()
        .map(|record| (record.memory.bytes() / LOCK_BYTES, record.id()))
        .filter(|&(locks, id)| locks > 0 && id != owner.id())
        .collect();
    largest.sort_unstable_by(|one, other| other.cmp(one));
    for (locks, id) in largest.into_iter().take(MAX_NAMED) {
        if blockers.iter().all(|blocker| blocker.owner != id) {
            let mut blocker = owners.blocker(id, Mode::key(KeyPart::S, GapPart::None), false);
            blocker.locks = locks;
            blockers.push(blocker);
        }
    }
    match blockers.is_empty() {
        true => largest_holders(manager, worker),
        false => blockers,
    }
}

/// Returns the owners with the most locks, as far as a sample of the locks shows them, for managers
/// whose memory is limited by requests. The requesting owner may be among them.
pub(crate) fn largest_holders(manager: &dyn LockManager, worker: &Worker) -> Vec<Blocker> {
    let snapshot = manager.inspect_limited(worker, SAMPLE);
    let mut holders = BTreeMap::<OwnerId, Blocker>::new();
    for queue in &snapshot.queues {
        for holder in &queue.holders {
            let blocker = holders.entry(holder.owner).or_insert_with(|| Blocker {
                owner: holder.owner,
                label: holder.label.clone(),
                mode: holder.mode,
                age: holder.age,
                waiting: false,
                locks: 0,
            });
            blocker.locks += 1;
        }
    }
    let mut holders: Vec<Blocker> = holders.into_values().collect();
    holders.sort_by_key(|blocker| std::cmp::Reverse(blocker.locks));
    holders.truncate(MAX_NAMED);
    holders
}
