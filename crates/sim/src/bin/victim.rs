#![forbid(unsafe_code)]
//! The process that the kill tests kill: takes its orders as arguments.

use foxton_sim::victim::{self, Orders};
use std::{env, process};

fn main() {
    process::exit(victim::carry_out(Orders::take(env::args_os().skip(1))));
}
