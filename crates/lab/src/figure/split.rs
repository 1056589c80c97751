//! Where the time goes: figure 13 of document 000.
//!
//! Idle time and the kernel's share come from the system's own account of the process. What is left
//! is divided by samples that `perf` takes from outside. Each point runs twice, with the sampling and
//! without, so that its cost stands beside what it shows. Where `perf` was not ready before the window was
//! over, the sampled run is made again, longer.

use std::time::Duration;

use super::{beside, judge, request::Request};
use crate::{
    bench::{error::BenchError, loaded::Loaded, sweep::Subject, txbench},
    driver::{self, Plan},
    measure::{
        curve::{Curve, Point},
        machine::Machine,
        profile::{FREQUENCY, NOTHING_SEEN, Part, Profile, Profiler},
        run::Run,
        usage::Split,
    },
    progress::Audience,
    report::{
        findings::{Block, Findings},
        number::grouped,
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
};

/// Fewer than the machine has processors, as many, and far more.
const QUICK_MPLS: [u32; 3] = [1, 2, 200];
const FULL_MPLS: [u32; 4] = [1, 2, 200, 500];

/// Idle, kernel, database, lock manager, latches.
pub(super) fn figure_13(request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
    let chosen = request.chosen();
    let mut runs = request.sweep(chosen.systems.clone(), 4);
    if request.mpls.is_empty() {
        runs.mpls = match request.full {
            true => FULL_MPLS.to_vec(),
            false => QUICK_MPLS.to_vec(),
        };
    }
    if !request.full && request.window.is_none() {
        // perf needs a moment to begin, and a few hundred samples to say something.
        runs.window = runs.window.max(Duration::from_millis(700));
    }
    runs.reps = 1;
    let shapes = [request.shape(10, 0), request.shape(100, 0)];
    let (mut subjects, runs) = txbench::load_all(&shapes[0], &runs, audience)?;
    let machine = Machine::here();
    let plan = runs.plan();
    let points = (subjects.len() * runs.mpls.len() * shapes.len()) as u32;
    let whole = (plan.ramp + plan.window) * points * 2;
    let progress = audience.clock(
        &format!("measuring, about {} s", whole.as_secs() + 1),
        whole,
    );
    let mut past = Duration::ZERO;
    let (mut panels, mut trouble) = (Vec::new(), None);
    for shape in shapes {
        subjects.iter_mut().for_each(|one| one.reshape(&shape));
        let mut curves: Vec<Curve> = subjects.iter().map(empty).collect();
        let mut table = Table::new([
            "locks",
            "clients",
            "idle",
            "kernel",
            "others",
            "database",
            "lock manager",
            "latches",
            "client",
            "samples",
            "tps",
            "tps sampled",
        ]);
        for &mpl in &runs.mpls {
            for (subject, curve) in subjects.iter_mut().zip(&mut curves) {
                progress.now(&format!("{}, MPL {mpl}", curve.label()));
                let mut point = Point::new(mpl);
                let mut run = |subject: &mut Loaded,
                               point: &mut Point,
                               plan: &Plan,
                               tick: &mut dyn FnMut()| {
                    once(subject, point, plan, |elapsed| {
                        progress.at(past + elapsed);
                        tick();
                    });
                    past += plan.ramp + plan.window;
                };
                let wanted = request.program.is_some();
                let profile = sampled(subject, &mut point, &plan, wanted, &mut run);
                if let Err(what) = &profile {
                    trouble.get_or_insert_with(|| what.clone());
                }
                table.row(cells(curve, &point, profile.ok(), machine.cores));
                curve.points.push(point);
            }
        }
        let settings = txbench::Settings::plain(shape, runs.clone());
        panels.push(Findings {
            blocks: vec![Block {
                title: "Where the time goes".to_owned(),
                note: "Shares of all processors' time in the window. Samples are those in the \
                       program, outside the kernel."
                    .to_owned(),
                table,
            }],
            ..txbench::findings(&settings, machine.clone(), curves)
        });
    }
    let mut notes = chosen.notes();
    notes.push(format!(
        "Method: idle, kernel and others (programs that are not this one) from /proc; the rest \
         divided by {FREQUENCY} samples a second and processor that perf takes of the clients' \
         threads, each told by its source line through what is inlined. What libc does counts for \
         the database. Its cost is the difference of the last two columns."
    ));
    if let Some(what) = trouble {
        notes.push(format!(
            "The program's own time could not always be divided: {what}."
        ));
    }
    Ok(Sheet {
        id: "000-fig13",
        title: "Where the time goes: idle, kernel, database, lock manager, latches".to_owned(),
        source: format!("{}, Figure 13 and section 5.2.2", beside::STAGED),
        expect: "global spends time on its latch, and idle or in the kernel to sleep and wake, as \
                 soon as there are as many clients as processors; staged and direct none. On two \
                 cores the shares are far from the document's half."
            .to_owned(),
        shape: claims(&panels),
        notes,
        beside: vec![document()],
        pictures: Vec::new(),
        settings: request.listed(&runs),
        machine,
        command: request.command.clone(),
        panels,
    })
}

/// Processor time in latches at the most clients, where `perf` told.
fn claims(panels: &[Findings]) -> Shape {
    let mut claims = Vec::new();
    for panel in panels {
        let rows = || panel.blocks.iter().flat_map(|block| block.table.rows());
        let latches = |manager: &str| {
            let mut own = rows().filter(|row| row[0].split(['/', ',']).next() == Some(manager));
            own.next_back()?
                .get(LATCHES)?
                .strip_suffix(" %")?
                .parse::<f64>()
                .ok()
        };
        let found = |share: f64, who| {
            format!(
                "{share:.0} % of the time in {who}'s latches ({})",
                panel.title
            )
        };
        for (who, says) in [("staged", STAGED_SAYS), ("global", GLOBAL_SAYS)] {
            let claim = match (latches(who), who) {
                (None, _) => Claim::unseen(says, "nothing told where the time goes: it needs perf"),
                (Some(share), "staged") => Claim::new(says, found(share, who), share < 5.0),
                (Some(share), _) => {
                    let claim = Claim::new(says, found(share, who), share > 50.0);
                    judge::where_cores_count(claim, panel.machine.cores)
                }
            };
            claims.push(claim);
        }
    }
    Shape(claims)
}

/// The column of the table that has them.
const LATCHES: usize = 7;
const STAGED_SAYS: &str = "with the staged manager there is virtually no mutex time";
const GLOBAL_SAYS: &str = "with one mutex more than half of the time is spent spinning";

fn empty(subject: &Loaded) -> Curve {
    let (lock_manager, latch) = subject.names();
    Curve {
        lock_manager,
        latch,
        note: subject.note(),
        points: Vec::new(),
        facts: Vec::new(),
    }
}

/// How much longer the sampling is tried: where the machine is busy, perf is not ready in time.
const LONGER: [u32; 3] = [1, 4, 16];

/// Runs the point without the sampling, then with it. The point has both runs, in this order.
fn sampled(
    subject: &mut Loaded,
    point: &mut Point,
    plan: &Plan,
    wanted: bool,
    run: &mut impl FnMut(&mut Loaded, &mut Point, &Plan, &mut dyn FnMut()),
) -> Result<Profile, String> {
    run(subject, point, plan, &mut || ());
    let mut profile = Err("it was not asked for".to_owned());
    for times in LONGER {
        let longer = Plan {
            ramp: plan.ramp * times,
            window: plan.window * times,
            ..plan.clone()
        };
        // What was not sampled is not kept.
        point.runs.truncate(1);
        let mut profiler = None;
        // The clients run by the time of the first tick; perf sees only threads that do.
        run(subject, point, &longer, &mut || {
            if wanted && profiler.is_none() {
                profiler = Some(Profiler::start());
            }
        });
        let Some(started) = profiler else { break };
        profile = started.and_then(Profiler::stop);
        let too_early = profile.as_ref().is_err_and(|what| what == NOTHING_SEEN);
        if !too_early || point.checks.is_err() {
            break;
        }
    }
    if let Err(what) = subject.check() {
        point.fail(what);
    }
    point.judge();
    profile
}

fn once(subject: &mut Loaded, point: &mut Point, plan: &Plan, watch: impl FnMut(Duration)) {
    let clients = subject.clients(point.mpl);
    match driver::run(plan, subject.kinds(), clients, watch) {
        Ok(run) => point.runs.push(run),
        Err(error) => point.fail(format!("{error}\n{}", subject.diagnose())),
    }
}

fn cells(curve: &Curve, point: &Point, profile: Option<Profile>, cores: usize) -> Vec<String> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let last = point.runs.last();
    let split = last.and_then(|run: &Run| Some(Split::of(run.usage?, run.window, cores)));
    let split = split.unwrap_or_default();
    let of = |part: Part| match &profile {
        Some(profile) => percent(split.user * profile.share(part)),
        None => "-".to_owned(),
    };
    let tps = |run: Option<&Run>| grouped(run.map_or(0.0, Run::tps));
    vec![
        curve.label(),
        point.mpl.to_string(),
        percent(split.idle),
        percent(split.kernel),
        percent(split.others),
        of(Part::Database),
        of(Part::LockManager),
        of(Part::Latch),
        of(Part::Client),
        profile.map_or("-".to_owned(), |profile| profile.samples().to_string()),
        tps(point.runs.first()),
        tps(last),
    ]
}

fn document() -> Block {
    let mut table = Table::new(["in the document", "it shows", "here"]);
    for row in [
        ["Our System, staged", "virtually no mutex time", "staged"],
        [
            "MySQL, one mutex",
            "more than 50 % of the time spinning on mutexes; idle time as well at 32 cores",
            "global",
        ],
        [
            "Shore-MT, MCS latches",
            "up to 98 % of the time in the spinning of the MCS latch",
            "bucket/queue",
        ],
        ["DBMS X", "much idle time in overload", "-"],
    ] {
        table.row(row.map(str::to_owned));
    }
    Block {
        title: "What the document shows".to_owned(),
        note: "From the text of section 5.2.2; its bars have no numbers. Its mutex is the latches \
               here, its database our database, lock manager and client together."
            .to_owned(),
        table,
    }
}
