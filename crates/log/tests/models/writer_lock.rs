//! Models of the writer lock: a thread that waits for its bytes is woken, whichever thread writes
//! them.

use foxton_log::model::WriterModel;
use foxton_sync::shim::{Arc, thread};
use foxton_sync::worker::Workers;

/// Each history has at most `preemptions`.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// This many threads commit; then each does what the flusher was requested to do. A lost wake-up is
/// a deadlock, which loom finds.
fn commit(threads: usize, preemptions: usize) {
    check(preemptions, move || {
        let workers = Workers::new();
        let model = Arc::new(WriterModel::default());
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let (model, worker) = (model.clone(), workers.worker());
                thread::spawn(move || {
                    let end = model.insert();
                    assert!(model.write_to(&worker, end));
                    model.flush(&worker);
                })
            })
            .collect();
        let worker = workers.worker();
        let end = model.insert();
        assert!(model.write_to(&worker, end));
        model.flush(&worker);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn i1_i2_two_commits_are_both_written() {
    commit(2, 4);
}

#[test]
fn i1_i2_three_commits_are_all_written() {
    commit(3, 2);
}

#[test]
fn a_wait_ends_when_the_log_is_closed() {
    check(3, || {
        let workers = Workers::new();
        let model = Arc::new(WriterModel::default());
        let committing = {
            let (model, worker) = (model.clone(), workers.worker());
            thread::spawn(move || {
                let end = model.insert();
                // It returns true or false, and it does return.
                model.write_to(&worker, end);
                model.flush(&worker);
            })
        };
        let worker = workers.worker();
        let end = model.insert();
        model.write_to(&worker, end);
        model.close(&worker);
        committing.join().unwrap();
    });
}
