//! Anchored locks of `direct`: where a lock is, and what becomes of grants beside an anchor.

use foxton_lock::{
    any::{AnyManager, ManagerKind, Options},
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::{Owner, Scan},
    request::{Outcome, RefusalReason, Reply, WaitMode},
};
use foxton_sync::{
    anchor::{AnchorState, Anchors, LockAnchor},
    worker::{Worker, Workers},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    time::Instant,
};

const REMOVER: Mode = Mode::key(KeyPart::X, GapPart::X);

fn key(number: u64) -> Name {
    Name::key(1, &number.to_be_bytes(), &KeyHasher::new(1))
}

/// A manager, and two keys with their anchors.
struct World {
    locks: AnyManager,
    anchors: Anchors,
    worker: Worker,
    _workers: Workers,
}

impl World {
    fn new() -> Self {
        let mut options = Options::tiny();
        options.kind = ManagerKind::DirectFifo;
        let workers = Workers::with_seed(1);
        let worker = workers.worker();
        Self {
            locks: AnyManager::new(&options),
            anchors: Anchors::free(2),
            worker,
            _workers: workers,
        }
    }

    fn request(&self, owner: &mut Owner, mode: Mode) -> Reply {
        self.request_key(owner, 0, mode, WaitMode::Wait)
    }

    fn request_key(&self, owner: &mut Owner, at: usize, mode: Mode, wait: WaitMode) -> Reply {
        let target = (key(at as u64), &self.anchors[at]);
        let locks = &self.locks;
        locks.request_anchored(&self.worker, owner, target, mode, wait)
    }

    fn request_without_anchor(&self, owner: &mut Owner, mode: Mode) -> Reply {
        let locks = &self.locks;
        locks.request(&self.worker, owner, key(0), mode, WaitMode::Wait)
    }

    fn wait(&self, owner: &mut Owner) {
        assert!(self.locks.wait(&self.worker, owner, None).is_held());
    }

    fn release(&self, owner: &mut Owner) {
        self.locks.release_all(&self.worker, owner);
    }

    fn state(&self) -> AnchorState {
        self.anchors[0].state()
    }

    fn end<const N: usize>(&self, owners: [Owner; N]) {
        for mut owner in owners {
            self.release(&mut owner);
        }
        self.locks.verify(&self.worker);
        assert!(self.locks.inspect(&self.worker).queues.is_empty());
        assert!(self.anchors.iter().all(LockAnchor::is_unheld));
    }
}

#[test]
fn a_lock_alone_is_in_its_anchor_and_goes_to_the_queue_for_a_waiter() {
    let world = World::new();
    let [mut holder, mut waiter] = [(); 2].map(|()| world.locks.owner());
    for _ in 0..2 {
        assert!(matches!(
            world.request(&mut holder, Mode::X),
            Reply::Granted
        ));
        assert!(matches!(world.state(), AnchorState::Held(_)));
        assert!(matches!(
            world.request(&mut waiter, Mode::X),
            Reply::Waiting
        ));
        assert_eq!(world.state(), AnchorState::Inflated);
        world.release(&mut holder);
        assert_eq!(world.state(), AnchorState::Queued);
        world.wait(&mut waiter);
        world.release(&mut waiter);
        // The next round's first request deflates it.
        assert_eq!(world.state(), AnchorState::Queued);
    }
    world.end([holder, waiter]);
}

#[test]
fn a_release_frees_an_inflated_anchor_that_no_other_owner_needs() {
    let world = World::new();
    let [mut holder, mut other] = [(); 2].map(|()| world.locks.owner());
    assert!(matches!(
        world.request(&mut holder, Mode::X),
        Reply::Granted
    ));
    let refused = world.request_key(&mut other, 0, Mode::S, WaitMode::Refuse);
    assert!(matches!(refused, Reply::Refused(_)));
    assert_eq!(world.state(), AnchorState::Inflated);
    world.release(&mut holder);
    assert_eq!(world.state(), AnchorState::Free);
    world.end([holder, other]);
}

