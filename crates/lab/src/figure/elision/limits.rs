//! How long a transaction may take, how deep it may be, and whether it may allocate: figures 3.7 to
//! 3.9, and C.1.

use std::{hint::black_box, time::Instant};

use foxton::LatchKind;
use foxton_sync::{
    htm::{self, NotAvailable, Rtm},
    latch::Latched,
    site::{Component, Pattern, Site},
    worker::{Worker, Workers},
};

use super::{Told, availability, claim, document, percent_or, tried::Tried};
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

static SITE: Site = Site::new(
    Component::Latch,
    Pattern::Fixed,
    "latches inside each other",
);

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

/// Turns of a loop that does nothing.
fn idle(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// Longer and longer, doing nothing.
pub(in crate::figure) fn figure_7(
    request: &Request,
    _audience: Audience,
) -> Result<Sheet, BenchError> {
    let columns = [
        "turns of an empty loop",
        "take",
        "attempts",
        "aborted",
        "why",
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
        // Some seconds for the longest.
        let attempts = (100_000_000 / turns).clamp(20, if request.full { 100_000 } else { 5_000 });
        let tried = htm::rtm().map(|rtm| Tried::times(rtm, attempts as u32, || idle(turns)));
        table.row([
            grouped(turns as f64),
            duration_us(turns as f64 * turn_us),
            attempts.to_string(),
            percent_or(tried.as_ref().map(Tried::share)),
            tried.as_ref().map_or("-".to_owned(), Tried::causes),
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
            |all| {
                let share = all.get(1).copied().unwrap_or(1.0);
                (
                    format!("of 100 turns {:.2} % abort", share * 100.0),
                    share < 0.05,
                )
            },
        ),
        claim(
            "the longer it takes, the more abort, until all do",
            &shares,
            |all| {
                let (first, last) = (all.first().copied(), all.last().copied());
                let (first, last) = (first.unwrap_or(1.0), last.unwrap_or(0.0));
                let words = format!("from {:.2} to {:.1} %", first * 100.0, last * 100.0);
                (words, last > first && last > 0.99)
            },
        ),
    ]);
    let told = Told {
        id: "001-fig3.7",
        title: "How long a transaction may take",
        place: "Figure 3.7",
        expect: "An interrupt aborts a transaction, and the longer it takes the surer one comes: that of the clock \
                 every few milliseconds at the latest.",
        shape,
        notes: note(request),
        beside: vec![
            document(&[
                ["100 cycles (0.1 µs)", "below 0.01 % abort"],
                ["100,000 cycles (0.125 ms)", "above 10 %"],
                ["13 million cycles (16 ms)", "all"],
            ]),
            Block {
                title: "Transactions that do nothing, for long".to_owned(),
                note: "An interrupt is \"other\": it sets no bit of the status.".to_owned(),
                table,
            },
        ],
        panels: Vec::new(),
    };
    Ok(told.sheet(request))
}

/// Begins so many inside each other; `None` if they aborted.
fn nest(rtm: Rtm, depth: u32) -> Option<()> {
    let transaction = rtm.begin().ok()?;
    if depth > 1 {
        nest(rtm, depth - 1);
    }
    transaction.commit();
    Some(())
}

/// Passes so many latches, each inside the one before.
fn inside(latches: &[Latched<u64>], worker: &Worker) {
    if let Some((first, rest)) = latches.split_first() {
        first.with(worker, |count| {
            *count += 1;
            inside(rest, worker);
        });
    }
}

/// Transactions inside each other, and latches.
pub(in crate::figure) fn figure_8(
    request: &Request,
    _audience: Audience,
) -> Result<Sheet, BenchError> {
    const DEEPEST: u32 = 12;
    let attempts: u32 = if is_tiny(request) { 20 } else { 10_000 };
    let mut transactions = Table::new(["inside each other", "aborted"]);
    let limit = htm::rtm().map(Rtm::nesting_limit);
    for depth in 1..=DEEPEST {
        let share = htm::rtm().map(|rtm| {
            let committed = (0..attempts).filter(|_| nest(rtm, depth).is_some()).count();
            1.0 - committed as f64 / f64::from(attempts)
        });
        transactions.row([depth.to_string(), percent_or(share.as_ref().copied())]);
    }
    let mut latches = Table::new(["latch", "inside each other", "elided", "taken", "passes"]);
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
            let told = |count: u64| match counted {
                true => count.to_string(),
                false => "not counted".to_owned(),
            };
            let passes = u64::from(attempts) * depth as u64;
            latches.row([
                kind.to_string(),
                depth.to_string(),
                told(done.committed),
                told(done.real),
                passes.to_string(),
            ]);
        }
    }
    let shape = Shape(vec![claim(
        "seven transactions fit into each other, the outermost included",
        &limit,
        |&limit| (format!("{limit} fit"), limit >= 7),
    )]);
    let told = Told {
        id: "001-fig3.8",
        title: "Transactions and elided latches inside each other",
        place: "Figures 3.8 and 3.9",
        expect: "A few fit into each other, then all abort. Our latches are not elided inside each other on \
                 purpose: the inner pass aborts the outer, which takes its latch, and then the inner is elided.",
        shape,
        notes: note(request),
        beside: vec![
            document(&[
                ["RTM", "the seventh inside the first aborts: six inside it"],
                ["HLE, one latch", "0 % aborted"],
                [
                    "HLE, two latches inside each other",
                    "over a third aborted, and more with each further",
                ],
            ]),
            Block {
                title: "Transactions inside each other".to_owned(),
                note: match &limit {
                    Ok(limit) => format!("{limit} fit into each other, found by trying."),
                    Err(why) => why.to_string(),
                },
                table: transactions,
            },
            Block {
                title: "Latches passed inside each other".to_owned(),
                note: "By one thread: the adaptive latch is elided in its trials only.".to_owned(),
                table: latches,
            },
        ],
        panels: Vec::new(),
    };
    Ok(told.sheet(request))
}

