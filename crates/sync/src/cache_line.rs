//! Values kept from sharing a cache line.
//!
//! Two threads that write two words of one line pay as if they wrote one word. Processors that
//! fetch lines in pairs (x86-64, and many of the 64-bit ARM) make the unit 128 bytes.

use std::ops::{Deref, DerefMut};

/// A value alone on its cache lines.
///
/// ```
/// use foxton_sync::cache_line::CachePadded;
///
/// let counts = [CachePadded::new(0u64), CachePadded::new(0u64)];
/// let distance = (&raw const counts[1] as usize) - (&raw const counts[0] as usize);
/// assert!(distance >= 64);
/// ```
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), repr(align(128)))]
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    repr(align(64))
)]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// Pads `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value without its padding.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> AsRef<T> for CachePadded<T> {
    #[inline(always)]
    fn as_ref(&self) -> &T {
        &self.0
    }
}

impl<T> AsMut<T> for CachePadded<T> {
    #[inline(always)]
    fn as_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
