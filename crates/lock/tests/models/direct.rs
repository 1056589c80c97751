//! Remembering against revoking, in every interleaving of two or three threads.
//!
//! The model is the whole manager with one granule for keys and one bucket over a parking latch (a
//! mutex, to the model). The hold-off is zero, so that locks are remembered again as soon as they
//! may be. The fences are those of a system with a barrier for it, unless another pair is named.

use foxton_lock::{
    any::{AnyManager, Fences, ManagerKind, Options},
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::{Owner, Scan},
    request::{Reply, WaitMode},
};
use foxton_sync::{
    shim::{Arc, AtomicU64, Ordering::Relaxed},
    worker::{Worker, Workers},
};

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(body);
}

fn key(number: u64) -> Name {
    Name::key(1, &number.to_be_bytes(), &KeyHasher::new(1))
}

/// Returns a key that is too long for a block.
fn long_key() -> Name {
    Name::key(1, b"0123456789ab", &KeyHasher::new(1))
}

/// A manager, and two words under the lock on one key. Relaxed, because the lock keeps them
/// consistent and makes visible what was written under it.
struct World {
    locks: AnyManager,
    words: [AtomicU64; 2],
    _workers: Workers,
}

fn world() -> (Arc<World>, Worker, Worker) {
    world_with(Fences::Found)
}

fn world_with(fences: Fences) -> (Arc<World>, Worker, Worker) {
    let mut options = Options::tiny();
    options.fences = fences;
    (options.kind, options.bucket_count, options.granule_count) = (ManagerKind::Direct, 1, 1);
    let workers = Workers::with_seed(1);
    let pair = (workers.worker(), workers.worker());
    let world = World {
        locks: AnyManager::new(&options),
        words: Default::default(),
        _workers: workers,
    };
    (Arc::new(world), pair.0, pair.1)
}

