//! Audit of a run's log: no change is undone twice, and no committed change is undone.

use super::engine::Trouble;
use foxton_log::device::Device;
use foxton_log::read::reader;
use foxton_log::{Lsn, Start};
use foxton_store::paged::recovery::record::{Malformed, RecoveryRecord};
use std::collections::{BTreeMap, BTreeSet};

/// Counts of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Number of changes that can be undone.
    pub updates: u64,
    /// Number of these that were undone.
    pub compensations: u64,
}

/// A transaction, by its records.
#[derive(Debug, Default)]
struct Chain {
    /// Changes that can be undone and were not, by `prev`, which no two records share.
    standing: BTreeSet<Option<Lsn>>,
    committed: bool,
}

/// Reads the whole log of the database `identity` in `device`, from its first record.
///
/// # Errors
///
/// If a change was undone that cannot be: because it was undone before, or was committed.
pub fn audit(device: &dyn Device, identity: &[u8; 16]) -> Result<Counted, Trouble> {
    let mut counted = Counted::default();
    let mut chains: BTreeMap<Lsn, Chain> = BTreeMap::new();
    let mut take = |record: &RecoveryRecord<'_>, lsn: Lsn| {
        let Some(transaction) = record.transaction(lsn) else {
            return true;
        };
        let chain = chains.entry(transaction).or_default();
        match record {
            RecoveryRecord::Update(update) if update.reserve > 0 => {
                counted.updates += 1;
                let prev = update.link.map(|link| link.prev);
                chain.standing.insert(prev) && Some(lsn) > prev
            }
            RecoveryRecord::Compensation(compensation) => {
                counted.compensations += 1;
                !chain.committed && chain.standing.remove(&compensation.undo_next)
            }
            RecoveryRecord::Commit(..) => {
                chain.committed = true;
                true
            }
            _ => true,
        }
    };
    reader::read(device, identity, Start::default(), &mut |view| {
        let expected = "the first compensation of a change that can be undone";
        let record = RecoveryRecord::decode(&view)?;
        let sound = record.is_none_or(|record| take(&record, view.lsn));
        sound.then_some(()).ok_or(Malformed {
            lsn: view.lsn,
            expected,
        })
    })?;
    Ok(counted)
}
