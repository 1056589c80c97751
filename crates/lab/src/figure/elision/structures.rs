//! Bank, counter, list and hash map behind every latch: figures 3.12 to 3.19, C.8 to C.10, D.5 and
//! D.6.

use foxton::LatchKind;

use super::{ADAPTIVE_LEAST, ADAPTS, ElisionFigure, NO_POINTS, claim_of_latches, document};
use crate::{
    bench::{
        error::BenchError,
        latches::{self, Settings, Shared, operations, ratio},
        pace::Pace,
    },
    figure::request::Request,
    measure::curve::{Curve, Point},
    progress::Audience,
    report::{
        findings::Findings,
        shape::{Claim, Shape},
        sheet::Sheet,
    },
    workload::micro::counter::Layout,
};

/// The threads of the document's figures, and more of them to show overload.
fn settings(request: &Request, shared: Vec<Shared>, threads: &[u32]) -> Settings {
    let window = request.each([20, 50, 1_000]);
    Settings {
        shared,
        latches: Vec::new(),
        taken: false,
        pace: Pace {
            threads: match request.mpls.as_slice() {
                [] => threads.to_vec(),
                some => some.to_vec(),
            },
            reps: request.reps.unwrap_or(if request.full { 100 } else { 5 }),
            ramp: request.ramp.unwrap_or(window / 10),
            window,
            command: request.command.clone(),
        },
    }
}

/// Returns the point of this latch, this structure and this number of threads.
fn at(panel: &Findings, shared: Shared, kind: LatchKind, threads: u32) -> Option<&Point> {
    let (note, latch) = (shared.words(), kind.to_string());
    let mut curves = panel.curves.iter();
    let curve: &Curve = curves.find(|curve| curve.note == note && curve.latch == latch)?;
    curve.points.iter().find(|point| point.mpl == threads)
}

/// Operations a millisecond at that point.
fn rate(panel: &Findings, shared: Shared, kind: LatchKind, threads: u32) -> Option<f64> {
    at(panel, shared, kind, threads).map(|point| operations(point).median())
}

/// A claim about the ratio of two rates, judged if there are transactions.
fn elided(
    says: &str,
    panel: &Findings,
    [shared, other]: [Shared; 2],
    [kind, to]: [LatchKind; 2],
    threads: u32,
    (expected, holds): (&str, impl FnOnce(f64) -> bool),
) -> Claim {
    let found = || {
        let (one, other) = (
            rate(panel, shared, kind, threads),
            rate(panel, other, to, threads),
        );
        one.zip(other).map(|(one, other)| one / other.max(1e-9))
    };
    claim_of_latches(says, found, expected, |ratio| match ratio {
        Some(ratio) => {
            let to = match shared == other {
                true => to.to_string(),
                false => format!("{to} over {}", other.words()),
            };
            let words = format!(
                "{kind} over {} does {ratio:.2} times as much as {to} with {threads} threads",
                shared.words()
            );
            (words, holds(*ratio))
        }
        None => (NO_POINTS.to_owned(), false),
    })
}

/// The claim of the adaptive latch: where elision gains nothing it costs next to nothing, over
/// every structure and number of threads.
fn adapts(panel: &Findings) -> Claim {
    let kind = LatchKind::ElidedAdaptive;
    let (latch, plain) = (kind.to_string(), kind.plain().to_string());
    let found = || {
        let adaptive = panel.curves.iter().filter(|curve| curve.latch == latch);
        let points = adaptive.flat_map(|curve| {
            let mut curves = panel.curves.iter();
            let under = curves.find(|one| one.note == curve.note && one.latch == plain);
            let under = under.map_or(&[][..], |under| &under.points);
            let pairs = curve.points.iter().zip(under);
            pairs.map(|(point, to)| (ratio(point, to).median(), &curve.note, point.mpl))
        });
        points.min_by(|one, other| one.0.total_cmp(&other.0))
    };
    claim_of_latches(ADAPTS, found, "at least 0.95 times", |worst| match worst {
        Some((times, note, threads)) => (
            format!(
                "{latch} does at worst {times:.2} times as much as {plain} ({note}, threads: {threads})"
            ),
            *times >= ADAPTIVE_LEAST,
        ),
        None => (NO_POINTS.to_owned(), false),
    })
}

/// Largest number of threads that was measured; the claims are about it.
fn most(panel: &Findings) -> u32 {
    let points = panel.curves.iter().flat_map(|curve| &curve.points);
    points.map(|point| point.mpl).max().unwrap_or(1)
}

const BEST: LatchKind = LatchKind::ElidedRetry100;

fn bank(accounts: u32, reads: u32, global: bool) -> Shared {
    Shared::Bank {
        accounts,
        reads,
        global,
    }
}

