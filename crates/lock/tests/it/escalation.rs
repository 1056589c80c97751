//! Lock escalation: when an owner tries, what it gets and releases for it, and what a savepoint
//! restores; over every manager.

use foxton_lock::{
    any::{AnyManager, Inheritance, ManagerKind, Options},
    manager::LockManager,
    mode::Mode,
    name::{KeyHasher, Name},
    owner::{Owner, Scan},
    request::{RefusalReason, Reply, WaitMode},
};
use foxton_sync::worker::{Worker, Workers};
use std::time::{Duration, Instant};

const TABLE: Name = Name::table(1);
const BOUND: u32 = 20;

/// A manager that escalates above a number of keys, with a worker.
struct Keys {
    locks: AnyManager,
    worker: Worker,
    hasher: KeyHasher,
    _workers: Workers,
}

impl Keys {
    fn above(bound: u32, kind: ManagerKind) -> Self {
        Self::with(kind, |options| options.escalation = bound)
    }

    fn with(kind: ManagerKind, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::tiny();
        options.kind = kind;
        change(&mut options);
        let workers = Workers::with_seed(1);
        Self {
            locks: AnyManager::new(&options),
            worker: workers.worker(),
            hasher: KeyHasher::new(1),
            _workers: workers,
        }
    }

    /// Returns a key with a block of its own.
    fn key(&self, number: u64) -> Name {
        Name::key(1, &(number * 64).to_be_bytes(), &self.hasher)
    }

    fn has(&self, owner: &mut Owner, name: Name, mode: Mode) -> bool {
        self.locks
            .try_lock(&self.worker, owner, name, mode)
            .is_held()
    }

    /// Locks keys as a transaction does: first the table.
    fn take(&self, owner: &mut Owner, keys: std::ops::Range<u64>, mode: Mode) {
        for number in keys {
            assert!(self.has(owner, TABLE, mode.parent_mode()));
            assert!(self.has(owner, self.key(number), mode));
        }
    }

    fn escalations(&self) -> u64 {
        self.locks.stats(&self.worker).escalations
    }

    fn end(&self, owner: &mut Owner) {
        self.locks.release_all(&self.worker, owner);
        self.locks.verify(&self.worker);
        let queues = self.locks.inspect(&self.worker).queues;
        let mut holders = queues.iter().flat_map(|queue| &queue.holders);
        assert!(holders.all(|holder| holder.owner != owner.id()));
        owner.begin();
    }
}

#[test]
fn a_reader_of_many_keys_gets_the_table_shared_and_others_read_on() {
    for kind in ManagerKind::ALL {
        let t = Keys::above(BOUND, kind);
        let (mut many, mut other) = (t.locks.owner(), t.locks.owner());
        t.take(&mut many, 0..20, Mode::S);
        assert_eq!((t.escalations(), many.has_escalated()), (0, false));
        t.take(&mut many, 20..30, Mode::S);
        assert_eq!((t.escalations(), many.has_escalated()), (1, true));
        assert_eq!(many.held_mode(TABLE), Some(Mode::S));
        assert!(many.covers(t.key(1000), Mode::S) && !many.covers(t.key(1000), Mode::X));
        assert!(!t.has(&mut other, TABLE, Mode::IX));
        t.take(&mut other, 0..2, Mode::S);
        t.end(&mut other);
        t.end(&mut many);
        assert!(!many.has_escalated(), "the next transaction begins anew");
        t.take(&mut other, 0..2, Mode::X);
        t.end(&mut other);
    }
}

#[test]
fn a_writer_of_many_keys_gets_the_table_exclusively() {
    for kind in ManagerKind::ALL {
        let t = Keys::above(BOUND, kind);
        let (mut many, mut other) = (t.locks.owner(), t.locks.owner());
        t.take(&mut many, 0..30, Mode::X);
        assert_eq!(many.held_mode(TABLE), Some(Mode::X));
        assert!(many.covers(t.key(1000), Mode::X) && many.covers(Name::end(1), Mode::S));
        assert!(!many.covers(Name::end(2), Mode::S) && !many.covers(TABLE, Mode::S));
        assert!(!t.has(&mut other, TABLE, Mode::IS));
        t.end(&mut many);
        assert!(t.has(&mut other, TABLE, Mode::IS));
        t.end(&mut other);
    }
}

