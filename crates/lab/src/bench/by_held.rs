//! A lock and its release alone, by how many are held at once.

use std::time::Duration;

use super::alone::Alone;
use crate::{
    measure::spread::Spread, progress::Progress, report::findings::Block, report::table::Table,
    system::System,
};

/// Numbers of locks held before all are released.
pub(crate) const HELD: [usize; 6] = [1, 10, 100, 500, 1_000, 10_000];

/// Number of measurements for `repetitions` of these systems.
pub(crate) fn steps(systems: &[System], repetitions: u32) -> u64 {
    (systems.len() * HELD.len()) as u64 * u64::from(repetitions)
}

/// Nanoseconds for each system and each of [`HELD`]. The systems take turns; each measurement takes
/// `window`.
pub(crate) fn nanos(
    systems: &[System],
    repetitions: u32,
    each: Duration,
    progress: &Progress,
) -> Vec<Vec<Spread>> {
    let largest = HELD[HELD.len() - 1];
    let alone = |system: &System| Alone::new(system.manager(), largest);
    let mut alone: Vec<Alone> = systems.iter().map(alone).collect();
    let mut nanos = vec![vec![Vec::new(); HELD.len()]; systems.len()];
    for _ in 0..repetitions {
        for (at, &held) in HELD.iter().enumerate() {
            for (alone, nanos) in alone.iter_mut().zip(&mut nanos) {
                nanos[at].push(alone.nanos_a_lock(held, each));
                progress.advance(1);
            }
        }
    }
    let spreads = |by_held: Vec<Vec<f64>>| by_held.into_iter().map(Spread::new).collect();
    nanos.into_iter().map(spreads).collect()
}

/// The results as a table.
pub(crate) fn block(systems: &[System], nanos: &[Vec<Spread>], note: &str) -> Block {
    let mut table = Table::new([
        "locks",
        "1 held",
        "10",
        "100",
        "500",
        "1,000",
        "10,000 held",
    ]);
    for (system, nanos) in systems.iter().zip(nanos) {
        let cells = nanos
            .iter()
            .map(|spread| spread.words(|nanos| format!("{nanos:.1}")));
        table.row(std::iter::once(system.to_string()).chain(cells));
    }
    Block {
        title: "Nanoseconds for a lock and its release, by locks held at once".to_owned(),
        note: format!("Shared locks on keys, median (extremes) of the repetitions.{note}"),
        table,
    }
}
