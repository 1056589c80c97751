//! Random operations on a paged table and on one in memory, in the same transactions, compared with
//! a `BTreeMap`. The pages are tiny and there are sixteen frames. A failure prints the seed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use foxton::{Database, Durability, Locking, Options, Table, Transaction};
use foxton_log::device::memory::MemoryDevice;

use crate::common::paged::tiny_pages;
use crate::common::random::Random;

const TABLES: [Table<[u8], [u8]>; 2] =
    [Table::new("pages").paged(), Table::new("memory").resident()];

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Maps = [Map; 2];

/// Returns keys with long shared prefixes, short keys, the empty one and the longest ones.
fn any_key(random: &mut Random) -> Vec<u8> {
    let number = random.below(90) as u8;
    match random.below(9) {
        0 => vec![],
        1 => vec![number],
        2 => vec![number, 0],
        3 | 4 => [&[7; 8][..], &[number]].concat(),
        5 | 6 => [&[7; 100][..], &[number]].concat(),
        7 => [&[7; 127][..], &[number]].concat(),
        _ => [&[9; 30][..], &[number], &[1; 60]].concat(),
    }
}

/// Returns values up to the longest that fits a leaf beside the key.
fn any_value(random: &mut Random, key: &[u8]) -> Vec<u8> {
    let most = 256 - key.len();
    let size = [0, 1, 20, 100, most - 1, most][random.below(6) as usize];
    vec![random.next() as u8; size.min(most)]
}

fn any_bound(random: &mut Random) -> Bound<Vec<u8>> {
    match random.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(any_key(random)),
        _ => Bound::Excluded(any_key(random)),
    }
}

fn inside(map: &Map, low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let above = |key: &Vec<u8>| match low {
        Bound::Unbounded => true,
        Bound::Included(low) => key >= low,
        Bound::Excluded(low) => key > low,
    };
    let below = |key: &Vec<u8>| match high {
        Bound::Unbounded => true,
        Bound::Included(high) => key <= high,
        Bound::Excluded(high) => key < high,
    };
    let rows = map.iter().filter(|(key, _)| above(key) && below(key));
    rows.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// One random operation, in both worlds.
fn operate(tx: &mut Transaction, maps: &mut Maps, random: &mut Random) {
    let at = random.below(2) as usize;
    let (table, now) = (&TABLES[at], &mut maps[at]);
    let key = any_key(random);
    match random.below(9) {
        0 => assert_eq!(tx.get(table, &key).unwrap(), now.get(&key).cloned()),
        1 => {
            let keys: Vec<_> = (0..random.below(20)).map(|_| any_key(random)).collect();
            let found = tx.get_many(table, keys.iter().map(|key| &key[..])).unwrap();
            let expected: Vec<_> = keys.iter().map(|key| now.get(key).cloned()).collect();
            assert_eq!(found, expected);
        }
        2 | 3 => {
            let value = any_value(random, &key);
            tx.put(table, &key, &value).unwrap();
            now.insert(key, value);
        }
        4 => {
            let value = any_value(random, &key);
            let inserted = tx.insert(table, &key, &value);
            assert_eq!(inserted.is_err(), now.contains_key(&key));
            now.entry(key).or_insert(value);
        }
        5 | 6 => {
            let existed = tx.delete(table, &key).unwrap();
            assert_eq!(existed, now.remove(&key).is_some());
        }
        _ => {
            let (low, high) = (any_bound(random), any_bound(random));
            let mut expected = inside(now, &low, &high);
            let bounds = (
                low.as_ref().map(|key| &key[..]),
                high.as_ref().map(|key| &key[..]),
            );
            let mut range = tx.range(table, bounds);
            if random.below(2) == 0 {
                range = range.reversed();
                expected.reverse();
            }
            if random.below(2) == 0 {
                let limit = random.below(4);
                range = range.limit(limit);
                expected.truncate(limit as usize);
            }
            assert_eq!(range.collect().unwrap(), expected);
        }
    }
}

fn play(seed: u64, locking: Locking, transactions: u64) {
    let mut random = Random(seed);
    let device = Arc::new(MemoryDevice::new());
    let mut options = tiny_pages(Options::tiny(), 16);
    options.durability = Durability::Buffered;
    options.locking = locking;
    let mut maps = Maps::default();
    for _opening in 0..3 {
        let db = Database::open_on(device.clone(), options.clone()).unwrap();
        for _transaction in 0..transactions {
            let mut tx = db.begin().unwrap();
            let mut now = maps.clone();
            for _part in 0..1 + random.below(3) {
                let savepoint = tx.savepoint().unwrap();
                let before = now.clone();
                for _operation in 0..random.below(30) {
                    operate(&mut tx, &mut now, &mut random);
                }
                if random.below(3) == 0 {
                    tx.rollback_to(&savepoint).unwrap();
                    now = before;
                }
            }
            if random.below(3) > 0 {
                tx.commit().unwrap();
                maps = now;
            }
        }
        assert!(db.locks().is_empty());
        db.verify();
        for (table, map) in TABLES.iter().zip(&maps) {
            let rows = db.run(|tx| tx.range(table, ..).collect()).unwrap();
            assert_eq!(rows, map.clone().into_iter().collect::<Vec<_>>());
        }
        db.close().unwrap();
    }
}

#[test]
fn both_components_agree_with_a_map() {
    for seed in 0..30 {
        println!("seed {seed}");
        let locking = if seed % 4 == 0 {
            Locking::Off
        } else {
            Locking::On
        };
        play(seed, locking, 40);
    }
}

#[test]
#[ignore = "a million operations take minutes: cargo test -p foxton --test it paged_model:: -- --ignored"]
fn both_components_agree_with_a_map_for_long() {
    for seed in 100..130 {
        println!("seed {seed}");
        play(seed, Locking::On, 400);
    }
}
