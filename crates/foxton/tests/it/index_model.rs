//! Random operations on a table with two indexes, one transaction after another, compared with
//! maps. Reads by an index return what follows from the rows, and exactly the right writes are
//! refused, also after rollbacks, restarts and power failures. A failure prints the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::common::paged::tiny_pages;
use crate::common::random::Random;
use foxton::{Database, Durability, Index, Locking, Options, Table, TableComponent};
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::FaultDevice;
use foxton_log::device::memory::MemoryDevice;

/// An optional name, and a group.
type Row = (Vec<u8>, u8);

const ROWS: Table<[u8], Row> = Table::new("rows");
/// Contains rows that have a name.
const BY_NAME: Index<[u8], [u8], Row> = Index::unique("rows_by_name", &ROWS, |_, row, keys| {
    if !row.0.is_empty() {
        keys.add(&row.0);
    }
});
/// Each row by its group; rows of every third group also by the last group.
const BY_GROUP: Index<u8, [u8], Row> = Index::new("rows_by_group", &ROWS, |_, row, keys| {
    groups(row.1).iter().for_each(|group| keys.add(group));
});

fn groups(group: u8) -> Vec<u8> {
    match group % 3 {
        0 => vec![group, u8::MAX, group],
        _ => vec![group],
    }
}

fn options() -> Options {
    let mut options = Options::tiny();
    options.durability = Durability::Sync;
    options
}

fn with_both() -> Options {
    let mut options = options();
    options.indexes.add(&BY_NAME).add(&BY_GROUP);
    options
}

/// Returns short and long keys, some of which share a prefix.
fn any_key(random: &mut Random) -> Vec<u8> {
    let number = random.below(20) as u8;
    match random.below(3) {
        0 => vec![number],
        1 => vec![number, 0],
        _ => [&[255; 20][..], &[number]].concat(),
    }
}

fn any_name(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => Vec::new(),
        1 => vec![random.below(8) as u8],
        2 => vec![255, random.below(8) as u8],
        _ => [&[7; 30][..], &[random.below(8) as u8]].concat(),
    }
}

fn any_group(random: &mut Random) -> u8 {
    [0, 1, 2, 3, 254, 255][random.below(6) as usize]
}

fn any_bound<T>(random: &mut Random, value: T) -> Bound<T> {
    match random.below(4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(value),
        _ => Bound::Included(value),
    }
}

/// The expected rows, from which the expected indexes follow.
type Map = BTreeMap<Vec<u8>, Row>;

fn by_name(map: &Map) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let named = map.iter().filter(|(_, row)| !row.0.is_empty());
    named
        .map(|(key, row)| (row.0.clone(), key.clone()))
        .collect()
}

fn by_group(map: &Map) -> BTreeSet<(u8, Vec<u8>)> {
    let pairs = |(key, row): (&Vec<u8>, &Row)| {
        groups(row.1)
            .into_iter()
            .map(|group| (group, key.clone()))
            .collect::<Vec<_>>()
    };
    map.iter().flat_map(pairs).collect()
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
    }
}

fn lies<T: Ord + ?Sized>(value: &T, low: Bound<&T>, high: Bound<&T>) -> bool {
    (match low {
        Bound::Unbounded => true,
        Bound::Included(low) => value >= low,
        Bound::Excluded(low) => value > low,
    }) && match high {
        Bound::Unbounded => true,
        Bound::Included(high) => value <= high,
        Bound::Excluded(high) => value < high,
    }
}

/// Writes one row, and compares the outcome with the map.
fn write(tx: &mut foxton::Transaction, now: &mut Map, random: &mut Random) {
    let (key, row) = (any_key(random), (any_name(random), any_group(random)));
    let holder = by_name(now).get(&row.0).cloned();
    let taken = holder.is_some_and(|holder| holder != key);
    match random.below(4) {
        0 => {
            let existed = tx.delete(&ROWS, &key[..]).unwrap();
            assert_eq!(existed, now.remove(&key).is_some());
        }
        1 => {
            let inserted = tx
                .insert(&ROWS, &key[..], &row)
                .map_err(|error| error.code());
            let expected = match (now.contains_key(&key), taken) {
                (true, _) => Err("key_exists"),
                (_, true) => Err("index_key_exists"),
                _ => Ok(()),
            };
            assert_eq!(inserted, expected);
            if inserted.is_ok() {
                now.insert(key, row);
            }
        }
        _ => {
            let put = tx.put(&ROWS, &key[..], &row).map_err(|error| error.code());
            assert_eq!(
                put,
                if taken {
                    Err("index_key_exists")
                } else {
                    Ok(())
                }
            );
            if put.is_ok() {
                now.insert(key, row);
            }
        }
    }
}

