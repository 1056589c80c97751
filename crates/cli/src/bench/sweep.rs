//! Points of a sweep, as arguments of the command line.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use foxton::{
    Admission, Durability, Isolation, LatchKind, LogBufferKind, SnapshotMethod, TableComponent,
    VictimPolicy,
};
use foxton_lab::{
    bench::runs::Runs,
    system::{Locks, System, tables},
};

use super::results::command_line;
use crate::{
    output::{note, results_place},
    seconds::seconds,
    size::size,
};

/// Systems, points, times and directories of a sweep.
#[derive(Debug, Args)]
pub(crate) struct Sweep {
    /// Lock managers to compare, separated by commas: global, bucket, sharded, direct, its form by
    /// tables direct:table, and the others (a wrong name lists all), default, or none (no locking,
    /// one client). With the suffix `+inherit`, the next transaction inherits hot locks on tables.
    /// Without this: every manager in its default form; with --stalled the engine's default.
    #[arg(long, value_delimiter = ',')]
    pub(crate) locks: Vec<Locks>,
    /// Latches to compare under each lock manager: tas, tas-t, queue, parking; and latches elided
    /// by hardware transactions, if the processor has them: elided:hle, elided:rtm,
    /// elided:retry100, elided:cooldown, elided:adaptive. Without this, the engine's default.
    #[arg(long, value_delimiter = ',')]
    pub(crate) latch: Vec<LatchKind>,
    /// Victim of a deadlock, separated by commas to compare: least-work, youngest, requester.
    /// Without this, least-work.
    #[arg(long, value_delimiter = ',')]
    pub(crate) victim: Vec<VictimPolicy>,
    /// Log buffers to compare, separated by commas: baseline, consolidated, decoupled, hybrid.
    /// Without this, the engine's default.
    #[arg(long, value_delimiter = ',')]
    pub(crate) log_buffer: Vec<LogBufferKind>,
    /// Transactions that run at once, separated by commas to compare: unlimited, adaptive, or a
    /// fixed number. Without this, unlimited for the managers that are named, and the engine's
    /// default for `default`.
    #[arg(long, value_delimiter = ',', value_parser = admission)]
    pub(crate) admission: Vec<Admission>,
    /// Components of the tables, separated by commas to compare: memory, or paged, in pages of a
    /// file. Without this, memory.
    #[arg(long, value_delimiter = ',', value_parser = tables)]
    pub(crate) tables: Vec<TableComponent>,
    /// Memory for the pages of paged tables: bytes, or a number with KiB, MiB or GiB [default:
    /// 64MiB].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) page_memory: Option<usize>,
    /// Numbers of clients, separated by commas [default: 1,2,4,8,16,32,64,128,256,512].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) mpl: Vec<u32>,
    /// Seconds measured for each point and repetition [default: at most 1.9, less if all points
    /// would take more than two and a half minutes].
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Seconds that clients run before each measurement.
    #[arg(long, default_value_t = 0.3, value_parser = seconds)]
    pub(crate) ramp: f64,
    /// Number of times each point is measured [default: 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: Option<u32>,
    /// Durability of commits: none, buffered (written), or sync (on the device); several,
    /// separated by commas, are compared.
    #[arg(long, value_delimiter = ',', default_value = "buffered")]
    pub(crate) durability: Vec<Durability>,
    /// Isolation levels, separated by commas to compare: serializable, snapshot, repeatable-read,
    /// read-committed or read-uncommitted. That of transactions that only read; any other is
    /// serializable, except in txbench and sysbench. Without this, serializable; with sysbench
    /// read-uncommitted.
    #[arg(long, value_delimiter = ',')]
    pub(crate) isolation: Vec<Isolation>,
    /// Methods of snapshots, separated by commas to compare: lsn, or read-views, the baseline that
    /// copies a list of transactions under a mutex. Without this, lsn.
    #[arg(long, value_delimiter = ',')]
    pub(crate) snapshots: Vec<SnapshotMethod>,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Directory for the measured databases; by default the system's directory for temporary
    /// files. They are removed afterwards.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Allow `foxton top` and `foxton locks` while it runs, by a socket in this directory.
    /// Transactions then have labels, which cost a little time.
    #[arg(long, value_name = "DIR")]
    pub(crate) observe: Option<PathBuf>,
    /// Run each point once more with sampling, and show where the time went: idle, kernel, lock
    /// manager, log, tables, latches and the rest. Needs no other tool; its cost is shown.
    #[arg(long)]
    pub(crate) split: bool,
    /// Keep the data of earlier points, even if a workload's data grow. Without this, such data are
    /// loaded again for each measurement.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Directory for the results [default: results/WORKLOAD-VARIANT-TIME].
    #[arg(long, value_parser = results_place)]
    pub(crate) out: Option<PathBuf>,
}

