//! Entries for fuzzers: any bytes, given to everything that reads bytes.
//!
//! Each entry takes any bytes and must return: without a panic, an error without a code, an endless
//! loop, or more memory than the number of bytes justifies. `tests/it/fuzz.rs` calls the entries
//! with the files in `fuzz/corpus`, and with random bytes.

use crate::{
    garble::Script,
    ledger::Scale,
    load,
    mend::{Files, mend, mend_records},
    victim,
};
use foxton::{
    Database, Durability, Table, backup::restore_between, check::check_on, status::Status,
    wait_graph::WaitGraph,
};
use foxton_log::format::segment;
use foxton_log::read::audit::audit;
use foxton_log::read::reader;
use foxton_log::{
    Lsn, RecordView, Start,
    device::{Device, memory::MemoryDevice},
};
use foxton_store::paged::recovery::record::RecoveryRecord;
use std::{convert::Infallible, sync::Arc};

/// Whole databases and backups, to be garbled.
#[derive(Debug)]
pub struct Whole {
    /// Seeds for options, and files.
    databases: Vec<(u64, Files)>,
    backups: Vec<Files>,
}

const BULK: Table<u64, [u8]> = Table::new("bulk");
/// Error codes that name damage to the files.
const CODES: [&str; 4] = ["damaged", "foreign", "future_format", "not_a_database"];

impl Whole {
    /// Fills some: with and without a checkpoint, closed and not, with some transactions in parts.
    ///
    /// # Panics
    ///
    /// If the engine fails.
    pub fn new() -> Whole {
        let mut whole = Whole {
            databases: Vec::new(),
            backups: Vec::new(),
        };
        // Options with checkpoints one after the other, or with none.
        let with = |bytes: u64| {
            let fits = |&seed: &u64| victim::options(seed).checkpoint_log_bytes == bytes;
            (0..).find(fits).expect("one of three is")
        };
        for (seed, closed) in [
            (with(4 << 10), true),
            (with(4 << 10), false),
            (with(u64::MAX), true),
        ] {
            let device = Arc::new(MemoryDevice::new());
            let db = Database::open_on(device.clone(), victim::options(seed));
            let db = db.expect("an empty device is opened");
            fill(&db, seed).expect("nothing fails");
            if closed {
                let target = Arc::new(MemoryDevice::new());
                db.backup_on(&(target.clone() as Arc<dyn Device>), &mut |_, _| {})
                    .expect("nothing fails");
                whole.backups.push(files(&target));
            }
            let open = files(&device);
            drop(db);
            let files = if closed { files(&device) } else { open };
            whole.databases.push((seed, files));
        }
        whole
    }

    /// Returns the files of the whole databases and backups.
    pub fn all(&self) -> impl Iterator<Item = &Files> {
        let databases = self.databases.iter().map(|(_, files)| files);
        databases.chain(&self.backups)
    }

    /// Garbles the manifest and layers of a checkpoint, and checks the database.
    ///
    /// # Panics
    ///
    /// If the result is neither an error with a code nor a report.
    pub fn checkpoint(&self, bytes: &[u8]) {
        let mut script = Script::new(bytes);
        let (_, files) = &self.databases[usize::from(script.byte()) % 2];
        let mut files = files.clone();
        script.garble(&mut files, |name| {
            name == "checkpoint" || name.starts_with("layer-")
        });
        looked_at(&device(&files));
    }

