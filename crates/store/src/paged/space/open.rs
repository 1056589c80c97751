//! Opening the page file of a database, or creating it.
//!
//! # Invariants
//!
//! * I1  There is no page file, or a whole one with a space map and a directory: it is formatted
//!   under another name, synced, and renamed.
//! * I2  The bytes that a restart reads are durable. They may be visible and not durable if the
//!   process ended without a power cut, and a page that is read counts as clean.

use foxton_log::device::Device;

use super::allocator::format_file;
use super::file::{PageFile, PageFileError};
use crate::paged::page::{FileIdentity, PageSize};

/// Opens the page file `name` of the database `identity`, or creates one with pages of `size`. An
/// existing file keeps its page size.
///
/// # Errors
///
/// If the file is another database's or damaged, there is no space, or the device fails.
pub fn open_or_create(
    directory: &dyn Device,
    name: &str,
    size: PageSize,
    identity: FileIdentity,
) -> Result<PageFile, PageFileError> {
    let names = directory.list().map_err(PageFileError::of_call("list"))?;
    let is_there = |name: &str| names.iter().any(|other| other == name);
    if !is_there(name) {
        let unfinished = format!("{name}.new");
        if is_there(&unfinished) {
            let removed = directory.remove(&unfinished);
            removed.map_err(PageFileError::of_call("remove"))?;
        }
        let file = PageFile::create(directory, &unfinished, size, identity)?;
        format_file(&file)?;
        let renamed = directory.rename(&unfinished, name);
        renamed.map_err(PageFileError::of_call("rename"))?;
        let synced = directory.sync_dir();
        synced.map_err(PageFileError::of_call("sync of the directory"))?;
    }
    let file = PageFile::open(directory, name, identity)?;
    file.write_header_again()?; // I2
    Ok(file)
}
