#![forbid(unsafe_code)]
//! What happened.
