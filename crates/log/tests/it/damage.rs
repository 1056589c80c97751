//! Damage to a log that is not open: flipped bits, lost and swapped pieces, foreign and stale
//! files.
//!
//! A log that was closed is damaged in every byte, one at a time, and in coarser ways. Reading it
//! must give an error with the position of the damage, or all records, where the damage was to
//! nothing that matters. It must never give a wrong record, silently fewer records, or a panic.

use std::sync::Arc;

use foxton_log::device::memory::{Contents, MemoryDevice};
use foxton_log::format::clean_shutdown;
use foxton_log::{CorruptionKind, Log, LogEnd, LogOptions, OpenError};
use foxton_sync::worker::Workers;

use crate::support::{self, Entry, IDENTITY, Random, Refused, open, open_as, read};

type Files = Vec<(String, Vec<u8>)>;

/// Returns a log of four segments, and its records.
fn log(close: bool) -> (Files, Vec<Entry>) {
    log_of(IDENTITY, 2, close)
}

fn log_of(identity: [u8; 16], seed: u64, close: bool) -> (Files, Vec<Entry>) {
    let device = Arc::new(MemoryDevice::new());
    let worker = Workers::new().worker();
    let (log, ..) = open_as(device.clone(), support::options(), identity).unwrap();
    let mut random = Random(seed);
    let mut inserted = Vec::new();
    for _ in 0..30 {
        let length = random.below(800);
        let payload = random.bytes(length);
        let end = log.insert(&worker, 3, &[&payload]).unwrap();
        log.wait_durable(&worker, end).unwrap();
        inserted.push(Entry {
            end,
            kind: 3,
            payload,
        });
    }
    if close {
        log.close(&worker).unwrap();
        (files(&device), inserted)
    } else {
        (files(&device), inserted)
    }
}

/// Returns the segments in order, and then the file `closed`.
fn files(device: &MemoryDevice) -> Files {
    let bytes = |contents: Contents| {
        let mut bytes = vec![0; contents.len() as usize];
        contents.read(&mut bytes, 0);
        bytes
    };
    let mut files: Files = device
        .files()
        .into_iter()
        .map(|(name, contents)| (name, bytes(contents)))
        .collect();
    files.sort_by_key(|(name, _)| name == clean_shutdown::FILE);
    files
}

fn device(files: Files) -> MemoryDevice {
    MemoryDevice::with_files(files.into_iter().map(|(name, bytes)| (name, bytes.into())))
}

/// Returns the files without the file `closed`.
fn segments(mut files: Files) -> Files {
    assert_eq!(files.pop().unwrap().0, clean_shutdown::FILE);
    files
}

