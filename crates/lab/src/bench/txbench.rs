//! txbench over a sweep of clients, or over time with a stalled transaction.

use std::time::Duration;

use foxton::Transaction;
use serde_json::{Value, json};

use super::{
    error::BenchError,
    loaded::{Load, Loaded},
    runs::Runs,
    sweep::{Subject, Sweep},
};
use crate::{
    driver::{self, Plan},
    measure::{
        curve::{Curve, Point},
        machine::Machine,
        timeline::{Sampler, Timeline},
    },
    progress::Audience,
    report::{findings::Findings, number::grouped},
    system::System,
    workload::txbench::{Shape, TABLES, row::ROW_BYTES},
};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The workload's variant.
    pub shape: Shape,
    /// Let one transaction never end, and sample over time.
    pub stalled: bool,
    /// Keep stamps and check them.
    pub stamp: bool,
    /// What is compared, and how it is run.
    pub runs: Runs,
    /// Load one wrong value, so that the checks must fail.
    pub plant: bool,
}

const SLICES: u32 = 20;
/// At which part of the window the stalled transaction begins.
const STALL_AT: f64 = 0.1;

/// Loads a database for each system and measures.
///
/// # Errors
///
/// If the settings contradict each other, or the databases cannot be made. A failed check is not
/// an error here: it is in the findings.
pub fn run(settings: &Settings, audience: Audience) -> Result<Findings, BenchError> {
    check(settings)?;
    let shape = &settings.shape;
    let rows = u64::from(shape.rows) * TABLES.len() as u64;
    let runs = settings.runs.tidied(rows, ROW_BYTES as u64)?;
    let machine = Machine::here();
    let load = Load {
        shape,
        durability: runs.durability,
        stamp: settings.stamp,
        plant: settings.plant,
        directory: runs.directory.as_deref(),
    };
    let systems = runs.systems.iter().cloned();
    let mut subjects: Vec<Loaded> = systems
        .map(|system| Loaded::new(system, &load, audience))
        .collect::<Result<_, _>>()?;
    let (curves, timelines) = if settings.stalled {
        stalled(&runs, &mut subjects, machine.cores, audience)
    } else {
        let sweep = Sweep {
            mpls: runs.mpls.clone(),
            reps: runs.reps,
            plan: runs.plan(),
        };
        (sweep.run(&mut subjects, audience), Vec::new())
    };
    Ok(findings(settings, machine, curves, timelines))
}

/// What of the settings contradicts the rest.
fn check(settings: &Settings) -> Result<(), BenchError> {
    let refuse = |what: &str| Err(BenchError::Settings(what.to_owned()));
    if settings.stalled && settings.shape.updates > 0 {
        return refuse(
            "--stalled goes with read-only transactions: an update of the row that the stalled \
             transaction read would wait for ever. Leave --updates out",
        );
    }
    if settings.stalled && !settings.runs.systems.iter().all(System::is_locking) {
        return refuse(
            "--stalled needs locking: without it only one transaction may be open. Leave none out \
             of --locks",
        );
    }
    Ok(())
}

/// Each system in turn for the whole window, while one more transaction reads one row and then
/// never ends.
fn stalled(
    runs: &Runs,
    subjects: &mut [Loaded],
    cores: usize,
    audience: Audience,
) -> (Vec<Curve>, Vec<Timeline>) {
    let slice = runs.window / SLICES;
    let plan = Plan {
        slice: Some(slice),
        ..runs.plan()
    };
    let each = (plan.ramp + plan.window) * runs.mpls.len() as u32;
    let progress = audience.clock("measuring", each * subjects.len() as u32);
    let mut past = Duration::ZERO;
    let (mut curves, mut timelines) = (Vec::new(), Vec::new());
    for subject in subjects {
        let (lock_manager, latch) = subject.names();
        let mut curve = Curve {
            lock_manager,
            latch,
            note: subject.note(),
            points: Vec::new(),
            facts: Vec::new(),
        };
        for &mpl in &runs.mpls {
            progress.now(&format!(
                "{}, MPL {mpl}, one transaction stalled",
                curve.label()
            ));
            let watch = |elapsed: Duration| progress.at(past + elapsed);
            let (point, timeline) = stalled_point(subject, mpl, &plan, slice, cores, watch);
            past += plan.ramp + plan.window;
            let label = format!("{}, {mpl} clients", curve.label());
            timelines.push(Timeline { label, ..timeline });
            curve.points.push(point);
        }
        curves.push(curve);
    }
    (curves, timelines)
}

