//! Backups of a process that is killed: each is whole or refused, and the database is whole.
//!
//! The quick form of `examples/kill.rs --backups yes`, and the proof that it can fail: a victim
//! that records a backup as done too early is found.

use foxton_sim::{
    ground::Firm,
    kill::{Failure, Plan, Summary, run},
    victim::Honesty,
};
use std::{fs, process::Command};

fn kills(name: &str, plan: &Plan) -> Result<Summary, Failure> {
    let folder = format!("foxton-backups-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let victim = || Command::new(env!("CARGO_BIN_EXE_victim"));
    let done = run(plan, &folder, &mut Firm, victim, |_| ());
    fs::remove_dir_all(folder).expect("the folder is ours");
    done
}

#[test]
fn killed_while_backups_are_taken_each_is_whole_or_refused_and_the_database_is_whole() {
    let plan = Plan {
        fresh: 12,
        transactions: 400,
        backups: Some(Honesty::Honest),
        ..Plan::new(15, 5)
    };
    let summary = kills("kills", &plan).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{summary}");
}

#[test]
fn a_backup_that_is_said_to_be_done_before_it_is_is_found_out() {
    let plan = Plan {
        transactions: 400,
        backups: Some(Honesty::Early),
        ..Plan::new(1_000, 6)
    };
    let failure = kills("lie", &plan).expect_err("the check must find the fault");
    assert!(
        failure.faults.iter().all(|fault| fault.starts_with("B1")),
        "{failure}"
    );
}
