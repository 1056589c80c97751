//! Single records are found by their LSN, in any order, across segments, while the log is written.
//! An LSN without a record, and a record that is damaged or gone, give an error.

use std::convert::Infallible;
use std::sync::Arc;

use foxton_log::device::Device;
use foxton_log::device::memory::MemoryDevice;
use foxton_log::format::record::framed_bytes;
use foxton_log::format::segment;
use foxton_log::read::record_reader::RecordReader;
use foxton_log::{Log, LogOptions, Lsn};
use foxton_sync::worker::{Worker, Workers};

const IDENTITY: [u8; 16] = [7; 16];

/// Returns a log of many segments, and where each record begins and ends.
fn log_of(count: usize) -> (Arc<MemoryDevice>, Log, Worker, Vec<(Lsn, Lsn)>) {
    let device = Arc::new(MemoryDevice::new());
    let worker = Workers::new().worker();
    let mut visit = |_: foxton_log::RecordView<'_>| Ok::<_, Infallible>(());
    let (log, _) =
        Log::open(device.clone(), LogOptions::tiny(), IDENTITY, &mut visit).expect("a new log");
    let places = (0..count).map(|n| {
        let payload = vec![n as u8; n * 37 % 900];
        let end = log.insert(&worker, 9, &[&payload]).expect("a record");
        let begin = Lsn::new(end.bytes() - framed_bytes(payload.len()));
        (begin, end)
    });
    let places: Vec<_> = places.collect();
    log.wait_written(&worker, places[count - 1].1)
        .expect("it is written");
    (device, log, worker, places)
}

#[test]
fn records_are_found_backwards_and_forwards_and_at_random() {
    let (device, _log, _worker, places) = log_of(300);
    let end = places[299].1;
    let mut reader =
        RecordReader::open(&*device, &IDENTITY, Lsn::ZERO, end).expect("it is written");
    let backwards = (0..300).rev();
    let forwards = 0..300;
    let random = (0..300).map(|n| n * 7919 % 300);
    for n in backwards.chain(forwards).chain(random) {
        let record = reader.record(places[n].0).expect("a record");
        assert_eq!((record.lsn, record.end), places[n]);
        assert_eq!(record.payload, vec![n as u8; n * 37 % 900]);
    }
}

#[test]
fn an_lsn_without_a_record_is_an_error() {
    let (device, _log, _worker, places) = log_of(100);
    let end = places[98].1;
    let mut reader =
        RecordReader::open(&*device, &IDENTITY, Lsn::ZERO, end).expect("it is written");
    assert!(reader.record(places[97].0).is_ok());
    for lsn in [places[50].0.plus(8), places[50].0.plus(3), end, Lsn::MAX] {
        assert!(reader.record(lsn).is_err(), "{lsn}");
    }
}

#[test]
fn a_removed_or_damaged_record_is_an_error_and_the_others_are_found() {
    let (device, _log, _worker, places) = log_of(300);
    let end = places[299].1;
    let removed = segment::remove_before(&*device, places[150].0).expect("segments");
    assert!(removed > 1);
    let mut reader = RecordReader::open(&*device, &IDENTITY, places[150].0, end).expect("the rest");
    assert!(reader.record(places[299].0).is_ok());
    assert!(reader.record(places[150].0).is_ok());
    assert!(reader.record(places[0].0).is_err());
    assert!(RecordReader::open(&*device, &IDENTITY, places[0].0, end).is_err());

    let mut names = device.list().expect("names");
    names.retain(|name| segment::first_of(name).is_some());
    names.sort();
    let file = device.open(&names[2]).expect("a segment");
    let mut byte = [0];
    file.read_at(&mut byte, 5000).expect("a byte");
    file.write_at(&[byte[0] ^ 1], 5000).expect("a byte");
    let mut reader = RecordReader::open(&*device, &IDENTITY, places[150].0, end).expect("the rest");
    let bad = places[150..]
        .iter()
        .filter(|(begin, _)| reader.record(*begin).is_err());
    assert_eq!(bad.count(), 1);
}
