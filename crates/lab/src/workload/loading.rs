//! Loading in parallel: pieces of a load, taken by whoever is free.

use std::{
    ops::RangeInclusive,
    sync::{Mutex, PoisonError},
    thread,
};

use foxton::{Database, Durability, Transaction};

use crate::progress::Progress;

/// Rows that a transaction of a load writes, unless there is a reason for another number.
pub const ROWS_A_TRANSACTION: u32 = 500;

/// The keys 1 ..= `last` in pieces of `each` at most.
pub fn pieces(last: u32, each: u32) -> impl Iterator<Item = RangeInclusive<u32>> {
    (1..=last)
        .step_by(each as usize)
        .map(move |first| first..=last.min(first.saturating_add(each - 1)))
}

/// Has `threads` threads write all `pieces`, each in a transaction of its own by `write`, which says how
/// many rows that were.
///
/// # Errors
///
/// The first thing the engine refused. The other threads stop at their next piece.
///
/// # Panics
///
/// If `write` does.
pub fn in_parallel<P: Send>(
    db: &Database,
    threads: usize,
    pieces: impl Iterator<Item = P> + Send,
    progress: &Progress,
    write: impl Fn(&mut Transaction, &P) -> foxton::Result<u64> + Sync,
) -> foxton::Result<()> {
    let left = Mutex::new(Some(pieces));
    let next = || {
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        left.as_mut()?.next()
    };
    let work = || -> foxton::Result<()> {
        while let Some(piece) = next() {
            let written = db.run(|tx| {
                // A load that a crash cuts short is done again from the beginning: it waits for nothing.
                tx.set_durability(Durability::None);
                write(tx, &piece)
            });
            if written.is_err() {
                *left.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            progress.advance(written?);
        }
        Ok(())
    };
    thread::scope(|scope| {
        // This thread writes, too: where the system has no more threads to give, the load takes longer.
        let other = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..threads.max(1)).filter_map(other).collect();
        let own = work();
        let ends: Vec<_> = others
            .into_iter()
            .map(|worker| worker.join().expect("loading does not panic"))
            .collect();
        ends.into_iter().chain([own]).collect()
    })
}

#[cfg(test)]
mod tests {
    use foxton::{Options, Table};

    use super::*;
    use crate::progress::Audience;

    const NUMBERS: Table<u32, u32> = Table::new("numbers");

    #[test]
    fn pieces_cover_every_key_once() {
        let all: Vec<_> = pieces(7, 3).collect();
        assert_eq!(all, [1..=3, 4..=6, 7..=7]);
        assert_eq!(pieces(0, 3).count(), 0);
    }

    #[test]
    fn every_piece_is_written_and_what_is_refused_ends_the_load() {
        let db = Database::in_memory(Options::tiny()).unwrap();
        let progress = Audience::Nobody.count("", 0, "");
        let load = |each| {
            in_parallel(&db, 3, pieces(100, each), &progress, |tx, keys| {
                for key in keys.clone() {
                    tx.insert(&NUMBERS, &key, &(key * 2))?;
                }
                Ok(u64::from(keys.end() - keys.start() + 1))
            })
        };
        load(7).unwrap();
        let count = db.run(|tx| tx.range(&NUMBERS, ..).count()).unwrap();
        assert_eq!(count, 100);
        assert_eq!(load(50).unwrap_err().code(), "key_exists");
    }
}
