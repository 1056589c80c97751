//! Read-only transactions, for an instruction counter.
//!
//! ```text
//! cargo build --release -p foxton --example reads
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*measured*' \
//!     target/release/examples/reads off 3000 10000
//! ```
//!
//! Divide callgrind's total by the printed count to get the instructions of one transaction: begin,
//! ten rows of a range, commit. The first argument is a lock manager, or `off` for no locking. The
//! others are the rows of each of three tables and the number of transactions.

use foxton::{Database, Durability, Locking, Options, Table};
use std::time::Instant;

const TABLES: [Table<u32, [u8]>; 3] = [Table::new("t1"), Table::new("t2"), Table::new("t3")];
const ROW: [u8; 1784] = [7; 1784];
const SIZE: u32 = 10;

fn main() -> foxton::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let locks = arguments.next().unwrap_or_else(|| "off".to_owned());
    let mut number = |usual: u32| {
        let given = arguments.next();
        given.map_or(usual, |given| given.parse().expect("a number"))
    };
    let (rows, count) = (number(3_000).max(2 * SIZE), number(10_000));
    let mut options = Options::default();
    options.durability = Durability::None;
    match &*locks {
        "off" => options.locking = Locking::Off,
        manager => options.lock_manager = manager.parse().expect("a lock manager, or off"),
    }
    let db = Database::in_memory(options)?;
    for table in &TABLES {
        for key in 1..=rows {
            db.run(|tx| tx.put(table, &key, &ROW[..]))?;
        }
    }
    measured(&db, rows, count / 10)?;
    let start = Instant::now();
    let sum = measured(&db, rows, count)?;
    let each = start.elapsed() / count;
    println!(
        "{locks}: {count} transactions, {} ns each ({sum})",
        each.as_nanos()
    );
    Ok(())
}

#[inline(never)]
fn measured(db: &Database, rows: u32, count: u32) -> foxton::Result<u64> {
    let (mut random, mut sum) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    for _ in 0..count {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let table = &TABLES[(random % 3) as usize];
        let after = (random >> 8) as u32 % (rows - SIZE);
        let mut tx = db.begin()?;
        tx.range(table, after + 1..=after + SIZE)
            .for_each_bytes(|_, row| sum += u64::from(row[0]))?;
        tx.commit()?;
    }
    assert_eq!(sum, u64::from(count) * u64::from(SIZE) * u64::from(ROW[0]));
    Ok(sum)
}
