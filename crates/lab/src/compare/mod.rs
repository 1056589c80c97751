//! Comparison of two runs, point by point: medians, ratio, interval, and a verdict.
//!
//! Committed transactions per second are compared. Points are paired if experiment, system and
//! number of clients are the same. All their settings must be the same too, except the time and the
//! number of measurements. Machine and program may differ, because such comparisons are useful; the
//! comparison names the differences.

/// Errors of comparisons.
pub mod error;

/// Runs as they are on disk.
pub mod recorded;

/// On a terminal and as a page.
pub mod tables;

use error::CompareError;
use recorded::{Key, Point, Recorded};
use serde_json::{Map, Value};

use crate::measure::{
    ratio::{Ratio, Verdict},
    spread::Spread,
};

/// A comparison of two runs.
#[derive(Debug)]
pub struct Comparison {
    /// Where each was read.
    pub places: [String; 2],
    /// The points both have, in the order of the first.
    pub pairs: Vec<Pair>,
    /// Number of points that only one run has.
    pub alone: [usize; 2],
    /// Differences of machines and programs, by name.
    pub differences: Vec<(String, [String; 2])>,
}

/// One point of both.
#[derive(Debug)]
pub struct Pair {
    /// The point.
    pub key: Key,
    /// The repetitions of each.
    pub passes: [Spread; 2],
    /// The second ÷ the first, unless a check failed or nothing can be divided.
    pub ratio: Option<Ratio>,
    /// A check that failed, which voids the point.
    pub failed: Option<String>,
}

impl Pair {
    /// The verdict.
    pub fn words(&self) -> &'static str {
        match (&self.failed, &self.ratio) {
            (Some(_), _) => "void",
            (None, Some(ratio)) => ratio.verdict().words(),
            (None, None) => "nothing to divide",
        }
    }
}

impl Comparison {
    /// Compares the second run with the first.
    ///
    /// # Errors
    ///
    /// If they ran different experiments, have no point in common, or had different settings.
    pub fn of(first: &Recorded, second: &Recorded) -> Result<Comparison, CompareError> {
        let both = [first, second];
        let ran = both.map(experiments);
        if !ran[0].iter().any(|one| ran[1].contains(one)) {
            return Err(CompareError::Experiments { ran });
        }
        let mut pairs = Vec::new();
        for one in &first.points {
            let other = second.points.iter().find(|other| other.key == one.key);
            if let Some(other) = other {
                same_settings(one, other)?;
                pairs.push(pair(one, other));
            }
        }
        if pairs.is_empty() {
            return Err(CompareError::NoCommonPoint);
        }
        Ok(Comparison {
            places: both.map(|run| run.path.display().to_string()),
            alone: both.map(|run| run.points.len().saturating_sub(pairs.len())),
            differences: differences(&first.points[0].machine, &second.points[0].machine),
            pairs,
        })
    }

    /// Number of points with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let ratios = self.pairs.iter().filter(|pair| pair.failed.is_none());
        let verdicts = ratios
            .filter_map(|pair| pair.ratio)
            .map(|ratio| ratio.verdict());
        verdicts.filter(|&one| one == verdict).count()
    }
}

fn experiments(run: &Recorded) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for point in &run.points {
        if !names.contains(&point.key.experiment) {
            names.push(point.key.experiment.clone());
        }
    }
    names
}

fn same_settings(one: &Point, other: &Point) -> Result<(), CompareError> {
    match differing(&one.settings, &other.settings).into_iter().next() {
        None => Ok(()),
        Some((name, values)) => Err(CompareError::Settings {
            point: format!(
                "{}, {}, MPL {}",
                one.key.experiment, one.key.system, one.key.mpl
            ),
            name,
            values,
        }),
    }
}

/// Entries in which two maps differ.
fn differing(one: &Map<String, Value>, other: &Map<String, Value>) -> Vec<(String, [String; 2])> {
    let value =
        |value: Option<&Value>| value.map_or("not given".to_owned(), crate::report::data::plain);
    let more = other.keys().filter(|name| !one.contains_key(*name));
    let names = one.keys().chain(more);
    let differ = names.filter(|name| one.get(*name) != other.get(*name));
    differ
        .map(|name| (name.clone(), [value(one.get(name)), value(other.get(name))]))
        .collect()
}

