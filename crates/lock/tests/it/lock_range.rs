//! Ranges that are locked as a whole: which locks are held then, and that they hold against all
//! other owners.

use foxton_lock::{
    any::{AnyManager, ManagerKind, Options},
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::{Owner, Scan},
    request::{Reply, WaitMode},
};
use foxton_sync::worker::{Worker, Workers};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const BOTH: Mode = Mode::key(KeyPart::S, GapPart::S);
const GAP_X: Mode = Mode::key(KeyPart::None, GapPart::X);

fn key(number: u64) -> Name {
    Name::key(1, &number.to_be_bytes(), &KeyHasher::new(1))
}

fn direct(granules: usize) -> AnyManager {
    let mut options = Options::tiny();
    (options.kind, options.granule_count) = (ManagerKind::Direct, granules);
    AnyManager::new(&options)
}

/// Returns the locks that must be held after `first..=last` was locked.
fn wanted(first: u64, last: u64) -> impl Iterator<Item = (Name, Mode)> {
    (first..=last).map(move |number| {
        let mode = if number == first { Mode::S } else { BOTH };
        (key(number), mode)
    })
}

#[test]
fn exactly_the_range_is_held() {
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    for (first, last) in [(3, 3), (0, 63), (5, 64), (63, 64), (60, 200), (64, 319)] {
        let locks = direct(16);
        let mut owner = locks.owner();
        assert!(locks.lock_range(&worker, &mut owner, key(first), key(last)));
        let mut held: Vec<_> = owner.held().collect();
        held.sort();
        assert_eq!(held, wanted(first, last).collect::<Vec<_>>());
        let mut other = locks.owner();
        let mut gets = |name, mode| locks.try_lock(&worker, &mut other, name, mode).is_held();
        assert!(gets(key(last + 1), Mode::X));
        assert!(gets(key(first), GAP_X), "the gap before the first is free");
        for number in first..=last {
            assert!(!gets(key(number), Mode::X), "{number} of {first}..={last}");
            assert_eq!(gets(key(number), GAP_X), number == first);
        }
        locks.verify(&worker);
        locks.release_all(&worker, &mut owner);
        assert!((first..=last).all(|number| gets(key(number), Mode::X)));
        locks.release_all(&worker, &mut other);
        assert!(locks.inspect(&worker).queues.is_empty());
    }
}

#[test]
fn a_return_to_a_savepoint_releases_what_a_range_added_to_a_block() {
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    let locks = direct(16);
    let mut owner = locks.owner();
    let is_granted = |reply| matches!(reply, Reply::Granted | Reply::Held);
    for is_covered in [false, true] {
        assert!(locks.try_lock(&worker, &mut owner, key(1), BOTH).is_held());
        let savepoint = owner.savepoint();
        let all = is_covered && locks.lock_range(&worker, &mut owner, key(1), key(9));
        let mut scan = Scan::new();
        for number in if all { 0..0 } else { 1..10 } {
            let wait = WaitMode::Wait;
            let target = (key(number), None);
            let reply = locks.request_in_scan(&worker, &mut owner, &mut scan, target, BOTH, wait);
            assert!(is_granted(reply), "{number}");
        }
        assert_eq!(owner.lock_count(), 9);
        locks.release_since(&worker, &mut owner, savepoint);
        let held: Vec<_> = owner.held().collect();
        assert_eq!(held, [(key(1), BOTH)], "covered: {is_covered}");
        locks.release_all(&worker, &mut owner);
    }
}

#[test]
fn a_range_that_cannot_be_locked_is_refused() {
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    let locks = direct(16);
    let mut owner = locks.owner();
    let long = |bytes: &[u8]| Name::key(1, bytes, &KeyHasher::new(1));
    for (first, last) in [
        (key(5), key(4)),
        (key(70), key(4)),
        (key(0), key(256)),
        (key(0), key(u64::MAX)),
        (long(b"ab"), long(b"abc")),
        (long(b"123456789"), long(b"123456790")),
        (Name::table(1), key(3)),
        (key(3), Name::end(1)),
    ] {
        assert!(
            !locks.lock_range(&worker, &mut owner, first, last),
            "{first} {last}"
        );
        assert_eq!(owner.lock_count(), 0);
    }
    let bytes = [long(b"\xf0"), long(b"\xff")];
    assert!(locks.lock_range(&worker, &mut owner, bytes[0], bytes[1]));
    assert_eq!(owner.lock_count(), 16);
}

