//! Conversion of tables between memory and pages, and the limit of memory.
//!
//! A model has the rows. After each conversion, each restart and each cut the table has them too,
//! in one component or the other, by its keys and by its indexes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use foxton::TableComponent::{Paged, Resident};
use foxton::{
    Conversion, Database, Index, Isolation, Lock, Locking, Options, Table, TableComponent,
};
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::FaultDevice;

use crate::common::paged::tiny_pages;
use crate::common::random::Random;

const ROWS: Table<u64, [u8]> = Table::new("rows");
const OTHER: Table<u64, [u8]> = Table::new("other");
/// Each row by its first byte.
const BY_FIRST: Index<u8, u64, [u8]> = Index::new("by_first", &ROWS, |_, value, keys| {
    if let Some(first) = value.first() {
        keys.add(first);
    }
});
/// Each row by its key in reverse, which no other row has.
const BY_REVERSE: Index<u64, u64, [u8]> = Index::unique("by_reverse", &ROWS, |key, _, keys| {
    keys.add(&key.reverse_bits());
});

type Rows = BTreeMap<u64, Vec<u8>>;

fn options() -> Options {
    tiny_pages(Options::tiny(), 24)
}

fn with_indexes() -> Options {
    let mut options = options();
    options.indexes.add(&BY_FIRST).add(&BY_REVERSE);
    options
}

fn component(db: &Database) -> TableComponent {
    let tables = db.stats().tables;
    let named: Vec<_> = tables.iter().filter(|table| table.name == "rows").collect();
    assert_eq!(named.len(), 1, "a twin is not listed");
    named[0].component
}

fn contents(db: &Database) -> Rows {
    let rows = db.run(|tx| tx.range(&ROWS, ..).collect()).unwrap();
    rows.into_iter().collect()
}

/// Checks the rows, as the table has them and as each index has them.
fn check(db: &Database, expected: &Rows, place: &str) {
    assert!(contents(db) == *expected, "{place}: other rows");
    if !db.options().indexes.is_empty() {
        assert_eq!(db.check_indexes().unwrap(), [], "{place}");
        db.run(|tx| {
            let mut found: Vec<u64> = tx
                .range_by(&BY_REVERSE, ..)
                .collect()?
                .into_iter()
                .map(|(_, key, _)| key)
                .collect();
            found.sort_unstable();
            assert!(found.iter().eq(expected.keys()), "{place}: by reverse");
            let found = tx.all_by(&BY_FIRST, &7).collect()?;
            let with_7 = expected.values().filter(|value| value.first() == Some(&7));
            assert_eq!(found.len(), with_7.count(), "{place}: by first");
            Ok(())
        })
        .unwrap();
    }
    db.verify();
}

fn change(db: &Database, random: &mut Random, rows: &mut Rows) {
    db.run(|tx| {
        let mut new = rows.clone();
        for _ in 0..1 + random.below(40) {
            let key = random.below(300);
            if random.below(3) == 0 {
                tx.delete(&ROWS, &key)?;
                new.remove(&key);
            } else {
                // Some do not fit their leaves.
                let most = [100, 100, 100, 3_000][random.below(4) as usize];
                let value = vec![random.below(20) as u8; random.below(most) as usize];
                tx.put(&ROWS, &key, &value)?;
                new.insert(key, value);
            }
        }
        Ok(new)
    })
    .map(|new| *rows = new)
    .unwrap();
}

fn convert(db: &Database, to: TableComponent, rows: &Rows) -> Conversion {
    let done = db.convert(&ROWS, to).unwrap();
    assert!(done.is_converted);
    assert_eq!(done.rows, rows.len() as u64);
    assert_eq!(component(db), to);
    let again = db.convert(&ROWS, to).unwrap();
    assert!(!again.is_converted);
    done
}

