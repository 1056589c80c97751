//! Layout of a record in the stream.
//!
//! ```text
//!  0        4        8        12   13     16               24
//!  +--------+--------+--------+----+------+----------------+-----------------+-------+
//!  | check  | length | payload|kind| zero | durable        | payload         | zeros |
//!  | u32    | u32    | u32    | u8 | 3    | u64            | `length` bytes  | to 8  |
//!  +--------+--------+--------+----+------+----------------+-----------------+-------+
//! ```
//!
//! All numbers are little-endian. Records begin at multiples of 8 and follow each other without
//! gaps.
//!
//! * `check` is the CRC-32C of the identity of the database, the LSN of the record, and bytes 4 to
//!   24. Identity and LSN are not stored. So the checksum fails for a record of another database,
//!   or one at an offset where it was not written.
//! * `payload` is the CRC-32C of the payload. It is covered by `check`, so it needs no identity,
//!   and an inserter can compute it before the record has an LSN.
//! * `durable` is how far the log was known to be durable when the record was inserted. By this
//!   field a reader can tell a torn end from damage; see [`reader`](crate::read::reader).
//!
//! # Invariants
//!
//! * I1 A header is trusted only after its checksum, and its length only up to `MAX_PAYLOAD`.
//! * I2 `durable <= lsn`.
//! * I3 A header of zeros does not decode: its kind is 0, which no record has.

use std::fmt;

use foxton_sync::checksum::crc32c;

use crate::format::lsn::Lsn;

/// Bytes in front of every payload.
pub const HEADER_BYTES: usize = 24;

/// Records begin at multiples of this number of bytes.
pub const ALIGNMENT: u64 = 8;

/// Largest payload of one record, in bytes: 256 MiB.
pub const MAX_PAYLOAD: usize = 256 << 20;

/// The first kind that the log uses itself; users have 1 up to here.
pub const FIRST_OWN_KIND: u8 = 0xf0;

/// Kind of the last record of a log that was closed.
pub(crate) const CLOSED: u8 = 0xff;

const _: () = assert!((HEADER_BYTES as u64).is_multiple_of(ALIGNMENT));
const _: () = assert!(MAX_PAYLOAD < u32::MAX as usize);

/// A record as a reader returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Where the record begins.
    pub lsn: Lsn,
    /// Where it ends and the next one begins; `insert` returned this LSN.
    pub end: Lsn,
    /// Its kind, chosen by its writer.
    pub kind: u8,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Reason why the bytes at some position are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// Nothing was written here: zeros.
    Empty,
    /// The checksum of the header fails, perhaps because it belongs to another position or
    /// database.
    Header,
    /// The log ends before the record does.
    Cut,
    /// The header is good but the checksum of the payload fails.
    Payload,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flaw::Empty => "nothing was written there",
            Flaw::Header => "the checksum of the record header does not match",
            Flaw::Cut => "the file ends before the record does",
            Flaw::Payload => "the checksum of the payload does not match",
        })
    }
}

/// Number of bytes in the stream of a record with this many bytes of payload.
pub const fn framed_bytes(payload: usize) -> u64 {
    (HEADER_BYTES as u64 + payload as u64).next_multiple_of(ALIGNMENT)
}

/// Number of zero bytes behind a payload of this size.
pub(crate) const fn padding(payload: usize) -> usize {
    (framed_bytes(payload) - HEADER_BYTES as u64) as usize - payload
}

/// Returns the CRC-32C of a payload given in parts.
#[inline(always)]
pub(crate) fn payload_check(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |check, part| crc32c(check, part))
}

/// Fields of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) length: u32,
    pub(crate) payload: u32,
    pub(crate) kind: u8,
    pub(crate) durable: Lsn,
}

/// Encodes and decodes headers of one database, whose identity goes into every checksum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderCodec {
    /// The CRC-32C of the identity without its last four bytes.
    before: u32,
    /// The last four bytes of the identity.
    last: u32,
}

impl HeaderCodec {
    pub(crate) fn new(identity: &[u8; 16]) -> Self {
        let [before @ .., a, b, c, d] = identity;
        HeaderCodec {
            before: crc32c(0, before),
            last: u32::from_le_bytes([*a, *b, *c, *d]),
        }
    }

