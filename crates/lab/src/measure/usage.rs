//! Processor time and memory of this process, from `/proc`. Elsewhere they are "not available".

use std::{fs, time::Duration};

/// What the process has used since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in the program itself.
    pub user: Duration,
    /// Processor time in the kernel on the program's behalf.
    pub kernel: Duration,
    /// Memory resident now.
    pub resident_bytes: u64,
}

impl Usage {
    /// Now; `None` where there is no `/proc`.
    pub fn now() -> Option<Usage> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The command's name, in parentheses, may itself hold blanks: count fields after it.
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
        let ticks = |index: usize| -> Option<Duration> {
            // Linux reports these to user space in hundredths of a second on every platform.
            Some(Duration::from_millis(
                fields.get(index)?.parse::<u64>().ok()? * 10,
            ))
        };
        let statm = fs::read_to_string("/proc/self/status").ok()?;
        let resident = statm.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = resident.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(Usage {
            user: ticks(11)?,
            kernel: ticks(12)?,
            resident_bytes: kibibytes * 1024,
        })
    }

    /// What was used since `earlier`; memory stays what it is now.
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            user: self.user.saturating_sub(earlier.user),
            kernel: self.kernel.saturating_sub(earlier.kernel),
            ..self
        }
    }
}

/// Processor time as shares of everything the machine could have given.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Split {
    /// In the program.
    pub user: f64,
    /// In the kernel on its behalf.
    pub kernel: f64,
    /// The rest: idle, or taken by somebody else.
    pub idle: f64,
}

impl Split {
    /// How `cores` processors spent `elapsed`.
    pub fn of(used: Usage, elapsed: Duration, cores: usize) -> Split {
        let whole = elapsed.as_secs_f64() * cores as f64;
        let (user, kernel) = (
            used.user.as_secs_f64() / whole,
            used.kernel.as_secs_f64() / whole,
        );
        Split {
            user,
            kernel,
            idle: (1.0 - user - kernel).max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
