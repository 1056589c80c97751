//! Trees of tiny pages in tiny pools, against a map; every record replayed; many threads.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Waker};
use std::thread;

use foxton_log::device::Device;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::{LogError, Lsn};
use foxton_sync::worker::{Worker, Workers};

use super::descend::TreeTarget;
use super::visit::Need;
use super::*;
use crate::paged::PageId;
use crate::paged::page::{
    KeyBytes, LeafRows, OwnedRow, PageKind, PageOperation, RowFlags, SlottedPage, SpaceMap, seal,
};
use crate::paged::page_log::{
    LogSpace, LoggedChange, PageEntry, PageLog, PageRecord, RowBefore, RowUndo,
};
use crate::paged::pool::{DirtyBound, DirtyWait, PageRequest, PoolError, PoolThreads};
use crate::paged::recovery::{PageTransaction, WriteError};
use crate::paged::space::{PageFile, format_file};
use crate::paged::stall::{TestProgress, fail_if_stalled};

mod bench;
mod operations;
mod storms;
mod structure;
mod tokens;
mod waits;

pub(super) use bench::Bench;
pub(super) use storms::storm;

pub(super) const IDENTITY: [u8; 16] = [7; 16];
pub(super) const TABLE: u64 = 9;

#[derive(Clone)]
pub(super) struct Lcg(pub(super) u64);

impl Lcg {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

pub(super) type Model = BTreeMap<Vec<u8>, (Vec<u8>, RowFlags)>;

/// Keys with long shared prefixes, the empty one, and longest ones.
fn random_key(random: &mut Lcg, spread: u64) -> Vec<u8> {
    let number = random.below(spread);
    match random.below(12) {
        0 => Vec::new(),
        1..=4 => {
            format!("a prefix that many keys have in common, and more of it/{number:06}").into()
        }
        5..=6 => {
            let mut key = number.to_be_bytes().to_vec();
            key.resize(PageSize::MIN.max_key_bytes(), b'x');
            key
        }
        7 => vec![b'z'; 1 + (number % 128) as usize],
        _ => format!("{number:04}").into(),
    }
}

fn random_value(random: &mut Lcg, key: &[u8]) -> Vec<u8> {
    let most = PageSize::MIN.max_row_bytes() - key.len();
    let bytes = match random.below(10) {
        0 => most,
        1 => 0,
        2..=3 => random.below(most as u64 + 1) as usize,
        _ => random.below(30) as usize,
    };
    vec![random.below(256) as u8; bytes]
}

fn model_row((key, (value, flags)): (&Vec<u8>, &(Vec<u8>, RowFlags))) -> TestRow {
    (key.clone(), value.clone(), *flags)
}

pub(super) type TestRow = (Vec<u8>, Vec<u8>, RowFlags);

/// Reads some rows of a range.
fn scan(visit: &mut TreeVisit<'_>, range: ScanRange<'_>) -> Vec<TestRow> {
    let mut rows = LeafRows::default();
    visit
        .run(|visit| visit.scan(range, &mut rows))
        .expect("whole");
    let row = |index| {
        let (key, value) = (rows.key(index).to_vec(), rows.value(index).to_vec());
        (key, value, rows.flags(index))
    };
    (0..rows.len()).map(row).collect()
}

fn predecessor(visit: &mut TreeVisit<'_>, bound: Option<&[u8]>) -> Option<TestRow> {
    let range = ScanRange {
        direction: ScanDirection::Backward,
        from: bound,
        is_excluded: false,
        end: None,
        most: 1,
    };
    scan(visit, range).pop()
}

pub(super) fn scan_all(visit: &mut TreeVisit<'_>, direction: ScanDirection) -> Vec<TestRow> {
    let mut rows: Vec<TestRow> = Vec::new();
    loop {
        let range = ScanRange {
            direction,
            from: rows.last().map(|row| &row.0[..]),
            is_excluded: !rows.is_empty(),
            end: None,
            most: usize::MAX,
        };
        match scan(visit, range) {
            more if more.is_empty() => return rows,
            more => rows.extend(more),
        }
    }
}

/// Rows of a leaf and its fences.
struct ReadLeaf {
    rows: Vec<OwnedRow>,
    low: Vec<u8>,
    high: Vec<u8>,
}

/// Reads the leaf of a key, or of the keys below it. No thread changes it.
fn read_leaf(visit: &mut TreeVisit<'_>, target: TreeTarget<'_>) -> ReadLeaf {
    let leaf = visit.run(|visit| {
        visit.attempt(|visit| {
            let leaf = visit.descend(target, 0)?;
            let page = leaf.read();
            Ok(ReadLeaf {
                rows: page.all_rows(),
                low: page.low_fence().to_vec(),
                high: page.high_fence().expect("not the last leaf").to_vec(),
            })
        })
    });
    leaf.expect("whole")
}

pub(super) fn number_key(number: u64) -> Vec<u8> {
    format!("row {number:08}").into()
}

pub(super) fn insert(visit: &mut TreeVisit<'_>, key: &[u8], value: &[u8]) {
    let reply = visit.run(|visit| visit.insert(key, value, 0, NextKey::Any));
    assert_eq!(reply.expect("whole"), InsertReply::Inserted);
}

/// Number of pages of a tree.
pub(super) fn page_count(tree: &PagedTree, worker: &Worker) -> usize {
    tree.verify(worker).expect("whole").pages.len()
}

/// Deletes the row of `key` and purges it.
pub(super) fn remove(visit: &mut TreeVisit<'_>, key: &[u8]) -> PurgeReply {
    let marked = visit.run(|visit| visit.set_flags(key, RowFlags::GHOST));
    assert_eq!(marked.expect("whole"), Some(RowFlags::NONE));
    visit.run(|visit| visit.purge(key)).expect("whole")
}
