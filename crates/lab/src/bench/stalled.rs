//! txbench over time, while one transaction reads a row and then never ends.
//!
//! There are two questions. *What happens over time?* One long window is sampled in slices; the
//! transaction stalls after a tenth of it. *What does the stalled transaction cost?* Short windows
//! with and without one take turns, so that changes in the machine's speed do not distort the
//! result. Each window with a stalled transaction is divided by the one without right after it; the
//! median of the pairs and both extremes are shown.

use std::time::Duration;

use foxton::{Database, Transaction};
use serde_json::json;

use super::{loaded::Loaded, runs::Runs, sweep::Subject};
use crate::{
    driver::{self, Plan},
    measure::{
        curve::{Curve, Point},
        memory::{self, Guard},
        spread::Spread,
        timeline::{Sample, Sampler, Timeline},
    },
    progress::{Audience, Progress},
    report::{
        findings::Block,
        number::{bytes, grouped},
        table::Table,
    },
    workload::txbench::TABLES,
};

/// Samples in the window.
const SLICES: u32 = 20;
/// Part of the window after which the transaction stalls.
pub(crate) const STALL_AT: f64 = 0.1;
/// Number of pairs of short windows, and how much shorter they are.
const PAIRS: u32 = 5;
const SHORTER: u32 = 25;

/// Results of the measurement.
#[derive(Debug)]
pub(crate) struct Found {
    /// A curve for each system, of the long windows.
    pub(crate) curves: Vec<Curve>,
    /// Their samples.
    pub(crate) timelines: Vec<Timeline>,
    /// The cost of the stalled transaction for each.
    pub(crate) effect: Block,
}

/// Measures each system in turn: the long window, then the pairs.
pub(crate) fn run(runs: &Runs, subjects: &mut [Loaded], cores: usize, audience: Audience) -> Found {
    let plan = Plan {
        slice: Some(runs.window / SLICES),
        ..runs.plan()
    };
    let short = Plan {
        window: runs.window / SHORTER,
        slice: None,
        ..plan.clone()
    };
    let each = plan.ramp + plan.window + (short.ramp + short.window) * 2 * PAIRS;
    let whole = each * (runs.mpls.len() * subjects.len()) as u32;
    let progress = audience.clock(
        &format!("measuring, about {} s", whole.as_secs() + 1),
        whole,
    );
    let mut watch = Watch {
        progress,
        past: Duration::ZERO,
        cores,
    };
    let (mut curves, mut timelines) = (Vec::new(), Vec::new());
    let mut table = Table::new([
        "locks",
        "clients",
        "tps before the stall",
        "tps after it",
        "with a stalled one ÷ without",
        "memory at the stall",
        "at the end",
        "growth",
    ]);
    for subject in subjects {
        let (lock_manager, latch) = subject.names();
        let mut curve = Curve {
            lock_manager,
            latch,
            note: subject.note(),
            points: Vec::new(),
            settings: Vec::new(),
            facts: Vec::new(),
        };
        for &mpl in &runs.mpls {
            watch.progress.now(&format!(
                "{}, MPL {mpl}, one transaction stalled",
                curve.label()
            ));
            let (mut point, timeline) = long(subject, mpl, &plan, &mut watch);
            let ratio = match point.checks {
                Ok(()) => by_turns(subject, &mut point, &short, &mut watch),
                // Clients that hang cannot be measured again.
                Err(_) => Spread::default(),
            };
            let effect = Effect::of(&timeline.samples, runs.window, ratio);
            table.row(effect.cells(&curve.label(), mpl));
            curve.facts = effect.facts();
            let label = format!("{}, {mpl} clients", curve.label());
            timelines.push(Timeline { label, ..timeline });
            curve.points.push(point);
        }
        curves.push(curve);
    }
    let effect = Block {
        title: "Cost of one stalled transaction".to_owned(),
        note: format!(
            "The transaction stalls after a tenth of the window; growth is that of the process's memory from \
             the stall to the end. The ratio is the median, with both extremes, of {PAIRS} pairs of short \
             windows, with a stalled transaction and without."
        ),
        table,
    };
    Found {
        curves,
        timelines,
        effect,
    }
}

/// Progress over all runs.
struct Watch {
    progress: Progress,
    past: Duration,
    cores: usize,
}

impl Watch {
    fn over(&mut self, plan: &Plan) {
        self.past += plan.ramp + plan.window;
    }
}

fn long(subject: &mut Loaded, mpl: u32, plan: &Plan, watch: &mut Watch) -> (Point, Timeline) {
    let clients = subject.clients(mpl);
    let slice = plan.slice.unwrap_or(plan.window);
    let mut sampler = Sampler::new(slice, plan.ramp, plan.window);
    let mut sleeper: Option<foxton::Result<Transaction>> = None;
    let stall_at = plan.ramp + plan.window.mul_f64(STALL_AT);
    let db = subject.database().clone();
    let mut guard = Guard::new(memory::available_bytes);
    let result = driver::run(plan, subject.kinds(), clients, |elapsed| {
        sampler.tick(elapsed);
        watch.progress.at(watch.past + elapsed);
        if elapsed >= stall_at && sleeper.is_none() {
            sleeper = Some(stall(&db));
        }
        guard.look(elapsed)
    });
    watch.over(plan);
    let mut point = Point::new(mpl);
    let mut timeline = Timeline {
        label: String::new(),
        samples: Vec::new(),
    };
    match result {
        Ok(run) => {
            timeline.samples = sampler.finish(&run.slices, watch.cores);
            point.runs.push(run);
        }
        Err(error) => point.fail(format!("{error}\n{}", subject.diagnose())),
    }
    match sleeper {
        Some(Ok(tx)) => drop(tx),
        Some(Err(error)) => point.fail(format!("the stalled transaction was refused: {error}")),
        // It was planned to begin later than that.
        None if point.runs.iter().any(|run| run.cut.is_some()) => {}
        None => point.fail("the stalled transaction never began".to_owned()),
    }
    if point.checks.is_ok() {
        subject.check().unwrap_or_else(|what| point.fail(what));
        point.judge();
    }
    (point, timeline)
}

