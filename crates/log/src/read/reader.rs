//! Reader of a whole log, which finds out how it ends.
//!
//! Reading begins at the first record, or where a checkpoint says. Bytes before that position are
//! not read and may be gone.
//!
//! # A torn end, or damage
//!
//! A log that was not closed ends in whatever the last writes left: nothing, half a record, or
//! sectors of several records in any order. That is a *torn end*: the log stops there, and no
//! record is lost that was acknowledged as durable. A record that had been durable and is bad now
//! is *damage*. If damage were taken for a torn end, the acknowledged records behind it would be
//! lost silently. The bytes behind the bad position `x` tell the two apart:
//!
//! * A good record has a `durable` field beyond the bad bytes. Its inserter knew them to be
//!   durable: damage.
//! * The bad record is in a segment that has a successor: damage (`segment`, I1).
//! * A checkpoint was made of the log beyond `x`, and so of durable bytes: damage.
//! * The log was closed beyond `x`, as the file [`clean_shutdown`](crate::format::clean_shutdown)
//!   says: damage.
//! * In any other case the bytes may have been on their way when the power failed: a torn end. A
//!   good record behind `x` does not prove damage, because a device may write a later sector first.
//!
//! A log that was closed ends in a record of kind `CLOSED`. It was written when everything before
//! it was durable, and its `durable` field says so. So damage to any record is noticed there, the
//! last one included. Damage to the closing record itself loses nothing, and looks like a crash
//! during `close`.
//!
//! In a log that was *not* closed, damage to bytes written since the last sync but one can look
//! like a torn end: no single copy can tell the two apart.
//!
//! `stream` makes one stream of the segments. It ensures that reading is bounded and changes
//! nothing.

use std::fmt;

use crate::device::Device;
use crate::format::clean_shutdown;
use crate::format::error::{CorruptionKind, Failure, OpenError};
use crate::format::lsn::Lsn;
use crate::format::record::{CLOSED, FIRST_OWN_KIND, Flaw, HeaderCodec, RecordView};
use crate::format::segment::SegmentExtent;
use crate::read::stream::{Remainder, Stream, damaged, list_segments};

/// How a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogEnd {
    /// It was closed.
    Closed,
    /// It was not closed. Nothing follows its last record.
    Open,
    /// It was not closed. Its last record is followed by something that is not a record: bytes that
    /// were being written when the program or the machine stopped.
    Torn(Flaw),
}

/// Result of reading a log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogSummary {
    /// Where the last record ends.
    pub end: Lsn,
    /// Number of records, without the log's own.
    pub records: u64,
    /// How the log ends there.
    pub ended: LogEnd,
    /// Number of segment files.
    pub segments: usize,
    /// Name of the file with the end; empty if there is none.
    pub file: String,
    /// Offset of the end in that file, in bytes.
    pub offset: u64,
}

impl fmt::Display for LogSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogSummary {
            end,
            records,
            segments,
            file,
            offset,
            ..
        } = self;
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let (some, several) = (plural(*records), plural(*segments as u64));
        write!(
            f,
            "{records} record{some} in {segments} segment{several} up to LSN {end}"
        )?;
        match self.ended {
            LogEnd::Closed => write!(f, ", closed"),
            LogEnd::Open => write!(f, ", not closed"),
            LogEnd::Torn(flaw) => {
                write!(f, ", not closed; torn in `{file}` at byte {offset}: {flaw}")
            }
        }
    }
}

/// Where reading begins, and what a checkpoint knows of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Start {
    /// Where the first record that is needed begins. Earlier bytes may be gone.
    pub from: Lsn,
    /// The log was durable up to here, whatever it says itself, so it cannot end before.
    pub durable: Lsn,
}

