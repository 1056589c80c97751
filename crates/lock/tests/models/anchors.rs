//! Anchored locks in every interleaving of two or three threads: inflation, deflation, grants and
//! the end of a record.
//!
//! The model is the whole manager with one granule for keys and one bucket over a parking latch.
//! The anchors are those of records that exist before the model begins.
#![cfg(loom)]

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
    shim::{Arc, AtomicU64, Ordering::Relaxed},
    worker::{Worker, Workers},
};

const REMOVER: Mode = Mode::key(KeyPart::X, GapPart::X);

fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

fn key(number: u64) -> Name {
    Name::key(1, &number.to_be_bytes(), &KeyHasher::new(1))
}

/// A manager, the anchors of keys 0 and 1, and two words under the lock on key 0.
struct World {
    locks: AnyManager,
    anchors: Anchors,
    words: [AtomicU64; 2],
    _workers: Workers,
}

fn world<const N: usize>() -> (Arc<World>, [Worker; N]) {
    let mut options = Options::tiny();
    (options.kind, options.bucket_count, options.granule_count) = (ManagerKind::DirectFifo, 1, 1);
    let workers = Workers::with_seed(1);
    let each = std::array::from_fn(|_| workers.worker());
    let world = World {
        locks: AnyManager::new(&options),
        anchors: Anchors::free(2),
        words: Default::default(),
        _workers: workers,
    };
    (Arc::new(world), each)
}

impl World {
    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (number, mode): (u64, Mode),
        wait_mode: WaitMode,
    ) -> bool {
        let target = (key(number), &self.anchors[number as usize]);
        let locks = &self.locks;
        match locks.request_anchored(worker, owner, target, mode, wait_mode) {
            Reply::Granted | Reply::Held => true,
            Reply::Waiting => locks.wait(worker, owner, None).is_held(),
            Reply::Refused(_) | Reply::Skipped => false,
        }
    }

    fn read(&self) {
        let [first, second] = [0, 1].map(|at: usize| self.words[at].load(Relaxed));
        assert_eq!(
            first, second,
            "a reader beside a writer, or one that came too early"
        );
    }

    fn write(&self) {
        for word in &self.words {
            word.store(word.load(Relaxed) + 1, Relaxed);
        }
    }

    fn written(&self) -> u64 {
        self.read();
        self.words[0].load(Relaxed)
    }

    /// Writes under key 0, if it is granted.
    fn writer(&self, worker: &Worker, owner: &mut Owner, wait_mode: WaitMode) -> u64 {
        let granted = self.request(worker, owner, (0, Mode::X), wait_mode);
        if granted {
            self.write();
        }
        self.locks.release_all(worker, owner);
        granted.into()
    }

    /// Reads under key 0, if it is granted.
    fn reader(&self, worker: &Worker, owner: &mut Owner) {
        if self.request(worker, owner, (0, Mode::S), WaitMode::Refuse) {
            self.read();
        }
        self.locks.release_all(worker, owner);
    }

    fn nobody_is_left(&self, worker: &Worker) {
        self.locks.verify(worker);
        assert!(self.locks.inspect(worker).queues.is_empty());
        let unheld = self.anchors.iter().all(|anchor| anchor.is_unheld());
        assert!(unheld, "{:?}", &self.anchors[..]);
    }
}

/// `release` to `hold` and `deflate` of an anchor, and O2: a waiter makes the anchor inflated
/// beside its holder's release.
#[test]
fn o1_o2_two_writers_wait_for_each_other() {
    model(2, || {
        let (world, [worker, other]) = world();
        let (mut here, mut there) = (world.locks.owner(), world.locks.owner());
        let beside = {
            let world = world.clone();
            loom::thread::spawn(move || world.writer(&other, &mut there, WaitMode::Wait))
        };
        let mut done = world.writer(&worker, &mut here, WaitMode::Wait);
        done += beside.join().unwrap();
        assert_eq!((done, world.written()), (2, 2));
        world.nobody_is_left(&worker);
    });
}

