//! A sweep: every number of clients with every system, repeated and interleaved.
//!
//! The order is repetition, then MPL, then system: the systems take turns at each point, and each
//! pass is complete before the next. So a slow minute of the machine affects all systems, and shows
//! as spread.

use std::{ops::ControlFlow, thread, time::Duration};

use serde_json::Value;

use crate::{
    driver::{self, Client, Plan},
    measure::{
        curve::{Curve, Point},
        memory::{self, Guard},
        time::Watch,
        timeline::Sampler,
    },
    progress::{Audience, Progress},
};

/// A loaded system that clients can run against.
pub trait Subject {
    /// The lock manager's name and the latch's, for results.
    fn names(&self) -> (String, String);
    /// Distinguishes it from others with the same names.
    fn note(&self) -> String {
        String::new()
    }
    /// The largest MPL it can take.
    fn largest_mpl(&self) -> u32 {
        u32::MAX
    }
    /// The types of transaction its clients run.
    fn kinds(&self) -> &'static [&'static str];
    /// Prepares the next run. A subject that fails here is not used again.
    fn prepare(&mut self, _progress: &Progress) -> Result<(), String> {
        Ok(())
    }
    /// Creates clients for one run, each with a generator of its own.
    fn clients(&mut self, mpl: u32) -> Vec<Box<dyn Client>>;
    /// Runs the workload's checks on an idle database after a run; the error says what is wrong.
    fn check(&mut self) -> Result<(), String>;
    /// Settings of this system alone, for the records of its points.
    fn settings(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }
    /// Free memory, or `None` if unknown; called while clients run.
    fn free(&self) -> Option<u64> {
        memory::available_bytes()
    }
    /// Describes the state of clients that hang.
    fn diagnose(&self) -> String;
}

/// Points, repetitions and times.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// Numbers of clients, ascending.
    pub mpls: Vec<u32>,
    /// Number of times each point is measured.
    pub reps: u32,
    /// Times of each run.
    pub plan: Plan,
    /// Run each point once more with sampling, and report where the time went.
    pub split: bool,
}

impl Sweep {
    /// Time of the runs for these subjects, without loading and checking.
    pub fn duration<S: Subject>(&self, subjects: &[S]) -> Duration {
        let points = |subject: &S| {
            self.mpls
                .iter()
                .filter(|&&mpl| mpl <= subject.largest_mpl())
                .count() as u32
        };
        let runs: u32 = subjects.iter().map(points).sum::<u32>() * self.passes();
        (self.plan.ramp + self.plan.window) * runs
    }

    /// The repetitions, and one more if it is to be sampled.
    fn passes(&self) -> u32 {
        self.reps + u32::from(self.split)
    }

    /// Runs every point and returns a curve for each subject. The sweep ends early if clients hang,
    /// because their database cannot be trusted or even closed; also if loading fails, or too
    /// little memory is left.
    pub fn run<S: Subject>(&self, subjects: &mut [S], audience: Audience) -> Vec<Curve> {
        let duration = self.duration(subjects);
        let progress = audience.clock(
            &format!("measuring, about {} s", duration.as_secs() + 1),
            duration,
        );
        let mut past = Duration::ZERO;
        self.run_in(subjects, &progress, &mut past)
    }

