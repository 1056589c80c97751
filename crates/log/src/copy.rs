//! Copying a log, or the beginning of one, to another directory.
//!
//! The log is read record by record, and each record is checked. The copy has the same bytes at the
//! same positions of the stream, is cut into segments of its own, and is closed. So a copy is the
//! log as it was at one moment, and later damage to the copy is noticed.
//!
//! The log may be written meanwhile by a process that knows nothing of the copy. The copy ends
//! before the first record that is not whole yet; it does not wait for it. The caller says how far
//! the copy must reach. The file [`clean_shutdown`](crate::format::clean_shutdown) of the last
//! close says it too, because a log that has lost its end must not be copied.
//!
//! # A log in use
//!
//! Segments are created one after the other, never used again for other bytes, and removed from the
//! first on. `open_log` opens them before the copy begins:
//!
//! * It lists the directory twice. A list may miss a segment that is created at that moment. So the
//!   first list only says which segment is the last one to copy, and all up to there are in the
//!   second.
//! * It opens the last segment first. If a process opens the log meanwhile, it may replace the
//!   segment with the end and remove those behind. Then an opened segment is never older than the
//!   ones behind it.
//! * The last segment grows while it is read, up to its limit, so the copy ends there at the
//!   latest. If the process closes the log, it cuts off what it had reserved.
//!
//! # Invariants
//!
//! * I1 Every record in the copy was read as a good one, and the records follow each other without
//!   gaps from `from` on.
//! * I2 The copy is durable when [`copy`] returns, except for the name of the directory itself.
//! * I3 Everything that was written when `open_log` was called is in the segments that it opens.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use crate::device::Device;
use crate::device::opened::OpenedFiles;
use crate::format::clean_shutdown;
use crate::format::error::{CorruptionKind, Failure, LogError, OpenError};
use crate::format::lsn::Lsn;
use crate::format::record::{CLOSED, FIRST_OWN_KIND, HEADER_BYTES, HeaderCodec};
use crate::format::segment;
use crate::read::stream::{Remainder, Stream, damaged};
use crate::write::segment_writer::{SegmentWriter, WriteStopped, create_segment};

/// Number of bytes written to the target at once.
const CHUNK: usize = 256 << 10;

/// Largest segment of a copy, in bytes of stream.
const SEGMENT: u64 = (64 << 20) - segment::HEADER_BYTES;

/// The range of a log to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// Where the first record begins.
    pub from: Lsn,
    /// The log reaches this position; if it does not, it is damaged.
    pub at_least: Lsn,
    /// No record is copied that ends later.
    pub at_most: Lsn,
}

/// Result of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopySummary {
    /// Where the last record ends.
    pub end: Lsn,
    /// Number of records, without the log's own.
    pub records: u64,
    /// Number of bytes of stream.
    pub bytes: u64,
}

/// Reason why a log was not copied.
#[derive(Debug)]
#[non_exhaustive]
pub enum CopyError {
    /// The log could not be read, or is damaged.
    Source(OpenError<Infallible>),
    /// The copy could not be written.
    Target(Failure),
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyError::Source(error) => error.fmt(f),
            CopyError::Target(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for CopyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CopyError::Source(error) => Some(error),
            CopyError::Target(failure) => Some(failure),
        }
    }
}

impl From<Failure> for CopyError {
    fn from(failure: Failure) -> Self {
        CopyError::Source(failure.into())
    }
}

/// Opens the files of a log in use from `from` on, so that they can be copied later. Returns false
/// if one is missing at the beginning, or was removed meanwhile.
///
/// # Errors
///
/// If the device fails.
pub fn open_log(files: &mut OpenedFiles<'_>, from: Lsn) -> Result<bool, Failure> {
    let closed = files.keep_contents(clean_shutdown::FILE);
    closed.map_err(Failure::of("read", clean_shutdown::FILE))?;
    let device = files.device();
    let list = || {
        let names = device.list();
        names.map(|names| segment::firsts_from(&names, from))
    };
    let listed = || list().map_err(Failure::of("list", "the directory"));
    let Some(last) = listed()?.pop() else {
        return Ok(from == Lsn::ZERO);
    };
    let mut firsts = listed()?;
    firsts.retain(|&first| first <= last);
    let mut is_whole = firsts.first().is_some_and(|&first| first <= from);
    for name in firsts.into_iter().rev().map(segment::name) {
        is_whole &= files.keep(&name).map_err(Failure::of("open", &name))?;
    }
    Ok(is_whole)
}

