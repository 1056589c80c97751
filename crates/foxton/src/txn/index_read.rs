//! Reading rows by an index.
//!
//! # Protocol
//!
//! An entry is looked at before anything is locked; it says which row it leads to. Then the *row* is
//! locked, and then the entry looked at again. As long as the row is locked the entry stays: to remove it
//! takes the row exclusively (`index_write`). So an entry that leads to a row needs no lock of its own, and a
//! reader by an index comes to the row's lock as a writer does: with no lock on an entry in hand that the
//! writer wants next.
//!
//! What is *not* there needs locks in the index, as in a table:
//!
//! * the gap before each entry that a scan comes to, and the one past its end, named in the index;
//! * the name of a key that a unique index was asked for and does not have;
//! * the name of a ghost, with its gap: it could get a value again.
//!
//! # Names
//!
//! An index has a number of its own, and its entries and gaps are names below that, with intentions on
//! the whole of it. A lock on the table does not cover them, nor the other way round: so whoever escalates
//! to the whole of one has no rights in the other, and a lock manager needs to know nothing of indexes.
//! Dropping an index takes both.
//!
//! Where [no ranges are held](crate::Isolation), the row is locked for as long as the level says, and no gap.
//! An entry that leads to it is looked at under that lock, so what is read was committed and has the key.
//!
//! # Races
//!
//! * *The entry goes, or leads elsewhere, before the row is locked.* It is looked at again, and then
//!   looked for again. The row that was locked for nothing stays locked, which is only too much.
//! * *A ghost gets a value while we wait for its name,* since its removal was taken back. Then we hold a
//!   name in the index and want a row, in the other order; who waits for whom is known, and a deadlock is
//!   found as any other.

use std::ops::{ControlFlow, RangeBounds};

use foxton_lock::mode::{GapPart, Mode};
use foxton_lock::name::Name;
use foxton_store::memory::Record;
use foxton_sync::epoch::{Guard, Hazard};
use smallvec::SmallVec;

use super::attempt::{AttemptResult, done};
use super::index_plan::CachedIndexLookup;
use super::scan::Visit;
use super::scan_state::{GAP, Progress, Walked};
use super::short_lock::ShortLock;
use super::state::{State, TableLocks, check_key};
use crate::catalog::index_catalog::IndexRecord;
use crate::catalog::{OpenIndex, OpenTable, check_types};
use crate::engine::Engine;
use crate::engine::early_release::ReadDependencies;
use crate::error::{IndexError, Result};
use crate::testing::failpoint;
use crate::testing::injected_fault::{Fault, Planted};
use crate::types::codec::{Key, Value};
use crate::types::index::Index;
use crate::types::index_entry::EntryKind;
use crate::types::isolation::LockDuration;
use crate::types::lock_options::{LockOptions, LockWait};

/// What reading by an index gives: the index key, the row's key and its value.
pub(crate) struct Found<'f> {
    pub(crate) index_key: &'f [u8],
    pub(crate) key: &'f [u8],
    pub(crate) value: &'f [u8],
}

/// Comes from entries to rows.
struct IndexLookup<'g, 'a, F> {
    engine: &'a Engine,
    guard: &'g Guard<'g>,
    kind: EntryKind,
    table: &'g OpenTable,
    row_mode: Mode,
    dependencies: &'a ReadDependencies,
    /// What names the entry's value while it is looked at, and the row's.
    hazards: [Hazard<'g>; 2],
    /// The value that the entry had when what it leads to was locked; `None`, if it was a ghost.
    locked: Option<Locked>,
    take: F,
}

/// The value of an entry: no longer than two keys, mostly short.
type Locked = SmallVec<[u8; 32]>;

impl<'g, F> IndexLookup<'g, '_, F> {
    #[inline(always)]
    fn planted(&self) -> Planted {
        self.engine.options.planted()
    }

    /// Locks the row that a live entry leads to. False: it is a ghost.
    fn lock_row(
        &mut self,
        locks: &mut TableLocks<'_>,
        record: &'g Record,
        short_lock: Option<&ShortLock>,
    ) -> Result<AttemptResult<bool>> {
        let value = record.value(&mut self.hazards[0]);
        self.locked = value.map(Locked::from_slice);
        let Some(value) = &self.locked else {
            return Ok(AttemptResult::Done(false));
        };
        let (_, key) = self.kind.read(record.key(), value);
        self.guard.failpoints().pass(&failpoint::ENTRY_READ);
        let id = self.table.record.id;
        done!(locks.lock_table_name(Name::table(id), self.row_mode.parent_mode()));
        let name = Name::key(id, key, &self.engine.hasher);
        done!(locks.lock_for(short_lock, name, self.row_mode));
        Ok(AttemptResult::Done(true))
    }

    /// Whether the entry still leads where it did when that was locked.
    fn leads_there(&mut self, record: &Record) -> bool {
        record.value(&mut self.hazards[0]) == self.locked.as_deref()
    }

