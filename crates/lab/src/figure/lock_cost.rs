//! Cost of locks: Tables 4 and 5 of document 003.

use std::time::Duration;

use super::{
    beside, components,
    lock_memory::{self, Memory},
    request::Request,
    timed::{self, Effort, Timed},
};
use crate::{
    bench::{
        alone::{self, Alone, Nanos},
        by_held,
        error::BenchError,
    },
    measure::{machine::Machine, spread::Spread},
    progress::{Audience, Progress},
    report::{
        findings::Block,
        number::{bytes, duration_us},
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
    system::System,
    workload::wisconsin::{ROWS, operation::Operation},
};

/// The document's Table 4, in microseconds: lock, unlock, both.
const DOCUMENT: [[&str; 4]; 7] = [
    ["Starburst (hash table)", "25", "12", "37"],
    ["MMM, remembered", "6", "5", "11"],
    ["MMM, real tuple lock", "9", "15", "24"],
    ["MMM, fixed table lock", "10", "10", "20"],
    ["MMM, de-escalation of one remembered", "2.3", "-", "-"],
    ["first tuple: Starburst", "-", "-", "74"],
    ["first tuple: MMM, remembered / real", "-", "-", "31 / 44"],
];

/// Locks held at once; the document's hash table was at its best there.
const BEST: usize = 100;
/// Locks of another owner where there are many: more than there are buckets with a line of their
/// own.
const STRANGERS: usize = 50_000;
/// The manager that has locks of several kinds, by blocks of keys, and in the document's form.
const FORMS: [&str; 2] = ["direct", "direct:table"];
/// The document's note on this table.
const SLOTS: &str = " The document's hash table had 1,000 slots and got slower above 500 locks.";
/// Locks that one transaction holds where memory is measured.
const MANY: usize = 1_000_000;

/// Lock and unlock, for every manager.
pub(super) fn table_4(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen_and_by_table();
    let systems = request.in_tables(chosen.systems.clone());
    let effort = Effort::of(request, [40, 60, 1_000]);
    let measurements = steps(&chosen.systems, &systems, effort);
    let progress = audience.count("locks alone", measurements, "measurements");
    // Beside its record, a lock is the same in both components.
    let by_held = by_held::nanos(&chosen.systems, effort.reps, effort.each, &progress);
    let costs = costs(&systems, effort, &progress);
    drop(progress);
    let many = if effort.rows == ROWS { MANY } else { BEST };
    let memory = lock_memory::memory(request, &chosen.systems, many, audience);
    Ok(Sheet {
        id: "003-table4",
        title: "Cost of a lock and its release".to_owned(),
        source: format!("{}, Table 4 and section 4.1", beside::MEMORY),
        expect: "In the document a remembered lock costs less than a third of a lock in a hash table, and \
                 a real lock beside the data two thirds. Here a remembered lock of direct should cost a \
                 small part of a lock of bucket, and a real one in its record less than a lock of bucket. \
                 direct:table has one flag for each table, as the document has; direct has one for each \
                 64 neighbouring keys."
            .to_owned(),
        shape: claims_4(&systems, &costs),
        notes: chosen.notes(),
        beside: vec![
            document(),
            ours(&systems, &costs),
            by_held::block(&chosen.systems, &by_held, SLOTS),
            memory_table(&chosen.systems, &memory, many),
        ],
        pictures: Vec::new(),
        panels: Vec::new(),
        settings: effort.listed(request),
        machine: Machine::here(),
        command: request.command.clone(),
    })
}

/// A lock in a hash table, and beside the data: remembered and real.
fn claims_4(systems: &[System], costs: &[Cost]) -> Shape {
    let of = |name: &str| {
        let at = systems
            .iter()
            .position(|system| system.manager_name() == name)?;
        Some(&costs[at])
    };
    let both =
        |nanos: &[Nanos]| Spread::new(nanos.iter().map(|one| one.lock + one.unlock)).median();
    let Some(table) = of("bucket") else {
        return Shape::default();
    };
    let share = |nanos: &[Nanos]| both(nanos) / both(&table.apart).max(1e-9);
    let mut claims = Vec::new();
    for form in FORMS {
        let Some(beside) = of(form) else {
            continue;
        };
        let remembered = share(&beside.apart);
        let found = |kind, share: f64| {
            format!(
                "{kind} lock of {form} costs {:.0} % of a lock of bucket",
                share * 100.0
            )
        };
        claims.push(Claim::new(
            "a remembered lock costs less than a third of a lock in a hash table",
            found("a remembered", remembered),
            "below 40 %",
            remembered < 0.4,
        ));
        if beside.real.is_empty() {
            continue;
        }
        let real = share(&beside.real);
        claims.push(Claim::new(
            "a real lock beside the data costs two thirds of a lock in a hash table",
            found("a real", real),
            "below 90 %",
            real < 0.9,
        ));
    }
    Shape(claims)
}

/// Measurements of one manager, in nanoseconds.
#[derive(Debug, Default)]
struct Cost {
    apart: Vec<Nanos>,
    table: Vec<f64>,
    first: Vec<f64>,
    real: Vec<Nanos>,
    real_queued: Vec<Nanos>,
    real_among_many: Vec<Nanos>,
    deescalated: Vec<f64>,
}

/// Measurements: by locks held; then apart, table, first key, real three times, de-escalated.
fn steps(managers: &[System], systems: &[System], effort: Effort) -> u64 {
    by_held::steps(managers, effort.reps) + systems.len() as u64 * 7 * u64::from(effort.reps)
}

fn costs(systems: &[System], effort: Effort, progress: &Progress) -> Vec<Cost> {
    let mut alone: Vec<Alone> = systems
        .iter()
        .map(|system| Alone::new(system.manager(), BEST))
        .collect();
    let mut costs: Vec<Cost> = systems.iter().map(|_| Cost::default()).collect();
    for _ in 0..effort.reps {
        for ((system, alone), cost) in systems.iter().zip(&mut alone).zip(&mut costs) {
            cost.apart.push(alone.nanos_apart(BEST, effort.each));
            cost.table.push(alone.nanos_a_table(effort.each));
            cost.first.push(alone.nanos_a_first_key(effort.each));
            if is_direct(system) {
                let beside = if effort.rows == ROWS { STRANGERS } else { BEST };
                let spaced = || Alone::spaced(system.manager(), BEST);
                // Rows of pages have no word for a lock, because they may leave memory.
                if !system.is_paged() {
                    cost.real
                        .push(real(spaced().with_records(), 0, effort.each));
                }
                cost.real_queued.push(real(spaced(), 0, effort.each));
                cost.real_among_many
                    .push(real(spaced(), beside, effort.each));
                cost.deescalated.push(deescalated(system));
            }
            progress.advance(7);
        }
    }
    costs
}

/// True for the document's form, with one flag for each table.
fn is_by_table(system: &System) -> bool {
    system.manager_name() == FORMS[1]
}

fn is_direct(system: &System) -> bool {
    FORMS.contains(&system.manager_name().as_str())
}

/// Measures locks on keys whose neighbours another owner has locked exclusively, so that no lock is
/// remembered. The other owner holds `beside` more locks elsewhere in the table.
fn real(mut alone: Alone, beside: usize, window: Duration) -> Nanos {
    let mut names = alone::every_other(1, BEST);
    names.extend(alone::names(2 * BEST as u32, beside));
    let stranger = alone.stranger(&names);
    let nanos = alone.nanos_apart(BEST, window);
    alone.dismiss(stranger);
    nanos
}

/// Measures a request that conflicts with a remembered lock and makes it real, less a request that
/// finds it real.
fn deescalated(system: &System) -> f64 {
    let mut alone = Alone::new(system.manager(), BEST);
    alone.take(BEST);
    let first = alone.refuse_strangers(BEST).as_nanos() as f64;
    let second = alone.refuse_strangers(BEST).as_nanos() as f64;
    alone.give_back();
    (first - second) / BEST as f64
}

fn document() -> Block {
    let mut table = Table::new(["lock", "lock, µs", "unlock, µs", "both, µs"]);
    DOCUMENT
        .into_iter()
        .for_each(|row| table.row(row.map(str::to_owned)));
    Block {
        title: "The document's Table 4".to_owned(),
        note: "That machine does about 10 instructions a microsecond: 37 µs are 370 instructions."
            .to_owned(),
        table,
    }
}

fn ours(systems: &[System], costs: &[Cost]) -> Block {
    let mut table = Table::new(["lock", "lock, ns", "unlock, ns", "both, ns", "min", "max"]);
    for (system, cost) in systems.iter().zip(costs) {
        let kind = match is_direct(system) {
            true => ", remembered",
            false => "",
        };
        let mut row = |name: String, nanos: &[Nanos]| {
            if !nanos.is_empty() {
                table.row_with(system.listed(), apart(&name, nanos));
            }
        };
        row(format!("{system}{kind}"), &cost.apart);
        row(format!("{system}, real, in its record"), &cost.real);
        row(format!("{system}, real, queued"), &cost.real_queued);
        let among_many = format!("{system}, real, queued among {STRANGERS} of another owner");
        row(among_many, &cost.real_among_many);
        for (kind, nanos) in [
            ("fixed table lock (S)", &cost.table),
            ("first key: IS and S", &cost.first),
            ("de-escalation of one remembered lock", &cost.deescalated),
        ] {
            if nanos.is_empty() {
                continue;
            }
            let spread = Spread::new(nanos.iter().copied());
            let both = [spread.median(), spread.min(), spread.max()].map(nano);
            let name = format!("{system}, {kind}");
            let dashes = ["-".to_owned(), "-".to_owned()];
            let cells = std::iter::once(name).chain(dashes).chain(both);
            table.row_with(system.listed(), cells);
        }
    }
    Block {
        title: "Ours".to_owned(),
        note: format!(
            "Nanoseconds, median and extremes of the repetitions. Shared locks on keys, {BEST} held at \
             once, where the document's hash table was at its best; no conflicts. Real locks of direct \
             are on keys whose neighbours another owner holds exclusively. They are in the records of \
             the keys, or queued in buckets, as for keys without records and rows of paged tables. If that owner has more locks \
             than there are buckets, lines of the buckets come from farther away. De-escalation is the \
             additional time of requests for X on each of {BEST} remembered keys, for each key. The first \
             in a block, or with direct:table in the table, makes all others there real: a fence on all \
             processors, a search of the owner's list, and the grants."
        ),
        table,
    }
}

fn apart(name: &str, nanos: &[Nanos]) -> [String; 6] {
    let median = |value: fn(&Nanos) -> f64| Spread::new(nanos.iter().map(value));
    let both = median(|nanos| nanos.lock + nanos.unlock);
    [
        name.to_owned(),
        nano(median(|nanos| nanos.lock).median()),
        nano(median(|nanos| nanos.unlock).median()),
        nano(both.median()),
        nano(both.min()),
        nano(both.max()),
    ]
}

fn nano(value: f64) -> String {
    format!("{value:.1}")
}

fn memory_table(systems: &[System], memory: &[Result<Memory, String>], many: usize) -> Block {
    let mut table = Table::new([
        "locks",
        "manager, idle",
        "with the locks",
        "bytes per held lock",
        "its own count",
    ]);
    for (system, memory) in systems.iter().zip(memory) {
        match memory {
            Ok(memory) => table.row([
                system.to_string(),
                bytes(memory.idle),
                bytes(memory.held),
                format!("{:.1}", memory.each(many)),
                bytes(memory.counted),
            ]),
            Err(error) => table.row([system.to_string(), error.clone()]),
        }
    }
    Block {
        title: format!("Memory: one transaction that holds {many} locks"),
        note: "Additional resident memory of the process: once the manager is made, and once the locks \
               are held; each manager in a process of its own. Names, which the caller provides, are \
               not counted."
            .to_owned(),
        table,
    }
}

/// The document's Table 5: storage time in ms, locks, then cost and share of locks for the hash
/// table, real locks and remembered locks.
const TABLE_5: [[&str; 6]; 5] = [
    [
        "T1",
        "864 / 450",
        "1",
        "0.074 (.02 %)",
        ".024 (.01 %)",
        ".011 (0 %)",
    ],
    [
        "T2",
        "794 / 383",
        "1",
        "0.074 (.02 %)",
        ".024 (.01 %)",
        ".011 (0 %)",
    ],
    [
        "T3",
        "910 / 496",
        "10,000",
        "370 (42 %)",
        "240 (33 %)",
        "107 (17 %)",
    ],
    [
        "T4",
        "433 / 85",
        "1,000",
        "37 (30 %)",
        "24 (22 %)",
        "11 (11 %)",
    ],
    [
        "T5",
        "7 / 0.3",
        "1",
        "0.074 (20 %)",
        "0.044 (12 %)",
        "0.031 (9 %)",
    ],
];

/// The share of locking in five transactions, for every manager.
pub(super) fn table_5(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen_and_by_table();
    let effort = Effort::of(request, [150, 200, 2_000]);
    let mut systems = vec![System::without_locking()];
    systems.extend(
        chosen
            .systems
            .iter()
            .filter(|one| one.is_locking())
            .cloned(),
    );
    let systems = request.in_tables(systems);
    // The document's "hi cost": the flag of each table has been de-escalated.
    let real: Vec<System> = systems
        .iter()
        .filter(|one| is_by_table(one))
        .cloned()
        .collect();
    let mut forms: Vec<(&System, bool)> = systems.iter().map(|one| (one, false)).collect();
    forms.extend(real.iter().map(|one| (one, true)));
    let steps = (forms.len() * Operation::TYPES.len()) as u64 * u64::from(effort.reps);
    let progress = audience.count("transactions T1 to T5", steps, "measurements");
    let timed = timed::time_beside(
        &forms,
        &Operation::TYPES,
        effort,
        request.directory.as_deref(),
        &progress,
    )?;
    let remembering: Vec<&System> = systems.iter().collect();
    let remembered = &timed[..systems.len()];
    let side_by_side = components::side_by_side(&remembering, &Operation::TYPES, remembered);
    let picture = components::picture(&remembering, &Operation::TYPES, remembered);
    Ok(Sheet {
        id: "003-table5",
        title: "The share of locking in five transactions".to_owned(),
        source: format!("{}, Table 5 and section 4.2", beside::MEMORY),
        expect: "In the document an index scan of 10,000 tuples spends 42 % of its storage time on locks \
                 with a hash table, 33 % with real and 17 % with remembered locks beside the data. Here \
                 table scans lock every key they read too. direct and direct:table, which remember locks, \
                 should have the smallest shares."
            .to_owned(),
        shape: claims_5(&forms, &timed),
        notes: chosen.notes(),
        beside: [document_5(), ours_5(&forms, &timed)]
            .into_iter()
            .chain(side_by_side)
            .collect(),
        pictures: picture.into_iter().collect(),
        panels: Vec::new(),
        settings: effort.listed(request),
        machine: Machine::here(),
        command: request.command.clone(),
    })
}

fn document_5() -> Block {
    let mut table = Table::new([
        "transaction",
        "whole / storage, ms",
        "locks",
        "Starburst, ms",
        "MMM real, ms",
        "MMM remembered, ms",
    ]);
    TABLE_5
        .into_iter()
        .for_each(|row| table.row(row.map(str::to_owned)));
    Block {
        title: "The document's Table 5".to_owned(),
        note:
            "Times without locks; in brackets the share of locks in storage time with locks. T1 and T2 \
               lock the table once."
                .to_owned(),
        table,
    }
}

/// Index of the system without locks whose tables are in the component of that at `at`.
fn without_locks(forms: &[(&System, bool)], at: usize) -> usize {
    let is_paged = forms[at].0.is_paged();
    let is_it =
        |(system, _): &(&System, bool)| !system.is_locking() && system.is_paged() == is_paged;
    forms.iter().position(is_it).expect("one of each component")
}

/// The third transaction, an index scan of every tuple, with a hash table and with remembered
/// locks.
fn claims_5(forms: &[(&System, bool)], timed: &[Vec<Timed>]) -> Shape {
    const SCAN: usize = 2;
    let share_of = |name: &str, is_real: bool| {
        let at = forms
            .iter()
            .position(|&(system, real)| system.manager_name() == name && real == is_real)?;
        let (with, without) = (&timed[at][SCAN], &timed[without_locks(forms, at)][SCAN]);
        let locking = (with.service.median() - without.service.median()).max(0.0);
        Some(locking / (without.storage.median() + locking).max(1e-12) * 100.0)
    };
    let Some(table) = share_of("bucket", false) else {
        return Shape::default();
    };
    let claim = |form| {
        let remembered = share_of(form, false)?;
        Some(Claim::new(
            "an index scan spends 42 % on locks with a hash table and 17 % with remembered locks",
            format!(
                "an index scan spends {table:.0} % on locks with bucket and {remembered:.0} % with \
                 {form}"
            ),
            "below 0.8 times bucket",
            remembered < table * 0.8,
        ))
    };
    let real = share_of("direct:table", true).map(|real| {
        Claim::new(
            "an index scan spends 42 % on locks with a hash table and 33 % with real locks beside the data",
            format!(
                "an index scan spends {table:.0} % on locks with bucket and {real:.0} % with real \
                 locks of direct:table"
            ),
            "below bucket",
            real < table,
        )
    });
    Shape(FORMS.into_iter().filter_map(claim).chain(real).collect())
}

fn ours_5(forms: &[(&System, bool)], timed: &[Vec<Timed>]) -> Block {
    let mut table = Table::new([
        "transaction",
        "locks over",
        "whole",
        "storage",
        "min",
        "max",
        "locks",
        "locking",
        "share",
    ]);
    let micros = |seconds: f64| duration_us(seconds.max(0.0) * 1e6);
    for (at, operation) in Operation::TYPES.into_iter().enumerate() {
        for (index, &(system, is_real)) in forms.iter().enumerate() {
            let without = &timed[without_locks(forms, index)][at];
            let timed = &timed[index][at];
            // Releasing is part of the commit, so locking is the additional time of the whole
            // transaction.
            let locking = timed.service.median() - without.service.median();
            let share = locking / (without.storage.median() + locking).max(1e-12);
            let dash = || "-".to_owned();
            table.row_with(
                system.listed(),
                [
                    operation.name().to_owned(),
                    if is_real {
                        format!("{system}, real")
                    } else {
                        system.to_string()
                    },
                    micros(timed.service.median()),
                    micros(timed.storage.median()),
                    micros(timed.storage.min()),
                    micros(timed.storage.max()),
                    format!("{:.1}", timed.locks),
                    match system.is_locking() {
                        true => micros(locking),
                        false => dash(),
                    },
                    match system.is_locking() {
                        true => format!("{:.1} %", share.max(0.0) * 100.0),
                        false => dash(),
                    },
                ],
            );
        }
    }
    Block {
        title: "Ours".to_owned(),
        note: "One client. Locking is the additional time of the whole transaction over one without \
               locks. Its share is that of storage time without locks plus locking, as in the document. \
               The index over unique1 is a table of its own here, so T3 and T4 lock each tuple twice: \
               its entry and itself. Real locks are those beside another transaction that has written in \
               each table, so that nothing there is remembered."
            .to_owned(),
        table,
    }
}
