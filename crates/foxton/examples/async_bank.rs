//! Ten thousand tasks on two threads move money between the same accounts at the same time.
//!
//! A task that has to wait for a lock, or for its commit, yields its thread. So thousands of tasks
//! wait while two threads work.
//!
//! `cargo run --release -p foxton --example async_bank`

use std::time::Instant;

use foxton::{Database, Durability, Options, Result, Table};

const ACCOUNTS: Table<u64, i64> = Table::new("accounts");

const ACCOUNT_COUNT: u64 = 500;
const OPENING_BALANCE: i64 = 1_000;
const TASKS: u64 = 10_000;

fn main() -> Result<()> {
    let mut options = Options::default();
    options.durability = Durability::Buffered;
    let db = Database::in_memory(options)?;
    let accounts = 0..ACCOUNT_COUNT;
    db.run(|tx| {
        accounts
            .clone()
            .try_for_each(|key| tx.put(&ACCOUNTS, &key, &OPENING_BALANCE))
    })?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("two threads can be started");
    let begun = Instant::now();
    let most_waiting = runtime.block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| tokio::spawn(transfer(db.clone(), task)))
            .collect();
        let mut most_waiting = 0;
        for (index, task) in tasks.into_iter().enumerate() {
            if index % 500 == 0 {
                most_waiting = most_waiting.max(db.waits().len());
            }
            task.await.expect("nobody panics")?;
        }
        Ok::<usize, foxton::Error>(most_waiting)
    })?;
    let elapsed = begun.elapsed();

    let mut total = 0;
    db.run(|tx| {
        total = 0;
        tx.range(&ACCOUNTS, ..)
            .for_each(|_, balance| total += balance)
    })?;
    let stats = db.stats();
    println!("{TASKS} tasks on two threads moved money in {elapsed:.2?}");
    println!("up to {most_waiting} of them were seen waiting at once");
    println!(
        "{} waits for locks, {} deadlocks",
        stats.locks.waits, stats.deadlocks
    );
    println!(
        "half of the waits took less than {:?}",
        stats.locks.wait_quantile(0.5)
    );
    println!("{total} in {ACCOUNT_COUNT} accounts: as it should be");
    assert_eq!(
        total,
        ACCOUNT_COUNT as i64 * OPENING_BALANCE,
        "money came or went"
    );
    assert_eq!(stats.commits, TASKS + 1);
    Ok(())
}

/// Moves a little money between two accounts. It holds the lock on the first while other tasks run.
async fn transfer(db: Database, task: u64) -> Result<()> {
    let from = task % ACCOUNT_COUNT;
    let to = (task * 31 + 7) % ACCOUNT_COUNT;
    db.run_async(|mut tx| async move {
        let balance = tx.get_for_update(&ACCOUNTS, &from).await?.unwrap_or(0);
        tx.put(&ACCOUNTS, &from, &(balance - 1)).await?;
        tokio::task::yield_now().await;
        let balance = tx.get_for_update(&ACCOUNTS, &to).await?.unwrap_or(0);
        tx.put(&ACCOUNTS, &to, &(balance + 1)).await?;
        tx.commit().await
    })
    .await
}
