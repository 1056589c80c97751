//! Tokens and expected keys notice what changes, and nothing else.

use super::*;

/// Two tables with rows of every tenth number.
struct TwoTables {
    bench: Bench,
    tree: Arc<PagedTree>,
    other: PagedTree,
}

impl TwoTables {
    fn new() -> TwoTables {
        // With more frames than pages, none is evicted but by the test.
        let bench = Bench::new(400);
        let worker = bench.workers.worker();
        let [tree, other] = [TABLE, 10].map(|table| {
            let tree = bench.directory().create(&worker, table).expect("space");
            let mut visit = tree.visit(&worker);
            (0..200).for_each(|number| insert(&mut visit, &number_key(10 * number), &[1; 90]));
            drop(visit);
            tree
        });
        TwoTables {
            bench,
            tree: Arc::new(tree),
            other,
        }
    }

    /// Evicts all pages but those that are kept.
    fn evict(&self, worker: &Worker) {
        self.bench.pool.clean_all(worker).expect("memory");
        self.bench.pool.evict_all(worker);
    }

    /// Returns a fence between two leaves, the last key before it, and the first behind.
    fn fence(&self, worker: &Worker) -> [Vec<u8>; 3] {
        let mut visit = self.tree.visit(worker);
        let left = read_leaf(&mut visit, TreeTarget::At(&number_key(700)));
        let fence = left.high;
        let right = read_leaf(&mut visit, TreeTarget::At(&fence));
        let last = left.rows.last().expect("a row").key.to_vec();
        assert!(last < fence && fence < right.rows[0].key.to_vec());
        [last, fence, right.rows[0].key.to_vec()]
    }
}

#[test]
fn a_token_notices_a_change_in_each_of_its_leaves_and_no_eviction() {
    // A change in the left leaf, in the right one, or none.
    for change in 0..3 {
        for evicts in [false, true] {
            let tables = TwoTables::new();
            let worker = tables.bench.workers.worker();
            let [last, fence, next] = tables.fence(&worker);
            let between = [&last[..], b"+"].concat();
            let mut visit = tables.tree.visit(&worker);
            let found = visit.run(|visit| visit.successor(&between, false));
            assert_eq!(found.expect("whole").map(|key| key.to_vec()), Some(next));
            let token = visit.token().clone();
            assert_eq!(token.leaf_count(), 2);
            assert!(tables.tree.is_unchanged(&token));
            match change {
                0 => insert(&mut visit, &between, b""),
                1 => insert(&mut visit, &fence, b""),
                _ => {}
            }
            visit.release();
            if evicts {
                tables.evict(&worker);
                assert!(
                    !tables.tree.is_unchanged(&token),
                    "its pages are not resident"
                );
                // They are read again.
                let found = visit.run(|visit| visit.successor(&between, false));
                assert!(found.expect("whole").is_some());
            }
            // After a change in the left leaf the walk ends there, and the right one may be away.
            let is_unchanged = tables.tree.is_unchanged(&token);
            assert_eq!(
                is_unchanged,
                change == 2,
                "change {change}, evicted: {evicts}"
            );
        }
    }
}

#[test]
fn an_insert_notices_a_new_key_between_it_and_the_expected_one() {
    // The expected key is in the next leaf, or in the same one.
    for is_here in [false, true] {
        let tables = TwoTables::new();
        let worker = tables.bench.workers.worker();
        let [last, fence, next] = tables.fence(&worker);
        let (key, other, next) = match is_here {
            false => ([&last[..], b"+"].concat(), fence, next),
            true => ([&next[..], b"+"].concat(), [&next[..], b"-"].concat(), {
                let number = std::str::from_utf8(&next[4..]).expect("digits");
                number_key(number.parse::<u64>().expect("a number") + 10)
            }),
        };
        let mut visit = tables.tree.visit(&worker);
        let inserts_other = {
            let (tree, worker) = (tables.tree.clone(), tables.bench.workers.worker());
            let other = other.clone();
            move || insert(&mut tree.visit(&worker), &other, b"")
        };
        // Another thread inserts a key between finding the next key and the latch.
        tables.bench.log.before_latch.set(0, inserts_other);
        let reply = visit.run(|visit| visit.insert(&key, b"", 0, NextKey::Key(&next)));
        assert_eq!(reply.expect("whole"), InsertReply::NextChanged);
        let reply = visit.run(|visit| visit.insert(&key, b"", 0, NextKey::Key(&other)));
        assert_eq!(reply.expect("whole"), InsertReply::Inserted);
    }
}

