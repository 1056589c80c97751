//! Numbers about a mean, normally distributed, and never beyond two bounds.

use std::f64::consts::TAU;

use super::Random;

/// A normal distribution cut at both ends: a number beyond is drawn again.
#[derive(Debug, Clone, Copy)]
pub struct CutNormal {
    /// The mean.
    pub mean: f64,
    /// Its standard deviation, before it is cut.
    pub deviation: f64,
    /// The lowest number drawn.
    pub low: f64,
    /// The highest number drawn.
    pub high: f64,
}

impl CutNormal {
    /// Draws a number.
    pub fn draw(&self, random: &mut Random) -> f64 {
        loop {
            let number = self.mean + self.deviation * standard(random);
            if (self.low..=self.high).contains(&number) {
                return number;
            }
        }
    }
}

/// Mean 0, deviation 1, by the method of Box and Muller.
fn standard(random: &mut Random) -> f64 {
    (-2.0 * random.unit().ln()).sqrt() * (TAU * random.unit()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_those_of_the_cut_bell_curve() {
        let cut = CutNormal {
            mean: 30.0,
            deviation: 10.0,
            low: 10.0,
            high: 50.0,
        };
        let mut random = Random::seeded(&[1]);
        let draws: Vec<f64> = (0..100_000).map(|_| cut.draw(&mut random)).collect();
        assert!(draws.iter().all(|number| (10.0..=50.0).contains(number)));
        let share = |is: &dyn Fn(f64) -> bool| {
            draws.iter().filter(|&&number| is(number)).count() as f64 / draws.len() as f64
        };
        // Within one deviation is 0.6827 of the whole curve, within two 0.9545: the rest is cut.
        let middle = share(&|number| (number - 30.0).abs() < 10.0);
        assert!((middle - 0.6827 / 0.9545).abs() < 0.005, "{middle}");
        let below = share(&|number| number < 30.0);
        assert!((below - 0.5).abs() < 0.005, "{below}");
    }
}
