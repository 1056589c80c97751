//! Checks of an idle database: the records, and what is in them.

use std::collections::HashMap;

use foxton::Database;

use super::{RECORDS, record};
use crate::{random::zipfian::scatter, workload::whole_table::each_row};

/// Compares the table with the records 0 to `records - 1`: each exists, no other does, and each has
/// ten fields of a hundred bytes. With `contents`, the seed of the load, they have the bytes of
/// their first write.
///
/// # Errors
///
/// The first thing found wrong, as a sentence that names the record.
pub fn check(db: &Database, records: u64, contents: Option<u64>) -> Result<(), String> {
    let mut awaited: HashMap<u64, u64> = (0..records)
        .map(|number| (scatter(number), number))
        .collect();
    each_row(db, &RECORDS, |key, bytes| {
        let number = record::hash_of(key).and_then(|hash| awaited.remove(&hash));
        let number = number.ok_or_else(|| format!("record {key} was never inserted"))?;
        if let Some(what) = record::wrong(bytes) {
            return Err(format!("record {key}, number {number}: {what}"));
        }
        match contents {
            Some(seed) if record::initial(seed, number)[..] != *bytes => Err(format!(
                "record {key}, number {number}, is not what was written"
            )),
            _ => Ok(()),
        }
    })?;
    let lost = awaited.len();
    match awaited.into_values().min() {
        None => Ok(()),
        Some(number) => Err(format!(
            "record {}, number {number}, is gone; {lost} of {records} are",
            record::key(number)
        )),
    }
}

#[cfg(test)]
mod tests {
    //! Each check finds its fault.

    use foxton::{Options, Transaction};

    use super::*;

    const SEED: u64 = 3;

    fn found(spoil: impl Fn(&mut Transaction) -> foxton::Result<()>) -> String {
        let db = Database::in_memory(Options::tiny()).unwrap();
        db.run(|tx| {
            (0..1_100).try_for_each(|number| {
                let record = record::initial(SEED, number);
                tx.insert(&RECORDS, &record::key(number), &record[..])
            })
        })
        .unwrap();
        assert_eq!(check(&db, 1_100, Some(SEED)), Ok(()));
        db.run(spoil).unwrap();
        check(&db, 1_100, Some(SEED)).unwrap_err()
    }

    #[test]
    fn a_wrong_record_is_found_and_named() {
        let key = record::key(42);
        let put = |bytes: &[u8]| found(|tx| tx.put(&RECORDS, &key, bytes));
        let mut changed = record::initial(SEED, 42);
        let short = put(&changed[..changed.len() - 1]);
        assert_eq!(
            short,
            format!("record {key}, number 42: field 9 has 99 bytes, not 100")
        );
        assert!(record::change(&mut changed, 5, 1));
        assert_eq!(
            put(&changed),
            format!("record {key}, number 42, is not what was written")
        );
    }

    #[test]
    fn a_record_too_few_or_too_many_is_found_and_named() {
        let key = record::key(42);
        assert_eq!(
            found(|tx| tx.delete(&RECORDS, &key).map(drop)),
            format!("record {key}, number 42, is gone; 1 of 1100 are")
        );
        let more = record::key(1_100);
        let whole = record::initial(SEED, 1_100);
        assert_eq!(
            found(|tx| tx.put(&RECORDS, &more, &whole)),
            format!("record {more} was never inserted")
        );
        assert_eq!(
            found(|tx| tx.put(&RECORDS, "anybody", &whole)),
            "record anybody was never inserted"
        );
    }
}
