//! Where a record was found, for a caller that looks for it again soon.
//!
//! A transaction that reads a row and then writes it searches for the same key twice, under two
//! guards, because it may not keep a guard in between. A hint keeps the address that the first
//! search found.
//!
//! # Why the address may be followed
//!
//! * The hint names its table by a number that no other table has. So the table was not dropped
//!   since, and record and table have one epoch domain.
//! * The guard now and the guard of the search continue each other (`Guard::continues`): nothing
//!   that the search found has been freed, nor is while this guard exists.
//!
//! So the record exists. It has the key that was searched for, or the hint is of no use, and may
//! have been removed from the table since, as any record that was located.

use std::ptr::NonNull;

use foxton_sync::epoch::{Guard, PinEpoch};

use super::record::RecordPointer;

/// The place of a record that [`locate_again`](super::RecordTable::locate_again) found last.
#[derive(Debug, Default)]
pub struct RecordHint {
    found: Option<Place>,
}

#[derive(Debug)]
struct Place {
    /// [`RecordTable`](super::RecordTable)'s number.
    table: u64,
    epoch: PinEpoch,
    record: NonNull<u8>,
}

// SAFETY: the address is followed only as the first page says, whichever thread does it: a hint
// that another thread has got comes after the search.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl RecordHint {
    /// Records what a search of `table` under `guard` found.
    #[inline]
    pub(super) fn set(&mut self, table: u64, guard: &Guard<'_>, pointer: RecordPointer<'_>) {
        self.found = Some(Place {
            table,
            epoch: guard.epoch(),
            record: pointer.raw(),
        });
    }

    /// Returns the record of `key`, if it is the one recorded. The guard pins the domain of
    /// `table`, which is borrowed for as long as `'g`.
    #[inline]
    pub(super) fn recall<'g>(
        &self,
        table: u64,
        guard: &'g Guard<'_>,
        key: &[u8],
    ) -> Option<RecordPointer<'g>> {
        let found = self.found.as_ref()?;
        if found.table != table || !guard.continues(found.epoch) {
            return None;
        }
        // SAFETY: the record exists for as long as the guard and its table (see the first page).
        let pointer = unsafe { RecordPointer::new(found.record) };
        (pointer.record().key() == key).then_some(pointer)
    }
}
