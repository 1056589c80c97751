//! Interface of the two forms of chains.

use super::{
    lock_index::{LockIndex, RetiredRequests},
    request::ChainRequest,
};
use crate::{
    mode::{Mode, Set},
    name::Name,
    owner::owner_table::ReservedRequests,
    request::OwnerId,
};
use foxton_sync::worker::Worker;
use smallvec::SmallVec;
use std::fmt::Debug;

/// Request on its way into a chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewRequest {
    pub(crate) name: Name,
    pub(crate) hash: u32,
    pub(crate) owner: OwnerId,
    /// Mode that will be held: for a conversion, the supremum.
    pub(crate) mode: Mode,
    /// For a conversion, the request that holds the weaker mode.
    pub(crate) replaces: Option<u32>,
}

/// Granted request on its way out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReleasedRequest {
    pub(crate) hash: u32,
    pub(crate) request: u32,
    pub(crate) mode: Mode,
}

/// Reason why a request was not granted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotGranted {
    /// It may be blocked. It is written, to wait with.
    Blocked(u32),
    /// There is no free request.
    Full,
}

/// Holder of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) owner: OwnerId,
    pub(crate) mode: Mode,
    pub(crate) request: u32,
}

/// Holders of a name. For a moment a conversion may be there twice, the stronger mode first.
pub(crate) type Holders = SmallVec<[Holder; 8]>;

/// Chains of one manager, by hash.
///
/// # Contract
///
/// * C1  `acquire` and `release` take no latch and wait for no thread.
/// * C2  The other methods are called under the latch of the chain's queue.
/// * C3  After `announce` for a mode, a thread that then finds no conflicting holder may `grant`
///   the mode: `acquire` has granted no conflicting request, and will grant none before
///   `set_waiting_modes` withdraws the mode.
/// * C4  A conflicting holder found after `announce` learns from its `release` that there is a
///   waiter.
pub(crate) trait Chains: Send + Sync + Debug {
    /// Returns empty chains, at most `count`, a power of two.
    fn new(count: usize) -> Self;

    /// Prefetches the chain of this hash.
    fn prefetch(&self, hash: u32);

    /// Grants a new request, if it conflicts with no holder and no waiter.
    fn acquire(
        &self,
        index: &LockIndex,
        worker: &Worker,
        new: &NewRequest,
        reserved: &mut ReservedRequests,
    ) -> Result<u32, NotGranted>;

    /// Ends a granted request, and returns true if there are waiters in front of this chain.
    fn release(
        &self,
        index: &LockIndex,
        worker: &Worker,
        released: ReleasedRequest,
        retired: &mut RetiredRequests<'_>,
    ) -> bool;

    /// Announces that a request is about to wait for `mode`.
    fn announce(&self, hash: u32, mode: Set);

    /// Sets the modes that waiters in front of this chain wait for.
    fn set_waiting_modes(&self, hash: u32, waiting_modes: Set);

    /// Returns the holders of `name`. The caller is pinned.
    fn holders(&self, index: &LockIndex, hash: u32, name: &Name) -> Holders;

    /// Grants a written request in place of the one it replaces, and sets the modes waited for.
    fn grant(&self, index: &LockIndex, new: &NewRequest, request: u32, waiting_modes: Set);

    /// Writes a request that is weaker than the one it replaces, to be granted.
    fn write(&self, index: &LockIndex, new: &NewRequest, request: u32);

    /// Withdraws a request that was to wait.
    fn withdraw(
        &self,
        index: &LockIndex,
        hash: u32,
        request: u32,
        retired: &mut RetiredRequests<'_>,
    );

    /// Returns the number of chains.
    fn count(&self) -> usize;

    /// True if chain `at` is empty, and has no waiters in front of it.
    fn is_empty(&self, at: usize) -> bool;

    /// Calls `each` with every holder in chain `at`. The caller is pinned.
    fn all(&self, index: &LockIndex, at: usize, each: &mut dyn FnMut(&Name, Holder));

    /// Panics if the summary in the chain does not fit its requests.
    fn verify(&self, index: &LockIndex, at: usize, waiting_modes: Set);

    /// Returns the memory of the chains themselves, in bytes.
    fn memory_bytes(&self) -> usize;
}

/// Describes the request with this number as a holder.
pub(crate) fn holder(number: u32, request: &ChainRequest) -> Holder {
    Holder {
        owner: request.owner(),
        mode: request.mode(),
        request: number,
    }
}

/// Panics if two of `held` conflict (L1).
pub(crate) fn assert_compatible(held: &[(Name, Holder)]) {
    for (at, (name, holder)) in held.iter().enumerate() {
        for (other, earlier) in &held[..at] {
            let apart = other != name || holder.owner.index() == earlier.owner.index();
            let compatible = apart || holder.mode.compatible(earlier.mode);
            assert!(compatible, "L1: {holder:?} and {earlier:?} on {name}");
        }
    }
}
