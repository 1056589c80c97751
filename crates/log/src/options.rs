//! Options of an open log.

use std::time::Duration;

use foxton_sync::latch;
use foxton_sync::worker::Workers;

use crate::buffer::BufferKind;
use crate::format::segment::{HEADER_BYTES, MAX_BYTES};

/// Options of an open log. Each segment states its own size, so every option may differ the next
/// time.
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
    /// Size of a segment file in bytes. Default 64 MiB, at least 8 KiB, at most 64 GiB; rounded up
    /// to a multiple of 4 KiB. Space is reserved before it is needed: at first 64 KiB, then as much
    /// again as the log has had so far. `close` gives back the rest.
    pub segment_bytes: u64,
    /// Bytes of memory for records that are not written yet; rounded down to a power of two.
    /// Default 16 MiB, at least 8 KiB. Buffers with delegated completion take a sixteenth more for
    /// their marks. Writing begins whenever another quarter has filled.
    pub buffer_bytes: usize,
    /// How threads allocate in the buffer. Default: hybrid.
    pub buffer: BufferKind,
    /// How long a record committed *buffered* may stay unsynced. Default 1 s.
    pub sync_interval: Duration,
    /// Latch of buffers that have one, and of the list of waiters. Default parking, which sleeps
    /// instead of spinning when threads outnumber cores.
    pub latch: latch::Kind,
    /// Where the log's own thread gets its worker, so that its passages are counted with all others
    /// of the database. Default: workers of its own.
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
    /// Returns the smallest values, so that the buffer fills and segments end all the time.
    pub fn tiny() -> Self {
        LogOptions {
            segment_bytes: 2 * HEADER_BYTES,
            buffer_bytes: 8 << 10,
            sync_interval: Duration::from_millis(10),
            ..LogOptions::default()
        }
    }

    /// Returns the number of bytes of stream in a segment.
    pub(crate) fn segment_capacity(&self) -> u64 {
        let bytes = self.segment_bytes.clamp(2 * HEADER_BYTES, MAX_BYTES);
        bytes.next_multiple_of(HEADER_BYTES) - HEADER_BYTES
    }

    /// Returns the number of bytes in the ring.
    pub(crate) fn buffer_capacity(&self) -> usize {
        1 << self.buffer_bytes.max(8 << 10).ilog2()
    }
}
