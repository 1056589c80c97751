//! Whole tables in the place of many keys, when locks take more room than they may.
//!
//! Every few hundred acquisitions an owner looks how much it holds. There are three limits:
//!
//! | limit | passed by | then |
//! |---|---|---|
//! | keys of one table | one owner | it asks for that table |
//! | bytes of one owner | one owner | it asks for its tables, the fullest first, until it is below |
//! | bytes of all owners | all together, as they published it | the same, by whoever looks; and if that was not enough, a request for more than it has by then is refused: [`Full`](crate::request::RefusalReason::Full) |
//!
//! It asks in a mode that covers what it does there, S if it mostly shares, X otherwise, and never waits. If
//! somebody is in the way it goes on with keys, and tries again only after so many more.
//!
//! # Why nothing is unprotected meanwhile
//!
//! The table is held before any of its keys is given back, and only keys are given back that the table's
//! mode covers ([`Owner::covers`]): nobody else can then have them in a mode that conflicts, as long as the
//! table is held. The table is given back at the end, or by going back to a savepoint. One that is older
//! than the table's lock gives back the table with all that came after it; a later one finds the table
//! *converted*, and a conversion stays. That needs tables to be locked before their keys, as they are by
//! everybody who locks parents first.
//!
//! All this is done through the contract: a request for the table, and a release of each key. So it is the same
//! over every manager, and nothing else need know of it.
//!
//! # What it costs
//!
//! One comparison for a request, of two numbers of the owner's own. A table that `direct` remembers for
//! others has to be made real when somebody asks for all of it; that is why trying is put off after a
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

/// Adding up what all owners have published.
static MEMORY: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock room");

/// Those who hold most that a refusal for want of room names.
const MAX_NAMED: usize = 8;
/// Holders that are looked at to find them, where none has published anything.
const SAMPLE: usize = 256;

/// What an owner holds of one table: entries of its lists, not keys.
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

/// Which limits are passed.
#[derive(Debug, Clone, Copy)]
struct ExceededLimits {
    keys: bool,
    owner: bool,
    total: bool,
}

impl ExceededLimits {
    /// Publishes what `owner` has, and compares.
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

/// Looks how much `owner` holds and, if that is more than it may, trades keys for tables; before a request
/// of it. The answer to the request, if no more is to be done.
#[cold]
#[inline(never)]
pub(crate) fn check_limits(
    manager: &dyn LockManager,
    worker: &Worker,
    owner: &mut Owner,
    (name, mode): (Name, Mode),
) -> Option<Reply> {
    let limits = *owner.owners().limits();
    // Not again on the way: what follows asks, too.
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
        // In proportion to what has to be looked through each time.
        let held = owner.entry_count();
        owner.postpone_escalation(match (&refusal, for_bytes) {
            (None, false) => attempt.keys_to_limit(owner).max(held / 64),
            (Some(_), false) => limits.keys,
            (_, true) => limits.check_interval().saturating_mul(4).max(held / 4),
        });
    }
    let until_full = limits.keys.saturating_sub(owner.entry_count());
    owner.check_limits_after(limits.check_interval().min(until_full.saturating_add(1)));
    // Who asks for a table may be about to need fewer keys. What is held, by itself or with the table that its keys were
    // traded for, takes no room.
    let is_covered = owner.has_escalated() && owner.covers(name, mode);
    // Asked only where it counts: it looks through all that is held.
    let is_held = exceeded.total && owner.held_mode(name).is_some_and(|held| held.covers(mode));
    let takes_memory = name.class() != Class::Table && !is_covered && !is_held;
    if exceeded.total && takes_memory {
        owner.check_limits_after(0);
        let blockers = memory_blockers(manager, worker, owner, refusal);
        return Some(owner.refuse_full(name, mode, blockers));
    }
    if exceeded.total && is_held {
        owner.check_limits_after(0); // Nothing was learnt of what comes next.
    }
    is_covered.then(|| {
        owner.re_asks += 1;
        Reply::Held
    })
}

/// An owner that has come to a limit.
struct EscalationAttempt<'a> {
    manager: &'a dyn LockManager,
    worker: &'a Worker,
    limits: &'a MemoryLimits,
}

impl EscalationAttempt<'_> {
    /// Has the fullest tables, until no limit is passed. What stood in the way, if something did.
    fn run(&self, owner: &mut Owner, exceeded: ExceededLimits) -> Option<Box<Refusal>> {
        let mut tables: Vec<(Name, KeyCounts)> = counts(owner).into_iter().collect();
        tables.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.all()));
        let (mut exceeded, mut refusal) = (exceeded, None);
        for (table, mut counts) in tables {
            // At most twice: first shared, then exclusively.
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

    /// Has `table` in a mode that covers more, and trades. What is left of its keys.
    fn lock_table(
        &self,
        owner: &mut Owner,
        table: Name,
        counts: KeyCounts,
        exceeded: ExceededLimits,
    ) -> Result<KeyCounts, Option<Box<Refusal>>> {
        let Some(held) = owner.held_mode(table) else {
            return Err(None); // Whoever does not lock parents is not to be protected by one.
        };
        let is_shared = held.covers(Mode::S);
        if held != Mode::X && !(is_shared && counts.shared > 0) {
            // Who shares all of it and has few keys beside that needs no more of it.
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
                    add(&owner.record().memory.escalations, 1);
                }
                Reply::Refused(refusal) => {
                    add(&owner.record().memory.escalations_refused, 1);
                    return Err(Some(refusal));
                }
                Reply::Waiting | Reply::Skipped => unreachable!("it is refused instead"),
            }
        }
        self.release_covered(owner, table);
        Ok(counts_of(owner, table))
    }

    /// Gives back the keys of `table` that it covers, the latest first.
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
        add(&owner.record().memory.traded, u64::from(traded));
    }

    /// How many more keys it may have before it looks at its tables again.
    fn keys_to_limit(&self, owner: &Owner) -> u32 {
        let fullest = counts(owner).into_values().map(KeyCounts::all).max();
        self.limits.keys.saturating_sub(fullest.unwrap_or(0))
    }
}

/// What an owner holds of each table.
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

/// Who stands in the way of an owner that there is no room for: those because of whom it did not get a table,
/// and those others who hold most.
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

/// Those who hold most, as far as some of the locks show it: for managers whose room is bounded by requests.
/// The one who asks is among them if it is one of those.
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
