//! Segment writer: appends bytes to the stream, segment file after segment file.
//!
//! # Space
//!
//! Space on the device, and files for it, are reserved before bytes are accepted that need them. A
//! request for either may be refused, for now: the device is full, or the process has no file
//! descriptor left. Such a refusal costs nothing, because nothing was written, and the request can
//! be repeated. A *write* or a *sync* that fails is final.
//!
//! A file grows by as much as the log has had so far, so a small log takes little space, and a long
//! one seldom asks. Where there is less space than that, it grows by as much as is needed.
//!
//! # Invariants
//!
//! * I1 Every byte before `at` has been handed to the device. `at` lies in `segment`, or at its
//!   limit.
//! * I2 The next segment gets its name only once this one is full and synced (`segment`, I1).
//! * I3 While `closed_at` is set, the log ends in a durable closing record at `at`, and closing it
//!   needs no other.
//! * I4 The device has space for every byte before `reserved`, in `segment` and in the files
//!   `ahead`, which follow it in order. All of them but the last are reserved whole.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::device::{Device, FailureKind};
use crate::format::clean_shutdown;
use crate::format::error::{Failure, LogError};
use crate::format::lsn::Lsn;
use crate::format::record::{CLOSED, HEADER_BYTES, HeaderCodec, RecordHeader};
use crate::format::segment::{self, SegmentFile};

/// Number of bytes of stream that a new log has space for, and by which a short one grows. With
/// its header, the first file has 64 KiB.
pub(crate) const FIRST_RESERVED: u64 = (64 << 10) - segment::HEADER_BYTES;
/// Files grow to multiples of this, because a file system gives out blocks.
const BLOCK: u64 = 4 << 10;
/// Space that is kept for the closing record.
const CLOSING: u64 = HEADER_BYTES as u64;

/// Makes the log durable up to an LSN in a segment or at its limit.
pub(crate) type SyncSegment<'a> = &'a mut dyn FnMut(&SegmentFile, Lsn) -> Result<(), LogError>;

/// Reason why writing stopped.
#[derive(Debug)]
pub(crate) enum WriteStopped {
    /// The device failed just now.
    Device(Failure),
    /// The sync of a full segment failed; its failure is already published.
    Sync(LogError),
}

impl From<Failure> for WriteStopped {
    fn from(failure: Failure) -> Self {
        WriteStopped::Device(failure)
    }
}

/// Writes to the segment files. Only the holder of the writer lock has it.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    device: Arc<dyn Device>,
    identity: [u8; 16],
    /// Number of bytes of stream in each later segment.
    capacity: u64,
    segment: SegmentFile,
    at: Lsn,
    /// Segments made before they are needed, under unfinished names (I4).
    ahead: VecDeque<SegmentFile>,
    reserved: Lsn,
    /// Number of reserved bytes that are [kept](super::kept_space).
    kept: u64,
    /// Where the closing record begins that ends at `at` (I3).
    closed_at: Option<Lsn>,
    /// Number of `write_at` calls.
    pub(crate) writes: u64,
}

