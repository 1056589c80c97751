//! The points of a sweep, as the command line names them.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use foxton::{Admission, Durability, LatchKind, LogBufferKind, VictimPolicy};
use foxton_lab::{
    bench::runs::Runs,
    system::{Locks, System},
};

use super::results::command_line;
use crate::{output::results_place, seconds::seconds};

/// What is compared, at which points, for how long, and where everything goes.
#[derive(Debug, Args)]
pub(crate) struct Sweep {
    /// Lock managers to compare, separated by commas: global, bucket, sharded, direct and the
    /// others (a wrong name lists all), default, or none (no locking, one client); with `+inherit`
    /// behind, hot locks on tables go from one transaction to the next. Without this: every manager
    /// in its usual form; with --stalled the engine's default.
    #[arg(long, value_delimiter = ',')]
    pub(crate) locks: Vec<Locks>,
    /// Latches to compare under each lock manager: tas, tas-t, queue, parking; and those that
    /// transactions of the processor elide where it has any, elided:hle, elided:rtm,
    /// elided:retry100, elided:cooldown, elided:adaptive. Without this, the engine's default.
    #[arg(long, value_delimiter = ',')]
    pub(crate) latch: Vec<LatchKind>,
    /// Who of a deadlock gives way, separated by commas to compare: least-work, youngest,
    /// requester. Without this, least-work.
    #[arg(long, value_delimiter = ',')]
    pub(crate) victim: Vec<VictimPolicy>,
    /// Log buffers to compare, separated by commas: baseline, consolidated, decoupled, hybrid.
    /// Without this, the engine's default.
    #[arg(long, value_delimiter = ',')]
    pub(crate) log_buffer: Vec<LogBufferKind>,
    /// How many transactions are at work at once, separated by commas to compare: all, adaptive, or
    /// a number. Without this, all for the managers that are named, and what the engine does for
    /// default.
    #[arg(long, value_delimiter = ',')]
    pub(crate) admission: Vec<Admission>,
    /// Numbers of clients, separated by commas [default: 1,2,4,8,16,32,64,128,256,512].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) mpl: Vec<u32>,
    /// Seconds measured for each point and repetition [default: so that all points together take
    /// about two and a half minutes, but at most 1.9].
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Seconds clients run before each measurement.
    #[arg(long, default_value_t = 0.3, value_parser = seconds)]
    pub(crate) ramp: f64,
    /// Times each point is measured [default: 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: Option<u32>,
    /// What a commit waits for: none, buffered (written), or sync (on the device); several,
    /// separated by commas, are compared.
    #[arg(long, value_delimiter = ',', default_value = "buffered")]
    pub(crate) durability: Vec<Durability>,
    /// Seed of everything drawn.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where the databases measured lie while they are; by default the system's directory for
    /// temporary files. They are removed afterwards.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Let `foxton top` and `foxton locks` look in while it runs, by a socket in this directory.
    /// Transactions are labelled then, which costs them a little.
    #[arg(long, value_name = "DIR")]
    pub(crate) observe: Option<PathBuf>,
    /// Run each point once more, sampled, and show where the time went: idle, kernel, lock manager,
    /// log, tables, latches and the rest. Needs no tool of the system; what it costs is shown.
    #[arg(long)]
    pub(crate) split: bool,
    /// Go on with what earlier points have left, even where a workload's data grow. Without this,
    /// such data are loaded anew for each measurement.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Where the results go [default: results/WORKLOAD-VARIANT-TIME].
    #[arg(long, value_parser = results_place)]
    pub(crate) out: Option<PathBuf>,
}

impl Sweep {
    /// Everything that is compared.
    pub(crate) fn systems(&self, stalled: bool) -> Vec<System> {
        let systems = System::with_victims(compared(self, stalled), &self.victim);
        let systems = System::with_log_buffers(systems, &self.log_buffer);
        let systems = System::with_admissions(systems, &self.admission);
        System::with_durabilities(systems, &self.durability)
    }

    /// The most clients of any point, where none stalls.
    pub(crate) fn most_clients(&self) -> u32 {
        let asked = self.mpl.iter().copied().max();
        asked.unwrap_or(1 << (USUAL_POINTS - 1))
    }

    /// The runs these are. Defaults are those of a transaction that stalls, if one does.
    pub(crate) fn runs(self, stalled: bool) -> Runs {
        let systems = self.systems(stalled);
        let mpls = match (self.mpl.as_slice(), stalled) {
            ([], true) => vec![200],
            ([], false) => (0..USUAL_POINTS).map(|step| 1 << step).collect(),
            (some, _) => some.to_vec(),
        };
        let reps = self.reps.unwrap_or(3);
        let ramp = Duration::from_secs_f64(self.ramp);
        let window = match (self.seconds, stalled) {
            (Some(seconds), _) => Duration::from_secs_f64(seconds),
            (None, true) => STALLED_WINDOW,
            (None, false) => window((systems.len() * mpls.len()) as u32 * reps, ramp),
        };
        let runs = Runs {
            systems,
            mpls,
            reps,
            ramp,
            window,
            durability: self.durability.first().copied().unwrap_or_default(),
            directory: self.dir,
            observe: self.observe,
            split: self.split,
            keep: self.keep,
            command: command_line(),
        };
        let watched: Vec<PathBuf> = runs
            .systems
            .iter()
            .filter_map(|system| runs.watched(system))
            .collect();
        if !watched.is_empty() {
            eprintln!("From another terminal, while this runs:");
        }
        for directory in watched {
            eprintln!("  foxton top {}", directory.display());
        }
        runs
    }
}

/// One client, two, four and so on.
const USUAL_POINTS: u32 = 10;
const STALLED_WINDOW: Duration = Duration::from_secs(100);
/// All windows of a sweep together, ramps included.
const BUDGET: Duration = Duration::from_secs(150);
const LEAST_WINDOW: Duration = Duration::from_millis(300);
const MOST_WINDOW: Duration = Duration::from_millis(1_900);

/// What is compared: what was asked for, or all there is.
fn compared(sweep: &Sweep, stalled: bool) -> Vec<System> {
    match (sweep.locks.as_slice(), stalled) {
        ([], true) => System::all(&[Locks::Default], &sweep.latch),
        ([], false) => System::all(&Locks::usual(), &sweep.latch),
        (some, _) => System::all(some, &sweep.latch),
    }
}

/// The time of each measurement, if there are so many.
fn window(points: u32, ramp: Duration) -> Duration {
    let share = (BUDGET / points.max(1)).saturating_sub(ramp);
    share.clamp(LEAST_WINDOW, MOST_WINDOW)
}