/// Reads a damaged log and returns the error; panics if the records found are wrong.
fn read_damaged(files: Files, inserted: &[Entry], what: &str) -> Option<Refused> {
    match read(&device(files)) {
        Ok((summary, found)) => {
            assert_eq!(found, inserted, "{what}: {summary}");
            None
        }
        Err(error) => Some(error),
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_closed_log_is_an_error_or_does_no_harm() {
    let (files, inserted) = log(true);
    assert!(files.len() >= 3);
    let (mut errors, mut harmless) = (0, 0);
    for index in 0..files.len() {
        for at in 0..files[index].1.len() {
            let mut flipped = files.clone();
            flipped[index].1[at] ^= 1 << (at % 8);
            let what = format!("bit {} of byte {at} of {}", at % 8, files[index].0);
            match read_damaged(flipped, &inserted, &what) {
                Some(OpenError::Corrupt(_)) => errors += 1,
                Some(other) => panic!("{what}: {other}"),
                None => harmless += 1,
            }
        }
    }
    println!("{errors} errors, {harmless} harmless");
    // Damage is harmless to the closing record alone, and to the file `closed` alone.
    assert_eq!(harmless, 24 + files.last().unwrap().1.len());
}

#[test]
fn a_flip_in_the_last_record_of_a_closed_log_is_told_from_a_torn_end() {
    let (mut files, inserted) = log(true);
    let place = inserted.last().unwrap().end.bytes() as usize - 9;
    files[place / 4096].1[4096 + place % 4096] ^= 4;
    let error = read_damaged(files, &inserted, "the last record").expect("an error");
    let OpenError::Corrupt(corruption) = &error else {
        panic!("{error}")
    };
    assert_eq!(corruption.lsn, inserted[inserted.len() - 2].end);
    let text = error.to_string();
    assert!(
        text.contains("although it had been written and synced"),
        "{text}"
    );
    assert!(
        text.contains("Restore the database from a backup"),
        "{text}"
    );
}

#[test]
fn a_flipped_bit_in_a_log_that_was_not_closed_never_gives_wrong_records() {
    let (files, inserted) = log(false);
    let mut shortest = inserted.len();
    for index in 0..files.len() {
        for at in (0..files[index].1.len()).step_by(3) {
            let mut flipped = files.clone();
            flipped[index].1[at] ^= 1 << (at % 8);
            if let Ok((summary, found)) = read(&device(flipped)) {
                assert_eq!(found, inserted[..found.len()], "byte {at}: {summary}");
                shortest = shortest.min(found.len());
            }
        }
    }
    // Each record says that the one before it was durable; no record says it of the last one.
    assert_eq!(shortest, inserted.len() - 1);
}

/// When these were inserted, nothing was known to be durable, so no record vouches for another. But
/// a segment is created only when the one before it is durable.
#[test]
fn a_flipped_bit_in_a_segment_that_has_a_successor_is_damage_whatever_its_records_say() {
    let device = Arc::new(MemoryDevice::new());
    let worker = Workers::new().worker();
    let mut options = support::options();
    options.buffer_bytes = 64 << 10;
    let (log, ..) = open_as(device.clone(), options, IDENTITY).unwrap();
    for _ in 0..60 {
        log.insert(&worker, 1, &[&[5; 150]]).unwrap();
    }
    log.wait_written(&worker, log.end(&worker)).unwrap();
    let files = files(&device);
    std::mem::forget(log);
    for at in 0..4096 - 176 {
        let mut flipped = files.clone();
        flipped[0].1[4096 + at] ^= 2;
        assert!(
            matches!(read(&self::device(flipped)), Err(OpenError::Corrupt(_))),
            "byte {at}"
        );
    }
    let mut torn = segments(files);
    torn.last_mut().unwrap().1[4096 + 500] ^= 2;
    assert!(matches!(
        read(&self::device(torn)).unwrap().0.ended,
        LogEnd::Torn(_)
    ));
}

#[test]
fn a_lost_segment_is_missed() {
    let (files, inserted) = log(true);
    for index in 0..files.len() - 2 {
        let mut lost = files.clone();
        let (name, _) = lost.remove(index);
        let error = read_damaged(lost, &inserted, &name).expect("an error");
        let OpenError::Corrupt(corruption) = &error else {
            panic!("{error}")
        };
        assert_eq!(
            (corruption.damage, &corruption.file),
            (CorruptionKind::Missing, &name)
        );
    }
}

#[test]
fn segments_lost_from_the_end_are_missed_as_long_as_the_mark_is_there() {
    let (files, inserted) = log(true);
    let segments = segments(files.clone());
    for kept in 0..segments.len() {
        let mut lost = files.clone();
        lost.drain(kept..segments.len());
        let error = read_damaged(lost.clone(), &inserted, "the last").expect("an error");
        assert!(matches!(error, OpenError::Corrupt(_)), "{kept}: {error}");
        lost.pop();
        let (summary, found) = read(&device(lost)).unwrap();
        assert_eq!(found, inserted[..found.len()]);
        assert_ne!(summary.ended, LogEnd::Closed);
    }
    let (summary, found) = read(&device(segments)).unwrap();
    assert_eq!((found, summary.ended), (inserted, LogEnd::Closed));
}

#[test]
fn segments_that_changed_places_are_refused() {
    let (mut files, inserted) = log(true);
    let (first, second) = (files[0].1.clone(), files[1].1.clone());
    files[0].1 = second;
    files[1].1 = first;
    let error = read_damaged(files, &inserted, "swapped").expect("an error");
    assert!(matches!(error, OpenError::Corrupt(_)), "{error}");
}

#[test]
fn sectors_that_changed_places_are_refused() {
    let (files, inserted) = log(true);
    let mut random = Random(5);
    for round in 0..300 {
        let mut swapped = files.clone();
        let bytes = &mut swapped[random.below(2)].1;
        let sectors = bytes.len() / 512;
        let (left, right) = (random.below(sectors) * 512, random.below(sectors) * 512);
        for at in 0..512 {
            bytes.swap(left + at, right + at);
        }
        // Two sectors of zeros in the header may be swapped.
        if bytes == &files[0].1 || bytes == &files[1].1 {
            continue;
        }
        let error = read_damaged(swapped, &inserted, "swapped sectors");
        assert!(
            matches!(error, Some(OpenError::Corrupt(_))),
            "round {round}"
        );
    }
}

#[test]
fn a_shortened_segment_is_noticed_unless_only_the_closing_record_is_gone() {
    let (files, inserted) = log(true);
    let last = files.len() - 2;
    for index in 0..=last {
        let length = files[index].1.len();
        let is_last = index == last;
        for keep in (0..length).rev().step_by(if is_last { 1 } else { 97 }) {
            let mut short = files.clone();
            short[index].1.truncate(keep);
            match read(&device(short)) {
                Ok((summary, found)) if is_last && keep + 24 >= length => {
                    assert_eq!(found, inserted);
                    assert_ne!(summary.ended, LogEnd::Closed);
                }
                Ok((summary, _)) => panic!("segment {index} cut at {keep}: {summary}"),
                Err(error) => assert!(matches!(error, OpenError::Corrupt(_)), "{error}"),
            }
        }
    }
}

#[test]
fn a_segment_of_another_database_is_refused_by_name() {
    let (mut files, inserted) = log(true);
    let (foreign, _) = log_of([9; 16], 2, true);
    files[1].1 = foreign[1].1.clone();
    let error = read_damaged(files, &inserted, "foreign").expect("an error");
    assert!(
        matches!(&error, OpenError::Foreign { file } if *file == foreign[1].0),
        "{error}"
    );
}

#[test]
fn records_of_another_database_under_our_header_are_refused() {
    let (mut files, _) = log(true);
    let (foreign, _) = log_of([9; 16], 2, true);
    files[0].1[4096..].copy_from_slice(&foreign[0].1[4096..]);
    assert!(matches!(read(&device(files)), Err(OpenError::Corrupt(_))));
}

#[test]
fn a_newer_format_is_named() {
    let (mut files, inserted) = log(true);
    let header = &mut files[1].1[..4096];
    header[8] = 2;
    let check = crc32c::crc32c(&header[..4092]).to_le_bytes();
    header[4092..].copy_from_slice(&check);
    let error = read_damaged(files, &inserted, "newer").expect("an error");
    assert!(
        error
            .to_string()
            .contains("format 2, which only a newer version can read"),
        "{error}"
    );
}

#[test]
fn a_damaged_log_is_not_touched_by_opening_it() {
    let (mut files_, inserted) = log(true);
    files_[1].1[5000] ^= 1;
    let damaged = Arc::new(device(files_.clone()));
    assert!(open(damaged.clone()).is_err());
    assert_eq!(files(&damaged), files_);
    drop(inserted);
}

/// A forger can compute checksums. A false length is refused before any memory is allocated for it,
/// and every search ends.
#[test]
fn garbage_and_forged_lengths_cost_no_memory_and_end() {
    let (files, inserted) = log(true);
    let mut random = Random(11);
    for round in 0..200 {
        let mut garbage = files.clone();
        let index = random.below(files.len());
        let bytes = &mut garbage[index].1;
        let from = 4096 + random.below(bytes.len() - 4096);
        for byte in &mut bytes[from..] {
            *byte = random.draw() as u8;
        }
        if let Ok((summary, found)) = read(&device(garbage)) {
            assert_eq!(found, inserted[..found.len()], "round {round}: {summary}");
        }
    }
    // A header with a good checksum and a length far beyond the file.
    let mut forged = files.clone();
    let mut header = [0_u8; 24];
    header[4..8].copy_from_slice(&(200_u32 << 20).to_le_bytes());
    header[12] = 1;
    let mut check = crc32c::crc32c(&IDENTITY);
    check = crc32c::crc32c_append(check, &0_u64.to_le_bytes());
    check = crc32c::crc32c_append(check, &header[4..]);
    header[..4].copy_from_slice(&check.to_le_bytes());
    forged[0].1[4096..4120].copy_from_slice(&header);
    assert!(read(&device(forged)).is_err(), "later records knew better");
    let mut alone = vec![files[0].clone()];
    alone[0].1[4096..4120].copy_from_slice(&header);
    alone[0].1[4120..].fill(0);
    let (summary, found) = read(&device(alone)).unwrap();
    assert!(found.is_empty());
    assert!(
        summary
            .to_string()
            .contains("the file ends before the record does"),
        "{summary}"
    );
}

#[test]
fn opening_again_and_again_changes_nothing() {
    for close in [true, false] {
        let (files_, inserted) = log(close);
        let image = Arc::new(device(files_));
        for _ in 0..3 {
            // The log is left without being closed.
            let (log, _, found) = open(image.clone()).unwrap();
            assert_eq!(found, inserted);
            std::mem::forget(log);
        }
        let before = files(&image);
        let (log, opened, _): (Log, _, _) =
            open_as(image.clone(), LogOptions::tiny(), IDENTITY).unwrap();
        assert_eq!(opened.summary.records, inserted.len() as u64);
        std::mem::forget(log);
        assert_eq!(files(&image), before);
    }
}
