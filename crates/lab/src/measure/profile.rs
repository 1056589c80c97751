//! Where the program's own processor time goes, sampled from outside by `perf`, where that is
//! installed and allowed; nothing in the engine takes part, and nothing is timed there.
//!
//! Each sample is an address in a client's thread. `addr2line` tells the source it was compiled from,
//! through everything inlined, from the inside out; the first line in a part of ours decides:
//!
//! | source | part |
//! | --- | --- |
//! | exclusive and shared latches, backoff, parking | latch |
//! | the lock floor | lock manager |
//! | the engine, the storage floor, the log | database |
//! | the laboratory | client |
//!
//! What has no such line (libc, say, copying or allocating) counts for the database: who called it is
//! not known. Samples in the kernel are left to the system's own account of time.

use std::{
    collections::HashMap,
    fs,
    io::Write,
    ops::Range,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

/// Samples a second and processor: a prime, so that nothing periodic keeps in step.
pub const FREQUENCY: u32 = 499;
const NOT_ALLOWED: &str =
    "perf ended by itself: it may not be allowed (kernel.perf_event_paranoid)";
/// What is said where `perf` was not ready before the clients had ended.
pub(crate) const NOTHING_SEEN: &str = "perf saw nothing of the clients";
/// How the driver names its threads.
const CLIENTS: &str = "client-";

/// A part of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Everything of the engine that is neither of the next two.
    Database,
    /// The lock manager, but for its latches.
    LockManager,
    /// Taking, waiting for, and giving back latches.
    Latch,
    /// The workload's own code.
    Client,
}

/// Samples by part.
#[derive(Debug, Clone, Default)]
pub struct Profile(HashMap<Part, u64>);

impl Profile {
    /// The share of the samples in this part; zero if there are none.
    pub fn share(&self, part: Part) -> f64 {
        let all: u64 = self.0.values().sum();
        self.0.get(&part).copied().unwrap_or(0) as f64 / all.max(1) as f64
    }

    /// How many samples there are.
    pub fn samples(&self) -> u64 {
        self.0.values().sum()
    }
}

/// `perf`, sampling this process.
#[derive(Debug)]
pub struct Profiler {
    perf: Child,
    data: NamedTempFile,
}

impl Profiler {
    /// Begins to sample the threads there are now: `perf` does not follow those started later. It takes
    /// a moment to begin.
    ///
    /// # Errors
    ///
    /// If `perf` cannot be started; the text says what to do.
    pub fn start() -> Result<Profiler, String> {
        let data = NamedTempFile::new().map_err(|error| format!("no temporary file: {error}"))?;
        let perf = Command::new("perf")
            .args(["record", "--quiet", "-e", "cpu-clock"])
            .args(["-F", &FREQUENCY.to_string()])
            .args(["-p", &std::process::id().to_string()])
            .arg("-o")
            .arg(data.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let perf = perf.map_err(|error| format!("perf does not run ({error}): install it"))?;
        Ok(Profiler { perf, data })
    }

    /// Ends it and sorts the samples.
    ///
    /// # Errors
    ///
    /// If nothing was sampled, or the samples cannot be read.
    pub fn stop(mut self) -> Result<Profile, String> {
        if matches!(self.perf.try_wait(), Ok(Some(_))) {
            return Err(NOT_ALLOWED.to_owned());
        }
        let ask = kill_process(Pid::from_child(&self.perf), Signal::INT);
        let ended = self.perf.wait();
        if ask.is_err() || ended.is_err() {
            return Err(NOT_ALLOWED.to_owned());
        }
        let addresses = self.addresses()?;
        if addresses.is_empty() {
            return Err(NOTHING_SEEN.to_owned());
        }
        sort(&addresses)
    }

    /// Where clients were, outside the kernel.
    fn addresses(&self) -> Result<Vec<u64>, String> {
        let output = Command::new("perf")
            .arg("script")
            .arg("-i")
            .arg(self.data.path())
            .args(["-F", "comm,ip"])
            .stderr(Stdio::null())
            .output();
        let output = output.map_err(|error| format!("perf script does not run: {error}"))?;
        Ok(addresses(&String::from_utf8_lossy(&output.stdout)))
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        // Only what nobody stopped is still there; it ends with us.
        let _ = self.perf.kill();
        let _ = self.perf.wait();
    }
}

/// The addresses in lines such as `client-28   55ed0d40946b`.
fn addresses(script: &str) -> Vec<u64> {
    const KERNEL: u64 = 1 << 63;
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let ours = words.next()?.starts_with(CLIENTS);
        let address = u64::from_str_radix(words.next_back()?, 16).ok()?;
        (ours && address < KERNEL).then_some(address)
    };
    script.lines().filter_map(address).collect()
}

