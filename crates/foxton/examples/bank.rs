//! A bank: eight tellers move money between accounts while an auditor computes totals.
//!
//! Every audit sees each transfer whole or not at all, so every audit gets the same total. The
//! database is in a directory; a second run continues from the first.
//!
//! `cargo run --release -p foxton --example bank [DIRECTORY]`

use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use foxton::{Database, Durability, Error, Options, Result, Table, Transaction};

const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
const HISTORY: Table<(u64, u64), (u64, u64, i64)> = Table::new("history");

const ACCOUNT_COUNT: u64 = 50;
const OPENING_BALANCE: i64 = 1_000;
const TELLERS: u64 = 8;
const TRANSFERS: u64 = 2_000;
const AUDITS: u64 = 50;

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.unwrap_or_else(|| std::env::temp_dir().join("foxton-bank"));
    let mut options = Options::default();
    // A commit is written to the operating system at once and synced every second.
    options.durability = Durability::Buffered;
    let db = Database::open_with(&directory, options)?;
    println!("{}: {}", directory.display(), db.recovered().log);

    let first_number = db.run(open_accounts)?;
    let begun = Instant::now();
    thread::scope(|scope| {
        let tellers: Vec<_> = (0..TELLERS)
            .map(|teller| {
                scope.spawn({
                    let db = &db;
                    move || work(db, teller, first_number)
                })
            })
            .collect();
        let auditor = scope.spawn(|| (0..AUDITS).try_for_each(|_| db.run(audit).map(|_| ())));
        for thread in tellers.into_iter().chain([auditor]) {
            thread.join().expect("nobody panics")?;
        }
        Ok::<(), Error>(())
    })?;
    let seconds = begun.elapsed().as_secs_f64();

    let (balance, transfers) = db.run(audit)?;
    let stats = db.stats();
    println!(
        "{} transfers in {seconds:.2} s, {AUDITS} audits beside them",
        TELLERS * TRANSFERS
    );
    println!("{} transactions/s", (stats.commits as f64 / seconds) as u64);
    println!(
        "{} waits for locks, {} deadlocks",
        stats.locks.waits, stats.deadlocks
    );
    println!("{transfers} transfers in the history, {balance} in the accounts: as it should be");
    if let Some(report) = db.deadlocks().last() {
        print!("the last deadlock was {report}");
    }
    Ok(())
}

/// Creates the accounts on the first run. Returns the next free transfer number.
fn open_accounts(tx: &mut Transaction) -> Result<u64> {
    for account in 0..ACCOUNT_COUNT {
        if tx.get_for_update(&ACCOUNTS, &account)?.is_none() {
            tx.put(&ACCOUNTS, &account, &OPENING_BALANCE)?;
        }
    }
    let mut next = 0;
    tx.range(&HISTORY, ..)
        .for_each(|(_, number), _| next = next.max(number + 1))?;
    Ok(next)
}

/// The transfers of one teller. Some ask for more money than there is.
fn work(db: &Database, teller: u64, first_number: u64) -> Result<()> {
    let mut random = teller + 1;
    let mut below = |bound: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % bound
    };
    for number in first_number..first_number + TRANSFERS {
        let (from, to) = (below(ACCOUNT_COUNT), below(ACCOUNT_COUNT));
        let amount = below(300) as i64;
        let transfer = db.run(|tx| {
            tx.set_label("transfer");
            let balance = tx.get_for_update(&ACCOUNTS, &from)?.unwrap_or(0);
            if balance < amount {
                return Err(Error::other("not enough money"));
            }
            tx.put(&ACCOUNTS, &from, &(balance - amount))?;
            let balance = tx.get_for_update(&ACCOUNTS, &to)?.unwrap_or(0);
            tx.put(&ACCOUNTS, &to, &(balance + amount))?;
            tx.insert(&HISTORY, &(teller, number), &(from, to, amount))
        });
        match transfer {
            Err(error) if error.code() == "other" => {}
            done => done?,
        }
    }
    Ok(())
}

/// Computes the total, and compares each account with its history.
fn audit(tx: &mut Transaction) -> Result<(i64, u64)> {
    tx.set_label("audit");
    let mut expected = vec![OPENING_BALANCE; ACCOUNT_COUNT as usize];
    let mut transfers = 0;
    tx.range(&HISTORY, ..).for_each(|_, (from, to, amount)| {
        expected[from as usize] -= amount;
        expected[to as usize] += amount;
        transfers += 1;
    })?;
    let mut total = 0;
    tx.range(&ACCOUNTS, ..).for_each(|account, balance| {
        assert_eq!(
            balance, expected[account as usize],
            "account {account} and its history differ"
        );
        assert!(balance >= 0, "account {account} is overdrawn");
        total += balance;
    })?;
    assert_eq!(
        total,
        ACCOUNT_COUNT as i64 * OPENING_BALANCE,
        "money came or went"
    );
    Ok((total, transfers))
}
