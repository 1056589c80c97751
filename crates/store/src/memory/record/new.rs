//! New records.

use super::{MemoryRecordHeader, Record, as_record, free, inline_offset, layout};
use crate::memory::inline_slot::InlineSlot;
use crate::memory::value;
use crate::memory::value::VersionWords;
use crate::memory::version::Begin;
use crate::{MAX_KEY_BYTES, MAX_VALUE_BYTES, TooLong};
use foxton_sync::anchor::LockAnchor;
use foxton_sync::shim::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::alloc::{alloc, handle_alloc_error};
use std::fmt;
use std::ptr::{self, NonNull};

/// A record that is in no table yet.
///
/// ```
/// use foxton_store::memory::NewRecord;
///
/// let record = NewRecord::new(b"key", Some(b"value"))?;
/// assert_eq!(record.key(), b"key");
/// # Ok::<(), foxton_store::TooLong>(())
/// ```
pub struct NewRecord {
    raw: NonNull<u8>,
}

// SAFETY: it owns its record, whose parts may all move to another thread.
unsafe impl Send for NewRecord {}
// SAFETY: shared, it gives the same access as a shared record.
unsafe impl Sync for NewRecord {}

impl fmt::Debug for NewRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewRecord")
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}

impl NewRecord {
    /// Returns a record with copies of `key` and `value`; without a value it is a ghost.
    ///
    /// # Errors
    ///
    /// If the key has more than [`MAX_KEY_BYTES`] or the value more than [`MAX_VALUE_BYTES`].
    pub fn new(key: &[u8], value: Option<&[u8]>) -> Result<Self, TooLong> {
        if key.len() > MAX_KEY_BYTES {
            return Err(TooLong::Key { bytes: key.len() });
        }
        if let Some(value) = value.filter(|value| value.len() > MAX_VALUE_BYTES) {
            return Err(TooLong::Value { bytes: value.len() });
        }
        Ok(Self::make(key, value))
    }

    /// As [`new`](Self::new), for keys and values that are made of those of a table.
    ///
    /// # Panics
    ///
    /// If the key has more than 65,535 bytes, or the value more than `u32::MAX`.
    pub fn of_any_length(key: &[u8], value: &[u8]) -> Self {
        Self::make(key, Some(value))
    }

    fn make(key: &[u8], value: Option<&[u8]>) -> Self {
        let tail_bytes = match value {
            Some(value) => {
                let end = inline_offset(key.len()) + value::layout(value.len()).size();
                end - size_of::<MemoryRecordHeader>()
            }
            None => key.len(),
        };
        let layout = layout(tail_bytes);
        // SAFETY: the layout has a header and so is not empty.
        let Some(raw) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        // SAFETY: the key follows the header, and the layout has space for it.
        let key_place = unsafe { raw.add(size_of::<MemoryRecordHeader>()) };
        // SAFETY: as above, and the slices do not overlap: one was just allocated.
        unsafe { key_place.copy_from_nonoverlapping(slice_start(key), key.len()) };
        let block = match value {
            Some(value) => {
                let padding =
                    inline_offset(key.len()) - size_of::<MemoryRecordHeader>() - key.len();
                // SAFETY: between the key and the block.
                let gap = unsafe { key_place.add(key.len()) };
                // SAFETY: as above.
                unsafe { gap.write_bytes(0, padding) };
                // SAFETY: as above; the block follows.
                let place = unsafe { gap.add(padding) };
                // SAFETY: the layout has space for the block there, aligned.
                let block = unsafe { value::make_block(place, value.len()) };
                // SAFETY: just made.
                let content = unsafe { value::content(block) };
                // SAFETY: the block has space for these bytes, and the slices do not overlap.
                unsafe { content.copy_from_nonoverlapping(slice_start(value), value.len()) };
                block.as_ptr()
            }
            None => ptr::null_mut(),
        };
        let header = MemoryRecordHeader {
            inline_words: VersionWords::new(),
            pruning: AtomicBool::new(false),
            commit_stamp: AtomicU64::new(0),
            value: AtomicPtr::new(block),
            domain: 0,
            inline_slot: InlineSlot::in_use(),
            tail_bytes: u32::try_from(tail_bytes).expect("keys and values have a maximum"),
            key_bytes: u16::try_from(key.len()).expect("keys have a maximum"),
            linked: AtomicBool::new(false),
            has_inline_slot: value.is_some(),
            // SAFETY: a record has its address until it is freed, and `free` leaks a record whose
            // anchor is held.
            anchor: unsafe { LockAnchor::new(true) },
        };
        // SAFETY: the layout begins with a header.
        unsafe { raw.cast::<MemoryRecordHeader>().write(header) };
        Self { raw }
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        self.record().key()
    }

    /// The commit stamp, which can be set before any other thread sees the record; see
    /// [`Record::commit_stamp`].
    pub fn commit_stamp(&self) -> &AtomicU64 {
        self.record().commit_stamp()
    }

    /// Returns the record with the begin timestamp of its value.
    pub fn with_begin(self, begin: Begin) -> Self {
        self.record().header.inline_words.set_begin(begin);
        self
    }

    /// Returns the record with a free anchor, for a table that no other thread uses yet: its keys
    /// are not locked, so no lock manager has to search its queues for them.
    pub fn with_free_anchor(self) -> Self {
        // SAFETY: no other thread has the record, and there is no reference to it.
        let header = unsafe { &mut *self.raw.cast::<MemoryRecordHeader>().as_ptr() };
        // SAFETY: as in `new`.
        header.anchor = unsafe { LockAnchor::new(false) };
        self
    }

    /// Returns the address of its memory, as a number, and its size in bytes.
    pub fn extent(&self) -> (usize, usize) {
        let bytes = size_of::<MemoryRecordHeader>() + self.record().header.tail_bytes as usize;
        (self.raw.addr().get(), bytes)
    }

    fn record(&self) -> &Record {
        // SAFETY: ours until it is dropped or put into a table, which takes `self`.
        unsafe { as_record(self.raw) }
    }

    /// Returns the record, ready for a table of `domain`. The caller frees it (I5).
    pub(in crate::memory) fn into_linked(self, domain: u32) -> NonNull<u8> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: no other thread has the record, and there is no reference to it.
        let header = unsafe { &mut *this.raw.cast::<MemoryRecordHeader>().as_ptr() };
        header.domain = domain;
        // Relaxed: publishing the record publishes this with it.
        header.linked.store(true, Ordering::Relaxed);
        this.raw
    }
}

impl Drop for NewRecord {
    fn drop(&mut self) {
        // SAFETY: it never was in a table: no other thread has it (I5).
        unsafe { free(self.raw.as_ptr().cast()) };
    }
}

fn slice_start(bytes: &[u8]) -> NonNull<u8> {
    NonNull::from(bytes).cast()
}
