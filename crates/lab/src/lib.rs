#![forbid(unsafe_code)]
//! The laboratory.
