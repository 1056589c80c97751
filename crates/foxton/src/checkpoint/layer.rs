//! Layers: files of sorted rows, written once.
//!
//! ```text
//!  header, then blocks, index, trailer:
//!  0        8        12       16               32       40            60     64
//!  +--------+--------+--------+----------------+--------+-------------+------+
//!  | magic  | version| zero   | identity       | number | zero        | check|
//!  | 8      | u32    | u32    | 16             | u64    |             | u32  |
//!  +--------+--------+--------+----------------+--------+-------------+------+
//!
//!  block:   check u32 · bytes of entries u32 · entries u32 · zero u32 · entries
//!  entry:   table u32 · key length u16, its bytes · 1, value length u32, its bytes   a row
//!           table u32 · key length u16, its bytes · 2, patch length u32, its bytes   a patch
//!           table u32 · key length u16, its bytes · 0                                a deleted row
//!  index:   for each block:
//!           offset u64 · bytes of entries u32 · table u32 · key length u16, its bytes
//!
//!  trailer:
//!  0        8           16           24          28     32     40       48      56     60     64
//!  +--------+-----------+------------+-----------+------+------+--------+-------+------+------+
//!  | magic  | index at  | index bytes| index     | zero |blocks| entries| gone  | zero | check|
//!  | 8      | u64       | u64        | check u32 | u32  | u64  | u64    | u64   | u32  | u32  |
//!  +--------+-----------+------------+-----------+------+------+--------+-------+------+------+
//! ```
//!
//! The key in the index is the key of the block's first entry.
//!
//! # Invariants
//!
//! * I1 Entries are in strictly ascending order, by table number and then by key.
//! * I2 A checksum covers every byte. Every checksum includes the identity of the database, the
//!   number of the layer and its own offset, so a block at another position is detected.
//! * I3 A layer never changes once it is complete. The manifest contains the checksum of its
//!   trailer, and the trailer that of the index. So a layer with the same name from another time is
//!   refused.
//! * I4 Whatever the bytes say, reading allocates no more than the length of the file.
//! * I5 A patch was made for the value that the older layers together have for the row. The oldest
//!   layer has no patches.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use foxton_log::device::{Device, DeviceFile};
use foxton_sync::checksum::crc32c;

use super::error::{CheckpointError, failed};
use crate::redo::record::{Effect, RowChange, next_change};
use crate::types::codec::{Value, take};

const MAGIC: &[u8; 8] = b"FOXTONly";
const TRAILER_MAGIC: &[u8; 8] = b"FOXTONle";
pub(super) const VERSION: u32 = 1;
const HEADER: usize = 64;
const TRAILER: usize = 64;
const BLOCK_HEADER: usize = 16;
/// A block is written once its entries have this many bytes.
const BLOCK_BYTES: usize = 64 << 10;
const PREFIX: &str = "layer-";

/// The manifest's entry for a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Number of the layer. No other layer of the database ever has the same.
    pub(crate) number: u64,
    /// Length of its file, in bytes.
    pub(crate) bytes: u64,
    /// Number of entries, including deletions.
    pub(crate) entries: u64,
    /// Number of deletions among them.
    pub(crate) gone: u64,
    /// Checksum of its trailer.
    pub(crate) check: u32,
}

