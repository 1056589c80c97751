//! Each manager with every pair of fences that it may have on any system.

use foxton_lock::any::{Fences, ManagerKind};

/// Returns the pairs that make a difference to `kind`.
pub(crate) fn fences(kind: ManagerKind) -> &'static [Fences] {
    match kind {
        ManagerKind::Direct | ManagerKind::DirectFifo | ManagerKind::DirectTable => &Fences::ALL,
        _ => &[Fences::Found],
    }
}
