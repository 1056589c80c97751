//! What a table takes. Part of what users are promised; larger is an error, never a cut.

pub use foxton_store::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// Tables in one database.
pub const MAX_TABLES: usize = 4096;

/// The file that makes a directory a backup.
pub(crate) const BACKUP_FILE: &str = "backup";

/// The file that is in the place of the superblock while a database is restored.
pub(crate) const RESTORE_FILE: &str = "restoring";

/// The number of the first index, which is locked under numbers of its own; tables are below.
pub(crate) const FIRST_INDEX: u32 = 1 << 16;

const _: () = assert!(MAX_TABLES < FIRST_INDEX as usize);

/// Bytes of the longest table name; names of indexes are as long.
pub const MAX_TABLE_NAME_BYTES: usize = 255;

// A log record counts the bytes of a key in a u16 and those of a value in a u32.
const _: () = assert!(MAX_KEY_BYTES <= u16::MAX as usize && MAX_VALUE_BYTES <= u32::MAX as usize);
