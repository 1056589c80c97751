//! Loads of trees of tiny pages: rows against a list, every record replayed, pages counted, and a
//! compaction after each leaf.
#![cfg(test)]

use foxton_sync::worker::Worker;

use super::tests::{Bench, Lcg, TABLE, TestRow, insert, number_key, page_count, remove, scan_all};
use super::*;
use crate::paged::page::RowFlags;

/// Keys that share long prefixes, and values around each limit.
fn sorted_rows(seed: u64, count: u64) -> Vec<TestRow> {
    let mut random = Lcg(seed);
    let row = |number: u64| {
        let key = match number / 64 % 4 {
            0 => format!("{number:06}"),
            1 => format!(
                "{:03} a prefix that many keys have in common, {number:06}",
                number / 64
            ),
            2 => format!("{number:06}{}", "x".repeat(random.below(100) as usize)),
            _ => format!(
                "{number:06}{}",
                "x".repeat(PageSize::MIN.max_key_bytes() - 6)
            ),
        };
        let most = PageSize::MIN.max_row_bytes() - key.len();
        let bytes = match random.below(8) {
            0 => most,
            1 => 0,
            _ => random.below(30) as usize,
        };
        let flags = [RowFlags::NONE, RowFlags::OVERFLOW][usize::from(random.below(9) == 0)];
        let key = key.replace("000000 a", "\0 a").into_bytes();
        (key, vec![number as u8; bytes], flags)
    };
    let mut rows: Vec<_> = (0..count).map(row).collect();
    rows.sort_by(|one, other| one.0.cmp(&other.0));
    rows.dedup_by(|one, other| one.0 == other.0);
    rows
}

/// Loads the rows, and calls `beside` after each leaf.
fn load(tree: &PagedTree, worker: &Worker, rows: &[TestRow], mut beside: impl FnMut(usize)) {
    let mut visit = tree.visit(worker);
    let begun = visit.run(|visit| visit.begin_load()).expect("whole");
    let mut load = begun.expect("no rows");
    for (at, (key, value, flags)) in rows.iter().enumerate() {
        load.push(key, value.clone(), *flags);
        let is_due = load.is_due();
        while load.is_due() {
            visit
                .run(|visit| visit.append_leaf(&mut load))
                .expect("space");
        }
        if is_due {
            visit.release();
            beside(at);
        }
        if at % 97 == 0 {
            let stored = visit.run(|visit| visit.store_last_leaf(&mut load));
            stored.expect("space");
            visit.release();
            beside(at);
        }
    }
    let stored = visit.run(|visit| visit.store_last_leaf(&mut load));
    stored.expect("space");
}

#[test]
fn a_loaded_tree_has_its_rows_in_full_leaves() {
    for (seed, count) in [(1, 0), (2, 1), (3, 20), (4, 3_000), (5, 3_001)] {
        let bench = Bench::new(16);
        let (worker, directory) = (bench.workers.worker(), bench.directory());
        let tree = directory.create(&worker, TABLE).expect("space");
        let rows = sorted_rows(seed, count);
        load(&tree, &worker, &rows, |_| {});
        assert!(scan_all(&mut tree.visit(&worker), ScanDirection::Forward) == rows);
        bench.verify(&[&tree]);
        // It is a tree like any other.
        let mut visit = tree.visit(&worker);
        for number in (0..count).step_by(3) {
            insert(&mut visit, format!("{number:06}!").as_bytes(), b"later");
        }
        drop(visit);
        bench.verify(&[&tree]);
    }
    let bench = Bench::new(16);
    let (worker, directory) = (bench.workers.worker(), bench.directory());
    let [loaded, inserted] = [TABLE, TABLE + 1].map(|table| directory.create(&worker, table));
    let (loaded, inserted) = (loaded.expect("space"), inserted.expect("space"));
    let row = |number| (number_key(number), vec![7; 20], RowFlags::NONE);
    let rows: Vec<_> = (0..3_000).map(row).collect();
    load(&loaded, &worker, &rows, |_| {});
    let mut visit = inserted.visit(&worker);
    rows.iter()
        .for_each(|(key, value, _)| insert(&mut visit, key, value));
    drop(visit);
    bench.verify(&[&loaded, &inserted]);
    // Fifteen sixteenths, and keys without the prefix of the fences, which inserts find out late.
    let [few, many] = [&loaded, &inserted].map(|tree| page_count(tree, &worker));
    assert!(
        few * 16 <= many * 18 && few * 10 > many * 5,
        "{few} of {many}"
    );
}

/// Other threads may compact leaves, so that rows of the last one are in the one before.
#[test]
fn a_load_goes_on_where_a_compaction_has_put_its_rows() {
    let rows = sorted_rows(6, 2_000);
    let bench = Bench::new(16);
    let (worker, directory) = (bench.workers.worker(), bench.directory());
    let tree = directory.create(&worker, TABLE).expect("space");
    let mut changed = 0;
    load(&tree, &worker, &rows, |at| {
        let mut visit = tree.visit(&worker);
        let mut key = rows[at.saturating_sub(100)].0.clone();
        loop {
            let compacted = visit.run(|visit| visit.compact(&key, 0)).expect("whole");
            changed += u32::from(compacted.has_changed);
            match compacted.next {
                Some(next) => key = next.to_vec(),
                None => break,
            }
        }
    });
    assert!(changed > 20, "{changed} compactions");
    assert!(scan_all(&mut tree.visit(&worker), ScanDirection::Forward) == rows);
    bench.verify(&[&tree]);
}

#[test]
fn a_tree_with_rows_is_not_loaded_and_one_with_ghosts_is() {
    let bench = Bench::new(16);
    let (worker, directory) = (bench.workers.worker(), bench.directory());
    let tree = directory.create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    (0..500).for_each(|number| insert(&mut visit, &number_key(number), b"old"));
    assert!(
        visit
            .run(|visit| visit.begin_load())
            .expect("whole")
            .is_none()
    );
    for number in 0..500 {
        if remove(&mut visit, &number_key(number)) == PurgeReply::OnlyRow {
            visit
                .run(|visit| visit.hide(&number_key(number)))
                .expect("space");
        }
    }
    drop(visit);
    let rows = sorted_rows(7, 1_000);
    load(&tree, &worker, &rows, |_| {});
    assert!(scan_all(&mut tree.visit(&worker), ScanDirection::Forward) == rows);
    bench.verify(&[&tree]);
}

#[test]
fn rows_are_added_between_those_of_a_load() {
    let bench = Bench::new(16);
    let (worker, directory) = (bench.workers.worker(), bench.directory());
    let tree = directory.create(&worker, TABLE).expect("space");
    let (first, second): (Vec<_>, Vec<_>) = sorted_rows(8, 2_000)
        .into_iter()
        .map(|(key, value, _)| (key, value, RowFlags::NONE))
        .partition(|(key, ..)| key.len() % 2 == 0);
    load(&tree, &worker, &first, |_| {});
    let mut visit = tree.visit(&worker);
    for (key, value, _) in &second {
        assert!(visit.run(|visit| visit.add_row(key, value)).expect("space"));
        assert!(!visit.run(|visit| visit.add_row(key, b"")).expect("space"));
    }
    let mut rows = [first, second].concat();
    rows.sort_by(|one, other| one.0.cmp(&other.0));
    assert!(scan_all(&mut visit, ScanDirection::Forward) == rows);
    drop(visit);
    bench.verify(&[&tree]);
}
