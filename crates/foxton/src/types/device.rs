//! What a database lies on: a directory of files, in a file system, in memory, or of your own making.
//!
//! [`Database::open`](crate::Database::open) takes a directory of the file system. Whoever wants another one, to keep
//! a database in memory after it was closed, to count calls or to have them fail, gives
//! [`Database::open_on`](crate::Database::open_on) a [`Device`](crate::types::device::Device); what one must promise, its module says clause by clause.
//!
//! ```
//! use std::sync::Arc;
//! use foxton::device::{Device, MemoryDevice};
//! use foxton::{Database, Options, Table};
//!
//! const USERS: Table<str, u32> = Table::new("users");
//!
//! let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
//! let db = Database::open_on(device.clone(), Options::default())?;
//! db.run(|tx| tx.put(&USERS, "ada", &1815))?;
//! drop(db); // closes it; the files stay in the device
//!
//! let db = Database::open_on(device, Options::default())?;
//! assert_eq!(db.run(|tx| tx.get(&USERS, "ada"))?, Some(1815));
//! # Ok::<(), foxton::Error>(())
//! ```

pub use foxton_log::device::file::FileDevice;
pub use foxton_log::device::memory::MemoryDevice;
pub use foxton_log::device::{Device, DeviceFile, LockError};
