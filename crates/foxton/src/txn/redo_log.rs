//! Redo of a transaction: its records in the log.
//!
//! A small transaction writes one record, at commit. A large one writes parts before, and its last
//! record names the first of them, so that restart finds all parts or none. The records are written
//! while every lock is still held, so records that change one key are in the order of the changes.
//!
//! If it has changed pages, those changes are in the log already. The record that commits them has
//! what this record would have, as its tail: one record commits both.

use foxton_log::{LogError, Lsn, MAX_PAYLOAD};
use foxton_store::paged::recovery::{CommitTail, WriteError};

use super::bound::BoundTxn;
use super::context::WorkerContext;
use super::txn::Txn;
use crate::engine::page_store::OpenPages;
use crate::engine::persistence::Logged;
use crate::error::Result;
use crate::redo::record;

/// Maximum number of bytes of redo that a transaction keeps while the log has no space for them: a
/// record must hold them, with those of one more change.
const MOST_KEPT: usize = MAX_PAYLOAD / 2;

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
            ..
        } = &self.ctx;
        let Txn {
            changes,
            page_transaction,
            commit_lsn,
            credit,
            ..
        } = &mut self.txn;
        let Some(logged) = engine.logged() else {
            return Ok(*commit_lsn);
        };
        let log = &logged.log;
        let begin = page_transaction.range().map(|(begin, _)| begin);
        let end = match changes.first_part {
            first if begin.is_some() => {
                let tail = CommitTail {
                    first_part: first.unwrap_or(Lsn::ZERO),
                    changes: &changes.redo,
                };
                let tail = Some(tail).filter(|_| !changes.has_no_redo());
                let recovery = engine.pages().and_then(OpenPages::recovery);
                let recovery = recovery.expect("it has logged the changes");
                let end = recovery.commit(worker, page_transaction, tail)?;
                end.expect("it has begun")
            }
            None => log.insert(worker, record::COMMIT, &[&changes.redo])?,
            Some(first) => {
                let first = first.bytes().to_le_bytes();
                log.insert(worker, record::LAST, &[&first, &changes.redo])?
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
