//! Points and curves: throughput over the number of clients.

use std::time::Duration;

use serde_json::Value;

use super::{
    latency::Latency,
    outcome::{Outcome, Tally},
    profile::Profile,
    run::Run,
    spread::Spread,
    time::Times,
    timeline::Sample,
    usage::{Split, Usage},
};

/// One number of clients with one system, repeated.
#[derive(Debug, Clone)]
pub struct Point {
    /// Clients.
    pub mpl: u32,
    /// The repetitions.
    pub runs: Vec<Run>,
    /// `Ok`, or the error of the workload's checks.
    pub checks: Result<(), String>,
    /// Counts of the workload's own.
    pub facts: Vec<(&'static str, Value)>,
    /// Where the time went in one more run, if that was requested; or why it is not known.
    pub times: Option<Result<Times, String>>,
    /// The samples of the last repetition.
    pub samples: Vec<Sample>,
}

impl Point {
    /// A point without repetitions yet.
    pub fn new(mpl: u32) -> Point {
        Point {
            mpl,
            runs: Vec::new(),
            checks: Ok(()),
            facts: Vec::new(),
            times: None,
            samples: Vec::new(),
        }
    }

    /// Committed transactions per second, by repetition.
    pub fn tps(&self) -> Spread {
        Spread::new(self.runs.iter().map(Run::tps))
    }

    /// Outcomes of all repetitions.
    pub fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        self.runs.iter().for_each(|run| sum.add(&run.tally));
        sum
    }

    /// Latencies of all repetitions.
    pub fn latency(&self) -> Latency {
        let mut sum = Latency::default();
        self.runs.iter().for_each(|run| sum.add(&run.latency()));
        sum
    }

    /// Latencies of the transactions of one type, by its index among the kinds.
    pub fn latency_of(&self, kind: usize) -> Latency {
        let mut sum = Latency::default();
        let of_kind = self.runs.iter().filter_map(|run| run.latencies.get(kind));
        of_kind.for_each(|latency| sum.add(latency));
        sum
    }

    /// How the processors spent the windows of all repetitions, if the system reports it.
    pub fn split(&self, cores: usize) -> Option<Split> {
        let (mut sum, mut window) = (Usage::default(), Duration::ZERO);
        for run in &self.runs {
            let usage = run.usage?;
            sum.user += usage.user;
            sum.kernel += usage.kernel;
            sum.everybody += usage.everybody;
            window += run.window;
        }
        (!window.is_zero()).then(|| Split::of(sum, window, cores))
    }

    /// Keeps the samples of a run that is not one of the repetitions.
    pub(crate) fn tell_times(&mut self, run: &Run, profile: Result<Profile, String>) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.times = Some(profile.map(|profile| Times::of(run, profile, cores)));
        if let Some(failure) = &run.tally.failure {
            self.fail(failure.to_string());
        }
        if let Some(shortage) = run.cut {
            self.fail(shortage.to_string());
        }
    }

    /// Keeps the first error.
    pub fn fail(&mut self, what: String) {
        if self.checks.is_ok() {
            self.checks = Err(what);
        }
    }

    /// Records errors of the clients, which void a run. So does a lock wait that timed out: no
    /// workload here requests a timeout, and a waiting client must show as waiting. A run without
    /// commits is not void: a latch that collapses can cause that, and zero is then the result.
    /// Also records that a run was ended early.
    pub fn judge(&mut self) {
        let tally = self.tally();
        let errors = tally.of(Outcome::Error);
        if errors > 0 {
            let first = tally.failure.as_deref().unwrap_or("without words");
            self.fail(format!("{errors} transactions failed, the first: {first}"));
        }
        let timeouts = tally.of(Outcome::Timeout);
        if timeouts > 0 {
            self.fail(format!(
                "{timeouts} lock waits timed out, although no timeout was requested"
            ));
        }
        if let Some(shortage) = self.runs.iter().find_map(|run| run.cut) {
            self.fail(shortage.to_string());
        }
    }
}

