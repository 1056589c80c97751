//! Many threads on one table.
//!
//! Values are patterns of their keys, so that a reader notices memory that was freed or belongs to
//! another key; in debug builds freed memory is filled with 0xDD first. Nodes are small, so that
//! threads meet in splits and in unlinked leaves. Each test has a long form, `ignored`.

use foxton_store::memory::{InsertRefused, NewRecord, Next, Record, RecordTable, WalkPosition};
use foxton_sync::epoch::Guard;
use foxton_sync::worker::{Worker, Workers};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

type Small = RecordTable<4>;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn number(record: &Record) -> u64 {
    u64::from_be_bytes(record.key().try_into().expect("keys here have eight bytes"))
}

/// A value that only `key` has: its length and every byte follow from the key and `turn`.
fn pattern(key: u64, turn: u64) -> Vec<u8> {
    let mut value = vec![(key ^ turn) as u8 | 1; 24 + (turn % 40) as usize];
    value[..8].copy_from_slice(&key.to_be_bytes());
    value[8..16].copy_from_slice(&turn.to_be_bytes());
    value
}

/// Panics if a record's value is not whole.
fn check(guard: &Guard<'_>, record: &Record) {
    let mut hazard = guard.hazard();
    let Some(value) = record.value(&mut hazard) else {
        return;
    };
    let key = number(record);
    let turn = u64::from_be_bytes(value[8..16].try_into().expect("eight bytes"));
    assert_eq!(value, pattern(key, turn), "the value of {key}");
}

fn insert<const N: usize>(
    table: &RecordTable<N>,
    guard: &Guard<'_>,
    number: u64,
    turn: u64,
) -> bool {
    let record = NewRecord::new(&key(number), Some(&pattern(number, turn))).expect("short");
    match table.insert(guard, record, Next::Any) {
        Ok(_) => true,
        Err(InsertRefused::Exists(there, _)) => {
            assert_eq!(there.key(), key(number));
            false
        }
        Err(InsertRefused::NextChanged(_)) => panic!("any successor is right"),
    }
}

fn remove<const N: usize>(table: &RecordTable<N>, guard: &Guard<'_>, number: u64) -> bool {
    let Some(record) = table.get(guard, &key(number)) else {
        return false;
    };
    check(guard, record);
    if let Some(value) = record.swap(None, guard) {
        value.retire(guard.participant());
    }
    table.remove(guard, record, Next::Any).is_ok()
}

/// Runs `body(thread, worker)` on `threads` threads until it returns, and `verify`s the table.
fn on_threads<const N: usize>(
    workers: &Workers,
    table: &RecordTable<N>,
    count: u64,
    body: impl Fn(u64, &Worker) + Sync,
) -> usize {
    thread::scope(|scope| {
        for index in 0..count {
            let body = &body;
            scope.spawn(move || body(index, &workers.worker()));
        }
    });
    let worker = workers.worker();
    let guard = worker.pin();
    table.verify(&guard)
}

fn until(end: Instant, mut step: impl FnMut()) {
    while Instant::now() < end {
        (0..20).for_each(|_| step());
    }
}

/// Each thread has keys of its own, among those of the others.
fn own_keys(threads: u64, time: Duration) {
    let workers = Workers::new();
    let table = Small::with_slots(workers.domain());
    let left = AtomicU64::new(0);
    let end = Instant::now() + time;
    let records = on_threads(&workers, &table, threads, |thread, worker| {
        let mut mine = BTreeMap::new();
        until(end, || {
            let guard = worker.pin();
            let number = worker.random_below(40) * threads + thread;
            let there = table.get(&guard, &key(number));
            assert_eq!(there.is_some(), mine.contains_key(&number), "key {number}");
            if let Some(there) = there {
                assert_eq!(
                    there.value(&mut guard.hazard()),
                    Some(&pattern(number, mine[&number])[..])
                );
            }
            match worker.random_below(4) {
                0 | 1 => {
                    let turn = worker.random();
                    let new = insert(&table, &guard, number, turn);
                    assert_eq!(new, !mine.contains_key(&number));
                    mine.entry(number).or_insert(turn);
                }
                2 => assert_eq!(
                    remove(&table, &guard, number),
                    mine.remove(&number).is_some()
                ),
                _ => {
                    let start = key(worker.random_below(40 * threads));
                    let place = table.successor(&guard, &start, true);
                    assert!(place.record.is_none_or(|record| record.key() >= &start[..]));
                }
            }
        });
        left.fetch_add(mine.len() as u64, SeqCst);
    });
    assert_eq!(records as u64, left.into_inner());
}