#[test]
fn a_reader_of_many_keys_that_writes_some_gets_both_in_turn() {
    for kind in ManagerKind::ALL {
        let t = Keys::above(BOUND, kind);
        let mut many = t.locks.owner();
        t.take(&mut many, 0..1, Mode::X);
        t.take(&mut many, 1..30, Mode::S);
        assert_eq!(many.held_mode(TABLE), Some(Mode::SIX));
        assert!(many.covers(t.key(99), Mode::S) && !many.covers(t.key(99), Mode::X));
        t.take(&mut many, 100..110, Mode::X);
        assert_eq!(many.held_mode(TABLE), Some(Mode::SIX), "few are exclusive");
        t.take(&mut many, 110..150, Mode::X);
        assert_eq!((many.held_mode(TABLE), t.escalations()), (Some(Mode::X), 2));
        t.end(&mut many);
    }
}

#[test]
fn a_refused_escalation_goes_on_with_keys_and_is_tried_again_after_as_many_more() {
    for kind in ManagerKind::ALL {
        let t = Keys::above(BOUND, kind);
        let (mut many, mut other) = (t.locks.owner(), t.locks.owner());
        t.take(&mut other, 1000..1001, Mode::X);
        t.take(&mut many, 0..30, Mode::S);
        assert_eq!(
            (t.escalations(), many.held_mode(TABLE)),
            (0, Some(Mode::IS))
        );
        let tried = t.locks.stats(&t.worker).busy;
        assert_eq!(tried, 1, "it has tried, once");
        t.end(&mut other);
        t.take(&mut many, 30..38, Mode::S);
        assert_eq!(t.escalations(), 0, "too soon");
        t.take(&mut many, 38..60, Mode::S);
        assert_eq!((t.escalations(), many.held_mode(TABLE)), (1, Some(Mode::S)));
        t.end(&mut many);
    }
}

#[test]
fn a_requested_table_is_used_for_exclusive_keys() {
    for kind in ManagerKind::ALL {
        let t = Keys::above(BOUND, kind);
        let mut many = t.locks.owner();
        assert!(t.has(&mut many, TABLE, Mode::IX));
        for number in 0..30 {
            assert!(t.has(&mut many, t.key(number), Mode::X));
        }
        assert_eq!(many.held_mode(TABLE), Some(Mode::X));
        t.end(&mut many);
    }
}

#[test]
fn a_block_of_neighbours_counts_as_one() {
    let t = Keys::above(BOUND, ManagerKind::Direct);
    let (mut many, mut scan) = (t.locks.owner(), Scan::new());
    for number in 0..64 * 40u64 {
        assert!(t.has(&mut many, TABLE, Mode::IS));
        let name = Name::key(1, &number.to_be_bytes(), &t.hasher);
        let (locks, worker) = (&t.locks, &t.worker);
        let reply = locks.request_in_scan(
            worker,
            &mut many,
            &mut scan,
            (name, None),
            Mode::S,
            WaitMode::Refuse,
        );
        drop(reply);
        let escalated = number / 64 >= u64::from(BOUND);
        // Once the next key, or the one after it, requests the table again.
        if number % 64 > 1 {
            assert_eq!(many.has_escalated(), escalated, "{number}");
        }
    }
    t.end(&mut many);
}

#[test]
fn going_back_to_a_savepoint_keeps_a_table_that_was_held_before_it() {
    for kind in ManagerKind::ALL {
        let t = Keys::above(BOUND, kind);
        let (mut many, mut other) = (t.locks.owner(), t.locks.owner());
        t.take(&mut many, 0..1, Mode::X);
        let savepoint = many.savepoint();
        t.take(&mut many, 1..40, Mode::X);
        t.locks.release_since(&t.worker, &mut many, savepoint);
        assert_eq!(many.lock_count(), 1, "the key before was traded");
        assert_eq!(many.held_mode(TABLE), Some(Mode::X), "as any conversion");
        assert!(many.covers(t.key(30), Mode::X));
        assert!(!t.has(&mut other, TABLE, Mode::IS));
        t.end(&mut many);
    }
}

#[test]
fn going_back_to_a_savepoint_before_the_table_releases_it() {
    for kind in ManagerKind::ALL {
        let t = Keys::above(BOUND, kind);
        let (mut many, mut other) = (t.locks.owner(), t.locks.owner());
        let savepoint = many.savepoint();
        t.take(&mut many, 0..40, Mode::X);
        t.locks.release_since(&t.worker, &mut many, savepoint);
        assert_eq!(many.lock_count(), 0);
        assert!(!many.covers(t.key(30), Mode::S));
        t.take(&mut other, 0..2, Mode::X);
        t.end(&mut other);
        t.end(&mut many);
    }
}

