#![forbid(unsafe_code)]
//! Faults, crashes and checkers.