/// Returns the file name of the layer with a number.
pub(crate) fn name(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

/// Returns the number of the layer called `name`, or `None` if that is no layer's name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let canonical = digits.len() == 16
        && digits
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    canonical.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// The seed of all checksums of one layer (I2).
#[derive(Debug, Clone, Copy)]
struct LayerSeal(u32);

impl LayerSeal {
    fn new(identity: &[u8; 16], number: u64) -> LayerSeal {
        let seal = crc32c(0, identity);
        LayerSeal(crc32c(seal, &number.to_le_bytes()))
    }

    fn check(self, offset: u64, parts: &[&[u8]]) -> u32 {
        let start = crc32c(self.0, &offset.to_le_bytes());
        parts.iter().fold(start, |check, part| crc32c(check, part))
    }
}

// Writing.

/// Writes a layer.
#[derive(Debug)]
pub(crate) struct LayerWriter {
    file: Arc<dyn DeviceFile>,
    name: String,
    seal: LayerSeal,
    number: u64,
    /// Offset of the next block.
    offset: u64,
    /// Entries of the current block.
    block: Vec<u8>,
    block_entries: u32,
    /// The index up to the current block, whose offset and length are added when it is written.
    index: Vec<u8>,
    /// Index entry of the current block's first key.
    first: Vec<u8>,
    blocks: u64,
    entries: u64,
    gone: u64,
}

impl LayerWriter {
    /// Creates the file of layer `number`.
    pub(crate) fn create(
        device: &dyn Device,
        identity: &[u8; 16],
        number: u64,
    ) -> Result<LayerWriter, CheckpointError> {
        let name = name(number);
        let file = device.create(&name).map_err(failed("create", &name))?;
        let seal = LayerSeal::new(identity, number);
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[16..32].copy_from_slice(identity);
        header[32..40].copy_from_slice(&number.to_le_bytes());
        let check = seal.check(0, &[&header[..HEADER - 4]]);
        header[HEADER - 4..].copy_from_slice(&check.to_le_bytes());
        file.write_at(&header, 0).map_err(failed("write", &name))?;
        Ok(LayerWriter {
            file,
            name,
            seal,
            number,
            offset: HEADER as u64,
            block: Vec::with_capacity(BLOCK_BYTES + BLOCK_BYTES / 4),
            block_entries: 0,
            index: Vec::new(),
            first: Vec::new(),
            blocks: 0,
            entries: 0,
            gone: 0,
        })
    }

    /// Adds an entry, which must follow all before it (I1). Returns the number of bytes written.
    pub(crate) fn put(&mut self, change: RowChange<'_>) -> Result<u64, CheckpointError> {
        if self.block_entries == 0 {
            let key_size = u16::try_from(change.key.len()).expect("keys are at most 1,024 long");
            self.first.clear();
            self.first.extend_from_slice(&change.table.to_le_bytes());
            self.first.extend_from_slice(&key_size.to_le_bytes());
            self.first.extend_from_slice(change.key);
        }
        change.encode(&mut self.block);
        self.block_entries += 1;
        self.entries += 1;
        self.gone += u64::from(change.effect == Effect::Delete);
        if self.block.len() < BLOCK_BYTES {
            return Ok(0);
        }
        self.write_block()
    }

    fn write_block(&mut self) -> Result<u64, CheckpointError> {
        if self.block_entries == 0 {
            return Ok(0);
        }
        let size = u32::try_from(self.block.len()).expect("a block and one value are below 4 GiB");
        let mut header = [0; BLOCK_HEADER];
        header[4..8].copy_from_slice(&size.to_le_bytes());
        header[8..12].copy_from_slice(&self.block_entries.to_le_bytes());
        let check = self.seal.check(self.offset, &[&header[4..], &self.block]);
        header[..4].copy_from_slice(&check.to_le_bytes());
        self.index.extend_from_slice(&self.offset.to_le_bytes());
        self.index.extend_from_slice(&size.to_le_bytes());
        self.index.extend_from_slice(&self.first);
        self.write(&header)?;
        let block = std::mem::take(&mut self.block);
        self.write(&block)?;
        self.block = block;
        let written = (BLOCK_HEADER + self.block.len()) as u64;
        self.block.clear();
        self.block.shrink_to(2 * BLOCK_BYTES);
        self.block_entries = 0;
        self.blocks += 1;
        Ok(written)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), CheckpointError> {
        let written = self.file.write_at(bytes, self.offset);
        written.map_err(failed("write", &self.name))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Writes the rest, the index and the trailer, and syncs the file. The caller must sync the
    /// directory.
    pub(crate) fn finish(mut self) -> Result<Layer, CheckpointError> {
        self.write_block()?;
        let (index_at, index) = (self.offset, std::mem::take(&mut self.index));
        let mut trailer = [0; TRAILER];
        trailer[..8].copy_from_slice(TRAILER_MAGIC);
        trailer[8..16].copy_from_slice(&index_at.to_le_bytes());
        trailer[16..24].copy_from_slice(&(index.len() as u64).to_le_bytes());
        let check = self.seal.check(index_at, &[&index]);
        trailer[24..28].copy_from_slice(&check.to_le_bytes());
        trailer[32..40].copy_from_slice(&self.blocks.to_le_bytes());
        trailer[40..48].copy_from_slice(&self.entries.to_le_bytes());
        trailer[48..56].copy_from_slice(&self.gone.to_le_bytes());
        self.write(&index)?;
        let check = self.seal.check(self.offset, &[&trailer[..TRAILER - 4]]);
        trailer[TRAILER - 4..].copy_from_slice(&check.to_le_bytes());
        self.write(&trailer)?;
        self.file.sync().map_err(failed("sync", &self.name))?;
        Ok(Layer {
            number: self.number,
            bytes: self.offset,
            entries: self.entries,
            gone: self.gone,
            check,
        })
    }
}

// Reading.

/// The index entry of a block.
#[derive(Debug)]
struct BlockLocation {
    offset: u64,
    size: u32,
    table: u32,
    key: Box<[u8]>,
}

/// An open layer.
#[derive(Debug)]
pub(crate) struct LayerReader {
    file: Arc<dyn DeviceFile>,
    layer: Layer,
    seal: LayerSeal,
    index: Vec<BlockLocation>,
}

impl LayerReader {
    /// Opens a layer of the database `identity`, and reads its index.
    pub(crate) fn open(
        device: &dyn Device,
        identity: &[u8; 16],
        layer: Layer,
    ) -> Result<LayerReader, CheckpointError> {
        let name = name(layer.number);
        let damaged = |offset, what| CheckpointError::damaged(&name, offset, what);
        let file = match device.open(&name) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(damaged(0, "the manifest names it, but it does not exist"));
            }
            opened => opened.map_err(failed("open", &name))?,
        };
        let mut reader = LayerReader {
            file,
            layer,
            seal: LayerSeal::new(identity, layer.number),
            index: Vec::new(),
        };
        let length = reader.file.len().map_err(failed("read", &name))?;
        if length != layer.bytes || length < (HEADER + TRAILER) as u64 {
            return Err(damaged(length, "it is not as long as the manifest says"));
        }
        let mut header = [0; HEADER];
        reader.read(&mut header, 0)?;
        if header[..8] != *MAGIC {
            return Err(damaged(0, "it does not begin like a layer"));
        }
        let version = u32_at(&header, 8);
        if u32_at(&header, HEADER - 4) != reader.seal.check(0, &[&header[..HEADER - 4]]) {
            return Err(damaged(0, "the checksum of its header does not match"));
        }
        if version != VERSION {
            return Err(CheckpointError::Newer {
                file: name,
                version,
            });
        }
        let trailer_at = length - TRAILER as u64;
        let mut trailer = [0; TRAILER];
        reader.read(&mut trailer, trailer_at)?;
        let check = u32_at(&trailer, TRAILER - 4);
        if trailer[..8] != *TRAILER_MAGIC
            || check != layer.check
            || check != reader.seal.check(trailer_at, &[&trailer[..TRAILER - 4]])
        {
            return Err(damaged(
                trailer_at,
                "its trailer is not the one that the manifest names",
            ));
        }
        let (index_at, index_bytes) = (u64_at(&trailer, 8), u64_at(&trailer, 16));
        if index_at.checked_add(index_bytes) != Some(trailer_at) || index_at < HEADER as u64 {
            return Err(damaged(trailer_at, "its trailer is invalid"));
        }
        // I4: the index is within the file.
        let mut index = vec![0; usize::try_from(index_bytes).unwrap_or(usize::MAX)];
        reader.read(&mut index, index_at)?;
        if u32_at(&trailer, 24) != reader.seal.check(index_at, &[&index]) {
            return Err(damaged(
                index_at,
                "the checksum of its index does not match",
            ));
        }
        reader.index = decode_index(&index, index_at)
            .ok_or_else(|| damaged(index_at, "its index is invalid"))?;
        if reader.index.len() as u64 != u64_at(&trailer, 32) {
            return Err(damaged(
                index_at,
                "its index has the wrong number of blocks",
            ));
        }
        Ok(reader)
    }

    /// Returns the manifest's entry.
    pub(crate) fn layer(&self) -> Layer {
        self.layer
    }

    /// Returns the first keys of its blocks, in order.
    pub(crate) fn first_keys(&self) -> impl ExactSizeIterator<Item = (u32, &[u8])> {
        self.index.iter().map(|place| (place.table, &place.key[..]))
    }

    /// Returns the offset of the block `index`, or `None` after the last.
    pub(crate) fn block_at(&self, index: usize) -> Option<u64> {
        self.index.get(index).map(|place| place.offset)
    }

    /// Reads the entries of one block and verifies its checksum.
    pub(crate) fn block(&self, index: usize, entries: &mut Vec<u8>) -> Result<(), CheckpointError> {
        let place = &self.index[index];
        let mut header = [0; BLOCK_HEADER];
        self.read(&mut header, place.offset)?;
        entries.resize(place.size as usize, 0);
        self.read(entries, place.offset + BLOCK_HEADER as u64)?;
        let sound = u32_at(&header, 4) == place.size
            && u32_at(&header, 12) == 0
            && u32_at(&header, 0) == self.seal.check(place.offset, &[&header[4..], entries]);
        if sound {
            Ok(())
        } else {
            Err(self.damaged(place.offset, "the checksum of a block does not match"))
        }
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), CheckpointError> {
        let name = || name(self.layer.number);
        let count = self.file.read_at(bytes, offset);
        if count.map_err(failed("read", &name()))? < bytes.len() {
            return Err(self.damaged(offset, "it ends too early"));
        }
        Ok(())
    }

    pub(super) fn damaged(&self, offset: u64, what: &'static str) -> CheckpointError {
        CheckpointError::damaged(&name(self.layer.number), offset, what)
    }
}