/// One system over every number of clients.
#[derive(Debug, Clone)]
pub struct Curve {
    /// The lock manager.
    pub lock_manager: String,
    /// The latch inside it.
    pub latch: String,
    /// Distinguishes this system further: a policy, a number of processors; often empty.
    pub note: String,
    /// By number of clients, ascending.
    pub points: Vec<Point>,
    /// Settings of this system alone, for the records of all its points.
    pub settings: Vec<(&'static str, Value)>,
    /// Further results of this system, for the records of all its points.
    pub facts: Vec<(&'static str, Value)>,
}

impl Curve {
    /// True if its note has these words, of a setting that is not the default.
    pub fn has_note(&self, words: &str) -> bool {
        !words.is_empty() && self.note.split(", ").any(|note| note == words)
    }

    /// The name of this system for a person.
    pub fn label(&self) -> String {
        let label = match self.latch.as_str() {
            "" | "-" => self.lock_manager.clone(),
            latch => format!("{}/{latch}", self.lock_manager),
        };
        match self.note.as_str() {
            "" => label,
            note => format!("{label}, {note}"),
        }
    }

    /// The point with the highest median throughput.
    pub fn peak(&self) -> Option<&Point> {
        self.points
            .iter()
            .max_by(|a, b| a.tps().median().total_cmp(&b.tps().median()))
    }

    /// Throughput at the largest number of clients ÷ the peak; `None` for fewer than two points.
    pub fn no_collapse_ratio(&self) -> Option<f64> {
        let (last, peak) = (self.points.last()?, self.peak()?);
        let peak = peak.tps().median();
        (self.points.len() > 1 && peak > 0.0).then(|| last.tps().median() / peak)
    }

    /// The same ratio within each pass over the points. A pass is shorter than all of them, and so
    /// less affected by a machine whose speed changes.
    pub fn no_collapse_by_pass(&self) -> Spread {
        let passes = self.points.iter().map(|point| point.runs.len()).min();
        let ratio = |pass: usize| {
            let tps = |point: &Point| point.runs[pass].tps();
            let peak = self.points.iter().map(tps).fold(0.0, f64::max);
            let last = self.points.last().filter(|_| self.points.len() > 1);
            last.filter(|_| peak > 0.0).map(|last| tps(last) / peak)
        };
        Spread::new((0..passes.unwrap_or(0)).filter_map(ratio))
    }

    /// The first error in any of its points, and where.
    pub fn failure(&self) -> Option<String> {
        self.points.iter().find_map(|point| {
            let what = point.checks.as_ref().err()?;
            Some(format!("{} at MPL {}: {what}", self.label(), point.mpl))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::outcome::Ended;

    fn point(mpl: u32, committed: &[u64]) -> Point {
        let mut point = Point::new(mpl);
        for &count in committed {
            let mut tally = Tally::new(&["work"]);
            (0..count).for_each(|_| tally.count(Ended::ok(0)));
            point.runs.push(Run {
                tally,
                window: Duration::from_secs(1),
                ..Run::default()
            });
        }
        point
    }

    #[test]
    fn a_wait_that_ended_by_time_voids_the_point_and_no_commits_do_not() {
        let mut idle = point(4, &[0]);
        idle.judge();
        assert_eq!(idle.checks, Ok(()));
        let mut late = point(4, &[10]);
        late.runs[0].tally.count(Ended {
            timeouts: 2,
            ..Ended::ok(0)
        });
        late.judge();
        let what = late.checks.unwrap_err();
        assert!(what.starts_with("2 lock waits timed out"), "{what}");
    }

    #[test]
    fn the_ratio_compares_the_largest_mpl_with_the_peak() {
        let points = vec![
            point(1, &[60, 50, 40]),
            point(2, &[100, 90, 110]),
            point(4, &[25]),
        ];
        let curve = Curve {
            lock_manager: "global".into(),
            latch: "-".into(),
            note: String::new(),
            points,
            settings: Vec::new(),
            facts: Vec::new(),
        };
        assert_eq!(curve.peak().unwrap().mpl, 2);
        assert_eq!(curve.no_collapse_ratio(), Some(0.25));
        let by_pass = curve.no_collapse_by_pass();
        assert_eq!(
            (by_pass.min(), by_pass.max()),
            (0.25, 0.25),
            "one pass is complete"
        );
        assert_eq!(curve.label(), "global");
    }

    #[test]
    fn an_error_voids_a_point_and_a_collapse_does_not() {
        let mut collapsed = point(1, &[0]);
        collapsed.judge();
        assert!(collapsed.checks.is_ok());
        let mut failed = point(1, &[5]);
        failed.runs[0].tally.count(Ended {
            outcome: Outcome::Error,
            failure: Some("disk full".into()),
            ..Ended::ok(0)
        });
        failed.judge();
        assert!(failed.checks.unwrap_err().contains("disk full"));
    }
}
