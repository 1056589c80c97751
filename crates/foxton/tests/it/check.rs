//! `check` reports every changed byte that matters, with its file. A changed byte that it does not
//! report changes nothing, and no contents of a directory make it panic.

use std::sync::Arc;

use foxton::check::{Report, check, check_on};
use foxton::{Database, Options, Table};
use foxton_log::device::Device;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::memory::{Contents, MemoryDevice};

const BULK: Table<u64, [u8]> = Table::new("bulk");
const NAMES: Table<str, (u8, Option<String>)> = Table::new("names");

/// A small closed database: a checkpoint of at least two layers, and a log of several files.
fn filled() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new());
    let mut options = Options::tiny();
    // Only the checkpoints requested below.
    options.checkpoint_log_bytes = 1 << 40;
    let db = Database::open_on(device.clone(), options).unwrap();
    let fill = |from: u64, to: u64| {
        for key in from..to {
            db.run(|tx| {
                tx.put(&BULK, &key, &[key as u8; 400])?;
                tx.put(&NAMES, &key.to_string(), &(7, Some("x".repeat(20))))
            })
            .unwrap();
        }
    };
    fill(0, 120);
    db.checkpoint().unwrap();
    fill(100, 130);
    db.checkpoint().unwrap();
    fill(125, 500);
    drop(db);
    device
}

fn checked(device: &dyn Device) -> Report {
    check_on(device).unwrap()
}

/// Returns all rows, or `None` if the database does not open.
fn content(device: &MemoryDevice) -> Option<impl PartialEq + std::fmt::Debug + use<>> {
    let copy = Arc::new(MemoryDevice::with_files(device.files()));
    let db = Database::open_on(copy, Options::tiny()).ok()?;
    let rows = db.run(|tx| {
        Ok((
            tx.range(&BULK, ..).collect()?,
            tx.range(&NAMES, ..).collect()?,
        ))
    });
    Some(rows.unwrap())
}

#[test]
fn a_whole_database_is_whole_and_nothing_in_it_was_touched() {
    let device = filled();
    let before = device.files();
    let report = checked(&*device);
    assert_eq!(report.findings, []);
    assert_eq!(
        report.tables,
        [("bulk".to_owned(), 500), ("names".to_owned(), 500)]
    );
    assert!(
        report.layers > 0 && report.segments > 1 && report.records > 100,
        "{report:?}"
    );
    assert!(report.log.contains("closed"), "{report:?}");
    assert_eq!(device.files(), before);
}

/// Flips every `step`th byte, one at a time, and checks the outcome.
fn flip(step: u64) -> (u64, u64) {
    let device = filled();
    let whole = content(&device).unwrap();
    let (mut noticed, mut dead) = (0, 0);
    for (name, contents) in device.files() {
        for at in (0..contents.len()).step_by(usize::try_from(step).unwrap()) {
            let file = device.open(&name).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ (1 << (at % 8))], at).unwrap();
            match check_on(&*device) {
                Ok(report) if report.findings.is_empty() => {
                    let after = content(&device);
                    assert_eq!(
                        after.as_ref(),
                        Some(&whole),
                        "byte {at} of {name}, unnoticed"
                    );
                    dead += 1;
                }
                Ok(report) => {
                    // A record may begin in the previous segment.
                    let runs_on = name.starts_with("log-") && at < 4096 + 600;
                    let named = report.findings.iter().any(|finding| {
                        let before = finding.offset.is_none_or(|offset| offset <= at);
                        finding.place == name && before
                            || runs_on && finding.place.starts_with("log-")
                    });
                    assert!(named, "byte {at} of {name}: {:?}", report.findings);
                    noticed += 1;
                }
                // A different version is refused, and the error says so.
                Err(error) => assert_eq!(error.code(), "future_format", "byte {at} of {name}"),
            }
            file.write_at(&byte, at).unwrap();
        }
    }
    (noticed, dead)
}

#[test]
fn a_flipped_byte_is_named_or_changes_nothing() {
    let (noticed, dead) = flip(211);
    assert!(noticed > 300, "{noticed} noticed, {dead} dead");
}

#[test]
#[ignore = "a quarter of a million checks: cargo test --release -p foxton --test it check:: -- --ignored"]
fn every_flipped_byte_is_named_or_changes_nothing() {
    let (noticed, dead) = flip(1);
    println!("{noticed} bytes were noticed when flipped, {dead} changed nothing");
}

