//! Ten thousand operations on a paged tree for an instruction counter:
//!
//! ```text
//! cargo build --release -p foxton-store --example tree_instructions
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*measured*' \
//!     target/release/examples/tree_instructions insert
//! ```
//!
//! The tree has a hundred thousand rows of a hundred bytes, all resident, in three levels. The
//! argument is the operation:
//!
//! * `get`: reads a random row;
//! * `update`: replaces the value of a random row by one of the same size;
//! * `insert`: inserts a row at random, with the key that is expected behind it.
//!
//! Callgrind's total divided by ten thousand is the number of instructions of one operation.

use foxton_log::{Lsn, device::memory::MemoryDevice};
use foxton_store::paged::{
    btree::{InsertReply, NextKey, TableDirectory, TreeVisit},
    page::PageSize,
    page_log::Unlogged,
    pool::BufferPool,
    space::{PageFile, format_file},
};
use foxton_sync::worker::Workers;
use std::{error::Error, hint::black_box, sync::Arc};

const ROWS: u64 = 100_000;
const OPERATIONS: u64 = 10_000;
const VALUE: [u8; 100] = [7; 100];

/// A number below [`ROWS`], another for each index.
fn scattered(index: u64) -> u64 {
    index * 7_919 % ROWS
}

/// Keys of rows, and keys that belong directly behind them.
fn key(number: u64, behind: u64) -> [u8; 9] {
    let mut key = [0; 9];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8] = behind as u8;
    key
}

#[inline(never)]
fn measured(visit: &mut TreeVisit<'_>, operation: &str) -> Result<(), Box<dyn Error>> {
    let mut value = Vec::new();
    for index in 0..OPERATIONS {
        let number = scattered(index);
        let row = key(number, 0);
        match operation {
            "get" => {
                let found = visit.run(|visit| visit.get(&row, &mut value))?;
                assert!(found.is_some());
            }
            "update" => {
                let before = visit.run(|visit| visit.update(&row, &VALUE))?;
                assert!(black_box(before).is_some());
            }
            _ => {
                let next = key(number + 1, 0);
                let expected = match number + 1 {
                    ROWS => NextKey::End,
                    _ => NextKey::Key(&next),
                };
                let new = key(number, 1);
                let reply = visit.run(|visit| visit.insert(&new, &VALUE, 0, expected))?;
                assert_eq!(reply, InsertReply::Inserted);
            }
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let operation = std::env::args().nth(1).unwrap_or_default();
    let device = MemoryDevice::new();
    let file = PageFile::create(&device, "rows", PageSize::default(), [7; 16])?;
    format_file(&file)?;
    let log = Arc::new(Unlogged::new(Lsn::ZERO));
    let pool = Arc::new(BufferPool::new(file, 8_192, log)?);
    let worker = Workers::new().worker();
    let tree = TableDirectory::new(pool).create(&worker, 9)?;
    let mut visit = tree.visit(&worker);
    for index in 0..ROWS {
        let new = key(scattered(index), 0);
        let reply = visit.run(|visit| visit.insert(&new, &VALUE, 0, NextKey::Any))?;
        assert_eq!(reply, InsertReply::Inserted);
    }
    measured(&mut visit, &operation)
}
