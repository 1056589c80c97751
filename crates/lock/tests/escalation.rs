//! Whole tables in the place of many keys: when `direct` tries, what it gets, and what it goes back to.

use foxton_lock::{
    any::{Any, Inheritance, Kind, Options},
    manager::LockManager,
    mode::Mode,
    name::{KeyHasher, Name},
    owner::{Owner, Scan},
    request::Patience,
};
use foxton_sync::worker::{Worker, Workers};

const TABLE: Name = Name::table(1);
const BOUND: u32 = 20;

/// A manager that escalates above so many keys, with a worker.
struct Keys {
    locks: Any,
    worker: Worker,
    hasher: KeyHasher,
    _workers: Workers,
}

impl Keys {
    fn above(bound: u32) -> Self {
        Self::with(bound, Inheritance::Off)
    }

    fn with(bound: u32, inherit: Inheritance) -> Self {
        let mut options = Options::tiny();
        (options.kind, options.inherit) = (Kind::Direct, inherit);
        options.escalation = bound;
        let workers = Workers::with_seed(1);
        Self {
            locks: Any::new(&options),
            worker: workers.worker(),
            hasher: KeyHasher::new(1),
            _workers: workers,
        }
    }

    /// A key that has a block to itself.
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
fn who_shares_many_keys_gets_the_table_shared_and_others_read_on() {
    let t = Keys::above(BOUND);
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

#[test]
fn who_writes_many_keys_gets_the_table_exclusively() {
    let t = Keys::above(BOUND);
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

#[test]
fn who_shares_many_keys_and_writes_some_gets_both_in_turn() {
    let t = Keys::above(BOUND);
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

#[test]
fn who_is_refused_goes_on_with_keys_and_tries_again_after_as_many_more() {
    let t = Keys::above(BOUND);
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

#[test]
fn a_table_that_was_asked_for_once_is_had_for_what_is_exclusive() {
    let t = Keys::above(BOUND);
    let mut many = t.locks.owner();
    assert!(t.has(&mut many, TABLE, Mode::IX));
    for number in 0..30 {
        assert!(t.has(&mut many, t.key(number), Mode::X));
    }
    assert_eq!(many.held_mode(TABLE), Some(Mode::X));
    t.end(&mut many);
}

#[test]
fn a_block_of_neighbours_counts_as_one() {
    let t = Keys::above(BOUND);
    let (mut many, mut scan) = (t.locks.owner(), Scan::new());
    for number in 0..64 * 40u64 {
        assert!(t.has(&mut many, TABLE, Mode::IS));
        let name = Name::key(1, &number.to_be_bytes(), &t.hasher);
        let (locks, worker) = (&t.locks, &t.worker);
        let reply = locks.request_in_scan(
            worker,
            &mut many,
            &mut scan,
            name,
            Mode::S,
            Patience::Refuse,
        );
        drop(reply);
        let escalated = number / 64 >= u64::from(BOUND);
        // Once the next key, or the one after it, asks for the table again.
        if number % 64 > 1 {
            assert_eq!(many.has_escalated(), escalated, "{number}");
        }
    }
    t.end(&mut many);
}

#[test]
fn going_back_to_a_savepoint_keeps_a_table_that_was_held_before_it() {
    let t = Keys::above(BOUND);
    let (mut many, mut other) = (t.locks.owner(), t.locks.owner());
    t.take(&mut many, 0..1, Mode::X);
    let savepoint = many.savepoint();
    t.take(&mut many, 1..40, Mode::X);
    t.locks.release_since(&t.worker, &mut many, savepoint);
    assert_eq!(many.lock_count(), 2);
    assert_eq!(many.held_mode(TABLE), Some(Mode::X), "as any conversion");
    assert!(many.covers(t.key(30), Mode::X));
    assert!(!t.has(&mut other, TABLE, Mode::IS));
    t.end(&mut many);
}

#[test]
fn going_back_to_a_savepoint_before_the_table_gives_it_back() {
    let t = Keys::above(BOUND);
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

#[test]
fn other_tables_and_advisory_names_do_not_count() {
    let t = Keys::above(BOUND);
    let mut many = t.locks.owner();
    for number in 0..100u32 {
        assert!(t.has(&mut many, Name::advisory(number.into()), Mode::X));
        assert!(t.has(&mut many, Name::table(number), Mode::IX));
        assert!(t.has(&mut many, Name::end(number), Mode::X));
    }
    assert_eq!(t.escalations(), 0);
    t.end(&mut many);
}

#[test]
fn with_a_bound_of_zero_and_with_inheritance_nobody_gets_a_table() {
    for t in [Keys::above(0), Keys::with(BOUND, Inheritance::Always)] {
        let mut many = t.locks.owner();
        t.take(&mut many, 0..100, Mode::X);
        assert_eq!(
            (t.escalations(), many.held_mode(TABLE)),
            (0, Some(Mode::IX))
        );
        t.locks.release_all(&t.worker, &mut many);
    }
}
