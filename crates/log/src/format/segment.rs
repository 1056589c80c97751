//! Segments: the files that the stream is cut into.
//!
//! ```text
//!  0        8        12       16               32       40         48          4092   4096
//!  +--------+--------+--------+----------------+--------+----------+-----------+------+---------
//!  | magic  | version| zero   | identity       | first  | capacity | zero      | check| stream
//!  | 8      | u32    | u32    | 16             | u64    | u64      |           | u32  | ...
//!  +--------+--------+--------+----------------+--------+----------+-----------+------+---------
//! ```
//!
//! A segment holds the bytes of the stream from LSN `first` on, at most `capacity` of them; the
//! next segment begins at `first + capacity`. Records may run across that border. The file is
//! called `log-` and `first` in sixteen hexadecimal digits.
//!
//! # Invariants
//!
//! * I1 A segment gets its name only after the one before it is full and synced. Its file may be
//!   made earlier, under an unfinished name. So everything in a segment that has a successor is
//!   durable, and damage there is never a torn end.
//! * I2 Nothing is written behind a header before the header and the name of the file are durable.
//!   So a file without a good header is either unfinished, and holds no records, or damaged.
//! * I3 `check` is the CRC-32C of the 4092 bytes before it.
//! * I4 No segment is longer than 64 GiB. A longer file is not a segment, so a search for the end
//!   of a log reads no more than that, whatever length the file has been given.
//! * I5 A file is at most `4096 + capacity` bytes long. Only one that has a successor must be so
//!   long: the last one grows as space is reserved for it.

use std::io;
use std::sync::Arc;

use crate::device::{Device, DeviceFile};
use crate::format::lsn::Lsn;
use crate::format::record::{ALIGNMENT, u32_at, u64_at};

/// Number of bytes in front of the stream in every segment file.
pub const HEADER_BYTES: u64 = 4096;

/// Largest size of a segment file: 64 GiB.
pub const MAX_BYTES: u64 = 64 << 30;

const MAGIC: &[u8; 8] = b"FOXTONlg";
const VERSION: u32 = 1;
const HEADER: usize = HEADER_BYTES as usize;
const CHECK_AT: usize = HEADER - 4;
const PREFIX: &str = "log-";
/// End of the name of a segment that is being rewritten, until it is whole, and of one that was
/// made ahead, until it is needed.
const UNFINISHED: &str = ".new";

/// Returns the name of the segment that begins at `first`.
pub fn name(first: Lsn) -> String {
    format!("{PREFIX}{:016x}", first.bytes())
}

/// Returns the name that the segment that begins at `first` has until it is finished.
pub(crate) fn unfinished_name(first: Lsn) -> String {
    name(first) + UNFINISHED
}

/// Returns where the segment called `name` begins, if that is a name of a segment.
pub fn first_of(name: &str) -> Option<Lsn> {
    let digits = name.strip_prefix(PREFIX)?;
    let canonical = digits.len() == 16
        && digits
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    canonical.then(|| u64::from_str_radix(digits, 16).ok().map(Lsn::new))?
}

/// Returns where the segments among `names` begin, in order. The first of them is the one that
/// holds `from`, or else the last one before `from`; earlier ones are left out.
pub(crate) fn firsts_from(names: &[String], from: Lsn) -> Vec<Lsn> {
    let mut firsts: Vec<Lsn> = names.iter().filter_map(|name| first_of(name)).collect();
    firsts.sort_unstable();
    let before = firsts.partition_point(|&first| first <= from);
    firsts.split_off(before.saturating_sub(1))
}

/// Returns where the files of the log end, as a measure of the work of reading it. Errors are
/// ignored, because only progress reports depend on this.
pub fn files_end(device: &dyn Device) -> Lsn {
    let names = device.list().unwrap_or_default();
    let last = names.iter().filter_map(|name| first_of(name)).max();
    last.map_or(Lsn::ZERO, |first| {
        let file = device.open(&name(first));
        let bytes = file.and_then(|file| file.len()).unwrap_or(0);
        first.plus(bytes.saturating_sub(HEADER_BYTES))
    })
}

