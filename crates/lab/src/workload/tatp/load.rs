//! Loading the tables: in parallel, a subscriber with all its rows at a time.

use foxton::Transaction;

use super::{
    ACCESS_INFOS, CALL_FORWARDINGS, SPECIAL_FACILITIES, SUBSCRIBERS, Shape,
    initial::{access_infos, facilities, subscriber},
};
use crate::workload::loading::{Loading, pieces};

/// Subscribers that a transaction of the load writes: some five hundred rows.
const SUBSCRIBERS_A_TRANSACTION: u32 = 50;

/// Fills the tables.
///
/// # Errors
///
/// If the engine refuses an operation.
pub fn load(into: &Loading<'_>, shape: &Shape) -> foxton::Result<()> {
    let pieces = pieces(shape.subscribers, SUBSCRIBERS_A_TRANSACTION);
    into.pieces(pieces, |tx, ids| {
        ids.clone().map(|id| insert(tx, shape, id)).sum()
    })
}

/// Inserts a subscriber and all that refers to it, and returns how many rows that were.
fn insert(tx: &mut Transaction, shape: &Shape, id: u32) -> foxton::Result<u64> {
    tx.insert(&SUBSCRIBERS, &id, &subscriber(shape, id)[..])?;
    let mut rows = 1;
    for (ai_type, row) in access_infos(shape, id) {
        tx.insert(&ACCESS_INFOS, &(id, ai_type), &row[..])?;
        rows += 1;
    }
    for facility in facilities(shape, id) {
        let sf_type = facility.sf_type;
        tx.insert(&SPECIAL_FACILITIES, &(id, sf_type), &facility.row[..])?;
        for (start_time, row) in &facility.forwardings {
            tx.insert(&CALL_FORWARDINGS, &(id, sf_type, *start_time), &row[..])?;
        }
        rows += 1 + facility.forwardings.len() as u64;
    }
    Ok(rows)
}
