//! A row: bytes drawn from its table and its key.

use crate::random::Random;

/// Bytes of a row.
pub const ROW_BYTES: usize = 100;

/// Row `key` of a table.
pub fn row(seed: u64, table: usize, key: u32) -> [u8; ROW_BYTES] {
    let words = [
        seed,
        u64::from_be_bytes(*b"_private"),
        table as u64,
        u64::from(key),
    ];
    let mut row = [0; ROW_BYTES];
    Random::seeded(&words).fill(&mut row);
    row
}
