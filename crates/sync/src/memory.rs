//! Memory that the allocator keeps after it was freed.
//!
//! The GNU C library returns freed memory to the system only from the end of its heap. The memory
//! of many small objects stays with the process as long as any later object exists.

/// Returns free memory to the system, where the allocator can: with the GNU C library. Takes some
/// milliseconds for each hundred megabytes, in which other threads may wait for the allocator, so
/// it is for the background, after much was freed.
///
/// ```
/// drop(vec![[1_u8; 100]; 10_000]);
/// foxton_sync::memory::release_free();
/// ```
pub fn release_free() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        // SAFETY: it may be called at any time, from any thread.
        unsafe { libc::malloc_trim(0) };
    }
}
