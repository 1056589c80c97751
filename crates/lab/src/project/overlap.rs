//! The processor-overlap model of document 003 (Gottemukkala and Lehman 1992, section 2.2).
//!
//! One exclusive latch guards each table. A latch is held for at most a second in each second, so
//! the hottest table bounds the rate of all tables. Little's law then gives the number of
//! processors that this rate keeps busy.
//!
//! For types of transaction with service time S and hold time H, shares m of the mix (Σ m = 1), and
//! tables in a few groups of which the first is the hottest:
//!
//! | | |
//! | --- | --- |
//! | rate at one hot table | λ = 1 / Σ m·H |
//! | rate at all hot tables | their number · λ |
//! | rate at another group | rate at the hot ones · its share / the hot ones' share |
//! | processors busy | N = total rate · Σ m·S |
//! | with application code | 2 · N: it doubles S and leaves H as it is |

/// One type of transaction, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// Processor time of the whole transaction.
    pub service: f64,
    /// Time it holds the latch of its table.
    pub hold: f64,
}

/// A group of tables used equally, and their share of all references together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Number of tables.
    pub tables: u32,
    /// Share of the references.
    pub share: f64,
}

/// Groups of tables by use: hot ones, then warm ones, then cool ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// They bound the rate.
    pub hot: Group,
    /// Used less.
    pub warm: Group,
    /// Used least.
    pub cool: Group,
}

impl Spread {
    /// One table, or one latch, that every transaction needs.
    pub const ONE_TABLE: Spread = Spread {
        hot: Group {
            tables: 1,
            share: 1.0,
        },
        warm: Group {
            tables: 0,
            share: 0.0,
        },
        cool: Group {
            tables: 0,
            share: 0.0,
        },
    };
    /// A hundred tables: 80 % of the references go to 20 of them, and 80 % of those to 4.
    pub const EIGHTY_TWENTY: Spread = Spread {
        hot: Group {
            tables: 4,
            share: 0.64,
        },
        warm: Group {
            tables: 16,
            share: 0.16,
        },
        cool: Group {
            tables: 80,
            share: 0.20,
        },
    };

    /// The rate of the cool tables divided by that of the hot ones.
    pub fn cool_factor(&self) -> f64 {
        self.cool.share / self.hot.share
    }

    /// The rate of the warm tables divided by that of the hot ones.
    pub fn warm_factor(&self) -> f64 {
        self.warm.share / self.hot.share
    }
}

/// Results of the model for one mix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overlap {
    /// Transactions per second at the hot tables.
    pub hot: f64,
    /// At the warm ones.
    pub warm: f64,
    /// At the cool ones.
    pub cool: f64,
    /// At all of them.
    pub total: f64,
    /// Processors busy.
    pub processors: f64,
}

impl Overlap {
    /// Processors busy if the application's own code takes as long as the transaction.
    pub fn with_application(&self) -> f64 {
        2.0 * self.processors
    }
}

/// The model for types of transaction, each with its share of the mix, over these tables.
///
/// `cool_factor` replaces the exact [`Spread::cool_factor`] if given: the document computed with
/// 0.31 for 20/64.
///
/// # Panics
///
/// If the shares do not add up to one, or no transaction of the mix holds a latch.
pub fn overlap(mix: &[(Times, f64)], spread: &Spread, cool_factor: Option<f64>) -> Overlap {
    let shares: f64 = mix.iter().map(|(_, share)| share).sum();
    assert!(
        (shares - 1.0).abs() < 1e-9,
        "the shares of a mix must add up to one, not to {shares}"
    );
    let hold: f64 = mix.iter().map(|(times, share)| times.hold * share).sum();
    let service: f64 = mix.iter().map(|(times, share)| times.service * share).sum();
    assert!(hold > 0.0, "somebody must hold the latch");
    let hot = f64::from(spread.hot.tables) / hold;
    let warm = hot * spread.warm_factor();
    let cool = hot * cool_factor.unwrap_or_else(|| spread.cool_factor());
    let total = hot + warm + cool;
    Overlap {
        hot,
        warm,
        cool,
        total,
        processors: total * service,
    }
}

/// The five types of the document's Table 2.
pub const TABLE_2: [Times; 5] = [
    times(0.864, 0.450),
    times(0.794, 0.383),
    times(1.006, 0.586),
    times(0.445, 0.107),
    times(0.007, 0.0003),
];

const fn times(service: f64, hold: f64) -> Times {
    Times { service, hold }
}

/// A row of the document's Table 3: the mix in percent, then the printed numbers.
#[derive(Debug, Clone, Copy)]
pub struct Printed {
    /// T1 to T5, in percent.
    pub mix: [u32; 5],
    /// Rates at hot, warm and cool tables, their total, processors, processors with application.
    pub values: [f64; 6],
}

const fn printed(mix: [u32; 5], values: [f64; 6]) -> Printed {
    Printed { mix, values }
}

