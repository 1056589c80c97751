//! A process that is killed at a random moment has kept its promises.
//!
//! The quick form of `examples/kill.rs`, and the proof that it can fail: a victim that records its
//! commits before they are acknowledged is found.

use foxton_sim::{
    ground::Firm,
    kill::{Plan, run},
    victim::Honesty,
};
use std::{fs, path::PathBuf, process::Command};

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("foxton-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the temporary folder can be written");
    folder
}

fn victim() -> Command {
    Command::new(env!("CARGO_BIN_EXE_victim"))
}

#[test]
fn killed_33_times_no_acknowledged_commit_is_lost_and_none_is_half_there() {
    let folder = folder("kill");
    let plan = Plan {
        fresh: 8,
        ..Plan::new(33, 2)
    };
    let summary = run(&plan, &folder, &mut Firm, victim, |_| ()).unwrap_or_else(|failure| {
        panic!("{failure}kept in {}", folder.display());
    });
    println!("{summary}");
    assert!(
        summary.acknowledged > 25,
        "the victims ran no transactions:\n{summary}"
    );
    // The first two databases of this seed have indexes, and each is opened twice after a kill.
    assert_eq!(summary.indexed_opens, 32, "{summary}");
    // The second and the fourth are paged. Most of their notes are large values.
    assert_eq!(summary.paged_opens, 32, "{summary}");
    assert!(summary.notes > 32, "{summary}");
    fs::remove_dir_all(folder).expect("the folder is ours");
}

#[test]
fn a_victim_that_lies_about_its_commits_is_found_out() {
    for is_paged in [false, true] {
        let folder = folder(&format!("lie-{is_paged}"));
        let plan = Plan {
            honesty: Honesty::Early,
            is_paged: Some(is_paged),
            ..Plan::new(100, 2)
        };
        let failure = run(&plan, &folder, &mut Firm, victim, |_| ()).expect_err("nobody noticed");
        assert!(
            failure.faults.iter().all(|fault| fault.starts_with("I1")),
            "{failure}"
        );
        fs::remove_dir_all(folder).expect("the folder is ours");
    }
}
