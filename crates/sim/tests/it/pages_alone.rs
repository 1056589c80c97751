//! Promises of page recovery, one at a time: space for undo at every limit of the log, threads that
//! conflict, redo by one thread and by several, and progress.

use std::sync::{Arc, Mutex};
use std::thread;

use foxton_log::device::disk::Damage;
use foxton_log::device::fault::FaultDevice;
use foxton_sim::ledger::mix;
use foxton_sim::pages::engine::{Contents, Done, Engine, Random, Setting, open, open_with};
use foxton_sim::pages::page::{Back, Change};
use foxton_sim::pages::pool::{Pool, PoolError};
use foxton_store::paged::recovery::{
    self, PageId, PageTransaction, Recovery, RestartCallback, RestartOptions, RestartPhase,
    RestartResult, UndoData,
};
use foxton_sync::worker::{Worker, Workers};

/// The thing in which client `c` counts its commits is `OWN + c`.
const OWN: u32 = 100;

fn setting(seed: u64) -> Setting {
    Setting {
        seed,
        steps: 0,
        fault: None,
    }
}

/// Returns a directory with all things in it, each 0, whose log was not closed.
fn loaded(setting: &Setting) -> FaultDevice {
    let device = FaultDevice::new();
    let engine = open(&device, setting).expect("an empty directory");
    let end = engine.load(&mut Random::new(1)).expect("it is loaded");
    engine.wait(end).expect("it is durable");
    let image = device.crash(Damage::KeepAll, 0);
    FaultDevice::holding(&image)
}