/// One thread plays several owners with few keys at random: every lock that a range request reports
/// is held, and no other owner holds a conflicting one.
#[test]
fn range_locks_agree_with_all_other_locks() {
    let workers = Workers::with_seed(7);
    let worker = workers.worker();
    let below = |most: u64| worker.random_below(most);
    let (mut covered, mut refused) = (0, 0);
    for granules in [1, 2, 16] {
        let locks = direct(granules);
        let mut owners: Vec<Owner> = (0..3).map(|_| locks.owner()).collect();
        for _ in 0..20_000 {
            let who = below(3) as usize;
            let (first, number) = (56 + below(12), 56 + below(16));
            let owner = &mut owners[who];
            match below(8) {
                0 => locks.release_all(&worker, owner),
                1 => drop(locks.release(&worker, owner, key(number))),
                2 | 3 => {
                    let modes: Vec<Mode> = Mode::key_modes().collect();
                    let mode = modes[below(modes.len() as u64) as usize];
                    drop(locks.try_lock(&worker, owner, key(number), mode));
                }
                _ => {
                    let last = first + below(6);
                    if locks.lock_range(&worker, owner, key(first), key(last)) {
                        covered += 1;
                        for (name, mode) in wanted(first, last) {
                            let held = owner.held_mode(name);
                            assert!(held.is_some_and(|held| held.covers(mode)), "{name}");
                        }
                    } else {
                        refused += 1;
                    }
                }
            }
            check(&owners);
            locks.verify(&worker);
        }
        for owner in &mut owners {
            locks.release_all(&worker, owner);
        }
        assert!(locks.inspect(&worker).queues.is_empty());
    }
    assert!(covered > 1000 && refused > 1000, "{covered} {refused}");
}

fn check(owners: &[Owner]) {
    for (at, one) in owners.iter().enumerate() {
        for (name, mode) in one.held() {
            let rest = owners[at + 1..].iter();
            let mut others = rest.filter_map(|other| other.held_mode(name));
            assert!(others.all(|other| other.compatible(mode)), "{name}");
        }
    }
}

/// Writers change keys together with a lock on each key or on its gap; readers lock ranges.
#[test]
fn writers_never_change_a_locked_range() {
    let workers = Workers::with_seed(1);
    let locks = direct(2);
    let words: Vec<AtomicU64> = (0..80).map(|_| AtomicU64::new(0)).collect();
    let read = AtomicU64::new(0);
    let begun = std::time::Instant::now();
    let reader = |worker: &Worker| {
        let mut owner = locks.owner();
        // A descheduled thread with a key may have kept the block from all of them; then the test
        // goes on until it is back.
        let mut rounds = 0;
        while rounds < 3_000 || read.load(Relaxed) == 0 {
            rounds += 1;
            assert!(begun.elapsed().as_secs() < 120, "nothing is ever covered");
            let first = 56 + worker.random_below(12);
            let last = first + worker.random_below(10);
            if locks.lock_range(worker, &mut owner, key(first), key(last)) {
                read.fetch_add(1, Relaxed);
                for number in first..=last {
                    let word = &words[number as usize];
                    assert_eq!(word.load(Relaxed) % 2, 0, "a writer is there");
                }
            }
            locks.release_all(worker, &mut owner);
            owner.begin();
        }
    };
    let writer = |worker: &Worker| {
        let mut owner = locks.owner();
        for _ in 0..1_000 {
            let number = 56 + worker.random_below(22);
            let mode = if number > 70 { GAP_X } else { Mode::X };
            // The gap before the first key of a range is not locked: gaps above 67 are never first.
            if locks
                .try_lock(worker, &mut owner, key(number), mode)
                .is_held()
            {
                words[number as usize].fetch_add(1, Relaxed);
                std::thread::yield_now();
                words[number as usize].fetch_add(1, Relaxed);
            }
            locks.release_all(worker, &mut owner);
            owner.begin();
        }
    };
    std::thread::scope(|scope| {
        for at in 0..4 {
            let (workers, reader, writer) = (&workers, &reader, &writer);
            scope.spawn(move || {
                let worker = workers.worker();
                if at < 2 {
                    reader(&worker)
                } else {
                    writer(&worker)
                }
            });
        }
    });
    assert!(read.into_inner() > 0);
    let worker = workers.worker();
    locks.verify(&worker);
    assert!(locks.inspect(&worker).queues.is_empty());
}
