//! The engine, tested as its users see it, in one program: many programs cost more to link than to
//! run.
//!
//! `cargo test -p foxton --test it NAME::` runs those of the file `NAME.rs`.

mod common;

mod absent_tables;
#[cfg(feature = "account")]
mod account;
mod admission;
mod after_an_end;
mod asynchronous;
mod backup;
mod backup_busy;
mod basics;
mod bounds;
mod cancelled;
mod check;
mod checkpoint;
mod checkpoint_damage;
mod checkpoint_faults;
mod checkpoint_throttle;
mod closing;
mod convert;
mod directory;
mod drop_table;
#[cfg(feature = "hooks")]
mod early;
mod escalation;
mod explicit;
#[cfg(target_os = "linux")]
mod full_disk;
#[cfg(feature = "hooks")]
mod hooks;
#[cfg(feature = "hooks")]
mod idle;
mod index_locks;
mod index_model;
mod index_stress;
mod indexes;
mod isolation;
mod kept_log;
mod levels;
mod lifecycle;
mod long_queues;
mod many;
mod model;
#[cfg(unix)]
mod observe;
mod old_files;
mod online_check;
mod page_memory;
mod paged_ahead;
mod paged_backup;
mod paged_check;
mod paged_large;
mod paged_indexes;
mod paged_model;
mod paged_restart;
mod paged_shrink;
mod paged_storm;
mod paged_tables;
mod paged_tasks;
mod paged_values;
mod patches;
mod phantoms;
#[cfg(unix)]
mod places;
mod read_only;
mod read_then_write;
mod read_views;
mod refusals;
mod restart;
mod restore;
mod savepoints;
mod sessions;
mod snapshot_handles;
#[cfg(feature = "hooks")]
mod snapshot_hooks;
mod snapshot_pages;
mod snapshot_locks;
mod snapshots;
mod stress;
mod yielding;
