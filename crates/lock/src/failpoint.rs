//! Injected faults of lock managers; see [`foxton_sync::failpoint`].

use foxton_sync::failpoint::Failpoint;

/// A request barges past a waiter (`direct`) even after that waiter has seen its grant, so both
/// hold the lock.
pub const GRANTED_TWICE: Failpoint = Failpoint::fault("lock/granted twice");
