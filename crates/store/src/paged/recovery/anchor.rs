//! The anchor: position of the last complete checkpoint.
//!
//! ```text
//!  0        8        12     16               32
//!  +--------+--------+------+----------------+
//!  | magic  | version| zero | identity       |
//!  | 8      | u32    | u32  | 16             |
//!  +--------+--------+------+----------------+
//!  32       40       48        56            64     508
//!  +--------+--------+---------+-------------+------+-------+
//!  | begin  | end at | durable | needed from | zero | check |
//!  | u64    | u64    | u64     | u64         |      | u32   |
//!  +--------+--------+---------+-------------+------+-------+
//! ```
//!
//! # Invariants
//!
//! * I1  There is no anchor, or a whole one: it is written under another name, synced, and renamed.
//! * I2  The part of the log that it refers to is durable before it is written.
//! * I3  As long as the log is kept from the position that the older of two anchors needs, either
//!   is right. So a failure during its replacement does no harm.

use foxton_log::Lsn;
use foxton_log::device::Device;

use super::ANCHOR_FILE as FILE;
use super::bytes::ByteReader;
use super::error::AnchorError;

/// Its name until it is whole.
const UNFINISHED: &str = "pages.new";

const MAGIC: &[u8; 8] = b"FOXTONpg";
const VERSION: u32 = 1;
const SIZE: usize = 512;
const CHECK_AT: usize = SIZE - 4;

/// Position of a checkpoint in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// Start of CHECKPOINT_BEGIN. The tables are those of this position.
    pub begin: Lsn,
    /// Start of CHECKPOINT_END, which holds them.
    pub end_at: Lsn,
    /// End of CHECKPOINT_END. The log was durable up to here.
    pub durable: Lsn,
    /// No record that begins before this position is needed any more.
    pub needed_from: Lsn,
}

impl Anchor {
    /// Reads the anchor of the database `identity`, if there is one.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or differs from what was written.
    pub fn read(device: &dyn Device, identity: &[u8; 16]) -> Result<Option<Anchor>, AnchorError> {
        let file = match device.open(FILE) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(AnchorError::of("open"))?,
        };
        // One byte more, because a longer file is not ours.
        let mut bytes = [0; SIZE + 1];
        let count = file
            .read_at(&mut bytes, 0)
            .map_err(AnchorError::of("read"))?;
        Anchor::decode(&bytes[..count], identity).map(Some)
    }

    fn decode(bytes: &[u8], identity: &[u8; 16]) -> Result<Anchor, AnchorError> {
        let fields = || {
            let mut rest = ByteReader(bytes.get(8..)?);
            let version = rest.u32()?;
            let (zero, home) = (rest.u32()?, rest.take(16)?);
            let mut lsn = || rest.u64().map(Lsn::new);
            let anchor = Anchor {
                begin: lsn()?,
                end_at: lsn()?,
                durable: lsn()?,
                needed_from: lsn()?,
            };
            let sound = zero == 0
                && home == identity
                && rest.take(CHECK_AT - 64)?.iter().all(|byte| *byte == 0)
                && rest.u32()? == crc32c::crc32c(&bytes[..CHECK_AT])
                && anchor.is_sound();
            Some((version, sound, anchor))
        };
        let ours = bytes.len() == SIZE && bytes.starts_with(MAGIC);
        match fields().filter(|_| ours) {
            Some((VERSION, true, anchor)) => Ok(anchor),
            Some((version, _, _)) if version > VERSION && checks(bytes) => {
                Err(AnchorError::Newer(version))
            }
            _ => Err(AnchorError::Damaged),
        }
    }

    fn is_sound(&self) -> bool {
        self.needed_from <= self.begin && self.begin < self.end_at && self.end_at < self.durable
    }

    fn encode(&self, identity: &[u8; 16]) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(identity);
        let places = [self.begin, self.end_at, self.durable, self.needed_from];
        for (field, place) in bytes[32..64].chunks_exact_mut(8).zip(places) {
            field.copy_from_slice(&place.bytes().to_le_bytes());
        }
        let check = crc32c::crc32c(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Replaces the present anchor (I1). The part of the log that it refers to must be durable
    /// (I2).
    pub(super) fn write(
        &self,
        device: &dyn Device,
        identity: &[u8; 16],
    ) -> Result<(), AnchorError> {
        debug_assert!(self.is_sound());
        let durably = || {
            let synced = device.sync_dir();
            synced.map_err(AnchorError::of("sync the directory of"))
        };
        let names = device
            .list()
            .map_err(AnchorError::of("list the directory of"))?;
        if names.iter().any(|name| name == UNFINISHED) {
            // Durably, because otherwise a power cut could keep the renaming below and the old
            // leftover.
            device
                .remove(UNFINISHED)
                .map_err(AnchorError::of("remove what was left of"))?;
            durably()?;
        }
        let file = device
            .create(UNFINISHED)
            .map_err(AnchorError::of("create"))?;
        file.write_at(&self.encode(identity), 0)
            .map_err(AnchorError::of("write"))?;
        file.sync().map_err(AnchorError::of("sync"))?;
        durably()?;
        device
            .rename(UNFINISHED, FILE)
            .map_err(AnchorError::of("rename"))?;
        durably()
    }
}

