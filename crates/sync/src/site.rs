//! Critical sections, and how often each was passed.
//!
//! Every place where two threads can meet (a latch, a read-modify-write on a shared cache line, a
//! queue of messages) is a static `Site`. Its `Component` says what it belongs to; its `Pattern`
//! says how many threads can meet there. Johnson, Pandis and Ailamaki showed that scaling is lost
//! where the pattern is unbounded, whatever the latch. So the number of passages by component and
//! pattern predicts larger machines than the one at hand. The account must be complete: a shared
//! counter that no site declares is a defect.
//!
//! With the feature `account` each worker counts its own passages in an `Account`. Without it an
//! account has no size and counting is an empty function.
//!
//! # State
//!
//! An account is an open-addressed table of 256 rows, each a site and a count. One worker writes it
//! and any thread reads it. Sites that find the table full are counted in `rest`, by component and
//! pattern only.
//!
//! # Invariants
//!
//! * I1  Only the worker that has the account writes it, so a count needs no read-modify-write.
//! * I2  A row's site is written once and never changes.

use std::fmt;
use std::ptr;

/// Part of the engine that a critical section belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// The lock manager.
    Lock,
    /// Physical exclusion on pages and index nodes.
    Latch,
    /// The log and its buffers.
    Log,
    /// Frames, and which owner has which page.
    BufferPool,
    /// Catalog, workers, epochs.
    Metadata,
    /// Beginning, committing, rolling back.
    Transaction,
    /// Allocation of space in memory or on the device.
    Space,
    /// Handing something to another thread.
    Message,
}

impl Component {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::Lock,
        Self::Latch,
        Self::Log,
        Self::BufferPool,
        Self::Metadata,
        Self::Transaction,
        Self::Space,
        Self::Message,
    ];
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lock => "lock",
            Self::Latch => "latch",
            Self::Log => "log",
            Self::BufferPool => "buffer pool",
            Self::Metadata => "metadata",
            Self::Transaction => "transaction",
            Self::Space => "space",
            Self::Message => "message",
        })
    }
}

/// Number of threads that can meet in a critical section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// Any number: more cores, more contention.
    Unbounded,
    /// A number that does not grow with the machine: producer and consumer, a pair of neighbours.
    Fixed,
    /// Any number, but waiting threads combine their work, so that contention grows more slowly
    /// than their number.
    Cooperative,
}

impl Pattern {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Unbounded, Self::Fixed, Self::Cooperative];
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unbounded => "unbounded",
            Self::Fixed => "fixed",
            Self::Cooperative => "cooperative",
        })
    }
}

/// A place where threads can meet.
///
/// ```
/// use foxton_sync::site::{Component, Pattern, Site};
///
/// static TAIL: Site = Site::new(Component::Log, Pattern::Unbounded, "log buffer tail");
/// assert_eq!(TAIL.to_string(), "log buffer tail (log, unbounded)");
/// ```
#[derive(Debug)]
pub struct Site {
    /// The part of the engine that it belongs to.
    pub component: Component,
    /// Number of threads that can meet in it.
    pub pattern: Pattern,
    /// Name for people.
    pub name: &'static str,
}

impl Site {
    /// Returns a site; made for statics.
    pub const fn new(component: Component, pattern: Pattern, name: &'static str) -> Self {
        Self {
            component,
            pattern,
            name,
        }
    }

    /// Returns a number below `most`, drawn from its name: other sites may have the same (Fowler,
    /// Noll and Vo's hash).
    pub(crate) fn number(&self, most: usize) -> usize {
        let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
        self.name.bytes().fold(2_166_136_261, step) as usize % most
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.name, self.component, self.pattern)
    }
}

/// Number of passages of one site.
#[derive(Debug, Clone, Copy)]
pub struct Passages {
    /// The site.
    pub site: &'static Site,
    /// Number of its passages.
    pub count: u64,
}

/// True if passages are counted: the feature `account`.
pub const COUNTING: bool = cfg!(feature = "account");

/// Passages summed over workers: one entry for each site, the most passed first.
///
/// Empty when the feature `account` is off.
#[derive(Debug, Clone, Default)]
pub struct AccountSummary {
    sites: Vec<Passages>,
    rest: [[u64; Pattern::ALL.len()]; Component::ALL.len()],
}

impl AccountSummary {
    /// Each site that was passed, the most passed first.
    pub fn sites(&self) -> &[Passages] {
        &self.sites
    }

    /// Passages of all sites of `component` and `pattern`.
    pub fn count(&self, component: Component, pattern: Pattern) -> u64 {
        let listed = self.sites.iter().filter(|passages| {
            passages.site.component == component && passages.site.pattern == pattern
        });
        listed.map(|passages| passages.count).sum::<u64>()
            + self.rest[component as usize][pattern as usize]
    }

