//! Limits of transactions: how long they can take, how deeply they nest, whether they can allocate:
//! figures 3.7 to 3.9 and C.1.

use std::{hint::black_box, time::Instant};

use foxton::LatchKind;
use foxton_sync::{
    htm::{self, NotAvailable, Rtm},
    latch::Latched,
    site::{Component, Pattern, Site},
    worker::{Worker, Workers},
};

use super::{ElisionFigure, attempts::Attempts, availability, claim, document, percent_or};
use crate::{
    bench::error::BenchError,
    figure::request::Request,
    progress::Audience,
    report::{
        findings::Block,
        number::{duration_us, grouped},
        shape::Shape,
        sheet::Sheet,
        table::Table,
    },
};

static SITE: Site = Site::new(Component::Latch, Pattern::Fixed, "nested latches");

fn is_tiny(request: &Request) -> bool {
    request.window.is_some() && !request.full
}

fn note(request: &Request) -> Vec<String> {
    vec![format!(
        "{} form; transactions: {}.",
        request.form(),
        availability()
    )]
}

/// Runs an empty loop this many times.
fn idle(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// Transactions of growing length that do nothing.
pub(in crate::figure) fn figure_7(
    request: &Request,
    _audience: Audience,
) -> Result<Sheet, BenchError> {
    let columns = [
        "iterations of an empty loop",
        "time",
        "attempts",
        "aborted",
        "causes",
    ];
    let mut table = Table::new(columns);
    let longest = if is_tiny(request) { 3 } else { 8 };
    let some = 10_u64.pow(longest - 1);
    let began = Instant::now();
    idle(some);
    let turn_us = began.elapsed().as_secs_f64() * 1e6 / some as f64;
    let mut shares: Result<Vec<f64>, NotAvailable> = Ok(Vec::new());
    for power in 1..=longest {
        let turns = 10_u64.pow(power);
        // The longest takes some seconds.
        let attempts = (100_000_000 / turns).clamp(20, if request.full { 100_000 } else { 5_000 });
        let tried = htm::rtm().map(|rtm| Attempts::times(rtm, attempts as u32, || idle(turns)));
        table.row([
            grouped(turns as f64),
            duration_us(turns as f64 * turn_us),
            attempts.to_string(),
            percent_or(tried.as_ref().map(Attempts::share)),
            tried.as_ref().map_or("-".to_owned(), Attempts::causes),
        ]);
        match (&mut shares, tried) {
            (Ok(all), Ok(tried)) => all.push(tried.share()),
            (shares, Err(why)) => *shares = Err(why),
            _ => {}
        }
    }
    let shape = Shape(vec![
        claim(
            "a transaction of a hundred cycles hardly ever aborts",
            &shares,
            "below 5 %",
            |all| {
                let share = all.get(1).copied().unwrap_or(1.0);
                (
                    format!(
                        "{:.2} % of transactions of 100 iterations abort",
                        share * 100.0
                    ),
                    share < 0.05,
                )
            },
        ),
        claim(
            "the longer a transaction takes, the surer it aborts, until all do",
            &shares,
            "more, up to over 99 %",
            |all| {
                let (first, last) = (all.first().copied(), all.last().copied());
                let (first, last) = (first.unwrap_or(1.0), last.unwrap_or(0.0));
                let words = format!(
                    "{:.2} % of the shortest transactions abort and {:.1} % of the longest",
                    first * 100.0,
                    last * 100.0
                );
                (words, last > first && last > 0.99)
            },
        ),
    ]);
    let figure = ElisionFigure {
        id: "001-fig3.7",
        title: "How long a transaction can take",
        place: "Figure 3.7",
        expect: "An interrupt aborts a transaction, and the longer a transaction takes, the surer an \
                 interrupt comes: that of the clock comes every few milliseconds.",
        shape,
        notes: note(request),
        beside: vec![
            document(&[
                ["100 cycles (0.1 µs)", "below 0.01 % abort"],
                ["100,000 cycles (0.125 ms)", "above 10 %"],
                ["13 million cycles (16 ms)", "all"],
            ]),
            Block {
                title: "Transactions that do nothing, by length".to_owned(),
                note: "An interrupt is counted as \"other\", because it sets no bit of the status."
                    .to_owned(),
                table,
            },
        ],
        panels: Vec::new(),
    };
    Ok(figure.sheet(request))
}

/// Begins this many nested transactions; `None` if they aborted.
fn nest(rtm: Rtm, depth: u32) -> Option<()> {
    let transaction = rtm.begin().ok()?;
    if depth > 1 {
        nest(rtm, depth - 1);
    }
    transaction.commit();
    Some(())
}

/// Passes these latches, each nested in the one before.
fn inside(latches: &[Latched<u64>], worker: &Worker) {
    if let Some((first, rest)) = latches.split_first() {
        first.with(worker, |count| {
            *count += 1;
            inside(rest, worker);
        });
    }
}

/// Nested transactions and nested latches.
pub(in crate::figure) fn figure_8(
    request: &Request,
    _audience: Audience,
) -> Result<Sheet, BenchError> {
    const DEEPEST: u32 = 12;
    let attempts: u32 = if is_tiny(request) { 20 } else { 10_000 };
    let mut transactions = Table::new(["nested", "aborted"]);
    let limit = htm::rtm().map(Rtm::nesting_limit);
    for depth in 1..=DEEPEST {
        let share = htm::rtm().map(|rtm| {
            let committed = (0..attempts).filter(|_| nest(rtm, depth).is_some()).count();
            1.0 - committed as f64 / f64::from(attempts)
        });
        transactions.row([depth.to_string(), percent_or(share.as_ref().copied())]);
    }
    let mut latches = Table::new(["latch", "nested", "elided", "taken", "passes"]);
    let elided = LatchKind::ALL
        .into_iter()
        .filter(|kind| kind.plain() != *kind);
    for kind in elided {
        for depth in [1, 2, 4, 8] {
            if let Err(why) = kind.elides() {
                latches.row([kind.to_string(), depth.to_string(), why.to_string()]);
                continue;
            }
            let workers = Workers::new();
            let worker = workers.worker();
            let all: Vec<Latched<u64>> = (0..depth).map(|_| Latched::new(kind, &SITE, 0)).collect();
            (0..attempts).for_each(|_| inside(&all, &worker));
            let done = workers.elisions();
            let counted = kind != LatchKind::ElidedHle;
            let shown = |count: u64| match counted {
                true => count.to_string(),
                false => "not counted".to_owned(),
            };
            let passes = u64::from(attempts) * depth as u64;
            latches.row([
                kind.to_string(),
                depth.to_string(),
                shown(done.committed),
                shown(done.latched),
                passes.to_string(),
            ]);
        }
    }
    let shape = Shape(vec![claim(
        "seven transactions can be nested, the outermost included",
        &limit,
        "at least 7",
        |&limit| (format!("{limit} transactions can be nested"), limit >= 7),
    )]);
    let figure = ElisionFigure {
        id: "001-fig3.8",
        title: "Nested transactions and nested elided latches",
        place: "Figures 3.8 and 3.9",
        expect: "A few transactions can be nested; with more, all abort. Our latches are not elided when \
                 nested, on purpose: the inner pass aborts the outer one, which takes its latch, and \
                 then the inner one is elided.",
        shape,
        notes: note(request),
        beside: vec![
            document(&[
                [
                    "RTM",
                    "the seventh nested in the first aborts: six can be nested in it",
                ],
                ["HLE, one latch", "0 % aborted"],
                [
                    "HLE, two nested latches",
                    "over a third aborted, and more with each further one",
                ],
            ]),
            Block {
                title: "Nested transactions".to_owned(),
                note: match &limit {
                    Ok(limit) => format!("{limit} can be nested, found by trying."),
                    Err(why) => why.to_string(),
                },
                table: transactions,
            },
            Block {
                title: "Nested latches".to_owned(),
                note: "One thread. The adaptive latch is elided in its trials only.".to_owned(),
                table: latches,
            },
        ],
        panels: Vec::new(),
    };
    Ok(figure.sheet(request))
}

/// Keeps the compiler from removing the memory.
fn touch(bytes: &mut [u8]) {
    black_box(bytes);
}

/// Memory of the stack, and of the heap, inside a transaction.
pub(in crate::figure) fn figure_c1(
    request: &Request,
    _audience: Audience,
) -> Result<Sheet, BenchError> {
    let attempts: u32 = if is_tiny(request) { 20 } else { 10_000 };
    let mut table = Table::new(["bytes", "memory of", "aborted", "causes"]);
    let mut shares: Result<Vec<(bool, f64)>, NotAvailable> = Ok(Vec::new());
    let mut row =
        |bytes: usize, memory: &str, stack: bool, tried: Result<Attempts, NotAvailable>| {
            table.row([
                grouped(bytes as f64),
                memory.to_owned(),
                percent_or(tried.as_ref().map(Attempts::share)),
                tried.as_ref().map_or("-".to_owned(), Attempts::causes),
            ]);
            match (&mut shares, tried) {
                (Ok(all), Ok(tried)) => all.push((stack, tried.share())),
                (shares, Err(why)) => *shares = Err(why),
                _ => {}
            }
        };
    let stack = |body: fn()| htm::rtm().map(|rtm| Attempts::times(rtm, attempts, body));
    row(64, "stack", true, stack(|| touch(&mut [1_u8; 64])));
    row(4_096, "stack", true, stack(|| touch(&mut [1_u8; 4_096])));
    for bytes in [64, 4_096, 65_536, 1 << 20] {
        let heap = htm::rtm().map(|rtm| {
            Attempts::times(rtm, attempts, || {
                drop(black_box(Vec::<u8>::with_capacity(bytes)))
            })
        });
        row(bytes, "heap", false, heap);
    }
    let shape = Shape(vec![
        claim(
            "memory of the stack aborts no transaction",
            &shares,
            "below 5 %",
            |all| {
                let most = all.iter().filter(|(stack, _)| *stack);
                let most = most.map(|(_, share)| *share).fold(0.0, f64::max);
                let words = format!(
                    "with memory of the stack at most {:.1} % abort",
                    most * 100.0
                );
                (words, most < 0.05)
            },
        ),
        claim(
            "memory of the heap always aborts a transaction",
            &shares,
            "over 99 %",
            |all| {
                let least = all.iter().filter(|(stack, _)| !stack);
                let least = least.map(|(_, share)| *share).fold(1.0, f64::min);
                let words = format!(
                    "with memory of the heap at least {:.1} % abort",
                    least * 100.0
                );
                (words, least > 0.99)
            },
        ),
    ]);
    let figure = ElisionFigure {
        id: "001-figC.1",
        title: "Allocating inside a transaction",
        place: "Appendix C.1",
        expect: "An allocator that serves the request from the thread's own list does nothing that aborts; one \
                 that calls the system does. The document's always aborted; allocators have changed since.",
        shape,
        notes: note(request),
        beside: vec![
            document(&[
                ["stack", "0 % aborted"],
                ["new and delete, malloc and free", "100 %"],
            ]),
            Block {
                title: "Memory allocated and freed inside one transaction".to_owned(),
                note: String::new(),
                table,
            },
        ],
        panels: Vec::new(),
    };
    Ok(figure.sheet(request))
}