#[test]
fn an_operation_needs_no_page_but_those_that_it_keeps() {
    let tables = TwoTables::new();
    let (worker, other) = (tables.bench.workers.worker(), tables.bench.workers.worker());
    let [last, _, next] = tables.fence(&worker);
    let between = [&last[..], b"+"].concat();
    let mut visit = tables.tree.visit(&worker);
    type Operation<'a> = Box<dyn FnMut(&mut TreeVisit<'_>) -> Result<bool, TreeError> + 'a>;
    fn done<T>(attempt: Result<TreeAttempt<T>, TreeError>) -> Result<bool, TreeError> {
        attempt.map(|attempt| matches!(attempt, TreeAttempt::Done(_)))
    }
    let full = |number: u64| format!("row 000007{number:02}-").into_bytes();
    let mut operations: Vec<Operation<'_>> = vec![
        Box::new(|visit| done(visit.get(&last, &mut Vec::new()))),
        Box::new(|visit| done(visit.successor(&last, false))),
        Box::new(|visit| {
            let range = ScanRange {
                direction: ScanDirection::Backward,
                from: Some(&next),
                is_excluded: false,
                end: None,
                most: 9,
            };
            done(visit.scan(range, &mut LeafRows::default()))
        }),
        Box::new(|visit| done(visit.insert(&between, b"", 0, NextKey::Key(&next)))),
        Box::new(|visit| done(visit.update(&last, b"new"))),
        Box::new(|visit| done(visit.set_flags(&between, RowFlags::GHOST))),
        Box::new(|visit| done(visit.purge(&between))),
    ];
    // Enough rows for splits of leaves and branches.
    for number in 0..60 {
        operations.push(Box::new(move |visit| {
            done(visit.insert(&full(number), &[2; 200], 0, NextKey::Any))
        }));
    }
    for (index, operation) in operations.iter_mut().enumerate() {
        let mut attempts = 0;
        while !operation(&mut visit).expect("whole") {
            attempts += 1;
            assert!(attempts < 40, "operation {index} does not end");
            visit.wait().expect("whole");
            tables.evict(&other);
        }
        visit.release();
        tables.evict(&other);
    }
    drop(visit);
    tables.bench.verify(&[&tables.tree, &tables.other]);
}

#[test]
fn a_token_notices_that_its_leaf_is_merged() {
    let bench = Bench::new(400);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let (mut reader, mut writer) = (tree.visit(&worker), tree.visit(&worker));
    (0..200).for_each(|number| insert(&mut writer, &number_key(number), &[1; 90]));
    let mut merges = 0;
    for number in 50..150 {
        let key = number_key(number);
        // The last row of the range of a leaf, and no other leaf.
        let found = reader.run(|visit| visit.get(&key, &mut Vec::new()));
        assert_eq!(found.expect("whole"), Some(RowFlags::NONE));
        let token = reader.token().clone();
        assert!(tree.is_unchanged(&token));
        let pages = page_count(&tree, &worker);
        assert_eq!(remove(&mut writer, &key), PurgeReply::Removed);
        merges += usize::from(page_count(&tree, &worker) < pages);
        assert!(!tree.is_unchanged(&token), "row {number} went");
    }
    assert!(merges > 5, "{merges} merges");
    drop((reader, writer));
    bench.verify(&[&tree]);
}
