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

use super::attempt::{Step, done};
use super::changes::Changes;
use super::short_lock::Brief;
use super::state::{Locker, State};
use crate::catalog::OpenTable;
use crate::engine::cancel_token::{Canceller, is_wanted};
use crate::engine::early_release::Seen;
use crate::error::{Conflict, Result};
use crate::testing::injected_fault::{Fault, Planted};
use crate::types::codec::{Key, Value};
use crate::types::isolation::Hold;
use crate::types::lock_options::{LockOptions, LockWait};
use crate::types::table::Table;

/// What reading keys of one table takes.
struct Reader<'a> {
    worker: &'a Worker,
    locker: Locker<'a>,
    table: &'a OpenTable,
    index: usize,
    options: LockOptions,
    hold: Hold,
    hasher: &'a KeyHasher,
    seen: &'a mut Seen,
    brief: &'a Brief,
    changes: &'a Changes,
    planted: Planted,
    canceller: &'a Option<Canceller>,
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
            seen,
            isolation,
            brief,
            changes,
            canceller,
            ..
        } = state;
        let table = &*tables[index].table;
        let planted = engine.options.planted();
        let hold = planted.hold(isolation.hold(options), options.lock);
        let locker = Locker::new(engine, worker, owner, table, options.wait);
        let reader = Reader {
            worker,
            locker: locker.holding(hold),
            table,
            index,
            options,
            hold,
            hasher: &engine.hasher,
            seen,
            brief,
            changes,
            planted,
            canceller,
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
        self.locker.expect(name);
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
    ) -> Result<Step<Option<R>>>
    where
        'a: 'g,
    {
        let Reader { options, hold, .. } = *self;
        let locker = &mut self.locker;
        let mode = options.lock.key_mode();
        let mut asked = locker.ask(Name::table(self.table.record.id), mode.parent_mode());
        if let Ok(Step::Done(())) = asked {
            asked = match hold {
                Hold::Briefly => locker.ask_briefly(self.brief, name, mode),
                _ => locker.ask(name, mode),
            };
        }
        match asked {
            Ok(Step::Done(())) => {}
            Ok(Step::Wait) => return Ok(Step::Wait),
            Err(error) if options.wait == LockWait::Skip && error.is_busy() => {
                return Ok(Step::Done(None));
            }
            Err(error) => return Err(error),
        }
        let mut hazard = guard.hazard();
        let record = located.record(&self.table.rows, guard, key);
        let found = record.and_then(|record| {
            self.seen.note(record);
            record.value(&mut hazard)
        });
        let own = || self.changes.first_old(self.index, key);
        let found = match self.planted.is(Fault::OwnMissed) {
            true => own().or(found),
            false => found,
        };
        if self.planted.is(Fault::MissUnlocked) && found.is_none() {
            locker.release_shared(name);
        }
        let found = found.and_then(|value| Some(read.take()?(value)));
        if hold == Hold::Briefly {
            locker.let_go(self.brief);
        }
        Ok(Step::Done(found))
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
    ) -> Result<Step<Option<R>>> {
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
    ) -> Result<Step<()>> {
        let (mut reader, _) = Reader::new(self, table, options);
        while *next < keys.len() {
            let guard = reader.worker.pin();
            let end = keys.len().min(*next + AHEAD);
            let mut ahead: SmallVec<[Found<'_>; AHEAD]> = SmallVec::new();
            ahead.extend((*next..end).map(|place| reader.find(&guard, keys.key(place))));
            // By now the records are on their way.
            ahead.iter().for_each(|found| found.located.fetch_value());
            for found in ahead {
                if !is_wanted(reader.canceller) {
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
        Ok(Step::Done(()))
    }

    /// As [`prepare_get`](Self::prepare_get), for many keys.
    pub(crate) fn prepare_get_many<'k, K: Key + ?Sized + 'k, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
    ) -> Result<(usize, KeyList)> {
        let table = self.meet(table)?;
        let mut encoded = KeyList::default();
        for key in keys {
            self.set_key(key)?;
            encoded.push(&self.key);
        }
        self.brief.forget();
        Ok((table, encoded))
    }

    /// Checks and encodes what a read needs. Returns the table's index.
    pub(crate) fn prepare_get<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<usize> {
        let table = self.meet(table)?;
        self.set_key(key)?;
        self.brief.forget();
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
