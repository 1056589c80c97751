//! Reading one key.
//!
//! The lock on a key's name protects the key whether or not it is there: to appear, it must be
//! locked exclusively under the same name. So a read that finds nothing needs no lock on the gap
//! around the key, and two transactions that miss neighbouring keys do not meet.

use foxton_lock::name::{KeyHasher, Name};
use foxton_store::memory::Located;
use foxton_sync::epoch::Guard;
use foxton_sync::worker::Worker;
use smallvec::SmallVec;

use super::attempt::{AttemptResult, done};
use super::changes::Changes;
use super::short_lock::ShortLock;
use super::state::{State, TableLocks};
use crate::catalog::OpenTable;
use crate::engine::cancel_token::{CancelToken, is_not_cancelled};
use crate::engine::early_release::ReadDependencies;
use crate::error::{Conflict, Result};
use crate::testing::injected_fault::{Fault, Planted};
use crate::types::codec::{Key, Value};
use crate::types::isolation::LockDuration;
use crate::types::lock_options::{LockOptions, LockWait};
use crate::types::table::Table;

/// What reading keys of one table takes.
struct Reader<'a> {
    worker: &'a Worker,
    locks: TableLocks<'a>,
    table: &'a OpenTable,
    index: usize,
    options: LockOptions,
    hold: LockDuration,
    hasher: &'a KeyHasher,
    dependencies: &'a mut ReadDependencies,
    short_lock: &'a ShortLock,
    changes: &'a Changes,
    planted: Planted,
    cancel_token: &'a Option<CancelToken>,
}

/// A key that was found and is neither locked nor looked at yet.
struct Found<'g> {
    name: Name,
    located: Located<'g>,
}

impl<'a> Reader<'a> {
    #[inline(always)]
    fn new(state: &'a mut State, index: usize, options: LockOptions) -> (Reader<'a>, &'a [u8]) {
        let State {
            engine,
            worker,
            owner,
            tables,
            key,
            dependencies,
            isolation,
            short_lock,
            changes,
            cancel_token,
            ..
        } = state;
        let table = &*tables[index].table;
        let planted = engine.options.planted();
        let hold = planted.hold(isolation.hold(options), options.lock);
        let locks = TableLocks::new(engine, worker, owner, table, options.wait);
        let reader = Reader {
            worker,
            locks: locks.with_duration(hold),
            table,
            index,
            options,
            hold,
            hasher: &engine.hasher,
            dependencies,
            short_lock,
            changes,
            planted,
            cancel_token,
        };
        (reader, key)
    }

    /// Finds a key before it is locked: what it takes to lock it and to read it is fetched meanwhile.
    #[inline(always)]
    fn find<'g>(&self, guard: &'g Guard<'_>, key: &[u8]) -> Found<'g>
    where
        'a: 'g,
    {
        let name = Name::key(self.table.record.id, key, self.hasher);
        self.locks.prefetch(name);
        let located = self.table.rows.locate(guard, key);
        Found { name, located }
    }

    /// Locks a key, and gives its value to `read`, if it is there.
    #[inline(always)]
    fn read<'g, R>(
        &mut self,
        guard: &'g Guard<'_>,
        Found { name, located }: Found<'g>,
        key: &[u8],
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Result<AttemptResult<Option<R>>>
    where
        'a: 'g,
    {
        let Reader { options, hold, .. } = *self;
        let locks = &mut self.locks;
        let mode = options.lock.key_mode();
        let mut asked = locks.lock(Name::table(self.table.record.id), mode.parent_mode());
        if let Ok(AttemptResult::Done(())) = asked {
            asked = match hold {
                LockDuration::Short => locks.lock_short(self.short_lock, name, mode),
                _ => locks.lock(name, mode),
            };
        }
        match asked {
            Ok(AttemptResult::Done(())) => {}
            Ok(AttemptResult::Wait) => return Ok(AttemptResult::Wait),
            Err(error) if options.wait == LockWait::Skip && error.is_busy() => {
                return Ok(AttemptResult::Done(None));
            }
            Err(error) => return Err(error),
        }
        let mut hazard = guard.hazard();
        let record = located.record(&self.table.rows, guard, key);
        let found = record.and_then(|record| {
            self.dependencies.note(record);
            record.value(&mut hazard)
        });
        let own = || self.changes.first_old(self.index, key);
        let found = match self.planted.is(Fault::OwnMissed) {
            true => own().or(found),
            false => found,
        };
        if self.planted.is(Fault::MissUnlocked) && found.is_none() {
            locks.release_shared(name);
        }
        let found = found.and_then(|value| Some(read.take()?(value)));
        if hold == LockDuration::Short {
            locks.release_short(self.short_lock);
        }
        Ok(AttemptResult::Done(found))
    }
}

impl State {
    /// Gives the value of `self.key` to `read`, if the key is there.
    #[inline]
    pub(crate) fn get_step<R>(
        &mut self,
        table: usize,
        options: LockOptions,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Result<AttemptResult<Option<R>>> {
        let (mut reader, key) = Reader::new(self, table, options);
        let guard = reader.worker.pin();
        let found = reader.find(&guard, key);
        reader.read(&guard, found, key, read)
    }

    /// Gives the values of `keys`, from the one at `next` on, to `read` in turn, with their places. Several are found before the first is
    /// locked, so that what lies apart in memory is fetched side by side. `next` is where to go on after a wait.
    pub(crate) fn get_many_step(
        &mut self,
        table: usize,
        options: LockOptions,
        keys: &KeyList,
        next: &mut usize,
        read: &mut impl FnMut(usize, Option<&[u8]>),
    ) -> Result<AttemptResult<()>> {
        let (mut reader, _) = Reader::new(self, table, options);
        while *next < keys.len() {
            let guard = reader.worker.pin();
            let end = keys.len().min(*next + AHEAD);
            let mut ahead: SmallVec<[Found<'_>; AHEAD]> = SmallVec::new();
            ahead.extend((*next..end).map(|place| reader.find(&guard, keys.key(place))));
            // By now the records are on their way.
            ahead.iter().for_each(|found| found.located.fetch_value());
            for found in ahead {
                if !is_not_cancelled(reader.cancel_token) {
                    return Err(Conflict::CANCELLED.into());
                }
                let place = *next;
                let mut take = Some(|value: &[u8]| read(place, Some(value)));
                if done!(reader.read(&guard, found, keys.key(place), &mut take)).is_none() {
                    read(place, None);
                }
                *next += 1;
            }
        }
        Ok(AttemptResult::Done(()))
    }

    /// As [`prepare_get`](Self::prepare_get), for many keys.
    pub(crate) fn prepare_get_many<'k, K: Key + ?Sized + 'k, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
    ) -> Result<(usize, KeyList)> {
        let table = self.open_table(table)?;
        let mut encoded = KeyList::default();
        for key in keys {
            self.set_key(key)?;
            encoded.push(&self.key);
        }
        self.short_lock.forget();
        Ok((table, encoded))
    }

    /// Checks and encodes what a read needs. Returns the table's index.
    pub(crate) fn prepare_get<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<usize> {
        let table = self.open_table(table)?;
        self.set_key(key)?;
        self.short_lock.forget();
        Ok(table)
    }
}

/// KeyList that are looked ahead at once. More, and the first may have left the caches when it is read.
const AHEAD: usize = 16;

/// KeyList, encoded.
#[derive(Debug, Default)]
pub(crate) struct KeyList {
    bytes: SmallVec<[u8; 128]>,
    ends: SmallVec<[usize; AHEAD]>,
}

impl KeyList {
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn key(&self, place: usize) -> &[u8] {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[place]]
    }
}
