//! Anchored locks of `direct`: where a lock is, and what becomes of grants beside an anchor.

use foxton_lock::{
    any::{AnyManager, ManagerKind, Options},
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::Owner,
    request::{Reply, WaitMode},
};
use foxton_sync::{
    anchor::{AnchorState, Anchors},
    worker::{Worker, Workers},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
};

const REMOVER: Mode = Mode::key(KeyPart::X, GapPart::X);

fn key(number: u64) -> Name {
    Name::key(1, &number.to_be_bytes(), &KeyHasher::new(1))
}

/// A manager, and one key with its anchor.
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
            anchors: Anchors::free(1),
            worker,
            _workers: workers,
        }
    }

    fn request(&self, owner: &mut Owner, mode: Mode) -> Reply {
        let target = (key(0), &self.anchors[0]);
        let locks = &self.locks;
        locks.request_anchored(&self.worker, owner, target, mode, WaitMode::Wait)
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
        assert!(self.anchors[0].is_unheld());
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
    let target = (key(0), &world.anchors[0]);
    let (locks, worker) = (&world.locks, &world.worker);
    let refused = locks.request_anchored(worker, &mut other, target, Mode::S, WaitMode::Refuse);
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
    world.locks.unanchor(&world.worker, &mut remover, key(0));
    assert!(world.anchors[0].retire());
    assert!(matches!(world.request(&mut late, Mode::S), Reply::Waiting));
    world.release(&mut remover);
    world.wait(&mut late);
    assert_eq!(world.state(), AnchorState::Dead);
    world.end([remover, late]);
}
