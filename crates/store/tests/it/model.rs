//! A table compared with the plainest map there is.
//!
//! One thread does random operations on a table and on a `BTreeMap` and compares every answer; then
//! the table verifies itself. The kinds of keys could confuse heads, tags and separators. Nodes are
//! small, so that every run splits and shrinks at several levels. A failure prints its seed.

use foxton_store::memory::{
    InsertRefused, NewRecord, Next, Record, RecordTable, RemoveRefused, ValueBlock,
};
use foxton_sync::epoch::{Guard, Participant};
use foxton_sync::worker::Workers;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::ptr;

/// SplitMix64: good enough for a test.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

type Keys = fn(&mut Random) -> Vec<u8>;

fn numbers(random: &mut Random) -> Vec<u8> {
    random.below(400).to_be_bytes().to_vec()
}

fn short(random: &mut Random) -> Vec<u8> {
    let length = random.below(4) as usize;
    (0..length).map(|_| random.below(4) as u8).collect()
}

fn trailing_zeros(random: &mut Random) -> Vec<u8> {
    let mut key = vec![b'a' + random.below(3) as u8; 1 + random.below(3) as usize];
    key.resize(key.len() + random.below(12) as usize, 0);
    key
}

fn shared_prefix(random: &mut Random) -> Vec<u8> {
    let mut key = b"a prefix that is long".to_vec();
    key.truncate(6 + 3 * random.below(6) as usize);
    key.extend_from_slice(random.below(60).to_string().as_bytes());
    key
}

fn long(random: &mut Random) -> Vec<u8> {
    let mut key = vec![7; random.below(2) as usize * 500];
    key.resize(random.below(1025) as usize, random.below(3) as u8);
    key
}

/// Two to seven columns, the first of which are mostly the same. So nodes have prefixes, of up to
/// sixteen bytes and more, and now and then a key does not begin with them.
fn columns(random: &mut Random) -> Vec<u8> {
    let mut key = Vec::new();
    for column in 0..2 + random.below(6) {
        let number = match (column, random.below(40)) {
            (0..4, 1..) => 3,
            (_, 0) => u32::MAX - random.below(2) as u32,
            _ => random.below(4) as u32 * 256,
        };
        key.extend(number.to_be_bytes());
    }
    key.truncate(key.len() - random.below(3) as usize);
    key
}

fn mixed(random: &mut Random) -> Vec<u8> {
    let kinds = [numbers, short, trailing_zeros, shared_prefix, long, columns];
    kinds[random.below(6) as usize](random)
}

