//! Points where tests can make the log stop or fail; see [`foxton_sync::failpoint`].

use foxton_sync::failpoint::Failpoint;

/// Before a record is allocated in the buffer.
pub const INSERT: Failpoint = Failpoint::failing("log/insert");
/// Before bytes taken out of the buffer are written.
pub const WRITE: Failpoint = Failpoint::failing("log/write");
/// Before a segment file is synced.
pub const SYNC: Failpoint = Failpoint::failing("log/sync");
/// After a sync, before the waiting threads are woken.
pub const SYNCED: Failpoint = Failpoint::passing("log/synced");
/// A segment is full, and not yet synced.
pub const SEGMENT_FULL: Failpoint = Failpoint::failing("log/segment full");
/// A full segment is synced, and the next is not created yet.
pub const SEGMENT_NEXT: Failpoint = Failpoint::failing("log/segment next");
/// A failure is set, and inserts are not refused yet.
pub const FAILED: Failpoint = Failpoint::passing("log/failed");

/// All points that a log passes while nothing fails.
pub const ALL: [Failpoint; 6] = [INSERT, WRITE, SYNC, SYNCED, SEGMENT_FULL, SEGMENT_NEXT];