#[test]
fn other_tables_and_advisory_names_do_not_count() {
    for kind in ManagerKind::ALL {
        let t = Keys::above(BOUND, kind);
        let mut many = t.locks.owner();
        for number in 0..100u32 {
            assert!(t.has(&mut many, Name::advisory(number.into()), Mode::X));
            assert!(t.has(&mut many, Name::table(number), Mode::IX));
            assert!(t.has(&mut many, Name::end(number), Mode::X));
        }
        assert_eq!(t.escalations(), 0);
        t.end(&mut many);
    }
}

#[test]
fn a_limit_of_zero_disables_escalation() {
    for kind in ManagerKind::ALL {
        let t = Keys::above(0, kind);
        let mut many = t.locks.owner();
        t.take(&mut many, 0..100, Mode::X);
        assert_eq!(
            (t.escalations(), many.held_mode(TABLE)),
            (0, Some(Mode::IX))
        );
        t.end(&mut many);
    }
}

#[test]
fn escalation_works_with_inherited_tables() {
    for kind in ManagerKind::ALL {
        let t = Keys::with(kind, |options| {
            (options.escalation, options.inherit) = (BOUND, Inheritance::Always);
        });
        let (mut many, mut other) = (t.locks.owner(), t.locks.owner());
        for round in 1..=3 {
            t.take(&mut many, 0..30, Mode::S);
            assert_eq!(
                (many.held_mode(TABLE), t.escalations()),
                (Some(Mode::S), round)
            );
            assert!(!t.has(&mut other, TABLE, Mode::IX));
            t.locks.release_all(&t.worker, &mut many);
            many.begin();
            // An inherited lock blocks no request.
            t.take(&mut other, 0..2, Mode::X);
            t.locks.release_all(&t.worker, &mut other);
            other.begin();
        }
        t.locks.verify(&t.worker);
    }
}

#[test]
fn no_key_is_unprotected_at_any_step() {
    for kind in ManagerKind::ALL {
        let t = Keys::above(8, kind);
        let (mut many, mut other) = (t.locks.owner(), t.locks.owner());
        for number in 0..40 {
            let mode = if number % 3 == 0 { Mode::X } else { Mode::S };
            t.take(&mut many, number..number + 1, mode);
            for taken in 0..=number {
                // Written keys cannot be read, and read keys cannot be written, by others.
                let wanted = if taken % 3 == 0 { Mode::S } else { Mode::X };
                let got = t.has(&mut other, TABLE, wanted.parent_mode())
                    && t.has(&mut other, t.key(taken), wanted);
                assert!(!got, "{kind}: {taken} after {number}");
                t.locks.release_all(&t.worker, &mut other);
                other.begin();
            }
        }
        assert_eq!(many.held_mode(TABLE), Some(Mode::X));
        // The table, and the keys that were requested since the last check.
        let keys = many.lock_count() as u64 - 1;
        assert!(keys <= 8, "{kind}: {keys}");
        assert_eq!(t.locks.stats(&t.worker).traded, 40 - keys);
        t.end(&mut many);
    }
}

/// Memory that a lock in a queue counts for.
const LOCK_BYTES: usize = 96;

#[test]
fn above_its_bytes_an_owner_gets_the_table_with_the_most_keys() {
    for kind in ManagerKind::ALL
        .into_iter()
        .filter(|kind| *kind != ManagerKind::Direct)
    {
        let t = Keys::with(kind, |options| options.owner_bytes = 40 * LOCK_BYTES);
        let (mut many, mut other) = (t.locks.owner(), t.locks.owner());
        let small = Name::table(2);
        let key_of_small = |n: u64| Name::key(2, &n.to_be_bytes(), &t.hasher);
        for number in 0..10 {
            assert!(t.has(&mut many, small, Mode::IX));
            assert!(t.has(&mut many, key_of_small(number), Mode::X));
        }
        t.take(&mut other, 1000..1001, Mode::S);
        t.take(&mut many, 0..60, Mode::X);
        // A transaction reads one of its rows: the owner goes on with keys, and tries again.
        let stats = t.locks.stats(&t.worker);
        assert_eq!(many.held_mode(TABLE), Some(Mode::IX));
        assert!(stats.escalations_refused > 0);
        // The smaller table was locked, because it has no other holder.
        assert_eq!(
            (many.held_mode(small), stats.escalations),
            (Some(Mode::X), 1)
        );
        t.end(&mut other);
        t.take(&mut many, 60..120, Mode::X);
        assert_eq!(many.held_mode(TABLE), Some(Mode::X));
        assert!(many.lock_count() < 50, "{kind}: {}", many.lock_count());
        t.end(&mut many);
    }
}