fn stalled_point(
    subject: &mut Loaded,
    mpl: u32,
    plan: &Plan,
    slice: Duration,
    cores: usize,
    watch: impl Fn(Duration),
) -> (Point, Timeline) {
    let clients = subject.clients(mpl);
    let mut sampler = Sampler::new(slice, plan.ramp);
    let mut sleeper: Option<foxton::Result<Transaction>> = None;
    let stall_at = plan.ramp + plan.window.mul_f64(STALL_AT);
    let db = subject.database().clone();
    let result = driver::run(plan, subject.kinds(), clients, |elapsed| {
        sampler.tick(elapsed);
        watch(elapsed);
        if elapsed >= stall_at && sleeper.is_none() {
            sleeper = Some(stall(&db));
        }
    });
    let mut point = Point::new(mpl);
    let mut timeline = Timeline {
        label: String::new(),
        samples: Vec::new(),
    };
    match result {
        Ok(run) => {
            timeline.samples = sampler.finish(&run.slices, cores);
            point.runs.push(run);
        }
        Err(error) => point.fail(format!("{error}\n{}", subject.diagnose())),
    }
    match sleeper {
        Some(Ok(tx)) => drop(tx),
        Some(Err(error)) => point.fail(format!("the stalled transaction was refused: {error}")),
        None => point.fail("the stalled transaction never began".to_owned()),
    }
    if point.checks.is_ok() {
        subject.check().unwrap_or_else(|what| point.fail(what));
        point.judge();
    }
    (point, timeline)
}

fn stall(db: &foxton::Database) -> foxton::Result<Transaction> {
    let mut tx = db.begin()?;
    tx.set_label("stalled");
    tx.get_with(&TABLES[0], &1, |_| ())?;
    Ok(tx)
}

fn findings(
    settings: &Settings,
    machine: Machine,
    curves: Vec<Curve>,
    timelines: Vec<Timeline>,
) -> Findings {
    let shape = &settings.shape;
    let stalled = if settings.stalled { "-stalled" } else { "" };
    let event = settings.stalled.then(|| {
        let at = settings.runs.window.as_secs_f64() * STALL_AT;
        (at, "one transaction stalls".to_owned())
    });
    Findings {
        workload: "txbench".to_owned(),
        variant: format!("{}{stalled}", shape.name()),
        title: match settings.stalled {
            true => format!(
                "txbench, {}, while one transaction never ends",
                shape.title()
            ),
            false => format!("txbench, {}", shape.title()),
        },
        description: description(shape),
        checked: checked(settings.stamp),
        command: settings.runs.command.clone(),
        settings: listed(settings),
        machine,
        curves,
        timelines,
        event,
        blocks: Vec::new(),
    }
}

fn description(shape: &Shape) -> String {
    let mut text = format!(
        "Three tables of {} rows of 1,784 bytes, in memory. A transaction picks a table, reads {} \
         consecutive rows under serializable locks, adds up one column and commits.",
        grouped(f64::from(shape.rows)),
        shape.size
    );
    if shape.updates > 0 {
        text += &format!(
            " In {} of 100 it also changes one string in {} rows of the next table before it \
             commits; after a deadlock it runs again with the same inputs.",
            shape.updates,
            shape.written()
        );
    }
    text
}

fn checked(stamp: bool) -> String {
    let mut text = "every sum read is compared with the one known from the load, while running; \
                    after each run the rows, the keys and the sums of all tables."
        .to_owned();
    if stamp {
        text += " Every string carries who wrote it: no write was lost, none was dirty.";
    }
    text
}

fn listed(settings: &Settings) -> Vec<(&'static str, Value)> {
    let shape = &settings.shape;
    let mut listed = vec![
        ("rows", json!(shape.rows)),
        ("size", json!(shape.size)),
        ("updates_percent", json!(shape.updates)),
        ("hotspot", json!(shape.hotspot)),
        ("stalled", json!(settings.stalled)),
        ("unordered", json!(shape.unordered)),
        ("stamp", json!(settings.stamp)),
        ("isolation", json!("serializable")),
        ("seed", json!(shape.seed)),
    ];
    listed.extend(settings.runs.listed());
    listed
}
