//! Label of a backup: the file that marks a directory as one.
//!
//! ```text
//!  0     8   12   16       32     40   48   56  64      72    80    84       92    100  508
//!  +-----+---+----+--------+------+----+----+---+-------+-----+-----+--------+-----+----+-----+
//!  |magic|ver|zero|identity|compat|ckpt|from|end|records|taken|files|incompat|pages|zero|check|
//!  |8    |u32|u32 |16      |u64   |u64 |u64 |u64|u64    |u64  |u32  |u64     |u64  |    |u32  |
//!  +-----+---+----+--------+------+----+----+---+-------+-----+-----+--------+-----+----+-----+
//! ```
//!
//! `ckpt` is the checkpoint LSN. No copied page has a change behind `pages`, which is at least the
//! end of the checkpoint of pages; 0 if there are no pages. A version lower than 3 has zeros there,
//! and version 1 has zeros instead of `incompat`. A label is written with the lowest version that
//! has what it needs.
//!
//! # Invariants
//!
//! * I1  The label is written last, under another name, synced and renamed, when everything else in
//!   the backup is durable and has been verified. So a directory without it is no backup, or an
//!   interrupted one.
//! * I2  `check` is the CRC-32C of everything before it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foxton_log::Lsn;
use foxton_log::device::Device;
use foxton_log::format::superblock;

use super::checkpoint_pair::CheckpointPair;
use super::error::CopyFailure;
use crate::types::limits::BACKUP_FILE as FILE;

/// Name of the file until it is complete.
pub(crate) const UNFINISHED: &str = "backup.new";

pub(super) const BYTES: usize = 512;
const CHECK_AT: usize = BYTES - 4;
const MAGIC: &[u8; 8] = b"FOXTONbk";
const VERSION: u32 = 3;

/// The contents of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) identity: [u8; 16],
    /// Features of the database that a program may ignore.
    pub(super) compat: u64,
    /// Features of the database that a program must know to read it.
    pub(super) incompat: u64,
    /// The checkpoint in the backup contains everything up to here.
    pub(super) checkpoint_lsn: Lsn,
    /// LSN at which the log in the backup begins, and at which it ends.
    pub(super) from: Lsn,
    pub(crate) end: Lsn,
    /// Number of records in its log.
    pub(super) records: u64,
    /// Time when the backup began, in microseconds since 1970.
    pub(super) taken_micros: u64,
    /// Number of layers.
    pub(super) files: u32,
    /// No page has a change behind this position; zero if there are no pages.
    pub(super) pages_lsn: Lsn,
}

