//! One transaction that never ends: how much it keeps from reuse, and what happens when no request
//! is free.
//!
//! Counted, and in one thread, so that nothing depends on the scheduler. A transaction has taken
//! its locks and does nothing more. Others, overlapping so that a shared name is always held, take
//! and release a million locks. The stalled one may sleep while it reads rows, and be pinned there.
//! Under epochs it keeps its own requests from reuse, and a few that came with them. Under the
//! older rule no request released after it began is reused, and memory grows. A thread that sleeps
//! in a walk along a chain does keep requests from reuse: up to the limit, and then requests are
//! refused.

use foxton_lock::{
    any::{AnyManager, ManagerKind, Options},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::Owner,
    request::{Outcome, RefusalReason, Reply, WaitMode},
};
use foxton_sync::worker::{Worker, Workers};

const LOCKS: usize = 1_000_000;
const OTHERS: usize = 8;
/// Locks of a transaction: of the table, and of keys, the first of which the stalled one reads,
/// too.
const KEYS: u64 = 9;
const TABLE: Name = Name::table(1);

fn take(locks: &AnyManager, worker: &Worker, owner: &mut Owner, first: u64) {
    assert!(locks.try_lock(worker, owner, TABLE, Mode::IS).is_held());
    for name in [0].into_iter().chain(first..first + KEYS - 1) {
        let name = Name::advisory(name);
        assert!(locks.try_lock(worker, owner, name, Mode::S).is_held());
    }
}

/// Returns the bytes of the manager after a tenth of the locks, and after all.
fn grown(kind: ManagerKind, stalls: bool) -> [usize; 2] {
    let workers = Workers::with_seed(1);
    let sleeping = workers.worker();
    let _reads_rows = stalls.then(|| sleeping.pin());
    grown_beside(kind, &workers, &sleeping, |locks, sleeper| {
        if stalls {
            take(locks, &sleeping, sleeper, 1);
        }
    })
}

fn grown_beside(
    kind: ManagerKind,
    workers: &Workers,
    sleeping: &Worker,
    before: impl FnOnce(&AnyManager, &mut Owner),
) -> [usize; 2] {
    let mut options = Options::default();
    // In the form of the paper each chain keeps a few obsolete requests: few chains, all of them
    // used soon.
    (options.kind, options.bucket_count) = (kind, 1024);
    let locks = AnyManager::new(&options);
    let mut sleeper = locks.owner();
    before(&locks, &mut sleeper);
    let mut others = [(); OTHERS].map(|()| (workers.worker(), locks.owner()));
    let transactions = LOCKS / (1 + KEYS as usize);
    let mut bytes = [0; 2];
    for number in 0..transactions {
        let (worker, owner) = &mut others[number % OTHERS];
        // Of the one before the last turn. The others have theirs meanwhile.
        locks.release_all(worker, owner);
        owner.begin();
        take(&locks, worker, owner, 1 + number as u64 * 10 % 90_000);
        if number == transactions / 10 {
            bytes[0] = locks.stats(worker).memory_bytes;
        }
    }
    bytes[1] = locks.stats(sleeping).memory_bytes;
    for (worker, owner) in &mut others {
        locks.release_all(worker, owner);
    }
    locks.release_all(sleeping, &mut sleeper);
    locks.verify(sleeping);
    assert!(locks.inspect(sleeping).queues.is_empty());
    println!("{kind}: {bytes:?}");
    bytes
}

#[test]
fn under_epochs_a_stalled_transaction_does_not_prevent_reuse() {
    for kind in [ManagerKind::Staged, ManagerKind::StagedPaper] {
        for stalls in [false, true] {
            let [early, late] = grown(kind, stalls);
            assert_eq!(early, late, "{kind}, stalls {stalls}");
            assert!(late < 4_000_000, "{kind}, stalls {stalls}: {late} bytes");
        }
    }
}

#[test]
fn under_the_older_rule_memory_grows_for_as_long_as_it_stalls() {
    let [early, late] = grown(ManagerKind::StagedOldest, false);
    assert_eq!(early, late);
    let [early, late] = grown(ManagerKind::StagedOldest, true);
    assert!(late > 4 * early, "{early} to {late}");
    assert!(late > 40 * LOCKS, "{late} bytes");
}

/// Names that no other owner requests.
const KEPT: Name = Name::advisory(1 << 40);
const OTHER: Name = Name::advisory(2 << 40);

/// Steps of an owner without a running transaction, though it never called `release_all`.
type Done = fn(&AnyManager, &Worker, &mut Owner);

fn keep(locks: &AnyManager, worker: &Worker, owner: &mut Owner) {
    assert!(locks.try_lock(worker, owner, KEPT, Mode::S).is_held());
    owner.retain();
}

/// Requests a lock that another owner holds, which then releases it.
fn beside_a_holder(locks: &AnyManager, worker: &Worker, ask: impl FnOnce()) {
    let mut holder = locks.owner();
    assert!(
        locks
            .try_lock(worker, &mut holder, OTHER, Mode::X)
            .is_held()
    );
    ask();
    locks.release_all(worker, &mut holder);
}