    /// Garbles files anywhere, and restarts. If that succeeds, the database works and opens again.
    ///
    /// # Panics
    ///
    /// If it does not, or is refused without a code.
    pub fn restart(&self, bytes: &[u8]) {
        let mut script = Script::new(bytes);
        let (seed, files) = &self.databases[usize::from(script.byte()) % self.databases.len()];
        let mut files = files.clone();
        script.garble(&mut files, |_| true);
        let device = device(&files);
        let sound = looked_at(&device);
        let open = || Database::open_on(device.clone(), victim::options(*seed));
        let db = match open() {
            Ok(db) => db,
            Err(error) => {
                assert!(CODES.contains(&error.code()), "{}: {error}", error.code());
                assert!(
                    !sound,
                    "the check found nothing, but opening returns: {error}"
                );
                return;
            }
        };
        // Rows may be anything now; reading them returns a result or an error.
        let before = load::read(&db);
        let written = db.run(|tx| tx.put(&BULK, &u64::MAX, &[7]));
        drop(db);
        let db = open().expect("a database that was opened and closed opens again");
        match (before, load::read(&db)) {
            (Ok(before), Ok(after)) => assert!(before == after, "it reads differently again"),
            (before, after) => assert_eq!(before.is_ok(), after.is_ok()),
        }
        if written.is_ok() {
            let found = db.run(|tx| tx.get(&BULK, &u64::MAX));
            assert_eq!(found.expect("it was just written"), Some(vec![7]));
        }
    }

    /// Garbles a backup, label included, inspects it and restores it. The restored database opens,
    /// unless the checksums were made right over bytes that make no sense.
    ///
    /// # Panics
    ///
    /// If it does not, or is refused without a code.
    pub fn backup(&self, bytes: &[u8]) {
        let mut script = Script::new(bytes);
        let mut files = self.backups[usize::from(script.byte()) % self.backups.len()].clone();
        let is_mended = script.garble(&mut files, |_| true);
        let source = device(&files);
        looked_at(&source);
        let target = Arc::new(MemoryDevice::new());
        let restored = restore_between(
            &*source,
            &(target.clone() as Arc<dyn Device>),
            None,
            &mut |_, _| {},
        );
        if restored.is_ok() {
            let db = Database::open_on(target, victim::options(0));
            let refused = db.err();
            let is_fair = |error: &foxton::Error| is_mended && CODES.contains(&error.code());
            assert!(refused.as_ref().is_none_or(is_fair), "{refused:?}");
        }
    }
}

impl Default for Whole {
    fn default() -> Whole {
        Whole::new()
    }
}

fn fill(db: &Database, seed: u64) -> foxton::Result<()> {
    load::load(db, Scale::SMALL)?;
    for n in 1..=20 {
        load::run(db, seed, (0, n), Scale::SMALL, Durability::Sync)?;
    }
    // Larger than a part.
    let large = |tx: &mut foxton::Transaction| {
        (0..6).try_for_each(|key| tx.put(&BULK, &key, &[key as u8; 900]))
    };
    db.run(large)?;
    for n in 21..=40 {
        load::run(db, seed, (0, n), Scale::SMALL, Durability::Sync)?;
    }
    Ok(())
}

/// True if the check reports nothing.
fn looked_at(device: &Arc<MemoryDevice>) -> bool {
    match check_on(&**device) {
        Ok(report) => report.findings.is_empty() && !report.is_backup,
        Err(error) => {
            assert!(CODES.contains(&error.code()), "{}: {error}", error.code());
            false
        }
    }
}

fn files(device: &MemoryDevice) -> Files {
    let bytes = |contents: foxton_log::device::memory::Contents| {
        // There is nothing behind the written bytes.
        let mut bytes = vec![0; contents.written()];
        contents.read(&mut bytes, 0);
        bytes
    };
    let files = device.files().into_iter();
    files
        .map(|(name, contents)| (name, bytes(contents)))
        .collect()
}

fn device(files: &Files) -> Arc<MemoryDevice> {
    let files = files.iter();
    let files = files.map(|(name, bytes)| (name.clone(), bytes.clone().into()));
    Arc::new(MemoryDevice::with_files(files))
}

