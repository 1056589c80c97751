//! File `closed`: how far the log was durable when it was last closed.
//!
//! A log that has lost its end, closing record included, reads like one that a power cut tore off
//! there. Nothing in the rest of the log can tell the two apart, so a separate file has to.
//!
//! ```text
//!          0        8                24       32           508    512 ...  4096
//!          +--------+----------------+--------+------------+------+--------+-----------------
//!  file:   | magic  | identity       | durable| zero       | check| zero   | the same again
//!          | 8      | 16             | u64    |            | u32  |        |
//!          +--------+----------------+--------+------------+------+--------+-----------------
//! ```
//!
//! # Invariants
//!
//! * I1 A slot with a good checksum is true for ever: it is written once the log is durable up to
//!   there, and a log only grows.
//! * I2 The slots are written one after the other, each made durable before the next is written. So
//!   one of them is whole, whatever a write tears, and both say the same once the log is closed: no
//!   sector is the only one with this number.
//! * I3 No slot, or a damaged one, claims nothing: this file can refuse a log that has lost its
//!   end, and nothing else.
//!   and nothing else.
//!
//! The file gets its size when the log is created, so that closing needs no space on the device.

use std::{io, sync::Arc};

use crate::device::{Device, DeviceFile};
use crate::format::error::Failure;
use crate::format::lsn::Lsn;
use crate::format::record::{u32_at, u64_at};

/// Name of the file.
pub const FILE: &str = "closed";

const MAGIC: &[u8; 8] = b"FOXTONen";
const SLOT: usize = 512;
const CHECK_AT: usize = SLOT - 4;
/// Offsets of the slots: no device writes both at once.
const SLOTS: [u64; 2] = [0, 4096];
const BYTES: u64 = 4096 + SLOT as u64;

/// Returns how far the log was durable when it was closed; 0 if no slot says.
pub(crate) fn read(device: &dyn Device, identity: &[u8; 16]) -> Result<Lsn, Failure> {
    let [first, second] = match device.open(FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Lsn::ZERO),
        opened => both(&*opened.map_err(Failure::of("open", FILE))?, identity)?,
    };
    Ok(first.max(second).unwrap_or_default())
}

/// Opens the file, and creates it if there is none.
pub(crate) fn create(device: &dyn Device) -> Result<Arc<dyn DeviceFile>, Failure> {
    let file = match device.open(FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            device.create(FILE).map_err(Failure::of("create", FILE))?
        }
        opened => opened.map_err(Failure::of("open", FILE))?,
    };
    if file.len().map_err(Failure::of("read", FILE))? >= BYTES {
        return Ok(file);
    }
    let reserved = file.allocate(BYTES);
    reserved.map_err(Failure::of("reserve space for", FILE))?;
    file.sync().map_err(Failure::of("sync", FILE))?;
    device
        .sync_dir()
        .map_err(Failure::of("sync", "the directory"))?;
    Ok(file)
}

/// Writes that the log is durable up to `durable`, which it has to be (I1).
pub(crate) fn write(device: &dyn Device, identity: &[u8; 16], durable: Lsn) -> Result<(), Failure> {
    // The file is not opened again: a device that forgets its files has none to open.
    let file = create(device)?;
    for at in SLOTS {
        file.write_at(&encode(identity, durable), at)
            .map_err(Failure::of("write", FILE))?;
        file.sync().map_err(Failure::of("sync", FILE))?; // I2
    }
    Ok(())
}

/// Reads both slots.
fn both(file: &dyn DeviceFile, identity: &[u8; 16]) -> Result<[Option<Lsn>; 2], Failure> {
    let mut said = [None; 2];
    for (said, at) in said.iter_mut().zip(SLOTS) {
        let mut bytes = [0; SLOT];
        let count = file
            .read_at(&mut bytes, at)
            .map_err(Failure::of("read", FILE))?;
        *said = (count == SLOT).then(|| decode(&bytes, identity)).flatten();
    }
    Ok(said)
}

fn encode(identity: &[u8; 16], durable: Lsn) -> [u8; SLOT] {
    let mut bytes = [0; SLOT];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..24].copy_from_slice(identity);
    bytes[24..32].copy_from_slice(&durable.bytes().to_le_bytes());
    let check = crc32c::crc32c(&bytes[..CHECK_AT]);
    bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; SLOT], identity: &[u8; 16]) -> Option<Lsn> {
    let is_ours = bytes.starts_with(MAGIC) && bytes[8..24] == *identity;
    let checks = u32_at(bytes, CHECK_AT) == crc32c::crc32c(&bytes[..CHECK_AT]);
    (is_ours && checks).then(|| Lsn::new(u64_at(bytes, 24)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::MemoryDevice;

    const IDENTITY: [u8; 16] = [7; 16];

    fn said(device: &MemoryDevice) -> u64 {
        read(device, &IDENTITY).unwrap().bytes()
    }

    #[test]
    fn the_last_write_is_read_and_only_with_the_right_identity() {
        let device = MemoryDevice::new();
        assert_eq!(said(&device), 0);
        create(&device).unwrap();
        assert_eq!(said(&device), 0);
        for place in [8, 8, 64, 72, 4096] {
            write(&device, &IDENTITY, Lsn::new(place)).unwrap();
            assert_eq!(said(&device), place);
        }
        assert_eq!(read(&device, &[8; 16]).unwrap(), Lsn::ZERO);
    }

    #[test]
    fn after_damage_to_one_slot_the_other_is_read() {
        let device = MemoryDevice::new();
        write(&device, &IDENTITY, Lsn::new(8)).unwrap();
        let file = device.open(FILE).unwrap();
        for slot in SLOTS {
            for byte in slot..slot + SLOT as u64 {
                let mut was = [0];
                file.read_at(&mut was, byte).unwrap();
                file.write_at(&[was[0] ^ 4], byte).unwrap();
                let both = both(&*file, &IDENTITY).unwrap();
                assert_eq!(both.iter().flatten().count(), 1, "byte {byte}");
                assert_eq!(said(&device), 8, "byte {byte}");
                file.write_at(&was, byte).unwrap();
            }
        }
        for length in [4096 + 100, 100, 0] {
            file.set_len(length).unwrap();
            assert_eq!(said(&device), if length > 512 { 8 } else { 0 });
        }
        write(&device, &IDENTITY, Lsn::new(24)).unwrap();
        assert_eq!(said(&device), 24);
    }
}