/// Reads the log of the database `identity`, and calls `visit` for each record, in order.
///
/// Changes nothing, so a directory that can only be read is enough. The log must not be written
/// meanwhile.
pub fn read<E>(
    device: &dyn Device,
    identity: &[u8; 16],
    start: Start,
    visit: &mut dyn FnMut(RecordView<'_>) -> Result<(), E>,
) -> Result<LogSummary, OpenError<E>> {
    scan(device, identity, start, visit).map(|found| found.summary)
}

/// Result of scanning a log: its summary, and the details that opening it for writing needs.
#[derive(Debug)]
pub(crate) struct ScanResult {
    pub(crate) summary: LogSummary,
    /// Where reading began.
    pub(crate) from: Lsn,
    pub(crate) segments: Vec<SegmentExtent>,
    /// Files of the log that hold nothing and have to be removed.
    pub(crate) leftovers: Vec<String>,
    /// CRC-32C of the records as they were read, from the beginning of the segment in which the log
    /// ends, or from where reading began in it.
    pub(crate) tail_checksum: u32,
    /// Where the last record begins, if it is a closing record and nothing follows it.
    pub(crate) closed_at: Option<Lsn>,
}

pub(crate) fn scan<E>(
    device: &dyn Device,
    identity: &[u8; 16],
    start: Start,
    visit: &mut dyn FnMut(RecordView<'_>) -> Result<(), E>,
) -> Result<ScanResult, OpenError<E>> {
    let durable = start.durable.max(clean_shutdown::read(device, identity)?);
    let (segments, leftovers) = list_segments(device, identity, start.from)?;
    if segments.is_empty() && durable > start.from {
        return Err(damaged(start.from, CorruptionKind::Missing));
    }
    let mut stream = Stream::over(device, segments);
    let codec = HeaderCodec::new(identity);
    let (mut at, mut records, mut closed_at) = (start.from, 0, None);
    let mut tail = TailChecksum::default();
    let flaw = loop {
        let record = match stream.record(codec, at)? {
            Ok(record) => record,
            Err(flaw) => break flaw,
        };
        let end = record.end;
        match record.kind {
            CLOSED => closed_at = Some(at),
            kind if kind >= FIRST_OWN_KIND => {
                return Err(stream.corruption(at, CorruptionKind::Kind(kind)).into());
            }
            _ => {
                visit(record).map_err(|error| OpenError::Visit { lsn: at, error })?;
                records += 1;
                closed_at = None;
            }
        }
        tail.add(&mut stream, at, end)?;
        at = end;
    };
    let rest = stream.search(codec, at, flaw, durable)?;
    let ended = match (rest, closed_at) {
        (Remainder::Damaged, _) => {
            return Err(stream.corruption(at, CorruptionKind::Record(flaw)).into());
        }
        (Remainder::Nothing, Some(_)) => LogEnd::Closed,
        (Remainder::Nothing, None) => LogEnd::Open,
        (Remainder::Something, _) => LogEnd::Torn(flaw),
    };
    let (file, offset) = stream.location(at);
    let summary = LogSummary {
        end: at,
        records,
        ended,
        segments: stream.segments.len(),
        file,
        offset,
    };
    let closed_at = closed_at.filter(|_| ended == LogEnd::Closed);
    Ok(ScanResult {
        summary,
        from: start.from,
        segments: stream.segments,
        leftovers,
        tail_checksum: tail.value,
        closed_at,
    })
}

/// Checksum of what was read of the segment in which the last record ends.
#[derive(Debug, Default)]
struct TailChecksum {
    first: Lsn,
    value: u32,
}

impl TailChecksum {
    /// Adds the record from `at` to `end`, which was just read.
    fn add(&mut self, stream: &mut Stream<'_>, at: Lsn, end: Lsn) -> Result<(), Failure> {
        let first = stream.extent_of(end).map_or(Lsn::ZERO, |home| home.first);
        if first > self.first {
            *self = TailChecksum { first, value: 0 };
        }
        let from = at.max(first);
        let bytes = stream.view(from, end.since(from))?.unwrap_or_default();
        self.value = crc32c::crc32c_append(self.value, bytes);
        Ok(())
    }
}
