//! Models of elided latches over transactions that are made of one latch around each: the promises
//! of the processor (H1 to H4 of `htm/backend.rs`), and no more. The value is in a cell of the
//! model checker, which panics when two threads reach it and neither knows that the other is done.

use foxton_sync::htm::{Abort, Cause};
use foxton_sync::latch::Kind;
use foxton_sync::latch::model::{ModelElided, ModelTransactions, Script};
use foxton_sync::shim::{Arc, thread};
use foxton_sync::worker::{Worker, Workers};

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// One thread does `there`, the other `here`; each returns how often it passed, and no pass is
/// lost.
fn two(
    kind: Kind,
    script: Script,
    here: impl Fn(&ModelElided<u64>, &Worker) -> u64 + Send + Sync + 'static,
    there: impl Fn(&ModelElided<u64>, &Worker) -> u64 + Clone + Send + Sync + 'static,
) {
    model(move || {
        let workers = Workers::with_seed(0);
        let (own, other) = (workers.worker(), workers.worker());
        let value = Arc::new(ModelElided::new(
            kind,
            &ModelTransactions::new(script.clone()),
            0,
        ));
        let beside = {
            let (value, there) = (value.clone(), there.clone());
            thread::spawn(move || {
                let passed = there(&value, &other);
                drop(value);
                // The worker is returned before it is dropped: dropping synchronizes, and would
                // hide a flaw.
                (other, passed)
            })
        };
        let passed = here(&value, &own);
        let (other, passed_there) = beside.join().unwrap();
        let value = Arc::try_unwrap(value).ok().expect("both are done");
        assert_eq!(value.into_inner(), passed + passed_there);
        drop(other);
    });
}

fn pass(value: &ModelElided<u64>, worker: &Worker) -> u64 {
    value.with(worker, |value| *value += 1);
    1
}

fn pass_if_free(value: &ModelElided<u64>, worker: &Worker) -> u64 {
    u64::from(value.try_with(worker, |value| *value += 1).is_some())
}

fn take(value: &ModelElided<u64>, _worker: &Worker) -> u64 {
    value.with_taken(|value| *value += 1);
    1
}

fn one_aborts() -> Script {
    Script::These([Abort::because(Cause::Other)].into())
}

#[test]
fn elided_passes_exclude_each_other() {
    two(Kind::ElidedCooldown, Script::Commit, pass, pass);
}

#[test]
fn an_elided_pass_and_a_holder_exclude_each_other() {
    two(Kind::ElidedCooldown, Script::Commit, pass, take);
}

#[test]
fn a_pass_that_gave_up_is_a_holder() {
    two(Kind::ElidedCooldown, one_aborts(), pass, pass);
}

#[test]
fn holders_where_nothing_commits_exclude_each_other() {
    let never = Script::Abort(Abort::because(Cause::Capacity));
    two(Kind::ElidedCooldown, never, pass, pass);
}

fn pass_twice(value: &ModelElided<u64>, worker: &Worker) -> u64 {
    pass(value, worker) + pass(value, worker)
}

/// A trial, then the latch as it was, while the other thread is anywhere: in a model each turn is
/// one pass.
#[test]
fn passes_of_a_latch_that_stops_trying_exclude_each_other() {
    two(Kind::ElidedAdaptive, Script::Commit, pass_twice, pass);
}

/// Only holders write the number of passes that skip elision after one that gave up.
#[test]
fn passes_of_a_latch_whose_attempts_abort_exclude_each_other() {
    let never = Script::Abort(Abort::because(Cause::Capacity));
    two(Kind::ElidedAdaptive, never, pass_twice, pass);
}

/// O2 of `latch/spin.rs`: a transaction that finds the flag free sees what its last holder wrote.
#[test]
fn o2_an_elided_pass_sees_what_the_last_holder_wrote() {
    two(Kind::ElidedRtm, Script::Commit, pass_if_free, take);
}

/// A pass that gave up takes the flag by the same exchange as any holder.
#[test]
fn a_try_that_gave_up_and_an_elided_one_exclude_each_other() {
    two(
        Kind::ElidedRetry100,
        one_aborts(),
        pass_if_free,
        pass_if_free,
    );
}
