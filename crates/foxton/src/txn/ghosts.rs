//! Removing ghosts.
//!
//! A ghost is removed by the transaction that left it, at its very end: changes are in the log or
//! undone, locks are still held. It holds the key exclusively; it asks, without waiting, for the
//! gap before it as well.
//!
//! # Why the gap before the ghost, and no other
//!
//! Let `p < k < n` be neighbours and `k` the ghost. Removing it makes the gap `(p, n)`, named `n`.
//!
//! * Who has read over `(p, k)` holds the gap named `k`, and would lose it. So the gap must be ours
//!   alone, and if it is not, the ghost stays.
//! * Who has read over `(k, n)` holds the gap named `n`, which grows. Nobody loses anything.
//! * Who has read over `k` itself holds the key, and we would not have it.
//! * Who puts a key into `(p, k)` holds an intention on the gap named `k`: as the first.
//! * Who waits for `k` gets it when we let go, finds that the record is gone and looks again.
//!
//! A ghost that stays is put on a list and tried again at the end of the worker's next writing
//! transactions, with the key locked for the purpose, without waiting.

use foxton_lock::manager::LockManager;
use foxton_lock::mode::{GapPart, KeyPart, Mode};
use foxton_lock::name::Name;
use foxton_store::memory::{Next, Record};
use foxton_sync::worker::Worker;

use super::changes::GhostIf;
use super::state::State;
use crate::catalog::OpenTable;
use crate::engine::{Counter, Engine};
use crate::options::Locking;
use crate::testing::failpoint;

const KEY_AND_GAP: Mode = Mode::key(KeyPart::X, GapPart::X);
/// Old ghosts tried at the end of one transaction.
const RETRIES: usize = 4;
/// Old ghosts remembered; what comes later stays until the database is opened again.
const REMEMBERED: usize = 4096;

impl State {
    /// Removes the ghosts that this transaction leaves. Its locks are still held.
    pub(crate) fn remove_ghosts(&mut self, ended: GhostIf) {
        let State {
            engine,
            worker,
            owner,
            tables,
            changes,
            ghosts,
            ..
        } = self;
        let left = changes.left.iter().map(|(table, key)| (*table, &key[..]));
        let leave = changes.undo.iter().filter(|undo| undo.ghost_if == ended);
        let leave = leave.map(|undo| (undo.table, changes.key(undo)));
        for (index, key) in leave.chain(left) {
            let table = &*tables[index].table;
            // It may have a value again, or be gone already; nobody else changes that.
            let record = table.rows.get(&worker.pin(), key).map(Record::is_ghost);
            if record != Some(true) {
                continue;
            }
            let gap_is_ours = engine.options.locking == Locking::Off || {
                let name = Name::key(table.record.id, key, &engine.hasher);
                let is_covered = owner.has_escalated() && owner.covers(name, KEY_AND_GAP);
                let locks = &engine.locks;
                is_covered || locks.try_lock(worker, owner, name, KEY_AND_GAP).is_held()
            };
            if gap_is_ours {
                remove(engine, worker, table, key);
            } else if ghosts.len() < REMEMBERED {
                ghosts.push_back((index, key.into()));
                engine.counters.add(worker, Counter::GhostsLeft as usize, 1);
            }
        }
    }

    /// Tries some of the ghosts that had to stay. The transaction holds no locks of its own any more.
    pub(crate) fn retry_ghosts(&mut self) {
        let State {
            engine,
            worker,
            owner,
            tables,
            ghosts,
            tenure,
            ..
        } = self;
        for _ in 0..RETRIES.min(ghosts.len()) {
            // From the front, so that one that stays stuck does not keep the others.
            let Some((index, key)) = ghosts.pop_front() else {
                return;
            };
            let table = &*tables[index].table;
            let id = table.record.id;
            let name = Name::key(id, &key, &engine.hasher);
            let mut held = |name, mode| engine.locks.try_lock(worker, owner, name, mode).is_held();
            if held(Name::table(id), KEY_AND_GAP.parent_mode()) && held(name, KEY_AND_GAP) {
                remove(engine, worker, table, &key);
            } else {
                ghosts.push_back((index, key));
            }
            tenure.release(&engine.locks, worker, owner);
        }
    }
}

/// Takes the record of `key` out of its table, if it is a ghost. The caller has the key and its gap
/// exclusively.
fn remove(engine: &Engine, worker: &Worker, table: &OpenTable, key: &[u8]) {
    worker.failpoints().pass(&failpoint::PURGE);
    let guard = worker.pin();
    if let Some(record) = table.rows.get(&guard, key)
        && record.is_ghost()
        && table.rows.remove(&guard, record, Next::Any).is_ok()
    {
        engine
            .counters
            .add(worker, Counter::GhostsPurged as usize, 1);
    }
}
