//! The account of communication: critical sections that a transaction passes.
//!
//! `cargo test -p foxton --features account`

use foxton::device::MemoryDevice;
use foxton::{Database, Durability, Isolation, Options, Table};
use foxton_sync::site::{Component, Pattern};
use std::sync::Arc;

const NUMBERS: Table<u64, i64> = Table::new("numbers");
const ROUNDS: u64 = 100;

#[test]
fn beginning_and_ending_a_transaction_passes_nothing_that_all_share() {
    let mut options = Options::default();
    options.durability = Durability::None;
    let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
    db.run(|tx| (0..100).try_for_each(|key| tx.put(&NUMBERS, &key, &1)))
        .unwrap();
    let passed = |run: &dyn Fn(u64)| {
        run(0);
        let before = db.stats().account;
        (0..ROUNDS).for_each(run);
        // It includes neither `stats` nor the flusher, which are counted apart.
        let since = db.stats().account.since(&before);
        move |component, pattern| since.count(component, pattern) as f64 / ROUNDS as f64
    };
    let read = passed(&|round| {
        let rows = db
            .run(|tx| tx.range(&NUMBERS, round % 90..round % 90 + 10).count())
            .unwrap();
        assert_eq!(rows, 10);
    });
    let write = passed(&|round| {
        db.run(|tx| tx.put(&NUMBERS, &(round % 100), &2)).unwrap();
    });
    println!("critical sections for each transaction: reading 10 rows, writing 1");
    for component in Component::ALL {
        for pattern in Pattern::ALL {
            let (read, write) = (read(component, pattern), write(component, pattern));
            if read != 0.0 || write != 0.0 {
                println!("{component:>12} {pattern:<12} {read:>6.2} {write:>6.2}");
            }
        }
    }
    for one in [&read as &dyn Fn(_, _) -> f64, &write] {
        assert_eq!(one(Component::Transaction, Pattern::Unbounded), 0.0);
        assert_eq!(
            one(Component::Transaction, Pattern::Fixed),
            2.0,
            "out of the rack and back"
        );
        assert_eq!(one(Component::Metadata, Pattern::Unbounded), 0.0);
    }
    assert_eq!(read(Component::Log, Pattern::Unbounded), 0.0);
    assert_eq!(write(Component::Log, Pattern::Unbounded), 0.0);
    assert_eq!(
        write(Component::Log, Pattern::Cooperative),
        1.0,
        "one record"
    );
    assert_eq!(
        write(Component::Lock, Pattern::Unbounded),
        4.0,
        "table and key, there and back"
    );
    assert_eq!(write(Component::Latch, Pattern::Unbounded), 1.0, "a value");
    assert_eq!(read(Component::Latch, Pattern::Unbounded), 0.0);
}

#[test]
fn reading_at_a_snapshot_passes_nothing_unbounded() {
    let mut options = Options::default();
    options.durability = Durability::None;
    let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
    db.run(|tx| (0..100).try_for_each(|key| tx.put(&NUMBERS, &key, &1)))
        .unwrap();
    // Versions are kept all the time.
    let lasting = db.snapshot().unwrap();
    let read = |round: u64| {
        let mut tx = db.begin().unwrap();
        tx.set_isolation(Isolation::Snapshot).unwrap();
        assert_eq!(tx.get(&NUMBERS, &(round % 100)).unwrap(), Some(1));
        assert_eq!(tx.range(&NUMBERS, 10..20).count().unwrap(), 10);
        tx.commit().unwrap();
    };
    read(0); // It makes a context.
    let before = db.stats().account;
    (0..ROUNDS).for_each(read);
    let since = db.stats().account.since(&before);
    assert_eq!(
        since.count(Component::Transaction, Pattern::Fixed),
        2 * ROUNDS,
        "out of the rack and back"
    );
    for component in Component::ALL {
        assert_eq!(since.count(component, Pattern::Unbounded), 0, "{component}");
    }
    drop(lasting);
}

#[test]
fn the_engines_own_critical_sections_are_counted_apart() {
    let mut options = Options::default();
    options.durability = Durability::Sync;
    let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
    db.run(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    // The flusher made the sync.
    let background = db.stats().background_account;
    assert!(background.count(Component::Log, Pattern::Fixed) >= 1);
    let before = db.stats().account;
    (0..ROUNDS).for_each(|_| drop(db.stats()));
    assert!(db.stats().account.since(&before).sites().is_empty());
}
