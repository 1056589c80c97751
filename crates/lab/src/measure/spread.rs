//! Repetitions of one measurement and their spread.

/// The same quantity measured several times.
#[derive(Debug, Clone, Default)]
pub struct Spread(Vec<f64>);

impl Spread {
    /// These repetitions.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Spread(values)
    }

    /// The median; the mean of the two middle values if their number is even; 0 without values.
    pub fn median(&self) -> f64 {
        let count = self.0.len();
        match count {
            0 => 0.0,
            _ if count % 2 == 1 => self.0[count / 2],
            _ => (self.0[count / 2 - 1] + self.0[count / 2]) / 2.0,
        }
    }

    /// The median and both extremes, as `1.5 (1.4..1.9)`, each number in the words of `format`.
    pub fn words(&self, format: impl Fn(f64) -> String) -> String {
        let [median, min, max] = [self.median(), self.min(), self.max()].map(format);
        format!("{median} ({min}..{max})")
    }

    /// The smallest value; 0 without values.
    pub fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(0.0)
    }

    /// The largest value; 0 without values.
    pub fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        let spread = Spread::new([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(
            (spread.min(), spread.median(), spread.max()),
            (1.0, 2.5, 4.0)
        );
        assert_eq!(
            spread.words(|value| format!("{value:.1}")),
            "2.5 (1.0..4.0)"
        );
        assert_eq!(Spread::new([]).median(), 0.0);
    }
}
