//! Inserting into the log: Figure 15 of document 002.

use std::time::Duration;

use foxton::{LatchKind, LogBufferKind};
use serde_json::json;

use super::{
    beside::{self, Says, says},
    judge,
    request::Request,
};
use crate::{
    bench::{
        error::BenchError,
        lengths::Length,
        log_insert::{self, SMALL, Settings},
        pace::Pace,
    },
    measure::{curve::Curve, machine::Machine},
    progress::Audience,
    report::{
        findings::Findings,
        number::grouped,
        shape::{Claim, Shape},
        sheet::Sheet,
    },
};

const FIGURE_15: [Says; 4] = [
    says(
        "(B)aseline",
        "peaks at about 140 MB/s, then falls slowly",
        "baseline",
    ),
    says(
        "(C)onsolidated",
        "shape: below baseline at first, then linear in the threads",
        "consolidated",
    ),
    says(
        "(D)ecoupled",
        "shape: above baseline from the start, falls when contended",
        "decoupled",
    ),
    says(
        "(CD) hybrid",
        "shape: the best throughout; apart from the others above 300 MB/s",
        "hybrid",
    ),
];

/// MB/s over threads for every buffer, records of 120 bytes.
pub(super) fn figure_15(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let full = request.full;
    let settings = Settings {
        buffers: LogBufferKind::DELEGATED.to_vec(),
        latches: vec![LatchKind::default()],
        lengths: vec![Length::Same(SMALL)],
        pace: Pace {
            threads: match (request.mpls.as_slice(), full) {
                ([], true) => vec![1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
                ([], false) => vec![1, 2, 8, 64, 512],
                (some, _) => some.to_vec(),
            },
            reps: request.reps.unwrap_or(if full { 7 } else { 3 }),
            ramp: request.ramp.unwrap_or(Duration::from_millis(200)),
            window: request.each([300, 700, 2_000]),
            command: request.command.clone(),
        },
    };
    let panel = log_insert::run(&settings, audience)?;
    let table = beside::curves(
        "The document beside ours",
        "The document's machine has 64 hardware contexts. MB/s of payload, median of the repetitions.",
        &FIGURE_15,
        &panel,
        rates,
    );
    Ok(Sheet {
        id: "002-fig15",
        title: "Inserting into the log: four buffers".to_owned(),
        source: format!("{}, Figure 15 and section 8.5", beside::SCALING),
        expect: "In the document consolidation gains because crowds of threads insert together. On a few \
                 cores there is no crowd at the buffer: all but a few threads are not running. Buffers \
                 differ by what a thread holds when it is descheduled, so baseline should fall as \
                 threads are added and hybrid should not."
            .to_owned(),
        shape: claims(&panel),
        notes: vec![
            "The flusher takes the records out and writes them nowhere, so that the buffer is measured \
             and no disk. All records have the document's average size; the document draws sizes from \
             its system's distribution, which it does not give. `foxton bench log-insert --bytes \
             mixed` has short and long records with that average."
                .to_owned(),
        ],
        beside: vec![table],
        pictures: Vec::new(),
        settings: vec![
            ("form", json!(request.form())),
            ("bytes", json!(SMALL)),
            ("seconds", json!(settings.pace.window.as_secs_f64())),
            ("reps", json!(settings.pace.reps)),
        ],
        panels: vec![panel],
        machine: Machine::here(),
        command: request.command.clone(),
    })
}

/// At the most threads, baseline has fallen and hybrid is the best.
fn claims(panel: &Findings) -> Shape {
    let last = |curve: &Curve| {
        let point = curve.points.last()?;
        Some((log_insert::megabytes(curve, point).median(), point.mpl))
    };
    let best = panel
        .curves
        .iter()
        .filter_map(last)
        .map(|(rate, _)| rate)
        .fold(0.0, f64::max);
    let baseline = judge::falls(panel, "baseline", "baseline falls as threads are added");
    let mut claims: Vec<Claim> = baseline.into_iter().collect();
    if let Some((rate, threads)) = judge::curve_of(panel, "hybrid").and_then(last) {
        let share = rate / best.max(1e-9) * 100.0;
        claims.push(Claim::new(
            "the hybrid is the best throughout",
            format!("with {threads} threads hybrid does {share:.0} % of the best buffer's MB/s"),
            judge::at_least(0.95),
            share >= 95.0,
        ));
    }
    Shape(claims)
}

/// MB/s at every number of threads.
fn rates(curve: &Curve) -> String {
    let point = |point: &crate::measure::curve::Point| {
        let megabytes = log_insert::megabytes(curve, point);
        format!("{} at {}", grouped(megabytes.median()), point.mpl)
    };
    let points: Vec<String> = curve.points.iter().map(point).collect();
    format!("{} MB/s", points.join(", "))
}
