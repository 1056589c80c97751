//! The segments of a log as one stream, read through a window.
//!
//! # Invariants
//!
//! * I1 No allocation is larger than the files, whatever the bytes in them say.
//! * I2 Every byte is read at most twice: once as a record, once in the search behind a bad one.
//! * I3 Reading changes nothing.

use std::io;

use foxton_sync::checksum::crc32c;

use crate::device::Device;
use crate::format::error::{Corruption, CorruptionKind, Failure, OpenError};
use crate::format::lsn::Lsn;
use crate::format::record::{
    ALIGNMENT, Flaw, HEADER_BYTES, HeaderCodec, RecordHeader, RecordView, framed_bytes,
};
use crate::format::segment::{self, HeaderFlaw, SegmentExtent, SegmentFile};

/// Number of bytes read at once.
const CHUNK: usize = 256 << 10;

/// Returns the segments of a directory in order, from the one that holds `from`, and the names of
/// files that were never finished. Checks that segments follow each other without gaps.
pub(crate) fn list_segments<E>(
    device: &dyn Device,
    identity: &[u8; 16],
    from: Lsn,
) -> Result<(Vec<SegmentExtent>, Vec<String>), OpenError<E>> {
    let names = device
        .list()
        .map_err(Failure::of("list", "the directory"))?;
    let firsts = segment::firsts_from(&names, from);
    let leftovers = names
        .into_iter()
        .filter(|name| segment::is_unfinished(name))
        .collect();
    in_order(device, identity, &firsts, from, leftovers)
}

/// Returns the segments that begin at `firsts`, and `leftovers` with those that were never
/// finished.
fn in_order<E>(
    device: &dyn Device,
    identity: &[u8; 16],
    firsts: &[Lsn],
    from: Lsn,
    mut leftovers: Vec<String>,
) -> Result<(Vec<SegmentExtent>, Vec<String>), OpenError<E>> {
    let mut segments: Vec<SegmentExtent> = Vec::with_capacity(firsts.len());
    for (index, &first) in firsts.iter().enumerate() {
        let name = segment::name(first);
        let expected = segments
            .last()
            .map_or(first.min(from), SegmentExtent::limit);
        if first > expected {
            return Err(damaged(expected, CorruptionKind::Missing));
        }
        if first < expected {
            return Err(damaged(first, CorruptionKind::Overlap));
        }
        if let Some(last) = segments.last().filter(|last| last.stored < last.limit()) {
            return Err(damaged(last.first, CorruptionKind::Short));
        }
        let file = device.open(&name).map_err(Failure::of("open", &name))?;
        let opened = SegmentExtent::of(&*file, identity, first);
        match opened.map_err(Failure::of("read", &name))? {
            Ok(segment) => segments.push(segment),
            Err(HeaderFlaw::Foreign) => return Err(OpenError::Foreign { file: name }),
            Err(HeaderFlaw::Version(version)) => {
                return Err(OpenError::Newer {
                    file: name,
                    version,
                });
            }
            Err(HeaderFlaw::Damaged) => {
                let is_last = index + 1 == firsts.len();
                let unfinished = is_last
                    && segment::holds_nothing(&*file).map_err(Failure::of("read", &name))?;
                if unfinished {
                    leftovers.push(name);
                    continue;
                }
                // A process that has the log open may have written the header since it was read.
                // The bytes behind it came later (`segment`, I2), so now it is whole.
                let again = SegmentExtent::of(&*file, identity, first);
                match again.map_err(Failure::of("read", &name))? {
                    Ok(segment) if is_last => segments.push(segment),
                    _ => return Err(damaged(first, CorruptionKind::Header)),
                }
            }
        }
    }
    match segments.last() {
        None if from > Lsn::ZERO => Err(damaged(from, CorruptionKind::Missing)),
        Some(last) if last.limit() < from => Err(damaged(last.limit(), CorruptionKind::Missing)),
        Some(last) if last.stored < from => Err(damaged(last.first, CorruptionKind::Short)),
        _ => Ok((segments, leftovers)),
    }
}

/// Returns the stream from `from` to `until`, which is durable.
pub(crate) fn durable<'d, E>(
    device: &'d dyn Device,
    identity: &[u8; 16],
    from: Lsn,
    until: Lsn,
) -> Result<Stream<'d>, OpenError<E>> {
    let names = device
        .list()
        .map_err(Failure::of("list", "the directory"))?;
    let mut firsts = segment::firsts_from(&names, from);
    // A segment that begins later is perhaps being created now.
    firsts.retain(|&first| first < until);
    let (segments, _) = in_order(device, identity, &firsts, from, Vec::new())?;
    match segments.last() {
        Some(last) if last.limit() < until => Err(damaged(last.limit(), CorruptionKind::Missing)),
        Some(last) if last.stored < until => Err(damaged(last.first, CorruptionKind::Short)),
        None if from < until => Err(damaged(from, CorruptionKind::Missing)),
        _ => {
            let mut stream = Stream::over(device, segments);
            stream.end_at(until);
            Ok(stream)
        }
    }
}

