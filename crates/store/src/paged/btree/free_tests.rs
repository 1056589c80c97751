//! Freeing of trees of tiny pages: after each record the tree is whole, and at the end no page of
//! it is used.
#![cfg(test)]

use foxton_sync::worker::Worker;

use super::free::FreeStep;
use super::tests::{Bench, TABLE, TestRow, insert, scan_all};
use super::*;

/// Rows of a leaf have much of their keys in common, and those of two leaves may not.
fn key(number: u64) -> Vec<u8> {
    let group = number / 30;
    format!("{group:03} is a prefix that many keys have in common/{number:06}").into()
}

fn rows_of(tree: &PagedTree, worker: &Worker) -> Vec<TestRow> {
    scan_all(&mut tree.visit(worker), ScanDirection::Forward)
}

/// Used pages that are not the directory's.
fn used_pages(bench: &Bench, worker: &Worker) -> u64 {
    let directory = bench.directory().tree().verify(worker).expect("whole");
    let used = bench.pool.file().header().end - bench.pool.space().free_count();
    used - directory.pages.len() as u64
}

#[test]
fn a_tree_goes_page_by_page_and_is_whole_in_between() {
    for (rows, other_tables) in [(0, 0), (5, 0), (60, 0), (1_500, 3), (1_500, 120)] {
        let mut bench = Bench::new(32);
        let mut worker = bench.workers.worker();
        let mut directory = bench.directory();
        let mut others = Vec::new();
        for table in 1..=other_tables {
            others.push(directory.create(&worker, 2 * TABLE + table).expect("space"));
        }
        let before = used_pages(&bench, &worker);
        let mut tree = directory.create(&worker, TABLE).expect("space");
        let mut visit = tree.visit(&worker);
        (0..rows).for_each(|number| insert(&mut visit, &key(number * 7 % rows), &[1; 10]));
        drop(visit);
        let whole = bench.verify(&all(&tree, &others));
        assert!(rows < 1_500 || others.is_empty() || whole.levels >= 1);
        let (mut steps, mut rows_left) = (0, rows_of(&tree, &worker).len());
        loop {
            let step = tree.next_free_step(&worker).expect("whole");
            if step == FreeStep::Last {
                break;
            }
            assert!(tree.free_page(&worker, &step).expect("space"), "{step:?}");
            steps += 1;
            let left = rows_of(&tree, &worker).len();
            match step {
                FreeStep::Leaf(..) => assert!(left < rows_left),
                _ => assert_eq!(left, rows_left),
            }
            rows_left = left;
            if steps % 40 < 2 {
                bench.verify(&all(&tree, &others));
            }
            // A restart in between finds a whole tree, and goes on.
            if steps == 70 && others.len() == 3 {
                drop((tree, others, directory, worker));
                bench = bench.reopen(32);
                (worker, directory) = (bench.workers.worker(), bench.directory());
                tree = directory
                    .open(&worker, TABLE)
                    .expect("whole")
                    .expect("it is there");
                let others_again = directory.trees(&worker).expect("whole").into_iter();
                others = others_again
                    .filter(|other| other.table() != TABLE)
                    .collect();
            }
        }
        assert!(rows < 1_500 || steps > 100, "{steps}");
        assert!(directory.free_last(&worker, &tree).expect("space"));
        bench.verify(&others.iter().collect::<Vec<_>>());
        assert_eq!(used_pages(&bench, &worker), before, "{rows} rows");
        assert!(directory.open(&worker, TABLE).expect("whole").is_none());
        assert_eq!(directory.trees(&worker).expect("whole").len(), others.len());
        let found = tree
            .visit(&worker)
            .run(|visit| visit.get(b"key", &mut Vec::new()));
        assert!(matches!(found, Err(TreeError::Dropped { table: TABLE })));
        assert!(!directory.free_last(&worker, &tree).expect("whole"));
    }
}

/// Trees in the order of their numbers, as the check counts them.
fn all<'t>(tree: &'t PagedTree, others: &'t [PagedTree]) -> Vec<&'t PagedTree> {
    others.iter().chain([tree]).collect()
}

/// The rows of the directory go, too, and those that must stay stand for no tree. A table of such a
/// number can be made again after the file was opened again.
#[test]
fn the_directory_loses_the_trees() {
    let bench = Bench::new(32);
    let (worker, directory) = (bench.workers.worker(), bench.directory());
    let before = used_pages(&bench, &worker);
    let trees: Vec<_> = (1..=300)
        .map(|table| directory.create(&worker, table).expect("space"))
        .collect();
    let rows = |directory: &TableDirectory| directory.tree().verify(&worker).expect("whole").rows;
    assert_eq!(rows(&directory), 300);
    for tree in &trees {
        assert!(directory.free_last(&worker, tree).expect("space"));
    }
    assert!(directory.trees(&worker).expect("whole").is_empty());
    assert!(rows(&directory) < 40, "{}", rows(&directory));
    assert!(used_pages(&bench, &worker) < before + 1);
    drop(trees);
    let again = bench.directory();
    let trees: Vec<_> = (1..=300)
        .map(|table| again.create(&worker, table).expect("space"))
        .collect();
    let numbers: Vec<u64> = again
        .trees(&worker)
        .expect("whole")
        .iter()
        .map(PagedTree::table)
        .collect();
    assert!((1..=300).eq(numbers));
    assert_eq!(rows(&again), 300);
    bench.verify(&trees.iter().collect::<Vec<_>>());
}
