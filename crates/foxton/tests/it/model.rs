//! Random operations of one transaction after another, compared with a `BTreeMap`. Reads return
//! what the map contains, a rollback undoes everything, and committed rows are there after the
//! database is opened again. A failure prints the seed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use foxton::{Database, Durability, Locking, Options, Table};
use foxton_log::device::memory::MemoryDevice;

use crate::common::random::Random;

const BYTES: Table<[u8], [u8]> = Table::new("bytes");

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns keys with shared prefixes, short and long, and few enough to repeat.
fn any_key(random: &mut Random) -> Vec<u8> {
    let number = random.below(60) as u8;
    match random.below(4) {
        0 => vec![number],
        1 => vec![number, 0],
        2 => [&[7; 8][..], &[number]].concat(),
        _ => [&[7; 30][..], &[number]].concat(),
    }
}

fn any_value(random: &mut Random) -> Vec<u8> {
    let size = [0, 1, 20, 300][random.below(4) as usize];
    vec![random.next() as u8; size]
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

fn slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
    }
}

fn play(seed: u64, locking: Locking) {
    let mut random = Random(seed);
    let device = Arc::new(MemoryDevice::new());
    let mut options = Options::tiny();
    options.durability = Durability::Buffered;
    options.locking = locking;
    let mut map = Map::new();
    for _opening in 0..3 {
        let db = Database::open_on(device.clone(), options.clone()).unwrap();
        for _transaction in 0..40 {
            let mut tx = db.begin().unwrap();
            let mut now = map.clone();
            for _operation in 0..random.below(30) {
                let key = any_key(&mut random);
                match random.below(8) {
                    0 | 1 => {
                        assert_eq!(tx.get(&BYTES, &key[..]).unwrap(), now.get(&key).cloned());
                    }
                    2 | 3 => {
                        let value = any_value(&mut random);
                        tx.put(&BYTES, &key, &value).unwrap();
                        now.insert(key, value);
                    }
                    4 => {
                        let value = any_value(&mut random);
                        let inserted = tx.insert(&BYTES, &key, &value);
                        assert_eq!(inserted.is_err(), now.contains_key(&key));
                        now.entry(key).or_insert(value);
                    }
                    5 => {
                        let existed = tx.delete(&BYTES, &key).unwrap();
                        assert_eq!(existed, now.remove(&key).is_some());
                    }
                    _ => {
                        let (low, high) = (any_bound(&mut random), any_bound(&mut random));
                        let mut expected = inside(&now, &low, &high);
                        let mut range = tx.range(&BYTES, (slice(&low), slice(&high)));
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
            if random.below(3) > 0 {
                tx.commit().unwrap();
                map = now;
            }
        }
        assert!(db.locks().is_empty());
        db.verify();
        let stats = db.stats();
        assert_eq!(
            stats.ghosts_left, 0,
            "nobody else was there to keep a ghost"
        );
        assert_eq!(stats.tables[0].keys, map.len() as u64, "no ghost is left");
    }
}

#[test]
fn one_transaction_after_another_agrees_with_a_map() {
    for seed in 0..60 {
        println!("seed {seed}");
        play(
            seed,
            if seed % 4 == 0 {
                Locking::Off
            } else {
                Locking::On
            },
        );
    }
}