/// Keeps the compiler from leaving the memory out.
fn touch(bytes: &mut [u8]) {
    black_box(bytes);
}

/// Memory of the stack, and of the heap, inside a transaction.
pub(in crate::figure) fn figure_c1(
    request: &Request,
    _audience: Audience,
) -> Result<Sheet, BenchError> {
    let attempts: u32 = if is_tiny(request) { 20 } else { 10_000 };
    let mut table = Table::new(["bytes", "where", "aborted", "why"]);
    let mut shares: Result<Vec<(bool, f64)>, NotAvailable> = Ok(Vec::new());
    let mut row = |bytes: usize, where_: &str, stack: bool, tried: Result<Tried, NotAvailable>| {
        table.row([
            grouped(bytes as f64),
            where_.to_owned(),
            percent_or(tried.as_ref().map(Tried::share)),
            tried.as_ref().map_or("-".to_owned(), Tried::causes),
        ]);
        match (&mut shares, tried) {
            (Ok(all), Ok(tried)) => all.push((stack, tried.share())),
            (shares, Err(why)) => *shares = Err(why),
            _ => {}
        }
    };
    let stack = |body: fn()| htm::rtm().map(|rtm| Tried::times(rtm, attempts, body));
    row(64, "stack", true, stack(|| touch(&mut [1_u8; 64])));
    row(4_096, "stack", true, stack(|| touch(&mut [1_u8; 4_096])));
    for bytes in [64, 4_096, 65_536, 1 << 20] {
        let heap = htm::rtm().map(|rtm| {
            Tried::times(rtm, attempts, || {
                drop(black_box(Vec::<u8>::with_capacity(bytes)))
            })
        });
        row(bytes, "heap", false, heap);
    }
    let shape = Shape(vec![
        claim("memory of the stack aborts nothing", &shares, |all| {
            let most = all.iter().filter(|(stack, _)| *stack);
            let most = most.map(|(_, share)| *share).fold(0.0, f64::max);
            (
                format!("at most {:.1} % aborted", most * 100.0),
                most < 0.05,
            )
        }),
        claim("memory of the heap always aborts", &shares, |all| {
            let least = all.iter().filter(|(stack, _)| !stack);
            let least = least.map(|(_, share)| *share).fold(1.0, f64::min);
            (
                format!("at least {:.1} % aborted", least * 100.0),
                least > 0.99,
            )
        }),
    ]);
    let told = Told {
        id: "001-figC.1",
        title: "Allocating inside a transaction",
        place: "Appendix C.1",
        expect: "An allocator that has what is asked for in a list of the thread's own does nothing that aborts; one \
                 that asks the system does. The document's always aborted; allocators have changed since.",
        shape,
        notes: note(request),
        beside: vec![
            document(&[
                ["stack", "0 % aborted"],
                ["new and delete, malloc and free", "100 %"],
            ]),
            Block {
                title: "Memory taken and given back inside one transaction".to_owned(),
                note: String::new(),
                table,
            },
        ],
        panels: Vec::new(),
    };
    Ok(told.sheet(request))
}
