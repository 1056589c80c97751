//! Power cuts at any moment, with any damage to unsynced bytes: a restart finds everything that was
//! promised, and the check finds promises that were not kept. The long form, with a hundred
//! thousand images: `cargo test --release -p foxton-sim --test it crash:: -- --ignored`.

use std::ops::RangeInclusive;

use foxton_sim::{crash::record, victim::Honesty};

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

#[test]
fn acknowledging_before_it_is_durable_is_found_out() {
    let run = record(4, 4, 9, Honesty::Early).expect("a run without faults");
    let failure = run.cut_everywhere(1, 4).expect_err("nobody noticed");
    assert!(
        failure.faults.iter().all(|fault| fault.starts_with("I1")),
        "{failure}"
    );
}