/// A bank.
pub(in crate::figure) fn figure_12(
    request: &Request,
    audience: Audience,
) -> Result<Sheet, BenchError> {
    let each = bank(10_000, 50, false);
    let shared = vec![
        each,
        bank(10_000, 100, false),
        bank(10_000, 0, false),
        bank(100, 50, false),
        bank(100, 50, true),
    ];
    let panel = latches::run(&settings(request, shared, &[1, 4]), audience)?;
    let threads = most(&panel);
    let shape = Shape(vec![
        elided(
            "elided latches are slightly ahead",
            &panel,
            [each, each],
            [BEST, LatchKind::TasT],
            threads,
            ("more than 0.95 times", |ratio| ratio > 0.95),
        ),
        adapts(&panel),
    ]);
    let figure = ElisionFigure {
        id: "001-fig3.12",
        title: "A bank, with a latch for each account and with one",
        place: "Figures 3.12, C.8 and C.9",
        expect: "With a latch for each of ten thousand accounts there is no contention, and the cheapest latch \
                 wins. With one latch, only elided latches let threads pass side by side.",
        shape,
        notes: Vec::new(),
        beside: vec![document(&[
            [
                "10,000 accounts, 4 threads",
                "HLE and RTM slightly ahead of POSIX, POSIX of test-and-set",
            ],
            ["other mixes of reads", "roughly the same"],
            ["100 accounts, one latch (C.9)", "shape: HLE ahead"],
        ])],
        panels: vec![panel],
    };
    Ok(figure.sheet(request))
}

/// Counters.
pub(in crate::figure) fn figure_13(
    request: &Request,
    audience: Audience,
) -> Result<Sheet, BenchError> {
    let shared = Layout::ALL.map(Shared::Counter).to_vec();
    let panel = latches::run(&settings(request, shared, &[1, 2, 4, 8]), audience)?;
    let threads = most(&panel);
    let counter = Shared::Counter;
    let plain = LatchKind::TasT;
    let of = |layout| rate(&panel, counter(layout), plain, threads);
    let mut claims = Vec::new();
    if let Some((apart, adjacent)) = of(Layout::Apart).zip(of(Layout::Adjacent)) {
        let times = apart / adjacent.max(1e-9);
        claims.push(
            Claim::new(
                "counters on lines of their own are about ten times as fast",
                format!("they are {times:.1} times as fast with {threads} threads over {plain}"),
                "more than 2 times",
                times > 2.0,
            )
            .or_not_judged("too few cores, or cores that share a cache"),
        );
    }
    if let Some((apart, global)) = of(Layout::Apart).zip(of(Layout::Global)) {
        let times = apart / global.max(1e-9);
        claims.push(
            Claim::new(
                "with one latch over all counters test-and-set loses much",
                format!(
                    "with one latch over all counters {plain} does {:.0} % as much as with a latch each",
                    100.0 / times
                ),
                "below 67 %",
                times > 1.5,
            )
            .or_not_judged("too few cores"),
        );
    }
    claims.push(elided(
        "with one latch over all counters elision loses little",
        &panel,
        [counter(Layout::Global), counter(Layout::Apart)],
        [BEST, BEST],
        threads,
        ("more than 0.6 times", |ratio| ratio > 0.6),
    ));
    claims.push(elided(
        "with one counter elision does not help",
        &panel,
        [counter(Layout::One); 2],
        [BEST, plain],
        threads,
        ("below 1.2 times", |ratio| ratio < 1.2),
    ));
    claims.push(adapts(&panel));
    let figure = ElisionFigure {
        id: "001-fig3.13",
        title: "Counters, in four layouts",
        place: "Figures 3.13 to 3.16",
        expect: "One counter is a conflict at every step, and elision only adds aborts. Side by side in memory \
                 counters conflict as well, although no two threads share one. On lines of their own, with a \
                 latch each, nothing is left to gain; with one latch over all, elision gains everything.",
        shape: Shape(claims),
        notes: vec![
            "Thread i stays on processor i modulo their number; a line here is 128 bytes."
                .to_owned(),
        ],
        beside: vec![document(&[
            [
                "one counter (3.13)",
                "elision no better; RTM 37 % of cycles aborted with 4 threads",
            ],
            [
                "a counter for each core, side by side (3.14)",
                "HLE and RTM extremely bad",
            ],
            [
                "the same, on lines of their own (3.15)",
                "about 10 times as fast; elision no better",
            ],
            [
                "on lines of their own, one latch (3.16)",
                "HLE loses little, POSIX and test-and-set much",
            ],
        ])],
        panels: vec![panel],
    };
    Ok(figure.sheet(request))
}

