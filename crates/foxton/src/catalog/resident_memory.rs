//! Memory of the rows that are in memory, and its limit.
//!
//! Rows and index entries count with the bytes of their keys and values and [`OVERHEAD_BYTES`]
//! each. A transaction counts its own growth, and its worker context adds what was committed to the
//! sum in lots ([`LOT`](crate::engine::free_memory::LOT)). So a transaction mostly writes nothing
//! shared, and the sum lags by less than a lot for each worker context. Restart counts what it
//! loads.
//!
//! # Invariants
//!
//! * I1  Only operations that would make rows grow are refused. Deletions, reads and rollbacks ask
//!   nothing here.
//! * I2  Without a limit nothing is refused, and the sum is not read.

use foxton_sync::cache_line::CachePadded;
use foxton_sync::shim::{AtomicI64, Ordering};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::catalog::index_catalog::is_index_table;
use crate::error::{Request, ResidentRoom, Result};

/// Sum of resident bytes: once for each lot.
static RESIDENT: Site = Site::new(Component::Metadata, Pattern::Unbounded, "resident bytes");

/// Bytes that a row or an index entry counts for beyond its key and its value, about.
const OVERHEAD_BYTES: usize = 64;

/// Returns the bytes for which a row with this value counts.
#[inline(always)]
pub(crate) fn counted_bytes(key: &[u8], value: Option<&[u8]>) -> i64 {
    value.map_or(0, |value| (OVERHEAD_BYTES + key.len() + value.len()) as i64)
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ResidentMemory {
    /// `i64::MAX`: no limit.
    limit: i64,
    sum: CachePadded<AtomicI64>,
}

impl ResidentMemory {
    /// `limit` is in bytes; `u64::MAX` is none.
    pub(crate) fn new(limit: u64) -> ResidentMemory {
        ResidentMemory {
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            sum: CachePadded::default(),
        }
    }

    /// Adds bytes by which committed or loaded rows have grown; negative if they have shrunk.
    pub(crate) fn add(&self, growth: i64, worker: &Worker) {
        worker.account().passed(&RESIDENT);
        // Relaxed: a number, which leads to no memory.
        self.sum.fetch_add(growth, Ordering::Relaxed);
    }

    /// Returns the bytes in use, about.
    pub(crate) fn bytes(&self) -> u64 {
        // Relaxed: see `add`.
        u64::try_from(self.sum.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns the limit in bytes, if there is one.
    pub(crate) fn limit(&self) -> Option<u64> {
        (self.limit < i64::MAX).then_some(self.limit as u64)
    }

    /// Refuses an operation by which rows of `table` grow by `growth` bytes. `own` is what its
    /// worker context has not added yet.
    ///
    /// # Errors
    /// `resident_room` (I1). Never for tables of the database's own: it needs them to declare
    /// indexes and to convert tables.
    #[inline(always)]
    pub(crate) fn check(&self, table: &str, own: i64, growth: impl FnOnce() -> i64) -> Result<()> {
        match self.limit {
            i64::MAX => Ok(()), // I2
            _ => self.check_growth(table, own, growth()),
        }
    }

    #[inline(never)]
    fn check_growth(&self, table: &str, own: i64, growth: i64) -> Result<()> {
        // Relaxed: see `add`.
        let used = self.sum.load(Ordering::Relaxed).saturating_add(own).max(0);
        if growth <= 0 || growth <= self.limit - used || is_index_table(table) {
            return Ok(());
        }
        Err(Request::ResidentRoom(Box::new(ResidentRoom {
            table: table.to_owned(),
            bytes: growth as u64,
            used: used as u64,
            limit: self.limit as u64,
        }))
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxton_sync::worker::Workers;

    #[test]
    fn rows_grow_up_to_the_limit_and_shrink_beyond_it() {
        let worker = Workers::new().worker();
        let memory = ResidentMemory::new(1_000);
        memory.add(700, &worker);
        let check = |table, own, growth| memory.check(table, own, || growth).is_ok();
        assert!(check("rows", 0, 300) && check("rows", 200, 100) && check("rows", -1, 301));
        assert!(!check("rows", 0, 301) && !check("rows", 200, 101));
        assert!(check("rows", 5_000, 0) && check("rows", 5_000, -1));
        assert!(check("foxton:indexes", 0, 301));
        memory.add(-800, &worker);
        assert_eq!((memory.bytes(), memory.limit()), (0, Some(1_000)));
        let unlimited = ResidentMemory::new(u64::MAX);
        unlimited.add(i64::MAX / 2, &worker);
        assert!(unlimited.check("rows", 0, || unreachable!()).is_ok());
        assert_eq!(unlimited.limit(), None);
    }
}
