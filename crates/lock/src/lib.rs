#![forbid(unsafe_code)]
//! Who may.