/// A5: an anchor that comes back from the queue, and the next two owners.
#[test]
fn o1_a_deflated_anchor_is_held_by_one() {
    model(2, || {
        let (world, [worker, other]) = world();
        let (mut here, mut there) = (world.locks.owner(), world.locks.owner());
        assert!(world.anchors[0].queue());
        let beside = {
            let world = world.clone();
            loom::thread::spawn(move || world.writer(&other, &mut there, WaitMode::Refuse))
        };
        let mut done = world.writer(&worker, &mut here, WaitMode::Refuse);
        done += world.writer(&worker, &mut here, WaitMode::Refuse);
        done += beside.join().unwrap();
        assert_eq!(done, world.written());
        world.nobody_is_left(&worker);
    });
}

/// A1 against D1 to D4: a reader that remembers, and a writer at the anchor.
#[test]
fn o1_a_remembered_reader_is_found_by_a_writer_at_the_anchor() {
    model(2, || {
        let (world, [worker, other]) = world();
        let (mut here, mut there) = (world.locks.owner(), world.locks.owner());
        let beside = {
            let world = world.clone();
            loom::thread::spawn(move || world.reader(&other, &mut there))
        };
        world.writer(&worker, &mut here, WaitMode::Wait);
        world.reader(&worker, &mut here);
        beside.join().unwrap();
        world.nobody_is_left(&worker);
    });
}

/// O1 of `anchored`: a revoker that is late converts nothing beside the anchor of a writer. All
/// threads end with their locks, which takes fewer preemptions.
#[test]
fn o1_a_late_revoker_converts_no_lock_beside_an_anchor() {
    model(2, || {
        let (world, [worker, revoking, writing, reading]) = world();
        let owners = [(); 3].map(|()| Box::new(world.locks.owner()));
        let wanted = [(1, Mode::X), (0, Mode::X), (0, Mode::S)];
        let mut threads = Vec::new();
        for ((mut owner, worker), target) in owners
            .into_iter()
            .zip([revoking, writing, reading])
            .zip(wanted)
        {
            let world = world.clone();
            threads.push(loom::thread::spawn(move || {
                let granted = world.request(&worker, &mut owner, target, WaitMode::Refuse);
                (worker, owner, granted)
            }));
        }
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        let mut ended: Vec<_> = ended.collect();
        let [_, (.., may_write), (.., may_read)] = &ended[..] else {
            unreachable!("three threads");
        };
        assert!(!(*may_read && *may_write), "a reader beside a writer");
        for (_, owner, _) in &mut ended {
            world.locks.release_all(&worker, owner);
        }
        world.nobody_is_left(&worker);
    });
}

/// O2 of `anchored`: a writer at the anchor comes after a reader whose lock was converted.
#[test]
fn o2_a_writer_at_the_anchor_comes_after_converted_readers() {
    model(2, || {
        let (world, [worker, other]) = world();
        let [mut reader, mut strong, mut writer] = [(); 3].map(|()| Box::new(world.locks.owner()));
        assert!(world.request(&worker, &mut reader, (0, Mode::S), WaitMode::Refuse));
        assert!(world.request(&worker, &mut strong, (1, Mode::X), WaitMode::Refuse));
        assert_eq!(world.anchors[0].state(), AnchorState::Free);
        let ends = {
            let world = world.clone();
            loom::thread::spawn(move || {
                world.words[0].store(1, Relaxed);
                // Not `release_all`, which has a fence.
                assert!(world.locks.release(&other, &mut reader, key(0)));
                reader
            })
        };
        if world.request(&worker, &mut writer, (0, Mode::X), WaitMode::Refuse) {
            assert_eq!(world.words[0].load(Relaxed), 1, "the reader has ended");
        }
        let mut reader = ends.join().unwrap();
        world.locks.release_all(&worker, &mut reader);
        world.locks.release_all(&worker, &mut writer);
        world.locks.release_all(&worker, &mut strong);
        world.nobody_is_left(&worker);
    });
}

