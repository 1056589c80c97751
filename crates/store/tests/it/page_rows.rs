//! Rows of a paged tree, cut off at every change of files: committed ones are there, others are
//! gone, every tree is whole and no page leaks, however often the restart is cut, too.
//!
//! Everything about a run follows from its seed, which a failure prints.

use foxton_log::device::disk::Damage;
use foxton_sync::failpoint::Failpoint;

mod run;

use run::{RowRun, RowSetting, RowTally};

/// Returns the damages that a power cut may do: none that harms durable bytes. They tear pages,
/// swap their sectors for older ones, zero them and fill them with garbage.
fn damages() -> Vec<Damage> {
    let all = Damage::ALL.into_iter();
    all.filter(|damage| !damage.harms_durable()).collect()
}

fn run(
    seed: u64,
    step: usize,
    fault: Option<&'static Failpoint>,
    tally: &mut RowTally,
) -> Result<(), String> {
    let setting = RowSetting {
        seed,
        steps: 400,
        fault,
    };
    let run = RowRun::record(setting).map_err(|trouble| format!("run {seed}: {trouble}"))?;
    run.cut_everywhere(&damages(), step, tally)
}

#[test]
fn committed_rows_are_there_and_others_are_gone() {
    let mut tally = RowTally::default();
    for seed in 0..6 {
        let found = run(seed, 7, None, &mut tally);
        found.unwrap_or_else(|failure| panic!("{failure}"));
    }
    println!("{tally:?}");
    assert!(tally.images.iter().all(|images| *images > 20), "{tally:?}");
    assert!(tally.redone > 1000 && tally.undone > 300, "{tally:?}");
    assert!(tally.levels > 1 && tally.writes > 100, "{tally:?}");
    assert!(tally.torn > 20, "{tally:?}");
}

#[cfg(feature = "hooks")]
#[test]
fn every_injected_fault_is_found() {
    for fault in &foxton_store::failpoint::PAGE_FAULTS {
        let mut tally = RowTally::default();
        let found = (0..90).find_map(|seed| run(seed, 1, Some(fault), &mut tally).err());
        let found = found.unwrap_or_else(|| panic!("{fault} was not found"));
        println!("{fault}: {found}");
    }
}
