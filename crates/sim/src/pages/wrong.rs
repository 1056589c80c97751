//! Injected faults of clients and of restart, with records that they make themselves.

use super::Fault;
use super::engine::{Engine, IDENTITY, Trouble, open_log};
use super::page::Back;
use foxton_log::device::fault::FaultDevice;
use foxton_log::read::reader;
use foxton_log::{Lsn, Start};
use foxton_store::paged::recovery::record::{Compensation, Link, Malformed, RecoveryRecord};
use foxton_store::paged::recovery::{PageId, RecordPosition};
use foxton_sync::worker::Workers;
use std::collections::BTreeMap;

/// Rolls back in a wrong way.
pub(super) fn wrong_rollback(
    engine: &Engine,
    fault: Option<Fault>,
    trace: &[(PageId, RecordPosition, Back)],
) -> Result<(), Trouble> {
    let Some((_, first, _)) = trace.first() else {
        return Ok(());
    };
    let (log, worker) = (engine.recovered.recovery.log(), &engine.worker);
    let mut link = Link {
        transaction: first.begin,
        prev: trace.last().expect("there is one").1.begin,
    };
    for (page, place, back) in trace.iter().rev() {
        let Back::There(change) = back else {
            continue;
        };
        let lsn = engine.pool.change(*page, change, |change| {
            if fault == Some(Fault::NoCompensation) {
                return Ok(*place);
            }
            let compensation = RecoveryRecord::Compensation(Compensation {
                link,
                undo_space: 0,
                undo_next: Some(place.begin),
                change,
            });
            Ok(compensation.insert(log, worker)?)
        })?;
        if fault != Some(Fault::NoCompensation) {
            link.prev = lsn.begin;
        }
    }
    RecoveryRecord::End(link).insert(log, worker)?;
    Ok(())
}

/// Commits the last running transaction without its knowledge.
pub(super) fn crown(device: &FaultDevice) -> Result<(), Trouble> {
    let (log, analysis) = open_log(device, None)?;
    let mut last: BTreeMap<Lsn, (Lsn, bool)> = BTreeMap::new();
    let start = Start::default();
    let read = reader::read(device, &IDENTITY, start, &mut |view| {
        match RecoveryRecord::decode(&view)? {
            Some(RecoveryRecord::End(link) | RecoveryRecord::Commit(link, _)) => {
                last.remove(&link.transaction);
            }
            Some(record) => {
                let open = matches!(record, RecoveryRecord::Update(_));
                if let Some(transaction) = record.transaction(view.lsn) {
                    last.insert(transaction, (view.lsn, open));
                }
            }
            None => {}
        }
        Ok::<_, Malformed>(())
    });
    drop(analysis);
    let worker = Workers::new().worker();
    let under_way = last.iter().rev().find(|(_, (_, open))| *open);
    if let (Ok(_), Some((&transaction, &(prev, _)))) = (read, under_way) {
        let commit = RecoveryRecord::Commit(Link { transaction, prev }, None);
        commit.insert(&log, &worker)?;
    }
    log.close(&worker)?;
    Ok(())
}