#[test]
fn above_the_total_bytes_a_request_is_refused_and_names_the_largest_holders() {
    for kind in ManagerKind::ALL {
        let t = Keys::with(kind, |options| options.total_bytes = 100 * LOCK_BYTES);
        let (mut large, mut many, mut reader) = (t.locks.owner(), t.locks.owner(), t.locks.owner());
        large.set_label("large");
        reader.set_label("reader");
        for number in 0..90u32 {
            assert!(t.has(&mut large, Name::advisory(number.into()), Mode::X));
        }
        t.take(&mut reader, 5000..5001, Mode::S);
        let refused = (0..200).find_map(|number| {
            let mut ask = |name, mode| t.locks.try_lock(&t.worker, &mut many, name, mode).refusal();
            let refused = ask(TABLE, Mode::IX).or_else(|| ask(t.key(number), Mode::X));
            refused.map(|refusal| (number, refusal))
        });
        let (number, refusal) = refused.expect("there is no room for two hundred");
        assert!((10..=50).contains(&number), "{kind}: {number}");
        assert_eq!(refusal.reason, RefusalReason::Full);
        let named: Vec<&str> = refusal.blockers.iter().map(|b| &*b.label).collect();
        assert!(named.contains(&"large"), "{kind}: {refusal}");
        assert!(named.contains(&"reader"), "{kind}: {refusal}");
        assert!(t.locks.stats(&t.worker).escalations_refused > 0);
        // No lock is lost, and the request leaves no trace.
        assert!(!t.has(&mut reader, t.key(0), Mode::S));
        assert_eq!(many.held_mode(t.key(number)), None);
        // Once the reader has gone, trading the keys frees memory.
        t.end(&mut reader);
        t.take(&mut many, number..number + 50, Mode::X);
        assert_eq!(many.held_mode(TABLE), Some(Mode::X));
        t.end(&mut many);
        // And once all have gone there is memory for a table lock and for others.
        t.end(&mut large);
        t.take(&mut reader, 0..20, Mode::X);
        t.end(&mut reader);
    }
}

/// Others hold so much that the limit is reached. An owner that has a whole table in place of its
/// keys needs no memory for more of them.
#[test]
fn keys_of_a_table_that_keys_were_traded_for_are_not_refused() {
    for kind in ManagerKind::ALL {
        let mut traded = 0;
        for own in 0..40u32 {
            let t = Keys::with(kind, |options| options.total_bytes = 100 * LOCK_BYTES);
            let (mut large, mut many) = (t.locks.owner(), t.locks.owner());
            for (owner, numbers) in [(&mut large, 1_000..1_080), (&mut many, 0..own)] {
                for number in numbers {
                    // A name that cannot be traded; a refused one is not held.
                    t.has(owner, Name::advisory(number.into()), Mode::X);
                }
            }
            for number in 0..100 {
                let has =
                    t.has(&mut many, TABLE, Mode::IX) && t.has(&mut many, t.key(number), Mode::X);
                let whole = many.held_mode(TABLE) == Some(Mode::X);
                assert!(has || !whole, "{kind}, {own} others: key {number}");
                traded += u32::from(whole);
            }
            t.end(&mut many);
            t.end(&mut large);
        }
        assert!(traded > 0, "{kind}");
    }
}

#[test]
fn traded_keys_count_as_lost_work() {
    for kind in ManagerKind::ALL {
        let t = Keys::above(BOUND, kind);
        let (mut many, mut few) = (t.locks.owner(), t.locks.owner());
        let (one, two) = (Name::advisory(1), Name::advisory(2));
        assert!(t.has(&mut many, one, Mode::X) && t.has(&mut few, two, Mode::X));
        t.take(&mut many, 0..22, Mode::X);
        for number in 10..15 {
            assert!(t.has(&mut few, Name::advisory(number), Mode::X));
        }
        assert!(many.lock_count() < few.lock_count(), "the rest was traded");
        let wait = |owner: &mut Owner, name| {
            let reply = t
                .locks
                .request(&t.worker, owner, name, Mode::X, WaitMode::Wait);
            assert!(matches!(reply, Reply::Waiting));
        };
        wait(&mut many, two);
        wait(&mut few, one);
        // An owner that is not the victim waits: so long only for the other.
        let deadline = Some(Instant::now() + Duration::from_secs(120));
        let outcome = t.locks.wait(&t.worker, &mut few, deadline);
        let refusal = outcome.refusal().expect("who has done less gives way");
        assert_eq!(refusal.reason, RefusalReason::Deadlock, "{kind}");
        t.end(&mut few);
        assert!(t.locks.wait(&t.worker, &mut many, None).is_held());
        t.end(&mut many);
    }
}