/// Reads and audits the stream of a log; both must agree.
///
/// # Panics
///
/// If they do not.
pub fn log(bytes: &[u8]) {
    const IDENTITY: [u8; 16] = *b"an identity of16";
    let (&flags, stream) = bytes.split_first().unwrap_or((&0, &[]));
    let mut stream = stream.to_vec();
    if flags & 1 != 0 {
        mend_records(&mut stream, &IDENTITY, &mut 0);
    }
    // One file, or two with the border where the flags say.
    let border = (usize::from(flags >> 1) * 8).min(stream.len() / 8 * 8);
    let parts = match border {
        0 => vec![(0, &stream[..])],
        border => vec![(0, &stream[..border]), (border, &stream[border..])],
    };
    let last = parts.len() - 1;
    let files = parts.iter().enumerate().map(|(index, &(first, part))| {
        let mut bytes = vec![0; segment::HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(b"FOXTONlg");
        bytes[8] = 1;
        bytes[16..32].copy_from_slice(&IDENTITY);
        bytes[32..40].copy_from_slice(&(first as u64).to_le_bytes());
        let capacity = if index == last {
            1 << 20
        } else {
            part.len() as u64
        };
        bytes[40..48].copy_from_slice(&capacity.to_le_bytes());
        let check = crc32c::crc32c(&bytes[..4092]);
        bytes[4092..].copy_from_slice(&check.to_le_bytes());
        bytes.extend_from_slice(part);
        (segment::name(Lsn::new(first as u64)), bytes.into())
    });
    let device = MemoryDevice::with_files(files);
    let (mut read, mut audited) = (0, 0);
    let done = reader::read(&device, &IDENTITY, Start::default(), &mut |record| {
        read += record.payload.len() + 1;
        Ok::<(), Infallible>(())
    });
    let report = audit(&device, &IDENTITY, Start::default(), &mut |record| {
        audited += record.payload.len() + 1;
    });
    assert_eq!(read, audited);
    if let Ok(report) = report {
        assert_eq!(done.is_ok(), report.findings.is_empty(), "{report:?}");
    }
}

/// Reads a status as another process may send it, writes it again, and draws it.
///
/// # Panics
///
/// If it reads differently then.
pub fn picture(bytes: &[u8]) {
    let Ok(picture) = serde_json::from_slice::<Status>(bytes) else {
        return;
    };
    let graph = WaitGraph::of_status(&picture);
    assert!(!graph.to_dot().is_empty());
    let _ = graph.has_cycle();
    let written = serde_json::to_vec(&picture).expect("text and numbers can always be written");
    let read: Status = serde_json::from_slice(&written).expect("it was just written");
    assert_eq!(read, picture);
}

/// Checks that mending does not change whole files.
///
/// # Errors
///
/// The names of the files that it changes.
pub fn mending_changes(files: &Files) -> Result<(), Vec<String>> {
    let mut mended = files.clone();
    mend(&mut mended);
    let changed = files
        .iter()
        .filter(|(name, bytes)| mended[*name] != **bytes);
    let changed: Vec<String> = changed.map(|(name, _)| name.clone()).collect();
    if changed.is_empty() {
        Ok(())
    } else {
        Err(changed)
    }
}

/// Decodes a record of page recovery: its kind, its LSN in eight bytes, and its payload.
///
/// # Panics
///
/// If the decoded record does not encode to the same bytes, or points forwards.
pub fn page_record(bytes: &[u8]) {
    let Some((&[kind, ref lsn @ ..], payload)) = bytes.split_first_chunk::<9>() else {
        return;
    };
    let lsn = Lsn::new(u64::from_le_bytes(*lsn));
    let view = RecordView {
        lsn,
        end: lsn.plus(8),
        kind,
        payload,
    };
    let Ok(Some(record)) = RecoveryRecord::decode(&view) else {
        return;
    };
    let (head, [first, second]) = record.encode();
    assert_eq!([head.as_ref(), first, second].concat(), payload);
    assert_eq!(record.kind(), kind);
    assert!(record.link().is_none_or(|link| link.prev < lsn));
    let mut changes = record.changes().iter();
    assert!(changes.all(|change| change.previous <= lsn));
}
