//! Many threads share a tree.

use super::*;

/// Called again and again while a storm goes on.
pub(crate) type BesideStorm = dyn Fn(&Bench, &TableDirectory, &Worker) + Sync;

/// Threads change keys of their own, and scan all keys.
pub(crate) fn storm(
    progress: &TestProgress,
    [threads, rounds]: [u64; 2],
    frames: usize,
    spread: u64,
    beside: Option<&BesideStorm>,
) {
    let bench = Bench::new(frames);
    let directory = bench.directory();
    let tree = directory
        .create(&bench.workers.worker(), TABLE)
        .expect("space");
    let is_over = AtomicBool::new(false);
    let work = |thread: u64| {
        let worker = bench.workers.worker();
        let mut visit = tree.visit(&worker);
        let (mut random, mut model) = (Lcg(thread), Model::new());
        for _ in 0..rounds {
            progress.step();
            let mut key = random_key(&mut random, spread);
            key.truncate(100);
            key.extend(format!("#{thread}").bytes());
            let value = random_value(&mut random, &key);
            match random.below(8) {
                0..=3 => {
                    let reply = visit.run(|visit| visit.insert(&key, &value, 0, NextKey::Any));
                    if reply.expect("whole") == InsertReply::Inserted {
                        let before = model.insert(key, (value, RowFlags::NONE));
                        assert_eq!(before, None);
                    }
                }
                4 => {
                    let before = visit
                        .run(|visit| visit.update(&key, &value))
                        .expect("whole");
                    let known = model.get_mut(&key);
                    assert_eq!(
                        before,
                        known.map(|row| std::mem::replace(&mut row.0, value))
                    );
                }
                5 => {
                    let marked = visit.run(|visit| visit.set_flags(&key, RowFlags::GHOST));
                    assert_eq!(marked.expect("whole").is_some(), model.contains_key(&key));
                    if let Some(row) = model.get_mut(&key) {
                        row.1 = RowFlags::GHOST;
                        let purged = visit.run(|visit| visit.purge(&key)).expect("whole");
                        assert_ne!(purged, PurgeReply::NoGhost);
                        if purged == PurgeReply::Removed {
                            model.remove(&key);
                        }
                    }
                }
                6 => {
                    let mut found = Vec::new();
                    let flags = visit
                        .run(|visit| visit.get(&key, &mut found))
                        .expect("whole");
                    assert_eq!(flags, model.get(&key).map(|row| row.1));
                    assert_eq!(
                        found,
                        model.get(&key).map_or(Vec::new(), |row| row.0.clone())
                    );
                }
                _ if random.below(10) == 0 => {
                    let direction = [ScanDirection::Forward, ScanDirection::Backward];
                    let direction = direction[random.below(2) as usize];
                    let mut rows = scan_all(&mut visit, direction);
                    if direction == ScanDirection::Backward {
                        rows.reverse();
                    }
                    assert!(rows.is_sorted_by(|one, other| one.0 < other.0));
                    let suffix = format!("#{thread}");
                    rows.retain(|row| row.0.ends_with(suffix.as_bytes()));
                    assert!(rows.into_iter().eq(model.iter().map(model_row)));
                }
                _ => visit.release(),
            }
        }
        model
    };
    let models: Vec<_> = thread::scope(|scope| {
        let work = &work;
        if let Some(beside) = beside {
            let (bench, directory, is_over) = (&bench, &directory, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    beside(bench, directory, &bench.workers.worker());
                }
            });
        }
        let started: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        let ended = started.into_iter().map(|thread| thread.join());
        let ended: Vec<_> = ended.collect();
        is_over.store(true, Ordering::Relaxed);
        let ended = ended.into_iter().map(|model| model.expect("no panic"));
        ended.collect()
    });
    let mut model = Model::new();
    models.into_iter().for_each(|rows| model.extend(rows));
    let worker = bench.workers.worker();
    let rows = scan_all(&mut tree.visit(&worker), ScanDirection::Forward);
    assert!(rows.into_iter().eq(model.iter().map(model_row)));
    assert_eq!(bench.verify(&[&tree]).rows, model.len() as u64);
    // They evict pages.
    drop(bench.threads);
    bench.pool.verify();
    let waits = bench.log.waits.load(Ordering::Relaxed);
    println!(
        "{} rows, {:?}, {waits} waits for log",
        model.len(),
        bench.pool.stats()
    );
}

