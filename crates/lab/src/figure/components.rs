//! Both components of tables side by side: in memory, and in pages of a file.
//!
//! The engine of document 003 has two as well, and its paper calls them the main-memory manager and
//! the disk-oriented one. With `--tables memory,paged` the same operations run on both. A table and
//! a picture then have the times of each system in memory beside those of its paged twin.

use serde_json::json;

use super::timed::Timed;
use crate::{
    report::{
        bars::{Bar, Bars, Fill, Part},
        figures::{Figure, Picture},
        findings::Block,
        number::{bytes, duration_us},
        shape::Claim,
        table::Table,
    },
    system::System,
    workload::wisconsin::operation::Operation,
};

/// Two systems that differ in the component of their tables alone, with their times.
struct Twins<'t> {
    in_memory: &'t System,
    paged: &'t System,
    times: [&'t [Timed]; 2],
}

/// Returns each system in memory whose paged twin was measured too.
fn twins<'t>(systems: &[&'t System], timed: &'t [Vec<Timed>]) -> Vec<Twins<'t>> {
    let all = || systems.iter().zip(timed);
    let twin = |(system, times): (&&'t System, &'t Vec<Timed>)| {
        let is_twin = |other: &System| other.is_paged() && system.is_but_for_tables(other);
        let (paged, paged_times) = all().find(|(other, _)| is_twin(other))?;
        Some(Twins {
            in_memory: system,
            paged,
            times: [times, paged_times],
        })
    };
    all()
        .filter(|(one, _)| !one.is_paged())
        .filter_map(twin)
        .collect()
}

/// Times of both components, if both were measured.
pub(super) fn side_by_side(
    systems: &[&System],
    operations: &[Operation],
    timed: &[Vec<Timed>],
) -> Option<Block> {
    let twins = twins(systems, timed);
    let memory = twins.first()?.paged.page_memory();
    let mut table = Table::new([
        "operation",
        "locks over",
        "in memory",
        "paged",
        "times",
        "storage, in memory",
        "storage, paged",
        "times, storage",
    ]);
    let micros = |seconds: f64| duration_us(seconds * 1e6);
    for (at, operation) in operations.iter().enumerate() {
        for one in &twins {
            let service = one.times.map(|times| times[at].service.median());
            let storage = one.times.map(|times| times[at].storage.median());
            let ratio = |[memory, paged]: [f64; 2]| format!("{:.1}", paged / memory.max(1e-12));
            let settings = vec![
                ("tables", json!("memory,paged")),
                ("page_memory", json!(memory)),
            ];
            let cells = [
                operation.name().to_owned(),
                one.in_memory.to_string(),
                micros(service[0]),
                micros(service[1]),
                ratio(service),
                micros(storage[0]),
                micros(storage[1]),
                ratio(storage),
            ];
            table.row_with(settings, cells);
        }
    }
    Some(Block {
        title: "Tables in memory beside paged tables".to_owned(),
        note: format!(
            "Time of a transaction, and of it inside storage, medians. Pages have at most {} of memory.",
            bytes(memory)
        ),
        table,
    })
}

/// The same as a picture: of the first system that locks, how many times as long paged tables take.
pub(super) fn picture(
    systems: &[&System],
    operations: &[Operation],
    timed: &[Vec<Timed>],
) -> Option<Figure> {
    let twins = twins(systems, timed);
    let one = twins.iter().find(|one| one.in_memory.is_locking());
    let one = one.or(twins.first())?;
    let bars = operations.iter().enumerate().flat_map(|(at, operation)| {
        let [memory, paged] = one.times.map(|times| times[at].service.median());
        let ratios = [
            (0, "in memory", 1.0),
            (1, "paged", paged / memory.max(1e-12)),
        ];
        ratios.map(|(colour, component, value)| Bar {
            label: format!("{}, {component}", operation.name()),
            parts: vec![Part {
                colour,
                fill: Fill::Solid,
                value,
            }],
        })
    });
    let chart = Bars {
        title: "Time of an operation on paged tables, in times that on tables in memory".to_owned(),
        subtitle: one.in_memory.to_string(),
        colours: ["in memory", "paged"].map(str::to_owned).to_vec(),
        fills: Vec::new(),
        bars: bars.collect(),
    };
    Some(Figure {
        name: "components".to_owned(),
        chart: Picture::Bars(chart),
    })
}

/// The document's Table 1: 1,293 ms for a scan by the disk component, 450 ms by that in memory.
/// `at` is the index of the table scan among the operations.
pub(super) fn claim(systems: &[&System], timed: &[Vec<Timed>], at: usize) -> Option<Claim> {
    let twins = twins(systems, timed);
    let one = twins.last()?;
    let [memory, paged] = one.times.map(|times| times[at].storage.median());
    let ratio = paged / memory.max(1e-12);
    Some(Claim::new(
        "a table scan takes the disk component 2.9 times as long as the one in memory",
        format!(
            "with {}, a table scan takes paged tables {ratio:.1} times as long as tables in memory",
            one.in_memory
        ),
        "above 1.0 times",
        ratio > 1.0,
    ))
}