    /// The row that an entry leads to, which is locked; nothing, if one of the two has no value.
    fn find<'f>(&'f mut self, record: &'f Record) -> Option<(Found<'f>, &'f mut F)> {
        let [of_entry, of_row] = &mut self.hazards;
        let (index_key, key) = self.kind.read(record.key(), record.value(of_entry)?);
        let row = self.table.rows.get(self.guard, key)?;
        self.dependencies.note(record);
        self.dependencies.note(row);
        let value = row.value(of_row)?;
        let found = Found {
            index_key,
            key,
            value,
        };
        Some((found, &mut self.take))
    }
}

impl<'g, F: FnMut(Found<'_>) -> ControlFlow<()>> Visit<'g> for IndexLookup<'g, '_, F> {
    const BY_NAME: bool = false;

    fn lock(
        &mut self,
        locks: &mut TableLocks<'_>,
        record: &'g Record,
        name: Name,
        mode: Mode,
    ) -> Result<AttemptResult<()>> {
        match (done!(self.lock_row(locks, record, None)), mode.gap_part()) {
            (true, GapPart::None) => Ok(AttemptResult::Done(())),
            (true, _) if self.planted().is(Fault::EntryGapUnlocked) => Ok(AttemptResult::Done(())),
            (true, _) => locks.lock_in_scan(name, GAP),
            (false, _) => locks.lock_in_scan(name, mode),
        }
    }

    fn lock_alone(
        &mut self,
        locks: &mut TableLocks<'_>,
        record: &'g Record,
        (name, mode): (Name, Mode),
        short_lock: Option<&ShortLock>,
    ) -> Result<AttemptResult<()>> {
        match done!(self.lock_row(locks, record, short_lock)) {
            true => Ok(AttemptResult::Done(())),
            false => locks.lock_for(short_lock, name, mode),
        }
    }

    fn is_locked(&mut self, record: &'g Record) -> bool {
        self.leads_there(record)
    }

    fn take(&mut self, record: &'g Record) -> Option<ControlFlow<()>> {
        // Without locks, an entry may be met before its row or after it.
        let (found, take) = self.find(record)?;
        Some(take(found))
    }
}

