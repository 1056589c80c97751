//! Pages that are larger than memory, cut off at every moment: committed changes are there, others
//! are gone, and nothing is undone twice, however often the restart is cut, too. Injected faults
//! are found.
//!
//! Everything about a run follows from its seed, which a failure prints:
//! `cargo run --release -p foxton-sim --example pages -- --seed N`.

use foxton_log::device::fault::FaultDevice;
use foxton_sim::pages::Fault;
use foxton_sim::pages::cuts::{Failure, Tally};
use foxton_sim::pages::engine::{Contents, Setting};
use foxton_sim::pages::run::Run;

/// Records a run and cuts it after every `step`-th change.
fn run(seed: u64, steps: usize, step: usize, fault: Option<Fault>) -> Result<Tally, String> {
    let setting = Setting { seed, steps, fault };
    let run = Run::record(&FaultDevice::new(), Contents::new(), setting);
    let run = run.map_err(|trouble| format!("run {seed}: {trouble}"))?;
    let mut tally = Tally::default();
    let looked = run.cut_everywhere(step, &mut tally);
    looked.map_err(|failure: Box<Failure>| failure.to_string())?;
    Ok(tally)
}

#[test]
fn nothing_committed_is_lost_and_nothing_else_stays() {
    let mut sum = Tally::default();
    for seed in 0..12 {
        sum.add(&run(seed, 120, 11, None).unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{sum:?}");
    assert!(sum.images.iter().all(|images| *images > 300), "{sum:?}");
    assert!(
        sum.redone > 1000 && sum.undone > 1000 && sum.losers > 1000,
        "{sum:?}"
    );
    assert!(sum.audited > 300, "{sum:?}");
}

/// The log has no image for such a page behind its last change. The image that it needs is earlier,
/// and the recovery LSN must not have passed that.
#[test]
fn a_page_that_a_restart_wrote_halfway_through_redo_is_made_whole_by_the_next() {
    let tally = run(8, 120, 51, None).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(tally.images[2] > 50, "{tally:?}");
}

#[test]
fn every_injected_fault_is_found() {
    for fault in Fault::ALL {
        let found = (0..40).find_map(|seed| run(seed, 120, 7, Some(fault)).err());
        let found = found.unwrap_or_else(|| panic!("{fault:?} was not found"));
        println!("{fault:?}: {}", found.lines().next().unwrap_or_default());
        assert!(
            found.contains("cut after"),
            "{fault:?} broke the run itself: {found}"
        );
    }
}
