//! Stamps: the transaction that wrote a string, so that lost and dirty writes show.
//!
//! With stamps, the string of an update begins with `#` and sixteen hexadecimal digits: (run,
//! client, sequence). Every client records its committed updates, with the times between which they
//! ran. After a run each string must obey these rules:
//!
//! * R1  A string without a committed write is as it was before the run.
//! * R2  Any other has the stamp of a transaction that committed and wrote it.
//! * R3  That transaction did not end before another one that wrote the string began, because the
//!   other's write would have been lost.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use super::row::{FIELD_BYTES, FIELDS};

/// The writer of a string. Never zero; zero is the load.
pub type Stamp = u64;

/// The place of a string: table (0..3), key (from 1) and index (0..10).
pub type Place = (usize, u32, usize);

const LENGTH: usize = 17;

/// The stamp of a client's transaction `sequence` (from 1).
pub fn stamp(run: u16, client: u16, sequence: u32) -> Stamp {
    u64::from(run) << 48 | u64::from(client) << 32 | u64::from(sequence)
}

/// Writes a stamp over the beginning of a string.
pub fn write(text: &mut [u8; FIELD_BYTES], stamp: Stamp) {
    text[..LENGTH].copy_from_slice(format!("#{stamp:016x}").as_bytes());
}

/// The stamp a string carries; zero if it is as loaded.
pub fn read(text: &[u8; FIELD_BYTES]) -> Stamp {
    let digits = text[..LENGTH]
        .strip_prefix(b"#")
        .and_then(|text| str::from_utf8(text).ok());
    digits
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .unwrap_or(0)
}

/// One committed update.
#[derive(Debug)]
pub struct Update {
    /// Its stamp.
    pub stamp: Stamp,
    /// Just before it began; the attempt that committed, not an earlier one.
    pub began: Instant,
    /// Just after it ended.
    pub ended: Instant,
    /// The strings it wrote.
    pub table: usize,
    /// Their index in the rows.
    pub field: usize,
    /// The rows.
    pub keys: Vec<u32>,
}

/// Records of a client; dropping the client adds them to the book.
#[derive(Debug)]
pub struct Notes {
    updates: Vec<Update>,
    book: Arc<Mutex<Vec<Update>>>,
}

impl Notes {
    /// Records a committed update.
    pub fn note(&mut self, update: Update) {
        self.updates.push(update);
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.append(&mut self.updates);
    }
}

/// The stamps of an idle database, and the updates of the current run.
#[derive(Debug)]
pub struct Book {
    rows: u32,
    known: Vec<Stamp>,
    updates: Arc<Mutex<Vec<Update>>>,
}

impl Book {
    /// The book of freshly loaded tables of `rows` rows.
    pub fn new(rows: u32) -> Book {
        let strings = super::row::TABLES * rows as usize * FIELDS;
        Book {
            rows,
            known: vec![0; strings],
            updates: Arc::default(),
        }
    }

    /// Where one client records its updates.
    pub fn notes(&self) -> Notes {
        Notes {
            updates: Vec::new(),
            book: self.updates.clone(),
        }
    }

    /// Begins the comparison after a run. All clients must have been dropped.
    pub fn audit(&mut self) -> Audit<'_> {
        let updates =
            std::mem::take(&mut *self.updates.lock().unwrap_or_else(PoisonError::into_inner));
        let mut writers: HashMap<Place, Vec<usize>> = HashMap::new();
        for (index, update) in updates.iter().enumerate() {
            for &key in &update.keys {
                writers
                    .entry((update.table, key, update.field))
                    .or_default()
                    .push(index);
            }
        }
        Audit {
            book: self,
            updates,
            writers,
        }
    }
}

/// The comparison after a run.
#[derive(Debug)]
pub struct Audit<'book> {
    book: &'book mut Book,
    updates: Vec<Update>,
    writers: HashMap<Place, Vec<usize>>,
}