#[test]
fn damage_in_several_places_is_named_place_by_place() {
    let device = filled();
    let log: Vec<String> = device
        .files()
        .into_iter()
        .filter_map(|(name, _)| name.starts_with("log-").then_some(name))
        .collect();
    // A full segment, after the checkpoint.
    let last = &log[log.len() - 2];
    let file = device.open(last).unwrap();
    for at in [6_000, 12_000, 20_000] {
        file.write_at(b"damaged", at).unwrap();
    }
    let findings = checked(&*device).findings;
    assert_eq!(findings.len(), 3, "{findings:?}");
    for (finding, near) in findings.iter().zip([6_000, 12_000, 20_000]) {
        let offset = finding.offset.unwrap();
        assert!(
            finding.place == *last && offset <= near && near - offset < 2_000,
            "{finding}"
        );
        assert!(
            finding.what.contains("bytes of log are lost there"),
            "{finding}"
        );
    }
}

#[test]
fn each_damaged_block_of_a_layer_is_named_up_to_a_thousand() {
    // Values as large as a block, so that each row has its own block; all fit into one layer.
    const LARGE: Table<u64, [u8]> = Table::new("large");
    const BLOCK: u64 = 64 << 10;
    const ROWS: u64 = 1_010;
    let device = Arc::new(MemoryDevice::new());
    let db = Database::open_on(device.clone(), Options::default()).unwrap();
    for key in 0..ROWS {
        db.run(|tx| {
            // The last commit makes all of them durable, so the checkpoint contains them.
            if key + 1 < ROWS {
                tx.set_durability(foxton::Durability::None);
            }
            tx.put(&LARGE, &key, &[key as u8; BLOCK as usize])
        })
        .unwrap();
    }
    db.checkpoint().unwrap();
    drop(db);
    let files = device.files().into_iter().map(|(name, _)| name);
    let layer = files.into_iter().find(|name| name.starts_with("layer-"));
    let layer = layer.expect("there is a checkpoint");
    let file = device.open(&layer).unwrap();
    let spoil = |blocks: std::ops::Range<u64>| {
        for block in blocks {
            // Each value is preceded by the headers of block and entry, and the key.
            file.write_at(b"?!", 64 + block * (16 + 19 + BLOCK) + BLOCK / 2)
                .unwrap();
        }
    };
    spoil(3..5);
    spoil(700..701);
    let report = checked(&*device);
    let offsets: Vec<u64> = report.findings.iter().filter_map(|f| f.offset).collect();
    assert_eq!((offsets.len(), report.left_out), (3, 0), "{report:?}");
    assert!(
        offsets.is_sorted_by(|one, two| one + BLOCK <= *two),
        "{offsets:?}"
    );
    assert!(report.findings.iter().all(|found| found.place == layer));
    spoil(0..ROWS);
    let report = checked(&*device);
    let all = report.findings.len() as u64 + report.left_out;
    let told = &report.findings[..1];
    assert_eq!((report.findings.len(), all), (1_000, ROWS), "{told:?}");
}

#[test]
fn missing_swapped_and_foreign_files_are_named() {
    let names = |device: &MemoryDevice| -> Vec<String> {
        device.files().into_iter().map(|(name, _)| name).collect()
    };
    let all = names(&filled());
    for name in all.iter().filter(|name| *name != "foxton") {
        let device = filled();
        device.remove(name).unwrap();
        let findings = checked(&*device).findings;
        // The clean-shutdown mark says nothing that a complete log does not.
        let is_mark = *name == foxton_log::format::clean_shutdown::FILE;
        assert_eq!(findings.is_empty(), is_mark, "{name}: {findings:?}");
    }
    let (device, other) = (filled(), filled());
    let swapped = all
        .iter()
        .filter(|name| name.starts_with("log-"))
        .nth(1)
        .unwrap();
    let foreign: Contents = other
        .files()
        .into_iter()
        .find(|(name, _)| name == swapped)
        .unwrap()
        .1;
    device.remove(swapped).unwrap();
    let mut bytes = vec![0; foreign.len() as usize];
    foreign.read(&mut bytes, 0);
    device.create(swapped).unwrap().write_at(&bytes, 0).unwrap();
    let findings = checked(&*device).findings;
    assert!(
        findings[0].to_string().contains("another database"),
        "{findings:?}"
    );
}