#[derive(Default)]
struct CountedWakes(AtomicUsize);

impl Wake for CountedWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_release_of_an_inflated_anchor_wakes_the_waiter() {
    let world = World::new();
    let [mut holder, mut waiter] = [(); 2].map(|()| world.locks.owner());
    assert!(matches!(
        world.request(&mut holder, Mode::X),
        Reply::Granted
    ));
    assert!(matches!(
        world.request(&mut waiter, Mode::X),
        Reply::Waiting
    ));
    let wakes = Arc::new(CountedWakes::default());
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    let mut poll = || {
        world
            .locks
            .poll_wait(&world.worker, &mut waiter, &mut context)
    };
    assert!(poll().is_pending());
    world.release(&mut holder);
    assert_eq!(wakes.0.load(Relaxed), 1);
    assert!(matches!(poll(), Poll::Ready(outcome) if outcome.is_held()));
    world.end([holder, waiter]);
}

#[test]
fn a_writer_at_a_free_anchor_finds_a_lock_that_a_revoker_converted() {
    let world = World::new();
    let [mut reader, mut revoker, mut writer] = [(); 3].map(|()| world.locks.owner());
    assert!(matches!(
        world.request(&mut reader, Mode::S),
        Reply::Granted
    ));
    assert_eq!(world.state(), AnchorState::Free, "it is remembered");
    let (locks, worker) = (&world.locks, &world.worker);
    let neighbour = locks.try_lock(worker, &mut revoker, key(1), Mode::X);
    assert!(neighbour.is_held());
    assert_eq!(world.state(), AnchorState::Free, "as it was");
    assert!(matches!(
        world.request(&mut writer, Mode::X),
        Reply::Waiting
    ));
    world.release(&mut reader);
    world.wait(&mut writer);
    world.end([reader, revoker, writer]);
}

/// The record comes between a search and a request, and its lock is in the anchor. A third request
/// brings that lock into the queue, beside the first one.
#[test]
fn a_grant_beside_an_anchor_is_not_confirmed_by_a_queue_that_has_a_conflict() {
    let world = World::new();
    let [mut unaware, mut holder, mut third] = [(); 3].map(|()| world.locks.owner());
    assert!(matches!(
        world.request(&mut holder, Mode::X),
        Reply::Granted
    ));
    let beside = world.request_without_anchor(&mut unaware, Mode::S);
    assert!(matches!(beside, Reply::Granted));
    assert!(matches!(world.request(&mut third, Mode::S), Reply::Waiting));
    assert_eq!(world.state(), AnchorState::Inflated);
    assert!(matches!(
        world.request(&mut unaware, Mode::S),
        Reply::Waiting
    ));
    world.release(&mut holder);
    world.wait(&mut third);
    world.wait(&mut unaware);
    assert!(matches!(world.request(&mut unaware, Mode::S), Reply::Held));
    world.end([unaware, holder, third]);
}

#[test]
fn a_grant_before_the_record_is_confirmed() {
    let world = World::new();
    let [mut first, mut second] = [(); 2].map(|()| world.locks.owner());
    assert!(world.anchors[0].queue(), "as a new record is");
    let before = world.request_without_anchor(&mut first, Mode::X);
    assert!(matches!(before, Reply::Granted));
    assert!(matches!(world.request(&mut first, Mode::X), Reply::Held));
    assert!(matches!(
        world.request(&mut second, Mode::S),
        Reply::Waiting
    ));
    assert_eq!(world.state(), AnchorState::Queued);
    world.release(&mut first);
    world.wait(&mut second);
    world.end([first, second]);
}

#[test]
fn a_removed_record_leaves_its_lock_in_the_queue() {
    let world = World::new();
    let [mut remover, mut late] = [(); 2].map(|()| world.locks.owner());
    assert!(matches!(
        world.request(&mut remover, REMOVER),
        Reply::Granted
    ));
    assert!(!world.anchors[0].retire(), "it is held");
    assert!(world.locks.unanchor(&world.worker, &mut remover, key(0)));
    assert!(world.anchors[0].retire());
    assert!(matches!(world.request(&mut late, Mode::S), Reply::Waiting));
    world.release(&mut remover);
    world.wait(&mut late);
    assert_eq!(world.state(), AnchorState::Dead);
    world.end([remover, late]);
}

