//! Concurrency primitives: latches, parking, epochs, and the account of critical sections.
//!
//! Floor 0 of Foxton, and the only door to atomics. Two databases in one process share no state,
//! and each thread gets all that it needs as a [`Worker`](worker::Worker).
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

/// Process stamp: tells a forked child what belongs to its parent.
pub mod process;

/// Enums whose members have names.
pub mod named_enum;

/// Asymmetric fence, which costs one side nothing.
pub mod asymmetric;

/// Padding to cache lines, and prefetching.
pub mod cache_line;

/// Hardware transactions, where the processor has any.
pub mod htm;

/// Allocator of small indexes: the smallest free one goes first.
pub mod index_allocator;

/// Checksums.
pub mod checksum;

/// Large pages for memory that has filled up.
pub mod huge_pages;

/// Memory of words: reserved at once, given back in parts.
pub mod word_memory;

/// Memory that the allocator keeps.
pub mod memory;

/// Waiting that does not burn a time slice.
pub mod backoff;

/// Clocks: exact, or cheap.
pub mod clock;

/// Number of cores.
pub mod topology;

/// Critical sections, and how often each was passed.
pub mod site;

/// Admission control: limits how many clients work at once.
pub mod admission;

/// Anchors: one word beside the data, for the lock that is on it.
pub mod anchor;

/// Failpoints: named points where a test can intervene.
pub mod failpoint;

/// Parking: a thread or an async task sleeps and is woken exactly once.
pub mod park;

/// Reclamation by epochs and hazard pointers.
pub mod epoch;

/// Worker: everything that belongs to one thread, passed explicitly.
pub mod worker;

/// Counters per worker, summed when read.
pub mod counter;

/// Latches: short physical exclusion.
pub mod latch;

/// A ring of bytes: reserved in order, filled in any order, drained in order.
pub mod ring;

/// Consolidation: threads that want space at the same time ask for it together.
pub mod consolidation;
