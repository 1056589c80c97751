//! Segment writer: appends bytes to the stream, segment file after segment file.
//!
//! # Invariants
//!
//! * I1 Every byte before `at` has been handed to the device. `at` lies in `segment`, or at its
//!   limit.
//! * I2 The next segment is created only once this one is full and synced (`segment`, I1).
//! * I3 While `closed_at` is set, the log ends in a durable closing record at `at`, and closing it
//!   needs no other.

use std::io;
use std::sync::Arc;

use crate::device::Device;
use crate::format::clean_shutdown;
use crate::format::error::{Failure, LogError};
use crate::format::lsn::Lsn;
use crate::format::record::{CLOSED, HEADER_BYTES, HeaderCodec, RecordHeader};
use crate::format::segment::{self, SegmentFile};

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
    /// Where the closing record begins that ends at `at` (I3).
    closed_at: Option<Lsn>,
    /// Number of `write_at` calls.
    pub(crate) writes: u64,
}

impl SegmentWriter {
    /// Continues at `at`, which lies in `segment`; `closed_at` is set if a closing record ends
    /// there.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        identity: [u8; 16],
        capacity: u64,
        segment: SegmentFile,
        at: Lsn,
        closed_at: Option<Lsn>,
    ) -> Self {
        SegmentWriter {
            device,
            identity,
            capacity,
            segment,
            at,
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

    /// Appends `bytes`.
    pub(crate) fn write(
        &mut self,
        mut bytes: &[u8],
        sync: SyncSegment<'_>,
    ) -> Result<(), WriteStopped> {
        while !bytes.is_empty() {
            self.closed_at = None; // I3
            if self.at == self.segment.limit() {
                sync(&self.segment, self.at).map_err(WriteStopped::Sync)?;
                self.segment =
                    create_segment(&*self.device, &self.identity, self.at, self.capacity)?;
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
        self.segment
            .file
            .set_len(self.segment.offset_of(self.at))
            .map_err(Failure::of("shorten", &segment::name(self.segment.first)))?;
        sync(&self.segment, self.at).map_err(WriteStopped::Sync)?;
        // Not behind the closing record itself, which is written again when the log is opened.
        Ok(clean_shutdown::write(
            &*self.device,
            &self.identity,
            durable,
        )?)
    }
}

/// Creates a segment; an error names operation and file.
pub(crate) fn create_segment(
    device: &dyn Device,
    identity: &[u8; 16],
    first: Lsn,
    capacity: u64,
) -> Result<SegmentFile, Failure> {
    SegmentFile::create(device, identity, first, capacity)
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
