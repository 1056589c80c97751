//! Who waits for what another thread writes out is woken, whoever writes it.
#![cfg(loom)]

use foxton_log::model::WriterModel;
use foxton_sync::shim::{Arc, thread};
use foxton_sync::worker::Workers;

/// Threads are interrupted at most so often in each history.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// As many commit; then whoever was asked for flushes. A wake-up that is lost is a deadlock, which the checker finds.
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
fn i1_i2_two_who_commit_are_both_written() {
    commit(2, 4);
}

#[test]
fn i1_i2_three_who_commit_are_all_written() {
    commit(3, 2);
}

#[test]
fn who_waits_is_told_when_the_log_ends() {
    check(3, || {
        let workers = Workers::new();
        let model = Arc::new(WriterModel::default());
        let committing = {
            let (model, worker) = (model.clone(), workers.worker());
            thread::spawn(move || {
                let end = model.insert();
                // Either model, and not never.
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
