//! Models of each ordering named in `latch/`, in the smallest history that needs it.
//!
//! The value behind a latch is in a cell of the model checker, which panics when two threads reach
//! it and neither knows that the other is done.

use foxton_sync::latch::{Kind, Latched};
use foxton_sync::shim::{
    Arc, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    thread,
};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::{Worker, Workers};

static SITE: Site = Site::new(Component::Latch, Pattern::Unbounded, "model");

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

fn pass(latched: &Latched<u64>, worker: &Worker) {
    latched.with(worker, |value| *value += 1);
}

/// Two threads pass a latch once each; the value is read once both are done.
fn two_pass_once(kind: Kind) {
    model(move || {
        let workers = Workers::with_seed(0);
        let (here, there) = (workers.worker(), workers.worker());
        let latched = Arc::new(Latched::new(kind, &SITE, 0));
        let other = {
            let latched = latched.clone();
            thread::spawn(move || {
                pass(&latched, &there);
                there
            })
        };
        pass(&latched, &here);
        // The worker is returned before it is dropped: dropping synchronizes, and would hide a
        // flaw.
        let there = other.join().unwrap();
        assert_eq!(latched.with(&here, |value| *value), 2);
        drop(there);
    });
}

/// One thread passes; the other tries, and if it succeeds sees what the first wrote, or that it has
/// not passed yet.
fn one_passes_one_tries(kind: Kind) {
    model(move || {
        let workers = Workers::with_seed(0);
        let (here, there) = (workers.worker(), workers.worker());
        let latched = Arc::new(Latched::new(kind, &SITE, 0));
        let other = {
            let latched = latched.clone();
            thread::spawn(move || {
                pass(&latched, &there);
                there
            })
        };
        let tried = latched.try_with(&here, |value| *value += 1);
        let there = other.join().unwrap();
        let expected = 1 + u64::from(tried.is_some());
        assert_eq!(latched.with(&here, |value| *value), expected);
        drop(there);
    });
}

/// Two threads try once each; if both succeed, the second sees what the first wrote.
///
/// A spinning waiter cannot be modelled: its exchanges may follow each other for ever, because
/// nothing forces the store of the holder between two of them. The orderings are those of the try.
fn two_try_once(kind: Kind) {
    model(move || {
        let workers = Workers::with_seed(0);
        let (here, there) = (workers.worker(), workers.worker());
        let latched = Arc::new(Latched::new(kind, &SITE, 0));
        let other = {
            let latched = latched.clone();
            thread::spawn(move || {
                let tried = latched.try_with(&there, |value| *value += 1);
                (there, tried)
            })
        };
        let here_tried = latched.try_with(&here, |value| *value += 1);
        let (there, there_tried) = other.join().unwrap();
        let expected = u64::from(here_tried.is_some()) + u64::from(there_tried.is_some());
        assert_ne!(
            expected, 0,
            "a try fails only if somebody held the latch (C3)"
        );
        assert_eq!(Arc::try_unwrap(latched).unwrap().into_inner(), expected);
        drop(there);
    });
}

mod spin {
    use super::*;

    #[test]
    fn o1_the_next_holder_of_tas_sees_what_the_last_one_wrote() {
        two_try_once(Kind::Tas);
    }

    #[test]
    fn o1_the_next_holder_of_tas_t_sees_what_the_last_one_wrote() {
        two_try_once(Kind::TasT);
    }
}

mod parking {
    use super::*;
    use foxton_sync::latch::parking_model::ModelParking;

    /// The layers above the parking latch are modelled over a stand-in.
    #[test]
    fn the_next_holder_of_the_stand_in_sees_what_the_last_one_wrote() {
        two_pass_once(Kind::Parking);
        one_passes_one_tries(Kind::Parking);
    }

