//! A cursor that stops at an end returns exactly the records between its ends, either way.

use foxton_store::memory::{NewRecord, Next, Record, RecordTable};
use foxton_sync::worker::{Worker, Workers};
use std::{
    collections::BTreeSet,
    ops::Bound::{self, Excluded, Included, Unbounded},
};

/// Keys of up to ten bytes of three letters: prefixes of each other, equal heads, and neighbours.
fn key(worker: &Worker) -> Vec<u8> {
    let length = worker.random_below(11);
    (0..length)
        .map(|_| b"abc"[worker.random_below(3) as usize])
        .collect()
}

fn bound(worker: &Worker, key: &[u8]) -> Bound<Vec<u8>> {
    match worker.random_below(5) {
        0 => Unbounded,
        1 | 2 => Included(key.to_vec()),
        _ => Excluded(key.to_vec()),
    }
}

fn is_inside(key: &[u8], low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) -> bool {
    let above = match low {
        Unbounded => true,
        Included(low) => key >= &low[..],
        Excluded(low) => key > &low[..],
    };
    let below = match high {
        Unbounded => true,
        Included(high) => key <= &high[..],
        Excluded(high) => key < &high[..],
    };
    above && below
}

#[test]
fn a_bounded_cursor_returns_the_records_between_its_ends() {
    let workers = Workers::with_seed(7);
    let worker = workers.worker();
    for count in [0, 1, 5, 40, 2_000] {
        let table = RecordTable::new(workers.domain());
        let guard = worker.pin();
        let mut keys = BTreeSet::new();
        for _ in 0..count {
            let key = key(&worker);
            if keys.insert(key.clone()) {
                let record = NewRecord::new(&key, Some(b"")).expect("short");
                table.insert(&guard, record, Next::Any).expect("new");
            }
        }
        for _ in 0..500 {
            let ends = [key(&worker), key(&worker)];
            let (low, high) = (bound(&worker, &ends[0]), bound(&worker, &ends[1]));
            let inside = || keys.iter().filter(|key| is_inside(key, &low, &high));
            let (from, to) = (
                low.as_ref().map(|key| &key[..]),
                high.as_ref().map(|key| &key[..]),
            );
            let up = table.forward(&guard, from).until(to);
            let down = table.backward(&guard, to).until(from);
            assert!(all(up).eq(inside().cloned()), "{low:?} to {high:?}");
            assert!(
                all(down).eq(inside().rev().cloned()),
                "{high:?} down to {low:?}"
            );
        }
    }
}

fn all<const N: usize>(
    mut cursor: foxton_store::memory::RecordCursor<'_, '_, N>,
) -> impl Iterator<Item = Vec<u8>> {
    std::iter::from_fn(move || cursor.next_record().map(Record::key).map(<[u8]>::to_vec))
}