/// Decodes the index. Returns `None` unless its blocks are contiguous from the header to
/// `index_at`.
fn decode_index(mut bytes: &[u8], index_at: u64) -> Option<Vec<BlockLocation>> {
    let mut places: Vec<BlockLocation> = Vec::new();
    let mut expected = HEADER as u64;
    while !bytes.is_empty() {
        let offset = u64::decode_part(&mut bytes).ok()?;
        let size = u32::decode_part(&mut bytes).ok()?;
        let table = u32::decode_part(&mut bytes).ok()?;
        let key_size = u16::decode_part(&mut bytes).ok()?;
        let key = take(&mut bytes, usize::from(key_size), "the key of a block").ok()?;
        let last = places.last().map(|last| (last.table, &last.key[..]));
        if offset != expected || last.is_some_and(|last| last >= (table, key)) {
            return None;
        }
        expected = offset
            .checked_add(BLOCK_HEADER as u64)?
            .checked_add(u64::from(size))?;
        let key = key.into();
        places.push(BlockLocation {
            offset,
            size,
            table,
            key,
        });
    }
    (expected == index_at).then_some(places)
}

const OUT_OF_ORDER: &str = "its rows are not in order";

/// Iterator over the entries of a layer.
#[derive(Debug)]
pub(crate) struct LayerCursor<'r> {
    reader: &'r LayerReader,
    /// Index of the next block.
    next_block: usize,
    block: Vec<u8>,
    at: usize,
    entry: Option<LayerEntry>,
    /// Bytes of the file read so far.
    read: u64,
}

