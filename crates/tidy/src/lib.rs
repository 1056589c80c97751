#![forbid(unsafe_code)]
//! House rules that a test can read.
