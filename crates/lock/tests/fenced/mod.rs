//! Each manager with every pair of fences that it may come to have, of whatever system.

use foxton_lock::any::{Fences, ManagerKind};

/// The pairs that make a difference to `kind`.
pub(crate) fn fences(kind: ManagerKind) -> &'static [Fences] {
    match kind {
        ManagerKind::Direct | ManagerKind::DirectFifo => &Fences::ALL,
        _ => &[Fences::Found],
    }
}
