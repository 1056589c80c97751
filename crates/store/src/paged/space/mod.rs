//! Space of the page file: the file itself, its header, and its length.
//!
//! Maps of used pages come with the tree, because an allocation is part of the change that needs
//! the page.

mod file;

pub use file::{FileHeader, PageBuffer, PageFile, PageFileError};