impl SegmentWriter {
    /// Continues at `at`, which lies in `segment`, whose space is reserved up to an LSN;
    /// `closed_at` is set if a closing record ends at `at`.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        identity: [u8; 16],
        capacity: u64,
        (segment, reserved): (SegmentFile, Lsn),
        at: Lsn,
        closed_at: Option<Lsn>,
    ) -> Self {
        SegmentWriter {
            device,
            identity,
            capacity,
            segment,
            at,
            ahead: VecDeque::new(),
            reserved,
            kept: 0,
            closed_at,
            writes: 0,
        }
    }

    /// Returns where the next byte goes.
    pub(crate) fn at(&self) -> Lsn {
        self.at
    }

    /// Returns the segment that is being written.
    pub(crate) fn segment(&self) -> &SegmentFile {
        &self.segment
    }

    /// Returns up to where records may be accepted: there is space for them, for kept bytes and for
    /// the closing record.
    pub(crate) fn accepted(&self) -> Lsn {
        let reserved = self.reserved.bytes();
        Lsn::new(reserved.saturating_sub(CLOSING + self.kept))
    }

    /// Number of bytes that were reserved behind what is written, and are not kept.
    pub(crate) fn reserved_ahead(&self) -> u64 {
        self.reserved.since(self.at.plus(self.kept))
    }

    /// Keeps so many of the reserved bytes more.
    pub(super) fn keep(&mut self, bytes: u64) {
        self.kept += bytes;
    }

    /// Keeps so many fewer.
    ///
    /// # Panics
    ///
    /// If there are not as many.
    pub(super) fn release_kept(&mut self, bytes: u64) {
        let kept = self.kept.checked_sub(bytes);
        self.kept = kept.expect("bytes are released that were kept");
    }

    /// Number of bytes by which the reserved space grows.
    pub(crate) fn growth(&self) -> u64 {
        self.at.bytes().max(FIRST_RESERVED)
    }

    /// Makes [`accepted`](Self::accepted) at least `upto`. After an error nothing is lost, and
    /// some space may be reserved.
    pub(crate) fn reserve(&mut self, upto: Lsn) -> Result<(), Failure> {
        self.reserve_bytes(upto.plus(CLOSING + self.kept))
    }

    fn reserve_bytes(&mut self, upto: Lsn) -> Result<(), Failure> {
        while self.reserved < upto {
            let generous = upto.max(self.reserved.plus(self.growth()));
            match self.extend(generous) {
                // There may be less, and enough.
                Err(failure) if FailureKind::of(&failure.source) == FailureKind::Full => {
                    self.extend(upto)?;
                }
                extended => extended?,
            }
        }
        Ok(())
    }

    /// Reserves space up to `upto`, in the last file or, if that has its whole space, in one more.
    fn extend(&mut self, upto: Lsn) -> Result<(), Failure> {
        let last = self.ahead.back().unwrap_or(&self.segment);
        let (first, limit) = (last.first, last.limit());
        if self.reserved >= limit {
            let wanted = whole_blocks(upto.since(limit), self.capacity);
            let next = self.make_ahead(limit, wanted)?;
            self.ahead.push_back(next);
            self.reserved = limit.plus(wanted);
            return Ok(());
        }
        let wanted = whole_blocks(upto.since(first), last.capacity);
        let is_named = self.ahead.is_empty();
        let name = || match is_named {
            true => segment::name(first),
            false => segment::unfinished_name(first),
        };
        last.file
            .allocate(segment::HEADER_BYTES + wanted)
            .map_err(|error| Failure::of("reserve space for", &name())(error))?;
        self.reserved = first.plus(wanted);
        Ok(())
    }

    /// Makes the file of the segment that begins at `first`, with space for `reserved` bytes. It
    /// gets its name when it is needed (I2).
    fn make_ahead(&self, first: Lsn, reserved: u64) -> Result<SegmentFile, Failure> {
        let name = segment::unfinished_name(first);
        let (device, identity) = (&*self.device, &self.identity);
        let make =
            || SegmentFile::create_as(&name, device, identity, first, self.capacity, reserved);
        let made = match make() {
            // An earlier attempt left it and could not remove it.
            Err((_, error)) if error.kind() == io::ErrorKind::AlreadyExists => device
                .remove(&name)
                .map_err(|error| ("remove", error))
                .and_then(|()| make()),
            made => made,
        };
        let synced = made.and_then(|made| match made.file.sync() {
            Ok(()) => Ok(made),
            Err(error) => Err(("sync", error)),
        });
        synced.map_err(|failed| {
            let _ = device.remove(&name);
            failure_about(&name)(failed)
        })
    }

    /// Gives the next segment its name and continues in it. The one before is full and synced.
    fn enter_next(&mut self) -> Result<(), Failure> {
        let next = self.ahead.pop_front();
        let next = next.expect("a byte behind the segment is reserved in the next (I4)");
        let (unfinished, name) = (
            segment::unfinished_name(next.first),
            segment::name(next.first),
        );
        self.device
            .rename(&unfinished, &name)
            .map_err(Failure::of("rename", &unfinished))?;
        self.device
            .sync_dir()
            .map_err(Failure::of("sync the directory of", &name))?;
        self.segment = next;
        Ok(())
    }

    /// Appends `bytes`, which have been [accepted](Self::accepted), or asks for the space now.
    pub(crate) fn write(
        &mut self,
        mut bytes: &[u8],
        sync: SyncSegment<'_>,
    ) -> Result<(), WriteStopped> {
        self.reserve_bytes(self.at.plus(bytes.len() as u64))?;
        while !bytes.is_empty() {
            self.closed_at = None; // I3
            if self.at == self.segment.limit() {
                sync(&self.segment, self.at).map_err(WriteStopped::Sync)?;
                self.enter_next()?;
            }
            let room = self.segment.limit().since(self.at).min(bytes.len() as u64) as usize;
            let (now, later) = bytes.split_at(room);
            self.writes += 1;
            self.segment
                .file
                .write_at(now, self.segment.offset_of(self.at))
                .map_err(Failure::of("write", &segment::name(self.segment.first)))?;
            self.at = self.at.plus(room as u64);
            bytes = later;
        }
        Ok(())
    }

    /// Writes the closing record, unless the log still ends in the one that it was opened with.
    /// Cuts off the space reserved behind it, syncs, and writes the file [`clean_shutdown`].
    /// Everything before must be durable.
    pub(crate) fn write_closed(
        &mut self,
        codec: HeaderCodec,
        sync: SyncSegment<'_>,
    ) -> Result<(), WriteStopped> {
        let durable = match self.closed_at {
            Some(lsn) => lsn,
            None => {
                let lsn = self.at;
                self.write(&closing_record(codec, lsn), sync)?;
                lsn
            }
        };
        for unused in self.ahead.drain(..) {
            // The next opening removes what cannot be removed now.
            let _ = self.device.remove(&segment::unfinished_name(unused.first));
        }
        self.segment
            .file
            .set_len(self.segment.offset_of(self.at))
            .map_err(Failure::of("shorten", &segment::name(self.segment.first)))?;
        self.reserved = self.at;
        sync(&self.segment, self.at).map_err(WriteStopped::Sync)?;
        // Not behind the closing record itself, which is written again when the log is opened.
        Ok(clean_shutdown::write(
            &*self.device,
            &self.identity,
            durable,
        )?)
    }
}