    /// The same as a part of a longer measurement, of which `past` is done.
    pub fn run_in<S: Subject>(
        &self,
        subjects: &mut [S],
        progress: &Progress,
        past: &mut Duration,
    ) -> Vec<Curve> {
        let mut curves: Vec<Curve> = subjects.iter().map(|subject| self.empty(subject)).collect();
        'passes: for rep in 1..=self.passes() {
            for &mpl in &self.mpls {
                for (subject, curve) in subjects.iter_mut().zip(&mut curves) {
                    let label = curve.label();
                    let at = |point: &&mut Point| point.mpl == mpl;
                    let Some(point) = curve.points.iter_mut().find(at) else {
                        continue;
                    };
                    let sampled = rep > self.reps;
                    let repetition = match sampled {
                        true => "sampled".to_owned(),
                        false => format!("repetition {rep} of {}", self.reps),
                    };
                    progress.now(&format!("{label}, MPL {mpl}, {repetition}"));
                    let measured = self.measure(subject, point, progress, *past, sampled);
                    if measured.is_break() {
                        break 'passes;
                    }
                    *past += self.plan.ramp + self.plan.window;
                }
            }
        }
        curves
            .iter_mut()
            .flat_map(|curve| &mut curve.points)
            .for_each(Point::judge);
        curves
    }

    fn empty<S: Subject>(&self, subject: &S) -> Curve {
        let (lock_manager, latch) = subject.names();
        let mpls = self
            .mpls
            .iter()
            .filter(|&&mpl| mpl <= subject.largest_mpl());
        Curve {
            lock_manager,
            latch,
            note: subject.note(),
            points: mpls.map(|&mpl| Point::new(mpl)).collect(),
            settings: subject.settings(),
            facts: Vec::new(),
        }
    }

    fn measure<S: Subject>(
        &self,
        subject: &mut S,
        point: &mut Point,
        progress: &Progress,
        past: Duration,
        sampled: bool,
    ) -> ControlFlow<()> {
        if let Err(what) = subject.prepare(progress) {
            point.fail(what);
            return ControlFlow::Break(());
        }
        let clients = subject.clients(point.mpl);
        let mut sampling = Watch::default();
        let mut guard = Guard::new(|| subject.free());
        let slice = self.plan.slice.unwrap_or(self.plan.window);
        let mut sampler = Sampler::new(slice, self.plan.ramp, self.plan.window);
        let watch = |elapsed: Duration| {
            progress.at(past + elapsed);
            sampler.tick(elapsed);
            if sampled {
                sampling.at(elapsed, self.plan.ramp, self.plan.window);
            }
            guard.look(elapsed)
        };
        let run = driver::run(&self.plan, subject.kinds(), clients, watch);
        let cut = run.as_ref().ok().and_then(|run| run.cut);
        match run {
            Ok(run) if sampled => point.tell_times(&run, sampling.profile()),
            Ok(run) => {
                let cores = thread::available_parallelism().map_or(1, usize::from);
                point.samples = sampler.finish(&run.slices, cores);
                point.runs.push(run);
            }
            Err(error) => {
                point.fail(
                    format!("{error}\n{}", subject.diagnose())
                        .trim_end()
                        .to_owned(),
                );
                return ControlFlow::Break(());
            }
        }
        if let Err(what) = subject.check() {
            point.fail(what);
        }
        // After a run that was cut short for want of memory, the next would be cut short too.
        match cut {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        sync::mpsc::{Receiver, Sender, channel},
    };

    use super::*;
    use crate::measure::outcome::Ended;

    /// Records every run begun; `broken_at` is the MPL at which its check fails.
    struct Toy {
        name: &'static str,
        broken_at: u32,
        largest: u32,
        mpl: u32,
        runs: Sender<(&'static str, u32)>,
        /// True if no memory is left at every second query.
        fills: bool,
        asked: Cell<u32>,
    }

    struct Idle;
    impl Client for Idle {
        fn transaction(&mut self) -> Ended {
            std::thread::sleep(Duration::from_micros(200));
            Ended::ok(0)
        }
    }

    impl Subject for Toy {
        fn names(&self) -> (String, String) {
            (self.name.into(), "-".into())
        }
        fn largest_mpl(&self) -> u32 {
            self.largest
        }
        fn kinds(&self) -> &'static [&'static str] {
            &["idle"]
        }
        fn clients(&mut self, mpl: u32) -> Vec<Box<dyn Client>> {
            self.mpl = mpl;
            self.runs.send((self.name, mpl)).unwrap();
            (0..mpl)
                .map(|_| Box::new(Idle) as Box<dyn Client>)
                .collect()
        }
        fn check(&mut self) -> Result<(), String> {
            if self.mpl == self.broken_at {
                Err("a row is gone".into())
            } else {
                Ok(())
            }
        }
        fn diagnose(&self) -> String {
            String::new()
        }
        fn free(&self) -> Option<u64> {
            self.asked.set(self.asked.get() + 1);
            let full = self.fills && self.asked.get().is_multiple_of(2);
            Some(if full { 0 } else { u64::MAX })
        }
    }

    fn toys() -> (Vec<Toy>, Receiver<(&'static str, u32)>) {
        let (runs, noted) = channel();
        let toy = |name, broken_at, largest| {
            let runs = runs.clone();
            Toy {
                name,
                broken_at,
                largest,
                mpl: 0,
                runs,
                fills: false,
                asked: Cell::new(0),
            }
        };
        (vec![toy("one", 0, u32::MAX), toy("two", 2, 2)], noted)
    }

    fn sweep() -> Sweep {
        let window = Duration::from_millis(20);
        let plan = Plan {
            ramp: Duration::ZERO,
            window,
            slice: None,
            grace: Duration::from_secs(10),
        };
        Sweep {
            mpls: vec![1, 2, 4],
            reps: 2,
            plan,
            split: false,
        }
    }

    #[test]
    fn systems_take_turns_at_each_point_and_a_pass_is_done_before_the_next() {
        let (mut subjects, noted) = toys();
        let sweep = sweep();
        assert_eq!(sweep.duration(&subjects), Duration::from_millis(200));
        let curves = sweep.run(&mut subjects, Audience::Nobody);
        let pass = [("one", 1), ("two", 1), ("one", 2), ("two", 2), ("one", 4)];
        let noted: Vec<_> = noted.try_iter().collect();
        assert_eq!(noted, [pass, pass].concat());
        assert!(curves[0].points.iter().all(|point| point.runs.len() == 2));
    }

    #[test]
    fn the_last_repetition_of_each_point_is_sampled() {
        let (mut subjects, _noted) = toys();
        let mut sweep = sweep();
        sweep.plan.slice = Some(Duration::from_millis(5));
        let curves = sweep.run(&mut subjects[..1], Audience::Nobody);
        for point in &curves[0].points {
            let samples = &point.samples;
            let ends: Vec<Duration> = samples.iter().map(|sample| sample.at).collect();
            assert_eq!(ends, [5, 10, 15, 20].map(Duration::from_millis));
            let sampled: f64 = samples.iter().map(|sample| sample.tps * 0.005).sum();
            let last = point.runs.last().unwrap().tally.committed() as f64;
            assert!((sampled - last).abs() < 0.5, "{sampled} of {last}");
        }
    }

    /// The windows are an hour, so the test would hang if a run did not end early.
    #[test]
    fn a_run_without_memory_left_is_checked_and_is_the_last() {
        let (mut subjects, noted) = toys();
        subjects.truncate(1);
        subjects[0].fills = true;
        let mut sweep = sweep();
        sweep.plan.window = Duration::from_secs(3_600);
        sweep.plan.grace = Duration::from_secs(60);
        let curves = sweep.run(&mut subjects, Audience::Nobody);
        assert_eq!(noted.try_iter().collect::<Vec<_>>(), [("one", 1)]);
        let point = &curves[0].points[0];
        assert!(point.runs[0].tally.committed() > 0);
        let what = point.checks.clone().unwrap_err();
        assert!(what.contains("want of memory"), "{what}");
        // The error of a check comes first, because it is the engine's.
        let (mut subjects, _noted) = toys();
        subjects[1].fills = true;
        sweep.mpls = vec![2];
        let curves = sweep.run(&mut subjects[1..], Audience::Nobody);
        assert_eq!(
            curves[0].failure().as_deref(),
            Some("two at MPL 2: a row is gone")
        );
    }

    #[test]
    fn a_check_that_fails_marks_its_point_and_no_other() {
        let (mut subjects, _noted) = toys();
        let curves = sweep().run(&mut subjects, Audience::Nobody);
        assert!(curves[0].failure().is_none());
        assert_eq!(
            curves[1].failure().as_deref(),
            Some("two at MPL 2: a row is gone")
        );
        assert!(curves[1].points[0].checks.is_ok());
    }
}
