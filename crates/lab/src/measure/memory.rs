//! Free memory, and the end of measurements that leave too little.
//!
//! If the data of a workload grow, a run can exceed the memory of the machine. The system then
//! kills the program, and all its results are lost. So each run asks a
//! [`Guard`](crate::measure::memory::Guard), which ends the run before that.

use std::{
    fmt, fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Duration,
};

/// Memory that is left to other programs, and to the checks after a run.
pub const RESERVE_BYTES: u64 = 512 << 20;
/// Time between two checks of a guard, each of which reads some files of the system.
const EVERY: Duration = Duration::from_millis(200);

/// Free memory in bytes: of the machine, and of the group of processes that this one is in. `None`
/// if the system does not report it.
pub fn available_bytes() -> Option<u64> {
    let machine = super::machine::memory("MemAvailable")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let within = left_in_groups(&groups, Path::new("/sys/fs/cgroup"));
    Some(within.map_or(machine, |group| group.min(machine)))
}

/// Free memory of the tightest group of a process. `groups` is the system's list of these; `None`
/// if none has a limit.
fn left_in_groups(groups: &str, mounted: &Path) -> Option<u64> {
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (root, files) = match controllers {
            "" => (mounted.to_owned(), &UNIFIED),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (mounted.join("memory"), &SEPARATE)
            }
            _ => return None,
        };
        let path = Path::new(path.trim_start_matches('/'));
        let above = path.ancestors().map(|above| files.left(&root.join(above)));
        above.flatten().min()
    };
    groups.lines().filter_map(of_line).min()
}

/// The names of a group's files.
struct Files {
    limit: &'static str,
    used: &'static str,
    reclaimable: &'static str,
}

const UNIFIED: Files = Files {
    limit: "memory.max",
    used: "memory.current",
    reclaimable: "inactive_file",
};
const SEPARATE: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};

impl Files {
    /// Free memory of the group in this directory; `None` if it has no limit.
    fn left(&self, group: &Path) -> Option<u64> {
        let number = |name: &str| -> Option<u64> {
            let text = fs::read_to_string(PathBuf::from(group).join(name)).ok()?;
            text.trim().parse().ok()
        };
        let (limit, used) = (number(self.limit)?, number(self.used)?);
        // Pages of files that were not used lately: the system reclaims them before it kills a
        // process.
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let mut values = stat.lines().filter_map(|line| line.split_once(' '));
        let reclaimable = values.find(|(name, _)| *name == self.reclaimable);
        let reclaimable = reclaimable.and_then(|(_, value)| value.trim().parse().ok());
        let kept = used.saturating_sub(reclaimable.unwrap_or(0));
        Some(limit.saturating_sub(kept))
    }
}

/// Why a run was ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Free bytes.
    pub free: u64,
    /// The least number of free bytes with which a run continues.
    pub least: u64,
    /// Time since the clients were started.
    pub after: Duration,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ended after {:.1} s, before the system ends the program for want of memory: {} MiB are free, and {} \
             are kept for the checks and for others (measure for a shorter time, fewer systems at once, or less data)",
            self.after.as_secs_f64(),
            self.free >> 20,
            self.least >> 20
        )
    }
}

impl std::error::Error for Shortage {}

/// Watches the memory of one run.
#[derive(Debug)]
pub struct Guard<F> {
    free: F,
    least: u64,
    next: Duration,
}

impl<F: FnMut() -> Option<u64>> Guard<F> {
    /// A guard of a run that begins now. `free` returns the free memory, if it is known. A machine
    /// with little free memory at the beginning needs no reserve that it never had.
    pub fn new(mut free: F) -> Guard<F> {
        let now = free().unwrap_or(0);
        Guard {
            free,
            least: RESERVE_BYTES.min(now / 4),
            next: EVERY,
        }
    }

    /// True if the run may continue, this long after it began. Checks a few times a second, however
    /// often it is called.
    pub fn look(&mut self, elapsed: Duration) -> ControlFlow<Shortage> {
        if elapsed < self.next {
            return ControlFlow::Continue(());
        }
        self.next = elapsed + EVERY;
        match (self.free)() {
            Some(free) if free < self.least => ControlFlow::Break(Shortage {
                free,
                least: self.least,
                after: elapsed,
            }),
            _ => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_ends_a_run_when_less_is_left_than_the_reserve() {
        let mut left = [Some(8 * RESERVE_BYTES), Some(RESERVE_BYTES), None]
            .into_iter()
            .chain([Some(RESERVE_BYTES - 1)]);
        let mut guard = Guard::new(|| left.next().unwrap());
        let at = |tenths: u64| Duration::from_millis(100 * tenths);
        // Called too early, it does not check.
        for elapsed in [0, 1, 2, 3, 4, 5] {
            assert_eq!(guard.look(at(elapsed)), ControlFlow::Continue(()));
        }
        let shortage = Shortage {
            free: RESERVE_BYTES - 1,
            least: RESERVE_BYTES,
            after: at(6),
        };
        assert_eq!(guard.look(at(6)), ControlFlow::Break(shortage));
        assert!(shortage.to_string().contains("after 0.6 s"), "{shortage}");
    }

    #[test]
    fn a_machine_that_has_little_is_left_to_work_with_that() {
        let mut left = [400, 101, 100, 99].into_iter().map(Some);
        let mut guard = Guard::new(|| left.next().unwrap());
        let mut look = |second| guard.look(Duration::from_secs(second)).is_break();
        assert_eq!([look(1), look(2), look(3)], [false, false, true]);
        // Without knowledge of the memory, every run continues.
        assert!(Guard::new(|| None).look(EVERY).is_continue());
    }

    #[test]
    fn the_tightest_group_counts_however_it_is_written_down() {
        let mounted = tempfile::tempdir().unwrap();
        let group = |path: &str, files: &[(&str, &str)]| {
            let directory = mounted.path().join(path);
            fs::create_dir_all(&directory).unwrap();
            for (name, text) in files {
                fs::write(directory.join(name), text).unwrap();
            }
        };
        let left = |groups| left_in_groups(groups, mounted.path());
        group(
            "a",
            &[("memory.max", "1000\n"), ("memory.current", "700\n")],
        );
        group(
            "a/b",
            &[
                ("memory.max", "900"),
                ("memory.current", "700"),
                ("memory.stat", "anon 1\ninactive_file 150\n"),
            ],
        );
        group("a/free", &[("memory.max", "max"), ("memory.current", "7")]);
        assert_eq!(left("0::/a/b\n"), Some(300));
        assert_eq!(left("0::/a\n"), Some(300));
        group("a", &[("memory.max", "max")]);
        assert_eq!(left("0::/a/b"), Some(350));
        assert_eq!(left("0::/a/free\n1:cpu:/a/b"), None);
        group(
            "memory/c",
            &[
                ("memory.limit_in_bytes", "100"),
                ("memory.usage_in_bytes", "90"),
                ("memory.stat", "inactive_file 1\ntotal_inactive_file 2\n"),
            ],
        );
        assert_eq!(left("4:pids:/c\n3:cpu,memory:/c\n0::/a/b"), Some(12));
        assert_eq!(left(""), None);
    }
}
