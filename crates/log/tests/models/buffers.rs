//! Models of each whole buffer: B1 to B4 of the contract (`buffer/mod.rs`), with two threads that
//! insert, one of which also takes out; B6 and B7, with a thread that looks at two that insert.
//!
//! B7 needs O4 of the ring. Weakened, the load of the front turns all `b7_front_..` red; the store
//! those of the buffers with a latch, the exchange that of `hybrid`, and passing bytes the one with
//! a bypass. A group needs O3 of the groups, whose model lies beside them.
//!
//! The parts below the buffers have models of their own, of each ordering by itself: the ring, the
//! groups, the latches.

use foxton_log::BufferKind;
use foxton_log::format::record::framed_bytes;
use foxton_log::model::{BufferDrain, BufferModel, PAYLOAD_BYTES};
use foxton_sync::shim::{Arc, AtomicBool, AtomicU64, Ordering::Relaxed, thread};
use foxton_sync::worker::{Worker, Workers};

/// Each history has at most three preemptions, because workers take part in much else.
fn check(model: impl Fn() + Send + Sync + 'static) {
    check_within(3, model);
}

fn check_within(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Another thread inserts two records. This one inserts one, and takes out what is complete before
/// and after the other has ended.
fn insert(kind: BufferKind) {
    check(move || {
        let workers = Workers::new();
        let (stream, mut out) = BufferModel::new(kind, 4);
        let stream = Arc::new(stream);
        let other = {
            let (stream, worker) = (stream.clone(), workers.worker());
            thread::spawn(move || [1, 2].map(|mark| stream.insert(&worker, mark)))
        };
        let worker = workers.worker();
        let mine = stream.insert(&worker, 3);
        let mut marks = out.take();
        let [first, second] = other.join().unwrap();
        marks.extend(out.take());

        let mut placed = [(first, 1), (second, 2), (mine, 3)];
        assert!(
            first < second,
            "the later record of one thread lies behind the earlier one"
        );
        placed.sort_unstable();
        assert_eq!(marks, placed.map(|(_, mark)| mark));
        assert_eq!(placed[0].0, Some(0), "there was space for all");
        let record = stream.end(&worker) / 3;
        assert_eq!(
            placed.map(|(at, _)| at),
            [0, 1, 2].map(|index| Some(index * record))
        );
    });
}

#[test]
fn b1_b2_baseline() {
    insert(BufferKind::Baseline);
}

#[test]
fn b1_b2_consolidated() {
    insert(BufferKind::Consolidated);
}

#[test]
fn b1_b2_decoupled() {
    insert(BufferKind::Decoupled);
}

#[test]
fn b1_b2_decoupled_in_turn() {
    insert(BufferKind::DecoupledInOrder);
}

#[test]
fn b1_b2_hybrid() {
    insert(BufferKind::Hybrid);
}

#[test]
fn b1_b2_hybrid_in_turn() {
    insert(BufferKind::HybridInOrder);
}

/// Takes until this many have come.
fn take(out: &mut BufferDrain, count: usize) -> Vec<u8> {
    let mut marks = out.take();
    while marks.len() < count {
        thread::yield_now();
        marks.extend(out.take());
    }
    marks
}

#[test]
fn b3_an_insert_without_space_leaves_no_trace() {
    for kind in BufferKind::DELEGATED {
        check(move || {
            let workers = Workers::new();
            let worker = workers.worker();
            let (stream, mut out) = BufferModel::new(kind, 2);
            assert!(stream.insert(&worker, 1).is_some());
            assert!(stream.insert(&worker, 2).is_some());
            let stream = Arc::new(stream);
            let other = {
                let (stream, worker) = (stream.clone(), workers.worker());
                thread::spawn(move || stream.insert(&worker, 3))
            };
            let mut marks = take(&mut out, 2);
            let other = other.join().unwrap();
            marks.extend(out.take());
            let mut expected = vec![1, 2];
            expected.extend(other.map(|_| 3));
            assert_eq!(marks, expected);
            assert!(stream.insert(&worker, 4).is_some(), "there is space again");
            assert_eq!(out.take(), [4]);
        });
    }
}

#[test]
fn b4_a_refused_insert_leaves_no_trace_and_none_succeeds_after_it() {
    for kind in BufferKind::DELEGATED {
        check(move || {
            let workers = Workers::new();
            let worker = workers.worker();
            let (stream, mut out) = BufferModel::new(kind, 4);
            let stream = Arc::new(stream);
            let other = {
                let (stream, worker) = (stream.clone(), workers.worker());
                thread::spawn(move || stream.insert(&worker, 1))
            };
            stream.refuse(&worker);
            assert!(stream.insert(&worker, 2).is_none());
            let other = other.join().unwrap();
            let expected: Vec<u8> = other.map(|_| 1).into_iter().collect();
            assert_eq!(out.take(), expected);
        });
    }
}

/// Two threads each store a word and then insert. A third loads the front and then the words. It
/// is a thread of its own, so that this one waits and each history begins with any of three.
fn front(
    kind: BufferKind,
    insert: impl Fn(&BufferModel, &Worker) -> Option<u64> + Copy + Send + Sync + 'static,
) {
    check_within(2, move || {
        let workers = Workers::new();
        let (stream, _out) = BufferModel::new(kind, 4);
        let stream = Arc::new(stream);
        let words = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let inserters = words.clone().map(|word| {
            let (stream, worker) = (stream.clone(), workers.worker());
            thread::spawn(move || {
                word.store(true, Relaxed); // Relaxed: the front is what orders it (B7).
                insert(&stream, &worker)
            })
        });
        let reader = thread::spawn(move || {
            let front = stream.front();
            (front, words.map(|word| word.load(Relaxed))) // Relaxed: as above.
        });
        let (front, seen) = reader.join().unwrap();
        for (inserter, seen) in inserters.into_iter().zip(seen) {
            let at = inserter.join().unwrap();
            let is_behind = at.is_some_and(|at| front > at);
            assert!(seen || !is_behind, "front {front}, record {at:?}");
        }
    });
}

fn insert_one(stream: &BufferModel, worker: &Worker) -> Option<u64> {
    stream.insert(worker, 1)
}

#[test]
fn b7_front_baseline() {
    front(BufferKind::Baseline, insert_one);
}

#[test]
fn b7_front_consolidated() {
    front(BufferKind::Consolidated, insert_one);
}

#[test]
fn b7_front_decoupled() {
    front(BufferKind::Decoupled, insert_one);
}

#[test]
fn b7_front_hybrid() {
    front(BufferKind::Hybrid, insert_one);
}

#[test]
fn b7_front_behind_a_bypass() {
    // The others have the latched allocator, too.
    for kind in [BufferKind::Baseline, BufferKind::Hybrid] {
        front(kind, BufferModel::bypass);
    }
}

/// The end of a record is announced before the thread that takes out can find the record complete.
#[test]
fn b6_a_record_is_announced_before_it_is_complete() {
    for kind in BufferKind::DELEGATED {
        check(move || {
            let workers = Workers::new();
            let (stream, mut out) = BufferModel::new(kind, 4);
            let announced = Arc::new(AtomicU64::new(0));
            let inserting = {
                let (announced, worker) = (announced.clone(), workers.worker());
                thread::spawn(move || {
                    // Relaxed: completing the record orders it.
                    let on_reserved = |end| announced.store(end, Relaxed);
                    stream.insert_with(&worker, 1, &on_reserved)
                })
            };
            let marks = out.take();
            let seen = announced.load(Relaxed); // Relaxed: as above.
            let end = inserting
                .join()
                .unwrap()
                .map(|at| at + framed_bytes(PAYLOAD_BYTES));
            assert_eq!(Some(announced.load(Relaxed)), end);
            assert!(marks.is_empty() || Some(seen) == end);
        });
    }
}
