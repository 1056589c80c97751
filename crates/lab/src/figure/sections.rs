//! Critical sections of a transaction: figures 3 and 11 of document 002.
//!
//! The bars of the document have no numbers but those that its text says; they stand beside ours.
//! Only a program that counts can make these figures.

use foxton::Durability;
use foxton_sync::site::{Component, Pattern};

use super::{beside, request::Request};
use crate::{
    bench::{
        critical_sections::{
            self, Case, Counted, Settings,
            design::{DEFAULT, Design},
            tell,
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

/// What the document ran.
const EXECUTIONS: u32 = 1_000;
const ROWS: u32 = 10_000;
/// The transaction of figure 3.
const SIMPLE: &str = "UpdateLocation";
/// The designs of figure 3 and what came of them here.
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
    let told = Told {
        shape: Shape(shape),
        id: "002-fig3",
        title: "Critical sections of one simple transaction",
        place: "Figure 3 and section 3.1",
        expect: "About a seventh of the document's from the start, and fewer unbounded ones from design to \
                 design.",
        document: document(&DOCUMENT_3),
    };
    Ok(sheet(told, &settings, &counted, request))
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
    let told = Told {
        shape: Shape(shape),
        id: "002-fig11",
        title: "Critical sections of the benchmarks' transactions",
        place: "Figure 11 and section 8.2",
        expect: "Fewer unbounded ones with locks inherited, and again with inserts into the log that are \
                 combined; the least where what is only read is remembered and not locked. The document's \
                 last four bars divide the data among threads; nothing here does that.",
        document: document(&DOCUMENT_11),
    };
    Ok(sheet(told, &settings, &counted, request))
}

/// What is said of a figure.
struct Told {
    id: &'static str,
    title: &'static str,
    /// Where in the document.
    place: &'static str,
    expect: &'static str,
    /// What it claims.
    shape: Shape,
    /// What the document has.
    document: Block,
}

fn sheet(told: Told, settings: &Settings, counted: &[Counted], request: &Request) -> Sheet {
    let mut beside = vec![told.document, steps(counted)];
    beside.extend(tell::blocks(counted));
    Sheet {
        id: told.id,
        title: told.title.to_owned(),
        source: format!("{}, {}", beside::SCALING, told.place),
        expect: told.expect.to_owned(),
        shape: told.shape,
        notes: vec![WHY_FEWER.to_owned()],
        beside,
        pictures: tell::pictures(counted),
        panels: Vec::new(),
        settings: tell::listed(settings),
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

/// What the document counted in its simple transaction before anything was improved: all, the
/// unbounded of them, and of those the part that are locks.
const ALL: f64 = 70.0;
const UNBOUNDED: f64 = 60.0;
/// "About" is within so much of it.
const ABOUT: f64 = 0.15;

/// What the baseline passes in the simple transaction: how much, of what kind, and for whom.
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

/// The claims for so many critical sections, so many of them unbounded, and so many of those of
/// locks.
fn composed(all: f64, unbounded: f64, locks: f64) -> Vec<Claim> {
    let about = |found: f64, said: f64| (found - said).abs() <= said * ABOUT;
    let (of_all, of_unbounded) = (unbounded / all.max(1e-9), locks / unbounded.max(1e-9));
    vec![
        Claim::new(
            "the simple transaction passes about 70 critical sections, some 60 of them unbounded",
            format!(
                "the baseline passes {}, {} of them unbounded: there are no pages",
                amount(all),
                amount(unbounded)
            ),
            about(all, ALL) && about(unbounded, UNBOUNDED),
        ),
        Claim::new(
            "six in seven of them are unbounded",
            format!("{:.0} % of the baseline's are unbounded", of_all * 100.0),
            about(of_all, UNBOUNDED / ALL),
        ),
        Claim::new(
            "almost half of the unbounded ones are of locks",
            format!(
                "{:.0} % of the baseline's unbounded ones are of locks",
                of_unbounded * 100.0
            ),
            (0.5 * (1.0 - ABOUT)..=0.5).contains(&of_unbounded),
        ),
    ]
}

/// What the document's last bars show, whose designs divide the data among threads.
fn divided() -> [Claim; 2] {
    const WHY: &str = "nothing here divides the data";
    [
        Claim::unseen(
            "transactions divided among partitions make unbounded critical sections 55 % fewer",
            WHY,
        ),
        Claim::unseen(
            "trees and buffer pools divided, too, make over 99 % of them go",
            WHY,
        ),
    ]
}

/// Each step of the document, for each transaction.
fn steps_of(counted: &[Counted]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for name in tell::transactions(counted) {
        let Some([baseline, inherited, combined, _]) = unbounded(counted, &name) else {
            continue;
        };
        let found = |from, to| format!("{name}: {} to {}", amount(from), amount(to));
        claims.push(Claim::new(
            "inheriting locks makes fewer unbounded critical sections",
            format!("inheriting, {}", found(baseline, inherited)),
            inherited < baseline,
        ));
        claims.push(Claim::new(
            "combining inserts into the log makes fewer still",
            format!("combining, {}", found(inherited, combined)),
            combined < inherited,
        ));
    }
    claims
}

const WHY_FEWER: &str = "The document's engine keeps its rows in pages. For each of them it also latches the \
    page, and pins and finds its frame in the buffer pool; it looks up metadata for each access, keeps a list of \
    transactions, and takes more than one log record and several latches for each. Here rows stay where they \
    are in memory, the index is read without writing anything shared, a worker remembers the tables it has \
    met, nobody keeps a list of transactions, and a commit is one record. So ours begin lower for what is \
    absent, and not because the same would be done with less; what is comparable are locks and log.";

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

/// What the text of the document says of figure 3: the bars themselves have no numbers.
const DOCUMENT_3: [[&str; 3]; 3] = [
    [
        "Shore-MT as released",
        "about 70, of them unscalable about 60",
        "baseline",
    ],
    [
        "where they are",
        "almost half are locks, then log, metadata, page latches, buffer pool",
        "baseline",
    ],
    [
        "with locks inherited and composable log inserts",
        "shape: a large number fewer, most of the log's are cooperative",
        "consolidated",
    ],
];

/// The same of figure 11.
const DOCUMENT_11: [[&str; 3]; 5] = [
    [
        "Shore-MT as released",
        "the bars have no numbers",
        "baseline",
    ],
    [
        "with locks inherited",
        "unscalable more than 20 % fewer; little on TPC-C",
        "inheritance",
    ],
    [
        "with composable log inserts, too",
        "unscalable a further 5.5 % fewer on TATP, 12 % on TPC-B, 6.6 % on TPC-C",
        "consolidated",
    ],
    [
        "transactions divided among partitions (DORA)",
        "half of all, unscalable 55 % fewer",
        "-",
    ],
    [
        "trees and buffer pools divided, too (PLP, OBP)",
        "unscalable another 70 and 93 % fewer on TATP, 85 and 96 % on TPC-B, 75 and 96 % on TPC-C: over \
         99 % gone",
        "-",
    ],
];

fn document(rows: &[[&str; 3]]) -> Block {
    let mut table = Table::new(["in the document", "it shows", "here"]);
    rows.iter()
        .for_each(|row| table.row(row.map(str::to_owned)));
    Block {
        title: "What the document shows".to_owned(),
        note: "From the text; the bars have no numbers.".to_owned(),
        table,
    }
}

/// Whether each step of the document goes the same way here, in words.
fn steps(counted: &[Counted]) -> Block {
    let mut table = Table::new([
        "transaction",
        "unbounded, step by step",
        "of them locks",
        "shape",
    ]);
    for name in tell::transactions(counted) {
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
        note: "Step by step: baseline, with locks inherited, with the log combined, the default. Of them locks: \
               of the baseline's, where the document has almost half."
            .to_owned(),
        table,
    }
}

/// In a sentence: unbounded critical sections of the baseline, with locks inherited, with the log
/// combined, and of the default.
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
        (false, true) => format!("not by inheriting: {steps}"),
        (true, false) => format!("not by combining: {steps}"),
        (false, false) => format!("not reproduced: {steps}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_baseline_passes_is_held_against_the_numbers_of_the_text() {
        let holds = |all, unbounded, locks| -> Vec<bool> {
            let claims = composed(all, unbounded, locks);
            claims.iter().map(|claim| claim.holds.unwrap()).collect()
        };
        assert_eq!(holds(70.0, 60.0, 29.0), [true, true, true]);
        // A seventh of the document's, made up alike.
        assert_eq!(holds(10.0, 8.6, 4.0), [false, true, true]);
        assert_eq!(holds(70.0, 40.0, 19.0), [false, false, true]);
        // More than half, and far less.
        for locks in [31.0, 15.0] {
            assert_eq!(holds(70.0, 60.0, locks), [true, true, false]);
        }
        assert_eq!(holds(0.0, 0.0, 0.0), [false, false, false]);
    }

    #[test]
    fn what_divides_the_data_cannot_be_seen() {
        assert!(divided().iter().all(|claim| claim.holds.is_none()));
    }

    #[test]
    fn the_shape_is_said_as_it_is() {
        assert!(verdict([10.0, 8.0, 7.0, 5.0]).starts_with("reproduced: inheriting 20 % fewer"));
        assert!(
            verdict([10.0, 9.0, 8.0, 11.0]).ends_with("the default 10 % more than the baseline")
        );
        assert!(verdict([10.0, 11.0, 9.0, 5.0]).starts_with("not by inheriting"));
        assert!(verdict([10.0, 8.0, 8.0, 5.0]).starts_with("not by combining"));
    }
}
