//! Splits and merges, and what overtakes them.

use super::*;
use crate::paged::btree::visit::TreeStop;

#[test]
fn a_descent_that_a_split_overtakes_begins_again() {
    let bench = Bench::new(200);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let (mut visit, mut other) = (tree.visit(&worker), tree.visit(&worker));
    (0..20).for_each(|number| insert(&mut other, &number_key(10 * number), &[1; 90]));
    // Key 45 is looked for: the parent was read, and the leaf not yet.
    let key = number_key(45);
    let target = TreeTarget::At(&key);
    let parent = visit.descend(target, 1).expect("resident");
    let leaves = tree.verify(&worker).expect("whole").pages.len();
    for number in 0..9 {
        insert(&mut other, &number_key(41 + number), &[1; 200]);
    }
    assert!(tree.verify(&worker).expect("whole").pages.len() > leaves);
    let child = visit.child(&parent, target);
    assert!(child.is_err_and(|stop| matches!(stop, TreeStop::Again)));
    // The parent was read, then a split came, and only then the version of the leaf was read.
    let mut number = 0;
    loop {
        let leaves = tree.verify(&worker).expect("whole").pages.len();
        let parent = visit.descend(target, 1).expect("resident");
        let child = visit.child(&parent, target).expect("resident");
        let key = format!("row 00000045-{number:02}");
        insert(&mut other, key.as_bytes(), &[1; 200]);
        number += 1;
        let has_split = tree.verify(&worker).expect("whole").pages.len() > leaves;
        let late = child.at_present(&tree);
        match visit.couple(&parent, late) {
            Ok(_) => assert!(!has_split),
            Err(TreeStop::Again) if has_split => break,
            Err(stop) => panic!("{stop:?}"),
        }
    }
}

/// Bytes that a split reserves in the log, at least. A change of a row reserves fewer.
const SPLIT_BYTES: u64 = 2048;

#[test]
fn a_split_notices_that_its_page_has_space_again() {
    // A leaf below a parent, and a root.
    for rows in [200, 0] {
        let bench = Bench::new(400);
        let worker = bench.workers.worker();
        let tree = Arc::new(bench.directory().create(&worker, TABLE).expect("space"));
        let mut visit = tree.visit(&worker);
        (0..rows).for_each(|number| insert(&mut visit, &number_key(10 * number), &[1; 90]));
        let was_split = Arc::new(AtomicBool::new(false));
        for number in 0..40 {
            let key = [&number_key(400)[..], format!("+{number:02}").as_bytes()].concat();
            let pages = page_count(&tree, &worker);
            let (purges, other) = (tree.clone(), bench.workers.worker());
            let (at, was_split) = (key.clone(), was_split.clone());
            // Between reading the full leaf and latching it, another thread purges two of its rows.
            bench.log.before_latch.set(SPLIT_BYTES, move || {
                let mut visit = purges.visit(&other);
                let range = ScanRange {
                    direction: ScanDirection::Backward,
                    from: Some(&at),
                    is_excluded: false,
                    end: None,
                    most: 2,
                };
                let rows = scan(&mut visit, range);
                assert_eq!(rows.len(), 2);
                for (key, ..) in &rows {
                    let marked = visit.run(|visit| visit.set_flags(key, RowFlags::GHOST));
                    assert_eq!(marked.expect("whole"), Some(RowFlags::NONE));
                    let purged = visit.run(|visit| visit.purge(key));
                    assert_eq!(purged.expect("whole"), PurgeReply::Removed);
                }
                was_split.store(true, Ordering::Relaxed);
            });
            insert(&mut visit, &key, &[1; 90]);
            assert_eq!(page_count(&tree, &worker), pages, "a split for nothing");
        }
        assert!(was_split.load(Ordering::Relaxed));
        bench.log.before_latch.clear();
        drop(visit);
        bench.verify(&[&tree]);
    }
}