/// Returns the error for damage to the segment that begins, or should begin, at `lsn`.
pub(crate) fn damaged<E>(lsn: Lsn, damage: CorruptionKind) -> OpenError<E> {
    Corruption {
        file: segment::name(lsn),
        offset: 0,
        lsn,
        damage,
    }
    .into()
}

/// Bytes that follow the last record.
pub(crate) enum Remainder {
    /// Zeros, or the end of the file.
    Nothing,
    /// Bytes that may have been on their way when the program stopped.
    Something,
    /// Proof that the bad record had been good and durable.
    Damaged,
}

/// Several segments as one stream, read through a window.
#[derive(Debug)]
pub(crate) struct Stream<'d> {
    device: &'d dyn Device,
    pub(crate) segments: Vec<SegmentExtent>,
    /// The segment that was read last: one open file is enough, however long the log is.
    open: Option<SegmentFile>,
    /// Where the bytes in the last file end.
    end: Lsn,
    window: Vec<u8>,
    window_at: Lsn,
    /// Number of bytes read before the requested ones, if requests go backwards.
    before: u64,
    /// True if the last file may be cut while it is read.
    may_be_cut: bool,
}

impl<'d> Stream<'d> {
    /// Opens the stream of the database `identity`, from the segment that holds `from`.
    pub(crate) fn open<E>(
        device: &'d dyn Device,
        identity: &[u8; 16],
        from: Lsn,
    ) -> Result<Self, OpenError<E>> {
        let (segments, _) = list_segments(device, identity, from)?;
        Ok(Stream::over(device, segments))
    }

    /// True if there is no segment.
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Forgets the window, so that its bytes are read again.
    pub(crate) fn forget(&mut self) {
        self.window.clear();
        self.open = None;
    }

    pub(crate) fn over(device: &'d dyn Device, segments: Vec<SegmentExtent>) -> Self {
        let end = segments.last().map_or(Lsn::ZERO, |last| last.stored);
        Stream {
            device,
            segments,
            open: None,
            end,
            window: Vec::new(),
            window_at: Lsn::ZERO,
            before: 0,
            may_be_cut: false,
        }
    }

    /// Prepares for a process that closes the log meanwhile, and cuts off what it had reserved
    /// behind the end. The bytes that are gone are read as zeros, as they were before.
    pub(crate) fn expect_cut(&mut self) {
        self.may_be_cut = true;
    }

    /// Prepares for requests that go backwards: reads this many bytes before each requested record,
    /// and few behind it.
    pub(crate) fn read_backwards(&mut self, bytes: u64) {
        self.before = bytes;
    }

    /// Returns where the first of the files begins, if there is one.
    pub(crate) fn begin(&self) -> Option<Lsn> {
        self.segments.first().map(|segment| segment.first)
    }

    /// Returns where the stream ends: at the end of the files, or where [`end_at`](Self::end_at)
    /// cut it.
    pub(crate) fn end(&self) -> Lsn {
        self.end
    }

    /// Cuts the stream at `end`: nothing behind it is read.
    pub(crate) fn end_at(&mut self, end: Lsn) {
        self.end = self.end.min(end);
    }

