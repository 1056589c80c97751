//! Throughput beyond the processors at hand: measured on few, projected to many.
//!
//! There are as many clients as processors, each with one of its own, and all read. The processors
//! are the first n of the machine. Two models project to more of them; both are drawn dashed and
//! called projections:
//!
//! * the universal scalability law, fitted to each system (`project/scalability.rs`);
//! * for `global`, where one latch guards every lock, the processor-overlap model of document 003
//!   (`project/overlap.rs`). The time under the latch is taken to be the additional time of a
//!   transaction over one without locks. It is measured with one client, on any machine, and is a
//!   little too long because it includes the calls.

use std::{cell::RefCell, rc::Rc, time::Duration};

use serde_json::{Value, json};

use super::{
    beside,
    cores::OnCores,
    judge,
    request::{Chosen, Request},
};
use crate::{
    bench::{error::BenchError, loaded::Loaded, runs::Runs, sweep::Sweep, txbench},
    measure::{
        curve::{Curve, Point},
        machine::Machine,
    },
    progress::Audience,
    project::{
        overlap::{Overlap, Spread, Times, overlap},
        scalability::{Fit, Law, Sample, Unfit, fit},
    },
    report::{
        chart::{Chart, Dot, Line, Scale, Stroke},
        figures::{Figure, Picture},
        findings::Block,
        number::{duration_us, grouped, short},
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
    system::System,
};

/// The numbers of processors that throughput is projected to.
const TO: [u32; 7] = [4, 8, 16, 32, 64, 128, 256];
/// The most that "a few" processors are. In figure 1 of document 000 one mutex over the lock table
/// does more with 8 cores than with 16. In Table 3 of document 003 the one latch over a hot table,
/// which gets a sixth of the references, keeps 4 to 8 processors busy where tables are scanned.
/// That is a sixth of the 23 to 52 processors of all tables.
const FEW: f64 = 8.0;

/// Measured on few processors, projected to many.
pub(super) fn figure(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen_of(&["global", "bucket", "default"], false);
    let machine = Machine::here();
    let counts = counts(machine.cores as u32);
    let (curves, runs) = measured(request, &chosen, &counts, audience)?;
    let shape = request.shape(10, 0);
    let settings = txbench::Settings::plain(shape, runs.clone());
    let (mut locking, without): (Vec<Curve>, Vec<Curve>) = curves
        .into_iter()
        .partition(|curve| curve.lock_manager != NO_LOCKS);
    let laws: Vec<Projected> = locking.iter().map(Projected::of).collect();
    let held = without
        .first()
        .and_then(|without| one_latch(&locking, without));
    for (curve, law) in locking.iter_mut().zip(&laws) {
        curve.facts.push(("projection", law.fact()));
    }
    let mut notes = chosen.notes();
    notes.extend(laws.iter().filter_map(Projected::trouble));
    let mut beside = vec![law_table(&laws), projected_table(&laws, held.as_ref())];
    beside.extend(held.as_ref().map(held_table));
    let pictures = vec![Figure {
        name: "projection".to_owned(),
        chart: Picture::Lines(picture(&laws, held.as_ref(), &machine)),
    }];
    let mut panel = txbench::findings(&settings, machine.clone(), locking);
    panel.title = format!("Measured: {}, a client for each processor", panel.title);
    Ok(Sheet {
        id: "projection",
        title: "Projection: throughput on 4 to 256 processors".to_owned(),
        source: format!(
            "Gunther's universal scalability law, and {}, section 2.2",
            beside::MEMORY
        ),
        expect: "One latch over everything keeps only a few processors busy, however many there are. Where \
                 nothing is shared for writing, throughput grows with the processors until something \
                 limits it that few processors cannot show. These are projections, not measurements; \
                 docs/benchmarks.md lists what the law does not model."
            .to_owned(),
        shape: claims(&laws, held.as_ref(), machine.cores),
        notes,
        beside,
        pictures,
        settings: request.listed(&runs),
        machine,
        command: request.command.clone(),
        panels: vec![panel],
    })
}

const NO_LOCKS: &str = "none";

/// Every number of processors up to four, then doublings, then all.
fn counts(cores: u32) -> Vec<u32> {
    let doublings =
        std::iter::successors(Some(8), |&last| Some(last * 2)).take_while(|&n| n < cores);
    let mut all: Vec<u32> = (1..=cores.min(4)).chain(doublings).chain([cores]).collect();
    all.dedup();
    all
}

/// Measures every system on every number of processors; the one without locks on one processor.
fn measured(
    request: &Request,
    chosen: &Chosen,
    counts: &[u32],
    audience: Audience,
) -> Result<(Vec<Curve>, Runs), BenchError> {
    let mut systems = chosen.systems.clone();
    systems.retain(System::is_locking);
    systems.push(System::without_locking());
    let mut runs = request.sweep(systems, 1);
    runs.mpls = counts.to_vec();
    let (loaded, runs) = txbench::load_all(&request.shape(10, 0), &runs, audience)?;
    let loaded: Vec<Rc<RefCell<Loaded>>> = loaded
        .into_iter()
        .map(|one| Rc::new(RefCell::new(one)))
        .collect();
    let each = runs.ramp + runs.window;
    let points = (loaded.len() - 1) * counts.len() + 1;
    let whole = each * points as u32 * runs.reps;
    let progress = audience.clock(
        &format!("measuring, about {} s", whole.as_secs() + 1),
        whole,
    );
    let (mut past, mut curves) = (Duration::ZERO, Vec::<Curve>::new());
    for _ in 0..runs.reps {
        for &processors in counts {
            let locking = if processors == 1 {
                loaded.len()
            } else {
                loaded.len() - 1
            };
            let here = &loaded[..locking];
            let mut subjects: Vec<OnCores> = here
                .iter()
                .map(|one| OnCores::new(one.clone(), processors as usize))
                .collect();
            let sweep = Sweep {
                mpls: vec![processors],
                reps: 1,
                plan: runs.plan(),
                split: false,
            };
            merge(
                &mut curves,
                sweep.run_in(&mut subjects, &progress, &mut past),
            );
        }
    }
    Ok((curves, runs))
}

/// Adds the points of one pass to those of the passes before.
fn merge(all: &mut Vec<Curve>, pass: Vec<Curve>) {
    for mut curve in pass {
        curve.note.clear();
        let known = all.iter_mut().find(|known| known.label() == curve.label());
        let Some(known) = known else {
            all.push(curve);
            continue;
        };
        for mut point in curve.points {
            match known.points.iter_mut().find(|known| known.mpl == point.mpl) {
                None => known.points.push(point),
                Some(known) => {
                    known.runs.append(&mut point.runs);
                    if let Err(what) = point.checks {
                        known.fail(what);
                    }
                }
            }
        }
    }
}

/// A system with its law.
struct Projected {
    label: String,
    manager: String,
    measured: Vec<Dot>,
    law: Result<Fit, Unfit>,
    /// The law of each pass alone.
    passes: Vec<Law>,
}

impl Projected {
    fn of(curve: &Curve) -> Projected {
        let sample = |point: &Point, throughput: f64| Sample {
            processors: point.mpl,
            throughput,
        };
        let all = curve
            .points
            .iter()
            .flat_map(|point| point.runs.iter().map(|run| sample(point, run.tps())));
        let passes = curve
            .points
            .iter()
            .map(|point| point.runs.len())
            .min()
            .unwrap_or(0);
        let pass = |at: usize| {
            let points = curve.points.iter();
            let samples: Vec<Sample> = points
                .map(|point| sample(point, point.runs[at].tps()))
                .collect();
            Some(fit(&samples).ok()?.law)
        };
        let dot = |point: &Point| Dot::of(f64::from(point.mpl), &point.tps());
        Projected {
            label: curve.label(),
            manager: curve.lock_manager.clone(),
            measured: curve.points.iter().map(dot).collect(),
            law: fit(&all.collect::<Vec<_>>()),
            passes: (0..passes).filter_map(pass).collect(),
        }
    }

    /// Returns the projected throughput, with the extremes of the laws of single passes.
    fn at(&self, processors: u32) -> Option<Dot> {
        let x = f64::from(processors);
        let y = self.law.ok()?.law.throughput(x);
        let each = || self.passes.iter().map(|law| law.throughput(x));
        Some(Dot {
            x,
            y,
            low: each().fold(y, f64::min),
            high: each().fold(y, f64::max),
        })
    }

    fn trouble(&self) -> Option<String> {
        let unfit = self.law.err()?;
        Some(format!("{} is not projected: {unfit}.", self.label))
    }

    fn fact(&self) -> Value {
        let Ok(fit) = &self.law else {
            return Value::Null;
        };
        let projected = TO.iter().filter_map(|&n| self.at(n));
        let projected: Vec<Value> = projected
            .map(|dot| json!({"processors": dot.x, "tps": dot.y, "tps_min": dot.low, "tps_max": dot.high}))
            .collect();
        json!({
            "law": "universal scalability law",
            "rate": fit.law.rate,
            "contention": fit.law.contention,
            "coherence": fit.coherence_known.then_some(fit.law.coherence),
            "deviation": fit.deviation,
            "projected": projected,
        })
    }
}

/// One latch over everything: how long it is held, and the throughput that this allows.
struct OneLatch {
    label: String,
    times: Times,
    model: Overlap,
}

fn one_latch(locking: &[Curve], without: &Curve) -> Option<OneLatch> {
    let curve = locking
        .iter()
        .find(|curve| curve.lock_manager == "global")?;
    let seconds = |curve: &Curve| {
        let alone = curve.points.iter().find(|point| point.mpl == 1)?;
        let tps = alone.tps().median();
        (tps > 0.0).then(|| 1.0 / tps)
    };
    let (service, unlocked) = (seconds(curve)?, seconds(without)?);
    let hold = service - unlocked;
    // On a disturbed machine the difference may be negative; then the time is not known.
    (hold > 0.0).then(|| {
        let times = Times { service, hold };
        OneLatch {
            label: curve.label(),
            times,
            model: overlap(&[(times, 1.0)], &Spread::ONE_TABLE, Some(0.0)),
        }
    })
}

impl OneLatch {
    fn at(&self, processors: f64) -> f64 {
        (processors / self.times.service).min(self.model.total)
    }
}

fn law_table(laws: &[Projected]) -> Block {
    let mut table = Table::new([
        "locks",
        "λ, tps on one processor",
        "contention σ",
        "by pass",
        "coherence κ",
        "deviation",
        "highest at",
    ]);
    for one in laws {
        let Ok(fit) = &one.law else {
            table.row([one.label.clone(), "not fitted".to_owned()]);
            continue;
        };
        let passes =
            crate::measure::spread::Spread::new(one.passes.iter().map(|law| law.contention));
        table.row([
            one.label.clone(),
            grouped(fit.law.rate),
            format!("{:.4}", fit.law.contention),
            format!("{:.3}..{:.3}", passes.min(), passes.max()),
            match fit.coherence_known {
                true => format!("{:.6}", fit.law.coherence),
                false => "unknown, 0 assumed".to_owned(),
            },
            format!("{:.1} %", fit.deviation * 100.0),
            fit.law
                .peak()
                .map_or("-".to_owned(), |peak| format!("{peak:.0} processors")),
        ]);
    }
    Block {
        title: "The universal scalability law, fitted".to_owned(),
        note: "X(n) = λn ÷ (1 + σ(n − 1) + κn(n − 1)), least squares of relative deviations. Two numbers \
               of processors do not determine κ; the projection is then an upper bound."
            .to_owned(),
        table,
    }
}

fn projected_table(laws: &[Projected], held: Option<&OneLatch>) -> Block {
    let mut table = Table::new(["projection", "4", "8", "16", "32", "64", "128", "256"]);
    for one in laws.iter().filter(|one| one.law.is_ok()) {
        let cells = TO
            .iter()
            .filter_map(|&n| one.at(n))
            .map(|dot| grouped(dot.y));
        table.row(std::iter::once(format!("{}, law", one.label)).chain(cells));
    }
    if let Some(held) = held {
        let cells = TO.iter().map(|&n| grouped(held.at(f64::from(n))));
        table.row(std::iter::once(format!("{}, overlap", held.label)).chain(cells));
    }
    if table.is_empty() {
        table.row(["no law could be fitted".to_owned()]);
    }
    Block {
        title: "Projection: transactions per second by processors".to_owned(),
        note: "Projected, not measured.".to_owned(),
        table,
    }
}

fn held_table(held: &OneLatch) -> Block {
    let mut table = Table::new([
        "locks",
        "a transaction",
        "under the one latch",
        "share",
        "keeps busy",
        "tps at most",
    ]);
    let Times { service, hold } = held.times;
    table.row([
        held.label.clone(),
        duration_us(service * 1e6),
        duration_us(hold * 1e6),
        format!("{:.0} %", hold / service * 100.0),
        format!("{:.1} processors", held.model.processors),
        grouped(held.model.total),
    ]);
    Block {
        title: "The processor-overlap model: one latch over every lock".to_owned(),
        note: "One client with locks and without; the difference is taken to be the time under the latch. \
               A latch is held for at most a second in each second."
            .to_owned(),
        table,
    }
}

fn picture(laws: &[Projected], held: Option<&OneLatch>, machine: &Machine) -> Chart {
    // The projection of a system is drawn like its measurement, but dashed.
    let projected = |label: String, points, stroke, like| Line {
        stroke,
        like: Some(like),
        ..Line::measured(label, points)
    };
    let measured = laws.iter().map(|one| {
        let label = format!("{}, measured", one.label);
        Line::measured(label, one.measured.clone())
    });
    let law = laws.iter().enumerate().map(|(at, one)| {
        let from = one.measured.last().map_or(1, |dot| dot.x as u32);
        let beyond = [from]
            .into_iter()
            .chain(TO.into_iter().filter(|&n| n > from));
        let label = format!("{}, projection: scalability law", one.label);
        let dots = beyond.filter_map(|n| one.at(n)).collect();
        projected(label, dots, Stroke::Dashed, at)
    });
    let model = held.iter().map(|held| {
        let dot = |n: u32| Dot::alone(f64::from(n), held.at(f64::from(n)));
        let label = format!("{}, projection: overlap model", held.label);
        let of = laws.iter().position(|one| one.label == held.label);
        let dots = [1, 2].into_iter().chain(TO).map(dot).collect();
        projected(label, dots, Stroke::Dotted, of.unwrap_or(laws.len()))
    });
    let projections = law.chain(model).filter(|line| !line.points.is_empty());
    let lines: Vec<Line> = measured.chain(projections).collect();
    Chart {
        title: "Projection: throughput on 4 to 256 processors".to_owned(),
        subtitle: machine.sentence(),
        x: ("processors, a client on each".to_owned(), Scale::Log2),
        y: (
            "transactions per second; dashed, dotted: projected".to_owned(),
            Scale::Log10,
        ),
        y_text: short,
        marker: None,
        lines,
    }
}

fn claims(laws: &[Projected], held: Option<&OneLatch>, cores: usize) -> Shape {
    let says = "a latch that every transaction takes keeps only a few processors busy";
    let mut claims = vec![match held {
        Some(held) => Claim::new(
            says,
            format!(
                "by the overlap model the one latch of global keeps {:.1} processors busy",
                held.model.processors
            ),
            format!("at most {FEW:.0}"),
            held.model.processors <= FEW,
        ),
        None => Claim::not_measured(
            says,
            "the time under the latch, because transactions with locks were not slower",
        ),
    }];
    let contention = |manager: &str| {
        let one = laws.iter().find(|one| one.manager == manager)?;
        Some(one.law.ok()?.law.contention)
    };
    let others = laws
        .iter()
        .filter(|one| one.manager != "global" && one.manager != "bucket");
    for one in others {
        if let (Some(global), Some(own)) = (contention("global"), contention(&one.manager)) {
            let claim = Claim::new(
                "without such a latch there is less contention",
                format!(
                    "σ is {own:.3} with {} and {global:.3} with global",
                    one.label
                ),
                "less than with global",
                own < global,
            );
            claims.push(judge::where_cores_count(claim, cores));
        }
    }
    Shape(claims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{
        outcome::{Ended, Tally},
        run::Run,
    };

    fn curve(manager: &str, tps: &[(u32, u64)]) -> Curve {
        let point = |&(mpl, tps): &(u32, u64)| {
            let mut tally = Tally::new(&["read"]);
            (0..tps).for_each(|_| tally.count(Ended::ok(0)));
            let run = Run {
                tally,
                window: Duration::from_secs(1),
                ..Run::default()
            };
            let mut point = Point::new(mpl);
            point.runs = vec![run.clone(), run];
            point
        };
        Curve {
            lock_manager: manager.to_owned(),
            latch: "-".to_owned(),
            note: String::new(),
            points: tps.iter().map(point).collect(),
            settings: Vec::new(),
            facts: Vec::new(),
        }
    }

    #[test]
    fn every_count_up_to_four_then_doublings_then_all() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(4), [1, 2, 3, 4]);
        assert_eq!(counts(24), [1, 2, 3, 4, 8, 16, 24]);
    }

    #[test]
    fn a_measured_system_is_projected_and_an_unfitted_one_is_named() {
        // Half of the work is serial: two processors do a third more than one.
        let projected = Projected::of(&curve("global", &[(1, 3_000), (2, 4_000)]));
        let dot = projected.at(256).unwrap();
        assert!(
            (dot.y - 5_976.7).abs() < 1.0 && dot.low == dot.high,
            "{dot:?}"
        );
        assert!(projected.trouble().is_none());
        assert_eq!(projected.fact()["coherence"], Value::Null);
        let single = Projected::of(&curve("global", &[(1, 3_000)]));
        assert!(single.at(4).is_none() && single.fact().is_null());
        assert!(single.trouble().unwrap().contains("two different ones"));
    }

    #[test]
    fn the_time_under_the_latch_bounds_the_rate() {
        // A transaction of 500 µs, of which 100 µs are locking.
        let locking = [curve("global", &[(1, 2_000)])];
        let held = one_latch(&locking, &curve("none", &[(1, 2_500)])).unwrap();
        assert!((held.model.total - 10_000.0).abs() < 1e-6);
        assert!((held.model.processors - 5.0).abs() < 1e-9);
        assert_eq!((held.at(2.0), held.at(64.0)), (4_000.0, held.model.total));
        // Faster with locks than without: nothing can be said.
        assert!(one_latch(&locking, &curve("none", &[(1, 1_000)])).is_none());
    }

    #[test]
    fn a_few_processors_are_no_more_than_one_mutex_keeps_busy_in_the_document() {
        let global = curve("global", &[(1, 2_000)]);
        let holds = |without: u64| {
            let held = one_latch(
                std::slice::from_ref(&global),
                &curve("none", &[(1, without)]),
            );
            let Shape(claims) = claims(&[], held.as_ref(), 2);
            assert_eq!(claims.len(), 1, "nothing else was measured");
            claims[0].holds
        };
        // A transaction of 500 µs: under the latch for 100 of them, for 62.6, for 50 and for 2.
        assert_eq!(holds(2_500), Some(true));
        assert_eq!(holds(2_286), Some(true));
        assert_eq!(holds(2_222), Some(false));
        assert_eq!(holds(2_008), Some(false));
        // The time under the latch is not known.
        assert_eq!(holds(1_900), None);
    }
}