#[test]
fn rows_that_go_leave_no_pages() {
    let ascending: fn(u64) -> u64 = |number| number;
    let descending: fn(u64) -> u64 = |number| 999 - number;
    let from_middle: fn(u64) -> u64 = |number| match number % 2 {
        0 => 500 + number / 2,
        _ => 499 - number / 2,
    };
    for order in [ascending, descending, from_middle] {
        let bench = Bench::new(16);
        let worker = bench.workers.worker();
        let tree = bench.directory().create(&worker, TABLE).expect("space");
        let mut visit = tree.visit(&worker);
        let last = number_key(order(999));
        insert(&mut visit, &last, &[1; 90]);
        for _ in 0..3 {
            let others = (0..999).map(|number| number_key(order(number)));
            others.for_each(|key| insert(&mut visit, &key, &[1; 90]));
            visit.release();
            let full = page_count(&tree, &worker);
            assert!(full > 100, "{full} pages");
            for number in 0..999 {
                let key = number_key(order(number));
                assert_eq!(remove(&mut visit, &key), PurgeReply::Removed);
            }
            visit.release();
            // The path to one leaf is left.
            let summary = tree.verify(&worker).expect("whole");
            assert_eq!(summary.pages.len(), usize::from(summary.levels));
            assert_eq!((summary.rows, summary.ghosts), (1, 0));
        }
        assert_eq!(remove(&mut visit, &last), PurgeReply::OnlyRow);
        drop(visit);
        bench.verify(&[&tree]);
    }
}

#[test]
fn rows_that_fill_their_pages_are_stored_and_erased() {
    // In order, backwards, in random order, and between others.
    for seed in 0..4_u64 {
        let bench = Bench::new(16);
        let worker = bench.workers.worker();
        let tree = bench.directory().create(&worker, TABLE).expect("space");
        let mut visit = tree.visit(&worker);
        let mut random = Lcg(seed);
        let mut model = BTreeMap::new();
        let longest = 1024 - BESIDE_PART;
        for number in 0..200 {
            let number = match seed {
                0 => number,
                1 => 1000 - number,
                _ => random.below(1000),
            };
            let mut key = vec![0; 12 + random.below(5) as usize];
            key[4..12].copy_from_slice(&number.to_be_bytes());
            let bytes = match random.below(3) {
                0 => longest,
                1 => longest / 2 - random.below(30) as usize,
                _ => random.below(100) as usize,
            };
            let value = vec![number as u8; bytes];
            let is_new = !model.contains_key(&key);
            let stored = visit.run(|visit| visit.store(&key, &value));
            assert_eq!(stored.expect("whole"), is_new);
            model.entry(key).or_insert(value);
            if seed == 3 && random.below(3) > 0 {
                let (key, _) = model.pop_first().expect("it has one");
                let erased = visit.run(|visit| visit.erase(&key)).expect("whole");
                if erased == PurgeReply::OnlyRow {
                    model.insert(key, vec![]);
                    let found = model.last_key_value().expect("it has one").0.clone();
                    assert!(
                        model.len() == 1 || tree.verify(&worker).is_ok(),
                        "{found:?}"
                    );
                    break;
                }
            }
        }
        let rows = scan_all(&mut visit, ScanDirection::Forward);
        let keys: Vec<_> = rows.iter().map(|row| row.0.clone()).collect();
        assert!(keys.iter().eq(model.keys()));
        assert!(rows.iter().all(|row| row.1 == model[&row.0]));
        visit.release();
        bench.verify(&[&tree]);
        for key in keys.iter().skip(1) {
            let erased = visit.run(|visit| visit.erase(key)).expect("whole");
            assert_eq!(erased, PurgeReply::Removed);
        }
        let again = visit.run(|visit| visit.erase(&keys[1])).expect("whole");
        assert_eq!(again, PurgeReply::NoGhost);
        drop(visit);
        let summary = bench.verify(&[&tree]);
        assert_eq!(summary.pages.len(), usize::from(summary.levels));
    }
}

