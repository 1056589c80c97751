//! Replaced versions that commits leave: lists of what a collector looks at.

use std::sync::Arc;

use foxton_log::Lsn;

use crate::catalog::OpenTable;

/// Bytes that a waiting version takes beside its own.
const ENTRY_BYTES: usize = 64;

/// Replaced versions that wait to be collected.
#[derive(Default)]
pub(crate) struct LeftVersions {
    tables: Vec<Arc<OpenTable>>,
    entries: Vec<LeftVersion>,
    keys: Vec<u8>,
    pub(super) bytes: usize,
    /// Of these, those that are not reported yet.
    pub(super) unreported: usize,
}

/// A replaced version, or one of a removed row.
#[derive(Clone, Copy)]
pub(super) struct LeftVersion {
    table: u32,
    key_start: u32,
    key_bytes: u16,
    /// Where the version began. Its end may move, when others between it and the newest go.
    pub(super) begin: Lsn,
    pub(super) bytes: u32,
}

impl LeftVersions {
    /// Adds a version of the row `key`: where it began, and its bytes.
    pub(crate) fn push(
        &mut self,
        table: &Arc<OpenTable>,
        key: &[u8],
        (begin, bytes): (Lsn, usize),
    ) {
        let known = self
            .tables
            .iter()
            .rposition(|known| Arc::ptr_eq(known, table));
        let number = known.unwrap_or_else(|| {
            self.tables.push(table.clone());
            self.tables.len() - 1
        });
        self.entries.push(LeftVersion {
            table: number as u32,
            key_start: self.keys.len() as u32,
            key_bytes: key.len() as u16,
            begin,
            bytes: bytes as u32,
        });
        self.keys.extend_from_slice(key);
        let whole = bytes + key.len() + ENTRY_BYTES;
        self.bytes += whole;
        self.unreported += whole;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns table and key of each version.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<OpenTable>, &[u8], LeftVersion)> {
        self.entries.iter().map(|entry| {
            let start = entry.key_start as usize;
            let key = &self.keys[start..start + usize::from(entry.key_bytes)];
            (&self.tables[entry.table as usize], key, *entry)
        })
    }
}
