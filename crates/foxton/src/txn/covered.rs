//! Reading a range in which nothing can come, go or change until the transaction ends: with locking off,
//! for then there is no other transaction.
//!
//! No key needs a name, none is locked, and nothing has to be looked at twice. Nor is the record past
//! the end looked at, which is locked with its gap otherwise: in a table larger than the caches that
//! would be one more miss for nothing.

use std::ops::{Bound, ControlFlow};

use foxton_store::memory::Record;
use foxton_sync::epoch::Guard;

use super::span::{Progress, Span, Walked, bound};
use crate::catalog::OpenTable;

impl Span {
    /// Walks along the range until it ends, `take` breaks, or `most` records were passed.
    #[inline]
    pub(super) fn walk_covered<'g>(
        &mut self,
        table: &'g OpenTable,
        guard: &'g Guard<'_>,
        last: &mut Option<&'g Record>,
        most: u32,
        take: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Walked {
        let mut remaining = self.remaining.get();
        let from: Bound<&[u8]> = self.from();
        let mut cursor = match self.reversed {
            false => {
                let end = bound(self.high_end, &self.high);
                table.rows.forward(guard, from).until(end)
            }
            true => {
                let end = bound(self.low_end, &self.low);
                table.rows.backward(guard, from).until(end)
            }
        };
        let (mut finished, mut walked) = (remaining == 0, Walked::Rests);
        for _ in 0..most {
            if finished {
                break;
            }
            let Some(record) = cursor.next_record() else {
                finished = true;
                break;
            };
            *last = Some(record);
            if let Some(value) = record.value() {
                remaining -= 1;
                finished = remaining == 0;
                if take(record.key(), value).is_break() {
                    walked = Walked::Enough;
                    break;
                }
            }
        }
        self.remaining.set(remaining);
        if finished {
            self.progress = Progress::Finished;
            walked = Walked::Enough;
        }
        walked
    }
}
