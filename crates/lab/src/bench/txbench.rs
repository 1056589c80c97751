//! txbench over a sweep of clients, or over time with a stalled transaction.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    error::BenchError,
    loaded::{Load, Loaded},
    runs::Runs,
    stalled,
    sweep::Sweep,
};
use crate::{
    measure::{curve::Curve, machine::Machine},
    progress::Audience,
    report::{findings::Findings, number::grouped},
    system::System,
    workload::txbench::{Shape, TABLES, row::ROW_BYTES},
};

/// Settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The workload's variant.
    pub shape: Shape,
    /// Add a transaction that never ends, and sample over time.
    pub stalled: bool,
    /// Keep stamps and check them.
    pub stamp: bool,
    /// The systems to compare, and the runs.
    pub runs: Runs,
    /// Load one wrong value, so that the checks must fail.
    pub plant: bool,
}

impl Settings {
    /// A sweep over clients without a wrong value, stamps or a stalled transaction.
    pub(crate) fn plain(shape: Shape, runs: Runs) -> Settings {
        Settings {
            shape,
            stalled: false,
            stamp: false,
            runs,
            plant: false,
        }
    }
}

/// Loads a database for each system and measures.
///
/// # Errors
///
/// If the settings contradict each other, or the databases cannot be created. A failed check is
/// part of the findings, not an error.
pub fn run(settings: &Settings, audience: Audience) -> Result<Findings, BenchError> {
    check(settings)?;
    let machine = Machine::here();
    let (mut subjects, runs) = loaded(settings, audience)?;
    if settings.stalled {
        let found = stalled::run(&runs, &mut subjects, machine.cores, audience);
        return Ok(Findings {
            timelines: found.timelines,
            event: Some((
                settings.runs.window.as_secs_f64() * stalled::STALL_AT,
                "one transaction stalls".to_owned(),
            )),
            blocks: vec![found.effect],
            ..findings(settings, machine, found.curves)
        });
    }
    let curves = sweep(&runs).run(&mut subjects, audience);
    Ok(findings(settings, machine, curves))
}

/// Loads a database for each system once, and sweeps over the clients with each of the variants,
/// which must have the same rows. With stamps, each check covers the writes of all variants so far.
///
/// # Errors
///
/// If the databases cannot be made.
pub fn variants(
    shapes: &[Shape],
    stamp: bool,
    runs: &Runs,
    audience: Audience,
) -> Result<Vec<Findings>, BenchError> {
    let Some(first) = shapes.first() else {
        return Ok(Vec::new());
    };
    let first = Settings {
        stamp,
        ..Settings::plain(first.clone(), runs.clone())
    };
    let (mut subjects, runs) = loaded(&first, audience)?;
    let machine = Machine::here();
    let sweep = sweep(&runs);
    let whole = sweep.duration(&subjects) * shapes.len() as u32;
    let words = format!("measuring, about {} s", whole.as_secs() + 1);
    let (progress, mut past) = (audience.clock(&words, whole), Duration::ZERO);
    let each = |shape: &Shape| {
        subjects.iter_mut().for_each(|one| one.reshape(shape));
        let curves = sweep.run_in(&mut subjects, &progress, &mut past);
        let settings = Settings {
            stamp,
            ..Settings::plain(shape.clone(), runs.clone())
        };
        findings(&settings, machine.clone(), curves)
    };
    Ok(shapes.iter().map(each).collect())
}

/// A database for each system, loaded for read-only use by the variant, and the points in order.
pub(crate) fn load_all(
    shape: &Shape,
    runs: &Runs,
    audience: Audience,
) -> Result<(Vec<Loaded>, Runs), BenchError> {
    loaded(&Settings::plain(shape.clone(), runs.clone()), audience)
}

fn loaded(settings: &Settings, audience: Audience) -> Result<(Vec<Loaded>, Runs), BenchError> {
    let shape = &settings.shape;
    let rows = u64::from(shape.rows) * TABLES.len() as u64;
    let runs = settings.runs.tidied(rows, ROW_BYTES as u64)?;
    let load = Load {
        shape,
        durability: runs.durability,
        stamp: settings.stamp,
        plant: settings.plant,
        directory: runs.directory.as_deref(),
        runs: Some(&runs),
    };
    let systems = runs.systems.iter();
    let loaded = systems.map(|system| Loaded::new(system.clone(), &load, audience));
    let loaded = loaded.collect::<Result<_, _>>()?;
    Ok((loaded, runs))
}

fn sweep(runs: &Runs) -> Sweep {
    Sweep {
        mpls: runs.mpls.clone(),
        reps: runs.reps,
        plan: runs.plan(),
        split: runs.split,
    }
}

/// Checks that the settings agree with each other.
fn check(settings: &Settings) -> Result<(), BenchError> {
    let refuse = |what: &str| Err(BenchError::Settings(what.to_owned()));
    if settings.stalled && settings.shape.updates > 0 {
        return refuse(
            "--stalled needs read-only transactions, because an update of the row that the stalled \
             transaction read would wait forever; leave --updates out",
        );
    }
    if settings.stalled && !settings.runs.systems.iter().all(System::is_locking) {
        return refuse(
            "--stalled needs locking, because without it only one transaction can be open; remove \
             `none` from --locks",
        );
    }
    Ok(())
}

pub(crate) fn findings(settings: &Settings, machine: Machine, curves: Vec<Curve>) -> Findings {
    let shape = &settings.shape;
    let stalled = if settings.stalled { "-stalled" } else { "" };
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
        timelines: Vec::new(),
        event: None,
        blocks_have_points: false,
        blocks: Vec::new(),
    }
}

fn description(shape: &Shape) -> String {
    let mut text = format!(
        "Three tables of {} rows of 1,784 bytes. A transaction picks a table, reads {} \
         consecutive rows, sums a column and commits; transactions are {}.",
        grouped(f64::from(shape.rows)),
        shape.size,
        shape.isolation
    );
    if shape.updates > 0 {
        text += &format!(
            " In {} of 100 it also changes one string in {} rows of the next table before it commits; \
             after a deadlock it is retried with the same inputs.",
            shape.updates,
            shape.written()
        );
    }
    text
}

fn checked(stamp: bool) -> String {
    let mut text =
        "every sum read is compared with the one known from the load, and after each run the \
                    rows, the keys and the values of all tables are too."
            .to_owned();
    if stamp {
        text += " Every string names its writer: no write was lost, none was dirty.";
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
        ("isolation", json!(shape.isolation.to_string())),
        ("seed", json!(shape.seed)),
    ];
    listed.extend(settings.runs.listed());
    listed
}
