//! After a power cut at any moment, whatever it did to what was not synced, a restart finds what was
//! promised: and the check finds out who promises too much.

use foxton_sim::{crash::record, victim::Honesty};

#[test]
fn every_cut_of_a_recorded_run_is_survived_and_so_is_a_cut_while_recovering() {
    let mut images = 0;
    for seed in 1..=6 {
        let run = record(seed, 4, 9, Honesty::Honest).expect("a run without faults");
        let tally = run
            .cut_everywhere(1, seed)
            .unwrap_or_else(|failure| panic!("{failure}"));
        println!("seed {seed}: {} changes, {tally:?}", run.changes());
        images += tally.images;
    }
    assert!(images > 5_000, "only {images} images");
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
