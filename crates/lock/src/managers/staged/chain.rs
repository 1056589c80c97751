//! What the two forms of chains have in common: what a manager may ask of them.

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

/// A request on its way into a chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewRequest {
    pub(crate) name: Name,
    pub(crate) hash: u32,
    pub(crate) owner: OwnerId,
    /// What is to be held: for a conversion the supremum.
    pub(crate) mode: Mode,
    /// For a conversion, the request that holds the weaker mode.
    pub(crate) replaces: Option<u32>,
}

/// A granted request on its way out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReleasedRequest {
    pub(crate) hash: u32,
    pub(crate) request: u32,
    pub(crate) mode: Mode,
}

/// Why a request was not granted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotGranted {
    /// Somebody may be in its way. It is written, to wait with.
    Blocked(u32),
    /// There is no request to be had.
    Full,
}

/// Somebody who holds a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) owner: OwnerId,
    pub(crate) mode: Mode,
    pub(crate) request: u32,
}

/// Who holds a name. For a moment a conversion may stand here twice, the stronger mode first.
pub(crate) type Holders = SmallVec<[Holder; 8]>;

/// The chains of one manager, by hash.
///
/// # Contract
///
/// * C1  `acquire` and `release` take no latch and wait for nobody.
/// * C2  The other methods are called under the latch of the chain's line.
/// * C3  Who has called `announce` for a mode, and then finds no holder in its way, may `grant` it:
///   nobody in its way was, or will be, granted by `acquire` before `set_waiting_modes` takes it back.
/// * C4  Whoever was found in the way after `announce` learns from its `release` that somebody waits.
pub(crate) trait Chains: Send + Sync + Debug {
    /// Empty chains, at most `count`, a power of two.
    fn new(count: usize) -> Self;

    /// Has the processor fetch the chain of this hash, before it is needed.
    fn prefetch(&self, hash: u32);

    /// Grants what is asked, if nobody who holds or awaits it is in its way.
    fn acquire(
        &self,
        index: &LockIndex,
        worker: &Worker,
        new: &NewRequest,
        reserved: &mut ReservedRequests,
    ) -> Result<u32, NotGranted>;

    /// Ends a granted request, and tells whether somebody waits in front of this chain.
    fn release(
        &self,
        index: &LockIndex,
        worker: &Worker,
        released: ReleasedRequest,
        retired: &mut RetiredRequests<'_>,
    ) -> bool;

    /// Makes known that somebody is about to wait for `mode`.
    fn announce(&self, hash: u32, mode: Set);

    /// Says what is awaited in front of this chain.
    fn set_waiting_modes(&self, hash: u32, waiting_modes: Set);

    /// Who holds `name`. The caller is pinned.
    fn holders(&self, index: &LockIndex, hash: u32, name: &Name) -> Holders;

    /// Grants a written request, in the place of one it replaces, and says what is awaited now.
    fn grant(&self, index: &LockIndex, new: &NewRequest, request: u32, waiting_modes: Set);

    /// Writes a request that is weaker than the one it replaces, to be granted.
    fn write(&self, index: &LockIndex, new: &NewRequest, request: u32);

    /// Takes back a request that was to wait.
    fn withdraw(
        &self,
        index: &LockIndex,
        hash: u32,
        request: u32,
        retired: &mut RetiredRequests<'_>,
    );

    /// How many chains there are.
    fn count(&self) -> usize;

    /// Whether chain `at` is empty, and nobody waits in front of it.
    fn is_empty(&self, at: usize) -> bool;

    /// Calls `each` with every holder in chain `at`. The caller is pinned.
    fn all(&self, index: &LockIndex, at: usize, each: &mut dyn FnMut(&Name, Holder));

    /// Panics if what the chain says of itself is not what is in it.
    fn verify(&self, index: &LockIndex, at: usize, waiting_modes: Set);

    /// Memory of the chains themselves, in bytes.
    fn memory_bytes(&self) -> usize;
}

/// The request with this number, as that of a holder.
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
