//! Mark of a closed database whose changes of pages are not in its log.
//!
//! Earlier versions logged no changes of pages. When such a version closed a database, it wrote all
//! pages and then the file `rows-closed`. It removed the file before it changed a page. So with the
//! file, the pages are whole. This version makes the first checkpoint of their pages then, and
//! removes the file.
//!
//! ```text
//!   0        8         12     16         32        40        44
//!   magic  | version | zero | identity | LSN     | CRC-32C |
//!   8 B    | u32     | u32  | 16 B     | u64     | u32     |
//! ```
//!
//! The LSN is not below that of any page. Those versions counted changes, so it may be beyond the
//! end of the log.

use std::io;

use foxton_log::Lsn;
use foxton_log::device::Device;

/// Name of the file.
pub(crate) const FILE: &str = "rows-closed";

const MAGIC: &[u8; 8] = b"FOXTONrc";
const VERSION: u32 = 1;
const BYTES: usize = 44;

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

/// Removes the mark, which is there.
pub(super) fn remove(device: &dyn Device) -> io::Result<()> {
    device.remove(FILE)?;
    device.sync_dir()
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
        let device = MemoryDevice::new();
        let identity = [7; 16];
        let read = |identity| read(&device, &identity).expect("memory");
        assert_eq!(read(identity), None);
        let file = device.create(FILE).expect("memory");
        file.write_at(&encode(&identity, 99), 0).expect("memory");
        assert_eq!((read(identity), read([8; 16])), (Some(Lsn::new(99)), None));
        for at in 0..BYTES as u64 {
            let mut byte = [0];
            file.read_at(&mut byte, at).expect("memory");
            file.write_at(&[byte[0] ^ 1], at).expect("memory");
            assert_eq!(read(identity), None, "byte {at}");
            file.write_at(&byte, at).expect("memory");
        }
        remove(&device).expect("memory");
        assert_eq!(read(identity), None);
    }
}
