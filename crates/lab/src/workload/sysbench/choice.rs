//! Which rows a statement is for.

use crate::random::{Random, pareto::Pareto};

/// The share of the rows that takes the rest of the draws: the benchmark's default.
const H: f64 = 0.2;

/// Which ids are more frequent than others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// None.
    Uniform,
    /// The low ones: a fifth of them takes four fifths of the draws, again and again.
    Pareto,
}

foxton_sync::named_enum! {
    Choice, "distribution":
    Uniform = "uniform",
    Pareto = "pareto",
}

/// Draws ids.
#[derive(Debug, Clone, Copy)]
pub struct Chooser {
    pareto: Option<Pareto>,
    rows: u32,
}

impl Chooser {
    /// For tables of `rows` rows.
    pub fn new(choice: Choice, rows: u32) -> Chooser {
        let pareto = (choice == Choice::Pareto).then(|| Pareto::new(H));
        Chooser { pareto, rows }
    }

    /// Draws an id.
    pub fn id(&self, random: &mut Random) -> i32 {
        let rows = u64::from(self.rows);
        let id = match &self.pareto {
            Some(pareto) => pareto.draw(random, rows),
            None => random.uniform(1, rows),
        };
        id as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_rows_and_pareto_has_the_low_ones_more_often() {
        let mut low = Choice::ALL.map(|choice| {
            let (chooser, mut random) = (Chooser::new(choice, 1_000), Random::seeded(&[4]));
            let ids: Vec<i32> = (0..20_000).map(|_| chooser.id(&mut random)).collect();
            assert!(ids.iter().all(|id| (1..=1_000).contains(id)));
            ids.iter().filter(|&&id| id <= 200).count()
        });
        low.sort_unstable();
        assert!((3_800..4_200).contains(&low[0]), "{low:?}");
        assert!((15_800..16_200).contains(&low[1]), "{low:?}");
    }
}
