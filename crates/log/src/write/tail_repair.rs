//! Tail repair: rewriting the end of a log, so that new records can follow it safely.
//!
//! The bytes that a reader finds at the end of a log need not be on the disk: after a failed sync
//! the system may show bytes that it has given up writing. If a new record were acknowledged behind
//! them, a power cut could take them and cut the log before that record. So all bytes that could be
//! in this state are written again, and synced, before the log accepts anything.
//!
//! * A log that was *not* closed: the segment in which the log ends is copied, up to the end, to a
//!   new file, which is synced and renamed over it. The copy leaves out everything behind the end,
//!   so that no later record can ever be followed by a stale one. Writing in place instead could
//!   tear records that are safe.
//!
//!   The bytes copied are those that were read as records: the copy has their checksum, or opening
//!   fails. Bytes before the position where reading began are copied unread. A second read may
//!   differ, because the system shows a page that it has given up writing only as long as it keeps
//!   it in memory. After that it shows what the disk has.
//! * A log that was closed: only the closing record itself can be in doubt, because it is written
//!   when everything before it is durable. It is written again in place; tearing it does no harm.
//!   If nothing is inserted behind it, it closes the log this time, too, and the log is then byte
//!   for byte what it was.
//!
//! Segments before the last are durable (`segment`, I1). The log can be opened on a full device,
//! unless a segment must be copied: space for further records is reserved if there is some.
//!
//! # Why the page cache may be read
//!
//! Opening reads through the page cache, and so may find good records that the disk does not have.
//! That does no harm. They were written by the database and not acknowledged, and a commit of
//! unknown outcome may be found. But a commit must not be found now and lost later. It is not lost,
//! because the copy is made from bytes with good checksums, into a file that never failed a sync.
//! The copy is synced before anything is acknowledged behind it; if that sync fails, the log does
//! not open. Reading past the cache (`O_DIRECT`, or `POSIX_FADV_DONTNEED` first) would find fewer
//! of these commits, which is no advantage.
//!
//! # Invariants
//!
//! * I1 A crash at any point leaves a log that ends in the same record. Files behind the end are
//!   removed, the last first. Each removal is durable before the next one, and all are durable
//!   before the segment with the end is replaced.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::device::{Device, FailureKind};
use crate::format::clean_shutdown;
use crate::format::error::Failure;
use crate::format::lsn::Lsn;
use crate::format::record::HeaderCodec;
use crate::format::segment::{self, SegmentExtent, SegmentFile};
use crate::read::reader::ScanResult;
use crate::write::segment_writer::{
    FIRST_RESERVED, SegmentWriter, closing_record, create_segment, failure_about, whole_blocks,
};

/// Number of bytes copied at once.
const CHUNK: u64 = 1 << 20;

/// Prepares the log that `found` describes for writing; returns how many bytes were written again.
pub(crate) fn prepare(
    device: Arc<dyn Device>,
    identity: [u8; 16],
    capacity: u64,
    found: ScanResult,
) -> Result<(SegmentWriter, u64), Failure> {
    let (from, end) = (found.from, found.summary.end);
    let last = remove_after_end(&*device, found.segments, &found.leftovers, end)?;
    clean_shutdown::create(&*device)?;
    let mut reserved = end;
    let (segment, rewritten) = match (last, found.closed_at) {
        (None, _) => {
            let bytes = FIRST_RESERVED.min(capacity);
            reserved = Lsn::new(bytes);
            let segment = create_segment(&*device, &identity, Lsn::ZERO, capacity, bytes)?;
            (segment, 0)
        }
        (Some(last), Some(lsn)) if lsn >= last.first => {
            (rewrite_closed(last, &identity, lsn)?, end.since(lsn))
        }
        // The closing record began in an earlier segment; copying the last one does as well.
        (Some(last), _) => (
            copy(&*device, &identity, &last, from..end, found.tail_checksum)?,
            end.since(last.first),
        ),
    };
    let mut writer = SegmentWriter::new(
        device,
        identity,
        capacity,
        (segment, reserved),
        end,
        found.closed_at,
    );
    match writer.reserve(end.plus(1)) {
        // The log can be opened without, and the first record asks again.
        Err(failure) if FailureKind::of(&failure.source) != FailureKind::Broken => {}
        reserved => reserved?,
    }
    Ok((writer, rewritten))
}

