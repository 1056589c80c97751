//! Padding to cache lines, and prefetching.
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

    /// Returns the value without its padding.
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

/// Asks the processor to fetch two cache lines at `address`, which may be any, and does not wait.
/// Does nothing where there is no such instruction.
///
/// ```
/// use foxton_sync::cache_line::prefetch;
///
/// let (rows, order) = (vec![[0_u8; 300]; 1_000], [7, 900, 12, 333]);
/// for (at, &row) in order.iter().enumerate() {
///     if let Some(&ahead) = order.get(at + 2) {
///         prefetch(rows[ahead].as_ptr());
///     }
///     assert_eq!(rows[row][0], 0);
/// }
/// ```
#[inline]
pub fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching has no effect that a program can see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(64).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = address;
}

/// Asks the processor to fetch the one cache line at `address`, which may be any, for writing, and
/// does not wait. Does nothing where there is no such instruction.
///
/// ```
/// use foxton_sync::cache_line::prefetch_to_write;
///
/// let mut counts = vec![0_u8; 1 << 20];
/// let next = 77_777;
/// prefetch_to_write(&raw const counts[next]);
/// // Other work, before the count is needed.
/// counts[next] += 1;
/// ```
#[inline(always)]
pub fn prefetch_to_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    // SAFETY: prefetching has no effect that a program can see, whatever the address; processors
    // that do not know the instruction treat it as a no-op.
    unsafe {
        core::arch::asm!(
            "prefetchw [{}]",
            in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
    let _ = address;
}
