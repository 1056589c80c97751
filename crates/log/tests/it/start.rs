//! Logs whose beginning is not needed any more: reading from a position in the middle, removing
//! earlier segments, reading durable records. The error when something needed is missing.

use std::sync::Arc;

use foxton_log::device::Device;
use foxton_log::device::disk::Damage as PowerCut;
use foxton_log::device::fault::FaultDevice;
use foxton_log::device::memory::MemoryDevice;
use foxton_log::format::segment;
use foxton_log::read::durable_reader::DurableReader;
use foxton_log::read::reader;
use foxton_log::{CorruptionKind, Log, LogEnd, Lsn, OpenError, Start};
use foxton_sync::worker::{Worker, Workers};

use crate::support::{Entry, IDENTITY, Refused, open, options, read};

/// Returns a log of several segments, still open, all of it durable.
fn log() -> (FaultDevice, Log, Worker, Vec<Entry>) {
    let device = FaultDevice::new();
    let (log, ..) = open(Arc::new(device.clone())).unwrap();
    let worker = Workers::new().worker();
    let entries = (0..40u8).map(|number| {
        let payload = vec![number; 700];
        let end = log.insert(&worker, 3, &[&payload]).unwrap();
        log.wait_durable(&worker, end).unwrap();
        Entry {
            end,
            kind: 3,
            payload,
        }
    });
    let entries = entries.collect();
    (device, log, worker, entries)
}

fn read_from(device: &dyn Device, start: Start) -> Result<Vec<Entry>, Refused> {
    let mut found = Vec::new();
    reader::read(device, &IDENTITY, start, &mut |record| {
        found.push(Entry {
            end: record.end,
            kind: record.kind,
            payload: record.payload.to_vec(),
        });
        Ok(())
    })?;
    Ok(found)
}

fn at(lsn: Lsn) -> Start {
    Start {
        from: lsn,
        durable: lsn,
    }
}

fn segments(device: &dyn Device) -> Vec<Lsn> {
    let names = device.list().unwrap();
    let mut firsts: Vec<Lsn> = names
        .iter()
        .filter_map(|name| segment::first_of(name))
        .collect();
    firsts.sort_unstable();
    firsts
}

/// For every position of the closing record: within a segment, at its end, and across two of them.
#[test]
fn a_log_that_is_opened_and_closed_again_is_what_it_was_wherever_the_power_goes() {
    let first = |payload: &[u8]| {
        let device = Arc::new(MemoryDevice::new());
        let (log, ..) = open(device.clone()).unwrap();
        let worker = Workers::new().worker();
        log.insert(&worker, 3, &[payload]).unwrap();
        log.close(&worker).unwrap();
        device
    };
    let capacity = (options().segment_bytes - segment::HEADER_BYTES) as usize;
    let mut spanned = 0;
    for length in (0..200)
        .step_by(40)
        .chain((capacity - 96..capacity).step_by(8))
    {
        let was = first(&vec![7; length]);
        let (summary, entries) = read(&*was).unwrap();
        let is_within = |segment: &Lsn| *segment < summary.end && summary.end.since(*segment) < 24;
        spanned += usize::from(segments(&*was).iter().any(is_within));
        let device = FaultDevice::holding(&was);
        device.record();
        for _ in 0..2 {
            let (log, _, found) = open(Arc::new(device.clone())).unwrap();
            assert_eq!(found, entries, "{length}");
            log.close(&Workers::new().worker()).unwrap();
            let now = device.crash(PowerCut::KeepAll, 0);
            assert!(now.files() == was.files(), "{length}: it is another");
        }
        // After a cut at any change, the log has its records and accepts more.
        let recording = device.recording().unwrap();
        for (cut, disk) in recording.disks().enumerate() {
            for damage in PowerCut::ALL {
                if damage.harms_durable() {
                    continue;
                }
                let image = Arc::new(disk.crash(damage, cut as u64));
                let say = format!("{length}, cut at {cut}, {damage:?}");
                let (log, _, found) = open(image.clone()).expect(&say);
                assert_eq!(found, entries, "{say}");
                let worker = Workers::new().worker();
                log.insert(&worker, 4, &[b"more"]).unwrap();
                log.close(&worker).unwrap();
                let (summary, found) = read(&*image).expect(&say);
                assert_eq!((found.len(), summary.ended), (2, LogEnd::Closed), "{say}");
            }
        }
    }
    assert!(spanned > 0, "no closing record lay in two segments");
}

#[test]
fn a_log_is_read_from_any_record_on_and_what_lies_before_may_go() {
    let (device, log, worker, entries) = log();
    log.close(&worker).unwrap();
    for (index, entry) in entries.iter().enumerate() {
        let rest = &entries[index + 1..];
        assert_eq!(read_from(&device, at(entry.end)).unwrap(), rest);
        let copy = FaultDevice::holding(&device.crash(PowerCut::KeepAll, 0));
        segment::remove_before(&copy, entry.end).unwrap();
        assert!(
            segments(&copy)
                .iter()
                .filter(|first| **first <= entry.end)
                .count()
                == 1
        );
        assert_eq!(read_from(&copy, at(entry.end)).unwrap(), rest);
    }
    assert!(segments(&device).len() > 4);
}

