//! Storage devices: the directory of files that holds a database. It may be in a file system, in
//! memory, or an implementation of your own.
//!
//! [`Database::open`](crate::Database::open) uses a directory of the file system.
//! [`Database::open_on`](crate::Database::open_on) takes a [`Device`](crate::types::device::Device)
//! instead. A program may use one to keep a database in memory after it is closed, to count calls,
//! or to make calls fail. The device's module lists its contract clause by clause.
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
