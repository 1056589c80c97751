//! Thousands of inserts for an instruction counter:
//!
//! ```text
//! cargo build --release -p foxton-log --example log_instructions
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*measured*' \
//!     target/release/examples/log_instructions hybrid
//! ```
//!
//! The measured part is ten thousand records of 120 bytes from one thread, into a buffer with space
//! for all of them. The argument is the name of a log buffer. Callgrind's total, divided by ten
//! thousand, is the number of instructions of an insert.

use std::convert::Infallible;
use std::sync::Arc;

use foxton_log::device::null::NullDevice;
use foxton_log::{Log, LogOptions};
use foxton_sync::worker::{Worker, Workers};

const RECORDS: usize = 10_000;

#[inline(never)]
fn measured(log: &Log, worker: &Worker) {
    for _ in 0..RECORDS {
        let inserted = log.insert(worker, 1, &[&[7; 120]]);
        inserted.expect("a device without files does not fail");
    }
}

fn main() {
    let name = std::env::args().nth(1).expect("the name of a log buffer");
    let mut options = LogOptions::default();
    options.buffer = name.parse().expect("the name of a log buffer");
    options.buffer_bytes = 64 << 20;
    let visit = &mut |_: foxton_log::RecordView<'_>| Ok::<_, Infallible>(());
    let device = Arc::new(NullDevice::default());
    let (log, _) = Log::open(device, options, *b"the log measured", visit).expect("a new log");
    measured(&log, &Workers::new().worker());
}
