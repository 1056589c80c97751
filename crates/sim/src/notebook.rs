//! The notebook: expectations kept outside the database, in a file that survives a kill.
//!
//! A process killed by `SIGKILL` loses its memory, but not bytes that it has handed to the
//! operating system. So each client writes into a small file, past the database, which transaction
//! it begins and, after its commit was acknowledged, that it was. A transaction between the two
//! numbers is pending when the process dies: it may be there or not.
//!
//! # Format
//!
//! Slots of 16 bytes, little-endian; slot 0 is the load, slot c + 1 is client c:
//!
//! | bytes | meaning                                          |
//! |-------|--------------------------------------------------|
//! | 0..8  | number of the last transaction that was begun    |
//! | 8..16 | number of the last one that was acknowledged     |
//!
//! A number is written by one call of eight aligned bytes; the kernel copies those in one piece.
//!
//! # Invariants
//!
//! * I1  Begun is written before the transaction begins, acknowledged after its acknowledgement.
//! * I2  Acknowledged is at most begun, and begun is at most one larger while one process runs.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

/// An open notebook.
#[derive(Debug)]
pub struct Notebook(File);

/// Contents of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The last transaction that was begun; 0 if none.
    pub begun: u64,
    /// The last one that was acknowledged; 0 if none.
    pub acknowledged: u64,
}

/// The slot of the load.
const LOAD: u64 = 0;

impl Notebook {
    /// Opens the notebook at `path`; creates an empty one if there is none.
    ///
    /// # Errors
    ///
    /// Any error of the file system.
    pub fn open(path: &Path) -> io::Result<Notebook> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        Ok(Notebook(file))
    }

    /// Records that a client begins transaction `n`.
    ///
    /// # Errors
    ///
    /// Any error of the file system.
    pub fn begin(&self, client: u32, n: u64) -> io::Result<()> {
        self.note(u64::from(client) + 1, 0, n)
    }

    /// Records that the client's transaction `n` was acknowledged.
    ///
    /// # Errors
    ///
    /// Any error of the file system.
    pub fn acknowledge(&self, client: u32, n: u64) -> io::Result<()> {
        self.note(u64::from(client) + 1, 8, n)
    }

    /// Records that the load was acknowledged.
    ///
    /// # Errors
    ///
    /// Any error of the file system.
    pub fn acknowledge_load(&self) -> io::Result<()> {
        self.note(LOAD, 8, 1)
    }

    /// Returns whether the load was acknowledged.
    ///
    /// # Errors
    ///
    /// Any error of the file system.
    pub fn is_loaded(&self) -> io::Result<bool> {
        Ok(self.slot(LOAD)?.acknowledged == 1)
    }

    /// Returns the record of a client.
    ///
    /// # Errors
    ///
    /// Any error of the file system.
    pub fn client(&self, client: u32) -> io::Result<Slot> {
        self.slot(u64::from(client) + 1)
    }

    fn note(&self, slot: u64, field: u64, n: u64) -> io::Result<()> {
        self.0.write_all_at(&n.to_le_bytes(), slot * 16 + field)
    }

    fn slot(&self, slot: u64) -> io::Result<Slot> {
        let number = |field: u64| {
            let mut bytes = [0; 8];
            match self.0.read_exact_at(&mut bytes, slot * 16 + field) {
                Ok(()) => Ok(u64::from_le_bytes(bytes)),
                // A slot that was never written.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                Err(error) => Err(error),
            }
        };
        Ok(Slot {
            begun: number(0)?,
            acknowledged: number(8)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notebook_says_what_was_noted_in_it() {
        let path = std::env::temp_dir().join(format!("foxton-notebook-{}", std::process::id()));
        let notebook = Notebook::open(&path).unwrap();
        assert_eq!(
            notebook.client(3).unwrap(),
            Slot {
                begun: 0,
                acknowledged: 0
            }
        );
        notebook.begin(3, 1).unwrap();
        notebook.acknowledge(3, 1).unwrap();
        notebook.begin(3, 2).unwrap();
        assert!(!notebook.is_loaded().unwrap());
        notebook.acknowledge_load().unwrap();
        let again = Notebook::open(&path).unwrap();
        assert_eq!(
            again.client(3).unwrap(),
            Slot {
                begun: 2,
                acknowledged: 1
            }
        );
        assert_eq!(
            again.client(2).unwrap(),
            Slot {
                begun: 0,
                acknowledged: 0
            }
        );
        assert!(again.is_loaded().unwrap());
        std::fs::remove_file(path).unwrap();
    }
}