/// A4: a reader that becomes a writer beside another reader.
#[test]
fn o1_a_conversion_at_the_anchor_waits_for_readers() {
    model(2, || {
        let (world, [worker, other]) = world();
        let (mut here, mut there) = (world.locks.owner(), world.locks.owner());
        // Makes the granule real, so that readers use the anchor.
        let mut strong = world.locks.owner();
        assert!(world.request(&worker, &mut strong, (1, Mode::X), WaitMode::Refuse));
        let beside = {
            let world = world.clone();
            loom::thread::spawn(move || world.reader(&other, &mut there))
        };
        assert!(world.request(&worker, &mut here, (0, Mode::S), WaitMode::Wait));
        world.read();
        assert!(world.request(&worker, &mut here, (0, Mode::X), WaitMode::Wait));
        world.write();
        world.locks.release_all(&worker, &mut here);
        beside.join().unwrap();
        world.locks.release_all(&worker, &mut strong);
        world.nobody_is_left(&worker);
    });
}

/// A8: the record goes, and a thread that still has its anchor locks the key in the queue.
#[test]
fn o1_a_removed_record_leaves_its_locks_in_the_queue() {
    model(2, || {
        let (world, [worker, other]) = world();
        let (mut here, mut there) = (world.locks.owner(), world.locks.owner());
        let beside = {
            let world = world.clone();
            loom::thread::spawn(move || world.writer(&other, &mut there, WaitMode::Wait))
        };
        assert!(world.request(&worker, &mut here, (0, REMOVER), WaitMode::Wait));
        world.write();
        assert!(world.locks.unanchor(&worker, &mut here, key(0)));
        assert!(world.anchors[0].retire(), "no other owner holds it");
        world.locks.release_all(&worker, &mut here);
        assert_eq!(beside.join().unwrap(), 1);
        assert_eq!(world.written(), 2);
        assert_eq!(world.anchors[0].state(), AnchorState::Dead);
        world.nobody_is_left(&worker);
    });
}

/// A6: an owner that did not know of the record gets the name in its queue, finds the record, and
/// requests the name again.
#[test]
fn o1_a_grant_beside_the_anchor_is_taken_back() {
    model(2, || {
        let (world, [worker, other]) = world();
        let (mut here, mut there) = (world.locks.owner(), world.locks.owner());
        let beside = {
            let world = world.clone();
            loom::thread::spawn(move || world.writer(&other, &mut there, WaitMode::Wait))
        };
        let unaware = world.locks.try_lock(&worker, &mut here, key(0), Mode::X);
        let mut done = 0;
        if unaware.is_held() {
            done = world.writer(&worker, &mut here, WaitMode::Wait);
        }
        done += beside.join().unwrap();
        assert_eq!(done, world.written());
        world.nobody_is_left(&worker);
    });
}

/// A6 beside A3: another request brings the lock of the anchor into the queue, where the grant that
/// did not know of it still is.
#[test]
fn o1_a_grant_beside_the_anchor_is_not_confirmed_beside_its_holder() {
    model(2, || {
        let (world, [worker, other]) = world();
        // In boxes, because the stack of a model is small.
        let [mut holder, mut unaware, mut there] = [(); 3].map(|()| Box::new(world.locks.owner()));
        assert!(world.request(&worker, &mut holder, (0, Mode::X), WaitMode::Refuse));
        let beside = world.locks.try_lock(&worker, &mut unaware, key(0), Mode::S);
        assert!(beside.is_held());
        let waiter = {
            let world = world.clone();
            loom::thread::spawn(move || world.writer(&other, &mut there, WaitMode::Wait))
        };
        assert!(!world.request(&worker, &mut unaware, (0, Mode::S), WaitMode::Refuse));
        world.write();
        world.locks.release_all(&worker, &mut holder);
        world.locks.release_all(&worker, &mut unaware);
        assert_eq!(waiter.join().unwrap(), 1);
        assert_eq!(world.written(), 2);
        world.nobody_is_left(&worker);
    });
}