#[test]
fn threads_with_keys_of_their_own_do_not_disturb_each_other() {
    own_keys(8, Duration::from_secs(2));
}

#[test]
fn sixty_four_threads_with_keys_of_their_own() {
    own_keys(64, Duration::from_secs(2));
}

/// All threads compete for the same few keys: every insert that succeeds is matched by one removal.
fn same_keys(threads: u64, time: Duration) {
    const KEYS: u64 = 24;
    let workers = Workers::new();
    let table = Small::with_slots(workers.domain());
    let balance: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let end = Instant::now() + time;
    let records = on_threads(&workers, &table, threads, |_, worker| {
        until(end, || {
            let guard = worker.pin();
            let number = worker.random_below(KEYS);
            match worker.random_below(4) {
                0 => {
                    if insert(&table, &guard, number, worker.random()) {
                        balance[number as usize].fetch_add(1, SeqCst);
                    }
                }
                1 => {
                    if remove(&table, &guard, number) {
                        balance[number as usize].fetch_sub(1, SeqCst);
                    }
                }
                2 => {
                    // Two writers without locks: updates are lost, memory is not.
                    let Some(record) = table.get(&guard, &key(number)) else {
                        return;
                    };
                    let value = pattern(number, worker.random());
                    let kept_since = worker.participant().recent_stamp();
                    let old = record.put(&value, &guard, kept_since).expect("short");
                    check(&guard, record);
                    let undone = worker.random_below(2) == 0;
                    let gone = if undone {
                        record.swap(old, &guard)
                    } else {
                        old
                    };
                    if let Some(gone) = gone {
                        gone.retire(guard.participant());
                    }
                }
                _ => table
                    .get(&guard, &key(number))
                    .into_iter()
                    .for_each(|record| check(&guard, record)),
            }
        });
    });
    let balance: Vec<u64> = balance.into_iter().map(AtomicU64::into_inner).collect();
    assert!(balance.iter().all(|&there| there <= 1), "{balance:?}");
    assert_eq!(records as u64, balance.iter().sum::<u64>());
}

#[test]
fn threads_that_compete_for_the_same_keys() {
    same_keys(8, Duration::from_secs(2));
}

#[test]
fn sixty_four_threads_that_compete_for_the_same_keys() {
    same_keys(64, Duration::from_secs(2));
}

/// Every tenth key stays; the others are inserted and removed. Scans in both directions find all
/// that stay.
fn scans_find_what_stays(threads: u64, time: Duration) {
    const KEYS: u64 = 600;
    let workers = Workers::new();
    let table = Small::with_slots(workers.domain());
    {
        let worker = workers.worker();
        (0..KEYS)
            .step_by(10)
            .for_each(|n| assert!(insert(&table, &worker.pin(), n, n)));
    }
    let end = Instant::now() + time;
    on_threads(&workers, &table, threads, |thread, worker| {
        until(end, || {
            let guard = worker.pin();
            if thread % 4 > 0 {
                // Emptying whole ranges unlinks leaves under the scans.
                let start = worker.random_below(KEYS);
                let fill = worker.random_below(2) == 0;
                for n in (start..(start + 30).min(KEYS)).filter(|n| n % 10 > 0) {
                    if fill {
                        insert(&table, &guard, n, n);
                    } else {
                        remove(&table, &guard, n);
                    }
                }
                return;
            }
            let start = worker.random_below(KEYS);
            let from = key(start);
            let stay = |record: &&Record| number(record).is_multiple_of(10);
            let mut cursor = table.forward(&guard, Bound::Included(&from));
            let records =
                std::iter::from_fn(|| cursor.advance().record).inspect(|r| check(&guard, r));
            let found = records.filter(stay).map(number);
            assert!(
                found.eq((start..KEYS).filter(|n| n % 10 == 0)),
                "up from {start}"
            );
            let mut cursor = table.backward(&guard, Bound::Excluded(&from));
            let records =
                std::iter::from_fn(|| cursor.advance().record).inspect(|r| check(&guard, r));
            let found = records.filter(stay).map(number);
            assert!(
                found.eq((0..start).rev().filter(|n| n % 10 == 0)),
                "down from {start}"
            );
        });
    });
}

#[test]
fn a_scan_finds_every_key_that_stays() {
    scans_find_what_stays(8, Duration::from_secs(3));
}

/// Statement of the owner of a key: bit 0 whether it is sure, bit 1 whether the key is present, and
/// a count above.
struct Claims(Vec<AtomicU64>);

const SURE: u64 = 1;
const THERE: u64 = 2;

