//! Relocation, compaction and shrinking of trees of tiny pages: rows against those before, every
//! record replayed, pages counted, many threads.
#![cfg(test)]

use std::time::Duration;

use foxton_sync::worker::Worker;

use super::tests::{
    Bench, Lcg, TABLE, TestRow, insert, number_key, page_count, remove, scan_all, storm,
};
use super::visit::Need;
use super::*;
use crate::paged::page::{RowFlags, SlottedPage};
use crate::paged::pool::PageRequest;
use crate::paged::shrink::{FileShrink, ShrinkStep};
use crate::paged::stall::fail_if_stalled;

/// Moves pages until none is left to be moved.
fn move_all(shrink: &mut FileShrink<'_>, worker: &Worker) {
    let mut busy = 0;
    loop {
        match shrink.step(worker).expect("whole") {
            ShrinkStep::Done => return,
            ShrinkStep::Moved => busy = 0,
            ShrinkStep::Busy if busy < 200 => {
                busy += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            ShrinkStep::Busy => {
                shrink.stop();
            }
        }
    }
}

fn clean_all(bench: &Bench, worker: &Worker) {
    while bench.pool.dirty_count() > 0 {
        bench.pool.clean_all(worker).expect("memory");
    }
}

fn all_rows(tree: &PagedTree, worker: &Worker) -> Vec<TestRow> {
    scan_all(&mut tree.visit(worker), ScanDirection::Forward)
}

/// Pages up to the logical end, and those of the file.
fn ends(bench: &Bench) -> [u64; 2] {
    let file = bench.pool.file();
    let bytes = file.length().expect("memory");
    [file.header().end, bytes / PageSize::MIN.bytes() as u64]
}

/// Two tables, of which the second was created when the first had many rows, most of which are gone
/// now. So all of the second one's pages are at the end, its root and its partition page too.
fn emptied_tables(bench: &Bench, directory: &TableDirectory, worker: &Worker) -> [PagedTree; 2] {
    let tree = directory.create(worker, TABLE).expect("space");
    let mut visit = tree.visit(worker);
    (0..3_000).for_each(|number| insert(&mut visit, &number_key(number), &[1; 90]));
    visit.release();
    let second = directory.create(worker, TABLE + 1).expect("space");
    let mut other = second.visit(worker);
    (0..300).for_each(|number| insert(&mut other, &number_key(number), &[2; 60]));
    other.release();
    for number in 0..2_800 {
        remove(&mut visit, &number_key(number));
    }
    let marked = visit.run(|visit| visit.set_flags(&number_key(2_900), RowFlags::GHOST));
    assert!(marked.expect("whole").is_some());
    let shorter = visit.run(|visit| visit.update(&number_key(2_901), b"short"));
    assert!(shorter.expect("whole").is_some());
    drop((visit, other));
    bench.verify(&[&tree, &second]);
    [tree, second]
}

#[test]
fn all_pages_move_down_and_the_file_is_cut() {
    let bench = Bench::new(64);
    let (worker, directory) = (bench.workers.worker(), bench.directory());
    let trees = emptied_tables(&bench, &directory, &worker);
    let (before, rows) = (
        ends(&bench),
        trees.each_ref().map(|tree| all_rows(tree, &worker)),
    );
    let roots = trees.each_ref().map(PagedTree::root);

    let mut shrink = FileShrink::begin(&directory, 0);
    assert!(shrink.remaining() > 100);
    let mut moved = 0;
    loop {
        match shrink.step(&worker).expect("whole") {
            ShrinkStep::Moved => moved += 1,
            other => {
                assert_eq!(other, ShrinkStep::Done);
                break;
            }
        }
        if moved % 16 == 0 {
            bench.verify(&trees.each_ref());
        }
    }
    assert_eq!((shrink.moved(), shrink.remaining()), (moved, 0));
    assert!(moved > 50 && trees[1].root() != roots[1], "{moved} pages");
    assert!(!shrink.finish(&worker).expect("memory"), "pages are dirty");
    assert_eq!(ends(&bench), before);
    clean_all(&bench, &worker);
    assert!(shrink.finish(&worker).expect("memory"));
    drop(shrink);

    // Not a free page is left, for as many pages as are used.
    let used: usize = trees.iter().map(|tree| page_count(tree, &worker)).sum();
    let [end, length] = ends(&bench);
    // Header, directory, map and two partition pages.
    assert_eq!((end, length), (used as u64 + 5, end));
    assert!(end * 4 < before[0]);
    let now = trees.each_ref().map(|tree| all_rows(tree, &worker));
    assert_eq!(now, rows);
    assert_eq!(rows[0].len(), 200);
    bench.verify(&trees.each_ref());

    // An opening finds them, and each row keeps the space that its undo may need.
    drop((trees, directory, worker));
    let bench = bench.reopen(64);
    let (worker, directory) = (bench.workers.worker(), bench.directory());
    let open = |table| directory.open(&worker, table).expect("whole");
    let trees = [TABLE, TABLE + 1].map(|table| open(table).expect("it is there"));
    let now = trees.each_ref().map(|tree| all_rows(tree, &worker));
    assert_eq!(now, rows);
    let mut visit = trees[0].visit(&worker);
    let longer = visit.run(|visit| visit.update(&number_key(2_901), &[1; 90]));
    assert!(longer.expect("whole").is_some());
    (0..500).for_each(|number| insert(&mut visit, &number_key(number), &[3; 90]));
    drop(visit);
    bench.verify(&trees.each_ref());
}

#[test]
fn a_second_shrinking_moves_nothing() {
    let bench = Bench::new(64);
    let (worker, directory) = (bench.workers.worker(), bench.directory());
    let trees = emptied_tables(&bench, &directory, &worker);
    for round in 0..2 {
        let mut shrink = FileShrink::begin(&directory, 0);
        move_all(&mut shrink, &worker);
        assert_eq!(shrink.moved() > 0, round == 0);
        clean_all(&bench, &worker);
        assert!(shrink.finish(&worker).expect("memory"));
    }
    bench.verify(&trees.each_ref());
}

#[test]
fn a_shrinking_that_stops_leaves_all_as_it_is() {
    let bench = Bench::new(64);
    let (worker, directory) = (bench.workers.worker(), bench.directory());
    let trees = emptied_tables(&bench, &directory, &worker);
    let (before, rows) = (ends(&bench), all_rows(&trees[0], &worker));
    let mut shrink = FileShrink::begin(&directory, 0);
    for _ in 0..20 {
        assert_eq!(shrink.step(&worker).expect("whole"), ShrinkStep::Moved);
    }
    drop(shrink);
    assert!(!bench.pool.space().is_held());
    assert_eq!((ends(&bench), all_rows(&trees[0], &worker)), (before, rows));
    bench.verify(&trees.each_ref());
}

/// Stores and erases rows that fill pages, so that the file has more than one map.
fn two_maps(bench: &Bench, directory: &TableDirectory, worker: &Worker) -> PagedTree {
    let tree = directory.create(worker, TABLE).expect("space");
    let mut visit = tree.visit(worker);
    let key = |number: u64| number.to_be_bytes();
    let mapped = PageSize::MIN.mapped_pages();
    for number in 0..mapped + 200 {
        let stored = visit.run(|visit| visit.store(&key(number), &[7; 800]));
        assert!(stored.expect("whole"));
    }
    for number in 50..mapped + 100 {
        let _ = visit.run(|visit| visit.erase(&key(number))).expect("whole");
    }
    assert!(bench.pool.file().header().end > mapped);
    drop(visit);
    tree
}

#[test]
fn pages_move_from_one_map_to_another_and_a_map_that_comes_again_is_a_new_one() {
    // All pages stay resident.
    let bench = Bench::new(6_000);
    let (worker, directory) = (bench.workers.worker(), bench.directory());
    let tree = two_maps(&bench, &directory, &worker);
    let rows = all_rows(&tree, &worker);
    let map = PageSize::MIN.map_page(1);
    let lsn = |bench: &Bench| {
        let fixed = bench.pool.reserve(&worker, &[PageRequest::read(map)]);
        let fixed = fixed.expect("whole");
        fixed.pages()[0].view_now(&worker).read().lsn()
    };
    let old = lsn(&bench);

    let mut shrink = FileShrink::begin(&directory, 0);
    move_all(&mut shrink, &worker);
    assert!(shrink.moved() >= 100);
    bench.verify(&[&tree]);
    clean_all(&bench, &worker);
    assert!(shrink.finish(&worker).expect("memory"));
    drop(shrink);
    assert!(ends(&bench)[1] < 300);
    assert_eq!(all_rows(&tree, &worker), rows);
    bench.verify(&[&tree]);

    // The frame of the map is still there. Growth renews it, as it renews the map in the file.
    while ends(&bench)[0] <= map.number() {
        let space = bench.pool.space();
        while let Some(claim) = space.claim_first(&worker) {
            claim.keep();
        }
        bench.pool.grow_file(&worker).expect("memory");
    }
    let mut image = bench.pool.file().buffer(1);
    bench.pool.file().read(map, &mut image).expect("whole");
    let grown = SlottedPage::new(image.bytes()).lsn();
    assert!(grown > old, "{grown} and {old}");
    assert_eq!(lsn(&bench), grown);
}

#[test]
fn compaction_fills_pages() {
    let mut random = Lcg(5);
    for bytes in [10, 90, 200] {
        let bench = Bench::new(64);
        let (worker, directory) = (bench.workers.worker(), bench.directory());
        let tree = directory.create(&worker, TABLE).expect("space");
        let mut visit = tree.visit(&worker);
        let mut keys: Vec<_> = (0..3_000).map(number_key).collect();
        for at in (1..keys.len()).rev() {
            keys.swap(at, random.below(at as u64 + 1) as usize);
        }
        keys.iter()
            .for_each(|key| insert(&mut visit, key, &vec![1; bytes]));
        for key in keys.iter().filter(|key| key[key.len() - 1] % 3 == 0) {
            remove(&mut visit, key);
        }
        visit.release();
        let rows = all_rows(&tree, &worker);
        let before = bench.verify(&[&tree]).pages.len();
        for level in 0.. {
            let mut key = KeyOf::new();
            let mut changed = 0;
            loop {
                let compacted = visit
                    .run(|visit| visit.compact(&key, level))
                    .expect("whole");
                changed += usize::from(compacted.has_changed);
                match (compacted.has_changed, compacted.next) {
                    (true, _) => {}
                    (false, Some(next)) => key = next.to_vec(),
                    (false, None) => break,
                }
            }
            if level > 0 && changed == 0 {
                break;
            }
        }
        visit.release();
        let after = bench.verify(&[&tree]).pages.len();
        assert_eq!(all_rows(&tree, &worker), rows);
        let least = rows.len() * (16 + 5 + bytes) / 1024;
        println!("{bytes} bytes: {before} pages, then {after}, at least {least}");
        assert!(after * 10 < before * 8, "{before} pages, then {after}");
        assert!(after * 10 < least * 13, "{after} pages for {least}");
    }
}

type KeyOf = Vec<u8>;

/// Shrinks and compacts beside writers.
fn shrink_beside(bench: &Bench, directory: &TableDirectory, worker: &Worker) {
    let tree = directory
        .open(worker, TABLE)
        .expect("whole")
        .expect("it is there");
    let (mut key, mut visit) = (Vec::new(), tree.visit(worker));
    loop {
        let compacted = visit.run(|visit| visit.compact(&key, 0)).expect("whole");
        match (compacted.has_changed, compacted.next) {
            (true, _) => {}
            (false, Some(next)) => key = next.to_vec(),
            (false, None) => break,
        }
    }
    drop(visit);
    let mut shrink = FileShrink::begin(directory, 0);
    move_all(&mut shrink, worker);
    for _ in 0..10 {
        bench.pool.clean_all(worker).expect("memory");
        if shrink.finish(worker).expect("memory") {
            break;
        }
    }
}

#[test]
fn many_threads_share_a_tree_that_is_shrunk_all_the_time() {
    fail_if_stalled(|progress| {
        storm(progress, [4, 2_000], 16, 500, Some(&shrink_beside));
        storm(progress, [40, 100], 16, 500, Some(&shrink_beside));
        storm(progress, [8, 1_500], 2_000, 100, Some(&shrink_beside));
    });
}

#[test]
fn a_page_that_is_cut_off_before_it_is_read_is_looked_for_anew() {
    let bench = Bench::new(64);
    let (worker, directory) = (bench.workers.worker(), bench.directory());
    let trees = emptied_tables(&bench, &directory, &worker);
    let key = number_key(150);
    let leaf = {
        let mut visit = trees[1].visit(&worker);
        let mut value = Vec::new();
        visit
            .run(|visit| visit.get(&key, &mut value))
            .expect("whole");
        let hint = visit.leaf().and_then(|leaf| bench.pool.hinted(leaf));
        hint.expect("it was just read").page()
    };
    clean_all(&bench, &worker);
    bench.pool.evict_all(&worker);
    let mut visit = trees[1].visit(&worker);
    let mut value = Vec::new();
    loop {
        let attempt = visit.get(&key, &mut value).expect("whole");
        assert_eq!(attempt, TreeAttempt::Wait, "no page is resident");
        let Need::Pages(pages) = &visit.need else {
            panic!("it needs pages");
        };
        if pages.iter().any(|request| request.page == leaf) {
            break;
        }
        visit.wait().expect("whole");
    }

    let mut shrink = FileShrink::begin(&directory, 0);
    move_all(&mut shrink, &worker);
    clean_all(&bench, &worker);
    assert!(shrink.finish(&worker).expect("memory"));
    assert!(ends(&bench)[0] <= leaf.number());
    drop(shrink);
    bench.pool.evict_all(&worker);

    visit.wait().expect("its page is another one now");
    let found = visit.run(|visit| visit.get(&key, &mut value));
    assert_eq!(
        (found.expect("whole"), &value[..]),
        (Some(RowFlags::NONE), &[2; 60][..])
    );
    drop(visit);

    // One that is damaged is an error still.
    let gone = PagedTree::new(directory.tree().pool.clone(), TABLE, leaf);
    let failed = gone.visit(&worker).run(|visit| visit.get(&key, &mut value));
    assert!(matches!(failed, Err(TreeError::Pool(_))), "{failed:?}");
}
