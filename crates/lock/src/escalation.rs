//! Whole tables in the place of many keys, when locks take more room than they may.
//!
//! Every few hundred acquisitions an owner looks how much it holds. There are three limits:
//!
//! | limit | passed by | then |
//! |---|---|---|
//! | keys of one table | one owner | it asks for that table |
//! | bytes of one owner | one owner | it asks for its tables, the fullest first, until it is below |
//! | bytes of all owners | all together, as they published it | the same, by whoever looks; and if that was not enough, a request for more than it has by then is refused: [`Full`](crate::request::Reason::Full) |
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
static ROOM: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock room");

/// Those who hold most that a refusal for want of room names.
const NAMED: usize = 8;
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
            owner.publish_room(bytes);
            if bytes <= limits.total_bytes {
                worker.account().passed(&ROOM);
                let records = owner.registry().records();
                total = records.map(|record| record.room.bytes()).sum();
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
pub(crate) fn look(
    manager: &dyn LockManager,
    worker: &Worker,
    owner: &mut Owner,
    (name, mode): (Name, Mode),
) -> Option<Reply> {
    let limits = *owner.registry().limits();
    // Not again on the way: what follows asks, too.
    owner.look_after(u32::MAX);
    let mut passed = ExceededLimits::by(worker, owner, &limits);
    let may_try = owner.may_escalate();
    let mut refusal = None;
    if passed.total || ((passed.keys || passed.owner) && may_try) {
        let attempt = EscalationAttempt {
            manager,
            worker,
            limits: &limits,
        };
        let for_bytes = passed.bytes();
        refusal = attempt.run(owner, passed);
        passed = ExceededLimits::by(worker, owner, &limits);
        // In proportion to what has to be looked through each time.
        let held = owner.entry_count();
        owner.put_off_escalation(match (&refusal, for_bytes) {
            (None, false) => attempt.slack(owner).max(held / 64),
            (Some(_), false) => limits.keys,
            (_, true) => limits.every().saturating_mul(4).max(held / 4),
        });
    }
    let until_full = limits.keys.saturating_sub(owner.entry_count());
    owner.look_after(limits.every().min(until_full.saturating_add(1)));
    // Who asks for a table may be about to need fewer keys. What is held, by itself or with the table that its keys were
    // traded for, takes no room.
    let is_covered = owner.has_escalated() && owner.covers(name, mode);
    // Asked only where it counts: it looks through all that is held.
    let is_held = passed.total && owner.held_mode(name).is_some_and(|held| held.covers(mode));
    let takes_room = name.class() != Class::Table && !is_covered && !is_held;
    if passed.total && takes_room {
        owner.look_after(0);
        let blockers = in_the_way_of_room(manager, worker, owner, refusal);
        return Some(owner.refuse_for_room(name, mode, blockers));
    }
    if passed.total && is_held {
        owner.look_after(0); // Nothing was learnt of what comes next.
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
    fn run(&self, owner: &mut Owner, passed: ExceededLimits) -> Option<Box<Refusal>> {
        let mut tables: Vec<(Name, KeyCounts)> = tally(owner).into_iter().collect();
        tables.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.all()));
        let (mut passed, mut refusal) = (passed, None);
        for (table, mut tally) in tables {
            // At most twice: first shared, then exclusively.
            while passed.bytes() || tally.all() > self.limits.keys {
                let before = tally.all();
                match self.have(owner, table, tally, passed) {
                    Ok(left) => tally = left,
                    Err(refused) => {
                        refusal = refused.or(refusal);
                        break;
                    }
                }
                passed = ExceededLimits::by(self.worker, owner, self.limits);
                if tally.all() == before {
                    break;
                }
            }
        }
        refusal
    }

    /// Has `table` in a mode that covers more, and trades. What is left of its keys.
    fn have(
        &self,
        owner: &mut Owner,
        table: Name,
        tally: KeyCounts,
        passed: ExceededLimits,
    ) -> Result<KeyCounts, Option<Box<Refusal>>> {
        let Some(held) = owner.held_mode(table) else {
            return Err(None); // Whoever does not lock parents is not to be protected by one.
        };
        let shares = held.covers(Mode::S);
        if held != Mode::X && !(shares && tally.shared > 0) {
            // Who shares all of it and has few keys beside that needs no more of it.
            if shares && tally.others <= self.limits.keys && !passed.bytes() {
                return Err(None);
            }
            let mode = match !shares && tally.shared >= tally.others {
                true => Mode::S,
                false => Mode::X,
            };
            let (manager, worker) = (self.manager, self.worker);
            match manager.request(worker, owner, table, mode, WaitMode::Refuse) {
                Reply::Granted | Reply::Held => {
                    owner.note_whole_table();
                    add(&owner.record().room.escalations, 1);
                }
                Reply::Refused(refusal) => {
                    add(&owner.record().room.escalations_refused, 1);
                    return Err(Some(refusal));
                }
                Reply::Waiting | Reply::Skipped => unreachable!("it is refused instead"),
            }
        }
        self.trade(owner, table);
        Ok(tally_of(owner, table))
    }

    /// Gives back the keys of `table` that it covers, the latest first.
    fn trade(&self, owner: &mut Owner, table: Name) {
        let keys = owner.held().filter(|(name, mode)| {
            name.parent() == Some(table) && owner.covers_as(table, *name, *mode)
        });
        let keys: Vec<Name> = keys.map(|(name, _)| name).collect();
        for &name in keys.iter().rev() {
            self.manager.release(self.worker, owner, name);
        }
        let traded = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        owner.note_traded(traded);
        add(&owner.record().room.traded, u64::from(traded));
    }

    /// How many more keys it may have before it looks at its tables again.
    fn slack(&self, owner: &Owner) -> u32 {
        let fullest = tally(owner).into_values().map(KeyCounts::all).max();
        self.limits.keys.saturating_sub(fullest.unwrap_or(0))
    }
}