/// Reads by one of the indexes, and compares with the map.
fn read(tx: &mut foxton::Transaction, now: &Map, random: &mut Random) {
    let (is_reversed, limit) = (
        random.below(2) == 0,
        [0, 1, 2, 99][random.below(4) as usize],
    );
    if random.below(3) == 0 {
        let name = any_name(random);
        let found = tx.get_by_for_update(&BY_NAME, &name[..]).unwrap();
        let expected = by_name(now)
            .get(&name)
            .map(|key| (key.clone(), now[key].clone()));
        assert_eq!(found, expected);
    } else if random.below(2) == 0 {
        let (low, high) = (any_name(random), any_name(random));
        let (low, high) = (any_bound(random, low), any_bound(random, high));
        let (low, high) = (borrowed(&low), borrowed(&high));
        let names = by_name(now);
        let inside = names.iter().filter(|(name, _)| lies(&name[..], low, high));
        let mut expected: Vec<_> = inside
            .map(|(name, key)| (name.clone(), key.clone(), now[key].clone()))
            .collect();
        let mut range = tx.range_by(&BY_NAME, (low, high));
        if is_reversed {
            range = range.reversed();
            expected.reverse();
        }
        expected.truncate(limit as usize);
        assert_eq!(range.limit(limit).collect().unwrap(), expected);
    } else {
        let (low, high) = (any_group(random), any_group(random));
        let (low, high) = (any_bound(random, low), any_bound(random, high));
        let groups = by_group(now);
        let inside = groups
            .iter()
            .filter(|(group, _)| lies(group, low.as_ref(), high.as_ref()));
        let mut expected: Vec<_> = inside
            .map(|(group, key)| (*group, key.clone(), now[key].clone()))
            .collect();
        let mut range = tx.range_by(&BY_GROUP, (low, high));
        if is_reversed {
            range = range.reversed();
            expected.reverse();
        }
        expected.truncate(limit as usize);
        let rows: Vec<_> = range.limit(limit).into_iter().map(Result::unwrap).collect();
        assert_eq!(rows, expected);
    }
}

/// Some openings end with a power failure, which may lose unsynced data and an open transaction.
fn play(seed: u64, component: TableComponent) {
    let mut random = Random(seed);
    let mut image = MemoryDevice::new();
    let mut options = if seed.is_multiple_of(2) {
        with_both()
    } else {
        options()
    };
    if component == TableComponent::Paged {
        options = tiny_pages(options, 16);
    }
    options.component = component;
    options.restart_threads = 1 + (seed % 3) as usize;
    options.locking = if seed.is_multiple_of(4) {
        Locking::Off
    } else {
        Locking::On
    };
    let mut map = Map::new();
    for opening in 0..4 {
        let device = FaultDevice::holding(&image);
        let db = Database::open_on(Arc::new(device.clone()), options.clone()).unwrap();
        if seed % 2 == 1 {
            db.create_index(&BY_GROUP).unwrap();
            db.create_index(&BY_NAME).unwrap();
        }
        for _transaction in 0..40 {
            let mut tx = db.begin().unwrap();
            let mut now = map.clone();
            for _operation in 0..random.below(20) {
                if random.below(2) == 0 {
                    write(&mut tx, &mut now, &mut random);
                } else {
                    read(&mut tx, &now, &mut random);
                }
            }
            if random.below(3) > 0 {
                tx.commit().unwrap();
                map = now;
            }
        }
        if opening == 1 {
            db.checkpoint().unwrap();
        }
        assert!(db.locks().is_empty());
        assert_eq!(db.check_indexes().unwrap(), []);
        db.verify();
        if component == TableComponent::Resident {
            let entries: Vec<u64> = db.indexes().iter().map(|index| index.entries).collect();
            assert_eq!(
                entries,
                [by_group(&map).len() as u64, by_name(&map).len() as u64]
            );
        }
        let left = db.stats().ghosts_left;
        assert_eq!(left, 0, "nobody else was there to keep a ghost");
        if random.below(2) == 0 {
            let mut tx = db.begin().unwrap();
            write(&mut tx, &mut map.clone(), &mut random);
            let kinds: Vec<_> = Damage::ALL
                .into_iter()
                .filter(|damage| !damage.harms_durable())
                .collect();
            image = device.crash(kinds[random.below(kinds.len() as u64) as usize], seed);
        } else {
            drop(db);
            image = device.crash(Damage::ALL[0], seed);
        }
    }
}

#[test]
fn two_indexes_agree_with_a_map_through_rollbacks_and_restarts() {
    for component in TableComponent::ALL {
        for seed in 0..60 {
            println!("{component}, seed {seed}");
            play(seed, component);
        }
    }
}
