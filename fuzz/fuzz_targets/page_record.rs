//! Any bytes as a log record of page recovery.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| foxton_sim::fuzz::page_record(bytes));