fn differences(one: &Map<String, Value>, other: &Map<String, Value>) -> Vec<(String, [String; 2])> {
    let mut all = differing(one, other);
    all.retain(|(name, _)| name != "started_utc");
    all
}

fn pair(one: &Point, other: &Point) -> Pair {
    let failed = one.failed.clone().or_else(|| other.failed.clone());
    Pair {
        key: one.key.clone(),
        passes: [one, other].map(|point| Spread::new(point.passes.iter().copied())),
        ratio: Ratio::of(&one.passes, &other.passes),
        failed,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn point(system: &str, mpl: u64, passes: &[f64]) -> Point {
        let object = |value: Value| value.as_object().cloned().unwrap();
        Point {
            key: Key {
                experiment: "txbench read-only".to_owned(),
                system: system.to_owned(),
                mpl,
            },
            passes: passes.to_vec(),
            failed: None,
            settings: object(json!({"rows": 2000})),
            machine: object(json!({"cores": 2, "started_utc": "then"})),
        }
    }

    fn run(points: Vec<Point>) -> Recorded {
        Recorded {
            path: "results.json".into(),
            points,
        }
    }

    const STEADY: [f64; 5] = [100.0, 101.0, 99.0, 100.0, 102.0];

    #[test]
    fn points_are_paired_by_their_key_and_not_by_their_order() {
        let doubled = STEADY.map(|value| value * 2.0);
        let first = run(vec![
            point("a", 1, &STEADY),
            point("b", 1, &STEADY),
            point("a", 9, &STEADY),
        ]);
        let second = run(vec![
            point("b", 1, &doubled),
            point("c", 1, &STEADY),
            point("a", 1, &STEADY),
        ]);
        let found = Comparison::of(&first, &second).unwrap();
        let words: Vec<_> = found
            .pairs
            .iter()
            .map(|pair| (pair.key.system.as_str(), pair.words()))
            .collect();
        assert_eq!(words, [("a", "no difference shown"), ("b", "faster")]);
        assert_eq!((found.alone, found.count(Verdict::Faster)), ([1, 1], 1));
        assert!(found.differences.is_empty());
    }

    #[test]
    fn different_settings_are_refused_and_different_machines_are_named() {
        let first = run(vec![point("a", 1, &STEADY)]);
        let mut second = run(vec![point("a", 1, &STEADY)]);
        second.points[0]
            .machine
            .insert("cores".to_owned(), json!(8));
        let found = Comparison::of(&first, &second).unwrap();
        assert_eq!(
            found.differences,
            [("cores".to_owned(), ["2".to_owned(), "8".to_owned()])]
        );
        second.points[0]
            .settings
            .insert("rows".to_owned(), json!(9000));
        let refused = Comparison::of(&first, &second).unwrap_err().to_string();
        assert!(
            refused.contains("rows 2000") && refused.contains("9000"),
            "{refused}"
        );
        second.points[0].settings.clear();
        let refused = Comparison::of(&first, &second).unwrap_err().to_string();
        assert!(refused.contains("not given"), "{refused}");
    }

    #[test]
    fn runs_without_anything_in_common_are_refused() {
        let first = run(vec![point("a", 1, &STEADY)]);
        let other = run(vec![point("a", 2, &STEADY)]);
        assert!(matches!(
            Comparison::of(&first, &other),
            Err(CompareError::NoCommonPoint)
        ));
        let mut other = run(vec![point("a", 1, &STEADY)]);
        other.points[0].key.experiment = "tpcb".to_owned();
        let refused = Comparison::of(&first, &other).unwrap_err();
        assert!(matches!(refused, CompareError::Experiments { .. }));
        assert!(refused.to_string().contains("tpcb"));
    }

    #[test]
    fn a_failed_check_voids_a_point() {
        let first = run(vec![point("a", 1, &STEADY)]);
        let mut second = run(vec![point("a", 1, &STEADY)]);
        second.points[0].failed = Some("a row is missing".to_owned());
        let found = Comparison::of(&first, &second).unwrap();
        assert_eq!(
            (found.pairs[0].words(), found.count(Verdict::NoDifference)),
            ("void", 0)
        );
    }
}
