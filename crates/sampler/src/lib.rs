//! Sampler: where the threads of this process spend their time, sampled from inside. No tool of the
//! system takes part, and the sampled code needs no preparation.
//!
//! A timer runs with the processor time of the whole process. Whenever a fixed amount was used, the
//! timer interrupts the thread that uses it, and the sampler records where that thread is and its
//! callers. So a sleeping thread is never sampled, and a running thread is sampled in proportion to
//! its time, whatever else the machine does. It costs nothing while no sampling runs.
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
//! Linux with glibc on x86-64 and 64-bit ARM. Elsewhere [`start`] returns an error.

/// The timer, its signal, and the handler.
#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod signal;

/// Sampling is not available here.
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

/// Reason why sampling cannot start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unavailable {
    /// Not on this system.
    Platform,
    /// This process is being sampled already: one sampling at a time.
    Taken,
    /// Other code in this process uses the signal of the timer.
    Signal,
    /// The system refused, with this error number.
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

/// Result of sampling.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// For each sample its addresses, from the innermost function to the outermost known.
    pub stacks: Vec<Vec<usize>>,
    /// Number of samples for which there was no space.
    pub lost: usize,
}

/// A function and its source file, as far as the program's debug tables say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The function, with its path.
    pub function: Option<String>,
    /// The file.
    pub file: Option<String>,
}

/// A sampling that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Sampling(signal::Taken);

/// Starts sampling every thread of the process: this many times for each second of processor time
/// that all of them use together. The system checks its timers some 100 to 1,000 times a second and
/// core; higher rates are not reached.
///
/// # Errors
///
/// If sampling is not available, or is running already.
///
/// # Panics
///
/// If the rate is 0, or more than a million.
pub fn start(per_second: u32) -> Result<Sampling, Unavailable> {
    assert!(
        (1..=1_000_000).contains(&per_second),
        "a sample takes a microsecond at least"
    );
    signal::start(per_second).map(Sampling)
}

impl Sampling {
    /// Number of samples so far.
    pub fn taken(&self) -> usize {
        signal::taken()
    }

    /// Stops sampling and returns the samples.
    pub fn stop(self) -> Samples {
        signal::stop(&self.0)
    }
}

/// Returns the sources of an address in a stack, through everything that was inlined there, from
/// the inside out. Returns nothing if the program's tables do not say. The first call reads the
/// tables and takes a moment.
pub fn sources(address: usize) -> Vec<Source> {
    let mut found = Vec::new();
    // The resolver looks at the byte before the address, as is right for addresses behind a call.
    // In these stacks that byte is subtracted already.
    let behind = std::ptr::without_provenance_mut(address.wrapping_add(1));
    backtrace::resolve(behind, |symbol| {
        found.push(Source {
            function: symbol.name().map(|name| format!("{name:#}")),
            file: symbol.filename().map(|path| path.display().to_string()),
        });
    });
    found
}