/// Copies a range of the log of the database `identity` to `target`, which has no log. Calls
/// `advance` with the number of bytes of stream that were read since the last call.
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
/// use foxton_log::copy::{CopyRange, copy};
/// use foxton_log::device::{Device, memory::MemoryDevice};
/// use foxton_log::read::reader;
/// use foxton_log::{Log, LogOptions, Lsn};
/// use foxton_sync::worker::Workers;
///
/// let (source, worker) = (Arc::new(MemoryDevice::new()), Workers::new().worker());
/// let identity = *b"an identity of16";
/// let (log, _) = Log::open(source.clone(), LogOptions::tiny(), identity, &mut |_| {
///     Ok::<_, Infallible>(())
/// })?;
/// let first = log.insert(&worker, 1, &[b"first"])?;
/// let second = log.insert(&worker, 1, &[b"second"])?;
/// log.wait_durable(&worker, second)?;
///
/// let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
/// let range = CopyRange { from: Lsn::ZERO, at_least: first, at_most: first };
/// let copied = copy(&*source, &identity, range, &target, &mut |_| {})?;
/// assert_eq!((copied.end, copied.records), (first, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If a device fails, or the log is damaged. The files in the target are no log then.
pub fn copy(
    source: &dyn Device,
    identity: &[u8; 16],
    range: CopyRange,
    target: &Arc<dyn Device>,
    advance: &mut dyn FnMut(u64),
) -> Result<CopySummary, CopyError> {
    // Before the log is read, because the process that has it open may close it at any time.
    let closed = clean_shutdown::read(source, identity)?;
    let range = CopyRange {
        at_least: range.at_least.max(closed),
        ..range
    };
    let mut stream = Stream::open(source, identity, range.from).map_err(CopyError::Source)?;
    stream.expect_cut();
    if stream.is_empty() && range.at_least > range.from {
        return Err(CopyError::Source(damaged(
            range.from,
            CorruptionKind::Missing,
        )));
    }
    let codec = HeaderCodec::new(identity);
    let mut written = CopyWriter::begin(&stream, identity, range, target)?;
    let (mut at, mut records, mut closed_at) = (range.from, 0, None);
    // Bytes behind the last wanted record are not read: they may be half written.
    while at < range.at_most {
        let (kind, end) = match stream.record(codec, at)? {
            Ok(record) => (record.kind, record.end),
            Err(flaw) => {
                let known = range.at_least.min(range.at_most);
                let damaged = at < known
                    || matches!(stream.search(codec, at, flaw, known)?, Remainder::Damaged) && {
                        // The log may have been written further since the bytes were read.
                        stream.forget();
                        stream.record(codec, at)?.is_err()
                    };
                if damaged {
                    let corruption = stream.corruption(at, CorruptionKind::Record(flaw));
                    return Err(CopyError::Source(corruption.into()));
                }
                if stream.record(codec, at)?.is_err() {
                    break;
                }
                continue;
            }
        };
        if end > range.at_most {
            break;
        }
        if let Some(closed) = closed_at.take() {
            // The log was written further after this closing record, so it is a record like others.
            written.put(&mut stream, closed, at)?;
        }
        match kind {
            CLOSED => closed_at = Some(at),
            kind if kind >= FIRST_OWN_KIND => {
                let corruption = stream.corruption(at, CorruptionKind::Kind(kind));
                return Err(CopyError::Source(corruption.into()));
            }
            _ => {
                written.put(&mut stream, at, end)?;
                records += 1;
            }
        }
        advance(end.since(at));
        at = end;
    }
    if at == range.at_most
        && let Some(closed) = closed_at.take()
    {
        // The range ends here, and the record that once closed the log is a part of it.
        written.put(&mut stream, closed, at)?;
    }
    let end = closed_at.unwrap_or(at);
    written.close(codec)?;
    Ok(CopySummary {
        end,
        records,
        bytes: end.since(range.from),
    })
}

/// Writes the copy.
struct CopyWriter {
    output: SegmentWriter,
    chunk: Vec<u8>,
}

impl CopyWriter {
    fn begin(
        stream: &Stream<'_>,
        identity: &[u8; 16],
        range: CopyRange,
        target: &Arc<dyn Device>,
    ) -> Result<CopyWriter, CopyError> {
        // Space for all of it and the closing record; more would be reserved in vain.
        let room = stream.end().min(range.at_most).since(range.from) + HEADER_BYTES as u64;
        let capacity = room
            .next_multiple_of(segment::HEADER_BYTES)
            .clamp(segment::HEADER_BYTES, SEGMENT);
        let first = create_segment(&**target, identity, range.from, capacity, capacity)
            .map_err(CopyError::Target)?;
        let reserved = range.from.plus(capacity);
        Ok(CopyWriter {
            output: SegmentWriter::new(
                target.clone(),
                *identity,
                capacity,
                (first, reserved),
                range.from,
                None,
            ),
            chunk: Vec::with_capacity(2 * CHUNK),
        })
    }

    /// Appends the bytes from `at` to `end`; the last ones ended at `at`.
    fn put(&mut self, stream: &mut Stream<'_>, at: Lsn, end: Lsn) -> Result<(), CopyError> {
        let bytes = stream.view(at, end.since(at))?;
        let bytes = bytes.expect("it was read as a record just now");
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CopyError> {
        let CopyWriter { output, chunk } = self;
        write_synced(|sync| output.write(chunk, sync))?;
        chunk.clear();
        Ok(())
    }

    fn close(mut self, codec: HeaderCodec) -> Result<(), CopyError> {
        self.flush()?;
        write_synced(|sync| self.output.write_closed(codec, sync))
    }
}

/// Writes with `write`, syncs each full segment, and returns what failed.
fn write_synced(
    write: impl FnOnce(
        &mut dyn FnMut(&segment::SegmentFile, Lsn) -> Result<(), LogError>,
    ) -> Result<(), WriteStopped>,
) -> Result<(), CopyError> {
    let mut unsynced = None;
    let written = write(&mut |full, _| {
        full.file.sync().map_err(|source| {
            unsynced = Some(Failure::of("sync", &segment::name(full.first))(source));
            LogError::Closed
        })
    });
    match (written, unsynced) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(failure)) | (Err(WriteStopped::Device(failure)), None) => {
            Err(CopyError::Target(failure))
        }
        (Err(WriteStopped::Sync(_)), None) => unreachable!("only a failed sync tells"),
    }
}