/// Removes the segments that lie wholly before `from`, beginning with the first, and returns how
/// many. Syncs nothing.
///
/// The next opening of the log must not need them: a checkpoint that begins at `from` is durable.
///
/// # Errors
///
/// The error of the device; some segments may be gone then.
pub fn remove_before(device: &dyn Device, from: Lsn) -> io::Result<usize> {
    let names = device.list()?;
    let first_needed = firsts_from(&names, from).first().copied();
    let mut old: Vec<Lsn> = names.iter().filter_map(|name| first_of(name)).collect();
    old.retain(|&first| first_needed.is_some_and(|needed| first < needed));
    old.sort_unstable();
    old.iter()
        .try_for_each(|&first| device.remove(&name(first)))?;
    Ok(old.len())
}

/// True if `name` belongs to a segment that was never finished.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(UNFINISHED).and_then(first_of).is_some()
}

/// Reason why a header is not one of this database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderFlaw {
    /// Too short, no magic, bad checksum, or another `first` than the name of the file says.
    Damaged,
    /// Whole, but of another database.
    Foreign,
    /// Whole, but of a format that this program does not know.
    Version(u32),
}

/// The part of the stream that one segment file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentExtent {
    /// LSN of its first byte of stream.
    pub(crate) first: Lsn,
    /// Largest number of bytes of stream that it may hold.
    pub(crate) capacity: u64,
    /// LSN at the end of the file, whatever its bytes are.
    pub(crate) stored: Lsn,
}

impl SegmentExtent {
    /// Reads the header and the length of `file`, whose name says `first`.
    pub(crate) fn of(
        file: &dyn DeviceFile,
        identity: &[u8; 16],
        first: Lsn,
    ) -> io::Result<Result<Self, HeaderFlaw>> {
        let mut header = vec![0; HEADER];
        let length = file.read_at(&mut header, 0)?;
        header.truncate(length);
        let bytes = file.len()?.saturating_sub(HEADER_BYTES);
        Ok(decode(&header, identity, first).map(|capacity| {
            let stored = first.plus(bytes.min(capacity));
            SegmentExtent {
                first,
                capacity,
                stored,
            }
        }))
    }

    /// Returns where the next segment begins.
    pub(crate) fn limit(&self) -> Lsn {
        self.first.plus(self.capacity)
    }

    /// Returns the offset in the file of the byte at `lsn`.
    pub(crate) fn offset_of(&self, lsn: Lsn) -> u64 {
        debug_assert!(lsn >= self.first);
        HEADER_BYTES + lsn.since(self.first)
    }

    /// Opens its file.
    pub(crate) fn open(&self, device: &dyn Device) -> io::Result<SegmentFile> {
        let file = device.open(&name(self.first))?;
        Ok(SegmentFile {
            file,
            first: self.first,
            capacity: self.capacity,
        })
    }
}

/// An open segment file.
#[derive(Debug, Clone)]
pub(crate) struct SegmentFile {
    pub(crate) file: Arc<dyn DeviceFile>,
    /// LSN of its first byte of stream.
    pub(crate) first: Lsn,
    /// Largest number of bytes of stream that it may hold.
    pub(crate) capacity: u64,
}

impl SegmentFile {
    /// Creates the segment that begins at `first`, with space for the first `reserved` bytes of its
    /// stream, and makes it durable as I2 asks.
    pub(crate) fn create(
        device: &dyn Device,
        identity: &[u8; 16],
        first: Lsn,
        capacity: u64,
        reserved: u64,
    ) -> Result<Self, (&'static str, io::Error)> {
        let segment = Self::create_as(&name(first), device, identity, first, capacity, reserved)?;
        segment.file.sync().map_err(|error| ("sync", error))?;
        device
            .sync_dir()
            .map_err(|error| ("sync the directory of", error))?;
        Ok(segment)
    }

    /// Creates the file of a segment under some name. Syncs nothing.
    pub(crate) fn create_as(
        name: &str,
        device: &dyn Device,
        identity: &[u8; 16],
        first: Lsn,
        capacity: u64,
        reserved: u64,
    ) -> Result<Self, (&'static str, io::Error)> {
        debug_assert!(capacity.is_multiple_of(ALIGNMENT) && reserved <= capacity);
        let file = device.create(name).map_err(|error| ("create", error))?;
        file.allocate(HEADER_BYTES + reserved)
            .map_err(|error| ("reserve space for", error))?;
        file.write_at(&encode(identity, first, capacity), 0)
            .map_err(|error| ("write", error))?;
        Ok(SegmentFile {
            file,
            first,
            capacity,
        })
    }

