//! Processor time of the process by part of the engine: samples of its threads' stacks, taken
//! inside the process. The engine does not take part, and no time is measured there.
//!
//! A sample is a stack of addresses. Each address is mapped to its source files, also through
//! inlined functions, and the innermost source that belongs to a part decides:
//!
//! | source | part |
//! | --- | --- |
//! | exclusive and shared latches | latches |
//! | the same, while they back off or sleep; readers that found a writer | waiting for a latch |
//! | the lock floor | lock manager |
//! | the log floor; what the engine writes there and reads back | log |
//! | the storage floor; tables, indexes, keys and values of the engine | tables and indexes |
//! | what else the engine has | transaction |
//! | checkpoints, and all that they call | checkpoint |
//! | the laboratory | client |
//!
//! The time of other sources (copying, allocating, hashing) counts for their caller. A thread
//! returning from a system call counts as in the kernel, for the part that made the call.

use std::{collections::HashMap, fmt};

use foxton_sampler::{Sampling, Source, Unavailable, sources};
use serde_json::{Map, Value, json};

/// Samples for each second of processor time: a prime, so that they do not keep in step with
/// anything periodic.
pub const FREQUENCY: u32 = 499;

/// A part of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The lock manager without its latches.
    Lock,
    /// The log.
    Log,
    /// Tables and indexes: finding, reading and changing rows.
    Tables,
    /// Beginning, ending and all other work of a transaction.
    Transaction,
    /// Acquiring and releasing latches.
    Latch,
    /// Waiting for latches.
    Waiting,
    /// Making checkpoints, in the background.
    Checkpoint,
    /// The workload's own code.
    Client,
    /// Code that none of these called.
    Others,
}

impl Part {
    /// All of them, in the order of tables and bars.
    pub const ALL: [Part; 9] = [
        Part::Lock,
        Part::Log,
        Part::Tables,
        Part::Transaction,
        Part::Latch,
        Part::Waiting,
        Part::Checkpoint,
        Part::Client,
        Part::Others,
    ];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Lock => "lock manager",
            Part::Log => "log",
            Part::Tables => "tables",
            Part::Transaction => "transaction",
            Part::Latch => "latches",
            Part::Waiting => "latch waits",
            Part::Checkpoint => "checkpoint",
            Part::Client => "client",
            Part::Others => "rest",
        })
    }
}

/// Samples by part, in the program and in the kernel on its behalf.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    program: [u64; Part::ALL.len()],
    kernel: [u64; Part::ALL.len()],
}

/// Samples this process until `stop`.
#[derive(Debug)]
pub struct Profiler(Sampling);

impl Profiler {
    /// Begins.
    ///
    /// # Errors
    ///
    /// If this process cannot be sampled; the text says why.
    pub fn start() -> Result<Profiler, Unavailable> {
        foxton_sampler::start(FREQUENCY).map(Profiler)
    }

    /// Samples so far.
    pub fn taken(&self) -> usize {
        self.0.taken()
    }

    /// Ends it, and sorts the samples.
    pub fn stop(self) -> Profile {
        let mut known: HashMap<usize, Vec<Clue>> = HashMap::new();
        let mut profile = Profile::default();
        for stack in self.0.stop().stacks {
            let clues = |address: &usize| {
                let fresh = || sources(*address).iter().filter_map(clue).collect();
                known.entry(*address).or_insert_with(fresh).clone()
            };
            profile.count(stack.iter().flat_map(clues));
        }
        profile
    }
}

impl Profile {
    /// Counts a sample, from the innermost frame outwards.
    fn count(&mut self, mut clues: impl Iterator<Item = Clue>) {
        let (mut innermost, mut kernel, mut waits) = (true, false, false);
        let mut part = Part::Others;
        for clue in clues.by_ref() {
            match clue {
                Clue::System => kernel |= innermost,
                Clue::Waits => waits = true,
                Clue::Validates if waits => {
                    part = Part::Waiting;
                    break;
                }
                Clue::Validates => {}
                Clue::Of(Part::Latch) if waits || kernel => {
                    part = Part::Waiting;
                    break;
                }
                Clue::Of(found) => {
                    part = found;
                    break;
                }
            }
            innermost = false;
        }
        if clues.any(|clue| clue == Clue::Of(Part::Checkpoint)) {
            part = Part::Checkpoint;
        }
        let counts = if kernel {
            &mut self.kernel
        } else {
            &mut self.program
        };
        counts[part as usize] += 1;
    }

    /// A profile with these samples in the program and in the kernel, for tests.
    #[cfg(test)]
    pub(crate) fn made<const P: usize, const K: usize>(
        program: [(Part, u64); P],
        kernel: [(Part, u64); K],
    ) -> Profile {
        let mut profile = Profile::default();
        for (part, count) in program {
            profile.program[part as usize] += count;
        }
        for (part, count) in kernel {
            profile.kernel[part as usize] += count;
        }
        profile
    }

