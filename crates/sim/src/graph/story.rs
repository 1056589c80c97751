//! Reports of cycles in words: which transaction read a value, and which overwrote it.

use super::cycle::Cycle;
use super::edge::{Edge, Kind};
use crate::history::{Record, Transaction};
use crate::replay::tell;

/// Describes `cycle`: first why each transaction comes before the next, then all of their steps.
pub(crate) fn tell_cycle(cycle: &Cycle, order: &[(&Record, &Transaction)]) -> String {
    let count = cycle.len();
    let mut text =
        format!("{count} transactions, each before the next, and the last before the first.");
    let name = |node: u32| order[node as usize - 1].1.writer;
    for (index, (from, edge)) in cycle.0.iter().enumerate() {
        let why = why(edge, index + 1, (index + 1) % count + 1);
        text += &format!("\n  T{} ({}) [{}] {why}", index + 1, name(*from), edge.kind);
    }
    for (index, (from, _)) in cycle.0.iter().enumerate() {
        let (record, transaction) = order[*from as usize - 1];
        text += &format!("\nT{}: {}", index + 1, tell(record, transaction));
    }
    text
}

fn why(edge: &Edge, one: usize, other: usize) -> String {
    let Edge {
        key, step, step_to, ..
    } = edge;
    match edge.kind {
        Kind::Wrote => format!(
            "T{one} wrote key {key} in step {step}; T{other} overwrote that in step {step_to}"
        ),
        Kind::Read => {
            format!("T{one} wrote key {key} in step {step}; T{other} read that in step {step_to}")
        }
        Kind::ReadRange => format!(
            "T{one} deleted key {key} in step {step}; T{other} read without it in step {step_to}"
        ),
        Kind::Overwrote => format!(
            "T{one} read key {key} in step {step}; T{other} overwrote what it had read in step {step_to}"
        ),
        Kind::Appeared => format!(
            "T{one} read without key {key} in step {step}; T{other} wrote it in step {step_to}"
        ),
        Kind::Earlier => format!("T{one} was acknowledged before T{other} began"),
    }
}
