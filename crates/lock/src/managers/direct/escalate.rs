//! The whole table in the place of many keys: D14.
//!
//! An owner that holds more than a bound of keys of one table asks for the table in a mode that covers
//! what it does there: S if it mostly shares, X otherwise. It does not wait: if somebody is in the way, it
//! goes on with keys, and tries again only after as many more.
//!
//! Its keys stay locked, and a savepoint goes back to what it says: the table was held before them, so it
//! is *converted*, and keeps the stronger mode unless it is given back itself, with all that came after
//! it. So what `Owner::covers` says stays true until the table is given back.
//!
//! Trying is a strong request, and revokes the intentions that others remember for the table. That is why
//! it is tried so seldom.
//!
//! # Where it is looked at
//!
//! Where an owner asks again for a table that it holds, and where a request goes to the real manager. Not on the
//! remembered path: there nothing is counted but what is counted anyway, the order of acquisition. A
//! block of neighbours is one acquisition, and counts as one lock here: so much it costs.

use super::Direct;
use crate::{
    mode::Mode,
    name::{Class, Name},
    owner::Owner,
    request::{Patience, Reply},
};
use foxton_sync::{
    shim::{AtomicU64, Ordering},
    worker::Worker,
};

/// When to try, and how often it went well.
#[derive(Debug)]
pub(super) struct Escalation {
    bound: u32,
    granted: AtomicU64,
}

impl Escalation {
    /// Above so many keys, or never for 0.
    pub(super) fn above(bound: u32) -> Self {
        let bound = if bound == 0 { u32::MAX } else { bound };
        Self {
            bound,
            granted: AtomicU64::new(0),
        }
    }

    /// Whether `owner` may hold more keys than the bound: it has acquired more than that.
    #[inline]
    pub(super) fn is_due(&self, owner: &Owner) -> bool {
        owner.acquired() > self.bound
    }

    pub(super) fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }
}

impl Direct {
    /// Tries to have all of `table`, if `owner` holds so many keys of it and has not just tried.
    #[cold]
    #[inline(never)]
    pub(super) fn escalate(&self, worker: &Worker, owner: &mut Owner, table: Name) {
        if table.class() != Class::Table {
            return;
        }
        let Some(held) = owner.held_mode(table).filter(|_| owner.may_escalate()) else {
            return;
        };
        let bound = self.escalation.bound;
        let (shared, all) = count_keys(owner, table);
        if all <= bound {
            return owner.put_off_escalation(bound - all);
        }
        owner.put_off_escalation(bound);
        let shares = held.covers(Mode::S);
        let mode = match !shares && shared >= all - shared {
            true => Mode::S,
            false => Mode::X,
        };
        // Who has all of the table, and who shares it and has few keys exclusively, needs no more.
        if held == Mode::X || (shares && all - shared <= bound) {
            return;
        }
        let reply = self.request_held(worker, owner, table, mode, Patience::Refuse);
        if matches!(reply, Reply::Granted) {
            owner.note_whole_table();
            // Relaxed: plain counting.
            self.escalation.granted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How many keys of `table` are only shared, and how many there are in all.
fn count_keys(owner: &Owner, table: Name) -> (u32, u32) {
    let (mut shared, mut all) = (0, 0);
    let keys = owner.held.iter();
    for entry in keys.filter(|entry| entry.name.parent() == Some(table)) {
        shared += u32::from(entry.mode.is_weak(entry.name.class()));
        all += 1;
    }
    let Some(list) = owner.remembered() else {
        return (shared, all);
    };
    let (mut keys, mut entries) = (0, 0);
    for index in 0..list.len() {
        let here = list.locks(index);
        let here = here
            .filter(|(name, _)| name.parent() == Some(table))
            .count() as u32;
        keys += here;
        entries += here.min(1);
    }
    // A block that a scan came to counts as one; keys that were asked for by themselves all count.
    let by_themselves = owner.notes.acquired().saturating_sub(list.len());
    let remembered = keys.min(entries + by_themselves);
    (shared + remembered, all + remembered)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Granules;
    use super::*;
    use crate::{manager::LockManager, waits::VictimPolicy};
    use foxton_sync::{latch, worker::Workers};
    use std::time::Duration;

    const TABLE: Name = Name::table(1);

    #[test]
    fn while_somebody_has_a_whole_table_intentions_of_others_on_it_are_real() {
        let workers = Workers::new();
        let worker = workers.worker();
        let granules = Granules {
            count: 4,
            hold_off: Duration::ZERO,
            tables: true,
            escalation: 0,
        };
        let kind = latch::Kind::default();
        let direct = Direct::new(kind, 4, VictimPolicy::default(), granules);
        let (mut early, mut whole, mut late) = (direct.owner(), direct.owner(), direct.owner());
        let is_held =
            |owner: &mut Owner, mode| direct.try_lock(&worker, owner, TABLE, mode).is_held();
        let in_real = |owner: &Owner| {
            let queues = direct.real.queues(&worker);
            let mut holders = queues.iter().flat_map(|queue| &queue.holders);
            holders.any(|holder| holder.owner == owner.id())
        };
        assert!(is_held(&mut early, Mode::IS));
        assert!(!in_real(&early), "it is only remembered");
        assert!(is_held(&mut whole, Mode::S));
        assert!(in_real(&early) && in_real(&whole), "and was made real");
        assert!(is_held(&mut late, Mode::IS));
        assert!(in_real(&late) && late.list().is_empty());
        assert!(!is_held(&mut late, Mode::IX));
        direct.verify(&worker);
        for owner in [&mut early, &mut whole, &mut late] {
            direct.release_all(&worker, owner);
        }
        std::thread::sleep(Duration::from_millis(10)); // Longer than a moment.
        assert!(is_held(&mut late, Mode::IX));
        assert!(!in_real(&late), "nobody has the whole table now");
        direct.release_all(&worker, &mut late);
    }
}