/// A list.
pub(in crate::figure) fn figure_17(
    request: &Request,
    audience: Audience,
) -> Result<Sheet, BenchError> {
    let placed = |reads, beside| Shared::List {
        values: 100,
        reads,
        beside,
    };
    let list = |reads| placed(reads, false);
    let shared = vec![list(0), list(50), list(100), placed(50, true)];
    let panel = latches::run(&settings(request, shared, &[2, 4]), audience)?;
    let threads = most(&panel);
    let plain = LatchKind::TasT;
    let shape = Shape(vec![
        elided(
            "with reads alone elision is well ahead",
            &panel,
            [list(100); 2],
            [BEST, plain],
            threads,
            ("more than 1.2 times", |ratio| ratio > 1.2),
        ),
        adapts(&panel),
    ]);
    let figure = ElisionFigure {
        id: "001-fig3.17",
        title: "A doubly linked list behind one latch",
        place: "Figures 3.17, D.5 and D.6",
        expect: "A search reads half of the list, so with elision readers pass side by side. A writer that \
                 changes an item aborts every transaction that has read it.",
        shape,
        notes: vec![
            "Items are on a line each, as in the document's figure D.6, except where the table says side by \
             side, as in D.5."
                .to_owned(),
        ],
        beside: vec![document(&[
            ["100 % read", "HLE and RTM well ahead"],
            ["50 % read", "all below 1,000 operations/ms"],
            ["0 % read", "HLE ahead, RTM alone behind test-and-set"],
            [
                "4 threads, items not aligned (D.5)",
                "64.61 % of HLE's cycles aborted",
            ],
        ])],
        panels: vec![panel],
    };
    Ok(figure.sheet(request))
}

/// A hash map.
pub(in crate::figure) fn figure_18(
    request: &Request,
    audience: Audience,
) -> Result<Sheet, BenchError> {
    let map = |buckets, values, global| Shared::HashMap {
        buckets,
        values,
        global,
    };
    let counts = match (request.full, request.brief) {
        (true, _) => vec![1, 10, 100, 1_000, 10_000],
        _ => vec![10, 100, 1_000],
    };
    let mut shared: Vec<Shared> = Vec::new();
    for global in [false, true] {
        shared.extend(counts.iter().map(|&buckets| map(buckets, 1_000, global)));
    }
    let threads: &[u32] = if request.full {
        &[1, 2, 3, 4, 5, 6, 7, 8]
    } else {
        &[1, 2, 4, 8]
    };
    let panel = latches::run(&settings(request, shared, threads), audience)?;
    let threads = most(&panel);
    let plain = LatchKind::TasT;
    let each = |buckets| map(buckets, 1_000, false);
    let mut claims = Vec::new();
    let few_many = rate(&panel, each(10), LatchKind::Parking, threads).zip(rate(
        &panel,
        each(100),
        LatchKind::Parking,
        threads,
    ));
    if let Some((few, many)) = few_many {
        let times = many / few.max(1e-9);
        claims.push(Claim::new(
            "with 100 buckets 4.4 times as fast as with 10",
            format!("with 100 buckets parking is {times:.1} times as fast as with 10"),
            "more than 2 times",
            times > 2.0,
        ));
    }
    claims.push(elided(
        "with a latch for each of 100 buckets elision does 2.3 times as much as POSIX",
        &panel,
        [each(100); 2],
        [BEST, LatchKind::Parking],
        threads,
        ("more than 1.3 times", |ratio| ratio > 1.3),
    ));
    let global = map(1_000, 1_000, true);
    claims.push(elided(
        "with one latch over 1,000 buckets HLE suffers least",
        &panel,
        [global; 2],
        [BEST, plain],
        threads,
        ("more than 1.2 times", |ratio| ratio > 1.2),
    ));
    claims.push(adapts(&panel));
    let figure = ElisionFigure {
        id: "001-fig3.18",
        title: "A hash map, with a latch for each bucket and with one",
        place: "Figures 3.18, 3.19 and C.10, Tables 3.3 to 3.5",
        expect: "With a latch for each of many buckets there is no contention, and the latch costs a few \
                 nanoseconds either way. One latch over all is where elision can gain.",
        shape: Shape(claims),
        notes: vec!["Values are drawn from 2³¹, with as many buckets as in the document; `foxton bench hashmap --values \
                     10000` draws them as its appendix does."
            .to_owned()],
        beside: vec![document(&[
            ["a latch each, 10 buckets: POSIX, TAS, HLE, RTM alone", "100, 199, 230, 237 %"],
            ["a latch each, 100 buckets", "442, 852, 1,033, 1,129 %"],
            ["HLE, 10 and 100 buckets", "45.11 and 15.02 % of transactions aborted"],
            ["one bucket", "RTM 33 times slower, test-and-set 13 times"],
            ["one latch, 1,000 buckets", "HLE suffers least; 53.56 % of its cycles aborted, 5.81 % with a latch each"],
        ])],
        panels: vec![panel],
    };
    Ok(figure.sheet(request))
}