#[test]
fn rows_indexes_and_large_values_follow_in_both_directions() {
    for seed in 0..4 {
        let mut random = Random(seed);
        let device = FaultDevice::new();
        let open = || Database::open_on(Arc::new(device.clone()), with_indexes()).unwrap();
        let (mut db, mut rows) = (open(), Rows::new());
        for round in 0..6 {
            for _ in 0..20 {
                change(&db, &mut random, &mut rows);
            }
            let to = if round % 2 == 0 { Paged } else { Resident };
            let place = format!("seed {seed}, round {round}");
            let done = convert(&db, to, &rows);
            assert_eq!(done.indexes, 2, "{place}");
            check(&db, &rows, &place);
            change(&db, &mut random, &mut rows);
            check(&db, &rows, &place);
            match random.below(3) {
                0 => continue,
                1 => _ = db.checkpoint().unwrap(),
                _ => {}
            }
            drop(db);
            db = open();
            assert_eq!(component(&db), to, "{place}");
            check(&db, &rows, &format!("{place}, opened again"));
        }
        drop(db);
        let found = foxton::check::check_on(&device).unwrap();
        assert!(found.findings.is_empty(), "{:?}", found.findings);
        assert!(
            found
                .tables
                .contains(&("rows".to_owned(), rows.len() as u64))
        );
    }
}

#[test]
fn a_converted_table_is_refused_as_what_it_was() {
    let db = Database::in_memory(options()).unwrap();
    let (resident, paged) = (ROWS.resident(), ROWS.paged());
    db.run(|tx| tx.put(&resident, &1, &[1])).unwrap();
    db.run(|tx| tx.put(&ROWS, &2, &[2])).unwrap();
    assert!(db.convert(&resident, Paged).unwrap().is_converted);
    // This thread's worker has cached the table as what it was.
    let refused = db.run(|tx| tx.get(&resident, &1)).unwrap_err();
    assert_eq!(refused.code(), "table_component");
    let refused = db.run(|tx| tx.put(&resident, &1, &[3])).unwrap_err();
    assert_eq!(refused.code(), "table_component");
    for table in [ROWS, paged] {
        assert_eq!(db.run(|tx| tx.get(&table, &1)).unwrap(), Some(vec![1]));
    }
    assert!(db.convert(&ROWS, Resident).unwrap().is_converted);
    assert_eq!(db.run(|tx| tx.get(&resident, &2)).unwrap(), Some(vec![2]));
    let refused = db.run(|tx| tx.get(&paged, &1)).unwrap_err();
    assert_eq!(refused.code(), "table_component");
    let other = db.convert(&OTHER, Paged).unwrap();
    assert!(!other.is_converted, "there is no such table");
    let twin: Table<u64, [u8]> = Table::new("foxton:twin-of-0");
    let refused = db.run(|tx| tx.get(&twin, &1)).unwrap_err();
    assert_eq!(refused.code(), "reserved_table");
}

#[test]
fn without_locking_one_transaction_does_it() {
    let mut options = with_indexes();
    options.locking = Locking::Off;
    let db = Database::in_memory(options).unwrap();
    let (mut random, mut rows) = (Random(5), Rows::new());
    for to in [Paged, Resident, Paged, Resident] {
        change(&db, &mut random, &mut rows);
        convert(&db, to, &rows);
        check(&db, &rows, "without locking");
    }
}

