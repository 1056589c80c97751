//! What a table takes. Part of what users are promised; larger is an error, never a cut.

pub use foxton_store::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// Tables in one database.
pub const MAX_TABLES: usize = 4096;

/// The file that makes a directory a backup.
pub(crate) const BACKUP_FILE: &str = "backup";

/// Bytes of the longest table name.
pub const MAX_TABLE_NAME_BYTES: usize = 255;

// A log record counts the bytes of a key in a u16 and those of a value in a u32.
const _: () = assert!(MAX_KEY_BYTES <= u16::MAX as usize && MAX_VALUE_BYTES <= u32::MAX as usize);
