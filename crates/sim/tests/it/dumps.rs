//! A durable snapshot has the rows that a restore to its position gives, from a backup that is made
//! later, and from what a power cut leaves. So it is exactly a prefix of the log, and no crash
//! undoes it. Meanwhile others write, with every durability.

use foxton::device::MemoryDevice;
use foxton::{
    Database, Durability, Index, Options, Result, SnapshotAt, Table, TableComponent, backup,
};
use foxton_log::Lsn;
use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::FaultDevice;
use foxton_sim::ledger::mix;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const ROWS: Table<u64, u64> = Table::new("rows");
const BY_VALUE: Index<u64, u64, u64> = Index::new("rows_by_value", &ROWS, |_, value, keys| {
    keys.add(&(value % 7))
});

/// Components that can be read at snapshots.
const COMPONENTS: [TableComponent; 1] = [TableComponent::Resident];
const DURABILITIES: [Durability; 3] = [Durability::Sync, Durability::Buffered, Durability::None];

/// The rows by their keys, and by the index.
type Dump = (Vec<(u64, u64)>, Vec<(u64, u64, u64)>);

fn options(component: TableComponent) -> Options {
    let mut options = Options::tiny();
    options.component = component;
    // So that a backup can be restored to any position.
    options.checkpoint_log_bytes = u64::MAX;
    options.indexes.add(&BY_VALUE);
    options
}

/// Opens `device`, and returns its rows.
fn rows(device: Arc<dyn Device>, component: TableComponent) -> Result<Dump> {
    let db = Database::open_on(device, options(component))?;
    let rows = db.run(|tx| tx.range(&ROWS, ..).collect())?;
    let found = db.run(|tx| tx.range_by(&BY_VALUE, ..).collect())?;
    Ok((rows, found))
}

/// Makes a backup of `db`, restores it to this position, and returns its rows.
fn restored(db: &Database, to: Lsn, component: TableComponent) -> Result<Dump> {
    let made: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    db.backup_on(&made, &mut |_, _| {})?;
    let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    backup::restore_between(&*made, &target, Some(to), &mut |_, _| {})?;
    rows(target, component)
}

/// Commits a transaction of a few writes.
fn write(db: &Database, seed: u64) -> Result<()> {
    db.run(|tx| {
        tx.set_durability(DURABILITIES[(seed % 3) as usize]);
        for step in 0..1 + seed / 3 % 4 {
            let drawn = mix(seed << 8 | step);
            let key = drawn % 40;
            match drawn >> 32 & 3 {
                0 => tx.delete(&ROWS, &key).map(drop)?,
                _ => tx.put(&ROWS, &key, &(drawn >> 8 & 0xff))?,
            }
        }
        Ok(())
    })
}

/// Takes a snapshot, and compares it with a restored backup and with what power cuts leave.
fn compare(
    db: &Database,
    device: &FaultDevice,
    component: TableComponent,
    seed: u64,
) -> Result<()> {
    let snapshot = db.snapshot_at(SnapshotAt::Durable)?;
    let at = snapshot.lsn();
    let harmless = |damage: &Damage| !damage.harms_durable();
    let images: Vec<MemoryDevice> = Damage::ALL
        .into_iter()
        .filter(harmless)
        .map(|damage| device.crash(damage, seed))
        .collect();
    let dump: Dump = (
        snapshot.range(&ROWS, ..)?.collect()?,
        snapshot.range_by(&BY_VALUE, ..)?.collect()?,
    );
    snapshot.end()?;
    assert_eq!(dump, restored(db, at, component)?, "a backup at {at}");
    for image in images {
        let left = Database::open_on(Arc::new(image), options(component))?;
        assert_eq!(dump, restored(&left, at, component)?, "a power cut at {at}");
    }
    Ok(())
}

#[test]
fn a_durable_snapshot_is_a_restore_to_its_position_also_after_power_cuts() {
    for component in COMPONENTS {
        let device = FaultDevice::new();
        let db = Database::open_on(Arc::new(device.clone()), options(component)).unwrap();
        write(&db, 1).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for client in 0..3_u64 {
                let (db, is_over) = (&db, &is_over);
                scope.spawn(move || {
                    for number in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        write(db, mix(client << 32 | number) >> 8).unwrap();
                        thread::sleep(Duration::from_millis(5));
                    }
                });
            }
            // The clients end, too, if a comparison fails.
            let compared = thread::scope(|inner| {
                let comparer = inner
                    .spawn(|| (0..3).try_for_each(|seed| compare(&db, &device, component, seed)));
                comparer.join()
            });
            is_over.store(true, Ordering::Relaxed);
            compared.expect("no comparison failed").unwrap();
        });
    }
}

#[test]
fn a_snapshot_sees_what_was_acknowledged_before_whatever_that_promised() {
    for (first, second) in DURABILITIES
        .into_iter()
        .flat_map(|first| DURABILITIES.map(|second| (first, second)))
    {
        let device = FaultDevice::new();
        let component = TableComponent::Resident;
        let db = Database::open_on(Arc::new(device.clone()), options(component)).unwrap();
        for (key, durability) in [(1, first), (2, second)] {
            let put = db.run(|tx| {
                tx.set_durability(durability);
                tx.put(&ROWS, &key, &key)
            });
            put.unwrap();
            let snapshot = db.snapshot().unwrap();
            let seen = snapshot.range(&ROWS, ..).unwrap().count().unwrap();
            assert_eq!(seen, key, "{first} before {second}");
            snapshot.end().unwrap();
        }
        let snapshot = db.snapshot_at(SnapshotAt::Durable).unwrap();
        let image = device.crash(Damage::DropAll, 0);
        let dump = snapshot.range(&ROWS, ..).unwrap().collect().unwrap();
        let left = rows(Arc::new(image), component).unwrap().0;
        assert_eq!(dump, left, "{first} before {second}");
    }
}