#[test]
fn garbage_is_an_error_or_a_finding_and_never_a_panic() {
    let mut seed = 5u64;
    let mut draw = move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let empty = MemoryDevice::new();
    assert_eq!(check_on(&empty).unwrap_err().code(), "not_a_database");
    for round in 0..60 {
        let device = filled();
        for (name, contents) in device.files() {
            if draw() % 3 > 0 {
                continue;
            }
            let file = device.open(&name).unwrap();
            match draw() % 3 {
                0 => file.set_len(draw() % (contents.len() + 1)).unwrap(),
                1 => file.set_len(contents.len() + draw() % 10_000).unwrap(),
                _ => {
                    let bytes: Vec<u8> = (0..draw() % 3_000).map(|_| draw() as u8).collect();
                    file.write_at(&bytes, draw() % contents.len()).unwrap();
                }
            }
        }
        let _ = check_on(&*device).map(|report| assert!(report.findings.len() < 2_000, "{round}"));
    }
}

/// The label of a backup does not match its files, so it cannot be restored.
#[test]
fn a_backup_that_cannot_be_restored_is_found_to_be_damaged() {
    let db = Database::open_on(Arc::new(MemoryDevice::new()), Options::tiny()).unwrap();
    let put = |key: u64| db.run(|tx| tx.put(&BULK, &key, b"1")).unwrap();
    let backup = || {
        let made = Arc::new(MemoryDevice::new());
        let target: Arc<dyn Device> = made.clone();
        db.backup_on(&target, &mut |_, _| {}).unwrap();
        made
    };
    put(1);
    let first = backup();
    put(2);
    let later = backup();
    db.checkpoint().unwrap();
    let checkpointed = backup();
    // The log ends before the label's end, or the checkpoint has another LSN.
    for (of, label, place) in [
        (&first, &later, "log-0000000000000000"),
        (&later, &checkpointed, "backup"),
    ] {
        let files = |from: &MemoryDevice, is_label: bool| {
            let files = from.files().into_iter();
            files.filter(move |(name, _)| (name == "backup") == is_label)
        };
        let all = files(of, false).chain(files(label, true));
        let mixed = MemoryDevice::with_files(all.filter(|(name, _)| name != "closed"));
        let report = checked(&mixed);
        assert!(report.is_backup);
        assert_eq!(report.findings[0].place, place, "{report:?}");
        let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let restored = foxton::backup::restore_between(&mixed, &target, None, &mut |_, _| {});
        assert_eq!(restored.unwrap_err().code(), "damaged");
    }
}

#[test]
fn a_failed_call_of_a_check_does_not_advise_to_reopen() {
    let device = FaultDevice::holding(&filled());
    for call in [Call::List, Call::Open, Call::Read] {
        let before = device.calls(call);
        check_on(&device).unwrap();
        for nth in (1..=device.calls(call) - before).step_by(7) {
            device.fail(call, nth, Times::Once, std::io::ErrorKind::Other);
            let error = check_on(&device).expect_err("a call failed");
            assert_eq!(error.code(), "io", "{call:?} {nth}");
            let text = error.to_string();
            let words = text.contains("try again") && !text.contains("open the database");
            assert!(words, "{call:?} {nth}: {text}");
        }
    }
}

#[test]
fn a_database_that_is_open_or_not_there_is_not_checked() {
    let scratch = std::env::temp_dir().join(format!("foxton-check-test-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&scratch);
    std::fs::create_dir(&scratch).unwrap();
    let path = scratch.join("db");
    let code = |path: &std::path::Path| check(path).map(|_| "").map_err(|error| error.code());
    assert_eq!(code(&path), Err("not_a_database"));
    assert_eq!(code(&scratch), Err("not_a_database"));
    let db = Database::open(&path).unwrap();
    db.run(|tx| tx.put(&BULK, &1, b"1")).unwrap();
    assert_eq!(code(&path), Err("in_use"));
    db.backup_to(scratch.join("backup")).unwrap();
    let report = check(scratch.join("backup")).unwrap();
    assert!(report.is_backup && report.findings.is_empty(), "{report:?}");
    drop(db);
    assert_eq!(code(&path), Ok(""));
    std::fs::remove_dir_all(&scratch).unwrap();
}