/// Returns the number of bytes to reserve behind a segment's header for at least `bytes`.
pub(crate) fn whole_blocks(bytes: u64, capacity: u64) -> u64 {
    let file = (segment::HEADER_BYTES + bytes).next_multiple_of(BLOCK);
    (file - segment::HEADER_BYTES).min(capacity)
}

/// Creates a segment; an error names operation and file.
pub(crate) fn create_segment(
    device: &dyn Device,
    identity: &[u8; 16],
    first: Lsn,
    capacity: u64,
    reserved: u64,
) -> Result<SegmentFile, Failure> {
    SegmentFile::create(device, identity, first, capacity, reserved)
        .map_err(failure_about(&segment::name(first)))
}

/// Adds the file to an error of creating a segment.
pub(crate) fn failure_about(name: &str) -> impl FnOnce((&'static str, io::Error)) -> Failure {
    move |(operation, source)| Failure::of(operation, name)(source)
}

/// Returns the record that says the log was closed at `lsn`.
pub(crate) fn closing_record(codec: HeaderCodec, lsn: Lsn) -> [u8; HEADER_BYTES] {
    codec.encode(
        lsn,
        RecordHeader {
            length: 0,
            payload: 0,
            kind: CLOSED,
            durable: lsn,
        },
    )
}
