//! The judges, tested in one program: many programs cost more to link than to run.
//!
//! `cargo test -p foxton-sim --test it NAME::` runs those of the file `NAME.rs`.

mod backups;
#[cfg(target_os = "linux")]
mod calls;
mod cases;
mod component_faults;
mod components;
mod crash;
mod dumps;
mod faults;
mod flips;
mod forged;
mod fuzz;
mod kill;
mod levels;
mod lists;
mod pages;
mod pages_alone;
#[cfg(feature = "planted")]
mod planted;
#[cfg(feature = "planted")]
mod planted_snapshots;
#[cfg(feature = "hooks")]
mod points;
#[cfg(feature = "hooks")]
mod power;
mod serializable;
