//! Redo of a transaction: its records in the log.
//!
//! A small transaction writes one record, at commit. A large one writes parts before, and its last
//! record names the first of them, so that restart finds all parts or none. The records are written
//! while every lock is still held, so records that change one key are in the order of the changes.
//!
//! If it has changed pages, those changes are in the log already. The record that commits them has
//! what this record would have, as its tail: one record commits both.

use foxton_log::{Insertion, Log, LogError, Lsn, MAX_PAYLOAD};
use foxton_store::paged::recovery::{CommitTail, WriteError};
use foxton_sync::worker::Worker;

use super::bound::BoundTxn;
use super::commit_slot::WriterSlot;
use super::context::WorkerContext;
use super::txn::Txn;
use crate::engine::page_store::OpenPages;
use crate::engine::persistence::Logged;
use crate::error::Result;
use crate::options::Durability;
use crate::redo::record;
use crate::testing::{failpoint, injected_fault};

/// Maximum number of bytes of redo that a transaction keeps while the log has no space for them: a
/// record must hold them, with those of one more change.
const MOST_KEPT: usize = MAX_PAYLOAD / 2;

/// Inserts the commit record of a transaction with versions, as [`insert_placed`]. If the device is
/// full, the record may take up to `kept` bytes that the transaction has kept there; then readers
/// wait for the device. Returns the end of the record, and how many kept bytes it took.
fn insert_version(
    log: &Log,
    worker: &Worker,
    (kind, parts): (u8, &[&[u8]]),
    kept: u64,
    slot: (&WriterSlot, Durability),
) -> Result<(Lsn, u64), LogError> {
    match insert_placed(log, worker, (kind, parts), slot) {
        Err(LogError::NotInserted(_)) if kept > 0 => {
            let (slot, durability) = slot;
            slot.start_commit(worker);
            let (end, used) = log.insert_kept(worker, kind, parts, kept)?;
            slot.committed(end, durability);
            Ok((end, used))
        }
        inserted => Ok((inserted?, 0)),
    }
}

/// Inserts the commit record of a transaction with versions. Readers learn its commit LSN before
/// the record is copied. The transaction waits for no space while they wait for that. After an
/// error nobody waits.
fn insert_placed(
    log: &Log,
    worker: &Worker,
    (kind, parts): (u8, &[&[u8]]),
    (slot, durability): (&WriterSlot, Durability),
) -> Result<Lsn, LogError> {
    loop {
        slot.start_commit(worker);
        let on_reserved = |end| {
            worker.failpoints().pass(&failpoint::PLACED);
            slot.committed(end, durability);
        };
        match log.insert_with(worker, kind, parts, on_reserved) {
            Ok(Insertion::Done(end)) => return Ok(end),
            Ok(Insertion::NoSpace) => {}
            Err(error) => {
                slot.stop_commit();
                return Err(error);
            }
        }
        let bytes = parts.iter().map(|part| part.len()).sum();
        let faults = worker.failpoints();
        if faults.misbehaves(&injected_fault::SPACE_AWAITED) {
            log.ensure_space(worker, bytes)?;
        }
        slot.stop_commit();
        log.ensure_space(worker, bytes)?;
    }
}

impl BoundTxn {
    /// Writes the redo so far as a part, if it has become large: a transaction of any size needs
    /// memory for its undo, but not for its redo as well.
    pub(crate) fn spill(&mut self) -> Result<()> {
        let (ctx, changes) = (&self.ctx, &mut self.txn.changes);
        if changes.redo.len() < ctx.engine.options.redo_part_bytes {
            return Ok(());
        }
        let WorkerContext { engine, worker, .. } = ctx;
        let Some(Logged { log, large, .. }) = engine.logged() else {
            return Ok(());
        };
        match engine.logged().map_or(Ok(()), Logged::check_kept_log) {
            Err(_) if changes.redo.len() < MOST_KEPT => return Ok(()),
            checked => checked?,
        }
        let first = changes.first_part.map_or(0, Lsn::bytes).to_le_bytes();
        let end = match log.insert(worker, record::PART, &[&first, &changes.redo]) {
            // The write stays. The next one asks for space again, and so does the commit.
            Err(LogError::NotInserted(_)) if changes.redo.len() < MOST_KEPT => return Ok(()),
            end => end.map_err(|error| engine.log_failed(error))?,
        };
        if changes.first_part.is_none() {
            changes.first_part = Some(end);
            large.insert(worker, end, changes.redo.len(), &ctx.owner);
        }
        changes.parts += 1;
        changes.redo.clear();
        Ok(())
    }

    /// Writes the commit record, and records its end as `commit_lsn`.
    pub(super) fn log_commit(&mut self) -> Result<Lsn, WriteError> {
        let WorkerContext {
            engine,
            worker,
            page_writer,
            commit_slot,
            ..
        } = &self.ctx;
        let is_versioned = self.txn.has_versions();
        let Txn {
            changes,
            page_transaction,
            commit_lsn,
            credit,
            durability,
            ..
        } = &mut self.txn;
        let Some(logged) = engine.logged() else {
            return Ok(*commit_lsn);
        };
        let log = &logged.log;
        let begin = page_transaction.range().map(|(begin, _)| begin);
        let insert = |kind, parts: &[&[u8]], kept| match is_versioned {
            true => {
                let slot = (&*commit_slot, *durability);
                insert_version(log, worker, (kind, parts), kept, slot)
            }
            false => log.insert_kept(worker, kind, parts, kept),
        };
        let insert_alone =
            |kind, parts: &[&[u8]]| -> Result<Lsn, WriteError> { Ok(insert(kind, parts, 0)?.0) };
        let inserted = match changes.first_part {
            first if begin.is_some() => {
                let tail = CommitTail {
                    first_part: first.unwrap_or(Lsn::ZERO),
                    changes: &changes.redo,
                };
                let tail = Some(tail).filter(|_| !changes.has_no_redo());
                let recovery = engine.pages().and_then(OpenPages::recovery);
                let recovery = recovery.expect("it has logged the changes");
                let end = recovery.commit_by(worker, page_transaction, tail, insert);
                end.map(|end| end.expect("it has begun"))
            }
            None => insert_alone(record::COMMIT, &[&changes.redo]),
            Some(first) => {
                let first = first.bytes().to_le_bytes();
                insert_alone(record::LAST, &[&first, &changes.redo])
            }
        };
        let end = match inserted {
            Ok(end) => end,
            Err(error) => {
                commit_slot.stop_commit();
                return Err(error);
            }
        };
        if let Some(first) = changes.first_part {
            logged.large.remove(worker, first);
        }
        if let Some(begin) = begin {
            page_writer.clear();
            logged.end_page_writer(begin);
        }
        *commit_lsn = end;
        let parts = changes.parts as usize * engine.options.redo_part_bytes;
        let bytes = (parts + changes.redo.len()) as u64;
        logged.checkpoints.note(credit, end, bytes);
        Ok(end)
    }

    /// Tells restart that the parts of a transaction that rolls back are not needed. Without this
    /// record, restart forgets them only at its end.
    pub(super) fn log_abandoned(&mut self) {
        let WorkerContext { engine, worker, .. } = &self.ctx;
        // Taken, because a rollback may begin twice.
        if let Some(first) = self.txn.changes.first_part.take()
            && let Some(logged) = engine.logged()
        {
            logged.large.remove(worker, first);
            logged.abandon(worker, first);
        }
    }
}
