//! Each manager with every pair of fences that it may come to have, of whatever system.

use foxton_lock::any::{Fences, Kind};

/// The pairs that make a difference to `kind`.
pub(crate) fn fences(kind: Kind) -> &'static [Fences] {
    match kind {
        Kind::Direct | Kind::DirectArrival => &Fences::ALL,
        _ => &[Fences::Found],
    }
}
