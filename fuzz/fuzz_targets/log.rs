//! Any bytes as the stream of a log.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| foxton_sim::fuzz::log(bytes));
