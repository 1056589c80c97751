//! Limits of tables, keys and values. Users may rely on them. A larger key or value is an error and
//! is never truncated.

pub use foxton_store::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// Maximum number of tables in one database.
pub const MAX_TABLES: usize = 4096;

/// Name of the file that marks a directory as a backup.
pub(crate) const BACKUP_FILE: &str = "backup";

/// Name of the file that takes the superblock's place while a database is being restored.
pub(crate) const RESTORE_FILE: &str = "restoring";

/// Number of the first index in lock names. Tables have smaller numbers, so the two never collide.
pub(crate) const FIRST_INDEX: u32 = 1 << 16;

/// Number of the first index of a paged table. Such numbers are stored, and smaller ones of other
/// indexes are not.
pub(crate) const FIRST_PAGED_INDEX: u32 = 1 << 24;

/// Number, in lock names, of the names of tables: a transaction that finds no table of a name locks
/// the name there. No table and no index has this number.
pub(crate) const TABLE_NAMES: u32 = MAX_TABLES as u32;

const _: () = assert!(TABLE_NAMES < FIRST_INDEX && FIRST_INDEX < FIRST_PAGED_INDEX);

/// Maximum length of a table name or an index name, in bytes.
pub const MAX_TABLE_NAME_BYTES: usize = 255;

// A log record stores the length of a key in a u16 and the length of a value in a u32.
const _: () = assert!(MAX_KEY_BYTES <= u16::MAX as usize && MAX_VALUE_BYTES <= u32::MAX as usize);
