//! Tests of workers, their counters, and the account.

use foxton_sync::counter::WorkerCounters;
use foxton_sync::latch::{Kind, Latched};
use foxton_sync::site::{Account, Component, Pattern, Site};
use foxton_sync::worker::Workers;
use std::thread;

static SITE: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock table");
static OTHER: Site = Site::new(Component::Lock, Pattern::Fixed, "hand-over");

#[test]
fn an_id_belongs_to_one_worker_at_a_time() {
    let workers = Workers::new();
    let mut living: Vec<_> = (0..5).map(|_| workers.worker()).collect();
    let ids: Vec<u32> = living.iter().map(|worker| worker.id()).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4]);
    living.swap_remove(3);
    living.swap_remove(1);
    assert_eq!([workers.worker().id(), workers.worker().id()], [1, 3]);
    assert_eq!(workers.capacity(), 5);
}

#[test]
fn two_databases_share_nothing() {
    let (here, there) = (Workers::new(), Workers::new());
    assert_eq!((here.worker().id(), there.worker().id()), (0, 0));
    assert_ne!(here.domain(), there.domain());
}

#[test]
fn a_seed_replays() {
    let draw = |seed| {
        let worker = Workers::with_seed(seed).worker();
        std::array::from_fn::<u64, 8, _>(|_| worker.random())
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    let workers = Workers::with_seed(1);
    let (first, second) = (workers.worker(), workers.worker());
    assert_ne!(first.random(), second.random());
}

#[test]
fn random_numbers_below_a_bound_reach_all_of_it_evenly() {
    let worker = Workers::with_seed(3).worker();
    let mut seen = [0u32; 7];
    for _ in 0..70_000 {
        seen[worker.random_below(7) as usize] += 1;
    }
    assert!(
        seen.iter().all(|count| (9_000..11_000).contains(count)),
        "{seen:?}"
    );
}

#[test]
fn counters_sum_over_present_and_dropped_workers() {
    const THREADS: usize = 100;
    let workers = Workers::new();
    let counters = WorkerCounters::<3>::new();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let worker = workers.worker();
                for _ in 0..1_000 {
                    counters.add(&worker, 0, 1);
                    counters.add(&worker, 2, 2);
                }
            });
        }
    });
    assert_eq!(counters.sums(), [100_000, 0, 200_000]);
}

#[cfg(not(feature = "account"))]
#[test]
fn an_account_that_is_off_has_no_size_and_counts_nothing() {
    assert_eq!(size_of::<Account>(), 0);
    let workers = Workers::new();
    let worker = workers.worker();
    worker.account().passed(&SITE);
    Latched::new(Kind::Tas, &OTHER, ()).with(&worker, |()| ());
    assert!(workers.account().sites().is_empty());
}

#[cfg(feature = "account")]
#[test]
fn an_account_counts_each_passage_of_each_site() {
    assert!(size_of::<Account>() > 0);
    let workers = Workers::new();
    let latched = Latched::new(Kind::Tas, &SITE, ());
    for _ in 0..3 {
        let worker = workers.worker();
        latched.with(&worker, |()| ());
        latched.try_with(&worker, |()| ());
        worker.account().passed_many(&OTHER, 5);
    }
    let summary = workers.account();
    assert_eq!(summary.count(Component::Lock, Pattern::Unbounded), 6);
    assert_eq!(summary.count(Component::Lock, Pattern::Fixed), 15);
    assert_eq!(summary.sites()[0].site.name, "hand-over");
    // New and dropped workers meet at their registry.
    assert_eq!(summary.count(Component::Metadata, Pattern::Unbounded), 6);
}

#[cfg(feature = "account")]
#[test]
fn more_sites_than_rows_are_counted_by_component_and_pattern() {
    let workers = Workers::new();
    let worker = workers.worker();
    for _ in 0..1_000 {
        let site = Box::leak(Box::new(Site::new(
            Component::Log,
            Pattern::Cooperative,
            "many",
        )));
        worker.account().passed(site);
    }
    assert_eq!(
        workers
            .account()
            .count(Component::Log, Pattern::Cooperative),
        1_000
    );
}

/// Counts of workers stay after a peak of them, although no memory for each of them does.
#[test]
fn counts_of_a_peak_of_workers_stay() {
    let workers = Workers::new();
    let counters = WorkerCounters::<2>::new();
    for _ in 0..2 {
        let peak: Vec<_> = (0..10_000).map(|_| workers.worker()).collect();
        assert_eq!(
            peak.last().map(foxton_sync::worker::Worker::id),
            Some(9_999)
        );
        for worker in &peak {
            counters.add(worker, 0, 1);
            counters.add(worker, 1, u64::from(worker.id()));
        }
    }
    assert_eq!(counters.sums(), [20_000, 10_000 * 9_999]);
    assert_eq!(workers.worker().id(), 0);
    assert_eq!(workers.capacity(), 10_000);
    if foxton_sync::site::COUNTING {
        let registry = workers.account().sites()[0];
        assert_eq!(registry.count, 2 * 20_000 + 2);
    }
}
