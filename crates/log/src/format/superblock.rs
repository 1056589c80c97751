//! Superblock: the identity of a database, and the features that a program must know.
//!
//! ```text
//!  0        8        12       16       24         32        40               56     508    512
//!  +--------+--------+--------+--------+----------+---------+----------------+------+------+
//!  | magic  | version| zero   | compat | read-only| incompat| identity       | zero | check|
//!  | 8      | u32    | u32    | u64    | u64      | u64     | 16             |      | u32  |
//!  +--------+--------+--------+--------+----------+---------+----------------+------+------+
//! ```
//!
//! It is written when the database is created, and again when a feature is added, each time under
//! another name. It is renamed when it is whole and durable: there is either no superblock or a
//! whole one.
//!
//! # Invariants
//!
//! * I1 `check` is the CRC-32C of everything before it, the zeros included.
//! * I2 A bit that this program does not know in `incompat` means: do not open. In `read-only`: do
//!   not write. In `compat`: ignore it.

use std::fmt;
use std::io;

use crate::device::Device;
use crate::format::record::{u32_at, u64_at};

/// Name of the file that makes a directory a database.
pub const FILE: &str = "foxton";

/// Name of the file until it is whole.
pub const UNFINISHED: &str = "foxton.new";

/// A feature in `incompat`: the log and the checkpoint may hold the difference between two versions
/// of a row, instead of the whole row.
pub const PATCHES: u64 = 1 << 0;

/// A feature in `incompat`: the database may have paged tables, whose pages are in files of their
/// own.
pub const PAGES: u64 = 1 << 1;

/// The features in `incompat` that this program knows.
const KNOWN: u64 = PATCHES | PAGES;

const BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"FOXTONdb";
const VERSION: u32 = 1;

/// Fields of the superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Superblock {
    /// Random name of this database. Every checksum in the log covers it.
    pub identity: [u8; 16],
    /// Features that a program may ignore.
    pub compat: u64,
    /// Features that a program must know before it writes.
    pub read_only: u64,
    /// Features that a program must know before it reads.
    pub incompat: u64,
}

/// Reason why there is no usable superblock.
#[derive(Debug)]
#[non_exhaustive]
pub enum SuperblockError {
    /// The directory has no superblock: it is no database, or its creation was never finished.
    Missing,
    /// The file is not a superblock, or is damaged.
    Damaged(&'static str),
    /// The database was made by a newer program: its version or a feature is unknown here.
    Unknown(String),
    /// The device failed.
    Device(io::Error),
}

impl fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SuperblockError::Missing => {
                write!(
                    f,
                    "the directory holds no database: it has no file `{FILE}`"
                )
            }
            SuperblockError::Damaged(what) => {
                write!(
                    f,
                    "the file `{FILE}` is damaged: {what}; restore it from a backup"
                )
            }
            SuperblockError::Unknown(what) => {
                write!(
                    f,
                    "the database was made by a newer version ({what}); open it with that version"
                )
            }
            SuperblockError::Device(error) => {
                write!(f, "the file `{FILE}` could not be read or written: {error}")
            }
        }
    }
}

impl std::error::Error for SuperblockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SuperblockError::Device(error) => Some(error),
            _ => None,
        }
    }
}

impl Superblock {
    /// Returns the superblock of a database with no special features.
    pub const fn new(identity: [u8; 16]) -> Self {
        Superblock {
            identity,
            compat: 0,
            read_only: 0,
            incompat: 0,
        }
    }