#[test]
fn many_threads_share_a_tree_and_sixteen_frames() {
    fail_if_stalled(|progress| {
        storm(progress, [4, 2000], 16, 500, None);
        storm(progress, [40, 150], 16, 500, None);
        // All pages fit: latches meet, and frames do not.
        storm(progress, [8, 1500], 2000, 100, None);
    });
}

/// Gap locks of the test: a scanner excludes inserters, and they it.
#[derive(Default)]
struct GapLocks(Mutex<HashMap<Vec<u8>, i64>>);

impl GapLocks {
    /// Locks the gap before `next`; `by` is 1 for an inserter and -1 for a scanner. False if the
    /// other kind has it.
    fn try_lock(&self, next: &[u8], by: i64) -> bool {
        let mut locks = self.0.lock().expect("no panic");
        let count = locks.entry(next.to_vec()).or_default();
        let is_free = *count == 0 || count.signum() == by;
        *count += if is_free { by } else { 0 };
        is_free
    }

    fn unlock(&self, next: &[u8], by: i64) {
        *self
            .0
            .lock()
            .expect("no panic")
            .get_mut(next)
            .expect("locked") -= by;
    }
}

#[test]
fn no_key_comes_into_a_gap_that_a_scanner_has_locked() {
    fail_if_stalled(scan_and_insert);
}

fn scan_and_insert(progress: &TestProgress) {
    for (frames, threads) in [(16, 6), (300, 4)] {
        let bench = Bench::new(frames);
        let tree = bench
            .directory()
            .create(&bench.workers.worker(), TABLE)
            .expect("space");
        let worker = bench.workers.worker();
        let mut visit = tree.visit(&worker);
        (0..400).for_each(|number| insert(&mut visit, &number_key(number * 10), &[1; 90]));
        drop(visit);
        let locks = GapLocks::default();
        let (end, gaps, inserted) = (b"\xff".to_vec(), AtomicU64::new(0), AtomicU64::new(0));
        let next_of = |key: Option<KeyBytes>| key.map_or(end.clone(), |key| key.to_vec());
        let scan = |visit: &mut TreeVisit<'_>, key: &[u8]| {
            let next = next_of(
                visit
                    .run(|visit| visit.successor(key, true))
                    .expect("whole"),
            );
            let token = visit.token().clone();
            if !locks.try_lock(&next, -1) {
                return;
            }
            if tree.is_unchanged(&token) {
                gaps.fetch_add(1, Ordering::Relaxed);
                for _ in 0..3 {
                    thread::yield_now();
                    let now = visit
                        .run(|visit| visit.successor(key, true))
                        .expect("whole");
                    assert_eq!(next_of(now), next, "a phantom");
                }
            }
            locks.unlock(&next, -1);
        };
        let insert_between = |visit: &mut TreeVisit<'_>, key: &[u8]| {
            let next = next_of(
                visit
                    .run(|visit| visit.successor(key, false))
                    .expect("whole"),
            );
            if !locks.try_lock(&next, 1) {
                return;
            }
            let expected = match next == end {
                true => NextKey::End,
                false => NextKey::Key(&next),
            };
            let reply = visit.run(|visit| visit.insert(key, &[1; 90], 0, expected));
            let was_inserted = reply.expect("whole") == InsertReply::Inserted;
            inserted.fetch_add(u64::from(was_inserted), Ordering::Relaxed);
            locks.unlock(&next, 1);
        };
        thread::scope(|scope| {
            for number in 0..threads {
                let (bench, tree) = (&bench, &tree);
                let (scan, insert) = (&scan, &insert_between);
                scope.spawn(move || {
                    let worker = bench.workers.worker();
                    let mut visit = tree.visit(&worker);
                    let mut random = Lcg(number);
                    for _ in 0..1500 {
                        progress.step();
                        // Near each other, so that threads meet.
                        let key = number_key(random.below(1 << 12));
                        match random.below(2) {
                            0 => scan(&mut visit, &key),
                            _ => insert(&mut visit, &key),
                        }
                    }
                });
            }
        });
        let rows = bench.verify(&[&tree]).rows;
        assert_eq!(rows, 400 + inserted.load(Ordering::Relaxed));
        let gaps = gaps.load(Ordering::Relaxed);
        println!("{rows} rows, {gaps} gaps");
        assert!(gaps > 100);
    }
}
