//! Memory that snapshots keep: the active ones for people, and the end of the one that keeps most.
//!
//! # Orderings
//!
//! * O1  a snapshot in its place: see [`snapshots`](super::snapshots), O2.

use foxton_log::Lsn;
use foxton_sync::shim::{self, Ordering};

use super::snapshots::{ENDED, LSN_SHIFT, REGISTERED, Snapshots};
use crate::options::version_warning::VersionWarning;
use crate::types::active_snapshot::ActiveSnapshot;

impl Snapshots {
    /// Returns the active snapshots, oldest first: place, position and bytes kept.
    fn list(&self) -> Vec<(u32, Lsn, u64)> {
        // Site: "kept versions".
        let kept = shim::lock(&self.kept);
        let words = self.all_places().map(|(number, place)| {
            let word = place.snapshot.load(Ordering::Acquire); // O1
            (number, word)
        });
        let mut list: Vec<_> = words
            .filter(|(_, word)| word & 3 == REGISTERED)
            .map(|(number, word)| {
                let lsn = word >> LSN_SHIFT;
                let bytes = kept.get(&lsn).map_or(0, |batch| batch.bytes as u64);
                (number, Lsn::new(lsn), bytes)
            })
            .collect();
        list.sort_by_key(|&(_, lsn, _)| lsn);
        list
    }

    /// Returns the active snapshots for people, oldest first.
    pub(crate) fn active_list(&self) -> Vec<ActiveSnapshot> {
        let list = self.list().into_iter();
        list.map(|entry| self.describe(entry)).collect()
    }

    fn describe(&self, (number, lsn, bytes): (u32, Lsn, u64)) -> ActiveSnapshot {
        // Site: "kept versions": for people.
        let owner = shim::lock(&self.place(number).owner).clone();
        let described = owner.map(|owner| owner.describe());
        let (label, age) = described.map_or(Default::default(), |(_, label, age)| (label, age));
        ActiveSnapshot {
            lsn,
            age,
            label: label.to_string(),
            bytes,
        }
    }

    /// Returns the warning for a program whose snapshots may keep `limit` bytes: when they first
    /// keep more than a half of that, and each time that one is about to be ended.
    pub(crate) fn warning(&self, limit: u64) -> Option<VersionWarning> {
        // Relaxed: a hint, and the flag is used by one thread.
        let bytes = self.retained.load(Ordering::Relaxed);
        let is_ending = bytes > limit;
        if bytes < limit / 4 {
            self.has_warned.store(false, Ordering::Relaxed);
        }
        if !is_ending && (bytes <= limit / 2 || self.has_warned.load(Ordering::Relaxed)) {
            return None;
        }
        let list = self.list().into_iter();
        let largest = list.max_by_key(|&(_, _, bytes)| bytes);
        let largest = largest.filter(|&(_, _, bytes)| bytes > 0)?;
        self.has_warned.store(true, Ordering::Relaxed);
        Some(VersionWarning {
            bytes,
            limit,
            snapshot: self.describe(largest),
            is_ending,
        })
    }

    /// Ends the snapshots at the position that keeps the most, if more than `limit` bytes are kept.
    /// Returns true if one was ended. One that keeps nothing is not to blame.
    pub(crate) fn end_largest(&self, limit: u64) -> bool {
        // Relaxed: a hint.
        if self.retained.load(Ordering::Relaxed) <= limit {
            return false;
        }
        let mut list = self.list();
        list.retain(|&(_, _, bytes)| bytes > 0);
        let Some(&(_, largest, _)) = list.iter().max_by_key(|&&(_, _, bytes)| bytes) else {
            return false;
        };
        let mut has_ended = false;
        for &(number, lsn, _) in &list {
            has_ended |= lsn == largest && self.end(number, lsn, ENDED);
        }
        if let Some(views) = &self.read_views {
            views.close(largest.bytes());
        }
        if has_ended {
            // Relaxed: counted for people. Site: "kept versions".
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
        has_ended
    }
}
