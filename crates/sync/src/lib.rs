//! How threads meet.
//!
//! Floor 0 of Foxton: latches, parking, epochs, the account of critical sections, and the only
//! door to atomics. Nothing here is global: two databases in one process share no state, and
//! everything a thread needs is handed to it as a [`Worker`](worker::Worker).
//!
//! The order of the modules below is the ladder: a module uses only modules listed above it.
//!
//! ```
//! use foxton_sync::latch::{Kind, Latched};
//! use foxton_sync::site::{Component, Pattern, Site};
//! use foxton_sync::worker::Workers;
//!
//! static SITE: Site = Site::new(Component::Metadata, Pattern::Unbounded, "example");
//!
//! let workers = Workers::new();
//! let worker = workers.worker();
//! let total = Latched::new(Kind::Parking, &SITE, 40);
//! total.with(&worker, |total| *total += 2);
//! assert_eq!(total.with(&worker, |total| *total), 42);
//! ```

/// Atomics, cells, mutexes and threads: std's, or the model checker's.
pub mod shim;

/// Choices that people make by name.
pub mod named_enum;

/// A fence that costs one side nothing.
pub mod asymmetric;

/// Values kept from sharing a cache line.
pub mod cache_line;

/// Transactions of the processor, where it has any.
pub mod htm;

/// Checksums of short bytes.
pub mod checksum;

/// Large pages for memory that has filled up.
pub mod huge_pages;

/// Waiting without burning a time slice.
pub mod backoff;

/// Time: exact, or cheap.
pub mod clock;

/// What the machine offers.
pub mod topology;

/// Critical sections, and how often each was passed.
pub mod site;

/// At most so many at work at once.
pub mod admission;

/// Points where a test can step in.
pub mod failpoint;

/// Sleeping and waking: a thread or an async task, exactly once.
pub mod park;

/// Reclamation by epochs.
pub mod epoch;

/// Everything that belongs to one thread, passed explicitly.
pub mod worker;

/// Counters that nobody shares until they are read.
pub mod counter;

/// Short physical exclusion.
pub mod latch;

/// A ring of bytes: places given out in order, filled in any order, taken out in order.
pub mod ring;

/// Threads that want a place at the same time ask for it together.
pub mod consolidation;
