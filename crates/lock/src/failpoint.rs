//! Injected faults of lock managers; see [`foxton_sync::failpoint`].

use foxton_sync::failpoint::Failpoint;

/// A request barges past a waiter (`direct`) even after that waiter has seen its grant, so both
/// hold the lock.
pub const GRANTED_TWICE: Failpoint = Failpoint::fault("lock/granted twice");
/// A request goes to its queue (`direct`) and leaves the lock of the anchor where it is.
pub const ANCHOR_IGNORED: Failpoint = Failpoint::fault("lock/anchor ignored");
/// A queued anchor is taken (`direct`) although its queue is not empty.
pub const QUEUE_IGNORED: Failpoint = Failpoint::fault("lock/queue ignored");
/// A strong request takes an anchor (`direct`) although its granule has converted locks.
pub const CONVERTED_IGNORED: Failpoint = Failpoint::fault("lock/converted ignored");
/// A grant that was made without the anchor (`direct`) counts, whatever the anchor says.
pub const GRANT_UNCONFIRMED: Failpoint = Failpoint::fault("lock/grant unconfirmed");
