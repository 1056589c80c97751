//! Made-up findings: two curves over ten points, one of which collapses.

use std::time::Duration;

use serde_json::json;

use super::findings::Findings;
use crate::{
    measure::{
        curve::{Curve, Point},
        latency::Latency,
        machine::Machine,
        outcome::{Ended, Tally},
        run::Run,
    },
    random::Random,
};

fn run(mpl: u32, tps: f64) -> Run {
    let mut tally = Tally::new(&["read"]);
    (0..tps as u64).for_each(|_| tally.count(Ended::ok(0)));
    let mut latency = Latency::default();
    for share in [0.2, 0.5, 1.0, 1.4, 2.9] {
        latency.record(Duration::from_secs_f64(f64::from(mpl) / tps * share));
    }
    Run {
        tally,
        latencies: vec![latency],
        window: Duration::from_secs(1),
        ..Run::default()
    }
}

fn curve(lock_manager: &str, latch: &str, fall: f64) -> Curve {
    let mut random = Random::seeded(&[fall.to_bits()]);
    let point = |step: u32| {
        let mpl = 1 << step;
        let rise = if step == 0 { 0.52 } else { 1.0 };
        let tps = 61_000.0 * rise / (1.0 + fall * f64::from(mpl.max(2) - 2) / 128.0);
        let mut point = Point::new(mpl);
        for _ in 0..3 {
            point
                .runs
                .push(run(mpl, tps * random.uniform(92, 106) as f64 / 100.0));
        }
        point
    };
    let points = (0..10).map(point).collect();
    Curve {
        lock_manager: lock_manager.into(),
        latch: latch.into(),
        note: String::new(),
        points,
        settings: Vec::new(),
        facts: Vec::new(),
    }
}

pub(crate) fn findings() -> Findings {
    Findings {
        workload: "txbench".into(),
        variant: "read-only-s10".into(),
        title: "txbench, read-only, 10 rows a read".into(),
        description: "Invented numbers.".into(),
        checked: "Nothing: the numbers are invented.".into(),
        command: "foxton bench txbench".into(),
        settings: vec![("seconds", json!(1.0)), ("reps", json!(3))],
        machine: Machine::here(),
        curves: vec![
            curve("global", "parking", 1.2),
            curve("bucket", "tas-t", 0.005),
        ],
        timelines: Vec::new(),
        event: None,
        blocks_have_points: false,
        blocks: Vec::new(),
    }
}

/// A manager, its note, and its throughput by clients.
pub(crate) type Made<'a> = (&'a str, &'a str, &'a [(u32, f64)]);

/// One repetition of each point of these curves, on `cores` cores.
pub(crate) fn panel(workload: &str, cores: usize, curves: &[Made<'_>]) -> Findings {
    let curve = |&(lock_manager, note, points): &Made<'_>| Curve {
        lock_manager: lock_manager.to_owned(),
        latch: "-".to_owned(),
        note: note.to_owned(),
        points: points
            .iter()
            .map(|&(mpl, tps)| {
                let mut point = Point::new(mpl);
                point.runs.push(run(mpl, tps));
                point
            })
            .collect(),
        settings: Vec::new(),
        facts: Vec::new(),
    };
    let mut panel = Findings {
        workload: workload.to_owned(),
        curves: curves.iter().map(curve).collect(),
        ..findings()
    };
    panel.machine.cores = cores;
    panel
}

#[test]
fn everything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let directory = std::env::var("FOXTON_SHOW").map_or(directory.path().to_owned(), Into::into);
    let written = super::write(&findings(), &directory).unwrap();
    let names: Vec<_> = written
        .iter()
        .map(|path| path.file_name().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "report.html",
            "throughput.svg",
            "latency.svg",
            "percentiles.svg",
            "results.json",
            "results.csv"
        ]
    );
    let text = super::terminal::text(&findings());
    println!("{text}");
    assert!(text.contains("global/parking") && text.contains("No-collapse"));
}