impl Claims {
    fn change(&self, number: u64, there: bool, change: impl FnOnce()) {
        let claim = &self.0[number as usize];
        let before = claim.fetch_add(4 - SURE, SeqCst);
        change();
        let after = (before + 4) & !(SURE | THERE) | SURE | if there { THERE } else { 0 };
        claim.store(after, SeqCst);
    }

    fn now(&self) -> Vec<u64> {
        self.0.iter().map(|claim| claim.load(SeqCst)).collect()
    }
}

/// A thread that finds a token unchanged must have seen everything. No key that was present all the
/// time around that moment may be in the gap, and the record found may not have been absent.
fn tokens_tell_the_truth(threads: u64, time: Duration) {
    const KEYS: u64 = 48;
    let workers = Workers::new();
    let table = Small::with_slots(workers.domain());
    let claims = Claims((0..KEYS).map(|_| AtomicU64::new(SURE)).collect());
    let confirmed = AtomicU64::new(0);
    let crossing = AtomicU64::new(0);
    let end = Instant::now() + time;
    on_threads(&workers, &table, threads, |thread, worker| {
        until(end, || {
            let guard = worker.pin();
            if thread % 2 == 0 {
                let number = worker.random_below(KEYS / threads) * threads + thread;
                if worker.random_below(2) == 0 {
                    if table.get(&guard, &key(number)).is_none() {
                        claims.change(number, true, || {
                            assert!(insert(&table, &guard, number, number));
                        });
                    }
                } else if table.get(&guard, &key(number)).is_some() {
                    claims.change(number, false, || assert!(remove(&table, &guard, number)));
                }
                return;
            }
            let up = worker.random_below(2) == 0;
            let start = worker.random_below(KEYS);
            let from = key(start);
            let mut cursor = match up {
                true => table.forward(&guard, Bound::Included(&from)),
                false => table.backward(&guard, Bound::Included(&from)),
            };
            let mut at = Some(start);
            for _ in 0..6 {
                let place = cursor.advance();
                let before = claims.now();
                // Time for others to change something.
                if worker.random_below(4) == 0 {
                    thread::yield_now();
                }
                let unchanged = table.unchanged(&place.token);
                let after = claims.now();
                if !unchanged {
                    cursor.step_back();
                    continue;
                }
                confirmed.fetch_add(1, SeqCst);
                crossing.fetch_add(u64::from(leaves(&place) > 1), SeqCst);
                let found = place.record.map(number);
                let gap = match (up, at) {
                    (true, Some(at)) => at..found.unwrap_or(KEYS),
                    (false, Some(at)) => found.map_or(0, |found| found + 1)..at + 1,
                    (_, None) => 0..0,
                };
                for n in gap {
                    let (before, after) = (before[n as usize], after[n as usize]);
                    let sure = before == after && before & SURE != 0;
                    assert!(!sure || before & THERE == 0, "{n} was there and not seen");
                }
                let Some(found) = found else { break };
                let (before, after) = (before[found as usize], after[found as usize]);
                let sure = before == after && before & SURE != 0;
                assert!(
                    !sure || before & THERE != 0,
                    "{found} was seen and not there"
                );
                at = if up {
                    Some(found + 1)
                } else {
                    found.checked_sub(1)
                };
            }
        });
    });
    assert!(confirmed.into_inner() > 0);
    println!("tokens over several leaves: {}", crossing.into_inner());
}

/// Number of leaves that a token covers.
fn leaves(place: &WalkPosition<'_>) -> u32 {
    let text = format!("{:?}", place.token);
    text.chars()
        .find_map(|c| c.to_digit(10))
        .expect("a token says how many leaves it has")
}

#[test]
fn tokens_never_lie() {
    tokens_tell_the_truth(4, Duration::from_secs(2));
}

#[test]
fn tokens_never_lie_to_sixteen_threads() {
    tokens_tell_the_truth(16, Duration::from_secs(2));
}

/// The plainest gap locks: for each gap, named by its right end, the number of scanners and
/// inserters in it. No thread waits.
#[derive(Default)]
struct Gaps(Mutex<BTreeMap<Option<u64>, (u32, u32)>>);

impl Gaps {
    fn scan(&self, end: Option<u64>) -> bool {
        let mut gaps = self.0.lock().unwrap();
        let (scanners, inserters) = gaps.entry(end).or_default();
        let free = *inserters == 0;
        *scanners += u32::from(free);
        free
    }

