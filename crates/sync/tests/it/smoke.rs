//! Runs the benchmark, tiny, with every test run, so that it stays correct.

#[path = "../../benches/latches.rs"]
#[expect(dead_code, reason = "its `main` is not called here")]
mod latches;