    /// Runs `each` of these in a thread, and checks how often they passed in all. Sleepers are
    /// woken, or get the latch handed over.
    fn beside(bound: usize, each: &'static [fn(&ModelParking<u64>) -> u64]) {
        for is_fair in [false, true] {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(bound);
            builder.check(move || {
                let value = Arc::new(ModelParking::new(0, is_fair));
                let (last, others) = each.split_last().expect("somebody");
                let spawn = |one: &fn(&ModelParking<u64>) -> u64| {
                    let (value, one) = (value.clone(), *one);
                    thread::spawn(move || one(&value))
                };
                let others: Vec<_> = others.iter().map(spawn).collect();
                let mut passed = last(&value);
                for other in others {
                    passed += other.join().unwrap();
                }
                let value = Arc::try_unwrap(value).ok().expect("all are done");
                assert_eq!(value.into_inner(), passed);
            });
        }
    }

    fn pass(value: &ModelParking<u64>) -> u64 {
        value.with(None, |value| *value += 1);
        1
    }

    fn pass_twice(value: &ModelParking<u64>) -> u64 {
        pass(value) + pass(value)
    }

    fn try_to_pass(value: &ModelParking<u64>) -> u64 {
        u64::from(value.try_with(|value| *value += 1).is_some())
    }

    /// As an adaptive latch does: it is extended for a while, and then plain again.
    fn have_more_to_it_for_a_while(value: &ModelParking<u64>) -> u64 {
        value.with(Some(false), |value| *value += 1);
        value.with(Some(true), |value| *value += 1);
        2
    }

    #[test]
    fn o1_the_next_holder_sees_what_the_last_one_wrote() {
        beside(3, &[pass_twice, pass_twice]);
    }

    #[test]
    fn o1_a_successful_try_sees_what_the_last_holder_wrote() {
        beside(3, &[try_to_pass, pass_twice]);
    }

    /// I3: a thread that sleeps behind a sleeper is woken as well.
    #[test]
    fn three_pass_and_none_sleeps_for_ever() {
        beside(2, &[pass, pass, pass]);
    }

    #[test]
    fn three_pass_one_by_trying_and_none_sleeps_for_ever() {
        beside(2, &[pass, try_to_pass, pass]);
    }

    #[test]
    fn i2_the_extended_mark_changes_while_others_come() {
        beside(3, &[have_more_to_it_for_a_while, pass_twice]);
        beside(2, &[have_more_to_it_for_a_while, pass, pass]);
    }

    #[test]
    fn o1_an_elided_pass_sees_what_the_last_holder_wrote() {
        model(|| {
            let value = Arc::new(ModelParking::new(0, false));
            let been = Arc::new(AtomicU64::new(0));
            let there = {
                let (value, been) = (value.clone(), been.clone());
                thread::spawn(move || {
                    value.with_after(|| been.store(1, Release), |value| *value = 1);
                })
            };
            // The holder is inside, or was.
            if been.load(Acquire) == 1 {
                // SAFETY: the other thread does not come again.
                let seen = unsafe { value.if_free(|value| *value) };
                assert!(matches!(seen, None | Some(1)));
            }
            there.join().unwrap();
        });
    }
}

mod queue {
    use super::*;

    /// The successor writes into the predecessor's node, which was made by another thread; the
    /// checker panics when it does so without knowing that the node had been made.
    #[test]
    fn o1_the_successor_sees_the_node_before_it() {
        two_pass_once(Kind::Queue);
    }

    /// A node taken by trying is a predecessor like any other.
    #[test]
    fn o1_the_successor_sees_a_node_that_was_tried() {
        model(|| {
            let workers = Workers::with_seed(0);
            let (here, there) = (workers.worker(), workers.worker());
            let latched = Arc::new(Latched::new(Kind::Queue, &SITE, 0));
            let other = {
                let latched = latched.clone();
                thread::spawn(move || {
                    pass(&latched, &there);
                    there
                })
            };
            latched.try_with(&here, |value| *value += 1);
            drop(other.join().unwrap());
        });
    }

    /// The holder writes into the successor's node, which was made by another thread.
    #[test]
    fn o2_the_holder_sees_the_node_behind_it() {
        two_pass_once(Kind::Queue);
    }

