//! Random operations beside a map, and single ones that fail.

use super::*;

/// Compares a scan with the rows of a model, from a random position on.
fn compare_scan(visit: &mut TreeVisit<'_>, model: &Model, random: &mut Lcg, spread: u64) {
    let (mut from, mut end) = (random_key(random, spread), random_key(random, spread));
    let (is_open, has_end) = (random.below(10) == 0, random.below(2) == 0);
    let (is_excluded, most) = (random.below(2) == 0, 1 + random.below(20) as usize);
    let direction = [ScanDirection::Forward, ScanDirection::Backward][random.below(2) as usize];
    if !is_open && (from > end) == (direction == ScanDirection::Forward) {
        std::mem::swap(&mut from, &mut end);
    }
    let found = scan(
        visit,
        ScanRange {
            direction,
            from: (!is_open).then_some(&from[..]),
            is_excluded: is_excluded && !is_open,
            end: has_end.then_some(&end[..]),
            most,
        },
    );
    let all: Vec<TestRow> = match direction {
        ScanDirection::Forward => (model.iter())
            .filter(|row| is_open || *row.0 > from || (*row.0 == from && !is_excluded))
            .map(model_row)
            .collect(),
        ScanDirection::Backward => (model.iter().rev())
            .filter(|row| is_open || *row.0 < from)
            .map(model_row)
            .collect(),
    };
    assert_eq!(found.is_empty(), all.is_empty());
    assert!(found.len() <= most);
    assert_eq!(found[..], all[..found.len()], "without a hole");
    let is_beyond = |row: &TestRow| match direction {
        ScanDirection::Forward => row.0 > end,
        ScanDirection::Backward => row.0 < end,
    };
    let beyond = found.iter().filter(|row| has_end && is_beyond(row)).count();
    assert!(beyond <= 1, "{beyond} rows behind the end");
}

