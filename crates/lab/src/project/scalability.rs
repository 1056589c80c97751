//! The universal scalability law (Gunther, "Guerrilla Capacity Planning", 2007, chapter 6), fitted.
//!
//! With n processors busy, throughput is
//!
//! ```text
//!                    λ n
//! X(n) = ───────────────────────────
//!         1 + σ (n − 1) + κ n (n − 1)
//! ```
//!
//! λ is the throughput of one processor; σ (*contention*) the share of the work that only one
//! processor can do at a time; κ (*coherence*) the cost between every pair of processors. κ = 0 is
//! Amdahl's law, and σ = κ = 0 is throughput in proportion to processors.
//!
//! # Fitting
//!
//! n / X(n) = a + b (n − 1) + c n (n − 1) with λ = 1/a, σ = b/a, κ = c/a is linear in a, b and c.
//! The fit minimises the squares of the *relative* deviations, because disturbances of throughput
//! are relative, within 0 ≤ σ ≤ 1 and 0 ≤ κ. The problem is convex and small, so each face of those
//! bounds is solved exactly, and the best solution within them is the fit. If n occurs several
//! times, each occurrence counts.
//!
//! # Limits
//!
//! Three unknowns need three different n. With two, κ is unknown and taken as 0; then the
//! projection is an upper bound. A law fitted to few processors does not include effects that only
//! many show: a second socket, a divided cache, distant memory.

use std::fmt;

/// Throughput measured with this many busy processors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Processors.
    pub processors: u32,
    /// Transactions per second.
    pub throughput: f64,
}

/// The law with its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Law {
    /// λ: transactions per second on one processor.
    pub rate: f64,
    /// σ, from 0 to 1.
    pub contention: f64,
    /// κ, 0 or more.
    pub coherence: f64,
}

/// A law, and how well it fits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// The law.
    pub law: Law,
    /// True if there were enough different numbers of processors to determine κ.
    pub coherence_known: bool,
    /// The root of the mean square of the relative deviations.
    pub deviation: f64,
}

/// Why no law could be fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Unfit {
    /// Only this many different numbers of processors; at least two are needed.
    TooFew(usize),
    /// An invalid throughput (zero, negative, infinite, not a number), or no processors.
    NotAThroughput(Sample),
    /// The best law deviates this much from the measurements.
    DoesNotFollow(f64),
}

/// A law that deviates by more than this is rejected.
pub const MOST_DEVIATION: f64 = 0.15;

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::TooFew(count) => write!(
                f,
                "measured on {count} number{} of processors, but a law needs at least two different ones",
                if *count == 1 { "" } else { "s" }
            ),
            Unfit::NotAThroughput(sample) => write!(
                f,
                "{} transactions/s on {} processors is not a throughput",
                sample.throughput, sample.processors
            ),
            Unfit::DoesNotFollow(deviation) => write!(
                f,
                "the measurements do not follow the law: the best fit deviates by {:.0} %",
                deviation * 100.0
            ),
        }
    }
}

impl std::error::Error for Unfit {}

impl Law {
    /// Transactions per second with this many busy processors.
    pub fn throughput(&self, processors: f64) -> f64 {
        let others = processors - 1.0;
        let slowed = 1.0 + self.contention * others + self.coherence * processors * others;
        self.rate * processors / slowed
    }

    /// The number of processors with the highest throughput; `None` if it never falls.
    pub fn peak(&self) -> Option<f64> {
        (self.coherence > 0.0).then(|| ((1.0 - self.contention) / self.coherence).sqrt().max(1.0))
    }
}

/// Fits the law.
///
/// # Errors
///
/// If there are fewer than two different numbers of processors, an invalid throughput, or no law
/// that is near enough.
pub fn fit(samples: &[Sample]) -> Result<Fit, Unfit> {
    let sound =
        |one: &Sample| one.processors > 0 && one.throughput.is_finite() && one.throughput > 0.0;
    if let Some(&wrong) = samples.iter().find(|one| !sound(one)) {
        return Err(Unfit::NotAThroughput(wrong));
    }
    let mut different: Vec<u32> = samples.iter().map(|one| one.processors).collect();
    different.sort_unstable();
    different.dedup();
    if different.len() < 2 {
        return Err(Unfit::TooFew(different.len()));
    }
    let coherence_known = different.len() > 2;
    let rows: Vec<[f64; 3]> = samples.iter().map(row).collect();
    let best = faces(coherence_known)
        .iter()
        .filter_map(|face| on_face(&rows, face))
        .min_by(|one, other| one.1.total_cmp(&other.1));
    let ([a, b, c], squares) = best.ok_or(Unfit::DoesNotFollow(f64::INFINITY))?;
    let deviation = (squares / samples.len() as f64).sqrt();
    match deviation <= MOST_DEVIATION {
        false => Err(Unfit::DoesNotFollow(deviation)),
        true => Ok(Fit {
            law: Law {
                rate: 1.0 / a,
                contention: b / a,
                coherence: c / a,
            },
            coherence_known,
            deviation,
        }),
    }
}