    /// Reads and checks the superblock of a directory.
    pub fn read(device: &dyn Device) -> Result<Self, SuperblockError> {
        let file = match device.open(FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SuperblockError::Missing);
            }
            opened => opened.map_err(SuperblockError::Device)?,
        };
        let mut bytes = [0; BYTES];
        match file
            .read_at(&mut bytes, 0)
            .map_err(SuperblockError::Device)?
        {
            BYTES => Self::decode(&bytes),
            _ => Err(SuperblockError::Damaged("it is too short")),
        }
    }

    /// Makes `self` the superblock of a directory that has none, durably.
    pub fn create(&self, device: &dyn Device) -> Result<(), SuperblockError> {
        self.try_create(device, None)
            .map_err(SuperblockError::Device)
    }

    /// As [`create`](Self::create), in a directory where the file `marker` says that it is no
    /// database yet. The superblock replaces the marker: at every moment one of the two is there.
    pub fn create_over(&self, device: &dyn Device, marker: &str) -> Result<(), SuperblockError> {
        self.try_create(device, Some(marker))
            .map_err(SuperblockError::Device)
    }

    /// Makes `self` the superblock of a directory that has another one, durably: at every moment
    /// one of the two is there.
    pub fn replace(&self, device: &dyn Device) -> Result<(), SuperblockError> {
        self.write(device, None).map_err(SuperblockError::Device)
    }

    fn try_create(&self, device: &dyn Device, marker: Option<&str>) -> io::Result<()> {
        match device.list()?.iter().any(|name| name == FILE) {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => self.write(device, marker),
        }
    }

    fn write(&self, device: &dyn Device, marker: Option<&str>) -> io::Result<()> {
        let names = device.list()?;
        if names.iter().any(|name| name == UNFINISHED) {
            device.remove(UNFINISHED)?;
            // Durably: a power cut could keep the renaming below, but neither the removal nor the
            // creation before it, and then an old file would become the superblock.
            device.sync_dir()?;
        }
        let file = device.create(UNFINISHED)?;
        file.write_at(&self.encode(), 0)?;
        file.sync()?;
        if let Some(marker) = marker {
            device.rename(UNFINISHED, marker)?;
            // Durably: a power cut could keep only the renaming below, and then the old marker
            // would become the superblock.
            device.sync_dir()?;
        }
        device.rename(marker.unwrap_or(UNFINISHED), FILE)?;
        device.sync_dir()
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.compat.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.read_only.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.incompat.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.identity);
        let check = crc32c::crc32c(&bytes[..BYTES - 4]);
        bytes[BYTES - 4..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; BYTES]) -> Result<Self, SuperblockError> {
        if bytes[..8] != *MAGIC {
            return Err(SuperblockError::Damaged(
                "it does not begin like a superblock",
            ));
        }
        if u32_at(bytes, BYTES - 4) != crc32c::crc32c(&bytes[..BYTES - 4]) {
            return Err(SuperblockError::Damaged("its checksum does not match"));
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(SuperblockError::Unknown(format!("format {version}")));
        }
        let mut identity = [0; 16];
        identity.copy_from_slice(&bytes[40..56]);
        let superblock = Superblock {
            identity,
            compat: u64_at(bytes, 16),
            read_only: u64_at(bytes, 24),
            incompat: u64_at(bytes, 32),
        };
        // This program always writes, and knows no features that matter only then.
        let unknown = unknown(superblock.incompat) | superblock.read_only;
        if unknown != 0 {
            return Err(SuperblockError::Unknown(format!("features {unknown:#x}")));
        }
        Ok(superblock)
    }
}

/// Returns the features in `incompat` that this program does not know.
pub const fn unknown(incompat: u64) -> u64 {
    incompat & !KNOWN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::disk::Damage;
    use crate::device::fault::FaultDevice;
    use crate::device::memory::MemoryDevice;

    #[test]
    fn a_superblock_is_read_as_it_was_created() {
        let device = MemoryDevice::new();
        let made = Superblock::new(*b"0123456789abcdef");
        made.create(&device).unwrap();
        assert_eq!(Superblock::read(&device).unwrap(), made);
        assert!(made.create(&device).is_err(), "there is only one");
    }

    #[test]
    fn at_every_cut_either_the_superblock_or_the_marker_it_replaces_is_there() {
        let made = Superblock::new([7; 16]);
        let before = MemoryDevice::new();
        let marker = before.create("marker").unwrap();
        marker.write_at(b"there is none", 0).unwrap();
        let device = FaultDevice::holding(&before);
        device.record();
        made.create_over(&device, "marker").unwrap();
        for disk in device.recording().unwrap().disks() {
            for (damage, seed) in Damage::ALL
                .into_iter()
                .flat_map(|d| (0..20).map(move |s| (d, s)))
            {
                let image = disk.crash(damage, seed);
                match Superblock::read(&image) {
                    Ok(found) => assert_eq!(found, made),
                    Err(SuperblockError::Missing) => drop(image.open("marker").unwrap()),
                    Err(error) => assert!(damage.harms_durable(), "{damage} {seed}: {error}"),
                }
            }
        }
        assert_eq!(device.list().unwrap(), [FILE]);
    }

    #[test]
    fn at_every_cut_one_of_two_superblocks_is_there() {
        let before = MemoryDevice::new();
        let old = Superblock::new([7; 16]);
        old.create(&before).unwrap();
        let new = Superblock {
            incompat: PAGES,
            ..old
        };
        let device = FaultDevice::holding(&before);
        device.record();
        new.replace(&device).unwrap();
        let disks = device.recording().unwrap();
        for disk in disks.disks() {
            for (damage, seed) in Damage::ALL
                .into_iter()
                .flat_map(|d| (0..20).map(move |s| (d, s)))
            {
                match Superblock::read(&disk.crash(damage, seed)) {
                    Ok(found) => assert!([old, new].contains(&found)),
                    Err(error) => assert!(damage.harms_durable(), "{damage} {seed}: {error}"),
                }
            }
        }
        assert_eq!(Superblock::read(&device).unwrap(), new);
    }

    #[test]
    fn any_one_flipped_bit_is_noticed() {
        let bytes = Superblock::new([9; 16]).encode();
        for bit in 0..BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_format_or_feature_is_named() {
        let mut newer = Superblock::new([9; 16]);
        newer.incompat = 4 | PATCHES;
        let refused = Superblock::decode(&newer.encode()).unwrap_err().to_string();
        assert!(refused.contains("features 0x4"), "{refused}");
        newer.incompat = PATCHES;
        assert_eq!(Superblock::decode(&newer.encode()).unwrap(), newer);
    }

    #[test]
    fn an_empty_directory_is_not_a_database() {
        let device = MemoryDevice::new();
        assert!(matches!(
            Superblock::read(&device),
            Err(SuperblockError::Missing)
        ));
    }
}
