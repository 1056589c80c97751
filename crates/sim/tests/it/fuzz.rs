//! The entries for fuzzers, called with the files in `fuzz/corpus`, with random changes of these,
//! and with random bytes, for about a second each. `FOXTON_FUZZ=60` runs 60 times as many.

use foxton_sim::{
    fuzz::{Whole, log, mending_changes, page_record, picture},
    ledger::mix,
};
use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

/// Calls `entry` with the corpus of `target`, and then with bytes drawn from `count` seeds.
fn feed(target: &str, count: u64, entry: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut kept: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| file.expect("a folder of ours").path())
        .collect();
    kept.sort();
    let kept: Vec<Vec<u8>> = kept
        .iter()
        .map(|path| fs::read(path).expect("a file of ours"))
        .collect();
    assert!(!kept.is_empty(), "the corpus of {target} is empty");
    let call = |bytes: &[u8]| {
        let called = catch_unwind(AssertUnwindSafe(|| entry(bytes)));
        assert!(called.is_ok(), "{target}: {bytes:?}");
    };
    kept.iter().for_each(|bytes| call(bytes));
    let times = std::env::var("FOXTON_FUZZ").map_or(1, |times| times.parse().expect("a number"));
    for seed in 1..=count * times {
        call(&drawn(seed, &kept));
    }
    println!("{target}: {} kept, {} drawn", kept.len(), count * times);
}

/// Returns a file of the corpus with a few bytes changed, or random bytes.
fn drawn(seed: u64, kept: &[Vec<u8>]) -> Vec<u8> {
    let mut draw = seed;
    let mut next = |below: usize| {
        draw = mix(draw);
        (draw % below.max(1) as u64) as usize
    };
    if next(4) == 0 {
        return (0..next(120)).map(|_| next(256) as u8).collect();
    }
    let mut bytes = kept[next(kept.len())].clone();
    for _ in 0..1 + next(4) {
        let at = next(bytes.len() + 1);
        match next(3) {
            0 => bytes.insert(at, next(256) as u8),
            1 if at < bytes.len() => bytes[at] = next(256) as u8,
            _ => bytes.truncate(at.max(2)),
        }
    }
    bytes
}

#[test]
fn mending_what_is_whole_changes_nothing() {
    for files in Whole::new().all() {
        assert_eq!(mending_changes(files), Ok(()));
    }
}

#[test]
fn a_log_of_any_bytes_is_read_or_refused() {
    feed("log", 50_000, log);
}

#[test]
fn a_checkpoint_of_any_bytes_is_read_or_refused() {
    let whole = Whole::new();
    feed("checkpoint", 5_000, |bytes| whole.checkpoint(bytes));
}

#[test]
fn a_database_of_any_bytes_is_opened_or_refused() {
    let whole = Whole::new();
    feed("restart", 300, |bytes| whole.restart(bytes));
}

#[test]
fn a_backup_of_any_bytes_is_restored_or_refused() {
    let whole = Whole::new();
    feed("backup", 700, |bytes| whole.backup(bytes));
}

#[test]
fn a_page_record_of_any_bytes_is_decoded_or_refused() {
    feed("page_record", 200_000, page_record);
}

#[test]
fn a_picture_of_any_bytes_is_drawn_or_refused() {
    feed("picture", 200_000, picture);
}