/// One random operation on both. Rows are purged only if the tree is to shrink.
fn step(
    visit: &mut TreeVisit<'_>,
    model: &mut Model,
    random: &mut Lcg,
    (spread, shrinks): (u64, bool),
) {
    let key = random_key(random, spread);
    let mut buffer = Vec::new();
    match random.below(if shrinks { 16 } else { 10 }) {
        0..=5 => {
            let value = random_value(random, &key);
            let next = model.range(key.clone()..).find(|row| *row.0 != key);
            let next = next.map(|row| row.0.clone());
            let is_wrong = random.below(8) == 0;
            let expected = match &next {
                _ if is_wrong => NextKey::Key(b"no key"),
                Some(next) => NextKey::Key(next),
                None => NextKey::End,
            };
            let reply = visit.run(|visit| visit.insert(&key, &value, 0, expected));
            let expected = match model.get(&key) {
                _ if is_wrong => InsertReply::NextChanged,
                Some((_, flags)) => InsertReply::Exists(*flags),
                None => InsertReply::Inserted,
            };
            assert_eq!(reply.expect("whole"), expected);
            if expected == InsertReply::Inserted {
                model.insert(key, (value, RowFlags::NONE));
            }
        }
        6 => {
            let value = random_value(random, &key);
            let flags = [RowFlags::NONE, RowFlags::GHOST][random.below(2) as usize];
            let before = visit.run(|visit| visit.rewrite(&key, &value, flags));
            let known = model.get_mut(&key);
            let known = known.map(|row| std::mem::replace(row, (value, flags)));
            assert_eq!(before.expect("whole"), known.map(|row| (row.1, row.0)));
        }
        7..=8 => {
            let value = random_value(random, &key);
            let before = visit.run(|visit| visit.update(&key, &value));
            let known = model
                .get_mut(&key)
                .map(|row| std::mem::replace(&mut row.0, value));
            assert_eq!(before.expect("whole"), known);
        }
        9 => {
            let flags = [RowFlags::NONE, RowFlags::GHOST][random.below(2) as usize];
            let before = visit.run(|visit| visit.set_flags(&key, flags));
            let known = model
                .get_mut(&key)
                .map(|row| std::mem::replace(&mut row.1, flags));
            assert_eq!(before.expect("whole"), known);
        }
        10..=11 => {
            // Rows of a range go, so that leaves are left with one ghost.
            let ghosts: Vec<_> = model
                .range(key..)
                .take(3)
                .map(|row| row.0.clone())
                .collect();
            for key in ghosts {
                if !model[&key].1.has(RowFlags::GHOST) {
                    let refused = visit.run(|visit| visit.purge(&key)).expect("whole");
                    assert_eq!(refused, PurgeReply::NoGhost);
                    let marked = visit.run(|visit| visit.set_flags(&key, RowFlags::GHOST));
                    assert_eq!(marked.expect("whole"), Some(RowFlags::NONE));
                    model.get_mut(&key).expect("it is there").1 = RowFlags::GHOST;
                }
                match visit.run(|visit| visit.purge(&key)).expect("whole") {
                    PurgeReply::Removed => drop(model.remove(&key)),
                    PurgeReply::OnlyRow => {}
                    PurgeReply::NoGhost => panic!("{key:?} is a ghost"),
                }
            }
        }
        12 => {
            let flags = visit
                .run(|visit| visit.get(&key, &mut buffer))
                .expect("whole");
            let known = model.get(&key);
            assert_eq!(flags, known.map(|row| row.1));
            let found = visit.run(|visit| visit.flags(&key));
            assert_eq!(found.expect("whole"), flags);
            assert_eq!(buffer, known.map_or(Vec::new(), |row| row.0.clone()));
        }
        13 => {
            let inclusive = random.below(2) == 0;
            let found = visit.run(|visit| visit.successor(&key, inclusive));
            let known = model
                .range(key.clone()..)
                .find(|row| inclusive || *row.0 != key);
            let found = found.expect("whole").map(|key| key.to_vec());
            assert_eq!(found, known.map(|row| row.0.clone()));
        }
        14 => compare_scan(visit, model, random, spread),
        _ => visit.release(),
    }
}

fn random_operations(progress: &TestProgress, seed: u64, frames: usize, count: u64, spread: u64) {
    println!("seed {seed}, {frames} frames, {count} operations, {spread} numbers");
    let bench = Bench::new(frames);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    let mut model = Model::new();
    let mut random = Lcg(seed);
    let mut sizes = Vec::new();
    for number in 0..count {
        let shrinks = number / 2_000 % 2 == 1;
        step(&mut visit, &mut model, &mut random, (spread, shrinks));
        progress.step();
        if number % 1000 == 999 {
            let rows: Vec<_> = model.iter().map(model_row).collect();
            assert_eq!(scan_all(&mut visit, ScanDirection::Forward), rows);
            let mut back = scan_all(&mut visit, ScanDirection::Backward);
            back.reverse();
            assert_eq!(back, rows);
            visit.release();
            let summary = tree.verify(&worker).expect("whole");
            assert_eq!(summary.rows, model.len() as u64);
            sizes.push((summary.levels, summary.pages.len()));
        }
    }
    drop(visit);
    let summary = bench.verify(&[&tree]);
    let ghosts = model.values().filter(|row| row.1.has(RowFlags::GHOST));
    assert_eq!(summary.ghosts, ghosts.count() as u64);
    let stats = bench.pool.stats();
    let (rows, pages) = (summary.rows, summary.pages.len());
    let waits = bench.log.waits.load(Ordering::Relaxed);
    println!("{rows} rows, {pages} pages, {stats:?}, {waits} waits for log");
    println!("levels and pages after each thousand: {sizes:?}");
    let merges = sizes
        .windows(2)
        .filter(|pair| pair[1].1 < pair[0].1)
        .count();
    let levels = sizes.iter().map(|size| size.0).max();
    assert!(levels >= Some(3) && stats.evictions > count / 8 && merges > 1);
}