const DONE: &[(&str, Done)] = &[
    ("a session keeps a lock", keep),
    ("a transaction of it has ended", |locks, worker, owner| {
        assert!(locks.try_lock(worker, owner, KEPT, Mode::S).is_held());
        let kept = owner.retain();
        owner.begin_retaining(kept);
        take(locks, worker, owner, 1);
        locks.release_since(worker, owner, kept);
    }),
    (
        "another has only made it stronger",
        |locks, worker, owner| {
            assert!(locks.try_lock(worker, owner, KEPT, Mode::S).is_held());
            let kept = owner.retain();
            assert!(locks.try_lock(worker, owner, KEPT, Mode::X).is_held());
            owner.begin_retaining(kept);
        },
    ),
    ("all was given back, one by one", |locks, worker, owner| {
        keep(locks, worker, owner);
        for name in [TABLE, OTHER] {
            assert!(locks.try_lock(worker, owner, name, Mode::S).is_held());
        }
        assert!(locks.release(worker, owner, TABLE));
        assert!(locks.release(worker, owner, OTHER));
    }),
    ("it was refused all it asked for", |locks, worker, owner| {
        beside_a_holder(locks, worker, || {
            let outcome = locks.try_lock(worker, owner, OTHER, Mode::S);
            assert_eq!(outcome.refusal().expect("held").reason, RefusalReason::Busy);
        });
    }),
    ("it waited in vain", |locks, worker, owner| {
        beside_a_holder(locks, worker, || {
            let now = Some(std::time::Instant::now());
            let outcome = locks.lock(worker, owner, OTHER, Mode::S, now);
            assert_eq!(
                outcome.refusal().expect("held").reason,
                RefusalReason::TimedOut
            );
        });
    }),
    ("it waits no more", |locks, worker, owner| {
        beside_a_holder(locks, worker, || {
            let reply = locks.request(worker, owner, OTHER, Mode::S, WaitMode::Wait);
            assert!(matches!(reply, Reply::Waiting));
            locks.cancel(worker, owner);
        });
    }),
];

#[test]
fn under_the_older_rule_memory_waits_only_for_running_transactions() {
    for (what, done) in DONE {
        let workers = Workers::with_seed(1);
        let sleeping = workers.worker();
        let [early, late] = grown_beside(
            ManagerKind::StagedOldest,
            &workers,
            &sleeping,
            |locks, sleeper| done(locks, &sleeping, sleeper),
        );
        assert_eq!(early, late, "{what}");
    }
}

const LIMIT: u32 = 10_000;

fn limited(kind: ManagerKind) -> AnyManager {
    let mut options = Options::default();
    (options.kind, options.bucket_count, options.request_limit) = (kind, 64, LIMIT);
    AnyManager::new(&options)
}

/// Requests until one is refused, and returns how many were granted. Does not end if none is
/// refused.
fn until_refused(mut ask: impl FnMut(u64) -> Outcome) -> u64 {
    (0..20 * u64::from(LIMIT))
        .find(|&number| match ask(number) {
            Outcome::Refused(refusal) => {
                assert_eq!(refusal.reason, RefusalReason::Full);
                true
            }
            _ => false,
        })
        .unwrap_or(u64::MAX)
}

#[test]
fn a_request_beyond_the_limit_is_refused_and_its_owner_keeps_its_locks() {
    for kind in [ManagerKind::Staged, ManagerKind::StagedPaper] {
        let locks = limited(kind);
        let workers = Workers::with_seed(1);
        let worker = workers.worker();
        let (mut owner, mut other) = (locks.owner(), locks.owner());
        assert!(
            locks
                .try_lock(&worker, &mut other, TABLE, Mode::IS)
                .is_held()
        );
        let mut ask =
            |number| locks.lock(&worker, &mut owner, Name::advisory(number), Mode::S, None);
        let count = until_refused(&mut ask);
        assert!(count.abs_diff(u64::from(LIMIT)) < 256, "{kind}: {count}");
        // Nothing has changed, and a lock that is held already needs no request.
        assert!(matches!(ask(0), Outcome::Held));
        assert!(matches!(ask(count), Outcome::Refused(_)));
        assert_eq!(owner.lock_count() as u64, count);
        assert_eq!(locks.stats(&worker).waits, 0);
        locks.verify(&worker);
        locks.release_all(&worker, &mut owner);
        assert_eq!(locks.stats(&worker).full, 2);
        owner.begin();
        for number in 0..count / 2 {
            let name = Name::advisory(number);
            assert!(locks.try_lock(&worker, &mut owner, name, Mode::X).is_held());
        }
        locks.release_all(&worker, &mut owner);
        locks.release_all(&worker, &mut other);
        assert!(locks.inspect(&worker).queues.is_empty());
    }
}

#[test]
fn a_walk_that_never_ends_keeps_the_limit_and_no_more() {
    for kind in [ManagerKind::Staged, ManagerKind::StagedPaper] {
        let locks = limited(kind);
        let workers = Workers::with_seed(1);
        let (worker, sleeping) = (workers.worker(), workers.worker());
        let mut owner = locks.owner();
        let mut ask = |number| {
            let outcome = locks.try_lock(&worker, &mut owner, Name::advisory(number), Mode::S);
            locks.release_all(&worker, &mut owner);
            owner.begin();
            outcome
        };
        assert_eq!(until_refused(&mut ask), u64::MAX, "{kind}");
        let bytes = locks.stats(&worker).memory_bytes;
        let walks = sleeping.short_participant().pin();
        let count = until_refused(&mut ask);
        assert!(count <= 2 * u64::from(LIMIT), "{kind}: {count}");
        drop(walks);
        assert_eq!(until_refused(&mut ask), u64::MAX, "{kind}");
        let grown = locks.stats(&worker).memory_bytes - bytes;
        assert!(grown < 1_000_000, "{kind}: {grown} bytes");
        locks.verify(&worker);
    }
}