    /// Adds the samples of another run.
    pub fn add(&mut self, other: &Profile) {
        let mine = self.program.iter_mut().chain(&mut self.kernel);
        for (mine, theirs) in mine.zip(other.program.iter().chain(&other.kernel)) {
            *mine += theirs;
        }
    }

    /// How many samples there are.
    pub fn samples(&self) -> u64 {
        self.program.iter().chain(&self.kernel).sum()
    }

    /// Share of this part in the samples in the program; zero if there are none.
    pub fn share(&self, part: Part) -> f64 {
        ratio(&self.program, part)
    }

    /// Share of this part in the samples in the kernel; zero if there are none.
    pub fn share_of_kernel(&self, part: Part) -> f64 {
        ratio(&self.kernel, part)
    }

    /// Error of a share at 95 % confidence: half the width of the interval for a share of one half.
    pub fn uncertainty(&self) -> f64 {
        0.98 / (self.samples().max(1) as f64).sqrt()
    }

    /// The counts for programs.
    pub fn to_json(&self) -> Value {
        let counts = |counts: &[u64]| -> Map<String, Value> {
            let parts = Part::ALL.iter().zip(counts);
            parts
                .map(|(part, count)| (part.to_string(), json!(count)))
                .collect()
        };
        json!({"program": counts(&self.program), "kernel": counts(&self.kernel)})
    }
}

fn ratio(counts: &[u64], part: Part) -> f64 {
    let all: u64 = counts.iter().sum();
    counts[part as usize] as f64 / all.max(1) as f64
}

/// Meaning of one source for a sample in it or below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clue {
    /// The sample belongs to this part.
    Of(Part),
    /// The sample is a wait.
    Waits,
    /// It reads data that a writer may be changing.
    Validates,
    /// It makes a system call.
    System,
}

/// Sources of the parts, the narrower path first.
const PLACES: [(&str, Clue); 21] = [
    ("crates/sync/src/latch/version", Clue::Validates),
    ("crates/sync/src/latch", Clue::Of(Part::Latch)),
    ("crates/sync/src/backoff", Clue::Waits),
    ("crates/sync/src/park", Clue::Waits),
    ("/parking_lot_core-", Clue::Waits),
    ("crates/lock/", Clue::Of(Part::Lock)),
    ("crates/log/", Clue::Of(Part::Log)),
    ("crates/store/", Clue::Of(Part::Tables)),
    ("crates/foxton/src/checkpoint", Clue::Of(Part::Checkpoint)),
    (
        "crates/foxton/src/engine/checkpoint_thread",
        Clue::Of(Part::Checkpoint),
    ),
    ("crates/foxton/src/redo/record", Clue::Of(Part::Log)),
    ("crates/foxton/src/redo/replay", Clue::Of(Part::Log)),
    ("crates/foxton/src/types/codec", Clue::Of(Part::Tables)),
    ("crates/foxton/src/types/index.rs", Clue::Of(Part::Tables)),
    ("crates/foxton/src/types/table", Clue::Of(Part::Tables)),
    (
        "crates/foxton/src/catalog/index_catalog",
        Clue::Of(Part::Tables),
    ),
    ("crates/foxton/src/api/range", Clue::Of(Part::Tables)),
    ("crates/foxton/src/admin/indexes", Clue::Of(Part::Tables)),
    ("crates/foxton/", Clue::Of(Part::Transaction)),
    ("crates/lab/", Clue::Of(Part::Client)),
    ("crates/cli/", Clue::Of(Part::Client)),
];

/// Functions of the C library that only make a system call. The allocator may make one too, and is
/// not among them.
const CALLS: [&str; 12] = [
    "syscall",
    "sched_yield",
    "fdatasync",
    "fsync",
    "write",
    "pwrite64",
    "pwritev2",
    "read",
    "pread64",
    "madvise",
    "munmap",
    "clock_nanosleep",
];

