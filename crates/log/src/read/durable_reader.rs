//! Reader of the durable part of a log while the log is being written.
//!
//! Durable bytes do not change any more, so they can be read while other threads write behind them.
//! The reader holds nothing that a writer would wait for. It opens files of its own and reads up to
//! a position that the log has said to be durable, and not one byte further.
//!
//! # Invariants
//!
//! * I1 Nothing at or behind `until` is read: it may be half written.
//! * I2 Every record before `until` is good or damaged: it was durable, so none of it is a torn
//!   end.

use std::convert::Infallible;

use crate::device::Device;
use crate::format::error::{CorruptionKind, OpenError};
use crate::format::lsn::Lsn;
use crate::format::record::{CLOSED, FIRST_OWN_KIND, Flaw, HEADER_BYTES, HeaderCodec, RecordView};
use crate::read::stream::{self, Stream};

/// Error of reading records below a position that the log has reached.
pub type ReadError = OpenError<Infallible>;

/// A reader of the durable part of a log.
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
/// use foxton_log::device::memory::MemoryDevice;
/// use foxton_log::read::durable_reader::DurableReader;
/// use foxton_log::{Log, LogOptions, Lsn};
/// use foxton_sync::worker::Workers;
///
/// let device = Arc::new(MemoryDevice::new());
/// let worker = Workers::new().worker();
/// let identity = *b"an identity of16";
/// let (log, _) = Log::open(device.clone(), LogOptions::tiny(), identity, &mut |_| {
///     Ok::<_, Infallible>(())
/// })?;
/// let end = log.insert(&worker, 1, &[b"first"])?;
/// log.insert(&worker, 1, &[b"second"])?;
/// log.wait_durable(&worker, end)?;
///
/// let mut reader = DurableReader::open(&*device, &identity, Lsn::ZERO, end)?;
/// assert_eq!(reader.next()?.expect("it is durable").payload, b"first");
/// assert!(reader.next()?.is_none(), "that is as far as it reads");
/// assert_eq!(reader.at(), end);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DurableReader<'d> {
    stream: Stream<'d>,
    codec: HeaderCodec,
    at: Lsn,
}

impl<'d> DurableReader<'d> {
    /// Opens a reader of the records from `from`, where one begins, up to `until`. The log must
    /// have said that it is durable up to there; a record may run across `until`.
    ///
    /// # Errors
    ///
    /// If the device fails, or a segment is missing, damaged or not of the database `identity`.
    pub fn open(
        device: &'d dyn Device,
        identity: &[u8; 16],
        from: Lsn,
        until: Lsn,
    ) -> Result<DurableReader<'d>, ReadError> {
        Ok(DurableReader {
            stream: stream::durable(device, identity, from, until)?,
            codec: HeaderCodec::new(identity),
            at: from,
        })
    }

    /// Returns where the next record begins.
    pub fn at(&self) -> Lsn {
        self.at
    }

    /// Returns the next record of the log's users, or `None` if it is not durable as a whole.
    ///
    /// # Errors
    ///
    /// If the device fails, or the record is damaged.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator cannot lend what it gives"
    )]
    pub fn next(&mut self) -> Result<Option<RecordView<'_>>, ReadError> {
        loop {
            let at = self.at;
            if at >= self.stream.end() {
                return Ok(None);
            }
            let (kind, end, length) = match self.stream.record(self.codec, at)? {
                Ok(record) => (record.kind, record.end, record.payload.len()),
                Err(Flaw::Cut) => return Ok(None), // I1
                Err(flaw) => {
                    return Err(self
                        .stream
                        .corruption(at, CorruptionKind::Record(flaw))
                        .into());
                }
            };
            self.at = end;
            match kind {
                CLOSED => {}
                kind if kind >= FIRST_OWN_KIND => {
                    return Err(self
                        .stream
                        .corruption(at, CorruptionKind::Kind(kind))
                        .into());
                }
                _ => {
                    let bytes = self.stream.view(at, end.since(at))?;
                    return Ok(bytes.map(|bytes| RecordView {
                        lsn: at,
                        end,
                        kind,
                        payload: &bytes[HEADER_BYTES..HEADER_BYTES + length],
                    }));
                }
            }
        }
    }
}