/// Both maps, and the thread's participant.
struct Pair<const N: usize> {
    table: RecordTable<N>,
    other: RecordTable,
    map: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl<const N: usize> Pair<N> {
    fn step(&mut self, participant: &Participant, random: &mut Random, keys: Keys, growing: bool) {
        let guard = participant.pin();
        let key = keys(random);
        match random.below(10) {
            0..4 if growing || random.below(3) == 0 => self.insert(&guard, &key, random),
            0..7 => self.remove(&guard, random, key),
            7 => self.replace(&guard, &key, random),
            _ => self.look(&guard, &key),
        }
    }

    fn insert(&mut self, guard: &Guard<'_>, key: &[u8], random: &mut Random) {
        let value = vec![random.below(256) as u8; random.below(40) as usize];
        let place = self.table.successor(guard, key, false);
        let [found, before] = [(); 2].map(|()| self.table.locate(guard, key));
        let found = found.record(&self.table, guard, key);
        assert_eq!(found.is_some(), self.map.contains_key(key));
        let record = NewRecord::new(key, Some(&value)).expect("within the limits");
        let wrong = self
            .table
            .insert(guard, record, Next::Is(self.stranger(guard)));
        let record = match (wrong, self.map.contains_key(key)) {
            (Err(InsertRefused::NextChanged(record)), false) => record,
            (Err(InsertRefused::Exists(there, _)), true) => return assert_eq!(there.key(), key),
            (other, _) => panic!("a stranger is nobody's neighbour: {other:?}"),
        };
        let new = self
            .table
            .insert(guard, record, place.record.into())
            .expect("a new key");
        assert_eq!(new.value(&mut guard.hazard()), Some(&value[..]));
        let found = before.record(&self.table, guard, key);
        assert!(found.is_some_and(|found| ptr::eq(found, new)));
        assert!(
            !self.table.unchanged(&place.token),
            "a key came into the gap"
        );
        self.map.insert(key.to_vec(), value);
    }

    /// A record of another table: never the right neighbour.
    fn stranger<'g>(&'g self, guard: &'g Guard<'_>) -> &'g Record {
        self.other
            .get(guard, b"stranger")
            .expect("inserted at the start")
    }

    fn remove(&mut self, guard: &Guard<'_>, random: &mut Random, key: Vec<u8>) {
        // Mostly a key that is present.
        let near = self
            .map
            .range(key.clone()..)
            .next()
            .map(|(key, _)| key.clone());
        let key = near.filter(|_| random.below(8) > 0).unwrap_or(key);
        let record = self.table.get(guard, &key);
        assert_eq!(record.is_some(), self.map.contains_key(&key));
        let Some(record) = record else { return };
        let [gone, replaced] = [(); 2].map(|()| self.table.locate(guard, &key));
        assert_eq!(
            self.table.remove(guard, record, Next::Any),
            Err(RemoveRefused::NotGhost)
        );
        let value = record.swap(None, guard);
        assert!(record.is_ghost() && record.value(&mut guard.hazard()).is_none());
        let place = self.table.successor(guard, &key, false);
        let wrong = if place.record.is_some() {
            Next::End
        } else {
            Next::Is(record)
        };
        assert_eq!(
            self.table.remove(guard, record, wrong),
            Err(RemoveRefused::NextChanged)
        );
        assert!(record.is_linked());
        assert_eq!(
            self.table.remove(guard, record, place.record.into()),
            Ok(())
        );
        assert!(!record.is_linked());
        assert_eq!(
            self.table.remove(guard, record, Next::Any),
            Err(RemoveRefused::NotLinked)
        );
        let found = gone.record(&self.table, guard, &key);
        assert!(found.is_none(), "it went after it was located");
        value.expect("not a ghost").retire(guard.participant());
        self.map.remove(&key);
        if random.below(4) == 0 {
            let record = NewRecord::new(&key, Some(b"again")).expect("within the limits");
            let again = self.table.insert(guard, record, Next::Any);
            let again = again.expect("it went");
            let found = replaced.record(&self.table, guard, &key);
            assert!(found.is_some_and(|found| ptr::eq(found, again)));
            self.map.insert(key, b"again".to_vec());
        }
    }

    fn replace(&mut self, guard: &Guard<'_>, key: &[u8], random: &mut Random) {
        let (record, value) = (self.table.get(guard, key), self.map.get_mut(key));
        let mut hazard = guard.hazard();
        assert_eq!(
            record.and_then(|record| record.value(&mut hazard)),
            value.as_deref().map(|value| &value[..])
        );
        let (Some(record), Some(value)) = (record, value) else {
            return;
        };
        let new = vec![random.below(256) as u8; random.below(40) as usize];
        let kept_since = guard.participant().recent_stamp();
        let old = record.put(&new, guard, kept_since);
        let old = old.expect("within the limits");
        assert_eq!(record.value(&mut guard.hazard()), Some(&new[..]));
        if random.below(2) == 0 {
            record
                .swap(old, guard)
                .expect("not a ghost")
                .retire(guard.participant());
        } else {
            old.expect("not a ghost").retire(guard.participant());
            *value = new;
        }
    }

    fn look(&mut self, guard: &Guard<'_>, key: &[u8]) {
        let (record, mut hazard) = (self.table.get(guard, key), guard.hazard());
        let value = record.and_then(|record| record.value(&mut hazard));
        assert_eq!(value, self.map.get(key).map(|value| &value[..]));
        for inclusive in [true, false] {
            let start = if inclusive {
                Bound::Included(key)
            } else {
                Bound::Excluded(key)
            };
            let above: Vec<_> = self
                .map
                .range::<[u8], _>((start, Bound::Unbounded))
                .collect();
            let place = self.table.successor(guard, key, inclusive);
            assert_eq!(
                place.record.map(Record::key),
                above.first().map(|(key, _)| &key[..])
            );
            assert!(self.table.unchanged(&place.token));
            let mut cursor = self.table.forward(guard, start);
            for (key, value) in above.iter().take(25) {
                let place = cursor.advance();
                let record = place.record.expect("a record for each key");
                assert_eq!(
                    (record.key(), record.value(&mut guard.hazard())),
                    (&key[..], Some(&value[..]))
                );
                assert!(self.table.unchanged(&place.token));
            }
            if above.len() <= 25 {
                assert!(cursor.advance().record.is_none());
            }
            let below = self.map.range::<[u8], _>((Bound::Unbounded, start));
            let mut cursor = self.table.backward(guard, start);
            let mut count = 0;
            for (key, _) in below.rev().take(25) {
                let place = cursor.advance();
                assert_eq!(place.record.map(Record::key), Some(&key[..]));
                assert!(self.table.unchanged(&place.token));
                count += 1;
            }
            if count < 25 {
                assert!(cursor.advance().record.is_none());
            }
        }
    }

    fn all(&self, participant: &Participant) {
        let guard = participant.pin();
        assert_eq!(self.table.verify(&guard), self.map.len());
        let mut cursor = self.table.forward(&guard, Bound::Unbounded);
        let records = std::iter::from_fn(|| cursor.advance().record);
        assert!(records.map(Record::key).eq(self.map.keys()));
        let mut cursor = self.table.backward(&guard, Bound::Unbounded);
        let records = std::iter::from_fn(|| cursor.advance().record);
        assert!(records.map(Record::key).eq(self.map.keys().rev()));
    }
}