    /// Returns where the next segment begins.
    pub(crate) fn limit(&self) -> Lsn {
        self.first.plus(self.capacity)
    }

    /// Returns the offset in the file of the byte at `lsn`.
    pub(crate) fn offset_of(&self, lsn: Lsn) -> u64 {
        debug_assert!(lsn >= self.first);
        HEADER_BYTES + lsn.since(self.first)
    }
}

/// True if only zeros follow the header of a file whose header is bad (I2).
pub(crate) fn holds_nothing(file: &dyn DeviceFile) -> io::Result<bool> {
    if file.len()? > MAX_BYTES {
        return Ok(false); // I4: this file was never becoming a segment.
    }
    let mut chunk = vec![0; 64 << 10];
    let mut offset = HEADER_BYTES;
    loop {
        let count = file.read_at(&mut chunk, offset)?;
        if chunk[..count].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
        offset += count as u64;
    }
}

fn encode(identity: &[u8; 16], first: Lsn, capacity: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(identity);
    bytes[32..40].copy_from_slice(&first.bytes().to_le_bytes());
    bytes[40..48].copy_from_slice(&capacity.to_le_bytes());
    let check = crc32c::crc32c(&bytes[..CHECK_AT]);
    bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Returns the capacity in a header.
fn decode(bytes: &[u8], identity: &[u8; 16], first: Lsn) -> Result<u64, HeaderFlaw> {
    let whole = bytes.len() == HEADER
        && bytes[..8] == *MAGIC
        && u32_at(bytes, CHECK_AT) == crc32c::crc32c(&bytes[..CHECK_AT]);
    if !whole {
        return Err(HeaderFlaw::Damaged);
    }
    let version = u32_at(bytes, 8);
    if version != VERSION {
        return Err(HeaderFlaw::Version(version));
    }
    if bytes[16..32] != *identity {
        return Err(HeaderFlaw::Foreign);
    }
    let capacity = u64_at(bytes, 40);
    let sound = u64_at(bytes, 32) == first.bytes()
        && capacity > 0
        && capacity <= MAX_BYTES - HEADER_BYTES
        && capacity.is_multiple_of(ALIGNMENT)
        && first.bytes().is_multiple_of(ALIGNMENT)
        && first
            .bytes()
            .checked_add(capacity)
            .is_some_and(|limit| limit < u64::MAX / 2);
    if sound {
        Ok(capacity)
    } else {
        Err(HeaderFlaw::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_made_and_no_others() {
        assert_eq!(first_of(&name(Lsn::new(0xabc0))), Some(Lsn::new(0xabc0)));
        for other in [
            "log-",
            "log-1",
            "log-00000000000000AB",
            "lock",
            "log-00000000000000000",
        ] {
            assert_eq!(first_of(other), None, "{other}");
        }
        assert!(is_unfinished(&unfinished_name(Lsn::ZERO)));
        assert!(!is_unfinished(&name(Lsn::ZERO)));
    }

    #[test]
    fn a_header_says_whose_and_where() {
        let bytes = encode(&[1; 16], Lsn::new(64), 4096);
        assert_eq!(decode(&bytes, &[1; 16], Lsn::new(64)), Ok(4096));
        assert_eq!(
            decode(&bytes, &[2; 16], Lsn::new(64)),
            Err(HeaderFlaw::Foreign)
        );
        assert_eq!(
            decode(&bytes, &[1; 16], Lsn::ZERO),
            Err(HeaderFlaw::Damaged)
        );
        assert_eq!(
            decode(&bytes[..4000], &[1; 16], Lsn::new(64)),
            Err(HeaderFlaw::Damaged)
        );
    }

    #[test]
    fn any_one_flipped_byte_of_a_header_is_noticed() {
        let bytes = encode(&[1; 16], Lsn::new(64), 4096);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert!(
                decode(&flipped, &[1; 16], Lsn::new(64)).is_err(),
                "byte {at}"
            );
        }
    }
}