    #[test]
    fn o3_the_granted_waiter_sees_what_the_last_holder_wrote() {
        two_pass_once(Kind::Queue);
    }

    #[test]
    fn o4_an_acquirer_of_a_free_latch_sees_what_the_last_holder_wrote() {
        two_pass_once(Kind::Queue);
        one_passes_one_tries(Kind::Queue);
    }

    /// In a model a waiter sleeps at once; its handle is in its own frame.
    #[test]
    fn o5_the_waker_sees_the_handle_of_the_sleeper() {
        two_pass_once(Kind::Queue);
    }

    /// Three queued threads: the middle one is successor and predecessor at once.
    #[test]
    fn three_queued_waiters_all_pass() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let workers = Workers::with_seed(0);
            let latched = Arc::new(Latched::new(Kind::Queue, &SITE, 0));
            let here = workers.worker();
            let others = [workers.worker(), workers.worker()].map(|there| {
                let latched = latched.clone();
                thread::spawn(move || {
                    pass(&latched, &there);
                    there
                })
            });
            pass(&latched, &here);
            let others = others.map(|other| other.join().unwrap());
            assert_eq!(latched.with(&here, |value| *value), 3);
            drop(others);
        });
    }
}

mod shared {
    use super::*;
    use foxton_sync::latch::SharedLatched;

    type Value = Arc<SharedLatched<u64>>;

    /// Runs `there` in another thread and `here` in this one; both get the value and a worker.
    fn meet(
        there: impl Fn(&SharedLatched<u64>, &Worker) + Send + Sync + Copy + 'static,
        here: impl Fn(&SharedLatched<u64>, &Worker) + Send + Sync + Copy + 'static,
    ) {
        model(move || {
            let workers = Workers::with_seed(0);
            let (our, their) = (workers.worker(), workers.worker());
            let value: Value = Arc::new(SharedLatched::new(&SITE, 0));
            let other = {
                let value = value.clone();
                thread::spawn(move || {
                    there(&value, &their);
                    their
                })
            };
            here(&value, &our);
            drop(other.join().unwrap());
        });
    }

    fn write(value: &SharedLatched<u64>, worker: &Worker) {
        value.write(worker, |value| *value += 1);
    }

    /// Tries: a waiting writer announces itself again and again, which cannot be modelled.
    fn try_write(value: &SharedLatched<u64>, worker: &Worker) {
        value.try_write(worker, |value| *value += 1);
    }

    fn read(value: &SharedLatched<u64>, worker: &Worker) {
        assert!(value.read(worker, |value| *value) <= 2);
    }

    /// The reader may come after the writer, and must then see what it wrote.
    #[test]
    fn o1_a_reader_sees_what_the_last_writer_wrote() {
        meet(write, read);
    }

    #[test]
    fn o2_a_writer_sees_what_the_last_writer_wrote() {
        meet(try_write, try_write);
    }

    /// The writer may come after the reader, and must not write what is still being read.
    #[test]
    fn o3_a_writer_comes_after_every_reader_before_it() {
        meet(read, write);
    }

    fn try_read(value: &SharedLatched<u64>, worker: &Worker) {
        value.try_read(worker, |value| *value);
    }

    /// Two readers leave in either order; the writer comes after both.
    #[test]
    fn o3_a_writer_comes_after_two_readers_before_it() {
        model(|| {
            let workers = Workers::with_seed(0);
            let here = workers.worker();
            let value: Value = Arc::new(SharedLatched::new(&SITE, 0));
            let others = [workers.worker(), workers.worker()].map(|there| {
                let value = value.clone();
                thread::spawn(move || {
                    try_read(&value, &there);
                    there
                })
            });
            try_write(&value, &here);
            let others = others.map(|other| other.join().unwrap());
            drop(others);
        });
    }
}

/// The orderings are those of `shared`; this shows that two of its latches make one.
mod sharded {
    use super::*;
    use foxton_sync::latch::ShardedLatched;

