//! Rows as bytes: numbers little-endian, in one byte if they fit. With their keys they have the
//! sizes of the benchmark, 57, 15, 13 and 22 bytes, or, padded, 100 and 50.
//!
//! ```text
//! byte                 0          15       25       35         45             49
//! subscriber           | sub_nbr  | bit    | hex    | byte2    | msc_location | vlr_location |
//!                      | 15 digits| 10×0/1 | 10×0..16 | 10 bytes | u32          | u32          |
//! access info          | data1 | data2 | data3: 3 letters | data4: 5 letters |
//! special facility     | is_active | error_cntrl | data_a | data_b: 5 letters |
//! call forwarding      | end_time | numberx: 15 digits |
//! ```

use std::ops::Range;

/// Digits of a number that calls are made to.
pub const NUMBER_BYTES: usize = 15;
/// A number that calls are made to.
pub type Number = [u8; NUMBER_BYTES];

/// Bytes of a subscriber's value, unpadded.
pub const SUBSCRIBER_BYTES: usize = 53;
/// Bytes of an access info's value, unpadded.
pub const ACCESS_INFO_BYTES: usize = 10;
/// Bytes of a special facility's value, unpadded.
pub const SPECIAL_FACILITY_BYTES: usize = 8;
/// Bytes of a call forwarding's value, unpadded.
pub const CALL_FORWARDING_BYTES: usize = 16;

/// Offset of a subscriber's bits, each 0 or 1.
pub const BITS: Range<usize> = 15..25;
/// Offset of its hexadecimal digits, each 0..16.
pub const HEX: Range<usize> = 25..35;
/// Offset of its ten numbers of a byte.
pub const BYTE2: Range<usize> = 35..45;
/// Where it is registered.
pub const MSC_LOCATION: Range<usize> = 45..49;
/// Its present location.
pub const VLR_LOCATION: Range<usize> = 49..53;
/// The bit that transactions change.
pub const BIT_1: usize = BITS.start;
/// True if a special facility is active.
pub const IS_ACTIVE: usize = 0;
/// The part of a special facility that transactions change.
pub const DATA_A: usize = 2;
/// When a call forwarding ends.
pub const END_TIME: usize = 0;
/// Its destination.
pub const NUMBERX: Range<usize> = 1..16;

// With keys of 4, 5, 5 and 6 bytes.
const _: () = assert!(SUBSCRIBER_BYTES + 4 == 57 && ACCESS_INFO_BYTES + 5 == 15);
const _: () = assert!(SPECIAL_FACILITY_BYTES + 5 == 13 && CALL_FORWARDING_BYTES + 6 == 22);

/// Bytes of a value and its key when they are padded: of a subscriber, and of any other.
const PADDED: (usize, usize) = (100, 50);

/// Lengthens the value of a subscriber to its padded size.
pub fn pad_subscriber(row: &mut Vec<u8>) {
    row.resize(PADDED.0 - 4, b' ');
}

/// Lengthens any other value with a key of `key_bytes` bytes.
pub fn pad(row: &mut Vec<u8>, key_bytes: usize) {
    row.resize(PADDED.1 - key_bytes, b' ');
}

/// A subscriber's number: its id in 15 digits.
pub fn number_of(subscriber: u32) -> Number {
    let mut number = [b'0'; NUMBER_BYTES];
    let mut left = subscriber;
    for digit in number.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    number
}

/// A number as text, for the index.
///
/// # Panics
///
/// If these are not digits.
pub fn text(number: &Number) -> &str {
    std::str::from_utf8(number).expect("digits are text")
}

/// The number in a subscriber's value; `None` if these bytes are not one.
pub fn number(row: &[u8]) -> Option<&str> {
    std::str::from_utf8(row.first_chunk::<NUMBER_BYTES>()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_id_with_zeros_before_it() {
        assert_eq!(text(&number_of(42)), "000000000000042");
        assert_eq!(text(&number_of(u32::MAX)), "000004294967295");
        assert_eq!(number(&number_of(7)), Some("000000000000007"));
        assert_eq!(number(b"short"), None);
    }
}