#[test]
fn a_record_stays_beside_a_grant_that_is_not_confirmed() {
    let world = World::new();
    let [mut remover, mut unaware] = [(); 2].map(|()| world.locks.owner());
    assert!(matches!(
        world.request(&mut remover, REMOVER),
        Reply::Granted
    ));
    let before = world.request_without_anchor(&mut unaware, Mode::S);
    assert!(matches!(before, Reply::Granted));
    for _ in 0..2 {
        assert!(!world.locks.unanchor(&world.worker, &mut remover, key(0)));
    }
    assert!(matches!(
        world.request(&mut unaware, Mode::S),
        Reply::Waiting
    ));
    assert!(world.locks.unanchor(&world.worker, &mut remover, key(0)));
    world.release(&mut remover);
    world.wait(&mut unaware);
    world.end([remover, unaware]);
}

#[test]
fn a_skipped_request_leaves_the_lock_in_its_anchor() {
    let world = World::new();
    let [mut holder, mut other] = [(); 2].map(|()| world.locks.owner());
    assert!(matches!(
        world.request(&mut holder, Mode::X),
        Reply::Granted
    ));
    for mode in [Mode::S, Mode::X, REMOVER] {
        let skipped = world.request_key(&mut other, 0, mode, WaitMode::Skip);
        assert!(matches!(skipped, Reply::Skipped), "{mode}");
        assert!(matches!(world.state(), AnchorState::Held(_)), "{mode}");
    }
    assert_eq!(world.locks.stats(&world.worker).busy, 3);
    world.release(&mut holder);
    let granted = world.request_key(&mut other, 0, Mode::X, WaitMode::Skip);
    assert!(matches!(granted, Reply::Granted));
    world.end([holder, other]);
}

#[test]
fn a_deadlock_through_locks_of_anchors_is_found() {
    let world = World::new();
    let mut owners = [(); 2].map(|()| world.locks.owner());
    for (at, owner) in owners.iter_mut().enumerate() {
        let granted = world.request_key(owner, at, Mode::X, WaitMode::Wait);
        assert!(matches!(granted, Reply::Granted));
    }
    let [first, second] = &mut owners;
    let waits = world.request_key(first, 1, Mode::X, WaitMode::Wait);
    assert!(matches!(waits, Reply::Waiting));
    let closes = world.request_key(second, 0, Mode::X, WaitMode::Wait);
    assert!(matches!(closes, Reply::Waiting | Reply::Refused(_)));
    let mut victims = 0;
    if matches!(closes, Reply::Refused(_)) {
        victims += 1;
    } else if let Outcome::Refused(refusal) = world.locks.wait(&world.worker, second, None) {
        assert_eq!(refusal.reason, RefusalReason::Deadlock);
        victims += 1;
    }
    world.release(second);
    match world.locks.wait(&world.worker, first, None) {
        Outcome::Refused(_) => victims += 1,
        outcome => assert!(outcome.is_held()),
    }
    assert_eq!(victims, 1);
    world.end(owners);
}

#[test]
fn after_a_wait_that_was_cancelled_the_holder_frees_its_anchor() {
    let world = World::new();
    let [mut holder, mut waiter] = [(); 2].map(|()| world.locks.owner());
    assert!(matches!(
        world.request(&mut holder, Mode::X),
        Reply::Granted
    ));
    for cancels in [true, false] {
        assert!(matches!(
            world.request(&mut waiter, Mode::X),
            Reply::Waiting
        ));
        match cancels {
            true => world.locks.cancel(&world.worker, &mut waiter),
            false => {
                let late = Some(Instant::now());
                let outcome = world.locks.wait(&world.worker, &mut waiter, late);
                assert!(!outcome.is_held());
            }
        }
        assert_eq!(world.state(), AnchorState::Inflated);
    }
    world.locks.trim(&world.worker);
    world.release(&mut holder);
    assert_eq!(world.state(), AnchorState::Free);
    world.end([holder, waiter]);
}