/// Removes files that hold nothing of the log, and returns the segment in which the log ends.
fn remove_after_end(
    device: &dyn Device,
    mut segments: Vec<SegmentExtent>,
    leftovers: &[String],
    end: Lsn,
) -> Result<Option<SegmentFile>, Failure> {
    for name in leftovers {
        remove(device, name)?;
    }
    // The last first, each durably before the next: a gap would look like a lost segment.
    while let Some(last) = segments.pop_if(|last| last.first > end) {
        remove(device, &segment::name(last.first))?;
    }
    let Some(last) = segments.pop() else {
        return Ok(None);
    };
    let name = segment::name(last.first);
    last.open(device)
        .map(Some)
        .map_err(Failure::of("open", &name))
}

fn remove(device: &dyn Device, name: &str) -> Result<(), Failure> {
    device.remove(name).map_err(Failure::of("remove", name))?;
    device
        .sync_dir()
        .map_err(Failure::of("sync", "the directory"))
}

fn rewrite_closed(
    last: SegmentFile,
    identity: &[u8; 16],
    lsn: Lsn,
) -> Result<SegmentFile, Failure> {
    let name = segment::name(last.first);
    let record = closing_record(HeaderCodec::new(identity), lsn);
    last.file
        .write_at(&record, last.offset_of(lsn))
        .map_err(Failure::of("write", &name))?;
    last.file.sync().map_err(Failure::of("sync", &name))?;
    Ok(last)
}

fn copy(
    device: &dyn Device,
    identity: &[u8; 16],
    last: &SegmentFile,
    read: Range<Lsn>,
    tail: u32,
) -> Result<SegmentFile, Failure> {
    let (name, unfinished) = (
        segment::name(last.first),
        segment::unfinished_name(last.first),
    );
    let (first, capacity) = (last.first, last.capacity);
    let bytes = whole_blocks(read.end.since(first), capacity);
    let fresh = SegmentFile::create_as(&unfinished, device, identity, first, capacity, bytes)
        .map_err(failure_about(&unfinished))?;
    let mut chunk = Vec::new();
    let mut at = last.first;
    let mut check = 0;
    while at < read.end {
        // A piece ends where reading began, because only bytes that were read have a checksum.
        let piece = if at < read.start {
            read.start
        } else {
            read.end
        };
        let length = piece.since(at).min(CHUNK);
        chunk.resize(length as usize, 0);
        let count = last
            .file
            .read_at(&mut chunk, last.offset_of(at))
            .map_err(Failure::of("read", &name))?;
        if count < chunk.len() {
            return Err(Failure::of("read", &name)(
                io::ErrorKind::UnexpectedEof.into(),
            ));
        }
        if at >= read.start {
            check = crc32c::crc32c_append(check, &chunk);
        }
        fresh
            .file
            .write_at(&chunk, fresh.offset_of(at))
            .map_err(Failure::of("write", &unfinished))?;
        at = at.plus(length);
    }
    if check != tail {
        let differs = "two reads of it differ; open it again to see what it holds";
        return Err(Failure::of("read", &name)(io::Error::other(differs)));
    }
    fresh
        .file
        .sync()
        .map_err(Failure::of("sync", &unfinished))?;
    device
        .rename(&unfinished, &name)
        .map_err(Failure::of("rename", &unfinished))?;
    device
        .sync_dir()
        .map_err(Failure::of("sync", "the directory"))?;
    Ok(fresh)
}
