//! A garbled manifest and garbled layers, looked at.

#![no_main]

use foxton_sim::fuzz::Whole;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static WHOLE: LazyLock<Whole> = LazyLock::new(Whole::new);

fuzz_target!(|bytes: &[u8]| WHOLE.checkpoint(bytes));