/// True if the bytes are those of some version of the file.
fn checks(bytes: &[u8]) -> bool {
    let check = bytes
        .get(CHECK_AT..)
        .and_then(|rest| ByteReader(rest).u32())
        .unwrap_or_default();
    bytes.len() == SIZE && check == crc32c::crc32c(&bytes[..CHECK_AT])
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxton_log::device::memory::MemoryDevice;

    const IDENTITY: [u8; 16] = [5; 16];
    const ANCHOR: Anchor = Anchor {
        begin: Lsn::new(800),
        end_at: Lsn::new(1600),
        durable: Lsn::new(2400),
        needed_from: Lsn::new(160),
    };

    #[test]
    fn an_anchor_reads_back_and_is_replaced_as_a_whole() {
        let device = MemoryDevice::new();
        assert_eq!(Anchor::read(&device, &IDENTITY).expect("none"), None);
        for step in 0..3 {
            let anchor = Anchor {
                durable: ANCHOR.durable.plus(step),
                ..ANCHOR
            };
            let left = device.create(UNFINISHED).expect("a leftover");
            left.write_at(b"of another time", 0).expect("written");
            anchor.write(&device, &IDENTITY).expect("it is written");
            let read = Anchor::read(&device, &IDENTITY).expect("it is whole");
            assert_eq!(read, Some(anchor));
        }
    }

    #[test]
    fn any_flipped_bit_any_cut_and_another_database_are_noticed() {
        let bytes = ANCHOR.encode(&IDENTITY);
        assert_eq!(Anchor::decode(&bytes, &IDENTITY).expect("whole"), ANCHOR);
        assert!(Anchor::decode(&bytes, &[6; 16]).is_err());
        for bit in 0..SIZE * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = Anchor::decode(&flipped, &IDENTITY);
            assert!(matches!(read, Err(AnchorError::Damaged)), "bit {bit}");
        }
        for cut in 0..SIZE {
            assert!(Anchor::decode(&bytes[..cut], &IDENTITY).is_err());
        }
        assert!(Anchor::decode(&[&bytes[..], &[0]].concat(), &IDENTITY).is_err());
    }

    #[test]
    fn a_newer_format_differs_from_damage() {
        let mut bytes = ANCHOR.encode(&IDENTITY);
        bytes[8] = 2;
        let check = crc32c::crc32c(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        let read = Anchor::decode(&bytes, &IDENTITY);
        assert!(matches!(read, Err(AnchorError::Newer(2))));
    }
}
