//! The owner of pages: few frames and many writes.
//!
//! A requested page takes a frame, and the page that was there is written, committed or not. Now
//! and then a page is written without a reason. Nothing is synced except on request. So the device
//! has any mixture of old and new pages, and restart must manage with it.
//!
//! # A page that was torn
//!
//! With `images`, pages have two sectors, and so can be torn. The first change of a page after it
//! was last written logs an image of the page as its redo. A page that cannot be read has no
//! changes, takes none until redo reaches an image, and is whole from there on. Without images a
//! page is one sector.

use super::Fault;
use super::page::{Back, Change, Found, Page, Thing};
use crate::ledger::mix;
use foxton_log::device::{Device, DeviceFile, disk::SECTOR_BYTES};
use foxton_log::{Log, LogError, Lsn};
use foxton_store::paged::recovery::{
    ChainedChange, CompensationLog, PageId, Pages, RecordPosition, WriteError,
};
use foxton_sync::worker::{Worker, Workers};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{fmt, io};

/// Name of the file of pages.
pub const FILE: &str = "things";
/// Number of pages in memory at one time.
const FRAMES: usize = 3;
/// Of this many requests for a page, one writes it.
const STEAL: u64 = 5;

/// Reason why the pool refused something.
#[derive(Debug)]
pub enum PoolError {
    /// The device failed.
    Device(io::Error),
    /// The log failed.
    Log(LogError),
    /// There is no space in the log.
    NoRoom,
    /// A page, or a change of one, is wrong.
    Wrong(PageId, &'static str),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::Device(error) => error.fmt(f),
            PoolError::Log(error) => error.fmt(f),
            PoolError::NoRoom => f.write_str("there is no space in the log"),
            PoolError::Wrong(page, what) => write!(f, "page {page}: {what}"),
        }
    }
}

impl std::error::Error for PoolError {}

impl From<io::Error> for PoolError {
    fn from(error: io::Error) -> Self {
        PoolError::Device(error)
    }
}

impl From<LogError> for PoolError {
    fn from(error: LogError) -> Self {
        PoolError::Log(error)
    }
}

impl From<WriteError> for PoolError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Log(error) => PoolError::Log(error),
            _ => PoolError::NoRoom,
        }
    }
}

/// Pages in memory and on a device.
#[derive(Debug)]
pub struct Pool {
    file: Arc<dyn DeviceFile>,
    log: OnceLock<Arc<Log>>,
    images: bool,
    count: u64,
    fault: Option<Fault>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    worker: Worker,
    frames: BTreeMap<PageId, Page>,
    pages: BTreeMap<PageId, Status>,
    /// The page of each thing, once it was looked up.
    homes: Option<BTreeMap<Thing, PageId>>,
    random: u64,
}

/// State of a page, in a frame or not.
#[derive(Debug, Clone, Copy, Default)]
struct Status {
    /// Where the first change begins that was not written.
    unwritten: Option<Lsn>,
    /// Where the first change begins that was written and not synced.
    unsynced: Option<Lsn>,
    /// True if it has been changed, and its image logged, since it was last written.
    has_image: bool,
    /// True if the device's version of it cannot be read.
    broken: bool,
}