    /// Returns the checksum of the header at `lsn` with this length and these words. With the last
    /// four bytes of the identity in front, the other 28 covered bytes become four aligned words of
    /// eight bytes, and the instruction takes one word at a time. 28 bytes at any address took
    /// twice the time.
    #[inline]
    fn check(self, lsn: Lsn, length: u32, words: [u64; 2]) -> u32 {
        let at = lsn.bytes();
        let covered = [
            u64::from(self.last) | at << 32,
            at >> 32 | u64::from(length) << 32,
            words[0],
            words[1],
        ]
        .map(u64::to_le_bytes);
        crc32c(self.before, covered.as_flattened())
    }

    /// Composes words instead of writing byte by byte: bytes that are written singly and then read
    /// as words have to wait for each other.
    #[inline]
    pub(crate) fn encode(self, lsn: Lsn, header: RecordHeader) -> [u8; HEADER_BYTES] {
        debug_assert!(header.durable <= lsn, "I2");
        let words = [
            u64::from(header.payload) | u64::from(header.kind) << 32,
            header.durable.bytes(),
        ];
        let check = self.check(lsn, header.length, words);
        let first = u64::from(check) | u64::from(header.length) << 32;
        let mut bytes = [0; HEADER_BYTES];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip([first, words[0], words[1]]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns the header in `bytes`, if they are one, at `lsn` of this database.
    pub(crate) fn decode(self, lsn: Lsn, bytes: &[u8; HEADER_BYTES]) -> Result<RecordHeader, Flaw> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(Flaw::Empty);
        }
        let header = RecordHeader {
            length: u32_at(bytes, 4),
            payload: u32_at(bytes, 8),
            kind: bytes[12],
            durable: Lsn::new(u64_at(bytes, 16)),
        };
        let words = [u64_at(bytes, 8), u64_at(bytes, 16)];
        // The cheap tests come first, because the search for records behind a bad one calls this at
        // every eighth byte.
        let sound = bytes[13..16] == [0; 3]
            && header.kind != 0
            && header.length as usize <= MAX_PAYLOAD
            && header.durable <= lsn
            && u32_at(bytes, 0) == self.check(lsn, header.length, words);
        if sound { Ok(header) } else { Err(Flaw::Header) }
    }
}

/// Returns four bytes at `at` as a number. Callers pass offsets inside their fixed-size headers.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

/// Returns eight bytes at `at` as a number. Callers pass offsets inside their fixed-size headers.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: RecordHeader = RecordHeader {
        length: 120,
        payload: 0xdead_beef,
        kind: 7,
        durable: Lsn::new(512),
    };

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let codec = HeaderCodec::new(&[3; 16]);
        let bytes = codec.encode(Lsn::new(4096), HEADER);
        assert_eq!(codec.decode(Lsn::new(4096), &bytes), Ok(HEADER));
    }

    #[test]
    fn a_header_elsewhere_or_of_another_database_is_refused() {
        let codec = HeaderCodec::new(&[3; 16]);
        let bytes = codec.encode(Lsn::new(4096), HEADER);
        assert_eq!(codec.decode(Lsn::new(4104), &bytes), Err(Flaw::Header));
        assert_eq!(
            HeaderCodec::new(&[4; 16]).decode(Lsn::new(4096), &bytes),
            Err(Flaw::Header)
        );
    }

    #[test]
    fn the_check_is_of_identity_lsn_and_header() {
        let identity = *b"0123456789abcdef";
        let bytes = HeaderCodec::new(&identity).encode(Lsn::new(4096), HEADER);
        let covered = [&identity, &4096_u64.to_le_bytes()[..], &bytes[4..]].concat();
        assert_eq!(u32_at(&bytes, 0), crc32c::crc32c(&covered));
    }

    #[test]
    fn any_one_flipped_bit_is_noticed() {
        let codec = HeaderCodec::new(&[3; 16]);
        let bytes = codec.encode(Lsn::new(4096), HEADER);
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                codec.decode(Lsn::new(4096), &flipped),
                Err(Flaw::Header),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn zeros_are_no_record_anywhere() {
        let codec = HeaderCodec::new(&[0; 16]);
        assert_eq!(
            codec.decode(Lsn::ZERO, &[0; HEADER_BYTES]),
            Err(Flaw::Empty)
        );
    }

    #[test]
    fn sizes_are_rounded_up_to_eight() {
        assert_eq!(framed_bytes(0), 24);
        assert_eq!((framed_bytes(1), padding(1)), (32, 7));
        assert_eq!((framed_bytes(120), padding(120)), (144, 0));
    }
}
