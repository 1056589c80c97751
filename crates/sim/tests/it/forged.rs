//! Files that were changed and whose checksums were made right again.

use std::sync::Arc;

use foxton::{Database, Options, Table};
use foxton_log::device::memory::MemoryDevice;
use foxton_sim::mend::{Files, mend};

const ROWS: Table<u64, u64> = Table::new("rows");
/// Enough rows for several blocks.
const COUNT: u64 = 4_000;

fn options() -> Options {
    let mut options = Options::tiny();
    options.checkpoint_log_bytes = u64::MAX;
    options
}

/// Returns the files of a closed database with one layer.
fn files() -> Files {
    let device = Arc::new(MemoryDevice::new());
    let db = Database::open_on(device.clone(), options()).unwrap();
    db.run(|tx| (0..COUNT).try_for_each(|key| tx.put(&ROWS, &key, &key)))
        .unwrap();
    assert_eq!(db.checkpoint().unwrap().layers, 1);
    drop(db);
    let files = device.files().into_iter().map(|(name, contents)| {
        let mut bytes = vec![0; contents.len() as usize];
        contents.read(&mut bytes, 0);
        (name, bytes)
    });
    files.collect()
}

fn open(files: &Files) -> foxton::Result<usize> {
    let files = files.iter();
    let files = files.map(|(name, bytes)| (name.clone(), bytes.clone().into()));
    let device = Arc::new(MemoryDevice::with_files(files));
    let db = Database::open_on(device, options())?;
    let rows: Vec<(u64, u64)> = db.run(|tx| tx.range(&ROWS, ..).collect())?;
    Ok(rows.len())
}

/// Two rows of a layer are swapped. Reads of ranges would skip some rows then, and single reads
/// would not.
#[test]
fn rows_out_of_order_are_refused() {
    let whole = files();
    assert_eq!(open(&whole).unwrap(), COUNT as usize);
    for (one, other) in [(1_000, 1_001), (10, 3_990), (500, COUNT - 1)] {
        let mut files = whole.clone();
        let layer = files.keys().find(|name| name.starts_with("layer"));
        let layer = layer.expect("a checkpoint was made").clone();
        let bytes = files.get_mut(&layer).expect("it is there");
        let [one, other] = [one, other].map(|key: u64| place(bytes, key));
        (0..8).for_each(|at| bytes.swap(one + at, other + at));
        mend(&mut files);
        let refused = open(&files).expect_err("its rows are not in order");
        assert!(refused.to_string().contains("not in order"), "{refused}");
    }
}

/// Returns the position of a key in a layer.
fn place(bytes: &[u8], key: u64) -> usize {
    let key = key.to_be_bytes();
    let mut found = bytes.windows(8).enumerate();
    let (at, _) = found
        .find(|(_, window)| *window == key)
        .expect("it is there");
    at
}
