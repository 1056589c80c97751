//! Reader of single records by LSN, in any order; undo reads the changes of a transaction with it.
//!
//! Undo goes backwards through the log, from record to record. So each read begins well before the
//! wanted record and ends a little behind it, unless the reader goes forwards.
//!
//! # Invariants
//!
//! * I1 Nothing at or behind `until` is read: it may be half written.
//! * I2 Every record before `until` was written whole, so one that is not good is damage.

use crate::device::Device;
use crate::format::error::CorruptionKind;
use crate::format::lsn::Lsn;
use crate::format::record::{HEADER_BYTES, HeaderCodec, RecordView};
use crate::read::durable_reader::ReadError;
use crate::read::stream::{self, Stream};

/// Number of bytes read before the wanted record.
const BEFORE: u64 = 48 << 10;

/// A reader of single records of a log.
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
/// use foxton_log::device::memory::MemoryDevice;
/// use foxton_log::read::record_reader::RecordReader;
/// use foxton_log::{Log, LogOptions, Lsn};
/// use foxton_sync::worker::Workers;
///
/// let device = Arc::new(MemoryDevice::new());
/// let worker = Workers::new().worker();
/// let identity = *b"an identity of16";
/// let (log, _) = Log::open(device.clone(), LogOptions::tiny(), identity, &mut |_| {
///     Ok::<_, Infallible>(())
/// })?;
/// let second = log.insert(&worker, 1, &[b"first"])?;
/// let end = log.insert(&worker, 1, &[b"second"])?;
/// log.wait_written(&worker, end)?;
///
/// let mut reader = RecordReader::open(&*device, &identity, Lsn::ZERO, end)?;
/// assert_eq!(reader.record(second)?.payload, b"second");
/// assert_eq!(reader.record(Lsn::ZERO)?.payload, b"first");
/// assert!(reader.record(Lsn::new(8)).is_err(), "no record begins here");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RecordReader<'d> {
    stream: Stream<'d>,
    codec: HeaderCodec,
}

impl<'d> RecordReader<'d> {
    /// Opens a reader of records that begin at `from` or later and end at `until` or before. The
    /// log must have said that it is written up to there.
    ///
    /// # Errors
    ///
    /// If the device fails, or a segment is missing, damaged or not of the database `identity`.
    pub fn open(
        device: &'d dyn Device,
        identity: &[u8; 16],
        from: Lsn,
        until: Lsn,
    ) -> Result<RecordReader<'d>, ReadError> {
        let mut stream = stream::durable(device, identity, from, until)?;
        stream.read_backwards(BEFORE);
        Ok(RecordReader {
            stream,
            codec: HeaderCodec::new(identity),
        })
    }

    /// Opens a reader of all records from `from` on, of a log that is not written meanwhile.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn open_all(
        device: &'d dyn Device,
        identity: &[u8; 16],
        from: Lsn,
    ) -> Result<RecordReader<'d>, ReadError> {
        let mut stream = Stream::open(device, identity, from)?;
        stream.read_backwards(BEFORE);
        Ok(RecordReader {
            stream,
            codec: HeaderCodec::new(identity),
        })
    }

    /// Prepares for records that are read in the order of the log.
    #[must_use]
    pub fn forwards(mut self) -> RecordReader<'d> {
        self.stream.read_backwards(0);
        self
    }

    /// True if the record that begins at `lsn` is in the segments that were opened.
    pub fn covers(&self, lsn: Lsn) -> bool {
        self.stream.begin().is_some_and(|begin| begin <= lsn)
    }

    /// Returns the record that begins at `lsn`.
    ///
    /// # Errors
    ///
    /// If the device fails, or no good record begins there: it is damaged, or `lsn` is wrong.
    pub fn record(&mut self, lsn: Lsn) -> Result<RecordView<'_>, ReadError> {
        if !self.covers(lsn) {
            return Err(self.stream.corruption(lsn, CorruptionKind::Missing).into());
        }
        let (kind, end, length) = match self.stream.record(self.codec, lsn)? {
            Ok(record) => (record.kind, record.end, record.payload.len()),
            Err(flaw) => {
                return Err(self
                    .stream
                    .corruption(lsn, CorruptionKind::Record(flaw))
                    .into());
            }
        };
        let bytes = self.stream.view(lsn, end.since(lsn))?;
        let bytes = bytes.expect("the record was read from there just now");
        Ok(RecordView {
            lsn,
            end,
            kind,
            payload: &bytes[HEADER_BYTES..HEADER_BYTES + length],
        })
    }
}