/// Writers wait while the table is converted and lose nothing. Readers at every level always find
/// all rows.
#[test]
fn writers_lose_nothing_and_readers_find_all_rows() {
    const COUNTERS: u64 = 40;
    let db = Database::open_on(Arc::new(FaultDevice::new()), with_indexes()).unwrap();
    db.run(|tx| (0..COUNTERS).try_for_each(|key| tx.put(&ROWS, &key, &[0; 8])))
        .unwrap();
    let (stop, added, barrier) = (AtomicBool::new(false), AtomicU64::new(0), Barrier::new(5));
    thread::scope(|scope| {
        for client in 0..2 {
            let (db, stop, added, barrier) = (&db, &stop, &added, &barrier);
            scope.spawn(move || {
                let mut random = Random(client);
                barrier.wait();
                while !stop.load(Ordering::Relaxed) {
                    db.run(|tx| {
                        let key = random.below(COUNTERS);
                        // Some read before they want to write, so a conversion meets them.
                        let lock = [Lock::Shared, Lock::Update][random.below(2) as usize];
                        let old = tx.get_locked(&ROWS, &key, lock)?.unwrap();
                        let old = u64::from_le_bytes(old.try_into().unwrap());
                        tx.put(&ROWS, &key, &(old + 1).to_le_bytes())
                    })
                    .unwrap();
                    added.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for isolation in [Isolation::Serializable, Isolation::ReadCommitted] {
            let (db, stop, barrier) = (&db, &stop, &barrier);
            scope.spawn(move || {
                barrier.wait();
                while !stop.load(Ordering::Relaxed) {
                    db.run(|tx| {
                        tx.set_isolation(isolation).unwrap();
                        assert_eq!(tx.range(&ROWS, ..).count()?, COUNTERS);
                        assert!(tx.get(&ROWS, &7)?.is_some());
                        assert!(tx.get_by(&BY_REVERSE, &7_u64.reverse_bits())?.is_some());
                        assert_eq!(tx.range_by(&BY_REVERSE, ..).count()?, COUNTERS);
                        Ok(())
                    })
                    .unwrap();
                }
            });
        }
        barrier.wait();
        for round in 0..20 {
            let to = if round % 2 == 0 { Paged } else { Resident };
            assert!(db.convert(&ROWS, to).unwrap().is_converted);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let sum = contents(&db).into_values();
    let sum: u64 = sum
        .map(|value| u64::from_le_bytes(value.try_into().unwrap()))
        .sum();
    assert_eq!(sum, added.load(Ordering::Relaxed));
    assert_eq!(db.check_indexes().unwrap(), []);
    db.verify();
}

/// The power is cut at every write of a conversion. The table is what it was or what it becomes,
/// and has all rows; it can be converted again, both ways.
#[test]
fn a_cut_at_any_write_leaves_one_component_with_all_rows() {
    let damages: Vec<Damage> = Damage::ALL
        .into_iter()
        .filter(|damage| !damage.harms_durable())
        .collect();
    let mut random = Random(11);
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), with_indexes()).unwrap();
    let mut rows = Rows::new();
    for _ in 0..12 {
        change(&db, &mut random, &mut rows);
    }
    db.checkpoint().unwrap();
    let mut seen = [0; 2];
    for round in 0..4 {
        let to = if round % 2 == 0 { Paged } else { Resident };
        device.record();
        convert(&db, to, &rows);
        let recording = device.recording().unwrap();
        let step = match round {
            0 | 1 => recording.len() / 60 + 1,
            _ => 4 * (recording.len() / 60 + 1),
        };
        // The last writes come behind the switch. How many of the others do depends on the threads
        // that write pages.
        let last = recording.len().saturating_sub(12);
        for (cut, disk) in recording.disks().enumerate() {
            if cut % step != 0 && cut < last {
                continue;
            }
            let damage = damages[random.below(damages.len() as u64) as usize];
            let place = format!("round {round}, cut {cut}, {damage}");
            let image = FaultDevice::holding(&disk.crash(damage, random.next()));
            let open = || Database::open_on(Arc::new(image.clone()), with_indexes());
            let copy = open().unwrap_or_else(|error| panic!("{place}: {error}"));
            let found = component(&copy);
            seen[usize::from(found == to)] += 1;
            check(&copy, &rows, &place);
            // Rows that were left do not come back.
            let mut now = rows.clone();
            let back = if found == Paged { Resident } else { Paged };
            change(&copy, &mut Random(cut as u64), &mut now);
            convert(&copy, back, &now);
            check(&copy, &now, &place);
            change(&copy, &mut Random(cut as u64 + 1), &mut now);
            convert(&copy, found, &now);
            check(&copy, &now, &place);
            drop(copy);
            check(&open().unwrap(), &now, &place);
        }
        change(&db, &mut random, &mut rows);
    }
    assert!(seen.iter().all(|&count| count > 20), "{seen:?}");
}

/// The rows of before are given back: memory in memory, and pages in the page file.
#[test]
fn a_conversion_gives_back_what_the_rows_took() {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    let mut rows = Rows::new();
    for key in 0..600 {
        rows.insert(key, vec![key as u8; if key % 50 == 0 { 5_000 } else { 90 }]);
    }
    db.run(|tx| {
        rows.iter()
            .try_for_each(|(key, value)| tx.put(&ROWS, key, value))
    })
    .unwrap();
    let full = db.stats().resident.bytes;
    assert!(full > 90 * 600, "{full}");
    convert(&db, Paged, &rows);
    assert!(db.stats().resident.bytes < full / 4);
    let used = |db: &Database| {
        let pages = db.stats().pages.unwrap();
        pages.file_pages - pages.free_pages
    };
    let paged = used(&db);
    convert(&db, Resident, &rows);
    assert!(db.stats().resident.bytes >= full - (full / 8));
    // The background thread frees the large values.
    let is_free = || {
        (0..2_000).any(|_| {
            thread::sleep(std::time::Duration::from_millis(5));
            used(&db) < paged / 4
        })
    };
    assert!(is_free(), "{} of {paged}", used(&db));
    db.checkpoint().unwrap();
    drop(db);
    let db = Database::open_on(Arc::new(device), options()).unwrap();
    assert_eq!(
        db.recovered().checkpoint_rows,
        600,
        "the layers have them once"
    );
    check(&db, &rows, "opened again");
}

/// Beyond the limit rows in memory do not grow. Everything else goes on, and rows in pages do not
/// count.
#[test]
fn beyond_the_limit_rows_in_memory_do_not_grow() {
    let device = FaultDevice::new();
    let mut limited = options();
    limited.resident_memory = 1 << 20;
    let db = Database::open_on(Arc::new(device.clone()), limited.clone()).unwrap();
    let fill = |db: &Database, from: u64| {
        for key in from.. {
            if let Err(refused) = db.run(|tx| tx.put(&ROWS, &key, &[1; 1_000])) {
                return (key, refused);
            }
        }
        unreachable!()
    };
    let (count, refused) = fill(&db, 0);
    assert_eq!(refused.code(), "resident_room");
    assert!((700..1_100).contains(&count), "{count}");
    let words = refused.to_string();
    assert!(
        words.contains("\"rows\"") && words.contains("1048576"),
        "{words}"
    );
    assert!(words.contains("`convert`"), "{words}");
    let resident = db.stats().resident;
    assert!(resident.is_nearly_full && resident.limit == Some(1 << 20));
    // The transaction goes on: others of its operations do not grow rows, or shrink them.
    let mut tx = db.begin().unwrap();
    assert!(tx.put(&ROWS, &count, &[1; 1_000]).is_err());
    assert!(tx.put(&ROWS, &0, &[2; 1_000]).is_ok());
    assert!(tx.put(&ROWS, &0, &[2; 2_000]).is_err());
    assert!(tx.put(&ROWS, &1, &[2; 10]).is_ok());
    assert_eq!(tx.get(&ROWS, &0).unwrap(), Some(vec![2; 1_000]));
    let savepoint = tx.savepoint().unwrap();
    (0..500).for_each(|key| assert!(tx.delete(&ROWS, &key).unwrap()));
    tx.put(&ROWS, &count, &[1; 100_000]).unwrap();
    tx.rollback_to(&savepoint).unwrap();
    assert!(
        tx.put(&ROWS, &count, &[1; 100_000]).is_err(),
        "the space is taken again"
    );
    tx.rollback();
    // Opening refuses nothing, and counts what is there.
    drop(db);
    let db = Database::open_on(Arc::new(device), limited).unwrap();
    let opened = db.stats().resident;
    assert!(opened.is_nearly_full && opened.bytes.abs_diff(resident.bytes) < 128 << 10);
    assert!(fill(&db, count).0 < count + 128);
    assert_eq!(
        db.run(|tx| tx.put(&OTHER, &1, &[0; 100_000]))
            .unwrap_err()
            .code(),
        "resident_room"
    );
    assert!(db.convert(&ROWS, Paged).unwrap().is_converted);
    assert!(!db.stats().resident.is_nearly_full);
    let more = || (2_000..4_000).try_for_each(|key| db.run(|tx| tx.put(&ROWS, &key, &[1; 1_000])));
    more().unwrap();
    let refused = db.convert(&ROWS, Resident).unwrap_err();
    assert_eq!(refused.code(), "resident_room");
    assert_eq!(component(&db), Paged);
    assert!(contents(&db).len() > 2_000);
    db.run(|tx| tx.put(&OTHER, &1, &[0; 100_000])).unwrap();
}
