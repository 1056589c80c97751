//! Numbers drawn by Pareto's rule: with h = 0.2, a fifth of the numbers takes four fifths of the
//! draws, a fifth of that fifth four fifths of those, and so on. The lowest are the most frequent.

use super::Random;

/// Numbers from 1, chosen by Pareto's rule.
#[derive(Debug, Clone, Copy)]
pub struct Pareto {
    power: f64,
}

impl Pareto {
    /// The share `h` of the numbers takes `1 - h` of the draws.
    ///
    /// # Panics
    ///
    /// If `h` is not between 0 and 1.
    pub fn new(h: f64) -> Pareto {
        assert!(0.0 < h && h < 1.0, "a share lies between 0 and 1, not {h}");
        Pareto {
            power: h.ln() / (1.0 - h).ln(),
        }
    }

    /// Draws a number from 1 to `count`.
    ///
    /// # Panics
    ///
    /// If `count` is 0.
    pub fn draw(&self, random: &mut Random, count: u64) -> u64 {
        assert!(count > 0, "there is nothing to draw from");
        let number = 1 + (count as f64 * random.unit().powf(self.power)) as u64;
        // A product may be rounded up to the count itself.
        number.min(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_those_of_the_rule() {
        let (pareto, count) = (Pareto::new(0.2), 10_000_000);
        assert!((pareto.power - 7.2126).abs() < 1e-4);
        // P(number <= x) = (x / count)^(1 / power).
        let law = [
            (1, 0.107),
            (10, 0.147),
            (100, 0.203),
            (1_000, 0.279),
            (100_000, 0.528),
            (500_000, 0.660),
            (1_000_000, 0.727),
            (2_000_000, 0.800),
        ];
        let mut random = Random::seeded(&[1]);
        let draws: Vec<u64> = (0..200_000)
            .map(|_| pareto.draw(&mut random, count))
            .collect();
        assert!(draws.iter().all(|number| (1..=count).contains(number)));
        for (up_to, share) in law {
            let hits = draws.iter().filter(|&&number| number <= up_to).count();
            let found = hits as f64 / draws.len() as f64;
            assert!((found - share).abs() < 0.004, "{up_to}: {found}, {share}");
        }
    }

    #[test]
    fn one_number_is_drawn_always() {
        let (pareto, mut random) = (Pareto::new(0.2), Random::seeded(&[2]));
        assert!((0..1_000).all(|_| pareto.draw(&mut random, 1) == 1));
    }
}
