//! Signals that end the program, or stop it for a while.
//!
//! Some commands must do something before: restore the terminal, or remove databases. A thread
//! waits for the signals, does that, and then lets the signal have its usual effect. So a parent
//! process sees which signal ended the program. A second signal has its usual effect at once, in
//! case the thread is stuck.
//!
//! A signal that is ignored when the program starts stays ignored, as `nohup` and scripts expect of
//! background jobs.

use std::{ffi::c_int, fs, io, process, sync::Arc, thread};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    flag,
    iterator::Signals,
    low_level,
};

/// Signals that end a program by default and that a user or a system sends.
pub(crate) const ENDING: [c_int; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Calls `before` on a thread of its own when one of `ending` arrives; then the signal ends the
/// program.
pub(crate) fn before_end(
    ending: &[c_int],
    before: impl FnOnce(c_int) + Send + 'static,
) -> Result<(), String> {
    let mut before = Some(before);
    handle(ending, &[], move |signal| {
        if let Some(before) = before.take() {
            before(signal);
        }
        end_by(signal)
    })
}

/// Calls `each` on a thread of its own with every signal that arrives. After one of `ending`, the
/// next one of them ends the program at once.
pub(crate) fn handle(
    ending: &[c_int],
    others: &[c_int],
    mut each: impl FnMut(c_int) + Send + 'static,
) -> Result<(), String> {
    let ignored = ignored();
    let heeded = |signals: &[c_int]| -> Vec<c_int> {
        let heeded = signals.iter().filter(|signal| !ignored.contains(signal));
        heeded.copied().collect()
    };
    let (ending, others) = (heeded(ending), heeded(others));
    let started = || -> io::Result<()> {
        let is_second = Arc::default();
        for &signal in &ending {
            // In this order: the first signal finds the flag as it was.
            flag::register_conditional_default(signal, Arc::clone(&is_second))?;
            flag::register(signal, Arc::clone(&is_second))?;
        }
        let mut signals = Signals::new(ending.iter().chain(&others))?;
        let wait = move || {
            for signal in signals.forever() {
                each(signal);
            }
        };
        let name = "foxton-signals".to_owned();
        thread::Builder::new().name(name).spawn(wait).map(drop)
    };
    started().map_err(|error| format!("signals cannot be handled: {error}"))
}

/// Ends the program by this signal.
pub(crate) fn end_by(signal: c_int) -> ! {
    // If it does not end the program, the code is what a shell reports for it.
    let _ = low_level::emulate_default_handler(signal);
    process::exit(128 + signal);
}

/// The signals that this process ignores. Only Linux tells; elsewhere none is taken as ignored.
fn ignored() -> Vec<c_int> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    (1..=64)
        .filter(|signal| mask & 1 << (signal - 1) != 0)
        .collect()
}
