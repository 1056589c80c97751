//! What latches cost: Table 1 of document 003.
//!
//! Two parts. A latch alone, taken and given back by the only thread there is: warm, in the cache;
//! and cold, one of so many that none of them is. Then the operations of the document: their time
//! in storage, the latches they take, and what these come to at the warm price, as the document
//! computed its own.
//!
//! With the feature `account` the engine counts the latches it takes. Without it the table derives
//! their number from the locks taken, which are counted always, and says so.

use std::time::{Duration, Instant};

use super::{
    beside,
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

/// The document's operations, and what it says of each with a latch on nodes, partitions and locks,
/// and with one on the table: storage time, latch time, calls, share.
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

/// What so many locks of a transaction take of latches over this manager, alone and without
/// conflicts: one hold to ask for each, and to give them back one for each of `bucket` and one for
/// every 64 of `global`. `None` of any other: some of what they pass are no latches, or depends on
/// what is remembered.
fn derived(manager: &str, locks: f64) -> Option<f64> {
    match manager {
        "global" => Some(locks + (locks / GLOBAL_TOGETHER).ceil()),
        "bucket" => Some(2.0 * locks),
        _ => None,
    }
}

/// Locks that `global` gives back under one hold of its latch.
const GLOBAL_TOGETHER: f64 = 64.0;

const CALLS_COUNTED: &str = "Calls are counted by the engine, each time a latch of the lock manager is \
    taken, or where there is none, a place is passed at which any number of threads may meet; the \
    counting is part of the storage time.";
const CALLS_DERIVED: &str = "Calls are derived: locks taken are counted; global and bucket take a latch \
    to ask for each, bucket one to give each back, and global one for every 64 that it gives back. \
    Those of other managers do not follow from their locks and are left out. To have them counted: \
    cargo run --release --features account -- figure 003-table1.";

const OPERATIONS: [Operation; 4] = [
    Operation::ScanAll,
    Operation::IndexAll,
    Operation::FetchTwo,
    Operation::Insert,
];

/// Latches, warm and cold, and their share of the document's operations.
pub(super) fn table_1(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let machine = Machine::here();
    let effort = Effort::asked(request, [150, 300, 2_000]);
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
    Ok(Sheet {
        id: "003-table1",
        title: "What latches cost".to_owned(),
        source: format!("{}, Table 1 and section 2.1", beside::MEMORY),
        expect: "A latch that nobody else wants costs a few nanoseconds warm, where the document's \
                 took 7.3 µs in the kernel; cold it costs what a line from memory costs. So latches \
                 are a smaller part of a scan here, though there is one for each lock asked for and \
                 one for each given back, and none for reading the index."
            .to_owned(),
        shape: claims(&systems, &timed, &latches),
        notes: Vec::new(),
        beside: vec![
            alone_table(&latches),
            document(),
            operations(&systems, &timed, &latches),
        ],
        pictures: Vec::new(),
        panels: Vec::new(),
        settings: effort.listed(request),
        machine,
        command: request.command.clone(),
    })
}

/// How often an operation takes a latch, and how long that is at the warm price; `None` if nobody
/// knows.
fn in_latches(system: &System, timed: &Timed, latches: &[Latch]) -> Option<(f64, f64)> {
    let mut kinds = latches.iter();
    let kind = kinds.find(|latch| latch.kind.to_string() == system.latch_name())?;
    let derived = || derived(&system.manager_name(), timed.locks);
    let calls = timed.passed.or_else(derived)?;
    Some((calls, calls * kind.warm.median() / 1e9))
}

/// Cold costs more than warm, and the index scan, with a latch for each entry and each tuple,
/// spends more of its time in latches than the scan of the table.
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
        format!("cold ones cost {least:.1} to {most:.1} times as much"),
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
                format!("{table:.0} % and {by_index:.0} % over {}", systems[index]),
                by_index > table,
            ),
            None => Claim::unseen(says, "the price of its latch was not measured"),
        });
    }
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

/// So many latches, each in lines of its own, that no cache has them all; fewer in the smallest
/// form.
fn many(effort: Effort) -> usize {
    if effort.rows == ROWS {
        1 << 20
    } else {
        1 << 12
    }
}

/// Nanoseconds to take a latch and give it back, one of `count` at random.
fn passes(kind: LatchKind, count: usize, worker: &Worker, window: Duration) -> f64 {
    const BATCH: u32 = 1_000;
    let latched = |_| CachePadded::new(Latched::new(kind, &SITE, 0u64));
    let all: Vec<_> = (0..count).map(latched).collect();
    let mut random = Random::seeded(&[count as u64]);
    let mut pass = || {
        let at = if count == 1 {
            0
        } else {
            // Cheaper than a fair draw, which would show: the counts are powers of two.
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
        title: "A latch alone: taken and given back".to_owned(),
        note: "Nanoseconds, median and extremes of the repetitions. The document's machine made a \
               call to the kernel for a compare-and-swap: about 73 instructions. Cold is one of a \
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
            "Storage time, time in latches and calls, share; 10,000 tuples. A third latch a call \
               makes the index scan what it is."
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
            let told =
                |tell: &dyn Fn((f64, f64)) -> String| spent.map_or_else(|| "-".to_owned(), tell);
            table.row([
                operation.name().to_owned(),
                system.to_string(),
                micros(timed.storage.median()),
                micros(timed.storage.min()),
                micros(timed.storage.max()),
                told(&|(calls, _)| format!("{calls:.0}")),
                told(&|(_, seconds)| micros(seconds)),
                told(&|(_, seconds)| {
                    let share = seconds / timed.storage.median().max(1e-12);
                    format!("{:.0} %", share * 100.0)
                }),
            ]);
        }
    }
    Block {
        title: "Ours".to_owned(),
        note: format!(
            "Storage time is measured; the time in latches is their calls at the warm price of the first \
             table, as in the document. {} Reading the index takes none.",
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
    fn what_is_derived_is_known_of_two_managers_only() {
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
