//! Resident and paged tables, cut off at every change of files: committed rows are there, others
//! are gone, and every tree is whole, however often the restart is cut, too.
//!
//! The transactions of a run follow from its seed, which a failure prints:
//! `cargo run --release -p foxton-sim --example component_cuts -- --seed N`.

use foxton_sim::components::Setting;
use foxton_sim::components::cuts::{Damages, Tally};
use foxton_sim::components::load::Run;

/// Records a run and cuts it after every `step`-th change.
fn run(setting: Setting, step: usize) -> Result<Tally, String> {
    let run = Run::record(setting).map_err(|trouble| format!("{setting}: {trouble}"))?;
    let mut tally = Tally::default();
    let cut = run.cut_everywhere(step, Damages::One, &mut tally, &|_| {});
    cut.map_err(|failure| failure.to_string())?;
    Ok(tally)
}

#[test]
fn committed_rows_of_both_components_are_there_and_no_others() {
    let mut sum = Tally::default();
    for seed in 0..8 {
        let setting = Setting {
            seed,
            steps: 200,
            fault: None,
            is_failing: false,
        };
        sum.add(&run(setting, 16).unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{sum:?}");
    assert!(sum.images.iter().all(|images| *images > 100), "{sum:?}");
    assert!(sum.audited > 100, "{sum:?}");
}
