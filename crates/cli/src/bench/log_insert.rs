//! `foxton bench log-insert`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use foxton::{LatchKind, LogBufferKind};
use foxton_lab::{
    bench::{lengths::Length, log_insert, pace::Pace},
    progress::Audience,
};

use super::results::{command_line, finish};
use crate::{output::results_place, seconds::seconds};

/// The arguments of `bench log-insert`.
#[derive(Debug, Args)]
#[command(after_help = "\
Instructions per insert are counted by valgrind's callgrind:

  valgrind --tool=callgrind foxton bench log-insert --bare 100000 --log-buffer hybrid

Examples:
  foxton bench log-insert
  foxton bench log-insert --log-buffer baseline,hybrid --threads 1,64,512 --bytes 120
  foxton bench log-insert --bytes mixed,120 --threads 1,2,4,8
      records of two lengths beside records of their average
  foxton bench log-insert --log-buffer hybrid,hybrid:in-order --threads 1,2,8 --seconds 1
      the cost of completing in order
  foxton bench log-insert --log-buffer baseline,hybrid --latch parking,queue --threads 1,2,64 --bytes 120
      beside a baseline whose latch is granted in order of arrival, like the document's")]
pub(crate) struct LogInsert {
    /// Log buffers to compare, separated by commas; with the suffix `:in-order`, decoupled and
    /// hybrid complete in order [default: baseline,consolidated,decoupled,hybrid].
    #[arg(long, value_delimiter = ',')]
    pub(crate) log_buffer: Vec<LogBufferKind>,
    /// Allocation latches to compare, in buffers that have one, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "parking")]
    pub(crate) latch: Vec<LatchKind>,
    /// Numbers of threads, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,8,64,512", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) threads: Vec<u32>,
    /// Bytes of the records, separated by commas: numbers up to 1048576, or `mixed`, nine of
    /// fourteen with 40 and five with 264, which are 120 on average.
    #[arg(long, value_delimiter = ',', default_value = "120,65536")]
    pub(crate) bytes: Vec<Length>,
    /// Seconds measured for each point and repetition.
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seconds that threads run before each measurement.
    #[arg(long, default_value_t = 0.2, value_parser = seconds)]
    pub(crate) ramp: f64,
    /// Number of times each point is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Directory for the results [default: results/log-insert-TIME].
    #[arg(long, value_parser = results_place)]
    pub(crate) out: Option<PathBuf>,
    /// Only insert this many times with one thread and print nothing; callgrind counts its
    /// instructions.
    #[arg(long, hide = true)]
    pub(crate) bare: Option<u64>,
}

/// Measures.
pub(crate) fn run(arguments: LogInsert) -> Result<ExitCode, String> {
    let buffers = match arguments.log_buffer {
        none if none.is_empty() => LogBufferKind::DELEGATED.to_vec(),
        some => some,
    };
    if let Some(inserts) = arguments.bare {
        buffers
            .iter()
            .for_each(|&buffer| log_insert::bare(buffer, inserts));
        return Ok(ExitCode::SUCCESS);
    }
    let settings = log_insert::Settings {
        buffers,
        latches: arguments.latch,
        lengths: arguments.bytes,
        pace: Pace {
            threads: arguments.threads,
            reps: arguments.reps,
            ramp: Duration::from_secs_f64(arguments.ramp),
            window: Duration::from_secs_f64(arguments.seconds),
            command: command_line(),
        },
    };
    let findings = log_insert::run(&settings, Audience::here());
    finish("log-insert", arguments.out, findings)
}
