//! Catalog of secondary indexes: one row for each, in a table of the database's own.
//!
//! ```text
//! table "foxton:indexes", of keys "foxton:index" and values "(str,(str,u64),bool,u32)"
//! key     name of the index
//! value   name of its table · type of its keys, and the hash u64 of the type's name ·
//!         whether it is unique · version u32
//!
//! table "foxton:index-trees", of keys "foxton:index" and values "u64"
//! key     name of an index of a paged table
//! value   number of the index, which is also that of its tree
//! ```
//!
//! These are ordinary rows: transactions write them, the log and checkpoints contain them, and
//! backups copy them. The entries of an index of a table in memory are not stored. Those of a paged
//! table are in a paged tree. While a database is open no number is used for two trees. A tree of
//! the directory that has an index's number, and is in no row, is that of an index that was
//! dropped, became stale or was never finished. It is [freed](crate::txn::former_rows), at the next
//! opening at the latest.

use crate::error::IndexError;
use crate::types::codec::{Encoded, Key, TypeName, Undecodable, Value};
use crate::types::index_entry::EntryKind;
use crate::types::table::Table;

/// The key of a row: a name, with a type that only this table has.
pub(crate) struct IndexName<'n>(pub(crate) &'n str);

/// The value of a row.
pub(crate) type Row = (String, (String, u64), bool, u32);

/// The table of indexes; see the [module](self).
pub(crate) const INDEXES: Table<IndexName<'static>, Row> = Table::new("foxton:indexes").resident();

/// The table of the trees of paged indexes; see the [module](self).
pub(crate) const INDEX_TREES: Table<IndexName<'static>, u64> =
    Table::new("foxton:index-trees").resident();

impl Key for IndexName<'_> {
    type Owned = String;
    const TYPE: TypeName = TypeName::new("foxton:index");

    fn encode(&self, out: &mut Vec<u8>) {
        Key::encode(self.0, out);
    }

    fn encode_part(&self, out: &mut Vec<u8>) {
        Key::encode_part(self.0, out);
    }

    fn decode(bytes: &[u8]) -> Result<String, Undecodable> {
        <str as Key>::decode(bytes)
    }

    fn decode_part(bytes: &mut &[u8]) -> Result<String, Undecodable> {
        <str as Key>::decode_part(bytes)
    }
}

/// True if a table called `name` with keys of `key_type` would collide with one of these.
pub(crate) fn is_reserved(name: &str, key_type: &TypeName) -> bool {
    let own = [INDEXES.name(), INDEX_TREES.name(), "foxton:conversions"];
    own.contains(&name) && *key_type != IndexName::TYPE
}

/// True if `name` is the name of one of these tables.
pub(crate) fn is_index_table(name: &str) -> bool {
    is_reserved(name, &<Encoded as Key>::TYPE)
}

/// The stored declaration of an index, whether the program declares it now or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexRecord {
    pub(crate) name: String,
    pub(crate) table: String,
    pub(crate) key_type: (String, u64),
    pub(crate) kind: EntryKind,
    pub(crate) version: u32,
}

impl IndexRecord {
    /// Creates it from a row.
    pub(crate) fn of_row(name: String, row: Row) -> IndexRecord {
        let (table, key_type, is_unique, version) = row;
        IndexRecord {
            name,
            table,
            key_type,
            kind: match is_unique {
                true => EntryKind::Unique,
                false => EntryKind::Shared,
            },
            version,
        }
    }

    /// True if each key belongs to at most one row.
    pub(crate) fn is_unique(&self) -> bool {
        self.kind == EntryKind::Unique
    }

    /// Decodes it from the bytes of a row.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<IndexRecord, Undecodable> {
        let (name, row) = (IndexName::decode(key)?, <Row as Value>::decode(value)?);
        Ok(IndexRecord::of_row(name, row))
    }

    /// Converts it to a row.
    pub(crate) fn to_row(&self) -> Row {
        let is_unique = self.is_unique();
        let IndexRecord {
            table,
            key_type,
            version,
            ..
        } = self.clone();
        (table, key_type, is_unique, version)
    }

    /// Returns the error for an index that is now `declared` differently.
    pub(crate) fn differs_from(&self, declared: &IndexRecord) -> IndexError {
        IndexError::Differs {
            index: self.name.clone(),
            stored: self.describe(),
            declared: declared.describe(),
        }
    }

    /// Returns the declaration in readable form.
    fn describe(&self) -> String {
        let kind = match self.kind {
            EntryKind::Unique => "unique",
            EntryKind::Shared => "not unique",
        };
        format!(
            "{kind}, on table \"{}\", with keys of type {} and version {}",
            self.table, self.key_type.0, self.version
        )
    }

    /// True if both declare the same index. Types are compared by hash, because a stored type name
    /// may be truncated.
    pub(crate) fn agrees(&self, other: &IndexRecord) -> bool {
        let essence = |record: &IndexRecord| (record.kind, record.version, record.key_type.1);
        self.table == other.table && essence(self) == essence(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_back() {
        let record = IndexRecord {
            name: "by_name".into(),
            table: "users".into(),
            key_type: ("str".into(), 7),
            kind: EntryKind::Unique,
            version: 3,
        };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        IndexName(&record.name).encode(&mut key);
        Value::encode(&record.to_row(), &mut value);
        assert_eq!(IndexRecord::decode(&key, &value), Ok(record));
        assert!(IndexRecord::decode(&key, b"").is_err());
    }

    #[test]
    fn the_name_is_reserved() {
        assert!(is_reserved("foxton:indexes", &<str as Key>::TYPE));
        assert!(!is_reserved("foxton:indexes", &IndexName::TYPE));
        assert!(is_index_table("foxton:indexes") && !is_index_table("users"));
        assert!(is_index_table("foxton:index-trees"));
    }
}
