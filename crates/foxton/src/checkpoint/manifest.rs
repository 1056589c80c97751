//! The manifest: the list of layers, and the position at which the log continues.
//!
//! ```text
//!  0        8        12       16           32         40             48          56           64
//!  +--------+--------+--------+------------+----------+--------------+-----------+------------+
//!  | magic  | version| bytes  | identity   | sequence |checkpoint lsn| redo from | next layer |
//!  | 8      | u32    | u32    | 16         | u64      | u64          | u64       | u64        |
//!  +--------+--------+--------+------------+----------+--------------+-----------+------------+
//!  64       68       72
//!  +--------+--------+-------------------------
//!  | tables | layers | each table, each layer, check u32
//!  | u32    | u32    |
//!  +--------+--------+-------------------------
//!  table:   length u32 · number u32 · name · key type, its hash u64 · value type, its hash u64
//!           · 1, if the table is paged
//!  layer:   number u64 · bytes u64 · entries u64 · gone u64 · check u32 · zero u32
//!           (the oldest first)
//! ```
//!
//! # Invariants
//!
//! * I1 Either there is no manifest or a complete one: it is written under another name, synced,
//!   and renamed.
//! * I2 Before it is renamed, the layers that it names are durable, and so are their names.
//! * I3 `redo from` is at most `checkpoint_lsn`. The log from there on, together with the layers,
//!   is the database.

use std::sync::Arc;

use foxton_log::Lsn;
use foxton_log::device::{Device, DeviceFile};

use super::error::{CheckpointError, failed, lost};
use super::layer::{Layer, u32_at, u64_at};
use crate::redo::record::TableRecord;
use crate::types::codec::{Value, take};

/// Name of the manifest's file.
pub(crate) const FILE: &str = "checkpoint";
/// Name of the file until it is complete.
pub(crate) const UNFINISHED: &str = "checkpoint.new";

const MAGIC: &[u8; 8] = b"FOXTONcp";
const VERSION: u32 = 1;
const HEADER: usize = 72;
const LAYER: usize = 40;
/// Maximum length: table names have at most 255 bytes, and there are few layers.
const MAX_BYTES: u64 = 64 << 20;

/// The contents of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Manifest {
    /// Number of this manifest; the first has number 1.
    pub(crate) sequence: u64,
    /// The layers contain the transactions whose records end here or before.
    pub(crate) checkpoint_lsn: Lsn,
    /// Where restart begins to read the log: at `checkpoint_lsn`, or at the first part of a
    /// transaction that had not ended there.
    pub(crate) redo_from: Lsn,
    /// No layer has this number or a larger one yet.
    pub(crate) next_layer: u64,
    /// All tables whose records end at or before `checkpoint_lsn`, by number.
    pub(crate) tables: Vec<TableRecord>,
    /// The layers, oldest first. A later layer's entry for a row takes precedence.
    pub(crate) layers: Vec<Layer>,
}

impl Manifest {
    /// Returns the bytes in all layers.
    pub(crate) fn bytes(&self) -> u64 {
        let sizes = self.layers.iter().map(|layer| layer.bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// Reads the manifest of the database `identity`. Returns an empty manifest if there is none.
    pub(crate) fn read(
        device: &dyn Device,
        identity: &[u8; 16],
    ) -> Result<Manifest, CheckpointError> {
        let file = match device.open(FILE) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Manifest::default());
            }
            opened => opened.map_err(failed("open", FILE))?,
        };
        let length = file.len().map_err(failed("read", FILE))?;
        if length > MAX_BYTES {
            return Err(CheckpointError::damaged(
                FILE,
                0,
                "it is too long for a manifest",
            ));
        }
        let mut bytes = vec![0; length as usize];
        let count = file.read_at(&mut bytes, 0).map_err(failed("read", FILE))?;
        bytes.truncate(count);
        Manifest::decode(&bytes, identity)
    }

    /// Writes the manifest beside the existing one, and syncs it.
    pub(crate) fn write(
        &self,
        device: &dyn Device,
        identity: &[u8; 16],
    ) -> Result<Arc<dyn DeviceFile>, CheckpointError> {
        let names = device.list().map_err(failed("list", "the directory"))?;
        if names.iter().any(|name| name == UNFINISHED) {
            device
                .remove(UNFINISHED)
                .map_err(failed("remove", UNFINISHED))?;
            // Make the removal durable. Otherwise a power failure could keep the later rename and
            // not this, and the leftover would become the manifest.
            device.sync_dir().map_err(lost("sync", "the directory"))?;
        }
        let file = device
            .create(UNFINISHED)
            .map_err(failed("create", UNFINISHED))?;
        file.write_at(&self.encode(identity), 0)
            .map_err(failed("write", UNFINISHED))?;
        file.sync().map_err(failed("sync", UNFINISHED))?;
        Ok(file)
    }

    /// Replaces the existing manifest by the one that [`write`](Self::write) wrote (I1, I2).
    pub(crate) fn switch(device: &dyn Device) -> Result<(), CheckpointError> {
        let durably = || device.sync_dir().map_err(lost("sync", "the directory"));
        durably()?;
        device
            .rename(UNFINISHED, FILE)
            .map_err(lost("rename", UNFINISHED))?;
        durably()
    }

    pub(crate) fn encode(&self, identity: &[u8; 16]) -> Vec<u8> {
        let count = |count: usize| u32::try_from(count).expect("tables and layers are few");
        let mut bytes = vec![0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(identity);
        bytes[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.checkpoint_lsn.bytes().to_le_bytes());
        bytes[48..56].copy_from_slice(&self.redo_from.bytes().to_le_bytes());
        bytes[56..64].copy_from_slice(&self.next_layer.to_le_bytes());
        bytes[64..68].copy_from_slice(&count(self.tables.len()).to_le_bytes());
        bytes[68..72].copy_from_slice(&count(self.layers.len()).to_le_bytes());
        for table in &self.tables {
            let table = table.encode();
            bytes.extend_from_slice(&count(table.len()).to_le_bytes());
            bytes.extend_from_slice(&table);
        }
        for layer in &self.layers {
            for number in [layer.number, layer.bytes, layer.entries, layer.gone] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend_from_slice(&layer.check.to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
        }
        let length = count(bytes.len() + 4);
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        let check = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], identity: &[u8; 16]) -> Result<Manifest, CheckpointError> {
        let damaged = |what| Err(CheckpointError::damaged(FILE, 0, what));
        if bytes.len() < HEADER + 4 || bytes[..8] != *MAGIC {
            return damaged("it does not begin like a manifest");
        }
        let (content, check) = bytes.split_at(bytes.len() - 4);
        if u32_at(check, 0) != crc32c::crc32c(content) || u32_at(bytes, 12) as usize != bytes.len()
        {
            return damaged("its checksum does not match");
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(CheckpointError::Newer {
                file: FILE.to_owned(),
                version,
            });
        }
        if bytes[16..32] != *identity {
            return damaged("it belongs to another database");
        }
        match decode_lists(content) {
            Some(manifest) if manifest.redo_from <= manifest.checkpoint_lsn => Ok(manifest),
            _ => damaged("it is invalid"),
        }
    }
}

