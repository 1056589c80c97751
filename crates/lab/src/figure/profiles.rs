//! Where the time goes in TATP: figure 18 of document 000, figures 5 and 6 of document 002.

use super::{
    beside,
    request::Request,
    split::{LATCHES, TOO_FEW_SAMPLES, document, mutexes, sampled, share, times},
    tatp::{MOST, mixes},
    workload_figure::{ByForm, WorkloadFigure, by_form, sweep},
};
use crate::{
    bench::{critical_sections::design::Design, error::BenchError, workload},
    measure::profile::Part,
    progress::Audience,
    report::{
        findings::Findings,
        shape::{Claim, Shape},
        sheet::Sheet,
    },
    workload::tatp::{Mix, Shape as Register, Tatp},
};

/// Each point is measured once without sampling and once with it.
const WINDOWS: ByForm<u64> = [700, 1_000, 10_000];

/// Idle, kernel and the parts of the engine, reading and with updates.
pub(super) fn figure_18(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen();
    let clients: [&[u32]; 3] = [&[2, MOST], &[1, 2, MOST], &[1, 2, 32, MOST]];
    let mut runs = sweep(request, chosen.systems.clone(), clients, WINDOWS);
    sampled(request, &mut runs);
    let panels = mixes(request)
        .iter()
        .map(|mix| workload::run(mix, &runs, audience))
        .collect::<Result<Vec<Findings>, BenchError>>()?;
    let figure = WorkloadFigure {
        id: "000-fig18",
        title: "Where the time goes in TATP",
        source: format!("{}, Figure 18 and section 5.3.4", beside::STAGED),
        expect: "As in figure 13, but transactions are shorter, so a larger part of the time is spent on \
                 beginning and ending them. Index pages have no latches here, so nothing takes the place \
                 of the document's idle time.",
        shape: mutexes(&panels),
        notes: chosen.notes(),
        beside: vec![document(&DOCUMENT_18)],
        panels,
    };
    Ok(figure.sheet(request, &runs))
}

const DOCUMENT_18: [[&str; 3]; 3] = [
    [
        "Our System, staged",
        "no noticeable mutex time; idle at 32 cores because of latches on index pages",
        "staged",
    ],
    [
        "MySQL, one mutex",
        "mutexes, as in figure 13: they explain the collapse",
        "global",
    ],
    [
        "Shore-MT, MCS latches",
        "spinning to join the list of transactions, not for locks",
        "bucket+inherit: no such list",
    ],
];