/// The factors of a, b and c, divided by n / X: for a perfect fit a row adds up to one.
fn row(sample: &Sample) -> [f64; 3] {
    let n = f64::from(sample.processors);
    let scale = sample.throughput / n;
    [scale, scale * (n - 1.0), scale * n * (n - 1.0)]
}

/// A face of the bounds: its free variables, each with its contribution to a, b and c.
type Face = &'static [[f64; 3]];

const A: [f64; 3] = [1.0, 0.0, 0.0];
const B: [f64; 3] = [0.0, 1.0, 0.0];
const C: [f64; 3] = [0.0, 0.0, 1.0];
/// σ = 1: a and b are one number.
const A_IS_B: [f64; 3] = [1.0, 1.0, 0.0];

fn faces(with_coherence: bool) -> &'static [Face] {
    const WITHOUT: [Face; 3] = [&[A, B], &[A], &[A_IS_B]];
    const WITH: [Face; 6] = [&[A, B, C], &[A, C], &[A_IS_B, C], &[A, B], &[A], &[A_IS_B]];
    if with_coherence { &WITH } else { &WITHOUT }
}

/// The least squares on this face with their sum, if the solution is within the bounds.
fn on_face(rows: &[[f64; 3]], face: &[[f64; 3]]) -> Option<([f64; 3], f64)> {
    let dot = |one: &[f64; 3], other: &[f64; 3]| -> f64 {
        one.iter().zip(other).map(|(one, other)| one * other).sum()
    };
    let free = face.len();
    // The normal equations, each with its right side at the end.
    let mut equations = vec![vec![0.0; free + 1]; free];
    for row in rows {
        let along: Vec<f64> = face.iter().map(|direction| dot(row, direction)).collect();
        for (equation, &mine) in equations.iter_mut().zip(&along) {
            for (at, &theirs) in along.iter().chain([&1.0]).enumerate() {
                equation[at] += mine * theirs;
            }
        }
    }
    let solved = solve(equations)?;
    let mut found = [0.0; 3];
    for (direction, amount) in face.iter().zip(solved) {
        for (sum, part) in found.iter_mut().zip(direction) {
            *sum += part * amount;
        }
    }
    let [a, b, c] = found;
    let within = a > 0.0 && b >= 0.0 && b <= a && c >= 0.0;
    let squares = rows
        .iter()
        .map(|row| (dot(row, &found) - 1.0).powi(2))
        .sum();
    within.then_some((found, squares))
}

