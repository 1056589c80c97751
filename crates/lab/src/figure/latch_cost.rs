//! Cost of latches: Table 1 of document 003.
//!
//! There are two parts. First, a latch alone, acquired and released by the only thread: warm in the
//! cache, and cold, as one of too many for the caches. Second, the operations of the document:
//! their time in storage, the latches they take, and the time of these at the warm price, as the
//! document computed its own.
//!
//! With the feature `account` the engine counts the latches it takes. Without it the table derives
//! their number from the locks taken, which are always counted, and says so.

use std::time::{Duration, Instant};

use super::{
    beside, components,
    request::Request,
    timed::{self, Effort, Timed},
};
use crate::{
    bench::error::BenchError,
    measure::{machine::Machine, spread::Spread},
    progress::{Audience, Progress},
    random::Random,
    report::{
        findings::Block,
        number::duration_us,
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
    system::{Locks, System},
    workload::wisconsin::{ROWS, operation::Operation},
};
use foxton::LatchKind;
use foxton_sync::{
    cache_line::CachePadded,
    latch::Latched,
    site::{Component, Pattern, Site},
    worker::{Worker, Workers},
};

static SITE: Site = Site::new(Component::Latch, Pattern::Fixed, "a latch being measured");

/// The document's operations, and its results with latches on nodes, partitions and locks and with
/// one on the table: storage time, latch time, calls, share.
const DOCUMENT: [(&str, &str, &str); 5] = [
    (
        "table scan of the disk component",
        "1,293 ms, 248 ms in 34,028 calls: 19 %",
        "-",
    ),
    (
        "table scan",
        "450 ms, 73 ms in 10,061 calls: 16 %",
        "450 ms, 73 ms in 10,000: 16 %",
    ),
    (
        "index scan",
        "598 ms, 221 ms in 30,240 calls: 37 %",
        "450 ms, 73 ms in 10,000: 16 %",
    ),
    (
        "index scan, fetch 2",
        "0.536 ms, 0.219 ms in 30 calls: 41 %",
        "0.329 ms, 0.022 ms in 3: 6 %",
    ),
    (
        "table and index insert",
        "0.552 ms, 0.182 ms in 25 calls: 33 %",
        "0.377 ms, 0.0073 ms in 1: 2 %",
    ),
];

/// Returns the latch acquisitions for `locks` locks of a transaction over this manager, alone and
/// without conflicts. Each request takes one. Releases take one for each lock of `bucket`, and one
/// for every 64 locks of `global`. `None` for other managers: some of their critical sections are
/// no latches, or depend on remembered locks.
fn derived(manager: &str, locks: f64) -> Option<f64> {
    match manager {
        "global" => Some(locks + (locks / GLOBAL_TOGETHER).ceil()),
        "bucket" => Some(2.0 * locks),
        _ => None,
    }
}

/// Locks that `global` releases under one acquisition of its latch.
const GLOBAL_TOGETHER: f64 = 64.0;

const CALLS_COUNTED: &str = "The engine counts calls: each acquisition of a latch of the lock manager, \
    or where there is no latch, each critical section at which any number of threads can meet. The \
    counting is part of the storage time.";
const CALLS_DERIVED: &str = "Calls are derived from the locks taken, which are counted: global and \
    bucket take a latch for each request; bucket takes one for each release, and global one for every \
    64 releases. For other managers calls do not follow from the locks and are left out. To count \
    them: cargo run --release --features account -- figure 003-table1.";

const OPERATIONS: [Operation; 4] = [
    Operation::ScanAll,
    Operation::IndexAll,
    Operation::FetchTwo,
    Operation::Insert,
];

/// Latches, warm and cold, and their share of the document's operations.
pub(super) fn table_1(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let machine = Machine::here();
    let effort = Effort::of(request, [150, 300, 2_000]);
    let systems = match request.systems.as_slice() {
        [] => System::all(
            &[
                Locks::Manager(foxton::LockManagerKind::Global),
                Locks::Manager(foxton::LockManagerKind::Bucket),
            ],
            &LatchKind::PLAIN,
        ),
        some => some.to_vec(),
    };
    let systems = request.in_tables(systems);
    let alone = LatchKind::PLAIN.len() * 2;
    let steps = (alone + systems.len() * OPERATIONS.len()) as u64 * u64::from(effort.reps);
    let progress = audience.count("latches", steps, "measurements");
    let latches = latches(effort, &progress);
    let timed = timed::time(
        &systems,
        &OPERATIONS,
        effort,
        request.directory.as_deref(),
        &progress,
    )?;
    let all: Vec<&System> = systems.iter().collect();
    let side_by_side = components::side_by_side(&all, &OPERATIONS, &timed);
    let picture = components::picture(&all, &OPERATIONS, &timed);
    Ok(Sheet {
        id: "003-table1",
        title: "Cost of latches".to_owned(),
        source: format!("{}, Table 1 and section 2.1", beside::MEMORY),
        expect: "An uncontended latch costs a few nanoseconds warm, where the document's took 7.3 µs in \
                 the kernel; cold it costs a cache line from memory. So latches take a smaller part of \
                 a scan here. Each lock takes one latch for the request and one for the release; \
                 reading the index takes none."
            .to_owned(),
        shape: claims(&systems, &timed, &latches),
        notes: Vec::new(),
        beside: [
            alone_table(&latches),
            document(),
            operations(&systems, &timed, &latches),
        ]
        .into_iter()
        .chain(side_by_side)
        .collect(),
        pictures: picture.into_iter().collect(),
        panels: Vec::new(),
        settings: effort.listed(request),
        machine,
        command: request.command.clone(),
    })
}

/// Returns how often an operation takes a latch, and the seconds that takes at the warm price;
/// `None` if the number is not known.
fn in_latches(system: &System, timed: &Timed, latches: &[Latch]) -> Option<(f64, f64)> {
    let mut kinds = latches.iter();
    let kind = kinds.find(|latch| latch.kind.to_string() == system.latch_name())?;
    let derived = || derived(&system.manager_name(), timed.locks);
    let calls = timed.passed.or_else(derived)?;
    Some((calls, calls * kind.warm.median() / 1e9))
}

/// A cold latch costs more than a warm one. The index scan takes a latch for each entry and each
/// tuple, so latches have a larger share of it than of the table scan.
fn claims(systems: &[System], timed: &[Vec<Timed>], latches: &[Latch]) -> Shape {
    let mut claims = Vec::new();
    let times: Vec<f64> = latches
        .iter()
        .map(|latch| latch.cold.median() / latch.warm.median().max(1e-9))
        .collect();
    let (least, most) = times
        .iter()
        .fold((f64::INFINITY, 0.0f64), |(least, most), &one| {
            (least.min(one), most.max(one))
        });
    claims.push(Claim::new(
        "a cold latch costs two and a half times as much as a warm one",
        format!("a cold latch costs {least:.1} to {most:.1} times as much as a warm one"),
        "more than 1.2 times",
        least > 1.2,
    ));
    let bucket = systems
        .iter()
        .position(|system| system.manager_name() == "bucket");
    if let Some(index) = bucket {
        let share = |at: usize| {
            let one = &timed[index][at];
            let (_, seconds) = in_latches(&systems[index], one, latches)?;
            Some(seconds / one.storage.median().max(1e-12) * 100.0)
        };
        let says = "latches are 16 % of a table scan and 37 % of an index scan";
        // The order of OPERATIONS: the table scan, then the index scan.
        claims.push(match share(0).zip(share(1)) {
            Some((table, by_index)) => Claim::new(
                says,
                format!(
                    "with {}, latches take {table:.0} % of a table scan and {by_index:.0} % of an index \
                     scan",
                    systems[index]
                ),
                "a larger share of the index scan",
                by_index > table,
            ),
            None => Claim::not_measured(says, "the cost of this kind of latch"),
        });
    }
    let all: Vec<&System> = systems.iter().collect();
    claims.extend(components::claim(&all, timed, 0));
    Shape(claims)
}

/// Nanoseconds of one kind of latch.
#[derive(Debug)]
struct Latch {
    kind: LatchKind,
    warm: Spread,
    cold: Spread,
}

fn latches(effort: Effort, progress: &Progress) -> Vec<Latch> {
    let workers = Workers::new();
    let worker = workers.worker();
    let mut nanos = vec![(Vec::new(), Vec::new()); LatchKind::PLAIN.len()];
    for _ in 0..effort.reps {
        for (kind, (warm, cold)) in LatchKind::PLAIN.into_iter().zip(&mut nanos) {
            warm.push(passes(kind, 1, &worker, effort.each / 4));
            progress.advance(1);
            cold.push(passes(kind, many(effort), &worker, effort.each / 4));
            progress.advance(1);
        }
    }
    let latch = |(kind, (warm, cold))| Latch {
        kind,
        warm: Spread::new(warm),
        cold: Spread::new(cold),
    };
    LatchKind::PLAIN.into_iter().zip(nanos).map(latch).collect()
}

/// Number of latches, each on lines of its own, that no cache can hold; fewer in the smallest form.
fn many(effort: Effort) -> usize {
    if effort.rows == ROWS {
        1 << 20
    } else {
        1 << 12
    }
}

/// Nanoseconds to acquire and release a latch, one of `count` at random.
fn passes(kind: LatchKind, count: usize, worker: &Worker, window: Duration) -> f64 {
    const BATCH: u32 = 1_000;
    let latched = |_| CachePadded::new(Latched::new(kind, &SITE, 0u64));
    let all: Vec<_> = (0..count).map(latched).collect();
    let mut random = Random::seeded(&[count as u64]);
    let mut pass = || {
        let at = if count == 1 {
            0
        } else {
            // Cheaper than a fair draw, which would be measured too; the counts are powers of two.
            random.bits() as usize & (count - 1)
        };
        all[at].with(worker, |value| *value += 1);
    };
    (0..BATCH).for_each(|_| pass());
    let (began, mut done) = (Instant::now(), 0u32);
    while began.elapsed() < window || done == 0 {
        (0..BATCH).for_each(|_| pass());
        done += BATCH;
    }
    began.elapsed().as_nanos() as f64 / f64::from(done)
}

fn alone_table(latches: &[Latch]) -> Block {
    let mut table = Table::new(["latch", "warm, ns", "min", "max", "cold, ns", "min", "max"]);
    let row = ["document", "7,300", "-", "-", "18,000", "-", "-"];
    table.row(row.map(str::to_owned));
    for latch in latches {
        let cells = |spread: &Spread| {
            [spread.median(), spread.min(), spread.max()].map(|nanos| format!("{nanos:.1}"))
        };
        let numbers = cells(&latch.warm).into_iter().chain(cells(&latch.cold));
        table.row(std::iter::once(latch.kind.to_string()).chain(numbers));
    }
    Block {
        title: "A latch alone, acquired and released".to_owned(),
        note: "Nanoseconds, median and extremes of the repetitions. On the document's machine a \
               compare-and-swap is a call to the kernel of about 73 instructions. Cold is one of a \
               million latches at random here, and isolated calls there."
            .to_owned(),
        table,
    }
}

fn document() -> Block {
    let mut table = Table::new([
        "operation",
        "latches on nodes, partitions, locks",
        "on the table",
    ]);
    for (operation, fine, coarse) in DOCUMENT {
        table.row([operation, fine, coarse].map(str::to_owned));
    }
    Block {
        title: "The document's Table 1".to_owned(),
        note:
            "Storage time, time in latches and calls, share; 10,000 tuples. The index scan takes a \
               third latch in each call."
                .to_owned(),
        table,
    }
}

fn operations(systems: &[System], timed: &[Vec<Timed>], latches: &[Latch]) -> Block {
    let calls_head = match timed::COUNTING {
        true => "latch calls, counted",
        false => "latch calls, derived",
    };
    let mut table = Table::new([
        "operation",
        "locks over",
        "storage time",
        "min",
        "max",
        calls_head,
        "in latches, warm",
        "share",
    ]);
    for (at, operation) in OPERATIONS.into_iter().enumerate() {
        for (system, timed) in systems.iter().zip(timed) {
            let timed = &timed[at];
            let micros = |seconds: f64| duration_us(seconds * 1e6);
            let spent = in_latches(system, timed, latches);
            let cell =
                |words: &dyn Fn((f64, f64)) -> String| spent.map_or_else(|| "-".to_owned(), words);
            table.row_with(
                system.listed(),
                [
                    operation.name().to_owned(),
                    system.to_string(),
                    micros(timed.storage.median()),
                    micros(timed.storage.min()),
                    micros(timed.storage.max()),
                    cell(&|(calls, _)| format!("{calls:.0}")),
                    cell(&|(_, seconds)| micros(seconds)),
                    cell(&|(_, seconds)| {
                        let share = seconds / timed.storage.median().max(1e-12);
                        format!("{:.0} %", share * 100.0)
                    }),
                ],
            );
        }
    }
    Block {
        title: "Ours".to_owned(),
        note: format!(
            "Storage time is measured. Time in latches is the calls at the warm price of the first table, \
             as in the document. {} Reading the index takes no latch.",
            match timed::COUNTING {
                true => CALLS_COUNTED,
                false => CALLS_DERIVED,
            }
        ),
        table,
    }
}

#[cfg(test)]
mod tests {
    use foxton::LockManagerKind;

    use super::*;

    #[test]
    fn latch_calls_are_derived_for_two_managers_only() {
        assert_eq!(derived("global", 64.0), Some(65.0));
        assert_eq!(derived("global", 65.0), Some(67.0));
        assert_eq!(derived("bucket", 65.0), Some(130.0));
        for kind in LockManagerKind::ALL {
            let known = ["global", "bucket"].contains(&kind.to_string().as_str());
            assert_eq!(derived(&kind.to_string(), 10.0).is_some(), known, "{kind}");
        }
        assert_eq!(derived("bucket+inherit", 10.0), None);
    }
}
