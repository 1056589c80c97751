//! The log of a database, for pages: the clauses W1 to W5 of `page_log`.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::sync::Arc;

use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::{Log, LogOptions, Lsn};
use foxton_store::paged::PageId;
use foxton_store::paged::btree::TreeError;
use foxton_store::paged::page::PageOperation;
use foxton_store::paged::page_log::{
    LogSpace, LoggedChange, LoggedRow, PageEntry, PageLog, PageRecord, RecoveryLog, RowBefore,
    RowUndo,
};
use foxton_store::paged::recovery::record::RecoveryRecord;
use foxton_store::paged::recovery::{
    Analysis, PageTransaction, Recovery, RestartOptions, WriteError,
};
use foxton_sync::worker::{Worker, Workers};

const IDENTITY: [u8; 16] = [9; 16];

fn open(device: &FaultDevice, limit: Lsn) -> (Arc<Recovery>, RecoveryLog, Worker) {
    let worker = Workers::new().worker();
    let mut analysis = Analysis::begin::<TreeError>(device, &IDENTITY, None).expect("empty");
    let directory: Arc<FaultDevice> = Arc::new(device.clone());
    let (log, _) = Log::open(
        directory.clone(),
        LogOptions::tiny(),
        IDENTITY,
        &mut |record| analysis.take(record),
    )
    .expect("a new log");
    let mut options = RestartOptions::default();
    options.limit = limit;
    let log = Arc::new(log);
    let recovery = Recovery::new(directory, IDENTITY, log, &worker, &analysis, &options);
    let recovery = Arc::new(recovery);
    (recovery.clone(), RecoveryLog::new(recovery), worker)
}

fn entry(page: u64, previous: Lsn) -> PageEntry<'static> {
    let operation = PageOperation::Replace {
        slot: 3,
        value: b"after",
    };
    PageEntry {
        page: PageId(page),
        previous,
        operation,
    }
}

fn change_row(
    log: &RecoveryLog,
    worker: &Worker,
    transaction: &mut PageTransaction,
) -> Result<LoggedChange, WriteError> {
    let undo = RowUndo {
        table: 5,
        key: b"key",
        before: RowBefore::Value(b"before"),
    };
    let space = LogSpace::reserve(log, worker, 400).expect("an empty buffer");
    let row = LoggedRow {
        entry: &entry(7, Lsn::ZERO),
        transaction: Some((transaction, undo)),
    };
    log.insert(worker, space, PageRecord::Row(row))
}

#[test]
fn rows_and_structures_are_in_the_log_in_order_with_all_that_they_need() {
    let device = FaultDevice::new();
    let (recovery, log, worker) = open(&device, Lsn::MAX);
    let mut transaction = PageTransaction::new();
    let first = change_row(&log, &worker, &mut transaction).expect("space");
    let pages = [
        entry(1, first.end),
        entry(2, Lsn::ZERO),
        entry(9, Lsn::ZERO),
    ];
    let space = LogSpace::reserve(&log, &worker, 400).expect("space");
    let structure = log.insert(&worker, space, PageRecord::Structure(&pages));
    let structure = structure.expect("space");
    let second = change_row(&log, &worker, &mut transaction).expect("space");
    // W5, W3.
    assert!(first.end <= structure.begin && structure.end <= second.begin);
    assert!(log.end(&worker) >= second.end);
    let commit = recovery.commit(&worker, &mut transaction, None);
    let commit = commit.expect("space").expect("it has changed rows");
    // W1.
    log.wait_durable(&worker, commit).expect("memory");
    let image = device.crash(foxton_log::device::disk::Damage::DropAll, 0);

    let mut found = Vec::new();
    let nothing = Log::open(Arc::new(image), LogOptions::tiny(), IDENTITY, &mut |view| {
        match RecoveryRecord::decode(&view).expect("well formed") {
            Some(RecoveryRecord::Update(update)) => {
                let undo = RowUndo::decode(update.undo).expect("an undo");
                assert_eq!((undo.table, undo.before), (5, RowBefore::Value(b"before")));
                let redo = PageOperation::decode(update.change.redo);
                assert_eq!(redo, Some(entry(7, Lsn::ZERO).operation));
                found.push((view.lsn, update.link.map(|link| link.transaction), 1));
            }
            Some(RecoveryRecord::Structure(changes)) => {
                for (change, page) in changes.iter().zip(&pages) {
                    assert_eq!((change.page, change.previous), (page.page, page.previous));
                    let redo = PageOperation::decode(change.redo);
                    assert_eq!(redo.as_ref(), Some(&page.operation));
                }
                found.push((view.lsn, None, changes.len()));
            }
            Some(RecoveryRecord::Commit(link, None)) => {
                found.push((view.lsn, Some(link.transaction), 0));
            }
            other => panic!("{other:?}"),
        }
        Ok::<_, Infallible>(())
    });
    nothing.expect("it opens");
    let name = Some(first.begin);
    let expected = [
        (first.begin, None, 1),
        (structure.begin, None, 3),
        (second.begin, name, 1),
        (second.end, name, 0),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_change_without_space_for_its_undo_is_refused_and_nothing_is_logged() {
    // 88 for the record, 96 for its compensation, 80 for the end of the transaction.
    for bytes in [0, 88, 263, 264] {
        let device = FaultDevice::new();
        let (recovery, log, worker) = open(&device, Lsn::new(bytes));
        let mut transaction = PageTransaction::new();
        let end = log.end(&worker);
        let refused = change_row(&log, &worker, &mut transaction);
        let is_refused = matches!(refused, Err(WriteError::NoLogSpace(_)));
        assert_eq!(is_refused, bytes < 264, "{bytes}: {refused:?}");
        assert_eq!(transaction.has_begun(), !is_refused);
        assert_eq!(log.end(&worker) == end, is_refused);
        if is_refused {
            assert_eq!(recovery.space().free(), bytes);
        }
    }
}

#[test]
fn a_failed_sync_is_final() {
    let device = FaultDevice::new();
    let (_, log, worker) = open(&device, Lsn::MAX);
    let mut transaction = PageTransaction::new();
    let first = change_row(&log, &worker, &mut transaction).expect("space");
    log.wait_durable(&worker, first.end).expect("memory");
    let second = change_row(&log, &worker, &mut transaction).expect("space");
    device.fail(Call::Sync, 1, Times::Once, ErrorKind::Other);
    for _ in 0..3 {
        assert!(log.wait_durable(&worker, second.end).is_err(), "W2");
    }
    assert!(change_row(&log, &worker, &mut transaction).is_err());
    assert!(log.wait_for_space(&worker, 100).is_err());
}
