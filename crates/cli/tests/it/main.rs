//! The command, tested in one program: many programs cost more to link than to run.
//!
//! `cargo test -p foxton-cli --test it NAME::` runs those of the file `NAME.rs`.

mod support;

mod care;
mod command;
mod components;
mod hostile;
#[cfg(target_os = "linux")]
mod killed;
#[cfg(target_os = "linux")]
mod leftovers;
#[cfg(target_os = "linux")]
mod output;
mod report;
mod reproduce;
mod results;
mod row_counts;
mod rows;
#[cfg(unix)]
mod seeing;
#[cfg(target_os = "linux")]
mod terminal;