#[test]
fn a_log_that_was_not_closed_goes_on_from_any_record() {
    let (device, log, worker, entries) = log();
    for (index, entry) in entries.iter().enumerate() {
        let image = FaultDevice::holding(&device.crash(PowerCut::DropAll, 0));
        segment::remove_before(&image, entry.end).unwrap();
        let reopen = |device: &FaultDevice| {
            let mut found = Vec::new();
            let device = Arc::new(device.clone());
            let mut visit = |record: foxton_log::RecordView<'_>| {
                found.push(record.payload[0]);
                Ok::<(), std::convert::Infallible>(())
            };
            let start = at(entry.end);
            let (log, _) =
                Log::open_from(device, options(), IDENTITY, start, &mut visit, &mut || {
                    Ok(())
                })
                .unwrap();
            (log, found)
        };
        let mut rest: Vec<u8> = (index as u8 + 1..40).collect();
        let (again, found) = reopen(&image);
        assert_eq!(found, rest);
        let end = again.insert(&worker, 3, &[&[99; 3_000]]).unwrap();
        again.wait_durable(&worker, end).unwrap();
        let image = FaultDevice::holding(&image.crash(PowerCut::DropAll, 0));
        rest.push(99);
        assert_eq!(reopen(&image).1, rest);
    }
    drop(log);
}

#[test]
fn the_error_names_what_is_needed_and_missing() {
    let (device, log, worker, entries) = log();
    log.close(&worker).unwrap();
    let from = entries[20].end;
    let needed = segments(&device);
    let holds = needed.partition_point(|first| *first <= from) - 1;
    for (index, first) in needed.iter().enumerate() {
        let copy = FaultDevice::holding(&device.crash(PowerCut::KeepAll, 0));
        copy.remove(&segment::name(*first)).unwrap();
        let found = read_from(&copy, at(from));
        if index < holds {
            assert_eq!(found.unwrap().len(), 19);
        } else if index + 1 < needed.len() {
            let Err(OpenError::Corrupt(corruption)) = found else {
                panic!("{found:?}");
            };
            assert_eq!(corruption.damage, CorruptionKind::Missing);
            assert!(corruption.to_string().contains("missing"), "{corruption}");
        }
    }
    for beyond in [1 << 20, 1 << 40] {
        let found = read_from(&device, at(Lsn::new(beyond)));
        assert!(matches!(found, Err(OpenError::Corrupt(_))), "{found:?}");
    }
}

#[test]
fn a_log_that_ends_before_what_is_known_to_be_durable_is_damaged() {
    let (device, log, _worker, entries) = log();
    drop(log);
    // The last records read as zeros, so the log alone looks as if it ended there.
    let first = *segments(&device).last().unwrap();
    let lost = entries.iter().position(|entry| entry.end > first).unwrap();
    let copy = FaultDevice::holding(&device.crash(PowerCut::KeepAll, 0));
    let file = copy.open(&segment::name(first)).unwrap();
    let behind = segment::HEADER_BYTES + entries[lost].end.since(first);
    let length = file.len().unwrap();
    file.set_len(behind).unwrap();
    file.set_len(length).unwrap();
    let known = |durable| {
        let from = entries[5].end;
        read_from(&copy, Start { from, durable })
    };
    assert_eq!(known(entries[lost].end).unwrap().len(), lost - 5);
    for entry in &entries[lost + 1..] {
        let found = known(entry.end);
        let Err(OpenError::Corrupt(corruption)) = found else {
            panic!("{found:?}");
        };
        assert_eq!(corruption.lsn, entries[lost].end);
    }
}

#[test]
fn a_durable_reader_reads_what_is_durable_and_not_a_byte_more() {
    let (device, log, worker, entries) = log();
    // In the buffer, and not in the files.
    log.insert(&worker, 3, &[&[77; 100]]).unwrap();
    let last = entries.last().unwrap().end;
    for (index, entry) in entries.iter().enumerate() {
        for (until, expected) in [(last, entries.len()), (entry.end, index + 1)] {
            let begin = entries[index / 2].end;
            let mut reader = DurableReader::open(&device, &IDENTITY, begin, until).unwrap();
            for expected in &entries[index / 2 + 1..expected.max(index / 2 + 1)] {
                let record = reader.next().unwrap().unwrap();
                assert_eq!(
                    (record.end, record.payload),
                    (expected.end, &expected.payload[..])
                );
            }
            assert!(reader.next().unwrap().is_none());
        }
        // A record that runs across the end is not returned.
        let until = Lsn::new(entry.end.bytes() - 8);
        let mut reader = DurableReader::open(&device, &IDENTITY, Lsn::ZERO, until).unwrap();
        let mut count = 0;
        while reader.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, index);
    }
}

#[test]
fn a_durable_reader_returns_damage_as_an_error() {
    let (device, _log, _worker, entries) = log();
    let name = segment::name(Lsn::ZERO);
    let file = device.open(&name).unwrap();
    file.write_at(&[1], segment::HEADER_BYTES + 60).unwrap();
    let until = entries.last().unwrap().end;
    let mut reader = DurableReader::open(&device, &IDENTITY, Lsn::ZERO, until).unwrap();
    let told = reader.next().unwrap_err().to_string();
    assert!(told.contains(&name), "{told}");
}