#[test]
fn a_merge_keeps_reserved_space_and_flags() {
    let bench = Bench::new(400);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    for number in 0..200 {
        let key = number_key(number);
        let inserted = visit.run(|visit| visit.insert(&key, b"1", 90, NextKey::Any));
        assert_eq!(inserted.expect("whole"), InsertReply::Inserted);
    }
    let full = page_count(&tree, &worker);
    for number in (0..200).filter(|number| number % 10 != 0) {
        assert_eq!(remove(&mut visit, &number_key(number)), PurgeReply::Removed);
    }
    for number in (0..200).step_by(20) {
        let key = number_key(number);
        let marked = visit.run(|visit| visit.set_flags(&key, RowFlags::GHOST));
        assert_eq!(marked.expect("whole"), Some(RowFlags::NONE));
    }
    visit.release();
    let summary = tree.verify(&worker).expect("whole");
    assert!(summary.pages.len() * 3 < full, "{summary:?}");
    assert_eq!((summary.rows, summary.ghosts), (20, 10));
    for page in summary.pages {
        let fixed = bench.pool.reserve(&worker, &[PageRequest::read(page)]);
        let fixed = fixed.expect("whole");
        let view = fixed.pages()[0].view_now(&worker);
        let rows = view.read().all_rows();
        let leaf = (view.read().level() == 0).then_some(rows);
        assert!(
            leaf.into_iter()
                .flatten()
                .all(|row| row.reserved_bytes == 90)
        );
    }
}

#[test]
fn a_split_notices_that_another_was_faster() {
    let bench = Bench::new(200);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let (mut visit, mut other) = (tree.visit(&worker), tree.visit(&worker));
    let key = number_key(1 << 20);
    let mut pages = page_count(&tree, &worker);
    for number in 0..200 {
        let last = visit.run(|visit| {
            visit.attempt(|visit| {
                let leaf = visit.descend(TreeTarget::At(&key), 0)?;
                Ok((leaf.page(), leaf.read().lsn()))
            })
        });
        let last = last.expect("whole");
        insert(&mut other, &number_key(number), &[1; 90]);
        if page_count(&tree, &worker) > pages {
            // The last leaf was full, and has one row now.
            pages = page_count(&tree, &worker);
            let split = visit.run(|visit| visit.attempt(|visit| visit.split(&key, 0, last)));
            split.expect("nothing to do");
            assert_eq!(page_count(&tree, &worker), pages);
        }
    }
    assert!(pages > 10);
    drop((visit, other));
    bench.verify(&[&tree]);
}

#[test]
fn a_split_notices_that_its_parent_was_split() {
    let bench = Bench::new(400);
    let worker = bench.workers.worker();
    let tree = Arc::new(bench.directory().create(&worker, TABLE).expect("space"));
    let mut visit = tree.visit(&worker);
    (0..800).for_each(|number| insert(&mut visit, &number_key(10 * number), &[1; 90]));
    let parent_was_split = Arc::new(AtomicBool::new(false));
    for number in 0..9 {
        let key = number_key(4001 + number);
        let (splits, other) = (tree.clone(), bench.workers.worker());
        let (at, was_split) = (key.clone(), parent_was_split.clone());
        // Between reading the parent of the full leaf and latching it, another thread fills the
        // leaves to the left, until the full one has another parent.
        bench.log.before_latch.set(SPLIT_BYTES, move || {
            let mut visit = splits.visit(&other);
            let leaf = read_leaf(&mut visit, TreeTarget::Below(Some(&at)));
            let (last, ..) = predecessor(&mut visit, Some(&leaf.low)).expect("a row");
            let mut parent = || {
                let parent = visit.descend(TreeTarget::At(&at), 1).expect("resident");
                parent.page()
            };
            let (before, mut count) = (parent(), 0);
            assert_ne!(before, splits.root());
            while parent() == before {
                let key = [&last[..], format!("+{count:04}").as_bytes()].concat();
                insert(&mut splits.visit(&other), &key, &[1; 200]);
                count += 1;
                assert!(count < 1000, "the parent is never split");
            }
            was_split.store(true, Ordering::Relaxed);
        });
        insert(&mut visit, &key, &[1; 90]);
    }
    assert!(parent_was_split.load(Ordering::Relaxed));
    bench.log.before_latch.clear();
    drop(visit);
    bench.verify(&[&tree]);
}