/// Gauss-Jordan elimination with the largest pivot of each column; `None` if the equations are
/// singular.
/// determine it.
fn solve(mut equations: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let count = equations.len();
    for column in 0..count {
        let largest = (column..count).max_by(|&one, &other| {
            equations[one][column]
                .abs()
                .total_cmp(&equations[other][column].abs())
        })?;
        equations.swap(column, largest);
        let pivot = equations[column].clone();
        if pivot[column].abs() < f64::MIN_POSITIVE {
            return None;
        }
        for (at, equation) in equations.iter_mut().enumerate() {
            let times = equation[column] / pivot[column];
            if at != column {
                equation
                    .iter_mut()
                    .zip(&pivot)
                    .for_each(|(mine, theirs)| *mine -= times * theirs);
            }
        }
    }
    let value = |at: usize| equations[at][count] / equations[at][at];
    Some((0..count).map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn law(rate: f64, contention: f64, coherence: f64) -> Law {
        Law {
            rate,
            contention,
            coherence,
        }
    }

    fn measured(law: &Law, processors: &[u32], factor: impl FnMut() -> f64) -> Vec<Sample> {
        let mut factor = factor;
        let sample = |&processors: &u32| Sample {
            processors,
            throughput: law.throughput(f64::from(processors)) * factor(),
        };
        processors.iter().map(sample).collect()
    }

    const MANY: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

    #[test]
    fn a_fit_recovers_the_law_its_data_were_made_of() {
        for made in [
            law(50_000.0, 0.05, 0.001),
            law(3.0, 0.4, 0.02),
            law(1e6, 0.0, 0.0003),
            law(800.0, 0.12, 0.0),
            law(800.0, 0.0, 0.0),
            law(20.0, 1.0, 0.0),
        ] {
            let fit = fit(&measured(&made, &MANY, || 1.0)).unwrap();
            assert!(
                fit.coherence_known && fit.deviation < 1e-6,
                "{made:?}: {fit:?}"
            );
            assert!(
                (fit.law.rate / made.rate - 1.0).abs() < 1e-6,
                "{made:?}: {fit:?}"
            );
            assert!(
                (fit.law.contention - made.contention).abs() < 1e-6,
                "{made:?}: {fit:?}"
            );
            assert!(
                (fit.law.coherence - made.coherence).abs() < 1e-6,
                "{made:?}: {fit:?}"
            );
        }
    }

    #[test]
    fn noise_moves_the_law_a_little_and_never_out_of_its_bounds() {
        let (made, mut random) = (law(50_000.0, 0.05, 0.002), Random::seeded(&[3]));
        for _ in 0..200 {
            let noise = || 0.97 + 0.06 * random.unit();
            let fit = fit(&measured(&made, &MANY, noise)).unwrap();
            let Law {
                contention,
                coherence,
                ..
            } = fit.law;
            assert!((contention - made.contention).abs() < 0.05, "{fit:?}");
            assert!((0.0..0.004).contains(&coherence), "{fit:?}");
        }
        // One processor does 100; two do more than twice as much: nothing is lost or gained.
        let two = [1, 2].map(|n| Sample {
            processors: n,
            throughput: 105.0f64.powi(n as i32),
        });
        let too_good = [
            two[0],
            Sample {
                throughput: 220.0,
                ..two[1]
            },
        ];
        let found = fit(&too_good).unwrap();
        assert_eq!((found.law.contention, found.law.coherence), (0.0, 0.0));
    }

    #[test]
    fn two_numbers_of_processors_give_amdahls_law_and_say_so() {
        let made = law(1_000.0, 0.25, 0.0);
        let found = fit(&measured(&made, &[1, 2, 1, 2], || 1.0)).unwrap();
        assert!(!found.coherence_known && found.law.peak().is_none());
        assert!((found.law.contention - 0.25).abs() < 1e-9);
        assert!((found.law.throughput(1e9) - 4_000.0).abs() < 1.0);
    }

    #[test]
    fn the_peak_is_where_one_more_processor_costs_as_much_as_it_brings() {
        let law = law(1_000.0, 0.02, 0.0005);
        let peak = law.peak().unwrap();
        assert!((peak - 44.27).abs() < 0.01, "{peak}");
        let best = law.throughput(peak);
        assert!(law.throughput(peak - 1.0) < best && law.throughput(peak + 1.0) < best);
    }

    #[test]
    fn what_no_law_explains_is_refused() {
        let sample = |processors, throughput| Sample {
            processors,
            throughput,
        };
        assert_eq!(fit(&[]), Err(Unfit::TooFew(0)));
        assert_eq!(
            fit(&[sample(2, 5.0), sample(2, 6.0)]),
            Err(Unfit::TooFew(1))
        );
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let refused = fit(&[sample(1, 5.0), sample(2, wrong)]).unwrap_err();
            assert!(
                matches!(refused, Unfit::NotAThroughput(_)),
                "{wrong}: {refused}"
            );
        }
        assert!(fit(&[sample(0, 5.0), sample(2, 6.0)]).is_err());
        let ragged = [(1, 100.0), (2, 20.0), (4, 300.0), (8, 40.0), (16, 900.0)];
        let refused = fit(&ragged.map(|(n, x)| sample(n, x))).unwrap_err();
        assert!(matches!(refused, Unfit::DoesNotFollow(_)), "{refused}");
        assert!(refused.to_string().contains("do not follow"));
    }
}
