//! Processor time and memory of this process, from `/proc`. Elsewhere they are "not available".

use std::{fs, time::Duration};

/// Resources that the process has used since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in the program itself.
    pub user: Duration,
    /// Processor time in the kernel on the program's behalf.
    pub kernel: Duration,
    /// Processor time of all programs on the machine, this one included, and of the time that the
    /// host of a virtual machine took away.
    pub everybody: Duration,
    /// Memory resident now.
    pub resident_bytes: u64,
}

impl Usage {
    /// Now; `None` where there is no `/proc`.
    pub fn now() -> Option<Usage> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The command's name, in parentheses, may itself contain blanks, so fields are counted
        // after it.
        let mut times = stat[stat.rfind(')')? + 1..]
            .split_whitespace()
            .skip(11)
            .map(ticks);
        let (user, kernel) = (times.next()??, times.next()??);
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = resident.trim().trim_end_matches("kB").trim().parse().ok()?;
        let everybody = everybody().unwrap_or(user + kernel);
        Some(Usage {
            user,
            kernel,
            everybody,
            resident_bytes: kibibytes * 1024,
        })
    }

    /// The use since `earlier`; memory stays the current value.
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            user: self.user.saturating_sub(earlier.user),
            kernel: self.kernel.saturating_sub(earlier.kernel),
            everybody: self.everybody.saturating_sub(earlier.everybody),
            ..self
        }
    }
}

/// Busy time of all processors; `None` if this process may not use all of them, as in a container,
/// because other programs on those do not disturb it.
fn everybody() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let mut lines = stat.lines().take_while(|line| line.starts_with("cpu"));
    // user nice system idle iowait irq softirq steal; guests are within user.
    let times: Vec<Duration> = lines
        .next()?
        .split_whitespace()
        .skip(1)
        .filter_map(ticks)
        .collect();
    let busy = [0, 1, 2, 5, 6, 7]
        .iter()
        .filter_map(|&index| times.get(index))
        .sum();
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    (lines.count() == usable).then_some(busy)
}

/// Linux reports times to user space in hundredths of a second on every platform.
fn ticks(count: &str) -> Option<Duration> {
    Some(Duration::from_millis(count.parse::<u64>().ok()? * 10))
}

/// Processor time as shares of the time of all processors.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Split {
    /// In the program.
    pub user: f64,
    /// In the kernel on its behalf.
    pub kernel: f64,
    /// Taken by other programs, or by the host.
    pub others: f64,
    /// Idle.
    pub idle: f64,
}

impl Split {
    /// How `cores` processors spent `elapsed`.
    pub fn of(used: Usage, elapsed: Duration, cores: usize) -> Split {
        // On a busy machine the end of a window may be noticed late; then more was used than the
        // window had.
        let whole = (elapsed * cores as u32).max(used.everybody.max(used.user + used.kernel));
        let whole = whole.as_secs_f64();
        let share = |time: Duration| {
            if whole > 0.0 {
                time.as_secs_f64() / whole
            } else {
                0.0
            }
        };
        let (user, kernel) = (share(used.user), share(used.kernel));
        // Each is rounded to ticks, so a negative rest counts as zero.
        let others = (share(used.everybody) - user - kernel).max(0.0);
        let idle = (1.0 - user - kernel - others).max(0.0);
        Split {
            user,
            kernel,
            others,
            idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_whole_even_if_the_end_was_seen_late() {
        let seconds = Duration::from_secs;
        let used = Usage {
            user: seconds(3),
            kernel: seconds(1),
            everybody: seconds(8),
            resident_bytes: 0,
        };
        for (elapsed, idle) in [(5, 0.2), (4, 0.0), (2, 0.0)] {
            let split = Split::of(used, seconds(elapsed), 2);
            let sum = split.user + split.kernel + split.others + split.idle;
            assert!(
                (sum - 1.0).abs() < 1e-9 && (split.idle - idle).abs() < 1e-9,
                "{split:?}"
            );
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_running_process_has_memory_and_burns_time() {
        let before = Usage::now().expect("linux has /proc");
        let mut x = 1u64;
        for i in 0..200_000_000u64 {
            x = std::hint::black_box(x.wrapping_mul(i | 1));
        }
        let used = Usage::now().expect("linux has /proc").since(before);
        assert!(
            used.resident_bytes > 0 && used.user > Duration::ZERO,
            "{used:?}"
        );
    }
}
