//! Commit slot of a worker context: what becomes of the versions of its transaction.
//!
//! See `foxton_store::memory::version` for the protocol, and [`Snapshots`] for what is kept.

use std::cell::Cell;
use std::sync::Arc;

use foxton_log::Lsn;
use foxton_store::memory::{Begin, OwnSlot, Promise, VersionWriter};
use foxton_store::paged::row_versions::{OwnedVersions, VersionRecorder};
use foxton_sync::worker::Worker;

use crate::engine::Engine;
use crate::engine::snapshots::Snapshots;
use crate::options::{Durability, Locking};
use crate::testing::{failpoint, injected_fault};

/// Number of a transaction that has not written.
const NO_UPDATE: u64 = 0;
/// Number of every transaction if snapshots are positions.
const NEVER: u64 = u64::MAX;

/// See the [module](self). Without locks there are no versions.
pub(crate) struct WriterSlot {
    engine: Arc<Engine>,
    pub(super) own: Option<OwnSlot>,
    /// True if commits have left so many versions that the context collects them.
    pub(super) has_left_much: bool,
    /// True if the place for a snapshot shows the owner of the context.
    pub(super) shows_owner: bool,
    /// With read views, the number of the transaction: [`NO_UPDATE`] until it writes. Without,
    /// [`NEVER`].
    update: Cell<u64>,
    /// Result of a look at the stage that came too early: an injected fault.
    kept_early: Cell<bool>,
}

impl Drop for WriterSlot {
    fn drop(&mut self) {
        self.end_update();
        if let Some(own) = self.own.take() {
            self.engine.snapshots.slots.release(own);
        }
    }
}

impl WriterSlot {
    pub(super) fn acquire(engine: &Arc<Engine>) -> WriterSlot {
        let is_locking = engine.options.locking == Locking::On;
        WriterSlot {
            engine: engine.clone(),
            own: is_locking.then(|| engine.snapshots.slots.acquire()),
            has_left_much: false,
            shows_owner: false,
            update: Cell::new(match engine.snapshots.read_views {
                Some(_) if is_locking => NO_UPDATE,
                _ => NEVER,
            }),
            kept_early: Cell::new(false),
        }
    }

    fn snapshots(&self) -> &Snapshots {
        &self.engine.snapshots
    }

    /// Returns the number of the slot, which is that of the context's place for a snapshot.
    pub(super) fn number(&self) -> Option<u32> {
        self.own.as_ref().map(OwnSlot::number)
    }

    /// Returns the begin timestamp of versions of the transaction.
    #[inline]
    pub(super) fn begin(&self) -> Option<Begin> {
        let own = self.own.as_ref()?;
        Some(self.snapshots().slots.begin(own))
    }

    /// Returns the begin timestamp of a version that the transaction writes next.
    #[inline]
    pub(super) fn begin_write(&self) -> Option<Begin> {
        if self.update.get() == NO_UPDATE {
            self.begin_update();
        }
        self.begin()
    }

    /// Takes a number, with read views, before the first version is written (V1).
    #[cold]
    fn begin_update(&self) {
        if let Some(views) = &self.snapshots().read_views {
            self.update.set(views.begin_update());
        }
    }

    /// Gives the number back.
    fn end_update(&self) {
        if let Some(views) = &self.snapshots().read_views
            && !matches!(self.update.get(), NO_UPDATE | NEVER)
        {
            views.end_update(self.update.replace(NO_UPDATE));
        }
    }

    /// Returns the begin timestamp of the versions of a transaction whose commit record ends at
    /// `end`. With read views that is its number. Readers then wait for the stamp of the record.
    pub(super) fn stamp(&self, end: Lsn, durability: Durability) -> (Lsn, Promise) {
        match self.update.get() {
            NO_UPDATE | NEVER => (end, promise(durability)),
            number => (Lsn::new(number), Promise::Nothing),
        }
    }

    /// Returns what keeps the states of rows of paged tables that the transaction replaces.
    #[inline]
    pub(super) fn recorder<'t>(
        &'t self,
        owned: &'t mut OwnedVersions,
        table: usize,
    ) -> Option<VersionRecorder<'t>> {
        let own = self.begin_write()?;
        let versions = &self.snapshots().rows;
        Some(VersionRecorder {
            versions,
            owned,
            own,
            table,
        })
    }

    /// Returns what writes versions of the transaction.
    #[inline]
    pub(super) fn writer(&self) -> Option<VersionWriter<'_>> {
        if self.update.get() == NO_UPDATE {
            self.begin_update();
        }
        let own = self.own.as_ref()?;
        Some(self.snapshots().slots.writer(own))
    }

    /// Records that the transaction asks for its commit LSN next.
    #[inline]
    pub(super) fn start_commit(&self, worker: &Worker) {
        let faults = worker.failpoints();
        if faults.misbehaves(&injected_fault::STAGE_LOADED_EARLY) {
            self.kept_early.set(self.snapshots().keeps());
        }
        faults.pass(&failpoint::COMMITTING);
        if faults.misbehaves(&injected_fault::COMMITTING_LATE) {
            return;
        }
        if let Some(own) = &self.own {
            let front = self.engine.persistence.front();
            self.snapshots().slots.start_commit(own, front);
        }
    }

    /// Records that it got none.
    pub(super) fn stop_commit(&self) {
        if let Some(own) = &self.own {
            self.snapshots().slots.stop_commit(own);
        }
    }

    /// Records its commit LSN.
    #[inline]
    pub(super) fn committed(&self, end: Lsn, durability: Durability) {
        if let Some(own) = &self.own {
            self.snapshots()
                .slots
                .committed(own, end, promise(durability));
        }
    }

    /// True if a commit that has its commit LSN must keep what it replaced.
    #[inline]
    pub(super) fn keeps(&self, worker: &Worker) -> bool {
        let faults = worker.failpoints();
        match faults.misbehaves(&injected_fault::STAGE_LOADED_EARLY) {
            false => self.snapshots().keeps(),
            true => self.kept_early.get(),
        }
    }

    /// Ends the transaction, whose versions are stamped, or older than all snapshots, or undone.
    #[inline]
    pub(super) fn end(&mut self, worker: &Worker) {
        if let Some(own) = &mut self.own {
            self.engine.snapshots.slots.end(own, worker.participant());
        }
        if self.update.get() != NEVER {
            self.end_update();
        }
    }
}

fn promise(durability: Durability) -> Promise {
    match durability {
        Durability::Sync => Promise::Durable,
        Durability::Buffered => Promise::Written,
        Durability::None => Promise::Nothing,
    }
}