/// What an owner holds of each table.
fn tally(owner: &Owner) -> BTreeMap<Name, KeyCounts> {
    let mut tables = BTreeMap::<Name, KeyCounts>::new();
    for (name, mode) in owner.entries() {
        if let Some(table) = name.parent() {
            let tally = tables.entry(table).or_default();
            match mode.is_weak(name.class()) {
                true => tally.shared += 1,
                false => tally.others += 1,
            }
        }
    }
    tables
}

fn tally_of(owner: &Owner, table: Name) -> KeyCounts {
    tally(owner).remove(&table).unwrap_or_default()
}

/// Who stands in the way of an owner that there is no room for: those because of whom it did not get a table,
/// and those others who hold most.
fn in_the_way_of_room(
    manager: &dyn LockManager,
    worker: &Worker,
    owner: &Owner,
    refusal: Option<Box<Refusal>>,
) -> Vec<Blocker> {
    let mut blockers = refusal.map_or(Vec::new(), |refusal| refusal.blockers);
    let registry = owner.registry();
    let mut largest: Vec<(usize, OwnerId)> = registry
        .records()
        .map(|record| (record.room.bytes() / LOCK_BYTES, record.id()))
        .filter(|&(locks, id)| locks > 0 && id != owner.id())
        .collect();
    largest.sort_unstable_by(|one, other| other.cmp(one));
    for (locks, id) in largest.into_iter().take(NAMED) {
        if blockers.iter().all(|blocker| blocker.owner != id) {
            let mut blocker = registry.blocker(id, Mode::key(KeyPart::S, GapPart::None), false);
            blocker.locks = locks;
            blockers.push(blocker);
        }
    }
    match blockers.is_empty() {
        true => holders_of_most(manager, worker),
        false => blockers,
    }
}

/// Those who hold most, as far as some of the locks show it: for managers whose room is bounded by requests.
/// The one who asks is among them if it is one of those.
pub(crate) fn holders_of_most(manager: &dyn LockManager, worker: &Worker) -> Vec<Blocker> {
    let snapshot = manager.look(worker, SAMPLE);
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
    holders.truncate(NAMED);
    holders
}