impl World {
    fn holds(&self, worker: &Worker, owner: &mut Owner, name: Name, mode: Mode) -> bool {
        self.locks.try_lock(worker, owner, name, mode).is_held()
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

    /// Runs a transaction that reads, if it gets the lock.
    fn reader(&self, worker: &Worker, owner: &mut Owner) {
        if self.holds(worker, owner, key(1), Mode::S) {
            self.read();
        }
        self.locks.release_all(worker, owner);
    }

    fn writer(&self, worker: &Worker, owner: &mut Owner) {
        self.writer_of(worker, owner, key(1), Mode::X);
    }

    /// Runs a transaction that writes if it gets `name` in `mode`.
    fn writer_of(&self, worker: &Worker, owner: &mut Owner, name: Name, mode: Mode) {
        if self.holds(worker, owner, name, mode) {
            self.write();
        }
        self.locks.release_all(worker, owner);
    }

    /// Runs a transaction that scans two neighbours, if it gets the locks.
    fn scanner(&self, worker: &Worker, owner: &mut Owner) {
        self.scanner_of(worker, owner, &[key(1), key(2)]);
    }

    /// As [`scanner`](Self::scanner), for any names.
    fn scanner_of(&self, worker: &Worker, owner: &mut Owner, names: &[Name]) {
        let mut scan = Scan::new();
        let all = names.iter().all(|&name| {
            let reply = self.locks.request_in_scan(
                worker,
                owner,
                &mut scan,
                (name, None),
                Mode::S,
                WaitMode::Refuse,
            );
            matches!(reply, Reply::Granted)
        });
        if all {
            self.read();
        }
        self.locks.release_all(worker, owner);
    }

    fn nobody_is_left(&self, worker: &Worker) {
        self.locks.verify(worker);
        assert!(self.locks.inspect(worker).queues.is_empty());
    }
}

/// One of two transactions.
type Side = fn(&World, &Worker, &mut Owner);

/// Runs two transactions at once.
fn at_once(first: Side, second: Side) {
    at_once_with(Fences::Found, first, second);
}

fn at_once_with(fences: Fences, first: Side, second: Side) {
    model(move || {
        let (world, worker, other) = world_with(fences);
        let (mut there, mut here) = (world.locks.owner(), world.locks.owner());
        let beside = {
            let world = world.clone();
            loom::thread::spawn(move || first(&world, &other, &mut there))
        };
        second(&world, &worker, &mut here);
        beside.join().unwrap();
        world.nobody_is_left(&worker);
    });
}

/// `append` to `count` of `remembered`, the fences of D2 and D6: a reader and a writer at once.
#[test]
fn o1_a_remembered_lock_is_found_whole() {
    at_once(World::reader, World::writer);
}

/// `remove_strong` to `is_biased` of `granule`: the next owner that remembers sees what was
/// written.
#[test]
fn o1_a_reader_that_remembers_after_a_writer_sees_its_writes() {
    at_once(World::writer, |world, worker, owner| {
        world.reader(worker, owner);
        world.reader(worker, owner);
    });
}

/// D10 and D11: a lock that is converted while its owner releases is released, and its waiter
/// woken.
#[test]
fn o1_a_lock_converted_during_a_release_is_released() {
    model(|| {
        let (world, worker, other) = world();
        let (mut first, mut second) = (world.locks.owner(), world.locks.owner());
        assert!(world.holds(&worker, &mut first, key(1), Mode::S));
        let releaser = {
            let world = world.clone();
            loom::thread::spawn(move || {
                world.read();
                world.locks.release_all(&other, &mut first);
            })
        };
        let outcome = world
            .locks
            .lock(&worker, &mut second, key(1), Mode::X, None);
        assert!(outcome.is_held());
        world.write();
        world.locks.release_all(&worker, &mut second);
        releaser.join().unwrap();
        world.nobody_is_left(&worker);
    });
}

/// `make_real` to `add_strong` and `is_real` of `granule`: two revokers at once, and neither goes
/// on before every remembered lock is real.
#[test]
fn o2_no_revoker_goes_on_before_all_is_converted() {
    model(|| {
        let (world, worker, other) = world();
        let (mut holder, mut first) = (world.locks.owner(), world.locks.owner());
        let mut second = world.locks.owner();
        assert!(world.holds(&worker, &mut holder, key(1), Mode::S));
        let rival = {
            let world = world.clone();
            loom::thread::spawn(move || {
                assert!(!world.holds(&other, &mut first, key(1), Mode::X));
            })
        };
        assert!(!world.holds(&worker, &mut second, key(1), Mode::X));
        rival.join().unwrap();
        world.locks.release_all(&worker, &mut holder);
        world.nobody_is_left(&worker);
    });
}

/// D12: a bit set in an existing block, against a writer of that key.
#[test]
fn o1_a_bit_of_a_block_is_found() {
    let writer: Side = |world, worker, owner| {
        world.writer_of(worker, owner, key(2), Mode::X);
    };
    at_once(World::scanner, writer);
    // The other way round the model checks two more switches: one before the bit is set, and one in
    // the middle of the writes.
    at_once(writer, World::scanner);
}

/// D2 and D3 when a scan comes to a block.
#[test]
fn o1_the_first_key_of_a_scan_is_found() {
    at_once(
        |world, worker, owner| world.scanner_of(worker, owner, &[key(1)]),
        World::writer,
    );
}

/// The same for a key that is in no block, for which each request is the first.
#[test]
fn o1_a_long_key_is_found() {
    at_once(
        |world, worker, owner| world.scanner_of(worker, owner, &[long_key()]),
        |world, worker, owner| world.writer_of(worker, owner, long_key(), Mode::X),
    );
}

/// D2 and D3 when the fast path is closed, here by a savepoint.
#[test]
fn o1_a_lock_remembered_after_a_savepoint_is_found() {
    at_once(
        |world, worker, owner| {
            let savepoint = owner.savepoint();
            if world.holds(worker, owner, key(1), Mode::S) {
                world.read();
            }
            world.locks.release_since(worker, owner, savepoint);
            world.locks.release_all(worker, owner);
        },
        World::writer,
    );
}

/// D12 for keys that are requested one by one: the second finds the block of the first.
#[test]
fn o1_a_second_key_of_a_block_is_found() {
    at_once(
        |world, worker, owner| {
            let both = world.holds(worker, owner, key(1), Mode::S)
                && world.holds(worker, owner, key(2), Mode::S);
            if both {
                world.read();
            }
            world.locks.release_all(worker, owner);
        },
        |world, worker, owner| world.writer_of(worker, owner, key(2), Mode::X),
    );
}

/// D2 to D6 for a table: an intention that is only remembered, and a request for the whole table.
#[test]
fn o1_an_intention_is_found() {
    at_once(
        |world, worker, owner| {
            let table = Name::table(1);
            if world.holds(worker, owner, table, Mode::IS) {
                // The second request is answered by the owner's own index.
                assert!(world.holds(worker, owner, table, Mode::IS));
                world.read();
            }
            world.locks.release_all(worker, owner);
        },
        |world, worker, owner| world.writer_of(worker, owner, Name::table(1), Mode::X),
    );
}

/// D15: the bits of a block, in two words, against a writer that takes a gap.
#[test]
fn a_gap_of_a_locked_range_is_found() {
    at_once(
        |world, worker, owner| {
            if world.locks.lock_range(worker, owner, key(1), key(2)) {
                world.read();
            }
            world.locks.release_all(worker, owner);
        },
        |world, worker, owner| {
            let gap = Mode::key(KeyPart::None, GapPart::X);
            world.writer_of(worker, owner, key(2), gap);
        },
    );
}

/// Full fences on both sides, and no fast path, as on a system without the barrier. A key in a
/// block of its own.
#[test]
fn with_full_fences_a_remembered_lock_is_found() {
    at_once_with(Fences::Symmetric, World::reader, World::writer);
}

/// The same for a table.
#[test]
fn with_full_fences_an_intention_is_found() {
    at_once_with(
        Fences::Symmetric,
        |world, worker, owner| {
            if world.holds(worker, owner, Name::table(1), Mode::IS) {
                world.read();
            }
            world.locks.release_all(worker, owner);
        },
        |world, worker, owner| world.writer_of(worker, owner, Name::table(1), Mode::X),
    );
}

/// The same for a scan, whose second key is a bit in the block of the first.
#[test]
fn with_full_fences_a_bit_of_a_block_is_found() {
    at_once_with(Fences::Symmetric, World::scanner, |world, worker, owner| {
        world.writer_of(worker, owner, key(2), Mode::X);
    });
}

/// The same for the bits of all keys of a block, and of gaps.
#[test]
fn with_full_fences_a_gap_of_a_locked_range_is_found() {
    at_once_with(
        Fences::Symmetric,
        |world, worker, owner| {
            if world.locks.lock_range(worker, owner, key(1), key(2)) {
                world.read();
            }
            world.locks.release_all(worker, owner);
        },
        |world, worker, owner| {
            let gap = Mode::key(KeyPart::None, GapPart::X);
            world.writer_of(worker, owner, key(2), gap);
        },
    );
}

/// The own lock is remembered, and made strong while another comes and goes.
#[test]
fn a_remembered_lock_is_made_strong() {
    model(|| {
        let (world, worker, other) = world();
        let (mut first, mut second) = (world.locks.owner(), world.locks.owner());
        assert!(world.holds(&worker, &mut first, key(1), Mode::S));
        let reader = {
            let world = world.clone();
            loom::thread::spawn(move || world.reader(&other, &mut second))
        };
        let gap = Mode::key(KeyPart::S, GapPart::S);
        assert!(world.holds(&worker, &mut first, key(1), gap));
        if world.holds(&worker, &mut first, key(1), Mode::X) {
            world.write();
        }
        world.locks.release_all(&worker, &mut first);
        reader.join().unwrap();
        world.nobody_is_left(&worker);
    });
}
