//! Recorded writes and syncs, repeated on other files at the times at which they were made.
//!
//! So readers of the bare device meet the same writes as those of the engine. Each kind of file has
//! as many threads as write it in the engine. A call that is late is not skipped.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use foxton_sync::shim::{Arc, AtomicBool, AtomicUsize, Ordering::Relaxed};

use super::{
    bare::file_error,
    metered::{ALIGNMENT, AlignedBuffer, FileKind, RecordedCall, WriteCall, open_direct},
};
use crate::bench::error::BenchError;

/// Longest sleep, so that a replay ends soon after it is stopped.
const NAP: Duration = Duration::from_millis(20);

/// Number of threads that write a batch of pages in place.
const PAGE_WRITERS: usize = 8;

/// Threads that repeat calls until they are stopped.
pub(super) struct Replay {
    stopped: Arc<AtomicBool>,
    threads: Vec<(PathBuf, JoinHandle<io::Result<u64>>)>,
}

impl Replay {
    /// Begins. `file_of` names the file for each kind; the one of the pages exists.
    pub(super) fn begin(
        calls: &[RecordedCall],
        file_of: impl Fn(FileKind) -> PathBuf,
        is_direct: bool,
    ) -> Replay {
        let (stopped, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let mut threads = Vec::new();
        for kind in FileKind::ALL {
            let of_kind = calls.iter().filter(|call| call.kind == kind);
            let player = Player {
                calls: of_kind.copied().collect(),
                next: Arc::default(),
                path: file_of(kind),
                is_direct: is_direct && matches!(kind, FileKind::Pages | FileKind::Doublewrite),
                stopped: stopped.clone(),
                began,
            };
            let players = if kind == FileKind::Pages {
                PAGE_WRITERS
            } else {
                1
            };
            for _ in 0..players {
                let player = player.clone();
                threads.push((player.path.clone(), thread::spawn(move || player.play())));
            }
        }
        Replay { stopped, threads }
    }

    /// Ends, and returns the number of calls made.
    ///
    /// # Errors
    ///
    /// If one failed.
    pub(super) fn end(self) -> Result<u64, BenchError> {
        self.stopped.store(true, Relaxed);
        let mut made = 0;
        for (path, thread) in self.threads {
            let ended = thread.join().expect("a replay does not panic");
            made += ended.map_err(file_error(&path))?;
        }
        Ok(made)
    }
}

#[derive(Clone)]
struct Player {
    calls: Arc<[RecordedCall]>,
    /// The call that is made next, of all players of the file.
    next: Arc<AtomicUsize>,
    path: PathBuf,
    is_direct: bool,
    stopped: Arc<AtomicBool>,
    began: Instant,
}

impl Player {
    fn play(self) -> io::Result<u64> {
        let file = open(&self.path)?;
        let direct = match self.is_direct {
            true => Some(open_direct(&self.path, true)?),
            false => None,
        };
        let bytes_of = |call: &RecordedCall| match call.call {
            WriteCall::Write { bytes, .. } => bytes,
            WriteCall::Sync => 0,
        };
        let most = self.calls.iter().map(bytes_of).max().unwrap_or(0);
        let mut buffer = AlignedBuffer::new(most);
        let mut made = 0;
        // Relaxed: the index leads to calls that do not change.
        while let Some(call) = self.calls.get(self.next.fetch_add(1, Relaxed)) {
            loop {
                if self.stopped.load(Relaxed) {
                    return Ok(made);
                }
                match call.at.checked_sub(self.began.elapsed()) {
                    Some(early) if !early.is_zero() => thread::sleep(early.min(NAP)),
                    _ => break,
                }
            }
            match call.call {
                WriteCall::Sync => file.sync_data()?,
                WriteCall::Write { bytes, offset } => {
                    let is_aligned =
                        bytes.is_multiple_of(ALIGNMENT) && offset.is_multiple_of(ALIGNMENT as u64);
                    let file = direct.as_ref().filter(|_| is_aligned).unwrap_or(&file);
                    file.write_all_at(&buffer.bytes_mut()[..bytes], offset)?;
                }
            }
            made += 1;
        }
        Ok(made)
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_made_in_order_at_their_times_and_not_after_the_end() {
        let scratch = tempfile::tempdir().unwrap();
        let call = |millis, kind, call| RecordedCall {
            at: Duration::from_millis(millis),
            kind,
            call,
        };
        let write = |bytes, offset| WriteCall::Write { bytes, offset };
        let calls = [
            call(0, FileKind::Log, write(10, 0)),
            call(0, FileKind::Pages, write(8192, 8192)),
            call(30, FileKind::Log, write(10, 10)),
            call(30, FileKind::Log, WriteCall::Sync),
            call(3_600_000, FileKind::Log, write(10, 1 << 20)),
        ];
        let path = |kind: FileKind| scratch.path().join(kind.name());
        let replay = Replay::begin(&calls, path, false);
        thread::sleep(Duration::from_millis(200));
        assert_eq!(replay.end().unwrap(), 4);
        let length = |kind| std::fs::metadata(path(kind)).unwrap().len();
        assert_eq!(
            (length(FileKind::Log), length(FileKind::Pages)),
            (20, 16_384)
        );
    }
}
