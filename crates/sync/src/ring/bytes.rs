//! The memory of a ring: bytes that many threads write, each its own part.
//!
//! # Invariants
//!
//! * I1  `base` points to `capacity` bytes, initialized, that are valid as long as this and belong
//!   to it alone.
//! * I2  A part is written by the thread that has its [`Reservation`], and read by the [`Drainer`]
//!   between its completion and its release. The two never access the same byte at the same time;
//!   the ring orders them (I1 to I3, O1 to O3 there). Both are required as arguments, so that no
//!   other thread calls.

use super::{Drainer, Reservation};

/// See the page.
pub(super) struct RingBytes {
    base: *mut u8,
    capacity: usize,
    /// One for each 8 bytes, so that the model checker sees each access.
    #[cfg(loom)]
    touched: Vec<crate::shim::UnsafeCell<()>>,
}

// SAFETY: the memory belongs to this (I1), and threads that share it access different parts of it,
// or one after the other (I2).
unsafe impl Send for RingBytes {}
// SAFETY: as above.
unsafe impl Sync for RingBytes {}

impl RingBytes {
    pub(super) fn new(capacity: usize) -> Self {
        // Zeroed by the system, so that no page is touched before it is used.
        let memory = vec![0_u8; capacity].into_boxed_slice();
        RingBytes {
            base: Box::into_raw(memory).cast(),
            capacity,
            #[cfg(loom)]
            touched: (0..capacity / 8)
                .map(|_| crate::shim::UnsafeCell::new(()))
                .collect(),
        }
    }

    #[inline]
    pub(super) fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// Writes `bytes` from position `at` of the stream on, all inside `_reservation`.
    #[inline]
    pub(super) fn write(&self, at: u64, bytes: &[u8], _reservation: &Reservation<'_>) {
        #[cfg(loom)]
        self.touch(at, bytes.len(), |cell| cell.with_mut(|_| ()));
        let from = self.offset(at);
        let room = self.capacity - from;
        if bytes.len() <= room {
            // SAFETY: `from + bytes.len() <= capacity` (I1), and no other thread accesses these
            // bytes (I2).
            unsafe { self.copy(from, bytes) };
        } else {
            let (before, after) = bytes.split_at(room);
            assert!(after.len() <= from, "more bytes than the ring has");
            // SAFETY: as above, up to the end of the ring ..
            unsafe { self.copy(from, before) };
            // SAFETY: .. and from its beginning on.
            unsafe { self.copy(0, after) };
        }
    }

    /// Copies `bytes` to `from`.
    ///
    /// # Safety
    ///
    /// `from + bytes.len()` is at most the capacity, and no other thread reads or writes there.
    #[inline(always)]
    unsafe fn copy(&self, from: usize, bytes: &[u8]) {
        // SAFETY: passed on to the caller; in bounds of one allocation (I1).
        let to = unsafe { self.base.add(from) };
        // SAFETY: as above, and the caller borrows the source, so it is not ours.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Returns the `length` bytes from position `at` of the stream on. All are complete and not
    /// released while `drainer` is borrowed, because it alone can release them.
    pub(super) fn read<'t>(&'t self, at: u64, length: u64, _drainer: &'t Drainer) -> [&'t [u8]; 2] {
        let (from, length) = (self.offset(at), length as usize);
        assert!(length <= self.capacity, "more bytes than the ring has");
        #[cfg(loom)]
        self.touch(at, length, |cell| cell.with(|_| ()));
        let first = length.min(self.capacity - from);
        // SAFETY: in bounds (I1), and no thread writes them until they are released (I2).
        let before = unsafe { self.slice(from, first) };
        // SAFETY: as above; `length - first <= from`, since `length <= capacity`.
        let after = unsafe { self.slice(0, length - first) };
        [before, after]
    }

    /// # Safety
    ///
    /// `from + length` is at most the capacity, and no thread writes there while the slice exists.
    unsafe fn slice(&self, from: usize, length: usize) -> &[u8] {
        // SAFETY: passed on to the caller; in bounds of one allocation (I1).
        let base = unsafe { self.base.add(from) };
        // SAFETY: as above; initialized (I1).
        unsafe { std::slice::from_raw_parts(base, length) }
    }

    #[inline(always)]
    fn offset(&self, at: u64) -> usize {
        // The capacity is a power of two.
        at as usize & (self.capacity - 1)
    }

    #[cfg(loom)]
    fn touch(&self, at: u64, length: usize, touch: impl Fn(&crate::shim::UnsafeCell<()>)) {
        let units = at / 8..(at + length as u64).div_ceil(8);
        let cells = self.touched.len() as u64;
        units.for_each(|unit| touch(&self.touched[(unit % cells) as usize]));
    }
}

impl Drop for RingBytes {
    fn drop(&mut self) {
        let memory = std::ptr::slice_from_raw_parts_mut(self.base, self.capacity);
        // SAFETY: made from a box of this length in `new`, and no thread uses it any more (I1).
        drop(unsafe { Box::from_raw(memory) });
    }
}
