//! A row of txbench, and its loaded contents.
//!
//! ```text
//! byte 0        4              182                   1606          1784
//!      | value  | b_value_1    | b_value_2   ...     | b_value_10  |
//!      | i32 LE | 178 letters and digits each                      |
//! ```
//!
//! A row's generator is seeded from (load seed, table, key) and draws the value first, so that a
//! checker knows any row's value without making its strings.

use crate::random::Random;

/// Tables of the workload.
pub const TABLES: usize = 3;
/// Strings in a row.
pub const FIELDS: usize = 10;
/// Bytes of each string.
pub const FIELD_BYTES: usize = 178;
/// Bytes of a row.
pub const ROW_BYTES: usize = VALUE_BYTES + FIELDS * FIELD_BYTES;

const VALUE_BYTES: usize = 4;
const LARGEST_VALUE: u64 = 999_999;

// Three tables of 100,000 rows make half a gibibyte.
const _: () = assert!(ROW_BYTES == 1_784);

/// The loaded value of row `key` of `table` (0..3).
pub fn initial_value(seed: u64, table: usize, key: u32) -> i32 {
    draw_value(&mut generator(seed, table, key))
}

/// The loaded bytes of row `key` of `table` (0..3).
pub fn initial_row(seed: u64, table: usize, key: u32) -> [u8; ROW_BYTES] {
    let mut random = generator(seed, table, key);
    let mut row = [0; ROW_BYTES];
    row[..VALUE_BYTES].copy_from_slice(&draw_value(&mut random).to_le_bytes());
    random.fill_alphanumeric(&mut row[VALUE_BYTES..]);
    row
}

/// b_int_value of a row; `None` if these bytes are too few to be one.
pub fn value(row: &[u8]) -> Option<i32> {
    Some(i32::from_le_bytes(*row.first_chunk::<VALUE_BYTES>()?))
}

/// The string `index` (0..10) of a row; `None` if these bytes are too few to be one.
pub fn field(row: &[u8], index: usize) -> Option<&[u8; FIELD_BYTES]> {
    row.get(VALUE_BYTES + index * FIELD_BYTES..)?.first_chunk()
}

/// Replaces the string `index` (0..10) of a row.
///
/// # Panics
///
/// If these bytes are too few to be a row.
pub fn set_field(row: &mut [u8], index: usize, text: &[u8; FIELD_BYTES]) {
    let start = VALUE_BYTES + index * FIELD_BYTES;
    row[start..start + FIELD_BYTES].copy_from_slice(text);
}

/// The right sums of every read: for each table, the sums of the values of keys 1..=k for all k.
#[derive(Debug)]
pub struct Sums([Vec<i64>; TABLES]);

impl Sums {
    /// The sums of tables of `rows` rows loaded with `seed`.
    pub fn new(seed: u64, rows: u32) -> Sums {
        Sums(std::array::from_fn(|table| {
            let mut sum = 0;
            let values = (1..=rows).map(|key| {
                sum += i64::from(initial_value(seed, table, key));
                sum
            });
            std::iter::once(0).chain(values).collect()
        }))
    }

    /// The sum over keys `after` + 1 ..= `to` of `table`.
    pub fn between(&self, table: usize, after: u32, to: u32) -> i64 {
        self.0[table][to as usize] - self.0[table][after as usize]
    }
}

fn generator(seed: u64, table: usize, key: u32) -> Random {
    Random::seeded(&[seed, table as u64, u64::from(key)])
}

fn draw_value(random: &mut Random) -> i32 {
    random.uniform(0, LARGEST_VALUE) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_sums_agree_with_the_rows() {
        let sums = Sums::new(9, 50);
        let direct: i64 = (11..=20)
            .map(|key| i64::from(initial_value(9, 2, key)))
            .sum();
        assert_eq!(sums.between(2, 10, 20), direct);
        assert_eq!(value(&initial_row(9, 2, 11)), Some(initial_value(9, 2, 11)));
    }

    #[test]
    fn a_field_is_replaced_and_its_neighbours_are_not() {
        let before = initial_row(1, 0, 1);
        let mut after = before;
        set_field(&mut after, 9, &[b'!'; FIELD_BYTES]);
        assert_eq!(field(&after, 9), Some(&[b'!'; FIELD_BYTES]));
        assert_eq!(
            after[..ROW_BYTES - FIELD_BYTES],
            before[..ROW_BYTES - FIELD_BYTES]
        );
        assert_eq!(field(&[0; 100], 0), None);
    }
}