impl Pool {
    /// Opens the `count` pages in the directory.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn open(
        device: &dyn Device,
        (images, count): (bool, u64),
        seed: u64,
        fault: Option<Fault>,
    ) -> Result<Pool, PoolError> {
        let is_there = device.list()?.iter().any(|name| name == FILE);
        let file = if is_there {
            let file = device.open(FILE)?;
            // The bytes that are visible may not be durable, and restart counts what it finds in a
            // page as durable.
            file.sync()?;
            file
        } else {
            let file = device.create(FILE)?;
            device.sync_dir()?;
            file
        };
        let random = mix(seed);
        Ok(Pool {
            file,
            log: OnceLock::new(),
            images,
            count,
            fault,
            state: Mutex::new(State {
                worker: Workers::new().worker(),
                frames: BTreeMap::new(),
                pages: BTreeMap::new(),
                homes: None,
                random,
            }),
        })
    }

    /// Sets the log that pages must not overtake.
    ///
    /// # Panics
    ///
    /// If there is one already.
    pub fn follow(&self, log: Arc<Log>) {
        assert!(self.log.set(log).is_ok(), "a pool follows one log");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn size(&self) -> usize {
        SECTOR_BYTES as usize * if self.images { 2 } else { 1 }
    }

    /// Number of bytes of redo that an image may have beyond the change itself.
    pub fn image_bytes(&self) -> u32 {
        if self.images { self.size() as u32 } else { 0 }
    }

    /// Returns all things and their values.
    ///
    /// # Errors
    ///
    /// If a page cannot be read, or a thing is in two.
    pub fn things(&self) -> Result<BTreeMap<Thing, i64>, PoolError> {
        let state = &mut *self.state();
        let mut all = BTreeMap::new();
        for id in (0..self.count).map(PageId) {
            for (thing, value) in self.whole(state, id)?.things.clone() {
                if all.insert(thing, value).is_some() {
                    return Err(PoolError::Wrong(
                        id,
                        "it holds a thing that another page holds",
                    ));
                }
            }
        }
        Ok(all)
    }

    /// Returns the page that holds `thing`.
    ///
    /// # Errors
    ///
    /// If no page does.
    pub fn home(&self, thing: Thing) -> Result<PageId, PoolError> {
        self.home_in(&mut self.state(), thing)
    }

    /// Returns the value of `thing`.
    ///
    /// # Errors
    ///
    /// If it is in no page.
    pub fn value(&self, thing: Thing) -> Result<i64, PoolError> {
        let state = &mut *self.state();
        let home = self.home_in(state, thing)?;
        Ok(self.whole(state, home)?.things[&thing])
    }

    /// Changes a page, once `log` has logged the change that it gets.
    ///
    /// # Errors
    ///
    /// If that fails, or the page cannot be read. Then nothing is changed.
    pub fn change(
        &self,
        id: PageId,
        change: &Change,
        log: impl FnOnce(ChainedChange<'_>) -> Result<RecordPosition, PoolError>,
    ) -> Result<RecordPosition, PoolError> {
        self.change_in(
            &mut self.state(),
            &[(id, change)],
            |changes| log(changes[0]),
        )
    }

    /// Changes several pages, once `log` has logged the changes that it gets, as one.
    ///
    /// # Errors
    ///
    /// As for [`change`](Self::change).
    pub fn change_all(
        &self,
        changes: &[(PageId, &Change)],
        log: impl FnOnce(&[ChainedChange<'_>]) -> Result<RecordPosition, PoolError>,
    ) -> Result<RecordPosition, PoolError> {
        self.change_in(&mut self.state(), changes, log)
    }

    /// Makes written pages durable.
    ///
    /// # Errors
    ///
    /// If the device fails.
    pub fn sync(&self) -> Result<(), PoolError> {
        let state = &mut *self.state();
        self.file.sync()?;
        for status in state.pages.values_mut() {
            status.unsynced = None;
        }
        Ok(())
    }

    /// Writes some page.
    ///
    /// # Errors
    ///
    /// If the device or the log fails.
    pub fn steal(&self) -> Result<(), PoolError> {
        self.steal_in(&mut self.state())
    }

    fn home_in(&self, state: &mut State, thing: Thing) -> Result<PageId, PoolError> {
        if state.homes.is_none() {
            let mut homes = BTreeMap::new();
            for id in (0..self.count).map(PageId) {
                let things = self.whole(state, id)?.things.keys();
                homes.extend(things.map(|thing| (*thing, id)));
            }
            state.homes = Some(homes);
        }
        let homes = state.homes.as_ref().expect("they were looked up");
        let nowhere = PoolError::Wrong(PageId(self.count), "a thing is in no page");
        homes.get(&thing).copied().ok_or(nowhere)
    }

    fn change_in(
        &self,
        state: &mut State,
        changes: &[(PageId, &Change)],
        log: impl FnOnce(&[ChainedChange<'_>]) -> Result<RecordPosition, PoolError>,
    ) -> Result<RecordPosition, PoolError> {
        let mut pages = Vec::new();
        for (id, change) in changes {
            let before = self.whole(state, *id)?;
            let (previous, mut page) = (before.lsn, before.clone());
            if !page.make(change) {
                return Err(PoolError::Wrong(*id, "this change cannot be made"));
            }
            pages.push((*id, previous, page));
        }
        // Reading a page may have written another one, so images are decided upon at last.
        let redo = pages
            .iter()
            .zip(changes)
            .map(|((id, _, page), (_, change))| {
                match self.images && !state.pages.entry(*id).or_default().has_image {
                    true => Change::Image(page.things.clone()).encode(),
                    false => change.encode(),
                }
            });
        let redo: Vec<_> = redo.collect();
        let logged = pages.iter().zip(&redo);
        let logged = logged.map(|((page, previous, _), redo)| ChainedChange {
            page: *page,
            previous: *previous,
            redo,
        });
        let place = log(&logged.collect::<Vec<_>>())?;
        for (id, _, mut page) in pages {
            let status = state.pages.entry(id).or_default();
            status.unwritten.get_or_insert(place.begin);
            status.has_image = true;
            page.lsn = place.end;
            if let Some(homes) = &mut state.homes {
                homes.retain(|thing, home| *home != id || page.things.contains_key(thing));
                homes.extend(page.things.keys().map(|thing| (*thing, id)));
            }
            state.frames.insert(id, page);
        }
        Ok(place)
    }

    /// Returns the page, which must be whole.
    fn whole<'s>(&self, state: &'s mut State, id: PageId) -> Result<&'s mut Page, PoolError> {
        let page = self.frame(state, id)?;
        if page.1.broken {
            return Err(PoolError::Wrong(id, "it cannot be read"));
        }
        Ok(page.0)
    }

    /// Returns the page in its frame. A page that cannot be read is empty.
    fn frame<'s>(
        &self,
        state: &'s mut State,
        id: PageId,
    ) -> Result<(&'s mut Page, &'s mut Status), PoolError> {
        state.random = mix(state.random);
        if state.random.is_multiple_of(STEAL) {
            self.steal_in(state)?;
        }
        if !state.frames.contains_key(&id) {
            while state.frames.len() >= FRAMES {
                let out = self.any(state).expect("there are some");
                self.write(state, out)?;
                state.frames.remove(&out);
            }
            let mut bytes = vec![0; self.size()];
            self.file.read_at(&mut bytes, id.0 * self.size() as u64)?;
            let (page, broken) = match Page::decode(id, &bytes) {
                Found::Nothing => (Page::default(), false),
                Found::Whole(page) => (page, false),
                Found::Broken => (Page::default(), true),
            };
            state.frames.insert(id, page);
            state.pages.entry(id).or_default().broken = broken;
        }
        let page = state.frames.get_mut(&id).expect("it has a frame");
        let status = state.pages.get_mut(&id).expect("it has a status");
        Ok((page, status))
    }

    fn any(&self, state: &mut State) -> Option<PageId> {
        state.random = mix(state.random);
        let count = state.frames.len().max(1) as u64;
        let index = (state.random % count) as usize;
        state.frames.keys().nth(index).copied()
    }

    fn steal_in(&self, state: &mut State) -> Result<(), PoolError> {
        match self.any(state) {
            Some(id) => self.write(state, id),
            None => Ok(()),
        }
    }

    /// Writes the page, if it was changed, and not before its log.
    fn write(&self, state: &mut State, id: PageId) -> Result<(), PoolError> {
        let status = state.pages.entry(id).or_default();
        let Some(first) = status.unwritten else {
            return Ok(());
        };
        let page = &state.frames[&id];
        if self.fault != Some(Fault::PageBeforeLog) {
            let log = self
                .log
                .get()
                .expect("a page was changed, so there is a log");
            log.wait_durable(&state.worker, page.lsn)?;
        }
        let bytes = page.encode(id, self.size());
        self.file.write_at(&bytes, id.0 * self.size() as u64)?;
        status.unsynced.get_or_insert(first);
        (status.unwritten, status.has_image) = (None, false);
        Ok(())
    }
}

impl Pages for Pool {
    type Error = PoolError;

    fn page_lsn(&self, page: PageId) -> Result<Lsn, PoolError> {
        let state = &mut *self.state();
        let lsn = self.frame(state, page)?.0.lsn;
        match self.fault {
            Some(Fault::RedoTwice) => Ok(Lsn::ZERO),
            _ => Ok(lsn),
        }
    }

    fn redo(&self, place: RecordPosition, change: ChainedChange<'_>) -> Result<(), PoolError> {
        let state = &mut *self.state();
        let (images, id) = (self.images, change.page);
        let change = Change::decode(change.redo).ok_or(PoolError::Wrong(id, "a change is none"))?;
        let (page, status) = self.frame(state, id)?;
        let is_image = matches!(change, Change::Image(_));
        if images && page.lsn == Lsn::ZERO && !is_image {
            // The page was lost or torn after this change, and an image follows.
            return Ok(());
        }
        if status.broken && !is_image || !page.make(&change) {
            return Err(PoolError::Wrong(id, "redo cannot make a change"));
        }
        page.lsn = place.end;
        status.broken = false;
        status.has_image |= is_image;
        // The device's version may be from a restart that was cut while it repeated history. Then
        // no image follows that was logged for it. The last one is somewhere before, and only the
        // tables know where.
        let is_whole = !images || status.has_image;
        let first = if is_whole { place.begin } else { Lsn::ZERO };
        status.unwritten.get_or_insert(first);
        Ok(())
    }

    fn undo(
        &self,
        id: PageId,
        undo: &[u8],
        log: &mut CompensationLog<'_>,
    ) -> Result<(), PoolError> {
        let state = &mut *self.state();
        let back = Back::decode(undo).ok_or(PoolError::Wrong(id, "an undo cannot be decoded"))?;
        let (id, change) = match back {
            Back::Here(change) => (id, change),
            Back::There(change) => match change {
                Change::Put(thing, _) | Change::Add(thing, _) => {
                    (self.home_in(state, thing)?, change)
                }
                _ => {
                    return Err(PoolError::Wrong(
                        id,
                        "this undo cannot be made on another page",
                    ));
                }
            },
        };
        let mut refused = false;
        let changed = self.change_in(state, &[(id, &change)], |changes| {
            let place = log.log(changes[0]);
            refused = place.is_none();
            place.ok_or(PoolError::NoRoom)
        });
        // Recovery knows why it was not logged.
        if refused { Ok(()) } else { changed.map(|_| ()) }
    }

    fn recovery_lsn(&self, page: PageId) -> Result<Option<Lsn>, PoolError> {
        let state = self.state();
        let status = state.pages.get(&page).copied().unwrap_or_default();
        let lsns = match self.fault {
            Some(Fault::LateRecoveryLsn) => [status.unwritten, None],
            _ => [status.unwritten, status.unsynced],
        };
        Ok(lsns.into_iter().flatten().min())
    }
}