#[test]
fn a_queue_that_was_trimmed_still_has_its_locks() {
    let world = World::new();
    let mut owners = [(); 3].map(|()| world.locks.owner());
    let [holder, waiter, late] = &mut owners;
    assert!(matches!(world.request(holder, Mode::X), Reply::Granted));
    assert!(matches!(world.request(waiter, Mode::X), Reply::Waiting));
    world.locks.trim(&world.worker);
    world.release(holder);
    world.wait(waiter);
    world.locks.trim(&world.worker);
    assert_eq!(world.state(), AnchorState::Queued);
    let skipped = world.request_key(late, 0, Mode::S, WaitMode::Skip);
    assert!(matches!(skipped, Reply::Skipped));
    world.release(waiter);
    world.locks.trim(&world.worker);
    let granted = world.request_key(late, 0, Mode::X, WaitMode::Skip);
    assert!(matches!(granted, Reply::Granted));
    assert!(matches!(world.state(), AnchorState::Held(_)));
    world.end(owners);
}

#[test]
fn a_return_to_a_savepoint_releases_the_anchors_taken_since() {
    let world = World::new();
    let mut owners = [(); 2].map(|()| world.locks.owner());
    let [owner, other] = &mut owners;
    let granted = |reply| assert!(matches!(reply, Reply::Granted));
    granted(world.request_key(owner, 0, Mode::X, WaitMode::Wait));
    let savepoint = owner.savepoint();
    granted(world.request_key(owner, 1, Mode::X, WaitMode::Wait));
    // Both go to their queues.
    for at in 0..2 {
        let refused = world.request_key(other, at, Mode::X, WaitMode::Refuse);
        assert!(matches!(refused, Reply::Refused(_)));
    }
    granted(world.request_key(owner, 0, REMOVER, WaitMode::Wait));
    world.locks.release_since(&world.worker, owner, savepoint);
    granted(world.request_key(other, 1, Mode::X, WaitMode::Refuse));
    let kept = world.request_key(other, 0, Mode::X, WaitMode::Refuse);
    assert!(matches!(kept, Reply::Refused(_)));
    assert_eq!(owner.held_mode(key(0)), Some(REMOVER));
    assert_eq!(owner.held_mode(key(1)), None);
    world.end(owners);
}

#[test]
fn a_dump_shows_each_lock_of_an_anchor_once() {
    let world = World::new();
    let mut owners = [(); 2].map(|()| world.locks.owner());
    let [holder, other] = &mut owners;
    assert!(matches!(world.request(holder, Mode::X), Reply::Granted));
    for is_inflated in [false, true] {
        if is_inflated {
            assert!(matches!(world.request(other, Mode::S), Reply::Waiting));
        }
        let queues = world.locks.inspect(&world.worker).queues;
        let [queue] = &queues[..] else {
            panic!("{queues:?}");
        };
        assert_eq!(queue.name, key(0));
        let [shown] = &queue.holders[..] else {
            panic!("{queue:?}");
        };
        assert_eq!((shown.owner, shown.mode), (holder.id(), Mode::X));
        assert_eq!(queue.waiters.len(), usize::from(is_inflated));
        world.locks.verify(&world.worker);
    }
    world.locks.cancel(&world.worker, other);
    world.end(owners);
}

/// A way to request a key.
enum RequestBy<'s> {
    Anchor,
    /// As if its record was found only after the grant.
    Name,
    Scan(&'s mut Scan),
}