    fn intend(&self, end: Option<u64>) -> bool {
        let mut gaps = self.0.lock().unwrap();
        let (scanners, inserters) = gaps.entry(end).or_default();
        let free = *scanners == 0;
        *inserters += u32::from(free);
        free
    }

    fn scanned(&self, end: Option<u64>) {
        self.0.lock().unwrap().entry(end).or_default().0 -= 1;
    }

    fn intended(&self, end: Option<u64>) {
        self.0.lock().unwrap().entry(end).or_default().1 -= 1;
    }
}

/// The protocol that the table is made for, with the plainest locks. Scanners lock the gap before
/// each record and past the range and validate their tokens; inserters lock the gap before the
/// successor and name it. Then no key comes into a range while it is locked. Removals happen
/// between rounds only: a lock on a removed key is another matter.
fn no_phantoms(threads: u64, time: Duration) {
    const KEYS: u64 = 40;
    let workers = Workers::new();
    let table = Small::with_slots(workers.domain());
    let gaps = Gaps::default();
    let end = Instant::now() + time;
    let (locked, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let recent = AtomicU64::new(0);
    while Instant::now() < end {
        on_threads(&workers, &table, threads, |thread, worker| {
            for _ in 0..12 {
                let guard = worker.pin();
                // Near the last key inserted, because successors change there.
                let near = recent
                    .load(SeqCst)
                    .saturating_sub(1 + worker.random_below(6));
                let from = if worker.random_below(4) > 0 {
                    near
                } else {
                    worker.random_below(KEYS)
                };
                if thread % 4 > 0 {
                    let place = table.successor(&guard, &key(from), false);
                    if table.get(&guard, &key(from)).is_some() {
                        continue;
                    }
                    let next = place.record.map(number);
                    if !gaps.intend(next) {
                        continue;
                    }
                    // Time for others to change the next record, and to scan it.
                    if worker.random_below(2) == 0 {
                        thread::sleep(Duration::from_micros(worker.random_below(300)));
                    }
                    let record = NewRecord::new(&key(from), Some(&pattern(from, 0))).unwrap();
                    let refusal = table.insert(&guard, record, place.record.into()).err();
                    let changed = matches!(refusal, Some(InsertRefused::NextChanged(_)));
                    refused.fetch_add(u64::from(changed), SeqCst);
                    if refusal.is_none() {
                        recent.store(from, SeqCst);
                    }
                    gaps.intended(next);
                    continue;
                }
                // Few, so that a scanner meets the inserter's lock at its successor.
                let gaps_to_scan = 1 + worker.random_below(2) as usize;
                let mut held = Vec::new();
                let from_key = key(from);
                let mut cursor = table.forward(&guard, Bound::Excluded(&from_key));
                let mut failed = false;
                while held.len() < gaps_to_scan {
                    let place = cursor.advance();
                    let name = place.record.map(number);
                    if !gaps.scan(name) {
                        failed = true;
                        break;
                    }
                    held.push(name);
                    if !table.unchanged(&place.token) {
                        failed = true;
                        break;
                    }
                    if name.is_none() {
                        break;
                    }
                }
                if !failed {
                    locked.fetch_add(1, SeqCst);
                    for _ in 0..3 {
                        let mut cursor = table.forward(&guard, Bound::Excluded(&from_key));
                        let again =
                            std::iter::from_fn(|| Some(cursor.advance().record.map(number)));
                        let again: Vec<_> = again.take(held.len()).collect();
                        assert_eq!(again, held, "a phantom");
                        thread::sleep(Duration::from_micros(100));
                    }
                }
                held.into_iter().for_each(|name| gaps.scanned(name));
            }
        });
        let worker = workers.worker();
        let guard = worker.pin();
        for n in (0..KEYS).filter(|_| worker.random_below(8) > 0) {
            remove(&table, &guard, n);
        }
    }
    let (locked, refused) = (locked.into_inner(), refused.into_inner());
    println!("{locked} ranges locked, {refused} inserts refused since their successor changed");
    assert!(locked > 0);
}

#[test]
fn nothing_comes_into_a_locked_gap() {
    no_phantoms(4, Duration::from_secs(3));
}

#[test]
#[ignore = "takes minutes: cargo test --release -p foxton-store --test it stress:: -- --ignored"]
fn everything_for_longer() {
    for threads in [4, 16, 64] {
        own_keys(threads, Duration::from_secs(20));
        same_keys(threads, Duration::from_secs(20));
        scans_find_what_stays(threads, Duration::from_secs(20));
        tokens_tell_the_truth(threads.min(16), Duration::from_secs(20));
        no_phantoms(threads, Duration::from_secs(20));
    }
}