/// One design of document 002 over a growing number of clients.
struct Loaded {
    id: &'static str,
    title: &'static str,
    place: &'static str,
    expect: &'static str,
    design: &'static str,
    mix: Mix,
    says: [[&'static str; 3]; 2],
}

/// The log manager, where locks do not limit throughput.
pub(super) fn figure_5(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let figure = Loaded {
        id: "002-fig5",
        title: "The log manager as load rises: an update transaction of TATP",
        place: "Figure 5 and section 4.1",
        expect: "Useful work in the log is a larger part than in the document: one transaction is one \
                 record, and there are no pages to spend time on. On few cores threads contend for the \
                 log's latch only when its holder is descheduled.",
        design: "inheritance",
        mix: Mix::UPDATE_LOCATION,
        says: [
            [
                "useful work in the log",
                "remains a small part of the time",
                "log",
            ],
            [
                "contention in the log",
                "over 35 % of the time on a saturated machine",
                "latches and latch waits, those of row locks among them",
            ],
        ],
    };
    loaded(figure, request, audience, |panel| {
        Shape(vec![
            useful(panel, Part::Log, "the log"),
            contention(
                panel,
                0.35,
                "contention in the log takes over 35 % of a saturated machine",
            ),
        ])
    })
}

/// The lock manager of the baseline.
pub(super) fn figure_6(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let figure = Loaded {
        id: "002-fig6",
        title: "The lock manager as load rises: TATP",
        place: "Figure 6 and section 4.2",
        expect: "All transactions request the same intention locks on four tables. On few cores threads \
                 contend for their latches only when a holder is descheduled.",
        design: "baseline",
        mix: Mix::Full,
        says: [
            [
                "useful work in the lock manager",
                "a small part of the whole",
                "lock manager",
            ],
            [
                "contention in the lock manager",
                "nearly 75 % of the time on a saturated machine",
                "latches and latch waits, the log's among them",
            ],
        ],
    };
    loaded(figure, request, audience, |panel| {
        Shape(vec![
            useful(panel, Part::Lock, "the lock manager"),
            contention(
                panel,
                0.70,
                "contention for locks takes nearly 75 % of a saturated machine",
            ),
        ])
    })
}

fn loaded(
    figure: Loaded,
    request: &Request,
    audience: Audience,
    claims: impl Fn(&Findings) -> Shape,
) -> Result<Sheet, BenchError> {
    let design = Design::find(figure.design).map_err(BenchError::Settings)?;
    let clients: [&[u32]; 3] = [&[1, 2, 8], &[1, 2, 4, 16], &[1, 2, 4, 8, 16, 32, 64]];
    let mut runs = sweep(request, vec![design.system], clients, WINDOWS);
    sampled(request, &mut runs);
    let subscribers = by_form(request, [10_000, 20_000, 100_000]);
    let tatp = Tatp::new(Register {
        subscribers: request.rows.unwrap_or(subscribers),
        mix: figure.mix,
        ..Register::usual()
    });
    let panel = workload::run(&tatp, &runs, audience)?;
    let sheet = WorkloadFigure {
        id: figure.id,
        title: figure.title,
        source: format!("{}, {}", beside::SCALING, figure.place),
        expect: figure.expect,
        shape: claims(&panel),
        notes: vec![format!("The design {}: {}.", design.name, design.is)],
        beside: vec![document(&figure.says)],
        panels: vec![panel],
    };
    Ok(sheet.sheet(request, &runs))
}

/// The claim that at the most clients this part, without latches, has a small share of the time.
fn useful(panel: &Findings, part: Part, what: &str) -> Claim {
    const SMALL: f64 = 0.25;
    let says = format!("the useful work of {what} is a small part of the time");
    match times(panel).next() {
        None => Claim::not_measured(says, TOO_FEW_SAMPLES),
        Some((_, times)) => {
            let share = share(times, &[part]);
            let found = format!("{:.0} % of the time is in {what}", share * 100.0);
            Claim::new(says, found, super::judge::below(SMALL), share < SMALL)
        }
    }
}

/// The claim that at the most clients latches have this share of the time; few cores need not show
/// it.
fn contention(panel: &Findings, least: f64, says: &str) -> Claim {
    match times(panel).next() {
        None => Claim::not_measured(says, TOO_FEW_SAMPLES),
        Some((_, times)) => {
            let share = share(times, &LATCHES);
            let found = format!("{:.0} % of the time is at latches", share * 100.0);
            let expected = super::judge::at_least(least);
            let claim = Claim::new(says, found, expected, share >= least);
            super::judge::where_cores_count(claim, panel.machine.cores)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        measure::{curve::Point, profile::Profile, run::Run, time::Times, usage::Usage},
        report::synthetic,
    };

    /// One point at which the log and the latches have these percentages of the samples; the
    /// program has all processors.
    fn panel(cores: usize, log: u64, latches: u64) -> Findings {
        let mut panel =
            synthetic::panel("tatp", cores, &[("bucket", "", &[(1, 10.0), (64, 10.0)])]);
        let rest = 100 - log - latches;
        let profile = Profile::made(
            [
                (Part::Log, log),
                (Part::Latch, latches / 2),
                (Part::Waiting, latches - latches / 2),
                (Part::Client, rest),
            ],
            [],
        );
        let second = Duration::from_secs(1);
        let run = Run {
            window: second,
            usage: Some(Usage {
                user: second * cores as u32,
                everybody: second * cores as u32,
                ..Usage::default()
            }),
            ..Run::default()
        };
        let last: &mut Point = panel.curves[0].points.last_mut().unwrap();
        last.times = Some(Ok(Times::of(&run, profile, cores)));
        panel
    }

    #[test]
    fn useful_work_and_contention_are_judged_at_the_most_clients() {
        let useful = |log| useful(&panel(64, log, 10), Part::Log, "the log").holds;
        assert_eq!([useful(10), useful(40)], [Some(true), Some(false)]);
        let contention = |cores, latches| contention(&panel(cores, 10, latches), 0.35, "").holds;
        assert_eq!(
            [contention(64, 50), contention(64, 20), contention(2, 20)],
            [Some(true), Some(false), None]
        );
        let mut unsampled = panel(64, 10, 10);
        unsampled.curves[0].points[1].times = None;
        assert_eq!(super::useful(&unsampled, Part::Log, "the log").holds, None);
        assert_eq!(super::contention(&unsampled, 0.35, "").holds, None);
    }
}