impl State {
    /// Gives the row that the unique index `by` has under `self.key` to `read`, if there is one.
    pub(crate) fn get_by_step<R>(
        &mut self,
        by: usize,
        options: LockOptions,
        read: &mut impl FnMut(Found<'_>) -> R,
    ) -> Result<AttemptResult<Option<R>>> {
        let got = self.try_get_by(by, options, read);
        match got {
            Err(error) if options.wait == LockWait::Skip && error.is_busy() => {
                Ok(AttemptResult::Done(None))
            }
            got => got,
        }
    }

    fn try_get_by<R>(
        &mut self,
        by: usize,
        options: LockOptions,
        read: &mut impl FnMut(Found<'_>) -> R,
    ) -> Result<AttemptResult<Option<R>>> {
        let State {
            engine,
            worker,
            owner,
            read_by,
            key,
            dependencies,
            isolation,
            short_lock,
            ..
        } = self;
        let index = &*read_by[by].index;
        let entries = &*index.entries;
        let id = entries.record.id;
        let (hold, mode) = (isolation.hold(options), options.lock.key_mode());
        let locks = TableLocks::new(engine, worker, owner, entries, options.wait);
        let mut locks = locks.with_duration(hold);
        // The table first, as those have it who make, look at and drop indexes.
        let table = Name::table(table_of(entries).record.id);
        done!(locks.lock_table_name(table, mode.parent_mode()));
        done!(locks.lock_table_name(Name::table(id), mode.parent_mode()));
        check_open(index)?;
        let name = Name::key(id, key, &engine.hasher);
        let until = (hold == LockDuration::Short).then_some(&*short_lock);
        let guard = worker.pin();
        let mut leading = IndexLookup {
            engine,
            guard: &guard,
            kind: index.kind,
            table: table_of(entries),
            row_mode: mode,
            dependencies,
            hazards: [guard.hazard(), guard.hazard()],
            locked: None,
            take: &mut *read,
        };
        let found = loop {
            let record = entries.rows.get(&guard, key);
            if let Some(record) = record
                && done!(leading.lock_row(&mut locks, record, until))
            {
                if leading.leads_there(record) && record.is_linked() {
                    break leading.find(record).map(|(found, read)| read(found));
                }
                locks.release_short(short_lock);
                continue;
            }
            done!(locks.lock_for(until, name, mode));
            let record = entries.rows.get(&guard, key);
            if record.is_none_or(Record::is_ghost) {
                record.inspect(|record| dependencies.note(record));
                break None;
            }
            locks.release_short(short_lock);
        };
        if engine.options.planted().is(Fault::NameMissUnlocked) && found.is_none() {
            locks.release_shared(name);
        }
        locks.release_short(short_lock);
        Ok(AttemptResult::Done(found))
    }

    /// Gives rows to `take`, in the order of the index `by`, from where the scan is, until it breaks or the
    /// range ends.
    pub(crate) fn scan_by_step(
        &mut self,
        by: usize,
        take: &mut impl FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<AttemptResult<()>> {
        match self.try_scan_by(by, take) {
            Err(error) if self.scan.lock.wait == LockWait::Skip && error.is_busy() => {
                self.scan.progress = Progress::Finished;
                Ok(AttemptResult::Done(()))
            }
            scanned => scanned,
        }
    }

    fn try_scan_by(
        &mut self,
        by: usize,
        take: &mut impl FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<AttemptResult<()>> {
        let State {
            engine,
            worker,
            owner,
            read_by,
            scan,
            dependencies,
            isolation,
            ..
        } = self;
        let index = &*read_by[by].index;
        let entries = &*index.entries;
        scan.hold = isolation.hold(scan.lock);
        let locks = TableLocks::new(engine, worker, owner, entries, scan.lock.wait);
        let mut locks = locks.with_duration(scan.hold);
        let name = |key: &[u8]| Name::key(entries.record.id, key, &engine.hasher);
        let (row_mode, range_mode) = (scan.lock.lock.key_mode(), scan.lock.lock.range_mode());
        let table = Name::table(table_of(entries).record.id);
        done!(locks.lock_table_name(table, range_mode.parent_mode()));
        done!(locks.lock_table_name(Name::table(entries.record.id), range_mode.parent_mode()));
        check_open(index)?;
        loop {
            let guard = worker.pin();
            let mut leading = IndexLookup {
                engine,
                guard: &guard,
                kind: index.kind,
                table: table_of(entries),
                row_mode,
                dependencies,
                hazards: [guard.hazard(), guard.hazard()],
                locked: None,
                take: &mut *take,
            };
            let mut last = None;
            let walked = scan.walk(entries, &guard, &mut last, &mut locks, name, &mut leading);
            // However the walk ended, the next one goes on behind what was dealt with.
            if scan.progress != Progress::Finished {
                scan.stand(last);
            }
            match done!(walked) {
                Walked::Rests => {}
                Walked::Enough => return Ok(AttemptResult::Done(())),
            }
        }
    }

    /// How an index that was met keeps its entries.
    pub(crate) fn kind_of(&self, by: usize) -> EntryKind {
        self.read_by[by].index.kind
    }

    /// Checks and encodes what a read by a unique index needs. Returns the place of the index.
    pub(crate) fn prepare_get_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        key: &I,
    ) -> Result<usize> {
        let by = self.open_index(index)?;
        self.set_key(key)?;
        self.short_lock.forget();
        Ok(by)
    }

    /// Checks and encodes what a scan by an index needs. Returns the place of the index.
    pub(crate) fn prepare_range_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        range: &impl RangeBounds<I>,
    ) -> Result<usize> {
        let by = self.open_index(index)?;
        let kind = index.kind();
        self.scan.begin(range, |key: &I, bytes| {
            match kind {
                EntryKind::Unique => key.encode(bytes),
                EntryKind::Shared => key.encode_part(bytes),
            }
            check_key(bytes)
        })?;
        if kind == EntryKind::Shared {
            self.scan.bound_beginnings();
        }
        Ok(by)
    }

    /// The place of an index among those read by, after checking that it is declared so.
    fn open_index<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
    ) -> Result<usize> {
        self.check_active()?;
        let types = [I::TYPE.hash(), K::TYPE.hash(), V::TYPE.hash()];
        let same = |met: &CachedIndexLookup| {
            let record = &met.index.record;
            std::ptr::eq(met.name, index.name())
                && met.types == types
                && (record.kind, record.version) == (index.kind(), index.own_version())
                && record.table == index.table()
        };
        self.read_by.retain(|met| !met.index.is_dropped());
        if let Some(by) = self.read_by.iter().position(same) {
            return Ok(by);
        }
        let declared = IndexRecord {
            name: index.name().to_owned(),
            table: index.table().to_owned(),
            key_type: (I::TYPE.to_string(), I::TYPE.hash()),
            kind: index.kind(),
            version: index.own_version(),
        };
        let open = self.engine.catalog.open_index(&self.worker, &declared)?;
        let record = &table_of(&open.entries).record;
        check_types(record, &K::TYPE, &V::TYPE)?;
        self.read_by.push(CachedIndexLookup {
            name: index.name(),
            types,
            index: open,
        });
        Ok(self.read_by.len() - 1)
    }
}

/// An index that was dropped since we met it is not read.
fn check_open(index: &OpenIndex) -> Result<()> {
    match index.is_dropped() {
        false => Ok(()),
        true => {
            let index = index.record.name.clone();
            Err(IndexError::NotOpen { index }.into())
        }
    }
}

/// The table that entries lead to.
fn table_of(entries: &OpenTable) -> &OpenTable {
    entries.of.as_deref().expect("entries lead to a table")
}
