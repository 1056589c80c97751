//! Damage to a checkpoint at rest: flipped bits, and files that are lost, swapped, cut, foreign or
//! stale.
//!
//! Opening must return an error that names the damage, or all rows if the damage has no effect. It
//! must never return wrong rows, miss rows silently, or panic.

use std::sync::Arc;

use foxton::{Database, Error, Options, Table};
use foxton_log::device::memory::{Contents, MemoryDevice};

const ROWS: Table<u64, u64> = Table::new("rows");
const FILLING: Table<u64, [u8]> = Table::new("filling");

type Files = Vec<(String, Vec<u8>)>;

fn options() -> Options {
    let mut options = Options::tiny();
    options.checkpoint_log_bytes = u64::MAX;
    options.restart_threads = 1;
    options
}

/// Returns a closed database of two layers and some log, whose first segments are gone, and an
/// older state of it with other layers.
fn database() -> (Files, Files) {
    let device = Arc::new(MemoryDevice::new());
    let db = Database::open_on(device.clone(), options()).unwrap();
    // Moves the first segment out of the log that is needed.
    for round in 0..4 {
        db.run(|tx| tx.put(&FILLING, &0, &[round; 40_000])).unwrap();
    }
    db.run(|tx| tx.delete(&FILLING, &0).map(drop)).unwrap();
    db.run(|tx| (0..100).try_for_each(|key| tx.put(&ROWS, &key, &key)))
        .unwrap();
    db.checkpoint().unwrap();
    let older = files(&device);
    db.run(|tx| (0..60).try_for_each(|key| tx.put(&ROWS, &key, &(key + 1))))
        .unwrap();
    db.checkpoint().unwrap();
    db.run(|tx| (0..10).try_for_each(|key| tx.delete(&ROWS, &key).map(drop)))
        .unwrap();
    let made = db.checkpoint().unwrap();
    assert_eq!(made.layers, 2);
    db.run(|tx| tx.put(&ROWS, &1_000, &1)).unwrap();
    drop(db);
    (files(&device), older)
}

fn files(device: &MemoryDevice) -> Files {
    let bytes = |contents: Contents| {
        let mut bytes = vec![0; contents.len() as usize];
        contents.read(&mut bytes, 0);
        bytes
    };
    let files = device.files().into_iter();
    files
        .map(|(name, contents)| (name, bytes(contents)))
        .collect()
}

fn open(files: &Files) -> Result<Vec<(u64, u64)>, Error> {
    let files = files.iter().map(|(name, bytes)| {
        let mut contents = Contents::default();
        contents.write(bytes, 0);
        (name.clone(), contents)
    });
    let db = Database::open_on(Arc::new(MemoryDevice::with_files(files)), options())?;
    db.run(|tx| tx.range(&ROWS, ..).collect())
}

fn expected() -> Vec<(u64, u64)> {
    let changed = (10..60).map(|key| (key, key + 1));
    let kept = (60..100).map(|key| (key, key));
    changed.chain(kept).chain([(1_000, 1)]).collect()
}

fn refused(files: &Files, words: &[&str]) {
    let error = open(files).expect_err("nobody noticed");
    assert_eq!(error.code(), "damaged", "{error}");
    for word in words {
        assert!(
            error.to_string().contains(word),
            "{error} does not say {word:?}"
        );
    }
}

fn names(files: &Files, prefix: &str) -> Vec<String> {
    let names = files.iter().map(|(name, _)| name);
    names
        .filter(|name| name.starts_with(prefix))
        .cloned()
        .collect()
}

fn bytes<'f>(files: &'f mut Files, name: &str) -> &'f mut Vec<u8> {
    let found = files.iter_mut().find(|(found, _)| found == name);
    &mut found.expect("it is there").1
}

#[test]
fn the_whole_is_found_as_it_was() {
    assert_eq!(open(&database().0).unwrap(), expected());
}

#[test]
fn every_flipped_bit_of_the_manifest_and_the_layers_is_noticed() {
    let (files, _) = database();
    let mut flips = 0;
    let mut names = names(&files, "layer-");
    names.push("checkpoint".to_owned());
    for name in names {
        let length = bytes(&mut files.clone(), &name).len();
        for at in 0..length {
            let mut flipped = files.clone();
            bytes(&mut flipped, &name)[at] ^= 1 << (at % 8);
            let error = open(&flipped).expect_err(&format!("byte {at} of {name}"));
            let codes = ["damaged", "future_format"];
            assert!(
                codes.contains(&error.code()),
                "byte {at} of {name}: {error}"
            );
            flips += 1;
        }
    }
    println!("{flips} flips");
    assert!(flips > 2_000, "{flips}");
}

#[test]
fn files_that_are_lost_cut_or_swapped_are_named() {
    let (files, _) = database();
    let layers = names(&files, "layer-");
    for layer in &layers {
        let mut lost = files.clone();
        lost.retain(|(name, _)| name != layer);
        refused(&lost, &[layer, "does not exist"]);
        for length in [0, 63, 64, 130] {
            let mut cut = files.clone();
            bytes(&mut cut, layer).truncate(length);
            refused(&cut, &[layer, "as long as"]);
        }
        let mut longer = files.clone();
        bytes(&mut longer, layer).push(0);
        refused(&longer, &[layer, "as long as"]);
    }
    let mut swapped = files.clone();
    for (name, _) in &mut swapped {
        if let Some(at) = layers.iter().position(|layer| layer == name) {
            *name = layers[1 - at].clone();
        }
    }
    refused(&swapped, &["layer-"]);
}

#[test]
fn without_the_manifest_or_the_log_it_needs_there_is_no_database() {
    let (files, _) = database();
    let mut lost = files.clone();
    lost.retain(|(name, _)| name != "checkpoint");
    refused(&lost, &["missing"]);
    let mut lost = files.clone();
    lost.retain(|(name, _)| !name.starts_with("log-"));
    refused(&lost, &["missing"]);
    // A last segment that ends before the checkpoint LSN: the position at which restart begins is
    // gone.
    let last = names(&files, "log-").pop().unwrap();
    let mut short = files;
    bytes(&mut short, &last).truncate(4_100);
    refused(&short, &[&last]);
}

#[test]
fn stale_and_foreign_files_are_not_taken_for_ours() {
    let (files, older) = database();
    // An earlier manifest names layers that are gone.
    let mut stale = files.clone();
    *bytes(&mut stale, "checkpoint") = bytes(&mut older.clone(), "checkpoint").clone();
    match open(&stale) {
        Ok(rows) => assert_eq!(rows, expected()),
        Err(error) => assert_eq!(error.code(), "damaged"),
    }
    let (other, _) = database();
    for name in ["checkpoint".to_owned()]
        .into_iter()
        .chain(names(&files, "layer-"))
    {
        let mut foreign = files.clone();
        *bytes(&mut foreign, &name) = bytes(&mut other.clone(), &name).clone();
        refused(&foreign, &[&name]);
    }
    // Files of an interrupted checkpoint do no harm.
    let mut leftover = files;
    let layer = names(&leftover, "layer-")[0].clone();
    let bytes = bytes(&mut leftover, &layer).clone();
    leftover.push(("layer-00000000000000ff".to_owned(), bytes));
    leftover.push(("checkpoint.new".to_owned(), vec![1; 100]));
    assert_eq!(open(&leftover).unwrap(), expected());
}