/// The document's Table 3, as printed.
pub const TABLE_3: [Printed; 9] = [
    printed([20, 20, 20, 20, 20], [13.1, 3.3, 4.1, 20.4, 12.7, 25.4]),
    printed([60, 10, 10, 10, 10], [10.6, 2.6, 3.3, 16.5, 12.3, 24.6]),
    printed([10, 60, 10, 10, 10], [11.6, 2.9, 3.6, 18.1, 12.8, 25.6]),
    printed([10, 10, 60, 10, 10], [9.0, 2.2, 2.8, 14.0, 11.4, 22.8]),
    printed([10, 10, 10, 60, 10], [19.4, 4.9, 6.0, 30.3, 16.2, 32.4]),
    printed([10, 10, 10, 10, 60], [28.1, 6.5, 8.1, 40.8, 12.9, 25.8]),
    printed([100, 0, 0, 0, 0], [8.9, 2.2, 2.8, 13.9, 12.0, 24.0]),
    printed([0, 0, 0, 100, 0], [37.4, 9.3, 11.6, 58.3, 26.0, 52.0]),
    printed(
        [0, 0, 0, 0, 100],
        [13_333.0, 3_333.0, 4_133.0, 20_799.0, 145.0, 290.0],
    ),
];

/// The cool factor that the document used.
pub const PRINTED_COOL_FACTOR: f64 = 0.31;

/// The document's misprint: its row and column, and the right number, which follows from the sum of
/// the row.
pub const MISPRINT: (usize, usize, f64) = (5, 0, 26.2);

impl Printed {
    /// The mix with these times.
    pub fn with(&self, times: &[Times; 5]) -> Vec<(Times, f64)> {
        let share = |percent: u32| f64::from(percent) / 100.0;
        times.iter().copied().zip(self.mix.map(share)).collect()
    }
}

/// The model's numbers in the order of [`Printed::values`].
pub fn row(overlap: &Overlap) -> [f64; 6] {
    [
        overlap.hot,
        overlap.warm,
        overlap.cool,
        overlap.total,
        overlap.processors,
        overlap.with_application(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_table_3_follows_from_its_table_2() {
        for (at, printed) in TABLE_3.iter().enumerate() {
            let mix = printed.with(&TABLE_2);
            let ours = row(&overlap(
                &mix,
                &Spread::EIGHTY_TWENTY,
                Some(PRINTED_COOL_FACTOR),
            ));
            for (column, (&ours, &theirs)) in ours.iter().zip(&printed.values).enumerate() {
                let last_row = at == 8;
                // The last row is printed in full, and its 2N is twice a truncated N.
                let tolerance = match (last_row, column) {
                    (true, 5) => 2.0,
                    (true, _) => 1.0,
                    (false, _) => 0.1,
                };
                let theirs = if (at, column) == (MISPRINT.0, MISPRINT.1) {
                    MISPRINT.2
                } else {
                    theirs
                };
                assert!(
                    (ours - theirs).abs() <= tolerance + 1e-9,
                    "row {at}, column {column}: {ours} against {theirs}"
                );
            }
        }
    }

    #[test]
    fn recomputed_values_are_exact_to_three_digits() {
        let at = |row_index: usize, cool| {
            let mix = TABLE_3[row_index].with(&TABLE_2);
            row(&overlap(&mix, &Spread::EIGHTY_TWENTY, cool))
        };
        let close = |ours: [f64; 6], wanted: [f64; 6]| {
            for (ours, wanted) in ours.iter().zip(wanted) {
                assert!(
                    (ours - wanted).abs() < 6e-4 * wanted.max(1.0),
                    "{ours} {wanted}"
                );
            }
        };
        close(
            at(0, Some(0.31)),
            [13.104, 3.276, 4.062, 20.442, 12.739, 25.478],
        );
        close(
            at(3, Some(0.31)),
            [8.976, 2.244, 2.783, 14.003, 11.407, 22.813],
        );
        close(
            at(5, Some(0.31)),
            [26.181, 6.545, 8.116, 40.843, 12.870, 25.739],
        );
        // Exactly 20/64 instead of 0.31.
        for (index, total, processors) in [
            (0, 20.474, 12.760),
            (1, 16.551, 12.307),
            (2, 18.162, 12.869),
            (3, 14.025, 11.425),
            (4, 30.321, 16.194),
            (5, 40.908, 12.890),
            (6, 13.889, 12.000),
            (7, 58.411, 25.993),
            (8, 20_833.3, 145.833),
        ] {
            let ours = at(index, None);
            assert!((ours[3] - total).abs() < 6e-4 * total.max(1.0) / 10.0 + 6e-4);
            assert!((ours[4] - processors).abs() < 6e-4 + 1e-6 * processors);
        }
    }

    #[test]
    fn one_type_that_holds_a_tenth_of_its_time_keeps_ten_processors_busy_at_one_table() {
        // The document's own example in section 2.2.
        let found = overlap(&[(times(1.0, 0.1), 1.0)], &Spread::ONE_TABLE, None);
        assert!((found.total - 10.0).abs() < 1e-9 && (found.processors - 10.0).abs() < 1e-9);
    }
}
