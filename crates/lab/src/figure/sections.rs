//! Critical sections of a transaction: figures 3 and 11 of document 002.
//!
//! The document's bars have no numbers except in its text; those stand beside ours. Only a program
//! that counts critical sections can make these figures.

use foxton::Durability;
use foxton_sync::site::{Component, Pattern};

use super::{beside, request::Request};
use crate::{
    bench::{
        critical_sections::{
            self, Case, Counted, Settings,
            design::{DEFAULT, Design},
            tables,
        },
        error::BenchError,
    },
    measure::machine::Machine,
    progress::Audience,
    report::{
        bars::amount,
        findings::Block,
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
};

/// The document's executions of each transaction.
const EXECUTIONS: u32 = 1_000;
const ROWS: u32 = 10_000;
/// The transaction of figure 3.
const SIMPLE: &str = "UpdateLocation";
/// The designs of figure 3.
const FEW: [&str; 5] = ["baseline", "inheritance", "consolidated", "direct", DEFAULT];
/// The workloads of figure 11.
const BENCHMARKS: [Case; 3] = [Case::Tatp, Case::Tpcb, Case::Tpcc];

/// One simple transaction.
pub(super) fn figure_3(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let settings = settings(request, &FEW, vec![Case::Tatp]);
    let mut counted = critical_sections::run(&settings, audience)?;
    counted.retain(|one| one.transaction == SIMPLE);
    let mut shape = composition(&counted);
    shape.extend(steps_of(&counted));
    let figure = SectionsFigure {
        shape: Shape(shape),
        id: "002-fig3",
        title: "Critical sections of one simple transaction",
        place: "Figure 3 and section 3.1",
        expect: "About a seventh of the document's count from the start, and fewer unbounded critical \
                 sections from design to design.",
        document: document(&DOCUMENT_3),
    };
    Ok(sheet(figure, &settings, &counted, request))
}

/// The transactions of the benchmarks.
pub(super) fn figure_11(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let all = Design::all();
    let names: Vec<&str> = all.iter().map(|design| design.name).collect();
    let settings = settings(request, &names, BENCHMARKS.to_vec());
    let mut counted = critical_sections::run(&settings, audience)?;
    counted.retain(|one| one.transaction != SIMPLE);
    let mut shape = steps_of(&counted);
    shape.extend(divided());
    let figure = SectionsFigure {
        shape: Shape(shape),
        id: "002-fig11",
        title: "Critical sections of the benchmarks' transactions",
        place: "Figure 11 and section 8.2",
        expect: "Fewer unbounded critical sections with inherited locks, and fewer again with combined log \
                 inserts. Fewest where read locks are remembered and not taken. The document's last four \
                 bars divide the data among threads, which no design here does.",
        document: document(&DOCUMENT_11),
    };
    Ok(sheet(figure, &settings, &counted, request))
}

/// A figure of critical sections, to become a sheet.
struct SectionsFigure {
    id: &'static str,
    title: &'static str,
    /// The place in the document.
    place: &'static str,
    expect: &'static str,
    /// The document's claims, judged.
    shape: Shape,
    /// The document's results.
    document: Block,
}

fn sheet(
    figure: SectionsFigure,
    settings: &Settings,
    counted: &[Counted],
    request: &Request,
) -> Sheet {
    let mut beside = vec![figure.document, steps(counted)];
    beside.extend(tables::blocks(counted));
    Sheet {
        id: figure.id,
        title: figure.title.to_owned(),
        source: format!("{}, {}", beside::SCALING, figure.place),
        expect: figure.expect.to_owned(),
        shape: figure.shape,
        notes: vec![WHY_FEWER.to_owned()],
        beside,
        pictures: tables::pictures(counted),
        panels: Vec::new(),
        settings: tables::listed(settings),
        machine: Machine::here(),
        command: request.command.clone(),
    }
}

/// Unbounded critical sections of this transaction, from the baseline to the default.
fn unbounded(counted: &[Counted], name: &str) -> Option<[f64; 4]> {
    let of = |design: &str| {
        let mut all = counted.iter();
        let found = all.find(|one| one.design.name == design && one.name() == name)?;
        Some(found.own.of_pattern(Pattern::Unbounded))
    };
    Some([
        of("baseline")?,
        of("inheritance")?,
        of("consolidated")?,
        of(DEFAULT)?,
    ])
}

/// The document's counts for its simple transaction before any improvement: all critical sections,
/// and the unbounded ones.
const ALL: f64 = 70.0;
const UNBOUNDED: f64 = 60.0;
/// "About" means within this share of the document's count.
const ABOUT: f64 = 0.15;

/// Judges the critical sections that the baseline passes in the simple transaction.
fn composition(counted: &[Counted]) -> Vec<Claim> {
    let mut baselines = counted
        .iter()
        .filter(|one| one.design.name == "baseline" && one.transaction == SIMPLE);
    let Some(own) = baselines.next().map(|one| &one.own) else {
        return Vec::new();
    };
    let unbounded = own.of_pattern(Pattern::Unbounded);
    composed(
        own.total(),
        unbounded,
        own.of(Component::Lock, Pattern::Unbounded),
    )
}

/// The claims for these counts: all critical sections, the unbounded ones, and those of locks among
/// the unbounded.
fn composed(all: f64, unbounded: f64, locks: f64) -> Vec<Claim> {
    let about = |found: f64, said: f64| (found - said).abs() <= said * ABOUT;
    let (of_all, of_unbounded) = (unbounded / all.max(1e-9), locks / unbounded.max(1e-9));
    vec![
        Claim::new(
            "the simple transaction passes about 70 critical sections, some 60 of them unbounded",
            format!(
                "the baseline passes {}, {} of them unbounded, because it has no pages",
                amount(all),
                amount(unbounded)
            ),
            "70 and 60, each within 15 %",
            about(all, ALL) && about(unbounded, UNBOUNDED),
        ),
        Claim::new(
            "six in seven of them are unbounded",
            format!(
                "{:.0} % of the baseline's critical sections are unbounded",
                of_all * 100.0
            ),
            "86 % within 15 % of that",
            about(of_all, UNBOUNDED / ALL),
        ),
        Claim::new(
            "almost half of the unbounded ones are of locks",
            format!(
                "{:.0} % of the baseline's unbounded critical sections are of locks",
                of_unbounded * 100.0
            ),
            "42.5 to 50 %",
            (0.5 * (1.0 - ABOUT)..=0.5).contains(&of_unbounded),
        ),
    ]
}

/// The document's last bars, whose designs divide the data among threads.
fn divided() -> [Claim; 2] {
    const WHY: &str = "no design here divides the data";
    [
        Claim::not_measured(
            "transactions divided among partitions make unbounded critical sections 55 % fewer",
            WHY,
        ),
        Claim::not_measured(
            "trees and buffer pools divided as well remove over 99 % of them",
            WHY,
        ),
    ]
}

/// Judges each step of the document for each transaction.
fn steps_of(counted: &[Counted]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for name in tables::transactions(counted) {
        let Some([baseline, inherited, combined, _]) = unbounded(counted, &name) else {
            continue;
        };
        let found = |step, from, to| {
            let (from, to) = (amount(from), amount(to));
            format!("{name}: {step} takes unbounded critical sections from {from} to {to}")
        };
        claims.push(Claim::new(
            "with inherited locks there are fewer unbounded critical sections",
            found("inheriting locks", baseline, inherited),
            "fewer",
            inherited < baseline,
        ));
        claims.push(Claim::new(
            "with combined log inserts there are fewer still",
            found("combining log inserts", inherited, combined),
            "fewer",
            combined < inherited,
        ));
    }
    claims
}

const WHY_FEWER: &str = "The document's engine keeps rows in pages. For each row it also latches the page, \
    finds its frame in the buffer pool and pins it. It looks up metadata for each access, keeps a list \
    of transactions, and writes several log records with several latches each. Here rows are \
    records in memory, reading the index writes nothing shared, a worker remembers the tables it has \
    used, there is no list of transactions, and a commit is one record. So our counts begin lower \
    because these parts are absent, not because they cost less. Only locks and the log compare.";

fn settings(request: &Request, designs: &[&str], workloads: Vec<Case>) -> Settings {
    let chosen = Design::all().into_iter();
    Settings {
        designs: chosen
            .filter(|design| designs.contains(&design.name))
            .collect(),
        workloads,
        executions: EXECUTIONS,
        mpls: match request.mpls.as_slice() {
            [] => vec![1],
            some => some.to_vec(),
        },
        rows: request.rows.unwrap_or(ROWS),
        durability: Durability::Sync,
        directory: request.directory.clone(),
        seed: 1,
    }
}

/// The document's text on figure 3; the bars have no numbers.
const DOCUMENT_3: [[&str; 3]; 3] = [
    [
        "Shore-MT as released",
        "about 70, about 60 of them unscalable",
        "baseline",
    ],
    [
        "where they are",
        "almost half are locks, then log, metadata, page latches, buffer pool",
        "baseline",
    ],
    [
        "with inherited locks and composable log inserts",
        "shape: far fewer, most of the log's are cooperative",
        "consolidated",
    ],
];

/// The document's text on figure 11.
const DOCUMENT_11: [[&str; 3]; 5] = [
    [
        "Shore-MT as released",
        "the bars have no numbers",
        "baseline",
    ],
    [
        "with inherited locks",
        "unscalable more than 20 % fewer; little on TPC-C",
        "inheritance",
    ],
    [
        "with composable log inserts as well",
        "unscalable a further 5.5 % fewer on TATP, 12 % on TPC-B, 6.6 % on TPC-C",
        "consolidated",
    ],
    [
        "transactions divided among partitions (DORA)",
        "half of all, unscalable 55 % fewer",
        "-",
    ],
    [
        "trees and buffer pools divided as well (PLP, OBP)",
        "unscalable another 70 and 93 % fewer on TATP, 85 and 96 % on TPC-B, 75 and 96 % on TPC-C: over \
         99 % gone",
        "-",
    ],
];

fn document(rows: &[[&str; 3]]) -> Block {
    let mut table = Table::new(["in the document", "its result", "here"]);
    rows.iter()
        .for_each(|row| table.row(row.map(str::to_owned)));
    Block {
        title: "What the document shows".to_owned(),
        note: "From the text; the bars have no numbers.".to_owned(),
        table,
    }
}

/// Compares each step of the document with the same step here.
fn steps(counted: &[Counted]) -> Block {
    let mut table = Table::new([
        "transaction",
        "unbounded, step by step",
        "of these, locks",
        "shape",
    ]);
    for name in tables::transactions(counted) {
        let baseline = counted
            .iter()
            .find(|one| one.design.name == "baseline" && one.name() == name);
        let (Some(unbounded), Some(baseline)) = (unbounded(counted, &name), baseline) else {
            continue;
        };
        let baseline = &baseline.own;
        let locks = baseline.of(Component::Lock, Pattern::Unbounded) / unbounded[0].max(1e-9);
        table.row([
            name.clone(),
            unbounded.map(amount).join(", "),
            format!("{:.0} %", locks * 100.0),
            verdict(unbounded),
        ]);
    }
    Block {
        title: "Step by step".to_owned(),
        note: "The steps: baseline, with inherited locks, with the combined log, the default. The share of \
               locks is the baseline's; in the document it is almost half."
            .to_owned(),
        table,
    }
}

/// Describes the steps of unbounded critical sections: baseline, inherited locks, combined log,
/// default.
fn verdict([baseline, inherited, combined, default]: [f64; 4]) -> String {
    let fewer = |from: f64, to: f64| {
        let less = (1.0 - to / from.max(1e-9)) * 100.0;
        let word = if less < 0.0 { "more" } else { "fewer" };
        format!("{:.0} % {word}", less.abs())
    };
    let steps = format!(
        "inheriting {}, combining {}, the default {} than the baseline",
        fewer(baseline, inherited),
        fewer(inherited, combined),
        fewer(baseline, default)
    );
    match (inherited < baseline, combined < inherited) {
        (true, true) => format!("reproduced: {steps}"),
        (false, true) => format!("not reproduced by inheriting: {steps}"),
        (true, false) => format!("not reproduced by combining: {steps}"),
        (false, false) => format!("not reproduced: {steps}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_compared_with_the_counts_of_the_text() {
        let holds = |all, unbounded, locks| -> Vec<bool> {
            let claims = composed(all, unbounded, locks);
            claims.iter().map(|claim| claim.holds.unwrap()).collect()
        };
        assert_eq!(holds(70.0, 60.0, 29.0), [true, true, true]);
        // A seventh of the document's counts, in the same proportions.
        assert_eq!(holds(10.0, 8.6, 4.0), [false, true, true]);
        assert_eq!(holds(70.0, 40.0, 19.0), [false, false, true]);
        // More than half, and far less.
        for locks in [31.0, 15.0] {
            assert_eq!(holds(70.0, 60.0, locks), [true, true, false]);
        }
        assert_eq!(holds(0.0, 0.0, 0.0), [false, false, false]);
    }

    #[test]
    fn designs_that_divide_the_data_are_not_measured() {
        assert!(divided().iter().all(|claim| claim.holds.is_none()));
    }

    #[test]
    fn each_step_is_described_as_it_is() {
        assert!(verdict([10.0, 8.0, 7.0, 5.0]).starts_with("reproduced: inheriting 20 % fewer"));
        assert!(
            verdict([10.0, 9.0, 8.0, 11.0]).ends_with("the default 10 % more than the baseline")
        );
        assert!(verdict([10.0, 11.0, 9.0, 5.0]).starts_with("not reproduced by inheriting"));
        assert!(verdict([10.0, 8.0, 8.0, 5.0]).starts_with("not reproduced by combining"));
    }
}
