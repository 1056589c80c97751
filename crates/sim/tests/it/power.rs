//! Acknowledged commits survive a power cut, with everything that they have read (`tests/power`):
//! in each order of the steps, with every lock manager, where the device takes steps too. The same
//! after the end of the process, for commits acknowledged when the operating system has them.

use foxton::{Durability, LockManagerKind, Options};
use foxton_sim::case::{Acknowledged, Case, count, each, play_over_power_cuts, sample};
use std::{fs, path::Path};

/// Runs a case in all orders, or in `most`, with every manager.
fn play(name: &str, durability: Durability, most: u64) -> Acknowledged {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/power")
        .join(name);
    let case = Case::parse(&fs::read_to_string(path).unwrap()).unwrap();
    let mut sum = Acknowledged::default();
    for (manager, seed) in LockManagerKind::ALL.into_iter().zip(1..) {
        let mut options = Options::tiny();
        options.lock_manager = manager;
        options.durability = durability;
        let mut take = |order: &[usize]| {
            let played = play_over_power_cuts(&case, order, options.clone());
            let played =
                played.unwrap_or_else(|what| panic!("{name} over {manager}, {durability}: {what}"));
            sum.at_once += played.at_once;
            sum.readers_waited += played.readers_waited;
        };
        let lengths = case.lengths();
        match count(&lengths) <= most {
            true => each(&lengths, &mut take),
            false => sample(&lengths, most, seed, &mut take),
        }
    }
    println!("{name}, {durability}: {sum:?}");
    sum
}

const BOTH: [Durability; 2] = [Durability::Sync, Durability::Buffered];

#[test]
fn a_reader_of_undurable_rows_is_answered_when_they_are_durable() {
    for durability in BOTH {
        let sum = play("x13-read.txt", durability, 40);
        assert!(
            sum.readers_waited > 0,
            "{durability}: no reader had to wait"
        );
        assert!(sum.at_once > 0, "a reader of other rows need not wait");
    }
}

#[test]
fn so_is_who_finds_nothing() {
    assert!(play("x13-gone.txt", Durability::Sync, 40).readers_waited > 0);
    // A transaction that deletes a row keeps its lock until that is written, so no reader misses
    // the row before.
    assert_eq!(
        play("x13-gone.txt", Durability::Buffered, 40).readers_waited,
        0
    );
}

#[test]
fn and_who_reads_what_was_written_because_of_it() {
    for durability in BOTH {
        assert!(play("x13-chain.txt", durability, 40).readers_waited > 0);
    }
}
