//! Any bytes as what another process answers about itself.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| foxton_sim::fuzz::picture(bytes));
