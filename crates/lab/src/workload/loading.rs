//! Loading in parallel: pieces of a load, taken by idle threads.

use std::{
    ops::RangeInclusive,
    sync::{Mutex, PoisonError},
    thread,
};

use foxton::{Database, Durability, Transaction};

use crate::progress::Progress;

/// Rows of a load's transaction, unless there is a reason for another number.
pub const ROWS_A_TRANSACTION: u32 = 500;

/// The keys 1 ..= `last` in pieces of at most `each`.
pub fn pieces(last: u32, each: u32) -> impl Iterator<Item = RangeInclusive<u32>> {
    (1..=last)
        .step_by(each as usize)
        .map(move |first| first..=last.min(first.saturating_add(each - 1)))
}

/// The target of a load, its number of threads, and its progress.
#[derive(Debug, Clone, Copy)]
pub struct Loading<'a> {
    /// The database, whose tables are empty.
    pub db: &'a Database,
    /// Largest number of threads; 0 means 1.
    threads: usize,
    /// Each row written is a step of it.
    progress: &'a Progress,
}

impl<'a> Loading<'a> {
    /// A load of this database with at most this many threads.
    pub fn new(db: &'a Database, threads: usize, progress: &'a Progress) -> Loading<'a> {
        Loading {
            db,
            threads,
            progress,
        }
    }

    /// Lets `write` insert the rows of each of the keys 1 ..= `last`, and return their number.
    ///
    /// # Errors
    ///
    /// As for [`pieces`](Self::pieces).
    pub fn each(
        &self,
        last: u32,
        write: impl Fn(&mut Transaction, u32) -> foxton::Result<u64> + Sync,
    ) -> foxton::Result<()> {
        self.each_in(1, last, |tx, _, key| write(tx, key))
    }

    /// The same for each of the keys of each of `tables` tables, which are numbered from 0.
    ///
    /// # Errors
    ///
    /// As for [`pieces`](Self::pieces).
    pub fn each_in(
        &self,
        tables: usize,
        last: u32,
        write: impl Fn(&mut Transaction, usize, u32) -> foxton::Result<u64> + Sync,
    ) -> foxton::Result<()> {
        let of_table = |table| pieces(last, ROWS_A_TRANSACTION).map(move |keys| (table, keys));
        self.pieces((0..tables).flat_map(of_table), |tx, (table, keys)| {
            keys.clone().map(|key| write(tx, *table, key)).sum()
        })
    }

    /// Lets the threads write all `pieces`, each in a transaction of its own by `write`, which
    /// returns the number of rows. A piece that is a deadlock victim is written again.
    ///
    /// # Errors
    ///
    /// The first error of the engine. The other threads stop at their next piece.
    ///
    /// # Panics
    ///
    /// If `write` panics.
    pub fn pieces<P: Send>(
        &self,
        pieces: impl Iterator<Item = P> + Send,
        write: impl Fn(&mut Transaction, &P) -> foxton::Result<u64> + Sync,
    ) -> foxton::Result<()> {
        let left = Mutex::new(Some(pieces));
        let next = || {
            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
            left.as_mut()?.next()
        };
        let work = || -> foxton::Result<()> {
            while let Some(piece) = next() {
                let written = self.db.run(|tx| {
                    // A load that a crash interrupts is repeated from the beginning, so it need not
                    // wait for the device.
                    tx.set_durability(Durability::None);
                    write(tx, &piece)
                });
                if written.is_err() {
                    *left.lock().unwrap_or_else(PoisonError::into_inner) = None;
                }
                self.progress.advance(written?);
            }
            Ok(())
        };
        thread::scope(|scope| {
            // This thread writes too, so if the system starts no more threads, the load only takes
            // longer.
            let other = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
            let others: Vec<_> = (1..self.threads.max(1)).filter_map(other).collect();
            let own = work();
            let ends: Vec<_> = others
                .into_iter()
                .map(|worker| worker.join().expect("loading does not panic"))
                .collect();
            ends.into_iter().chain([own]).collect()
        })
    }
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
        let loading = Loading::new(&db, 3, &progress);
        let last = 3 * ROWS_A_TRANSACTION + 1;
        let load = || {
            loading.each(last, |tx, key| {
                tx.insert(&NUMBERS, &key, &(key * 2)).map(|()| 1)
            })
        };
        load().unwrap();
        let loaded = db.run(|tx| tx.range(&NUMBERS, ..).count()).unwrap();
        assert_eq!(loaded, u64::from(last));
        assert_eq!(progress.steps(), u64::from(last));
        assert_eq!(load().unwrap_err().code(), "key_exists");
    }
}