#[test]
fn a_tree_of_tiny_pages_agrees_with_a_map() {
    fail_if_stalled(|progress| {
        random_operations(progress, 1, 16, 15_000, 300);
        random_operations(progress, 2, 16, 15_000, 5_000);
    });
}

#[test]
#[ignore = "a million operations take minutes: cargo test -p foxton-store --lib btree -- --ignored"]
fn a_tree_of_tiny_pages_agrees_with_a_map_for_long() {
    fail_if_stalled(|progress| {
        for seed in 10..30 {
            let spread = [300, 3_000, 100_000][seed as usize % 3];
            random_operations(progress, seed, 16, 50_000, spread);
        }
    });
}

#[test]
fn rows_are_there_after_opening_again() {
    let bench = Bench::new(16);
    let worker = bench.workers.worker();
    for table in 1..=80 {
        // Enough tables that the directory has branches, and each is found again.
        let tree = bench.directory().create(&worker, table).expect("space");
        let again = bench
            .directory()
            .create(&worker, table)
            .expect("it is there");
        assert_eq!(tree.root(), again.root());
        let mut visit = tree.visit(&worker);
        (0..table).for_each(|number| insert(&mut visit, &number_key(number), &[table as u8]));
    }
    drop(worker);
    let bench = bench.reopen(16);
    let worker = bench.workers.worker();
    let open = |table| bench.directory().open(&worker, table).expect("whole");
    let trees: Vec<_> = (1..=80)
        .map(|table| open(table).expect("it was created"))
        .collect();
    assert!(open(81).is_none());
    for (tree, table) in trees.iter().zip(1..) {
        let rows = scan_all(&mut tree.visit(&worker), ScanDirection::Forward);
        let expected =
            (0..table).map(|number| (number_key(number), vec![table as u8], RowFlags::NONE));
        assert!(rows.into_iter().eq(expected));
    }
    let all: Vec<_> = trees.iter().collect();
    bench.verify(&all);
    assert!(
        bench
            .directory()
            .tree()
            .verify(&worker)
            .expect("whole")
            .levels
            > 1
    );
}

#[test]
fn keys_in_order_fill_their_pages() {
    let bench = Bench::new(16);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    (0..6000).for_each(|number| insert(&mut visit, &number_key(number), b"value"));
    drop(visit);
    let summary = bench.verify(&[&tree]);
    // A row takes 16 bytes of slot, its value, and a key without the prefix.
    let least = 6000 * (16 + 5) / 1024;
    assert!(
        summary.pages.len() < 3 * least,
        "{} pages",
        summary.pages.len()
    );
}

#[test]
fn a_failing_log_and_a_full_device_change_nothing() {
    let bench = Bench::new(16);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    let mut random = Lcg(8);
    let (mut rows, mut refused, mut full) = (BTreeSet::new(), 0, 0);
    for round in 0..6000 {
        let key = number_key(random.below(100_000));
        bench
            .log
            .has_failed
            .store(round % 3 == 1, Ordering::Relaxed);
        if round % 3000 == 0 {
            bench.device.fail(
                Call::Allocate,
                1,
                Times::ForEver,
                std::io::ErrorKind::StorageFull,
            );
        } else if round % 3000 == 2000 {
            bench.device.heal();
        }
        match visit.run(|visit| visit.insert(&key, &[7; 100], 0, NextKey::Any)) {
            Ok(InsertReply::Inserted) => assert!(rows.insert(key)),
            Ok(InsertReply::Exists(_)) => assert!(rows.contains(&key)),
            Ok(InsertReply::NextChanged) => panic!("the next key does not matter"),
            Err(TreeError::Log(LogError::Closed)) => refused += 1,
            Err(TreeError::Pool(PoolError::NoPages(_))) => full += 1,
            Err(error) => panic!("{error}"),
        }
    }
    drop(visit);
    bench.device.heal();
    assert!(refused > 100 && full > 100, "{refused} and {full}");
    assert_eq!(bench.verify(&[&tree]).rows, rows.len() as u64);
    assert_eq!(bench.log.reserved.load(Ordering::Relaxed), 0);
}

