//! The bare device: reads of random pages of a file by a number of threads, with the flags that the
//! engine has.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{Advice, fadvise};

use super::metered::{AlignedBuffer, open_direct};
use crate::{
    bench::error::BenchError,
    driver::Client,
    measure::outcome::{Ended, Outcome},
    random::Random,
};

/// A file whose pages are read.
#[derive(Debug, Clone)]
pub(super) struct BareFile {
    file: Arc<File>,
    pages: u64,
    page_bytes: usize,
}

/// An error of this file.
pub(super) fn file_error(path: &Path) -> impl Fn(io::Error) -> BenchError {
    let path: PathBuf = path.to_owned();
    move |cause| BenchError::File {
        path: path.clone(),
        cause,
    }
}

/// Removes a file from the page cache.
pub(super) fn forget(path: &Path) -> Result<(), BenchError> {
    let forgotten = File::open(path).and_then(|file| {
        file.sync_all()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    });
    forgotten.map_err(file_error(path))
}

impl BareFile {
    pub(super) fn open(
        path: &Path,
        page_bytes: usize,
        is_direct: bool,
    ) -> Result<BareFile, BenchError> {
        let file = match is_direct {
            true => open_direct(path, false),
            false => File::open(path),
        };
        let file = file.map_err(file_error(path))?;
        let length = file.metadata().map_err(file_error(path))?.len();
        Ok(BareFile {
            file: Arc::new(file),
            pages: length / page_bytes as u64,
            page_bytes,
        })
    }

    /// A client that reads random pages.
    pub(super) fn client(&self, random: Random) -> Box<dyn Client> {
        Box::new(BareReader {
            file: self.clone(),
            random,
            buffer: AlignedBuffer::new(self.page_bytes),
        })
    }
}

struct BareReader {
    file: BareFile,
    random: Random,
    buffer: AlignedBuffer,
}

impl Client for BareReader {
    fn transaction(&mut self) -> Ended {
        let page = self.random.uniform(0, self.file.pages - 1);
        let offset = page * self.file.page_bytes as u64;
        match self
            .file
            .file
            .read_exact_at(self.buffer.bytes_mut(), offset)
        {
            Ok(()) => Ended::ok(0),
            Err(error) => Ended {
                outcome: Outcome::Error,
                failure: Some(error.to_string().into()),
                ..Ended::ok(0)
            },
        }
    }
}