/// Decodes the contents of a manifest whose checksum is valid.
fn decode_lists(content: &[u8]) -> Option<Manifest> {
    let mut rest = &content[HEADER..];
    let mut manifest = Manifest {
        sequence: u64_at(content, 32),
        checkpoint_lsn: Lsn::new(u64_at(content, 40)),
        redo_from: Lsn::new(u64_at(content, 48)),
        next_layer: u64_at(content, 56),
        ..Manifest::default()
    };
    for _ in 0..u32_at(content, 64) {
        let size = u32::decode_part(&mut rest).ok()?;
        let table = take(&mut rest, size as usize, "a table").ok()?;
        manifest.tables.push(TableRecord::decode(table).ok()?);
    }
    for _ in 0..u32_at(content, 68) {
        let layer = take(&mut rest, LAYER, "a layer").ok()?;
        manifest.layers.push(Layer {
            number: u64_at(layer, 0),
            bytes: u64_at(layer, 8),
            entries: u64_at(layer, 16),
            gone: u64_at(layer, 24),
            check: u32_at(layer, 32),
        });
    }
    rest.is_empty().then_some(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::component::TableComponent;

    fn manifest() -> Manifest {
        let table = |id, name: &str| TableRecord {
            id,
            name: name.into(),
            key_type: ("u64".into(), 1),
            value_type: ("i64".into(), 2),
            component: match id {
                0 => TableComponent::Resident,
                _ => TableComponent::Paged,
            },
        };
        let layer = |number| Layer {
            number,
            bytes: 4096,
            entries: 10,
            gone: 1,
            check: 77,
        };
        Manifest {
            sequence: 3,
            checkpoint_lsn: Lsn::new(9_000),
            redo_from: Lsn::new(8_000),
            next_layer: 7,
            tables: vec![table(0, "accounts"), table(1, "tellers")],
            layers: vec![layer(2), layer(6)],
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written_and_not_by_another_database() {
        let bytes = manifest().encode(&[5; 16]);
        assert_eq!(Manifest::decode(&bytes, &[5; 16]).unwrap(), manifest());
        assert!(Manifest::decode(&bytes, &[6; 16]).is_err());
    }

    #[test]
    fn any_one_flipped_bit_and_any_cut_is_noticed() {
        let bytes = manifest().encode(&[5; 16]);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&flipped, &[5; 16]).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..cut], &[5; 16]).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_good_check_over_nonsense_is_still_refused() {
        for (at, byte) in [(64, 9), (68, 9), (48, 0xff), (8, 9)] {
            let mut bytes = manifest().encode(&[5; 16]);
            bytes[at] = byte;
            bytes[at + 1] = byte;
            let end = bytes.len() - 4;
            let check = crc32c::crc32c(&bytes[..end]);
            bytes[end..].copy_from_slice(&check.to_le_bytes());
            assert!(Manifest::decode(&bytes, &[5; 16]).is_err(), "byte {at}");
        }
    }
}