impl Sweep {
    /// The systems to compare.
    pub(crate) fn systems(&self, stalled: bool) -> Vec<System> {
        let systems = System::with_victims(compared(self, stalled), &self.victim);
        let systems = System::with_log_buffers(systems, &self.log_buffer);
        let systems = System::with_admissions(systems, &self.admission);
        let systems = System::with_durabilities(systems, &self.durability);
        let systems = System::with_isolations(systems, &self.isolation);
        let systems = System::with_snapshot_methods(systems, &self.snapshots);
        System::with_tables(systems, &self.tables, self.page_memory)
    }

    /// Takes the level from the systems, if it is the only one, or if there is none but `usual`;
    /// for workloads that are named by it. If there are several they stay those of the systems, and
    /// the result is serializable.
    pub(crate) fn take_isolation(&mut self, usual: Isolation) -> Isolation {
        match self.isolation[..] {
            [] => usual,
            [one] => {
                self.isolation.clear();
                one
            }
            _ => Isolation::Serializable,
        }
    }

    /// The largest number of clients of any point, if none stalls.
    pub(crate) fn most_clients(&self) -> u32 {
        let asked = self.mpl.iter().copied().max();
        asked.unwrap_or(1 << (USUAL_POINTS - 1))
    }

    /// The runs of the sweep. `stalled` selects the defaults for a stalled transaction.
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
            note!("From another terminal, while this runs:");
        }
        for directory in watched {
            note!("  foxton top {}", directory.display());
        }
        runs
    }
}

/// Parses a value of `--admission`.
pub(super) fn admission(text: &str) -> Result<Admission, String> {
    let known = text.parse::<Admission>();
    known.map_err(|_| "give unlimited, adaptive, or a number from 1".to_owned())
}

/// One client, two, four and so on.
const USUAL_POINTS: u32 = 10;
const STALLED_WINDOW: Duration = Duration::from_secs(100);
/// Time of all windows of a sweep, ramps included.
const BUDGET: Duration = Duration::from_secs(150);
const LEAST_WINDOW: Duration = Duration::from_millis(300);
const MOST_WINDOW: Duration = Duration::from_millis(1_900);

/// The systems to compare: those of the arguments, or all.
fn compared(sweep: &Sweep, stalled: bool) -> Vec<System> {
    match (sweep.locks.as_slice(), stalled) {
        ([], true) => System::all(&[Locks::Default], &sweep.latch),
        ([], false) => System::all(&Locks::usual(), &sweep.latch),
        (some, _) => System::all(some, &sweep.latch),
    }
}

/// Time of each measurement, for this number of points.
fn window(points: u32, ramp: Duration) -> Duration {
    let share = (BUDGET / points.max(1)).saturating_sub(ramp);
    share.clamp(LEAST_WINDOW, MOST_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admission_is_parsed_in_its_present_and_in_its_former_spelling() {
        let all = admission("all");
        assert!(all.is_ok());
        assert_eq!(admission("unlimited"), all);
        assert!(admission("64").is_ok() && admission("adaptive").is_ok());
        assert!(admission("some").unwrap_err().contains("unlimited"));
    }

    #[test]
    fn one_level_may_be_the_workloads_and_several_are_the_systems() {
        use clap::Parser;
        #[derive(Parser)]
        struct Command {
            #[command(flatten)]
            sweep: Sweep,
        }
        let parsed = |levels: &[&str]| {
            let words = ["bench", "--locks", "default"].iter().chain(levels);
            let mut sweep = Command::parse_from(words).sweep;
            let level = sweep.take_isolation(Isolation::ReadCommitted);
            (level, sweep.systems(false).len())
        };
        assert_eq!(parsed(&[]), (Isolation::ReadCommitted, 1));
        let one = ["--isolation", "snapshot"];
        assert_eq!(parsed(&one), (Isolation::Snapshot, 1));
        let two = ["--isolation", "serializable,snapshot"];
        assert_eq!(parsed(&two), (Isolation::Serializable, 2));
    }

    #[test]
    fn components_are_compared_like_lock_managers() {
        use clap::Parser;
        #[derive(Parser)]
        struct Command {
            #[command(flatten)]
            sweep: Sweep,
        }
        let systems = |words: &[&str]| {
            let words = ["bench", "--locks", "default"].iter().chain(words);
            let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
            let systems = command.sweep.systems(false);
            Ok::<_, String>(systems.iter().map(System::page_memory).collect::<Vec<_>>())
        };
        assert_eq!(systems(&[]), Ok(vec![0]));
        let both = ["--tables", "memory,paged", "--page-memory", "2MiB"];
        assert_eq!(systems(&both), Ok(vec![0, 2 << 20]));
        assert_eq!(systems(&["--tables", "paged"]), Ok(vec![64 << 20]));
        for (wrong, help) in [
            (["--tables", "disk"], "memory, paged"),
            (["--page-memory", "1MB"], "MiB"),
        ] {
            let words = systems(&wrong).unwrap_err();
            assert!(words.contains(help), "{words}");
        }
    }
}
