//! The processor-overlap model: Table 3 of document 003 from its own Table 2.

use serde_json::json;

use super::{
    beside, components,
    request::Request,
    timed::{self, Effort, Timed},
};
use crate::{
    bench::error::BenchError,
    measure::machine::Machine,
    progress::Audience,
    project::overlap::{
        MISPRINT, Overlap, PRINTED_COOL_FACTOR, Printed, Spread, TABLE_2, TABLE_3, Times, overlap,
        row,
    },
    report::{
        findings::Block,
        number::grouped,
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
    system::{Locks, System},
    workload::wisconsin::operation::Operation,
};

/// The model on the document's times.
pub(super) fn table_3(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let (systems, timed) = measured(request, audience)?;
    let all: Vec<&System> = systems.iter().collect();
    let mut beside = vec![
        times_table(
            "The document's Table 2",
            "Seconds on an RS/6000 model 530.",
            &TABLE_2,
            None,
        ),
        reproduced(),
    ];
    for (system, timed) in systems.iter().zip(&timed) {
        let (label, ours) = (system.to_string(), times(timed));
        let title = match systems.len() {
            1 => "Our times".to_owned(),
            _ => format!("Our times: {label}"),
        };
        beside.push(times_table(&title, &note(&label), &ours, Some(system)));
        beside.push(projected(system, &ours));
    }
    beside.extend(components::side_by_side(&all, &Operation::TYPES, &timed));
    let picture = components::picture(&all, &Operation::TYPES, &timed);
    let mut settings = vec![("cool_factor_printed", json!(PRINTED_COOL_FACTOR))];
    settings.extend(request.listed_tables());
    Ok(Sheet {
        id: "003-table3",
        title: "Processors that one latch over a whole table can keep busy".to_owned(),
        source: format!("{}, Tables 2 and 3, section 2.2", beside::MEMORY),
        expect: "The document's table follows from its own times to the last digit printed. Its 28.1 is \
                 a misprint for 26.2: only so do the numbers of that row add up. It computed with 0.31 \
                 where 20/64 is 0.3125. Here no interpreter of queries surrounds storage. A latch over \
                 a table would be held for most of a transaction and keep few processors busy, so the \
                 engine has none."
            .to_owned(),
        shape: claims(),
        notes: Vec::new(),
        beside,
        pictures: picture.into_iter().collect(),
        panels: Vec::new(),
        settings,
        machine: Machine::here(),
        command: request.command.clone(),
    })
}

const TYPES: [&str; 5] = [
    "T1 table scan, count all",
    "T2 table scan, return 10 %",
    "T3 index scan, count all",
    "T4 index scan, return 10 %",
    "T5 fetch, insert or delete",
];

fn times_table(title: &str, note: &str, times: &[Times; 5], system: Option<&System>) -> Block {
    let mut table = Table::new(["transaction", "service", "latch held", "share"]);
    for (name, times) in TYPES.iter().zip(times) {
        let cells = [
            (*name).to_owned(),
            seconds(times.service),
            seconds(times.hold),
            format!("{:.0} %", times.hold / times.service * 100.0),
        ];
        match system {
            Some(system) => table.row_with(system.listed(), cells),
            None => table.row(cells),
        }
    }
    Block {
        title: title.to_owned(),
        note: note.to_owned(),
        table,
    }
}

fn seconds(value: f64) -> String {
    crate::report::number::duration_us(value * 1e6)
}

const HEADS: [&str; 7] = [
    "mix T1/T2/T3/T4/T5",
    "hot/s",
    "warm/s",
    "cool/s",
    "total/s",
    "processors",
    "with application",
];

/// Each cell: the document's number → the model's.
fn reproduced() -> Block {
    let mut table = Table::new(HEADS);
    for (at, printed) in TABLE_3.iter().enumerate() {
        let values = row(&model(printed, &TABLE_2, Some(PRINTED_COOL_FACTOR)));
        let cells = printed.values.iter().zip(values).enumerate();
        let cells = cells.map(|(column, (&theirs, ours))| {
            let misprint = if (at, column) == (MISPRINT.0, MISPRINT.1) {
                " (misprint)"
            } else {
                ""
            };
            format!("{}{misprint} → {}", number(theirs), number(ours))
        });
        table.row(std::iter::once(mix(printed)).chain(cells));
    }
    Block {
        title: "The document's Table 3 → the model, from the document's Table 2".to_owned(),
        note:
            "Transactions per second with 4 hot, 16 warm and 80 cool tables that get 64, 16 and 20 % of \
               the references, and the processors they keep busy."
                .to_owned(),
        table,
    }
}

/// Times the five transactions with the engine's default locks, one client, in each component.
fn measured(
    request: &Request,
    audience: Audience,
) -> Result<(Vec<System>, Vec<Vec<Timed>>), BenchError> {
    let system = match request.systems.first() {
        Some(system) => system.clone(),
        None => System::new(Locks::Default, None),
    };
    let systems = request.in_tables(vec![system]);
    let effort = Effort::of(request, [300, 500, 5_000]);
    let steps = (systems.len() * Operation::TYPES.len()) as u64 * u64::from(effort.reps);
    let progress = audience.count("transactions T1 to T5", steps, "measurements");
    let timed = timed::time(
        &systems,
        &Operation::TYPES,
        effort,
        request.directory.as_deref(),
        &progress,
    )?;
    Ok((systems, timed))
}

/// Service and storage time of the five transactions.
fn times(timed: &[Timed]) -> [Times; 5] {
    std::array::from_fn(|at| Times {
        service: timed[at].service.median(),
        hold: timed[at].storage.median(),
    })
}

/// The document's Table 3 from its Table 2, without the number that it misprints.
fn claims() -> Shape {
    let (mut agree, mut all) = (0, 0);
    for (at, printed) in TABLE_3.iter().enumerate() {
        let ours = row(&model(printed, &TABLE_2, Some(PRINTED_COOL_FACTOR)));
        for (column, (&theirs, ours)) in printed.values.iter().zip(ours).enumerate() {
            if (at, column) != (MISPRINT.0, MISPRINT.1) {
                // One decimal is printed, of numbers that were rounded before; large ones are cut.
                let printed_to = (theirs * 0.01).max(0.1) + 1e-9;
                agree += u32::from((ours - theirs).abs() <= printed_to);
                all += 1;
            }
        }
    }
    Shape(vec![Claim::new(
        "Table 3 follows from Table 2 by the model",
        format!("{agree} of {all} numbers agree to the digits printed, and one more is a misprint"),
        "all numbers but the misprint",
        agree == all,
    )])
}

fn note(label: &str) -> String {
    format!(
        "Medians over {label}, one client. \"Latch held\" is the time inside operations on tables, locks \
         included: one latch over the table would be held for that long, if there were one as in the \
         document."
    )
}

fn projected(system: &System, times: &[Times; 5]) -> Block {
    let mut table = Table::new(HEADS);
    for printed in &TABLE_3 {
        let values = row(&model(printed, times, None));
        let cells = std::iter::once(mix(printed)).chain(values.map(number));
        table.row_with(system.listed(), cells);
    }
    Block {
        title: format!(
            "Projection: {system} with one latch over each table, any number of processors"
        ),
        note:
            "The same model with our times and the exact factor. A projection, not a measurement."
                .to_owned(),
        table,
    }
}

fn model(printed: &Printed, times: &[Times; 5], cool_factor: Option<f64>) -> Overlap {
    overlap(&printed.with(times), &Spread::EIGHTY_TWENTY, cool_factor)
}

fn mix(printed: &Printed) -> String {
    printed.mix.map(|percent| percent.to_string()).join("/")
}

fn number(value: f64) -> String {
    if value >= 1_000.0 {
        grouped(value)
    } else {
        format!("{value:.1}")
    }
}
