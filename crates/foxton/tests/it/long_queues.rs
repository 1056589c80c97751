//! Many transactions that wait for one row: what a program and a person see of them is small.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use foxton::{
    Admission, AsyncTransaction, Database, Durability, Lock, LockManagerKind, Options, Table,
};

const ROWS: Table<u64, u64> = Table::new("rows");
const WAITERS: usize = 1_200;
/// Blockers that a refusal and a waiting lock name.
const NAMED: usize = 16;

fn poll(future: &mut Pin<Box<impl Future>>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    matches!(future.as_mut().poll(&mut context), Poll::Ready(_))
}

fn labelled(db: &Database, label: String) -> AsyncTransaction {
    let mut tx = db.begin_async().unwrap();
    tx.set_label(label);
    tx
}

#[test]
fn a_long_queue_is_seen_and_refused_in_few_words() {
    for manager in LockManagerKind::ALL {
        let mut options = Options::default();
        (options.durability, options.lock_manager) = (Durability::None, manager);
        options.lock_wait = Duration::from_secs(3_600);
        options.admission = Admission::Unlimited; // So that all wait in the queue of the row.
        let db = Database::in_memory(options).unwrap();
        db.run(|tx| tx.put(&ROWS, &1, &0)).unwrap();
        let mut holder = db.begin().unwrap();
        holder.set_label("holder");
        holder.put(&ROWS, &1, &1).unwrap();
        // `reference` takes minutes for more.
        let waiters = match manager {
            LockManagerKind::Reference => 100,
            _ => WAITERS,
        };
        let mut waiting: Vec<_> = (0..waiters)
            .map(|number| {
                let mut tx = labelled(&db, format!("waiter {number}"));
                let mut asked = Box::pin(async move { tx.put(&ROWS, &1, &2).await });
                assert!(!poll(&mut asked), "it waits");
                asked
            })
            .collect();

        let waits = db.waits();
        assert_eq!(waits.len(), waiters);
        for wait in &waits {
            let number: usize = wait.lock.label["waiter ".len()..].parse().unwrap();
            assert_eq!(wait.blockers[0].1, "holder", "{manager}");
            assert_eq!(wait.blockers.len(), NAMED.min(number + 1), "{manager}");
            assert_eq!(wait.blockers.len() + wait.more_blockers, number + 1);
            assert!(wait.to_string().len() < 1_000, "{wait}");
        }
        assert!(db.wait_graph().edges.len() <= 2 * waiters, "{manager}");

        let refused = db
            .begin()
            .unwrap()
            .get_locked(&ROWS, &1, Lock::Shared.nowait());
        let error = refused.expect_err("another transaction has it").to_string();
        assert!(error.len() < 2_500, "{} bytes: {error}", error.len());
        assert!(error.contains("holder"), "{error}");
        let more = format!(" and {} more", waiters + 1 - NAMED);
        assert!(error.contains(&more), "{manager}: {error}");

        let timed_out = Lock::Shared.timeout(Duration::from_millis(1));
        let refused = db.begin().unwrap().get_locked(&ROWS, &1, timed_out);
        let error = refused.expect_err("another transaction has it").to_string();
        assert!(error.contains(&more), "{manager}: {error}");

        // Dropped from the last to the first, and from the middle.
        waiting.drain(waiters / 4..waiters / 2);
        while waiting.pop().is_some() {}
        assert!(db.waits().is_empty());
    }
}