/// Neighbours are requested in every way, and their granules become real and biased in between.
/// After each step the owner holds what it should, and what it releases it does not hold twice.
#[test]
fn an_owner_holds_a_neighbour_once_however_it_was_requested() {
    const KEYS: usize = 24;
    const MODES: [Mode; 4] = [
        Mode::S,
        Mode::X,
        Mode::key(KeyPart::S, GapPart::S),
        Mode::key(KeyPart::None, GapPart::S),
    ];
    let mut options = Options::tiny();
    options.kind = ManagerKind::DirectFifo;
    let workers = Workers::with_seed(7);
    let (worker, locks) = (workers.worker(), AnyManager::new(&options));
    let anchors = Anchors::free(KEYS);
    let below = |limit: usize| worker.random_below(limit as u64) as usize;
    // Two blocks; further keys of each are for the other owner.
    let name = |at: usize| key((at % 2 * 64 + at / 2) as u64);
    let (mut owner, mut other) = (locks.owner(), locks.owner());
    for _ in 0..3_000 {
        // Of each key the mode, and whether it was acquired after the savepoint.
        let mut held: Vec<Option<(Mode, bool)>> = vec![None; KEYS];
        let (mut savepoint, mut had_savepoint) = (None, false);
        owner.begin();
        for _ in 0..below(24) {
            let (at, mode) = (below(KEYS), MODES[below(MODES.len())]);
            let mut request = |owner: &mut Owner, by: RequestBy<'_>, at: usize| {
                let (name, anchor, wait) = (name(at), &anchors[at], WaitMode::Refuse);
                let target = (name, Some(anchor));
                let reply = match by {
                    RequestBy::Scan(scan) => {
                        locks.request_in_scan(&worker, owner, scan, target, mode, wait)
                    }
                    RequestBy::Anchor => {
                        locks.request_anchored(&worker, owner, (name, anchor), mode, wait)
                    }
                    RequestBy::Name => {
                        let reply = locks.request(&worker, owner, name, mode, wait);
                        assert!(matches!(reply, Reply::Granted | Reply::Held));
                        locks.request_anchored(&worker, owner, (name, anchor), mode, wait)
                    }
                };
                assert!(matches!(reply, Reply::Granted | Reply::Held));
                let (had, is_late) = held[at].unwrap_or((mode, savepoint.is_some()));
                held[at] = Some((had.supremum(mode), is_late));
            };
            match below(12) {
                0..3 => request(&mut owner, RequestBy::Anchor, at),
                3 => request(&mut owner, RequestBy::Name, at),
                // After a savepoint a scan may have a second entry for a key that is held.
                4..8 if !had_savepoint => {
                    let (mut scan, length) = (Scan::new(), 1 + below(8));
                    let keys = (at..KEYS).step_by(2).take(length);
                    keys.for_each(|at| request(&mut owner, RequestBy::Scan(&mut scan), at));
                }
                8 => {
                    let was_held = locks.release(&worker, &mut owner, name(at));
                    assert_eq!(was_held, held[at].take().is_some(), "key {at}");
                }
                9 => match savepoint.take() {
                    None => {
                        had_savepoint = true;
                        savepoint = Some(owner.savepoint());
                    }
                    Some(since) => {
                        locks.release_since(&worker, &mut owner, since);
                        let late = held.iter_mut();
                        late.for_each(|lock| *lock = lock.filter(|&(_, is_late)| !is_late));
                    }
                },
                _ => {
                    let far = key((below(2) * 64 + 40) as u64);
                    assert!(locks.try_lock(&worker, &mut other, far, Mode::X).is_held());
                    if below(2) == 0 {
                        locks.release_all(&worker, &mut other);
                    }
                }
            }
            for (at, lock) in held.iter().enumerate() {
                let mode = lock.map(|(mode, _)| mode);
                assert_eq!(owner.held_mode(name(at)), mode, "key {at}");
            }
        }
        if below(2) == 0 {
            for (at, lock) in held.iter().enumerate() {
                let was_held = locks.release(&worker, &mut owner, name(at));
                assert_eq!(was_held, lock.is_some(), "key {at}");
                assert_eq!(owner.held_mode(name(at)), None, "key {at} was held twice");
            }
        }
        locks.release_all(&worker, &mut owner);
        locks.release_all(&worker, &mut other);
        locks.verify(&worker);
        assert!(locks.inspect(&worker).queues.is_empty());
        assert!(anchors.iter().all(LockAnchor::is_unheld));
    }
}