impl Label {
    pub(super) fn taken(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.taken_micros)
    }

    /// The defect of a label that does not [belong](Self::is_of) to the checkpoint beside it.
    pub(crate) const STRANGE: &str =
        "the checkpoint beside it is not the one that it was made with";

    /// True if it was made with these checkpoints, which are empty if there are none.
    pub(crate) fn is_of(&self, checkpoints: &CheckpointPair) -> bool {
        let manifest = &checkpoints.manifest;
        (self.checkpoint_lsn, self.from) == (manifest.checkpoint_lsn, checkpoints.needed_from())
            && self.files as usize == manifest.layers.len()
            && (self.pages_lsn > Lsn::ZERO) == checkpoints.anchor.is_some()
    }

    /// Returns the earliest position to which the backup can be restored.
    pub(super) fn earliest(&self) -> Lsn {
        self.checkpoint_lsn.max(self.pages_lsn)
    }

    /// Returns the lowest version that has what it needs.
    fn version(&self) -> u32 {
        match (self.pages_lsn, self.incompat) {
            (Lsn::ZERO, 0) => 1,
            (Lsn::ZERO, _) => 2,
            _ => VERSION,
        }
    }

    pub(super) fn read(device: &dyn Device) -> Result<Label, CopyFailure> {
        let file = device
            .open(FILE)
            .map_err(CopyFailure::source("open", FILE))?;
        let mut bytes = [0; BYTES];
        let count = file.read_at(&mut bytes, 0);
        let count = count.map_err(CopyFailure::source("read", FILE))?;
        if count < BYTES || bytes[..8] != *MAGIC {
            return Err(CopyFailure::damaged(FILE, 0, "it is no label of a backup"));
        }
        if number::<4>(&bytes, CHECK_AT) != u64::from(crc32c::crc32c(&bytes[..CHECK_AT])) {
            return Err(CopyFailure::damaged(FILE, 0, "its checksum does not match"));
        }
        let version = number::<4>(&bytes, 8);
        if !(1..=u64::from(VERSION)).contains(&version) {
            return Err(CopyFailure::Newer(format!("a backup of format {version}")));
        }
        let incompat = number::<8>(&bytes, 84);
        let unknown = superblock::unknown(incompat);
        if unknown != 0 {
            let found = format!("a backup of a database with features {unknown:#x}");
            return Err(CopyFailure::Newer(found));
        }
        let mut identity = [0; 16];
        identity.copy_from_slice(&bytes[16..32]);
        let lsn = |at| Lsn::new(number::<8>(&bytes, at));
        Ok(Label {
            identity,
            compat: number::<8>(&bytes, 32),
            incompat,
            checkpoint_lsn: lsn(40),
            from: lsn(48),
            end: lsn(56),
            records: number::<8>(&bytes, 64),
            taken_micros: number::<8>(&bytes, 72),
            files: u32::try_from(number::<4>(&bytes, 80)).unwrap_or(u32::MAX),
            pages_lsn: lsn(92),
        })
    }

    /// Writes the label, which makes the directory a backup (I1).
    pub(super) fn write(&self, device: &dyn Device) -> Result<(), CopyFailure> {
        let file = device.create(UNFINISHED);
        let file = file.map_err(CopyFailure::target("create", UNFINISHED))?;
        let written = file.write_at(&self.encode(), 0).and_then(|()| file.sync());
        written.map_err(CopyFailure::target("write", UNFINISHED))?;
        let named = device.rename(UNFINISHED, FILE);
        named.map_err(CopyFailure::target("rename", UNFINISHED))?;
        device
            .sync_dir()
            .map_err(CopyFailure::target("sync", "the directory"))
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.version().to_le_bytes());
        bytes[16..32].copy_from_slice(&self.identity);
        for (at, number) in [
            (32, self.compat),
            (40, self.checkpoint_lsn.bytes()),
            (48, self.from.bytes()),
            (56, self.end.bytes()),
            (64, self.records),
            (72, self.taken_micros),
            (84, self.incompat),
            (92, self.pages_lsn.bytes()),
        ] {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[80..84].copy_from_slice(&self.files.to_le_bytes());
        let check = crc32c::crc32c(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        bytes
    }
}

/// Returns the number in `N` bytes at `at`.
fn number<const N: usize>(bytes: &[u8; BYTES], at: usize) -> u64 {
    let mut whole = [0; 8];
    whole[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(whole)
}

#[cfg(test)]
mod tests {
    use foxton_log::device::memory::MemoryDevice;

    use super::*;

    #[test]
    fn a_label_is_read_as_it_was_written_and_any_flipped_byte_is_noticed() {
        let label = Label {
            identity: [7; 16],
            compat: 0,
            incompat: superblock::PATCHES,
            checkpoint_lsn: Lsn::new(80),
            from: Lsn::new(64),
            end: Lsn::new(4096),
            records: 3,
            taken_micros: 1_000_000,
            files: 2,
            pages_lsn: Lsn::new(2048),
        };
        let device = MemoryDevice::new();
        label.write(&device).unwrap();
        assert_eq!(Label::read(&device).unwrap(), label);
        let bytes = label.encode();
        let file = device.open(FILE).unwrap();
        for at in 0..BYTES {
            let mut flipped = bytes;
            flipped[at] ^= 4;
            file.write_at(&flipped, 0).unwrap();
            assert!(Label::read(&device).is_err(), "byte {at}");
        }
    }
}
