//! A record as bytes: ten fields, each with its length before it.
//!
//! ```text
//! | 100 | field 0, 100 bytes | 100 | field 1, 100 bytes | ... |     1,010 bytes
//! ```
//!
//! Records are numbered from 0. A record's key is `user` and the hash of its number, so that
//! neighbours by number are far apart by key.

use crate::random::{Random, zipfian::scatter};

/// Fields of a record.
pub const FIELDS: usize = 10;
/// Bytes of a field.
pub const FIELD_BYTES: usize = 100;
const STRIDE: usize = 1 + FIELD_BYTES;
/// Bytes of a record.
pub const RECORD_BYTES: usize = FIELDS * STRIDE;

/// The prefix of the hash in a key.
const PREFIX: &str = "user";

/// The key of record `number`.
pub fn key(number: u64) -> String {
    format!("{PREFIX}{}", scatter(number))
}

/// The hash in a key; `None` if this is no record's key.
pub fn hash_of(key: &str) -> Option<u64> {
    key.strip_prefix(PREFIX)?.parse().ok()
}

/// Record `number` as it is first written.
pub fn initial(seed: u64, number: u64) -> [u8; RECORD_BYTES] {
    let mut random = Random::seeded(&[seed, u64::from_be_bytes(*b"____ycsb"), number]);
    let mut record = [0; RECORD_BYTES];
    for field in record.chunks_mut(STRIDE) {
        field[0] = FIELD_BYTES as u8;
        random.fill(&mut field[1..]);
    }
    record
}

/// Lets a field have other bytes, drawn from `seed`; `false` if this is not a whole record.
pub fn change(record: &mut [u8], field: usize, seed: u64) -> bool {
    let field = record.chunks_mut(STRIDE).nth(field);
    match field {
        Some([length, bytes @ ..]) if bytes.len() == FIELD_BYTES => {
            *length = FIELD_BYTES as u8;
            Random::seeded(&[seed]).fill(bytes);
            true
        }
        _ => false,
    }
}

/// Checks that these bytes are a record; the error says what is wrong.
pub fn wrong(record: &[u8]) -> Option<String> {
    let mut rest = record;
    for field in 0..FIELDS {
        let Some((&length, bytes)) = rest.split_first() else {
            return Some(format!("has {field} fields, not {FIELDS}"));
        };
        let length = usize::from(length).min(bytes.len());
        if length != FIELD_BYTES {
            return Some(format!(
                "field {field} has {length} bytes, not {FIELD_BYTES}"
            ));
        }
        rest = &bytes[length..];
    }
    let more = rest.len();
    (more > 0).then(|| format!("has {more} bytes after its last field"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_field_and_leaves_a_record() {
        let before = initial(1, 7);
        assert_eq!(before, initial(1, 7));
        assert_ne!(before, initial(1, 8));
        let mut after = before;
        assert!(change(&mut after, 3, 5));
        let field = |record: &[u8], field: usize| record[field * STRIDE..][..STRIDE].to_vec();
        for at in 0..FIELDS {
            assert_eq!(
                field(&before, at) == field(&after, at),
                at != 3,
                "field {at}"
            );
        }
        assert_eq!(wrong(&after), None);
        assert!(!change(&mut after[..RECORD_BYTES - 1], 9, 5));
        assert!(!change(&mut after, FIELDS, 5));
    }

    #[test]
    fn bytes_that_are_no_record_are_told_by_field() {
        let record = initial(1, 7);
        let wrong_in = |bytes: &[u8]| wrong(bytes).unwrap();
        assert_eq!(
            wrong_in(&record[..RECORD_BYTES - 1]),
            "field 9 has 99 bytes, not 100"
        );
        assert_eq!(wrong_in(&record[..STRIDE * 4]), "has 4 fields, not 10");
        assert_eq!(
            wrong_in(&[&record[..], &[1]].concat()),
            "has 1 bytes after its last field"
        );
        let mut short = record;
        short[STRIDE * 2] = 98;
        assert_eq!(wrong_in(&short), "field 2 has 98 bytes, not 100");
    }

    #[test]
    fn a_key_has_the_hash_of_its_number() {
        assert_eq!(hash_of(&key(12)), Some(scatter(12)));
        assert_eq!(hash_of("user"), None);
        assert_eq!(hash_of("abuser12"), None);
    }
}
