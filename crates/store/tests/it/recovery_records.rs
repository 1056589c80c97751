//! Recovery records read back as they were written. All other bytes are refused, or are exactly
//! those of the record they decode to. In the log, every flipped bit is noticed.

use std::convert::Infallible;
use std::sync::Arc;

use foxton_log::device::Device;
use foxton_log::device::memory::MemoryDevice;
use foxton_log::format::segment;
use foxton_log::read::record_reader::RecordReader;
use foxton_log::{Log, LogOptions, Lsn, RecordView};
use foxton_store::paged::recovery::PageId;
use foxton_store::paged::recovery::record::{
    ChainedChange, CommitTail, Compensation, FIRST_KIND, LAST_KIND, Link, Malformed,
    RecoveryRecord, Update, compensation_bytes,
};
use foxton_store::paged::recovery::tables::{Tables, TransactionEntry, TransactionState};
use foxton_sync::worker::Workers;

const AT: Lsn = Lsn::new(10_000);
const LINK: Link = Link {
    transaction: Lsn::new(1000),
    prev: Lsn::new(5000),
};

fn tables() -> Tables {
    let entry = |last, state| TransactionEntry {
        last: Lsn::new(last),
        undo_next: Some(Lsn::new(last - 8)).filter(|_| state == TransactionState::Active),
        undo_space: 7,
        state,
    };
    Tables {
        transactions: [
            (Lsn::new(0), entry(48, TransactionState::Active)),
            (Lsn::new(64), entry(128, TransactionState::Aborting)),
            (Lsn::new(200), entry(8000, TransactionState::Active)),
        ]
        .into(),
        pages: [
            (PageId(0), Lsn::ZERO),
            (PageId(u64::MAX), Lsn::new(8991)),
            (PageId(7), Lsn::new(16)),
        ]
        .into(),
    }
}

fn change(page: u64, redo: &[u8]) -> ChainedChange<'_> {
    ChainedChange {
        page: PageId(page),
        previous: Lsn::new(4711),
        redo,
    }
}

fn structure(pages: u64) -> RecoveryRecord<'static> {
    let redo = |page: u64| &b"redo of a page"[..page as usize % 12];
    let change = |page| change(page, redo(page));
    RecoveryRecord::Structure((0..pages).map(change).collect())
}

fn records() -> Vec<RecoveryRecord<'static>> {
    let update = Update {
        link: Some(LINK),
        undo_space: 1000,
        reserve: compensation_bytes(5) as u32,
        undo: b"undo!",
        change: change(77, b"and redo"),
    };
    let without_undo = Update {
        reserve: 0,
        undo: b"",
        ..update
    };
    let compensation = Compensation {
        link: LINK,
        undo_space: u64::MAX,
        undo_next: Some(Lsn::new(1000)),
        change: change(u64::MAX, b"back"),
    };
    let last = Compensation {
        undo_next: None,
        ..compensation
    };
    let tail = |changes| {
        let first_part = Lsn::new(3000);
        Some(CommitTail {
            first_part,
            changes,
        })
    };
    vec![
        RecoveryRecord::Update(update),
        RecoveryRecord::Update(Update {
            change: change(77, b""),
            ..update
        }),
        RecoveryRecord::Update(without_undo),
        RecoveryRecord::Update(Update {
            link: None,
            ..update
        }),
        RecoveryRecord::Update(Update {
            link: None,
            ..without_undo
        }),
        RecoveryRecord::Compensation(compensation),
        RecoveryRecord::Compensation(last),
        structure(1),
        structure(3),
        structure(6),
        RecoveryRecord::Commit(LINK, None),
        RecoveryRecord::Commit(LINK, tail(b"")),
        RecoveryRecord::Commit(LINK, tail(b"changes of rows in memory")),
        RecoveryRecord::Abort(LINK),
        RecoveryRecord::End(LINK),
        RecoveryRecord::CheckpointBegin,
        RecoveryRecord::CheckpointEnd(Lsn::new(9000), tables()),
        RecoveryRecord::CheckpointEnd(Lsn::ZERO, Tables::default()),
    ]
}

