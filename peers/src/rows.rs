//! Rows that every engine gets, in the same transactions, and what may be found of them.

use std::collections::BTreeMap;

/// All rows: a number, and 100 bytes.
pub(crate) type Rows = BTreeMap<u64, Vec<u8>>;

/// Transactions in a database.
pub(crate) const COMMITS: u64 = 40;
/// Rows that each transaction puts or deletes.
const CHANGES: u64 = 25;
/// Keys lie below.
pub(crate) const KEYS: u64 = 500;
const VALUE_BYTES: usize = 100;

/// Changes of transaction `commit`: a new value for a key, or its deletion. One in ten changes
/// deletes.
pub(crate) fn changes(seed: u64, commit: u64) -> impl Iterator<Item = (u64, Option<Vec<u8>>)> {
    (0..CHANGES).map(move |n| {
        let draw = mix(mix(seed) ^ (commit << 16) ^ n);
        let value = !(draw >> 32).is_multiple_of(10);
        (draw % KEYS, value.then(|| bytes(draw)))
    })
}

fn bytes(draw: u64) -> Vec<u8> {
    let words = (0..).map(|n| mix(draw ^ n));
    words.flat_map(u64::to_le_bytes).take(VALUE_BYTES).collect()
}

/// The rows after so many transactions.
pub(crate) fn after(seed: u64, commits: u64) -> Rows {
    let mut rows = Rows::new();
    for (key, value) in (0..commits).flat_map(|commit| changes(seed, commit)) {
        match value {
            Some(value) => _ = rows.insert(key, value),
            None => _ = rows.remove(&key),
        }
    }
    rows
}

/// Scatters the bits of `word`: neighbours get nothing in common.
pub(crate) fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