#[test]
fn rows_that_are_too_long_are_refused() {
    let bench = Bench::new(16);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    let long = visit.insert(&[1; 129], b"", 0, NextKey::Any);
    assert!(matches!(long, Err(TreeError::TooLong(_))));
    let long = visit.insert(&[1; 128], &[0; 129], 0, NextKey::Any);
    assert!(matches!(
        long,
        Err(TreeError::RowTooLong {
            bytes: 257,
            most: 256
        })
    ));
    insert(&mut visit, &[1; 128], &[0; 128]);
    assert!(matches!(
        visit.update(&[1; 128], &[0; 129]),
        Err(TreeError::RowTooLong { .. })
    ));
}

#[test]
fn a_page_that_belongs_elsewhere_is_an_error() {
    let bench = Bench::new(16);
    let worker = bench.workers.worker();
    let tree = bench.directory().create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    (0..400).for_each(|number| insert(&mut visit, &number_key(number), &[1; 60]));
    drop(visit);
    let pages: Vec<_> = tree
        .verify(&worker)
        .expect("whole")
        .pages
        .into_iter()
        .collect();
    let root = tree.root();
    drop(worker);
    let mut bench = bench.reopen(16);
    let raw = bench.device.open("rows").expect("it is there");
    let read = |page: PageId| {
        let mut image = vec![0; 1024];
        raw.read_at(&mut image, page.number() * 1024)
            .expect("memory");
        image
    };
    let write = |page: PageId, image: &[u8]| {
        let mut image = image.to_vec();
        // The page number is right, and so is the checksum.
        image[8..16].copy_from_slice(&page.0.to_le_bytes());
        seal(&mut image, &IDENTITY);
        raw.write_at(&image, page.number() * 1024).expect("memory");
    };
    let mut random = Lcg(3);
    let mut errors = 0;
    for _ in 0..150 {
        let page = pages[random.below(pages.len() as u64) as usize];
        let whole = read(page);
        let other = read(pages[random.below(pages.len() as u64) as usize]);
        let mut image = whole.clone();
        match random.below(4) {
            // Another page of the same tree, or of an earlier time.
            0 | 1 => image = other,
            // Another table's.
            2 => image[24..32].copy_from_slice(&77_u64.to_le_bytes()),
            // Bits of the header, or of fences and slots.
            _ => image[4 + random.below(300) as usize] ^= 1 << random.below(8),
        }
        if page == root && random.below(8) > 0 {
            continue;
        }
        let is_slot = SlottedPage::new(&image[..]).level() == 0 && image[64..] != whole[64..];
        bench = bench.reopen(16);
        let worker = bench.workers.worker();
        let tree = PagedTree::new(bench.pool.clone(), TABLE, root);
        let mut visit = tree.visit(&worker);
        // Each page is right once, and wrong when it is read again.
        (0..400).for_each(|number| {
            let found = visit.run(|visit| visit.flags(&number_key(number)));
            assert!(found.expect("whole").is_some());
        });
        visit.release();
        bench.pool.evict_all(&worker);
        write(page, &image);
        for number in 0..400 {
            let mut value = Vec::new();
            match visit.run(|visit| visit.get(&number_key(number), &mut value)) {
                Ok(flags) => {
                    let is_right = flags == Some(RowFlags::NONE) && value == [1; 60];
                    // A forged key of a leaf is as good as any.
                    assert!(is_right || is_slot, "wrong data of row {number}");
                }
                Err(TreeError::Damaged(_) | TreeError::Pool(PoolError::Damaged(_))) => {
                    errors += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        drop(visit);
        drop(worker);
        write(page, &whole);
    }
    assert!(errors > 60, "{errors} errors");
}
