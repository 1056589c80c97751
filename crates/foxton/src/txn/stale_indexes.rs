//! Stale indexes: those of a paged table that the program has not declared, and to whose table it
//! writes.
//!
//! The entries of such an index are in a tree, and nothing maintains them. So the first write to
//! the table deletes the row that leads from the index to its tree
//! ([`INDEX_TREES`](crate::catalog::index_catalog)). When the index is declared again, it has no
//! tree and is built anew. The tree is freed in the background.
//!
//! # Why the mark comes in time
//!
//! The writer has locked the table, so no other transaction declares, drops or converts meanwhile,
//! and none reads the row but under a lock that conflicts. Of several writers the first one marks,
//! under the mutex of the set. The mark is a record of its own. It is in the log before the writer
//! changes anything, and so before the record by which that change commits. If the writer rolls
//! back, the index stays stale, which costs a build and nothing else.

use foxton_store::memory::VALUE;

use super::context::WorkerContext;
use super::former_rows::free_later;
use crate::catalog::index_catalog::{INDEX_TREES, IndexName};
use crate::catalog::resident_memory::counted_bytes;
use crate::catalog::{OpenTable, UnmaintainedIndex};
use crate::error::Result;
use crate::redo::record::{self, Effect, RedoForm, RowChange};
use crate::types::codec::Key;

impl WorkerContext {
    /// Makes the indexes of a cached table stale that are not declared and not unique. The caller
    /// has locked the table and is about to write to it.
    #[cold]
    pub(super) fn make_indexes_stale(&self, at: usize) -> Result<()> {
        let Some(trees) = self.engine.catalog.find(INDEX_TREES.name()) else {
            return Ok(());
        };
        let kept = &self.tables[at].table.kept;
        let stale = kept.make_stale(&self.worker, |indexes| self.forget_trees(&trees, indexes))?;
        for index in stale {
            let entries = self.engine.catalog.dropped_entries(index.number);
            free_later(&self.engine, &self.worker, entries);
        }
        Ok(())
    }

    /// Deletes the rows that lead from indexes to their trees.
    fn forget_trees(&self, trees: &OpenTable, indexes: &[UnmaintainedIndex]) -> Result<()> {
        let key_of = |index: &UnmaintainedIndex| {
            let mut key = Vec::new();
            IndexName(&index.name).encode(&mut key);
            key
        };
        let (engine, worker, mut redo) = (&self.engine, &self.worker, Vec::new());
        for index in indexes {
            RowChange {
                table: trees.record.id,
                key: &key_of(index),
                effect: Effect::Delete,
            }
            .encode(&mut redo);
        }
        if engine.redo_form != RedoForm::Nothing
            && let Some(log) = engine.log()
        {
            let logged = log.insert(worker, record::COMMIT, &[&redo]);
            logged.map_err(|error| engine.log_failed(error))?;
        }
        let guard = worker.pin();
        let (mut hazard, mut counted) = (guard.hazard(), 0);
        for index in indexes {
            let key = key_of(index);
            let Some(record) = trees.resident().get(&guard, &key) else {
                continue;
            };
            // The record stays, because other transactions may have locked the gap before it.
            let value = record.value(&mut hazard);
            counted += counted_bytes(&key, value) - counted_bytes(&key, None);
            worker.account().passed(&VALUE);
            if let Some(value) = record.swap(None, &guard) {
                value.retire(guard.participant());
            }
        }
        engine.catalog.resident.add(-counted, worker);
        Ok(())
    }
}