    type Value = Arc<ShardedLatched<u64>>;

    /// The reader enters one shard, whichever its seed picks; the writer enters both.
    fn a_reader_meets_a_writer(seed: u64) {
        model(move || {
            let workers = Workers::with_seed(seed);
            let (here, there) = (workers.worker(), workers.worker());
            let value: Value = Arc::new(ShardedLatched::new(&SITE, 0));
            let other = {
                let value = value.clone();
                thread::spawn(move || {
                    value.write(&there, |value| *value += 1);
                    there
                })
            };
            assert!(value.read(&here, |value| *value) <= 1);
            drop(other.join().unwrap());
            assert_eq!(value.read(&here, |value| *value), 1);
        });
    }

    #[test]
    fn a_reader_in_any_shard_keeps_writers_out_and_sees_what_they_wrote() {
        (0..4).for_each(a_reader_meets_a_writer);
    }
}

mod version {
    use super::*;
    use foxton_sync::latch::VersionLatch;

    type Node = (VersionLatch, AtomicU64, AtomicU64);

    fn node() -> Arc<Node> {
        Arc::new((
            VersionLatch::default(),
            AtomicU64::new(0),
            AtomicU64::new(0),
        ))
    }

    #[test]
    fn o1_a_reader_of_a_version_sees_its_bytes() {
        model(|| {
            let node = node();
            let first = node.0.version().unwrap();
            let writer = {
                let node = node.clone();
                thread::spawn(move || {
                    assert!(node.0.try_lock(first));
                    node.1.store(1, Relaxed);
                    node.0.unlock();
                })
            };
            if node.0.version().is_some_and(|seen| seen != first) {
                assert_eq!(node.1.load(Relaxed), 1);
            }
            writer.join().unwrap();
        });
    }

    /// A second writer takes the latch at the first one's version and unlocks it unchanged: the
    /// reader sees its store, which must pass on what the first one published.
    #[test]
    fn o2_a_reader_of_a_version_unlocked_unchanged_sees_its_bytes() {
        model(|| {
            let node = node();
            let first = node.0.version().unwrap();
            let writer = {
                let node = node.clone();
                thread::spawn(move || {
                    assert!(node.0.try_lock(first));
                    node.1.store(1, Relaxed);
                    node.0.unlock();
                })
            };
            let idler = {
                let node = node.clone();
                thread::spawn(move || {
                    if let Some(seen) = node.0.version()
                        && seen != first
                        && node.0.try_lock(seen)
                    {
                        node.0.unlock_unchanged(seen);
                    }
                })
            };
            if node.0.version().is_some_and(|seen| seen != first) {
                assert_eq!(node.1.load(Relaxed), 1);
            }
            writer.join().unwrap();
            idler.join().unwrap();
        });
    }

    #[test]
    fn o2_a_torn_read_is_never_trusted() {
        model(|| {
            let node = node();
            let first = node.0.version().unwrap();
            let writer = {
                let node = node.clone();
                thread::spawn(move || {
                    assert!(node.0.try_lock(first));
                    node.1.store(1, Relaxed);
                    node.2.store(1, Relaxed);
                    node.0.unlock();
                })
            };
            if let Some(seen) = node.0.version() {
                let bytes = (node.1.load(Relaxed), node.2.load(Relaxed));
                if node.0.unchanged_since(seen) {
                    assert!(bytes == (0, 0) || bytes == (1, 1), "torn: {bytes:?}");
                }
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn two_writers_exclude_each_other() {
        model(|| {
            let node = node();
            let add = |node: &Node| {
                node.0.lock();
                node.1.store(node.1.load(Relaxed) + 1, Relaxed);
                node.0.unlock();
            };
            let other = {
                let node = node.clone();
                thread::spawn(move || add(&node))
            };
            add(&node);
            other.join().unwrap();
            assert_eq!(node.1.load(Relaxed), 2);
        });
    }
}
