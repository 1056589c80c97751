//! Models of each whole buffer: B1 to B4 of the contract (`buffer/mod.rs`), with two threads that
//! insert, one of which also takes out.
//!
//! The parts below the buffers have models of their own, of each ordering by itself: the ring, the
//! groups, the latches.

use foxton_log::BufferKind;
use foxton_log::model::{BufferDrain, BufferModel};
use foxton_sync::shim::{Arc, thread};
use foxton_sync::worker::Workers;

/// Each history has at most three preemptions, because workers take part in much else.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
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
