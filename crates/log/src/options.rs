//! How an open log behaves.

use std::time::Duration;

use foxton_sync::latch;
use foxton_sync::worker::Workers;

use crate::buffer::BufferKind;
use crate::format::segment::{HEADER_BYTES, MAX_BYTES};

/// How an open log behaves. Each segment says its own size, so none of this need be the same the
/// next time.
///
/// ```
/// use foxton_log::LogOptions;
///
/// let mut options = LogOptions::default();
/// options.buffer_bytes = 64 << 20;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LogOptions {
    /// Bytes of a segment file. Default 64 MiB, at least 8 KiB, at most 64 GiB; rounded up to a multiple of 4 KiB.
    /// The space is reserved when the segment is made, and what is left is given back at `close`.
    pub segment_bytes: u64,
    /// Bytes of memory for records that are not written yet: a power of two, or what is left of one.
    /// Default 16 MiB, at least 8 KiB. Buffers that delegate completion take a sixteenth more for
    /// the marks. Writing begins whenever another quarter has filled.
    pub buffer_bytes: usize,
    /// How threads come by their places in the buffer. Default: hybrid.
    pub buffer: BufferKind,
    /// How long what was committed *buffered* may stay in the hands of the operating system.
    /// Default 1 s.
    pub sync_interval: Duration,
    /// The latch of buffers that have one, and of the list of committers. Default parking, which stays fair to the machine when
    /// threads outnumber cores.
    pub latch: latch::Kind,
    /// Where the log's own thread takes its worker from, so that what it passes is counted with
    /// everything else in the database. Default: workers of its own.
    pub workers: Option<Workers>,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes: 64 << 20,
            buffer_bytes: 16 << 20,
            sync_interval: Duration::from_secs(1),
            buffer: BufferKind::default(),
            latch: latch::Kind::Parking,
            workers: None,
        }
    }
}

impl LogOptions {
    /// Everything as small as it may be, so that the buffer fills and segments end all the time.
    pub fn tiny() -> Self {
        LogOptions {
            segment_bytes: 2 * HEADER_BYTES,
            buffer_bytes: 8 << 10,
            sync_interval: Duration::from_millis(10),
            ..LogOptions::default()
        }
    }

    /// Bytes of stream in a segment.
    pub(crate) fn segment_capacity(&self) -> u64 {
        let bytes = self.segment_bytes.clamp(2 * HEADER_BYTES, MAX_BYTES);
        bytes.next_multiple_of(HEADER_BYTES) - HEADER_BYTES
    }

    /// Bytes of the ring.
    pub(crate) fn buffer_capacity(&self) -> usize {
        1 << self.buffer_bytes.max(8 << 10).ilog2()
    }
}