fn sort(addresses: &[u64]) -> Result<Profile, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let maps = fs::read_to_string("/proc/self/maps").map_err(|error| error.to_string())?;
    let range =
        mapped(&maps, &program.to_string_lossy()).ok_or("this program is mapped nowhere")?;
    let mut profile = Profile::default();
    let mut known: HashMap<u64, Part> = HashMap::new();
    let mut unique: Vec<u64> = addresses
        .iter()
        .copied()
        .filter(|address| range.contains(address))
        .collect();
    unique.sort_unstable();
    unique.dedup();
    for (address, frames) in unique.iter().zip(lines(&program, &unique, range.start)?) {
        known.insert(*address, part(&frames));
    }
    for address in addresses {
        let part = known.get(address).copied().unwrap_or(Part::Database);
        *profile.0.entry(part).or_default() += 1;
    }
    Ok(profile)
}

/// Where in memory the program lies: from its first mapping to the end of its last.
fn mapped(maps: &str, program: &str) -> Option<Range<u64>> {
    let ours = maps.lines().filter(|line| line.ends_with(program));
    let mut ranges = ours.filter_map(|line| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
    });
    let first = ranges.next()?;
    let end = ranges.next_back().map_or(first.end, |last| last.end);
    Some(first.start..end)
}

/// The sources of each address, from the innermost inlined function outwards.
fn lines(program: &PathBuf, addresses: &[u64], base: u64) -> Result<Vec<Vec<String>>, String> {
    let mut child = Command::new("addr2line")
        .args(["-a", "-i", "-e"])
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("addr2line does not run ({error}): install binutils"))?;
    let asked: String = addresses
        .iter()
        .map(|address| format!("{:#x}\n", address - base))
        .collect();
    let mut stdin = child.stdin.take().expect("it was piped");
    // It answers while it is asked: neither side may wait for the other.
    let asking = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    let asked = asking.join().expect("writing does not panic");
    asked.map_err(|error| format!("addr2line stopped listening: {error}"))?;
    Ok(answers(&String::from_utf8_lossy(&output.stdout)))
}

/// Answers are an address each, then a line for each frame.
fn answers(text: &str) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        match (line.starts_with("0x"), all.last_mut()) {
            (true, _) => all.push(Vec::new()),
            (false, Some(frames)) => frames.push(line.to_owned()),
            (false, None) => {}
        }
    }
    all
}

fn part(frames: &[String]) -> Part {
    const PLACES: [(&str, Option<Part>); 10] = [
        // Readers validate a version: nobody is excluded.
        ("crates/sync/src/latch/version", None),
        ("crates/sync/src/latch", Some(Part::Latch)),
        ("crates/sync/src/backoff", Some(Part::Latch)),
        ("crates/sync/src/park", Some(Part::Latch)),
        ("/parking_lot", Some(Part::Latch)),
        ("crates/lock/", Some(Part::LockManager)),
        ("crates/foxton/", Some(Part::Database)),
        ("crates/store/", Some(Part::Database)),
        ("crates/log/", Some(Part::Database)),
        ("crates/lab/", Some(Part::Client)),
    ];
    let place = |frame: &String| {
        let found = PLACES.iter().find(|(place, _)| frame.contains(place));
        found.and_then(|(_, part)| *part)
    };
    frames.iter().find_map(place).unwrap_or(Part::Database)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_line_of_ours_decides() {
        let frames = |lines: &[&str]| {
            lines
                .iter()
                .map(|&line| line.to_owned())
                .collect::<Vec<_>>()
        };
        let spin = frames(&[
            "/rustc/library/core/src/sync/atomic.rs:1",
            "/w/crates/sync/src/shim.rs:7",
            "/w/crates/sync/src/latch/spin.rs:40",
            "/w/crates/lock/src/managers/bucket.rs:9",
        ]);
        assert_eq!(part(&spin), Part::Latch);
        assert_eq!(part(&spin[3..]), Part::LockManager);
        let reader = frames(&[
            "/w/crates/sync/src/latch/version.rs:40",
            "/w/crates/store/src/node.rs:9",
        ]);
        assert_eq!(part(&reader), Part::Database);
        assert_eq!(part(&frames(&["??:0"])), Part::Database);
    }

    #[test]
    fn samples_of_clients_outside_the_kernel_are_kept() {
        let script =
            "client-1    55ed0d40946b\nfoxton 55ed0d40946b\nclient-2  ffffffff8160f7ae\n\n";
        assert_eq!(addresses(script), [0x55ed_0d40_946b]);
    }

    #[test]
    fn answers_are_told_apart_by_their_addresses() {
        let text = "0x0000000000000010\na.rs:1\nb.rs:2\n0x0000000000000020\n??:0\n";
        assert_eq!(answers(text), [vec!["a.rs:1", "b.rs:2"], vec!["??:0"]]);
    }

    #[test]
    fn a_program_lies_from_its_first_mapping_to_its_last() {
        let maps =
            "10-20 r--p 0 0:0 1 /bin/x\n20-40 r-xp 10 0:0 1 /bin/x\n50-60 rw-p 0 0:0 0 [heap]\n";
        assert_eq!(mapped(maps, "/bin/x"), Some(0x10..0x40));
        assert_eq!(mapped(maps, "/bin/y"), None);
    }
}
