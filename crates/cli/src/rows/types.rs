//! The types of a table's rows.

use foxton::{TableComponent, codec::TypeName, inspect::TableStats};
use serde_json::{Map, Value};

use super::shape::{Shape, Side};

/// The types of a table's keys and values.
#[derive(Debug, Clone)]
pub(crate) struct Types {
    pub(crate) key: Shape,
    pub(crate) value: Shape,
    /// Tell types apart whose names are too long to be kept.
    hashes: (u64, u64),
}

impl Types {
    /// The types of a table in a database.
    pub(crate) fn of(table: &TableStats) -> Types {
        Types {
            key: Shape::new(Side::Key, &table.key_type),
            value: Shape::new(Side::Value, &table.value_type),
            hashes: (table.key_hash, table.value_hash),
        }
    }

    /// The types with these names.
    pub(crate) fn called(key: &str, value: &str) -> Types {
        Types {
            key: Shape::new(Side::Key, key),
            value: Shape::new(Side::Value, value),
            hashes: (TypeName::new(key).hash(), TypeName::new(value).hash()),
        }
    }

    /// The types as a database names them.
    pub(crate) fn names(&self) -> (TypeName, TypeName) {
        (
            TypeName::stored(self.key.name(), self.hashes.0),
            TypeName::stored(self.value.name(), self.hashes.1),
        )
    }

    /// True if rows of one table are rows of the other.
    pub(crate) fn are(&self, other: &Types) -> bool {
        self.hashes == other.hashes
    }

    /// For a person: `str to u32`.
    pub(crate) fn words(&self) -> String {
        format!("{} to {}", self.key.name(), self.value.name())
    }

    /// The line in front of a table's rows. It names the component of a table that is not in
    /// memory.
    pub(crate) fn header(&self, table: &str, component: TableComponent) -> Value {
        let mut line = Map::new();
        line.insert("table".into(), table.into());
        for (side, shape, hash) in [
            ("key", &self.key, self.hashes.0),
            ("value", &self.value, self.hashes.1),
        ] {
            line.insert(side.into(), shape.name().into());
            if TypeName::new(shape.name()).hash() != hash {
                line.insert(format!("{side}_hash"), format!("{hash:016x}").into());
            }
        }
        if component != TableComponent::Resident {
            line.insert("component".into(), component.to_string().into());
        }
        Value::Object(line)
    }

    /// Parses [`header`](Self::header): the table, and its types.
    pub(crate) fn from_header(line: &Value) -> Option<(String, Types)> {
        let text = |name: &str| line.get(name)?.as_str();
        let mut types = Types::called(text("key")?, text("value")?);
        for (name, hash) in [
            ("key_hash", &mut types.hashes.0),
            ("value_hash", &mut types.hashes.1),
        ] {
            if let Some(digits) = line.get(name) {
                *hash = u64::from_str_radix(digits.as_str()?, 16).ok()?;
            }
        }
        Some((text("table")?.to_owned(), types))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_types_of_a_table_even_if_a_name_was_truncated() {
        let plain = Types::called("(u32,str)", "u8");
        assert_eq!(
            plain.header("t", TableComponent::Resident).to_string(),
            r#"{"table":"t","key":"(u32,str)","value":"u8"}"#
        );
        let cut = Types {
            hashes: (7, plain.hashes.1),
            ..plain.clone()
        };
        let (table, read) = Types::from_header(&cut.header("t", TableComponent::Paged)).unwrap();
        assert!(table == "t" && read.are(&cut) && !read.are(&plain));
        assert_eq!(read.names().0.hash(), 7);
        assert!(Types::from_header(&serde_json::json!({"table": "t", "key": 1})).is_none());
    }
}