/// Fills the log with a transaction until it is refused.
fn fill(engine: &Engine, transaction: &mut PageTransaction) -> i64 {
    for count in 0.. {
        match engine.apply(transaction, Done::Add(count % 8, 1)) {
            Ok(_) => {}
            Err(PoolError::NoRoom) => return i64::from(count),
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("the log has a limit");
}

#[test]
fn a_refused_client_can_roll_back_and_commit_at_every_limit() {
    let (one, two) = (setting(1), setting(4));
    let mut refused_at_once = 0;
    for setting in [one, two] {
        let base = loaded(&setting);
        let image = base.crash(Damage::KeepAll, 0);
        let probe = open(&FaultDevice::holding(&image), &setting).expect("it opens");
        let end = probe.log_end();
        for room in (0..2_000).step_by(8) {
            let device = FaultDevice::holding(&image);
            let mut options = RestartOptions::default();
            options.limit = end.plus(room);
            let engine = open_with(&device, &setting, &options).expect("it opens");
            let free = || engine.recovered.recovery.space().free();
            let exact = || options.limit.since(engine.log_end()) == free();
            assert!(exact(), "room {room}");
            let before = engine.pool.things().expect("the pages");

            let (mut first, mut second) = (PageTransaction::new(), PageTransaction::new());
            let first_count = fill(&engine, &mut first);
            refused_at_once += u32::from(first_count == 0);
            engine.rollback(&mut first).expect("there is space for it");
            assert_eq!(engine.pool.things().expect("the pages"), before);
            assert!(exact() && engine.log_end() <= options.limit, "room {room}");

            let second_count = fill(&engine, &mut second);
            assert!(second_count <= first_count);
            engine.commit(&mut second).expect("there is space for it");
            let after = engine.pool.things().expect("the pages");
            let added = after.values().sum::<i64>() - before.values().sum::<i64>();
            assert_eq!(added, second_count);
            assert!(exact() && engine.log_end() <= options.limit, "room {room}");
        }
    }
    assert!(
        refused_at_once > 2,
        "some limits leave no space for a change"
    );
}

#[test]
fn a_restart_takes_back_within_the_limit_that_the_transaction_was_admitted_by() {
    for seed in [1, 4] {
        let setting = setting(seed);
        let image = loaded(&setting).crash(Damage::KeepAll, 0);
        for room in (400..4_000).step_by(56) {
            let device = FaultDevice::holding(&image);
            let mut options = RestartOptions::default();
            let probe = open(&FaultDevice::holding(&image), &setting).expect("it opens");
            options.limit = probe.log_end().plus(room);
            let engine = open_with(&device, &setting, &options).expect("it opens");
            let before = engine.pool.things().expect("the pages");
            let mut transactions = [PageTransaction::new(), PageTransaction::new()];
            for transaction in &mut transactions {
                fill(&engine, transaction);
            }
            engine.wait(engine.log_end()).expect("it is durable");
            let mut image = device.crash(Damage::KeepAll, 0);
            // The restart is cut again and again, after one more change to the device each time.
            for step in (0..60).step_by(3) {
                let device = FaultDevice::holding(&image);
                device.record();
                let engine = open_with(&device, &setting, &options).expect("it opens");
                assert!(engine.log_end() <= options.limit, "room {room}");
                assert_eq!(engine.pool.things().expect("the pages"), before);
                let recording = device.recording().expect("it was recording");
                let cut = recording.disks().nth(step);
                let Some(disk) = cut else { break };
                image = disk.crash(Damage::KeepAll, 0);
            }
        }
    }
}

/// Returns the changes of transaction `n` of client `c`, and whether it is rolled back instead of
/// committed.
fn adds(c: u32, n: i64) -> ([Done; 3], bool) {
    let draw = |k: u64| mix(u64::from(c) << 40 | (n as u64) << 8 | k);
    let add = |k| Done::Add(draw(k) as u32 % 8, draw(k + 9) as i64 % 1000);
    ([add(0), add(1), add(2)], draw(99).is_multiple_of(3))
}

/// Makes one change in a page that other clients may change, too.
fn apply(
    (pool, recovery, worker): (&Pool, &Recovery, &Worker),
    transaction: &mut PageTransaction,
    done: Done,
) -> Result<(), PoolError> {
    let (change, back, thing) = match done {
        Done::Set(thing, value) => {
            let old = pool.value(thing)?;
            (Change::Put(thing, value), Change::Put(thing, old), thing)
        }
        Done::Add(thing, more) => (Change::Add(thing, more), Change::Add(thing, -more), thing),
    };
    let (page, back): (PageId, _) = (pool.home(thing)?, Back::There(back).encode());
    pool.change(page, &change, |change| {
        let undo = Some(UndoData::new(&back).with_more(pool.image_bytes()));
        let change = recovery::PageChange { change, undo };
        Ok(recovery.update(worker, transaction, change)?)
    })?;
    Ok(())
}

#[test]
fn threads_that_run_into_each_other_leave_what_they_committed() {
    const CLIENTS: u32 = 4;
    const EACH: i64 = 40;
    for seed in [1, 4] {
        let setting = setting(seed);
        let device = loaded(&setting);
        device.record();
        let mut engine = open(&device, &setting).expect("it opens");
        // Of each commit: client, number, changes recorded before it, and when it was acknowledged.
        let told = Mutex::new(Vec::<(u32, i64, usize, usize)>::new());
        let Engine {
            pool, recovered, ..
        } = &mut engine;
        let RestartResult {
            recovery,
            checkpointer,
            ..
        } = recovered;
        let (pool, recovery) = (&*pool, &**recovery);
        thread::scope(|scope| {
            for c in 0..CLIENTS {
                let (device, told) = (&device, &told);
                scope.spawn(move || {
                    let worker = Workers::new().worker();
                    let all = (pool, recovery, &worker);
                    for n in 1..=EACH {
                        let (adds, is_rolled_back) = adds(c, n);
                        let mut transaction = PageTransaction::new();
                        apply(all, &mut transaction, Done::Set(OWN + c, n)).expect("own");
                        let savepoint = transaction.savepoint();
                        for _ in 0..2 {
                            // The first time, in vain.
                            recovery
                                .rollback_to(&worker, &mut transaction, savepoint, pool)
                                .expect("it is taken back");
                            for add in adds {
                                apply(all, &mut transaction, add).expect("an addition");
                            }
                        }
                        if is_rolled_back {
                            recovery
                                .rollback(&worker, &mut transaction, pool)
                                .expect("it is taken back");
                            continue;
                        }
                        let begun = device.recorded();
                        let end = recovery
                            .commit(&worker, &mut transaction, None)
                            .expect("a commit");
                        let end = end.expect("the transaction has changed something");
                        recovery.log().wait_durable(&worker, end).expect("durable");
                        let now = device.recorded();
                        told.lock().expect("no panic").push((c, n, begun, now));
                    }
                });
            }
            let worker = Workers::new().worker();
            for _ in 0..6 {
                pool.sync().expect("a sync");
                let made = checkpointer.checkpoint(recovery, &worker, pool);
                made.expect("a checkpoint");
            }
        });
        let told = told.into_inner().expect("no panic");
        let recording = device.recording().expect("it was recording");
        let step = recording.len() / 60 + 1;
        for (cut, disk) in recording.disks().enumerate().step_by(step) {
            let whole_sectors = [Damage::DropAll, Damage::KeepAll, Damage::Reordered];
            for damage in whole_sectors {
                let image = disk.crash(damage, mix(cut as u64));
                let engine = open(&FaultDevice::holding(&image), &setting);
                let engine = engine.unwrap_or_else(|trouble| panic!("cut {cut}: {trouble}"));
                let found = engine.pool.things().expect("the pages");
                compare(&found, cut, &told, CLIENTS);
            }
        }
    }
}

fn compare(found: &Contents, cut: usize, told: &[(u32, i64, usize, usize)], clients: u32) {
    let mut expected: Contents = found.keys().map(|thing| (*thing, 0)).collect();
    for c in 0..clients {
        let last = found[&(OWN + c)];
        let own = || told.iter().filter(move |commit| commit.0 == c);
        let must = own()
            .filter(|commit| commit.3 <= cut)
            .map(|commit| commit.1);
        let may = own().filter(|commit| commit.2 < cut).map(|commit| commit.1);
        let (must, may) = (must.max().unwrap_or(0), may.max().unwrap_or(0));
        let range = must..=may;
        assert!(
            range.contains(&last),
            "cut {cut}, client {c}: {last} is not in {range:?}"
        );
        Done::Set(OWN + c, last).apply(&mut expected);
        let committed = (1..=last).map(|n| adds(c, n)).filter(|(_, back)| !back);
        committed.for_each(|(adds, _)| adds.iter().for_each(|add| add.apply(&mut expected)));
    }
    assert_eq!(*found, expected, "cut {cut}");
}

#[test]
fn several_threads_repeat_history_as_one_does_and_all_tell_how_far_they_are() {
    for seed in [1, 4] {
        let setting = setting(seed);
        let device = loaded(&setting);
        let engine = open(&device, &setting).expect("it opens");
        let mut transaction = PageTransaction::new();
        for count in 0..20_000 {
            let add = Done::Add(count % 8, 1);
            engine.apply(&mut transaction, add).expect("an addition");
            if count == 15_000 {
                engine.commit(&mut transaction).expect("a commit");
            }
        }
        engine.wait(engine.log_end()).expect("it is durable");
        let image = device.crash(Damage::DropAll, 0);
        let found = [1, 2, 5].map(|threads| {
            let heard = Arc::new(Mutex::new(Vec::new()));
            let teller = heard.clone();
            let mut options = RestartOptions::default();
            options.threads = threads;
            options.progress = Some(RestartCallback::new(move |progress| {
                teller.lock().expect("no panic").push(progress);
            }));
            let device = FaultDevice::holding(&image);
            let engine = open_with(&device, &setting, &options).expect("it opens");
            let restarted = &engine.recovered.summary;
            assert_eq!((restarted.losers, restarted.undone), (1, 4_999));
            assert!(restarted.redone > 20_000 && restarted.present == 0);
            for phase in [
                RestartPhase::Analysis,
                RestartPhase::Redo,
                RestartPhase::Undo,
            ] {
                let heard = heard.lock().expect("no panic");
                let of_phase: Vec<_> = heard.iter().filter(|told| told.phase == phase).collect();
                assert!(of_phase.is_sorted_by_key(|told| told.done) || threads > 1);
                let (first, last) = (of_phase[0], of_phase[of_phase.len() - 1]);
                assert_eq!((first.done, last.done), (0, last.total));
                assert!(last.total > 100_000, "{phase:?} is {} bytes", last.total);
            }
            engine.pool.things().expect("the pages")
        });
        assert_eq!(found[0].values().sum::<i64>(), 15_001);
        assert_eq!(found[0], found[1]);
        assert_eq!(found[0], found[2]);
    }
}
