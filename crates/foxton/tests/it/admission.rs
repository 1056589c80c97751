//! Admission: few running transactions, many that want to run.

use std::sync::Arc;
use std::thread;

use foxton::device::MemoryDevice;
use foxton::{Database, Durability, Options, Table};

const NUMBERS: Table<u32, u64> = Table::new("numbers");

fn database(admission: &str, durability: Durability) -> Database {
    let mut options = Options::default();
    options.admission = admission.parse().unwrap();
    options.durability = durability;
    Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap()
}

#[test]
fn sixty_four_clients_at_two_seats_lose_nothing() {
    let of_each = [
        ("2", Durability::None),
        ("2", Durability::Sync),
        ("adaptive", Durability::None),
    ];
    for (admission, durability) in of_each {
        let db = database(admission, durability);
        thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    for round in 0..50 {
                        db.run(|tx| {
                            let key = round % 3;
                            let was = tx.get_for_update(&NUMBERS, &key)?.unwrap_or(0);
                            tx.put(&NUMBERS, &key, &(was + 1))
                        })
                        .unwrap();
                    }
                });
            }
        });
        let mut tx = db.begin().unwrap();
        let mut sum = 0;
        tx.range(&NUMBERS, ..)
            .for_each(|_, count| sum += count)
            .unwrap();
        assert_eq!(sum, 64 * 50);
        tx.commit().unwrap();
        db.verify();
    }
}

#[test]
fn a_thread_with_several_transactions_open_is_not_shut_out_by_itself() {
    let db = database("1", Durability::None);
    let open: Vec<_> = (0..3u32)
        .map(|key| {
            let mut tx = db.begin().unwrap();
            tx.put(&NUMBERS, &key, &1).unwrap();
            tx
        })
        .collect();
    for tx in open {
        tx.commit().unwrap();
    }
    db.run(|tx| tx.put(&NUMBERS, &9, &1)).unwrap();
    let mut tx = db.begin().unwrap();
    assert_eq!(tx.range(&NUMBERS, ..).count().unwrap(), 4);
    // A dropped, refused or rolled back transaction frees its slot.
    drop(tx);
    db.begin().unwrap().rollback();
    db.run(|tx| tx.put(&NUMBERS, &9, &2)).unwrap();
}

#[test]
fn a_waiter_continues_when_an_uncounted_transaction_releases_the_row() {
    let db = database("1", Durability::None);
    let mut holder = db.begin().unwrap();
    holder.put(&NUMBERS, &1, &1).unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| db.run(|tx| tx.put(&NUMBERS, &1, &2))))
            .collect();
        while db.waits().is_empty() {
            thread::yield_now();
        }
        holder.commit().unwrap();
        waiters
            .into_iter()
            .for_each(|waiter| waiter.join().unwrap().unwrap());
    });
}