fn clue(source: &Source) -> Option<Clue> {
    if let Some(file) = &source.file {
        let mut places = PLACES.iter();
        let found = places.find(|(place, _)| file.contains(place));
        return found.map(|(_, clue)| *clue);
    }
    let function = source.function.as_deref()?.trim_start_matches('_');
    CALLS.contains(&function).then_some(Clue::System)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[&str]) -> Vec<Clue> {
        let source = |frame: &&str| match frame.split_once("()") {
            Some((function, _)) => Source {
                function: Some(function.to_owned()),
                file: None,
            },
            None => Source {
                function: None,
                file: Some((*frame).to_owned()),
            },
        };
        frames
            .iter()
            .filter_map(|frame| clue(&source(frame)))
            .collect()
    }

    fn part_of(frames: &[&str]) -> (Part, bool) {
        let mut profile = Profile::default();
        profile.count(stack(frames).into_iter());
        assert_eq!(profile.samples(), 1);
        let part = Part::ALL
            .into_iter()
            .find(|&part| profile.share(part) + profile.share_of_kernel(part) > 0.5);
        (part.expect("one has the sample"), profile.kernel != [0; 9])
    }

    const IN_A_LATCH: [&str; 4] = [
        "/rustc/library/core/src/sync/atomic.rs",
        "/w/crates/sync/src/latch/spin.rs",
        "/w/crates/lock/src/managers/latched/bucket.rs",
        "/w/crates/foxton/src/txn/read.rs",
    ];

    #[test]
    fn the_innermost_source_of_ours_decides() {
        assert_eq!(part_of(&IN_A_LATCH), (Part::Latch, false));
        assert_eq!(part_of(&IN_A_LATCH[2..]), (Part::Lock, false));
        assert_eq!(part_of(&IN_A_LATCH[3..]), (Part::Transaction, false));
        let client = ["/w/crates/lab/src/workload/tatp/client.rs", IN_A_LATCH[3]];
        assert_eq!(part_of(&client), (Part::Client, false));
    }

    #[test]
    fn what_is_nobodys_is_the_callers() {
        let copies = ["memcpy()", "/w/crates/log/src/copy.rs", IN_A_LATCH[3]];
        assert_eq!(part_of(&copies), (Part::Log, false));
        let reader = [
            "/w/crates/sync/src/latch/version.rs",
            "/w/crates/store/src/node.rs",
        ];
        assert_eq!(part_of(&reader), (Part::Tables, false));
        assert_eq!(part_of(&["memcpy()"]), (Part::Others, false));
    }

    #[test]
    fn what_a_checkpoint_calls_is_the_checkpoints() {
        let maker = "/w/crates/foxton/src/checkpoint/builder.rs";
        let reads = [
            "memcpy()",
            "/w/crates/log/src/read/durable_reader.rs",
            maker,
        ];
        assert_eq!(part_of(&reads), (Part::Checkpoint, false));
        let syncs = ["fsync()", "/w/crates/log/src/device/disk.rs", maker];
        assert_eq!(part_of(&syncs), (Part::Checkpoint, true));
    }

    #[test]
    fn who_backs_off_in_a_latch_waits_for_it() {
        let waits = [&["/w/crates/sync/src/backoff.rs"], &IN_A_LATCH[1..]].concat();
        assert_eq!(part_of(&waits), (Part::Waiting, false));
        let reader = [
            "/w/crates/sync/src/backoff.rs",
            "/w/crates/sync/src/latch/version.rs",
        ];
        assert_eq!(part_of(&reader), (Part::Waiting, false));
        // A wait for a lock is in the lock manager.
        let waits = ["/w/crates/sync/src/park.rs", IN_A_LATCH[2]];
        assert_eq!(part_of(&waits), (Part::Lock, false));
    }

    #[test]
    fn a_call_of_the_system_is_the_kernels_on_the_callers_behalf() {
        let sleeps = [
            &["syscall()", "/r/parking_lot_core-0.9/src/park.rs"],
            &IN_A_LATCH[1..],
        ]
        .concat();
        assert_eq!(part_of(&sleeps), (Part::Waiting, true));
        assert_eq!(
            part_of(&["fdatasync()", "/w/crates/log/src/device/disk.rs"]),
            (Part::Log, true)
        );
        // Only frames that are interrupted at the call itself.
        let deeper = ["memcpy()", "/w/crates/log/src/copy.rs", "syscall()"];
        assert_eq!(part_of(&deeper), (Part::Log, false));
    }

    #[test]
    fn shares_are_of_all_samples_and_add_up() {
        let mut profile = Profile::default();
        for frames in [
            &IN_A_LATCH[..],
            &IN_A_LATCH[2..],
            &IN_A_LATCH[2..],
            &["memcpy()"],
        ] {
            profile.count(stack(frames).into_iter());
        }
        profile.count(stack(&["write()", "/w/crates/log/src/write/group_commit.rs"]).into_iter());
        assert_eq!(profile.share(Part::Lock), 0.5);
        let sum = |share: fn(&Profile, Part) -> f64| -> f64 {
            Part::ALL.iter().map(|&part| share(&profile, part)).sum()
        };
        assert_eq!(
            (sum(Profile::share), sum(Profile::share_of_kernel)),
            (1.0, 1.0)
        );
        let mut twice = profile.clone();
        twice.add(&profile);
        assert_eq!(twice.samples(), 10);
    }
}