fn bytes_of(record: &RecoveryRecord<'_>) -> Vec<u8> {
    let (head, [first, second]) = record.encode();
    [head.as_ref(), first, second].concat()
}

fn decode(lsn: Lsn, kind: u8, payload: &[u8]) -> Result<Option<RecoveryRecord<'_>>, Malformed> {
    let end = lsn.plus(8);
    RecoveryRecord::decode(&RecordView {
        lsn,
        end,
        kind,
        payload,
    })
}

/// Accepted bytes encode to themselves, and point backwards.
fn is_faithful(lsn: Lsn, kind: u8, payload: &[u8]) {
    let Ok(Some(record)) = decode(lsn, kind, payload) else {
        return;
    };
    assert_eq!(record.kind(), kind);
    assert_eq!(bytes_of(&record), payload, "kind {kind}");
    if let Some(link) = record.link() {
        assert!(link.transaction <= link.prev && link.prev < lsn);
    }
    for change in record.changes() {
        assert!(change.previous <= lsn);
    }
}

/// True if the last field of the record extends to its end.
fn has_open_end(record: &RecoveryRecord<'_>) -> bool {
    matches!(
        record,
        RecoveryRecord::Update(_)
            | RecoveryRecord::Compensation(_)
            | RecoveryRecord::Commit(_, Some(_))
    )
}

#[test]
fn every_record_reads_back_and_no_shorter_or_longer_one_does() {
    for record in records() {
        let (kind, bytes) = (record.kind(), bytes_of(&record));
        assert_eq!(decode(AT, kind, &bytes), Ok(Some(record.clone())));
        for cut in 0..bytes.len() {
            match decode(AT, kind, &bytes[..cut]) {
                Err(_) => {}
                // Redo, a tail, and the pages of a structure modification extend to the end of the
                // record, so a shorter one may be another record, and not this one.
                Ok(other) => {
                    assert_ne!(other, Some(record.clone()));
                    is_faithful(AT, kind, &bytes[..cut]);
                    let is_open = has_open_end(&record);
                    let is_structure = matches!(record, RecoveryRecord::Structure(_));
                    assert!(
                        is_structure || is_open && bytes.len() - cut <= 33,
                        "{record:?}"
                    );
                }
            }
        }
        let longer = [&bytes[..], &[0]].concat();
        let is_other = has_open_end(&record);
        assert_eq!(decode(AT, kind, &longer).is_err(), !is_other, "{record:?}");
    }
}

#[test]
fn flipped_bits_are_refused_or_are_another_record() {
    for record in records() {
        let bytes = bytes_of(&record);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            for kind in FIRST_KIND..=LAST_KIND {
                is_faithful(AT, kind, &flipped);
            }
        }
    }
}

#[test]
fn random_bytes_are_refused_or_are_a_record() {
    let mut state = 1_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let records = records();
    for _ in 0..100_000 {
        let mut bytes = bytes_of(&records[random() % records.len()]);
        for _ in 0..random() % 4 {
            let at = random() % (bytes.len() + 1);
            bytes.insert(at, [0, 1, 255, random() as u8][random() % 4]);
        }
        for _ in 0..random() % 4 {
            if !bytes.is_empty() {
                let at = random() % bytes.len();
                bytes[at] = [0, 1, 255, random() as u8][random() % 4];
            }
        }
        bytes.truncate(random() % (bytes.len() + 1) + bytes.len() / 2);
        let kind = FIRST_KIND + (random() % 9) as u8;
        is_faithful(Lsn::new((random() % 20_000) as u64), kind, &bytes);
    }
}

