//! Machine and versions: a number without them is not a result.

use std::fs;

use foxton_sync::latch::BackendKind;
use serde_json::{Value, json};

/// The machine measured on and the program measured.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Processors this process may use.
    pub cores: usize,
    /// Memory installed.
    pub memory_bytes: u64,
    /// Operating system and its release.
    pub system: String,
    /// The compiler this was built with.
    pub compiler: &'static str,
    /// Version and commit of Foxton, and what this build emulates.
    pub foxton: String,
    /// Whether the program was built with optimisation.
    pub optimised: bool,
    /// When the run began, UTC, as `2026-03-31 18:05:00`.
    pub started: String,
}

impl Machine {
    /// The machine this runs on.
    pub fn here() -> Machine {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            processor: line("/proc/cpuinfo", "model name")
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory("MemTotal").unwrap_or(0),
            system: format!("{} {}", std::env::consts::OS, release.trim())
                .trim()
                .to_owned(),
            compiler: env!("FOXTON_LAB_RUSTC"),
            foxton: format!(
                "{} ({}){}",
                env!("CARGO_PKG_VERSION"),
                env!("FOXTON_LAB_COMMIT"),
                match BackendKind::available() {
                    Ok(BackendKind::Software) => ", hardware transactions emulated by software",
                    _ => "",
                }
            ),
            optimised: !cfg!(debug_assertions),
            started: utc_now(),
        }
    }

    /// One line for a person.
    pub fn sentence(&self) -> String {
        let gib = self.memory_bytes as f64 / (1u64 << 30) as f64;
        let cores = if self.cores == 1 { "core" } else { "cores" };
        format!(
            "{}, {} {cores}, {gib:.0} GiB, {}",
            self.processor, self.cores, self.system
        )
    }

    /// For results.json.
    pub fn to_json(&self) -> Value {
        json!({
            "processor": self.processor,
            "cores": self.cores,
            "memory_bytes": self.memory_bytes,
            "system": self.system,
            "compiler": self.compiler,
            "foxton": self.foxton,
            "optimised": self.optimised,
            "started_utc": self.started,
        })
    }
}

/// Bytes of memory, by the system's name for them.
pub(super) fn memory(key: &str) -> Option<u64> {
    let text = line("/proc/meminfo", key)?;
    Some(text.trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

fn line(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(
        line[key.len()..]
            .trim_start_matches([' ', '\t', ':'])
            .trim()
            .to_owned(),
    )
}

fn utc_now() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    utc(now.map_or(0, |elapsed| elapsed.as_secs()))
}

/// Civil date and time of a count of seconds since 1970 (Howard Hinnant's days-from-civil,
/// inverted).
pub fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_across_leap_days() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_827_696), "2000-02-29 12:34:56");
        assert_eq!(utc(1_774_980_300), "2026-03-31 18:05:00");
    }

    #[test]
    fn the_machine_here_has_a_name_and_a_core() {
        let machine = Machine::here();
        assert!(machine.cores >= 1 && !machine.processor.is_empty());
        assert!(machine.sentence().contains("core"));
    }
}