/// Position of an entry in the current block.
#[derive(Debug)]
struct LayerEntry {
    table: u32,
    key: Range<usize>,
    effect: fn(&[u8]) -> Effect<'_>,
    /// The value or patch: the last bytes of the entry, or none.
    content: Range<usize>,
}

impl<'r> LayerCursor<'r> {
    /// Creates a cursor at the first entry at or after `from`, or at the first of all.
    pub(crate) fn new(
        reader: &'r LayerReader,
        from: Option<(u32, &[u8])>,
    ) -> Result<LayerCursor<'r>, CheckpointError> {
        let next_block = from.map_or(0, |from| {
            let behind = |place: &BlockLocation| (place.table, &place.key[..]) <= from;
            reader.index.partition_point(behind).saturating_sub(1)
        });
        let mut cursor = LayerCursor {
            reader,
            next_block,
            block: Vec::new(),
            at: 0,
            entry: None,
            read: 0,
        };
        cursor.advance()?;
        if let Some(from) = from {
            while cursor
                .entry()
                .is_some_and(|entry| order(entry, from) == Ordering::Less)
            {
                cursor.advance()?;
            }
        }
        Ok(cursor)
    }

    /// Returns the current entry, or `None` after the last.
    pub(crate) fn entry(&self) -> Option<RowChange<'_>> {
        self.entry.as_ref().map(|entry| RowChange {
            table: entry.table,
            key: &self.block[entry.key.clone()],
            effect: (entry.effect)(&self.block[entry.content.clone()]),
        })
    }

    /// Moves to the next entry.
    pub(crate) fn advance(&mut self) -> Result<(), CheckpointError> {
        while self.at == self.block.len() {
            if self.next_block == self.reader.index.len() {
                self.entry = None;
                return Ok(());
            }
            let first = &self.reader.index[self.next_block];
            let first = (first.table, &first.key[..]);
            if self
                .entry()
                .is_some_and(|last| order(last, first) != Ordering::Less)
            {
                return Err(self.damaged(OUT_OF_ORDER));
            }
            self.reader.block(self.next_block, &mut self.block)?;
            self.read += (BLOCK_HEADER + self.block.len()) as u64;
            self.next_block += 1;
            self.at = 0;
        }
        let mut rest = &self.block[self.at..];
        let Ok(change) = next_change(&mut rest) else {
            let place = &self.reader.index[self.next_block - 1];
            let what = "a block contains an invalid entry";
            return Err(self.reader.damaged(place.offset, what));
        };
        // A range ends at the first row beyond it, so rows in another order would be skipped
        // silently.
        let is_next = match self.at {
            0 => {
                let first = &self.reader.index[self.next_block - 1];
                order(change, (first.table, &first.key)) == Ordering::Equal
            }
            _ => {
                let last = self.entry();
                last.is_none_or(|last| order(last, (change.table, change.key)) == Ordering::Less)
            }
        };
        if !is_next {
            return Err(self.damaged(OUT_OF_ORDER));
        }
        // The borrowed part of an entry begins at the key, and the value or patch ends where the
        // entry does.
        let end = self.block.len() - rest.len();
        let key_at = self.at + 6;
        let (effect, length): (fn(&[u8]) -> Effect<'_>, usize) = match change.effect {
            Effect::Delete => (|_| Effect::Delete, 0),
            Effect::Put(value) => (|value| Effect::Put(value), value.len()),
            Effect::Patch(patch) => (|patch| Effect::Patch(patch), patch.len()),
        };
        self.entry = Some(LayerEntry {
            table: change.table,
            key: key_at..key_at + change.key.len(),
            effect,
            content: end - length..end,
        });
        self.at = end;
        Ok(())
    }

    /// Returns the error that the current entry is damaged.
    pub(super) fn damaged(&self, what: &'static str) -> CheckpointError {
        let place = &self.reader.index[self.next_block.saturating_sub(1)];
        self.reader.damaged(place.offset, what)
    }

    /// Returns the bytes read since the last call.
    pub(crate) fn take_read(&mut self) -> u64 {
        std::mem::take(&mut self.read)
    }
}

/// Compares an entry with a key.
pub(crate) fn order(entry: RowChange<'_>, key: (u32, &[u8])) -> Ordering {
    (entry.table, entry.key).cmp(&key)
}

/// Returns four bytes at `at` as a number. Callers pass offsets inside their fixed-size headers.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

/// Returns eight bytes at `at` as a number. Callers pass offsets inside their fixed-size headers.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}