#[test]
fn a_record_that_points_forwards_or_reserves_too_little_is_refused() {
    let update = Update {
        link: Some(LINK),
        undo_space: 1000,
        reserve: compensation_bytes(4) as u32,
        undo: b"back",
        change: change(1, b""),
    };
    let refused = |record: &RecoveryRecord<'_>| {
        let bytes = bytes_of(record);
        let decoded = decode(AT, record.kind(), &bytes);
        assert!(decoded.is_err(), "{record:?}");
    };
    let link = |transaction, prev| Link {
        transaction: Lsn::new(transaction),
        prev: Lsn::new(prev),
    };
    refused(&RecoveryRecord::Commit(link(1000, 10_000), None));
    refused(&RecoveryRecord::End(link(1001, 1000)));
    let reserve = update.reserve - 8;
    refused(&RecoveryRecord::Update(Update { reserve, ..update }));
    refused(&RecoveryRecord::Update(Update {
        reserve: 0,
        ..update
    }));
    refused(&RecoveryRecord::Update(Update {
        undo_space: 1,
        ..update
    }));
    let late = ChainedChange {
        previous: AT.plus(1),
        ..change(1, b"")
    };
    refused(&RecoveryRecord::Update(Update {
        change: late,
        ..update
    }));
    refused(&RecoveryRecord::Structure([late].into_iter().collect()));
    for undo_next in [999, 5001] {
        refused(&RecoveryRecord::Compensation(Compensation {
            link: LINK,
            undo_space: 0,
            undo_next: Some(Lsn::new(undo_next)),
            change: change(1, b""),
        }));
    }
    let late = CommitTail {
        first_part: AT.plus(1),
        changes: b"",
    };
    refused(&RecoveryRecord::Commit(LINK, Some(late)));
    refused(&RecoveryRecord::CheckpointEnd(AT, Tables::default()));
    let mut late = tables();
    late.pages.insert(PageId(3), Lsn::new(9000));
    refused(&RecoveryRecord::CheckpointEnd(Lsn::new(9000), late));
}

#[test]
fn a_structure_modification_has_one_to_six_different_pages() {
    let decoded = |record: &RecoveryRecord<'_>| {
        let bytes = bytes_of(record);
        decode(AT, record.kind(), &bytes).is_ok()
    };
    for pages in 0..9 {
        assert_eq!(decoded(&structure(pages)), (1..=6).contains(&pages));
    }
    let twice = [change(5, b"a"), change(6, b"b"), change(5, b"c")];
    assert!(!decoded(&RecoveryRecord::Structure(
        twice.into_iter().collect()
    )));
}

#[test]
fn in_the_log_every_flipped_bit_is_noticed() {
    let device = Arc::new(MemoryDevice::new());
    let worker = Workers::new().worker();
    let identity = [3; 16];
    let mut visit = |_: RecordView<'_>| Ok::<_, Infallible>(());
    let (log, _) =
        Log::open(device.clone(), LogOptions::tiny(), identity, &mut visit).expect("a new log");
    // Far enough for the positions that the records name.
    log.insert(&worker, 1, &[&[0; 12_000]]).expect("a record");
    let records = records();
    let places = records.iter().map(|record| {
        let place = record.insert(&log, &worker).expect("a record");
        assert_eq!(place.end.since(place.begin), record.log_bytes());
        place
    });
    let places: Vec<_> = places.collect();
    let end = places.last().expect("records").end;
    log.wait_written(&worker, end).expect("it is written");

    let names = device.list().expect("names");
    let home = |lsn: Lsn| {
        let firsts = names.iter().filter_map(|name| segment::first_of(name));
        let first = firsts
            .filter(|first| *first <= lsn)
            .max()
            .expect("a segment");
        let file = device.open(&segment::name(first)).expect("a segment");
        (file, segment::HEADER_BYTES + lsn.since(first))
    };
    let fetch = |lsn| {
        let mut fetcher =
            RecordReader::open(&*device, &identity, Lsn::ZERO, end).expect("it is there");
        let view = fetcher.record(lsn);
        view.map(|view| RecoveryRecord::decode(&view) == Ok(None))
            .is_ok()
    };
    for (record, place) in records.iter().zip(&places) {
        assert!(fetch(place.begin), "{record:?}");
        for at in place.begin.bytes()..place.end.bytes() {
            let (file, offset) = home(Lsn::new(at));
            let mut byte = [0];
            file.read_at(&mut byte, offset).expect("a byte");
            let flipped = byte[0] ^ (1 << (at % 8));
            file.write_at(&[flipped], offset).expect("a byte");
            assert!(!fetch(place.begin), "{record:?}, byte {at}");
            file.write_at(&byte, offset).expect("a byte");
        }
    }
}
