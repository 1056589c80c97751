//! What latches cost: Table 1 of document 003.
//!
//! Two parts. A latch alone, taken and given back by the only thread there is: warm, in the cache; and
//! cold, one of so many that none of them is. Then the operations of the document: their time in
//! storage, the latches they take, and what these come to at the warm price, as the document computed
//! its own.
//!
//! With the feature `account` the engine counts the latches it takes. Without it the table derives their
//! number from the locks taken, which are counted always, and says so.

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

/// The document's operations, and what it says of each with a latch on nodes, partitions and locks, and
/// with one on the table: storage time, latch time, calls, share.
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

/// What `global` and `bucket` pass for a lock: a latch to ask for it, and one to give it back.
const LATCHES_A_LOCK: f64 = 2.0;

const CALLS_COUNTED: &str = "Calls are counted by the engine, each time a latch of the lock manager is \
    taken; the counting is part of the storage time.";
const CALLS_DERIVED: &str = "Calls are derived: locks taken are counted, and global and bucket take a \
    latch to ask for each and one to give it back. To have them counted: cargo run --release \
    --features account -- figure 003-table1.";

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

/// How often an operation takes a latch, and how long that is at the warm price.
fn in_latches(system: &System, timed: &Timed, latches: &[Latch]) -> (f64, f64) {
    let mut kinds = latches.iter();
    let kind = kinds.find(|latch| latch.kind.to_string() == system.latch_name());
    let calls = timed.passed.unwrap_or(timed.locks * LATCHES_A_LOCK);
    (
        calls,
        calls * kind.map_or(0.0, |latch| latch.warm.median()) / 1e9,
    )
}

/// Cold costs more than warm, and the index scan, with a latch for each entry and each tuple, spends more of
/// its time in latches than the scan of the table.
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
            in_latches(&systems[index], one, latches).1 / one.storage.median().max(1e-12) * 100.0
        };
        // The order of OPERATIONS: the table scan, then the index scan.
        let (table, by_index) = (share(0), share(1));
        claims.push(Claim::new(
            "latches are 16 % of a table scan and 37 % of an index scan",
            format!("{table:.0} % and {by_index:.0} % over {}", systems[index]),
            by_index > table,
        ));
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

/// So many latches, each in lines of its own, that no cache has them all; fewer in the smallest form.
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
            let (calls, seconds) = in_latches(system, timed, latches);
            let micros = |seconds: f64| duration_us(seconds * 1e6);
            table.row([
                operation.name().to_owned(),
                system.to_string(),
                micros(timed.storage.median()),
                micros(timed.storage.min()),
                micros(timed.storage.max()),
                format!("{calls:.0}"),
                micros(seconds),
                format!(
                    "{:.0} %",
                    seconds / timed.storage.median().max(1e-12) * 100.0
                ),
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
