#![forbid(unsafe_code)]
//! The foxton command.

fn main() {}
