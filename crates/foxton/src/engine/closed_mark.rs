//! Mark of a closed database with paged tables.
//!
//! Until the log has the changes of pages, the page file is whole only after the database was
//! closed. The file `rows-closed` says that it was. It is removed before the first change of a
//! page, and written after everything else when the database closes.
//!
//! ```text
//!   0        8         12     16         32        40        44
//!   magic  | version | zero | identity | LSN     | CRC-32C |
//!   8 B    | u32     | u32  | 16 B     | u64     | u32     |
//! ```
//!
//! The LSN is not below that of any page.
//!
//! # Invariants
//!
//! * I1  While the file is there and whole, the page file is as it was when it was written.
//! * I2  A thread that returns from `remove` finds the mark gone, durably.
//!
//! # Orderings
//!
//! * O1  `is_there`, released by the thread that has removed or written the file, and acquired by
//!   threads that are about to change a page. So the removal comes before the change.

use std::io;
use std::sync::Arc;

use foxton_log::Lsn;
use foxton_log::device::Device;
use foxton_sync::shim::{self, AtomicBool, Mutex, Ordering};

/// Name of the file.
pub(crate) const FILE: &str = "rows-closed";

const MAGIC: &[u8; 8] = b"FOXTONrc";
const VERSION: u32 = 1;
const BYTES: usize = 44;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ClosedMark {
    device: Arc<dyn Device>,
    identity: [u8; 16],
    is_there: AtomicBool,
    removal: Mutex<()>,
}

impl ClosedMark {
    pub(super) fn new(device: Arc<dyn Device>, identity: [u8; 16], is_there: bool) -> ClosedMark {
        ClosedMark {
            device,
            identity,
            is_there: AtomicBool::new(is_there),
            removal: Mutex::new(()),
        }
    }

    /// Returns the LSN of the mark, if it is there and whole.
    pub(super) fn read(device: &dyn Device, identity: &[u8; 16]) -> io::Result<Option<Lsn>> {
        let file = match device.open(FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = [0; BYTES];
        let count = file.read_at(&mut bytes, 0)?;
        let lsn = u64::from_le_bytes(std::array::from_fn(|at| bytes[32 + at]));
        let is_whole = count == BYTES && bytes == encode(identity, lsn);
        Ok(is_whole.then(|| Lsn::new(lsn)))
    }

    /// True if no page was changed since the database was closed.
    pub(super) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire) // O1
    }

    /// Removes the mark, if it is there. Waits for the device then.
    #[inline]
    pub(super) fn remove(&self) -> io::Result<()> {
        match self.is_there() {
            true => self.remove_file(),
            false => Ok(()),
        }
    }

    #[cold]
    fn remove_file(&self) -> io::Result<()> {
        // Site: "page waits": once for an open database, by the first that changes a page.
        let _one = shim::lock(&self.removal);
        if self.is_there() {
            self.device.remove(FILE)?;
            self.device.sync_dir()?;
            self.is_there.store(false, Ordering::Release); // O1
        }
        Ok(())
    }

    /// Writes the mark. The page file is whole, its pages have no LSN above `lsn`, and no thread
    /// changes one.
    pub(super) fn write(&self, lsn: Lsn) -> io::Result<()> {
        if self.is_there() {
            return Ok(());
        }
        if self.device.list()?.iter().any(|name| name == FILE) {
            // One that was not whole.
            self.device.remove(FILE)?;
            self.device.sync_dir()?;
        }
        let file = self.device.create(FILE)?;
        file.write_at(&encode(&self.identity, lsn.bytes()), 0)?;
        file.sync()?;
        self.device.sync_dir()?;
        self.is_there.store(true, Ordering::Release); // O1
        Ok(())
    }
}

fn encode(identity: &[u8; 16], lsn: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(identity);
    bytes[32..40].copy_from_slice(&lsn.to_le_bytes());
    let check = crc32c::crc32c(&bytes[..BYTES - 4]);
    bytes[BYTES - 4..].copy_from_slice(&check.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxton_log::device::memory::MemoryDevice;

    #[test]
    fn a_mark_counts_while_it_is_whole_and_the_database_s_own() {
        let device = Arc::new(MemoryDevice::new());
        let identity = [7; 16];
        let mark = ClosedMark::new(device.clone(), identity, false);
        let read = |identity| ClosedMark::read(&*device, &identity).expect("memory");
        assert_eq!(read(identity), None);
        mark.write(Lsn::new(99)).expect("memory");
        assert_eq!((read(identity), read([8; 16])), (Some(Lsn::new(99)), None));
        let file = device.open(FILE).expect("it is there");
        for at in 0..BYTES as u64 {
            let mut byte = [0];
            file.read_at(&mut byte, at).expect("memory");
            file.write_at(&[byte[0] ^ 1], at).expect("memory");
            assert_eq!(read(identity), None, "byte {at}");
            file.write_at(&byte, at).expect("memory");
        }
        mark.remove().expect("memory");
        assert_eq!((read(identity), mark.is_there()), (None, false));
        mark.write(Lsn::new(100)).expect("memory");
        assert_eq!(read(identity), Some(Lsn::new(100)));
    }
}
