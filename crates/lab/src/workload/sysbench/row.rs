//! A row as bytes: a number and two strings of digits in groups.
//!
//! ```text
//! | k i32, little-endian | c, ten groups of 11 digits, 119 bytes | pad, five groups, 59 bytes |
//! ```

use crate::random::Random;

/// Digits of a group; a hyphen is between two.
const GROUP: usize = 11;
/// Bytes of c.
pub const C_BYTES: usize = 10 * (GROUP + 1) - 1;
/// Bytes of pad.
pub const PAD_BYTES: usize = 5 * (GROUP + 1) - 1;
const K_BYTES: usize = 4;
/// Bytes of a row.
pub const ROW_BYTES: usize = K_BYTES + C_BYTES + PAD_BYTES;

const _: () = assert!(C_BYTES == 119 && PAD_BYTES == 59);

/// The number; `None` if these bytes are too few to be a row.
pub fn k(row: &[u8]) -> Option<i32> {
    Some(i32::from_le_bytes(*row.first_chunk()?))
}

/// The first string; `None` if these bytes are too few to be a row.
pub fn c(row: &[u8]) -> Option<&[u8; C_BYTES]> {
    row.get(K_BYTES..)?.first_chunk()
}

/// A row with this number and fresh strings.
pub fn fresh(k: i32, random: &mut Random) -> [u8; ROW_BYTES] {
    let mut row = [0; ROW_BYTES];
    row[..K_BYTES].copy_from_slice(&k.to_le_bytes());
    let (c, pad) = row[K_BYTES..].split_at_mut(C_BYTES);
    fill(c, random);
    fill(pad, random);
    row
}

/// Row `id` of a table as it is loaded; k is uniform over the ids.
pub fn initial(seed: u64, table: usize, id: u32, rows: u32) -> [u8; ROW_BYTES] {
    let words = [
        seed,
        u64::from_be_bytes(*b"sysbench"),
        table as u64,
        u64::from(id),
    ];
    let mut random = Random::seeded(&words);
    let k = random.uniform(1, u64::from(rows)) as i32;
    fresh(k, &mut random)
}

/// Replaces the number; `false` if these bytes are too few to be a row.
pub fn set_k(row: &mut [u8], k: i32) -> bool {
    let place = row.first_chunk_mut();
    place.map(|bytes| *bytes = k.to_le_bytes()).is_some()
}

/// Replaces the first string by a fresh one; `false` if these bytes are too few to be a row.
pub fn renew_c(row: &mut [u8], random: &mut Random) -> bool {
    let place = row.get_mut(K_BYTES..K_BYTES + C_BYTES);
    place.map(|c| fill(c, random)).is_some()
}

fn fill(text: &mut [u8], random: &mut Random) {
    random.fill_digits(text);
    text.iter_mut()
        .skip(GROUP)
        .step_by(GROUP + 1)
        .for_each(|byte| *byte = b'-');
}

/// Checks that these bytes are a row; the error says what is wrong.
pub fn wrong(row: &[u8]) -> Option<String> {
    if row.len() != ROW_BYTES {
        return Some(format!("it has {} bytes, not {ROW_BYTES}", row.len()));
    }
    let (c, pad) = row[K_BYTES..].split_at(C_BYTES);
    [("c", c), ("pad", pad)]
        .into_iter()
        .find(|(_, text)| !is_grouped(text))
        .map(|(name, text)| format!("{name} is {:?}", String::from_utf8_lossy(text)))
}

fn is_grouped(text: &[u8]) -> bool {
    text.iter()
        .enumerate()
        .all(|(at, byte)| match at % (GROUP + 1) == GROUP {
            true => *byte == b'-',
            false => byte.is_ascii_digit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_number_and_groups_of_digits() {
        let mut row = initial(1, 2, 7, 1_000);
        assert_eq!(row, initial(1, 2, 7, 1_000));
        assert_ne!(row, initial(1, 3, 7, 1_000));
        assert!((1..=1_000).contains(&k(&row).unwrap()));
        assert_eq!(wrong(&row), None);
        let groups = c(&row).unwrap().split(|&byte| byte == b'-');
        assert_eq!(groups.map(<[u8]>::len).collect::<Vec<_>>(), [GROUP; 10]);
        let before = row;
        assert!(set_k(&mut row, 77) && renew_c(&mut row, &mut Random::seeded(&[1])));
        assert_eq!((k(&row), wrong(&row)), (Some(77), None));
        assert_ne!(c(&row), c(&before));
        assert_eq!(row[K_BYTES + C_BYTES..], before[K_BYTES + C_BYTES..]);
    }

    #[test]
    fn bytes_that_are_no_row_are_told() {
        let row = initial(1, 2, 7, 1_000);
        let short = &row[..ROW_BYTES - 1];
        assert_eq!(wrong(short).unwrap(), "it has 181 bytes, not 182");
        let mut letter = row;
        letter[K_BYTES + C_BYTES + 3] = b'x';
        assert!(wrong(&letter).unwrap().starts_with("pad is"));
        let mut joined = row;
        joined[K_BYTES + GROUP] = b'0';
        assert!(wrong(&joined).unwrap().starts_with("c is"));
        assert_eq!(k(&[1]), None);
    }
}