fn compare<const N: usize>(keys: Keys, steps: usize) {
    for seed in 0..6 {
        println!("seed {seed}");
        let workers = Workers::new();
        let participant = workers.domain().participant();
        let mut random = Random(seed);
        let other = RecordTable::new(workers.domain());
        let stranger = NewRecord::new(b"stranger", None).expect("within the limits");
        other
            .insert(&participant.pin(), stranger, Next::End)
            .expect("an empty table");
        let mut pair = Pair::<N> {
            table: RecordTable::with_slots(workers.domain()),
            other,
            map: BTreeMap::new(),
        };
        for step in 0..steps {
            // Grow for a while, then shrink, then grow again.
            pair.step(&participant, &mut random, keys, step / 500 % 2 == 0);
            if step % 100 == 99 {
                pair.all(&participant);
            }
        }
        pair.all(&participant);
        for key in pair.map.keys().cloned().collect::<Vec<_>>() {
            let guard = participant.pin();
            let record = pair.table.get(&guard, &key).expect("in the map");
            record
                .swap(None, &guard)
                .expect("not a ghost")
                .retire(guard.participant());
            pair.table
                .remove(&guard, record, Next::Any)
                .expect("a ghost");
            pair.map.remove(&key);
        }
        pair.all(&participant);
    }
}

#[test]
fn numbers_in_small_nodes() {
    compare::<4>(numbers, 4000);
}

#[test]
fn short_keys_and_the_empty_key() {
    compare::<4>(short, 2000);
}

#[test]
fn keys_that_differ_in_trailing_zeros_only() {
    compare::<4>(trailing_zeros, 2000);
}

#[test]
fn keys_that_share_their_heads() {
    compare::<4>(shared_prefix, 3000);
}

#[test]
fn keys_of_several_columns() {
    compare::<4>(columns, 6000);
    compare::<64>(columns, 6000);
}

#[test]
fn keys_up_to_the_limit() {
    compare::<5>(long, 3000);
}

#[test]
fn everything_at_once() {
    compare::<6>(mixed, 4000);
}

#[test]
fn everything_at_once_in_nodes_of_the_usual_size() {
    compare::<64>(mixed, 4000);
}

#[test]
fn keys_and_values_over_the_limit_are_refused() {
    use foxton_store::{MAX_KEY_BYTES, MAX_VALUE_BYTES, TooLong};
    let key = vec![0; MAX_KEY_BYTES + 1];
    let value = vec![0; MAX_VALUE_BYTES + 1];
    assert!(NewRecord::new(&key[1..], None).is_ok());
    let refused = NewRecord::new(&key, None).map(|_| ());
    assert_eq!(
        refused,
        Err(TooLong::Key {
            bytes: MAX_KEY_BYTES + 1
        })
    );
    let refused = NewRecord::new(b"", Some(&value)).map(|_| ());
    assert_eq!(
        refused,
        Err(TooLong::Value {
            bytes: MAX_VALUE_BYTES + 1
        })
    );
    let refused = ValueBlock::new(&value).map(|_| ());
    assert_eq!(
        refused,
        Err(TooLong::Value {
            bytes: MAX_VALUE_BYTES + 1
        })
    );
    let whole = ValueBlock::new(&value[1..]).map(|_| ());
    assert_eq!(whole, Ok(()));
}