impl Audit<'_> {
    /// Compares the stamp found in one string, and remembers it for the next run.
    ///
    /// # Errors
    ///
    /// The error, as a sentence.
    pub fn compare(&mut self, place: Place, found: Stamp) -> Result<(), String> {
        let (table, key, field) = place;
        let slot = (table * self.book.rows as usize + key as usize - 1) * FIELDS + field;
        let before = std::mem::replace(&mut self.book.known[slot], found);
        let string = format_args!(
            "b_value_{} of row {key} of txbench_{}",
            field + 1,
            table + 1
        );
        let Some(writers) = self.writers.get(&place) else {
            return match found == before {
                true => Ok(()), // R1
                false => Err(format!(
                    "{string} carries stamp {found:x}, which no committed transaction wrote there"
                )),
            };
        };
        let all = || writers.iter().map(|&index| &self.updates[index]);
        let Some(winner) = all().find(|update| update.stamp == found) else {
            return Err(format!(
                "{string} carries stamp {found:x}, but {} committed transactions wrote there, none \
                 of them with this stamp",
                writers.len()
            )); // R2
        };
        match all().find(|update| update.began > winner.ended) {
            Some(lost) => Err(format!(
                "{string} carries stamp {found:x}, but {:x} began after that had ended, committed, \
                 and its write is lost",
                lost.stamp
            )), // R3
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PLACE: Place = (1, 7, 3);

    /// A book in which these updates (stamp, began, ended in seconds) wrote `PLACE`.
    fn book(updates: &[(Stamp, u64, u64)]) -> Book {
        let book = Book::new(10);
        let start = Instant::now();
        let mut notes = book.notes();
        for &(stamp, began, ended) in updates {
            notes.note(Update {
                stamp,
                began: start + Duration::from_secs(began),
                ended: start + Duration::from_secs(ended),
                table: 1,
                field: 3,
                keys: vec![7, 9],
            });
        }
        book
    }

    #[test]
    fn a_stamp_comes_back_from_the_string_it_was_written_to() {
        let mut text = [b'x'; FIELD_BYTES];
        assert_eq!(read(&text), 0);
        write(&mut text, stamp(3, 500, 77));
        assert_eq!(read(&text), stamp(3, 500, 77));
    }

    #[test]
    fn r1_a_string_nobody_wrote_stays_as_it_was() {
        let mut book = book(&[(5, 0, 1)]);
        assert!(book.audit().compare((0, 1, 0), 0).is_ok());
        assert!(
            book.audit()
                .compare((0, 1, 0), 6)
                .unwrap_err()
                .contains("no committed")
        );
    }

    #[test]
    fn r2_a_write_by_a_transaction_that_did_not_commit_shows() {
        let mut book = book(&[(5, 0, 1)]);
        assert!(
            book.audit()
                .compare(PLACE, 6)
                .unwrap_err()
                .contains("none of them")
        );
    }

    #[test]
    fn r2_a_committed_write_that_is_missing_shows() {
        assert!(book(&[(5, 0, 1)]).audit().compare(PLACE, 0).is_err());
    }

    #[test]
    fn r3_an_earlier_write_cannot_hide_a_later_one_but_a_concurrent_one_can() {
        assert!(
            book(&[(5, 0, 1), (6, 2, 3)])
                .audit()
                .compare(PLACE, 5)
                .is_err()
        );
        assert!(
            book(&[(5, 0, 1), (6, 2, 3)])
                .audit()
                .compare(PLACE, 6)
                .is_ok()
        );
        assert!(
            book(&[(5, 0, 2), (6, 1, 3)])
                .audit()
                .compare(PLACE, 5)
                .is_ok()
        );
    }

    #[test]
    fn what_one_run_left_is_what_the_next_begins_with() {
        let mut book = book(&[(5, 0, 1)]);
        assert!(book.audit().compare(PLACE, 5).is_ok());
        assert!(book.audit().compare(PLACE, 5).is_ok());
        assert!(book.audit().compare(PLACE, 0).is_err());
    }
}