    /// Returns the record at `at`, or the flaw of the bytes there.
    pub(crate) fn record(
        &mut self,
        codec: HeaderCodec,
        at: Lsn,
    ) -> Result<Result<RecordView<'_>, Flaw>, Failure> {
        let header = match self.header(codec, at)? {
            Ok(header) => header,
            Err(flaw) => return Ok(Err(flaw)),
        };
        let length = header.length as usize;
        let end = at.plus(framed_bytes(length));
        let Some(bytes) = self.view(at, end.since(at))? else {
            return Ok(Err(Flaw::Cut));
        };
        let (payload, padding) = bytes[HEADER_BYTES..].split_at(length);
        if crc32c(0, payload) != header.payload || padding.iter().any(|byte| *byte != 0) {
            return Ok(Err(Flaw::Payload));
        }
        Ok(Ok(RecordView {
            lsn: at,
            end,
            kind: header.kind,
            payload,
        }))
    }

    pub(crate) fn header(
        &mut self,
        codec: HeaderCodec,
        at: Lsn,
    ) -> Result<Result<RecordHeader, Flaw>, Failure> {
        let Some(bytes) = self.view(at, HEADER_BYTES as u64)? else {
            // Too few bytes for a header. The search finds out later whether they are zeros.
            return Ok(Err(if at < self.end {
                Flaw::Cut
            } else {
                Flaw::Empty
            }));
        };
        Ok(codec.decode(
            at,
            bytes.try_into().expect("a view is as long as asked for"),
        ))
    }

    /// Inspects everything behind the bad record at `bad`, which has `flaw`. The log was durable up
    /// to `durable` at least.
    pub(crate) fn search(
        &mut self,
        codec: HeaderCodec,
        bad: Lsn,
        flaw: Flaw,
        durable: Lsn,
    ) -> Result<Remainder, Failure> {
        let Some(last) = self.segments.last() else {
            return Ok(Remainder::Nothing);
        };
        let known_durable = durable.max(last.first);
        let bad_end = self.end_of(codec, bad, flaw)?;
        if known_durable >= bad_end {
            return Ok(Remainder::Damaged);
        }
        // No record can follow one that goes beyond the end of the files. If one does, the length
        // is wrong.
        let proof = if flaw == Flaw::Cut {
            bad.plus(HEADER_BYTES as u64)
        } else {
            bad_end
        };
        let mut rest = Remainder::Nothing;
        let mut at = bad;
        while at < self.end {
            let length = self.end.since(at).min(CHUNK as u64);
            let Some(bytes) = self.view(at, length)? else {
                break;
            };
            if bytes.iter().all(|byte| *byte == 0) {
                at = at.plus(length);
                continue;
            }
            rest = Remainder::Something;
            for step in (0..length).step_by(ALIGNMENT as usize) {
                let place = at.plus(step);
                let header = self.header(codec, place)?;
                if place != bad && header.is_ok_and(|header| header.durable >= proof) {
                    return Ok(Remainder::Damaged);
                }
            }
            at = at.plus(length);
        }
        Ok(rest)
    }

    /// Returns where the bytes that are known to be bad end. If the log was durable up to there,
    /// they are damaged. If it was durable only up to some earlier position, they need not be: a
    /// record that crosses segments is written in pieces, and the first piece is durable before the
    /// last is written.
    fn end_of(&mut self, codec: HeaderCodec, bad: Lsn, flaw: Flaw) -> Result<Lsn, Failure> {
        let header = match flaw {
            Flaw::Payload | Flaw::Cut => self.header(codec, bad)?.ok(),
            Flaw::Empty | Flaw::Header => None,
        };
        let bytes = header.map_or(HEADER_BYTES as u64, |header| {
            framed_bytes(header.length as usize)
        });
        Ok(bad.plus(bytes))
    }

    /// Returns `length` bytes at `at`, or `None` if the files hold fewer.
    pub(crate) fn view(&mut self, at: Lsn, length: u64) -> Result<Option<&[u8]>, Failure> {
        if self.end.since(at) < length {
            return Ok(None);
        }
        let inside =
            at >= self.window_at && at.since(self.window_at) + length <= self.window.len() as u64;
        if !inside {
            self.fill_around(at, length)?;
        }
        // Exact: both are below the length of the window.
        let start = at.since(self.window_at) as usize;
        Ok(Some(&self.window[start..start + length as usize]))
    }

    fn fill_around(&mut self, at: Lsn, length: u64) -> Result<(), Failure> {
        let room = self.end.since(at);
        if self.before == 0 {
            return self.fill(at, length.max(CHUNK as u64).min(room));
        }
        let first = self.segments.first().map_or(at, |segment| segment.first);
        let from = Lsn::new(at.bytes().saturating_sub(self.before)).max(first.min(at));
        self.fill(
            from,
            at.since(from) + length.max(self.before / 16).min(room),
        )
    }

    fn fill(&mut self, at: Lsn, length: u64) -> Result<(), Failure> {
        // I1: `view` has checked that the files hold this much.
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        self.window.clear();
        let reserved = self.window.try_reserve_exact(size);
        let out_of_memory = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        reserved
            .map_err(out_of_memory)
            .map_err(Failure::of("read", "a record"))?;
        self.window.resize(size, 0);
        self.window_at = at;
        let mut done = 0;
        while done < size {
            let lsn = at.plus(done as u64);
            let extent = self
                .extent_of(lsn)
                .expect("views end before the last segment does");
            let name = segment::name(extent.first);
            if self
                .open
                .as_ref()
                .is_none_or(|open| open.first != extent.first)
            {
                self.open = Some(
                    extent
                        .open(self.device)
                        .map_err(Failure::of("open", &name))?,
                );
            }
            let open = self.open.as_ref().expect("it was opened just now");
            let room = extent.limit().since(lsn).min((size - done) as u64) as usize;
            let target = &mut self.window[done..done + room];
            let count = open
                .file
                .read_at(target, extent.offset_of(lsn))
                .map_err(Failure::of("read", &name))?;
            let is_last = || Some(extent.first) == self.segments.last().map(|last| last.first);
            if count < room && self.may_be_cut && is_last() {
                target[count..].fill(0);
            } else if count < room {
                let shrunk = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(Failure::of("read", &name)(shrunk));
            }
            done += room;
        }
        Ok(())
    }

    pub(crate) fn extent_of(&self, lsn: Lsn) -> Option<SegmentExtent> {
        let index = self
            .segments
            .partition_point(|segment| segment.first <= lsn);
        self.segments.get(index.checked_sub(1)?).copied()
    }

    /// Returns the file that holds `lsn`, and the offset in it.
    pub(crate) fn location(&self, lsn: Lsn) -> (String, u64) {
        match self.extent_of(lsn) {
            Some(extent) => (segment::name(extent.first), extent.offset_of(lsn)),
            None => (String::new(), 0),
        }
    }

    pub(crate) fn corruption(&self, lsn: Lsn, damage: CorruptionKind) -> Corruption {
        let (file, offset) = self.location(lsn);
        Corruption {
            file,
            offset,
            lsn,
            damage,
        }
    }
}