/// Throughput with a stalled transaction ÷ without, in pairs of short windows.
fn by_turns(subject: &mut Loaded, point: &mut Point, plan: &Plan, watch: &mut Watch) -> Spread {
    let mut ratios = Vec::new();
    for _ in 0..PAIRS {
        let with = once(subject, point, plan, watch, true);
        let without = once(subject, point, plan, watch, false);
        match with.zip(without) {
            Some((with, without)) if without > 0.0 => ratios.push(with / without),
            Some(_) => {}
            None => break,
        }
    }
    Spread::new(ratios)
}

fn once(
    subject: &mut Loaded,
    point: &mut Point,
    plan: &Plan,
    watch: &mut Watch,
    stalled: bool,
) -> Option<f64> {
    let sleeper = stalled.then(|| stall(subject.database())).transpose();
    let clients = subject.clients(point.mpl);
    let words = if stalled { "with" } else { "without" };
    watch
        .progress
        .now(&format!("MPL {}, {words} a stalled transaction", point.mpl));
    let mut guard = Guard::new(memory::available_bytes);
    let result = driver::run(plan, subject.kinds(), clients, |elapsed| {
        watch.progress.at(watch.past + elapsed);
        guard.look(elapsed)
    });
    watch.over(plan);
    if let Err(error) = sleeper {
        point.fail(format!("the stalled transaction was refused: {error}"));
    }
    match result {
        Ok(run) => {
            if let Some(shortage) = run.cut {
                point.fail(shortage.to_string());
                return None;
            }
            Some(run.tps())
        }
        Err(error) => {
            point.fail(format!("{error}\n{}", subject.diagnose()));
            None
        }
    }
}

fn stall(db: &Database) -> foxton::Result<Transaction> {
    let mut tx = db.begin()?;
    tx.set_label("stalled");
    tx.get_with(&TABLES[0], &1, |_| ())?;
    Ok(tx)
}

/// Effect of the stalled transaction.
#[derive(Debug)]
struct Effect {
    before: f64,
    after: f64,
    ratio: Spread,
    memory_then: u64,
    memory_last: u64,
}

impl Effect {
    fn of(samples: &[Sample], window: Duration, ratio: Spread) -> Effect {
        let at = window.mul_f64(STALL_AT);
        // The sample that ends where the stall begins is before the stall.
        let (before, after): (Vec<&Sample>, Vec<&Sample>) =
            samples.iter().partition(|sample| sample.at <= at);
        let mean = |samples: &[&Sample]| {
            samples.iter().map(|sample| sample.tps).sum::<f64>() / samples.len().max(1) as f64
        };
        let memory = |sample: Option<&&Sample>| sample.map_or(0, |sample| sample.resident_bytes);
        Effect {
            before: mean(&before),
            after: mean(&after),
            ratio,
            memory_then: memory(before.last()),
            memory_last: memory(after.last()),
        }
    }

    fn growth(&self) -> f64 {
        self.memory_last as f64 / (self.memory_then as f64).max(1.0) - 1.0
    }

    fn cells(&self, label: &str, mpl: u32) -> [String; 8] {
        let ratio = &self.ratio;
        [
            label.to_owned(),
            mpl.to_string(),
            grouped(self.before),
            grouped(self.after),
            ratio.words(|ratio| format!("{ratio:.3}")),
            bytes(self.memory_then),
            bytes(self.memory_last),
            format!("{:.2} %", self.growth() * 100.0),
        ]
    }

    fn facts(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![
            ("stalled_ratio", json!(self.ratio.median())),
            ("stalled_ratio_min", json!(self.ratio.min())),
            ("stalled_ratio_max", json!(self.ratio.max())),
            ("memory_when_stalled_bytes", json!(self.memory_then)),
            ("memory_at_end_bytes", json!(self.memory_last)),
            ("memory_growth", json!(self.growth())),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_counts_from_the_moment_of_the_stall() {
        let sample = |at: u64, tps: f64, resident_bytes: u64| Sample {
            at: Duration::from_secs(at),
            tps,
            resident_bytes,
            ..Sample::default()
        };
        let samples = [
            sample(5, 90.0, 10),
            sample(10, 110.0, 100),
            sample(15, 60.0, 150),
            sample(20, 40.0, 300),
        ];
        let effect = Effect::of(&samples, Duration::from_secs(100), Spread::default());
        assert_eq!((effect.before, effect.after), (100.0, 50.0));
        assert!((effect.growth() - 2.0).abs() < 1e-9, "{effect:?}");
    }
}
