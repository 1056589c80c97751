//! Where the threads of this process are, sampled from inside: no tool of the system takes part, and nothing
//! is built into what is sampled.
//!
//! A timer runs with the processor time of the whole process. Whenever so much of it was used, the thread that
//! uses it is interrupted, and where it is and who called it is noted. So a thread that sleeps is never seen, and
//! one that works is seen as often as it works, whatever else the machine does. Nothing costs anything while
//! nobody samples.
//!
//! ```
//! let sampling = foxton_sampler::start(97)?;
//! let mut sum = 0u64;
//! while sampling.taken() < 3 {
//!     sum = std::hint::black_box(sum.wrapping_add(7));
//! }
//! let samples = sampling.stop();
//! let innermost = samples.stacks[0][0];
//! println!("{:?}", foxton_sampler::sources(innermost));
//! # Ok::<(), foxton_sampler::Unavailable>(())
//! ```
//!
//! Linux with glibc on x86-64 and 64-bit ARM; elsewhere [`start`] says that there is nothing to be had.

/// The timer, the signal, and what is done when it comes.
#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod signal;

/// Nothing.
#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod signal {
    use super::{Samples, Unavailable};
    #[derive(Debug)]
    pub(crate) enum Taken {}

    pub(crate) fn start(_per_second: u32) -> Result<Taken, Unavailable> {
        Err(Unavailable::Platform)
    }

    pub(crate) fn taken() -> usize {
        0
    }

    pub(crate) fn stop(_taken: &Taken) -> Samples {
        Samples::default()
    }
}

use std::fmt;

/// Why nothing is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unavailable {
    /// Not on this system.
    Platform,
    /// This process is being sampled already: one at a time.
    Taken,
    /// Something else in this process has the signal of the timer.
    Signal,
    /// The system refused; its number for the reason.
    Refused(i32),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unavailable::Platform => f.write_str("threads cannot be sampled on this system"),
            Unavailable::Taken => f.write_str("this process is being sampled already"),
            Unavailable::Signal => {
                f.write_str("something else in this process uses the signal SIGPROF")
            }
            Unavailable::Refused(number) => {
                let reason = std::io::Error::from_raw_os_error(*number);
                write!(f, "the system refused to sample: {reason}")
            }
        }
    }
}

impl std::error::Error for Unavailable {}

/// What was sampled.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// For each sample the addresses it was at, from the innermost function to the outermost known.
    pub stacks: Vec<Vec<usize>>,
    /// Samples there was no room for.
    pub lost: usize,
}

/// A function and the file it was compiled from, as far as the program's own tables tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The function, with its path.
    pub function: Option<String>,
    /// The file.
    pub file: Option<String>,
}

/// Sampling, until it is stopped or dropped.
#[derive(Debug)]
pub struct Sampling(signal::Taken);

/// Begins to sample every thread of the process, so many times for each second of processor time that all of
/// them use together. The system looks at its timers some 100 to 1,000 times a second and core: what is
/// asked for beyond that is not had.
///
/// # Errors
///
/// If there is nothing to be had here, or somebody has it.
///
/// # Panics
///
/// If it is asked for none, or for more than a million.
pub fn start(per_second: u32) -> Result<Sampling, Unavailable> {
    assert!(
        (1..=1_000_000).contains(&per_second),
        "a sample takes a microsecond at least"
    );
    signal::start(per_second).map(Sampling)
}

impl Sampling {
    /// Samples so far.
    pub fn taken(&self) -> usize {
        signal::taken()
    }

    /// Ends it.
    pub fn stop(self) -> Samples {
        signal::stop(&self.0)
    }
}

/// The source of an address in a stack, through everything that was inlined there, from the inside out; nothing
/// if the program does not tell. The first call reads the program's tables and takes a moment.
pub fn sources(address: usize) -> Vec<Source> {
    let mut found = Vec::new();
    // It looks at the byte before what it is given, as is right for addresses behind a call; the stacks here
    // have that subtracted already.
    let behind = std::ptr::without_provenance_mut(address.wrapping_add(1));
    backtrace::resolve(behind, |symbol| {
        found.push(Source {
            function: symbol.name().map(|name| format!("{name:#}")),
            file: symbol.filename().map(|path| path.display().to_string()),
        });
    });
    found
}
