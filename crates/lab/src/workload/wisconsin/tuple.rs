//! A tuple: thirteen integers and three strings.
//!
//! ```text
//! byte 0         4         8 ...            52           104          156          208
//!      | unique1 | unique2 | eleven more    | stringu1   | stringu2   | string4    |
//!      | i32 LE each                        | 52 letters each                      |
//! ```
//!
//! The integers after the first two are those of the benchmark's form of 1993: two, four, ten and
//! twenty by remainder, four percentages, unique3, evenOnePercent and oddOnePercent.

/// Bytes of a tuple.
pub const TUPLE_BYTES: usize = INTEGERS * 4 + 3 * STRING_BYTES;

const INTEGERS: usize = 13;
const STRING_BYTES: usize = 52;
/// Offset of the integer that is the same in a tenth of the tuples.
const TEN_PERCENT: usize = 7;

// The document's number.
const _: () = assert!(TUPLE_BYTES == 208);

/// The tuple of these two numbers.
pub fn tuple(unique1: u32, unique2: u32) -> [u8; TUPLE_BYTES] {
    const FOURTH: [u8; 4] = *b"AHOV";
    let integers: [u32; INTEGERS] = [
        unique1,
        unique2,
        unique1 % 2,
        unique1 % 4,
        unique1 % 10,
        unique1 % 20,
        unique1 % 100,
        unique1 % 10,
        unique1 % 5,
        unique1 % 2,
        unique1,
        unique1 % 100 * 2,
        unique1 % 100 * 2 + 1,
    ];
    let mut bytes = [b'x'; TUPLE_BYTES];
    for (place, integer) in bytes.chunks_mut(4).zip(integers) {
        place.copy_from_slice(&integer.to_le_bytes());
    }
    let strings = INTEGERS * 4;
    letters(&mut bytes[strings..], unique1);
    letters(&mut bytes[strings + STRING_BYTES..], unique2);
    let fourth = FOURTH[unique2 as usize % FOURTH.len()];
    bytes[strings + 2 * STRING_BYTES..][..4].fill(fourth);
    bytes
}

/// A number in seven letters, the last digit last.
fn letters(place: &mut [u8], mut number: u32) {
    for letter in place[..7].iter_mut().rev() {
        *letter = b'A' + (number % 26) as u8;
        number /= 26;
    }
}

/// `tenPercent` of a tuple; `None` if these bytes are too few to be one.
pub fn ten_percent(tuple: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(
        *tuple.get(TEN_PERCENT * 4..)?.first_chunk()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_says_its_numbers() {
        let bytes = tuple(4_321, 27);
        assert_eq!(ten_percent(&bytes), Some(1));
        assert_eq!(bytes[..4], 4_321u32.to_le_bytes());
        assert_eq!(&bytes[104..112], b"AAAAABBx");
        assert_eq!(&bytes[156..161], b"VVVVx");
    }
}
