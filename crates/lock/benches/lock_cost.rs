//! Cost of a lock without conflicts: nanoseconds for each lock and its release, by manager and
//! latch.
//!
//! * `point`: a transaction of IS on a table and S on ten random keys of a million, then
//!   `release_all`; the keys' hashes and names are computed within.
//! * `point, cached`: the same over a thousand keys, so that the buckets stay in the cache.
//! * `re-ask`: repeated requests for ten held keys in turn.
//! * `hot`: IS on one table that 512 others hold.
//!
//! One thread; the median of nine rounds, with the lowest and highest. Run `cargo bench -p
//! foxton-lock`; under any other command a few rounds run to show that it works.

use foxton_lock::{
    any::{AnyManager, ManagerKind, Options},
    manager::LockManager,
    mode::Mode,
    name::{KeyHasher, Name},
    owner::Owner,
    request::{Reply, WaitMode},
};
use foxton_sync::{
    latch,
    worker::{Worker, Workers},
};
use std::{hint::black_box, time::Instant};

const KEYS: usize = 10;
const TABLE: Name = Name::table(1);

struct Bench {
    locks: AnyManager,
    worker: Worker,
    owner: Owner,
    hasher: KeyHasher,
}

impl Bench {
    fn take(&mut self, name: Name, mode: Mode) {
        let reply = self
            .locks
            .request(&self.worker, &mut self.owner, name, mode, WaitMode::Refuse);
        assert!(matches!(black_box(reply), Reply::Granted | Reply::Held));
    }

    fn key(&self, below: u64) -> Name {
        let number = self.worker.random_below(below);
        Name::key(1, &number.to_be_bytes(), &self.hasher)
    }

    /// Locks and releases; returns the number of locks.
    fn point(&mut self, transactions: usize, keys: u64) -> usize {
        for _ in 0..transactions {
            self.owner.begin();
            self.take(TABLE, Mode::IS);
            for _ in 0..KEYS {
                let name = self.key(keys);
                self.take(name, Mode::S);
            }
            self.locks.release_all(&self.worker, &mut self.owner);
        }
        transactions * (KEYS + 1)
    }

    fn re_ask(&mut self, transactions: usize) -> usize {
        let names: Vec<Name> = (0..KEYS).map(|_| self.key(1_000_000)).collect();
        names.iter().for_each(|&name| self.take(name, Mode::S));
        for _ in 0..transactions {
            names.iter().for_each(|&name| self.take(name, Mode::S));
        }
        self.locks.release_all(&self.worker, &mut self.owner);
        transactions * KEYS
    }

    fn hot(&mut self, locks: usize) -> usize {
        let mut others: Vec<Owner> = (0..512).map(|_| self.locks.owner()).collect();
        for other in &mut others {
            assert!(
                self.locks
                    .try_lock(&self.worker, other, TABLE, Mode::IS)
                    .is_held()
            );
        }
        for _ in 0..locks {
            self.take(TABLE, Mode::IS);
            self.locks.release_all(&self.worker, &mut self.owner);
        }
        others
            .iter_mut()
            .for_each(|other| self.locks.release_all(&self.worker, other));
        locks
    }
}

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let (rounds, size) = if full { (9, 20_000) } else { (1, 10) };
    println!("ns per lock and release, median (lowest..highest) of {rounds} rounds");
    println!(
        "{:<18}{:>24}{:>24}{:>24}{:>24}",
        "", "point", "point, cached", "re-ask", "hot"
    );
    let mut pairs = vec![(ManagerKind::Reference, latch::Kind::Parking)];
    for kind in ManagerKind::ALL
        .into_iter()
        .filter(|kind| *kind != ManagerKind::Reference)
    {
        pairs.extend(latch::Kind::PLAIN.map(|latch| (kind, latch)));
    }
    for (kind, latch) in pairs {
        let mut options = Options::default();
        (options.kind, options.latch) = (kind, latch);
        let workers = Workers::with_seed(1);
        let locks = AnyManager::new(&options);
        let owner = locks.owner();
        let hasher = KeyHasher::new(1);
        let mut bench = Bench {
            locks,
            worker: workers.worker(),
            owner,
            hasher,
        };
        print!("{kind:<10}{latch:<8}");
        type Case = fn(&mut Bench, usize) -> usize;
        let cases: [Case; 4] = [
            |bench, size| bench.point(size, 1_000_000),
            |bench, size| bench.point(size, 1000),
            |bench, size| bench.re_ask(size),
            |bench, size| bench.hot(size * 10),
        ];
        for case in cases {
            let mut costs: Vec<f64> = (0..rounds)
                .map(|_| {
                    let start = Instant::now();
                    let locks = case(&mut bench, size);
                    start.elapsed().as_nanos() as f64 / locks as f64
                })
                .collect();
            costs.sort_by(f64::total_cmp);
            let (low, high) = (costs[0], costs[costs.len() - 1]);
            let shown = format!("{:.1} ({low:.1}..{high:.1})", costs[costs.len() / 2]);
            print!("{shown:>24}");
        }
        println!();
    }
}
