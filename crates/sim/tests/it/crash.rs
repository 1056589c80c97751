//! Power cuts at any moment, with any damage to unsynced bytes: a restart finds everything that was
//! promised, and the check finds promises that were not kept. The long form, with a hundred
//! thousand images: `cargo test --release -p foxton-sim --test it crash:: -- --ignored`.

use std::ops::RangeInclusive;

use foxton::TableComponent;
use foxton_log::device::Device;
use foxton_sim::crash::{record, record_on};
use foxton_sim::victim::{FRAMES, Honesty, options, set_small_pages};
use std::sync::Arc;

#[test]
fn every_cut_of_a_recorded_run_is_survived_and_so_is_a_cut_while_recovering() {
    cut_runs(1..=6, 5_000);
}

#[test]
#[ignore = "takes minutes: cargo test --release -p foxton-sim --test it crash:: -- --ignored"]
fn a_hundred_thousand_images_are_survived() {
    cut_runs(101..=195, 90_000);
}

fn cut_runs(seeds: RangeInclusive<u64>, at_least: u64) {
    let mut images = 0;
    for seed in seeds {
        let run = record(seed, 4, 9, Honesty::Honest).expect("a run without faults");
        let tally = run
            .cut_everywhere(1, seed)
            .unwrap_or_else(|failure| panic!("{failure}"));
        println!("seed {seed}: {} changes, {tally:?}", run.changes());
        images += tally.images;
    }
    println!("{images} images");
    assert!(images > at_least, "only {images} images");
}

/// The clients of a run are threads, so their commits share syncs while pages are written.
#[test]
fn every_cut_of_a_run_over_paged_tables_is_survived() {
    cut_paged(&[1, 3], 9);
}

#[test]
#[ignore = "takes minutes: cargo test --release -p foxton-sim --test it crash:: -- --ignored"]
fn every_cut_of_many_runs_over_paged_tables_is_survived() {
    cut_paged(&[1, 3, 5, 7], 1);
}

/// Records a run over paged tables for each of the seeds and cuts it at every `step`-th place.
fn cut_paged(seeds: &[u64], step: usize) {
    let mut images = 0;
    for &seed in seeds {
        let mut paged = options(seed);
        paged.component = TableComponent::Paged;
        set_small_pages(&mut paged, FRAMES);
        let before = |device| -> Arc<dyn Device> { Arc::new(device) };
        let run = record_on(before, paged, seed, 4, 9, Honesty::Honest);
        let run = run.expect("a run without faults");
        let tally = run.cut_everywhere(step, seed);
        images += tally.unwrap_or_else(|failure| panic!("{failure}")).images;
    }
    println!("{images} images");
    assert!(images > 500, "only {images} images");
}

#[test]
fn acknowledging_before_it_is_durable_is_found_out() {
    let run = record(4, 4, 9, Honesty::Early).expect("a run without faults");
    let failure = run.cut_everywhere(1, 4).expect_err("nobody noticed");
    assert!(
        failure.faults.iter().all(|fault| fault.starts_with("I1")),
        "{failure}"
    );
}