    /// Returns the passages since `before`, of the same workers.
    ///
    /// ```
    /// use foxton_sync::site::{COUNTING, Component, Pattern, Site};
    /// use foxton_sync::worker::Workers;
    ///
    /// static TAIL: Site = Site::new(Component::Log, Pattern::Unbounded, "log buffer tail");
    ///
    /// let workers = Workers::new();
    /// let worker = workers.worker();
    /// worker.account().passed_many(&TAIL, 2);
    /// let before = workers.account();
    /// worker.account().passed_many(&TAIL, 3);
    /// let since = workers.account().since(&before);
    /// assert_eq!(since.count(Component::Log, Pattern::Unbounded), if COUNTING { 3 } else { 0 });
    /// ```
    pub fn since(&self, before: &AccountSummary) -> AccountSummary {
        let mut since = self.clone();
        for passages in &mut since.sites {
            let known = before.sites.iter();
            let mut known = known.filter(|known| ptr::eq(known.site, passages.site));
            let then = known.next().map_or(0, |known| known.count);
            passages.count = passages.count.wrapping_sub(then);
        }
        since.sites.retain(|passages| passages.count > 0);
        let most_first = |passages: &Passages| std::cmp::Reverse(passages.count);
        since.sites.sort_by_key(most_first);
        for (counts, then) in since.rest.iter_mut().zip(&before.rest) {
            for (count, then) in counts.iter_mut().zip(then) {
                *count = count.wrapping_sub(*then);
            }
        }
        since
    }

    /// Adds the passages in `account`.
    pub(crate) fn add(&mut self, account: &Account) {
        account.add_to(self);
    }
}

#[cfg(feature = "account")]
pub use counting::Account;

#[cfg(not(feature = "account"))]
pub use silent::Account;

#[cfg(not(feature = "account"))]
mod silent {
    use super::{AccountSummary, Site};

    /// Passages of one worker: none are counted, because the feature `account` is off.
    #[derive(Debug, Default)]
    pub struct Account(());

    // Without the feature, the account costs nothing: no memory here, no code in `passed`.
    const _: () = assert!(size_of::<Account>() == 0);

    impl Account {
        /// Counts a passage through `site`.
        #[inline(always)]
        pub fn passed(&self, _site: &'static Site) {}

        /// Counts `count` passages through `site`.
        #[inline(always)]
        pub fn passed_many(&self, _site: &'static Site, _count: u64) {}

        pub(super) fn add_to(&self, _summary: &mut AccountSummary) {}
    }
}

#[cfg(feature = "account")]
mod counting {
    use super::{AccountSummary, Component, Passages, Pattern, Site};
    use crate::shim::{AtomicU64, Ordering};
    use std::ptr;
    use std::sync::OnceLock;

    /// Rows of an account; a power of two. The engine has some dozens of sites.
    const ROWS: usize = if cfg!(loom) { 4 } else { 256 };

    /// Passages of one worker.
    ///
    /// ```
    /// use foxton_sync::site::{Component, Pattern, Site};
    /// use foxton_sync::worker::Workers;
    ///
    /// static TAIL: Site = Site::new(Component::Log, Pattern::Unbounded, "log buffer tail");
    ///
    /// let workers = Workers::new();
    /// workers.worker().account().passed_many(&TAIL, 3);
    /// assert_eq!(workers.account().count(Component::Log, Pattern::Unbounded), 3);
    /// ```
    #[derive(Debug)]
    pub struct Account {
        rows: Box<[AccountRow]>,
        rest: [[AtomicU64; Pattern::ALL.len()]; Component::ALL.len()],
    }

    #[derive(Debug)]
    struct AccountRow {
        site: OnceLock<&'static Site>,
        count: AtomicU64,
    }

    impl Default for Account {
        fn default() -> Self {
            let row = |_| AccountRow {
                site: OnceLock::new(),
                count: AtomicU64::new(0),
            };
            Self {
                rows: (0..ROWS).map(row).collect(),
                rest: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            }
        }
    }

    impl Account {
        /// Counts a passage through `site`.
        #[inline]
        pub fn passed(&self, site: &'static Site) {
            self.passed_many(site, 1);
        }

        /// Counts `count` passages through `site`.
        #[inline]
        pub fn passed_many(&self, site: &'static Site, count: u64) {
            let counter = self.counter(site);
            // Relaxed: no other thread writes it (I1).
            let sum = counter.load(Ordering::Relaxed).wrapping_add(count);
            counter.store(sum, Ordering::Relaxed);
        }

        #[inline]
        fn counter(&self, site: &'static Site) -> &AtomicU64 {
            let address = ptr::from_ref(site).addr() as u64;
            // Fibonacci hashing: statics are adjacent, the upper bits of the product are not.
            let first = (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize;
            for step in 0..ROWS {
                let row = &self.rows[(first + step) % ROWS];
                if ptr::eq(*row.site.get_or_init(|| site), site) {
                    return &row.count;
                }
            }
            &self.rest[site.component as usize][site.pattern as usize]
        }

        pub(super) fn add_to(&self, summary: &mut AccountSummary) {
            for row in &self.rows {
                let Some(&site) = row.site.get() else {
                    continue;
                };
                let count = row.count.load(Ordering::Relaxed);
                match summary
                    .sites
                    .iter_mut()
                    .find(|known| ptr::eq(known.site, site))
                {
                    Some(known) => known.count += count,
                    None => summary.sites.push(Passages { site, count }),
                }
            }
            for component in Component::ALL {
                for pattern in Pattern::ALL {
                    let rest = &self.rest[component as usize][pattern as usize];
                    summary.rest[component as usize][pattern as usize] +=
                        rest.load(Ordering::Relaxed);
                }
            }
            summary
                .sites
                .sort_by_key(|passages| std::cmp::Reverse(passages.count));
        }
    }
}
