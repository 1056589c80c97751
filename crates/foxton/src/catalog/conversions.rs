//! Conversions: where the rows of a table are that was converted, truncated or dropped.
//!
//! A table that is converted or truncated for the first time gets a *twin*: a table of the
//! component that the rows will be in, with a number of its own. Its record in the log is that of
//! any table, with a name that tells the number of the table whose twin it is. A conversion copies
//! the rows into a twin that has none, and a truncation copies nothing. So a table has three twins
//! at most. One row of a table of the database's own says which of them has the rows:
//!
//! ```text
//! table "foxton:conversions", of keys "foxton:index" and values "u64"
//! key     name of a table
//! value   number of its twin, which has the rows; without such a row the table has them.
//!         With the highest bit: the table of this number was dropped, with its twins
//! ```
//!
//! A table of the same name that is made later has another number, so the row is not about it. The
//! numbers of dropped tables are not used again.
//!
//! Rows, locks, log records, pages and layers name a table by its number. So those of both
//! components are never taken for each other, wherever replay or a checkpoint begins.
//!
//! # State
//!
//! ```text
//! Current ──the switch, under X──▶ Former ──the rows are freed, and others come──▶ Target
//!    ▲ │                             ▲ │                                             │
//!    └─┼─────────────────────────────┼─┼──────────────the switch, under X────────────┤
//!      │                             └─┼────────────────────the conversion failed────┘
//!      └────────── the drop, under X ──┴──▶ Dropped
//! ```
//!
//! The entries of a paged index that was dropped, too, are in a table that is Dropped.
//!
//! # Invariants
//!
//! * I1  Of a table and its twins one is current: the one that the row names; none, if they were
//!   dropped. It is found by the table's name, and no transaction uses the others.
//! * I2  The row changes in the transaction that has locked the current table X, after all rows of
//!   the other one were committed. So after a kill it names a table with all rows.
//! * I3  The state changes before that transaction releases its locks. So a transaction that has
//!   locked a table and then reads its state knows whether the table has the rows. If not, it
//!   releases the lock, so nothing waits for it but for a moment.
//! * I4  Rows of a former table are garbage, and so are those that a killed conversion left. Only
//!   the [thread that frees them](crate::txn) and the next conversion touch them, under X.

use std::ops::Bound;
use std::sync::Arc;

use foxton_sync::shim::{AtomicU32, Ordering};
use foxton_sync::worker::Worker;

use super::index_catalog::IndexName;
use super::{Catalog, OpenTable};
use crate::types::codec::{Key, Value};
use crate::types::table::Table;

/// The table of conversions; see the [module](self).
pub(crate) const CONVERSIONS: Table<IndexName<'static>, u64> =
    Table::new("foxton:conversions").resident();

/// Highest bit of a value: the table was dropped.
pub(crate) const DROPPED: u64 = 1 << 63;

/// First part of the name of a twin; the number of its table follows.
const TWIN: &str = "foxton:twin-of-";

/// Returns the name that the record of a twin has.
pub(super) fn twin_name(table: u32) -> String {
    format!("{TWIN}{table}")
}

/// Returns the number of the table whose twin has this name in its record.
pub(super) fn twin_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix(TWIN)?.parse().ok()?;
    // No other spelling.
    (twin_name(number) == name).then_some(number)
}

/// True if no program can have a table of this name.
pub(crate) fn is_twin_name(name: &str) -> bool {
    name.starts_with(TWIN)
}

/// Whether a table has the rows that its name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum RowsPlace {
    /// It has them.
    Current = 0,
    /// Its twin has them, and what it has is garbage.
    Former = 1,
    /// Its twin has them, and a conversion copies them.
    Target = 2,
    /// There is no such table any more, and what it has is garbage.
    Dropped = 3,
}

/// See [`RowsPlace`].
#[derive(Debug, Default)]
pub(crate) struct PlaceWord(AtomicU32);

impl PlaceWord {
    pub(super) fn new(place: RowsPlace) -> PlaceWord {
        PlaceWord(AtomicU32::new(place as u32))
    }

    #[inline(always)]
    pub(crate) fn is(&self, place: RowsPlace) -> bool {
        // Relaxed: ordered by the lock on the table (I3).
        self.0.load(Ordering::Relaxed) == place as u32
    }

    /// True if the rows are garbage.
    pub(crate) fn is_garbage(&self) -> bool {
        self.is(RowsPlace::Former) || self.is(RowsPlace::Dropped)
    }

    /// Only for the holder of an exclusive lock on the table, or while no transaction runs.
    pub(crate) fn set(&self, place: RowsPlace) {
        // Relaxed: see `is`.
        self.0.store(place as u32, Ordering::Relaxed);
    }
}

impl Catalog {
    /// Makes the tables current that the rows of [`CONVERSIONS`] name, when a database is opened.
    ///
    /// # Errors
    /// A description of a row that is wrong.
    pub(crate) fn recall_conversions(&self, worker: &Worker) -> Result<(), String> {
        let Some(conversions) = self.find(CONVERSIONS.name()) else {
            return Ok(());
        };
        let guard = worker.pin();
        let mut rows = conversions.resident().forward(&guard, Bound::Unbounded);
        while let Some(row) = rows.next_record() {
            let mut hazard = guard.hazard();
            let Some(value) = row.value(&mut hazard) else {
                continue;
            };
            let name = IndexName::decode(row.key()).map_err(|error| error.to_string())?;
            let number = <u64 as Value>::decode(value).map_err(|error| error.to_string())?;
            let is_right = match number & DROPPED {
                0 => self.recall_twin(&name, number),
                _ => self.recall_drop(&name, number & !DROPPED),
            };
            if !is_right {
                return Err(format!("{number:#x} is no twin of table \"{name}\""));
            }
        }
        Ok(())
    }

    /// Returns false if `number` is no twin of the table called `name`.
    fn recall_twin(&self, name: &str, number: u64) -> bool {
        let Some(table) = self.find(name) else {
            return false;
        };
        let twins = self.twins(&table);
        let twin = twins
            .iter()
            .find(|twin| u64::from(twin.record.id) == number);
        let Some(twin) = twin else { return false };
        self.switch(&table, twin);
        true
    }

    /// Returns false if `number` is no table called `name`.
    fn recall_drop(&self, name: &str, number: u64) -> bool {
        let tables = self.tables();
        let table = usize::try_from(number).ok().and_then(|at| tables.get(at));
        let Some(table) = table.filter(|table| table.record.name == name) else {
            return false;
        };
        self.drop_table(table);
        true
    }

    /// Makes `to` have the rows, and no longer `from`, its twin.
    pub(crate) fn switch(&self, from: &Arc<OpenTable>, to: &Arc<OpenTable>) {
        self.set_current(to);
        from.place.set(RowsPlace::Former);
        to.place.set(RowsPlace::Current);
    }

    /// Returns the tables whose rows are garbage.
    pub(crate) fn former_tables(&self) -> Vec<Arc<OpenTable>> {
        let mut tables = self.tables();
        tables.retain(|table| table.place.is_garbage());
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twin_names_its_table_in_one_way() {
        assert_eq!(twin_of(&twin_name(7)), Some(7));
        for other in [
            "foxton:twin-of-",
            "foxton:twin-of-07",
            "foxton:twin-of-+7",
            "users",
        ] {
            assert_eq!(twin_of(other), None, "{other}");
        }
        assert!(is_twin_name("foxton:twin-of-07") && !is_twin_name("users"));
    }
}
