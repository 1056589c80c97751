//! The heads of one hash bucket.
//!
//! # Invariants
//!
//! * I1  `heads[..live]` have names, all different, each held or awaited by somebody; the heads
//!   after them are vacant and wait to be used again, a few of them at most.

use super::head::Head;
use crate::name::Name;
use smallvec::SmallVec;

/// Vacant heads that are kept for the next names.
const KEPT_HEADS: usize = 4;

/// The names of one bucket.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    heads: SmallVec<[Head; 1]>,
    live: u32,
}

impl Heads {
    fn live(&self) -> &[Head] {
        &self.heads[..self.live as usize]
    }

    /// The head of `name`, if anybody holds it.
    #[inline]
    pub(crate) fn get(&mut self, name: Name) -> Option<&mut Head> {
        let at = self.position(name)?;
        Some(&mut self.heads[at])
    }

    #[inline]
    fn position(&self, name: Name) -> Option<usize> {
        self.live().iter().position(|head| head.name() == name)
    }

    /// The head of `name`; a fresh one has to be given a request at once (I1).
    #[inline]
    pub(crate) fn get_or_add(&mut self, name: Name) -> &mut Head {
        let at = match self.position(name) {
            Some(at) => at,
            None => self.add(name),
        };
        &mut self.heads[at]
    }

    #[inline]
    fn add(&mut self, name: Name) -> usize {
        let at = self.live as usize;
        match self.heads.get_mut(at) {
            Some(vacant) => vacant.rename(name),
            None => self.heads.push(Head::new(name)),
        }
        self.live += 1;
        at
    }

    /// Changes the head of `name`, which exists, and removes it if it is vacant then.
    #[inline]
    pub(crate) fn change<R>(&mut self, name: Name, change: impl FnOnce(&mut Head) -> R) -> R {
        let heads = &mut self.heads[..self.live as usize];
        let at = heads.iter().position(|head| head.name() == name);
        let at = at.expect("a name that is held or awaited has a head");
        let result = change(&mut heads[at]);
        if heads[at].is_vacant() {
            heads[at].reset();
            let last = heads.len() - 1;
            if at != last {
                heads.swap(at, last);
            }
            self.live = last as u32;
            if last > 0 || self.heads.len() > KEPT_HEADS {
                self.trim(last);
            }
        }
        result
    }

    #[inline(never)]
    fn trim(&mut self, live: usize) {
        if self.heads.len() <= live + KEPT_HEADS {
            return;
        }
        self.heads.truncate(live + KEPT_HEADS);
        // A quarter: a bucket that grows and shrinks around one size does not move each time.
        if self.heads.len() < self.heads.capacity() / 4 {
            self.heads.shrink_to_fit();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Head> {
        self.live().iter()
    }

    /// Memory beyond the bucket itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        let spilled = if self.heads.spilled() {
            self.heads.capacity()
        } else {
            0
        };
        let inside: usize = self.heads.iter().map(Head::memory_bytes).sum();
        spilled * size_of::<Head>() + inside
    }

    pub(crate) fn verify(&self) {
        for (at, head) in self.heads.iter().enumerate() {
            assert_eq!(
                at < self.live as usize,
                !head.is_vacant(),
                "I1: {}",
                head.name()
            );
            head.verify();
        }
        for (at, head) in self.live().iter().enumerate() {
            let same = self.live()[..at]
                .iter()
                .any(|other| other.name() == head.name());
            assert!(!same, "I1: two heads of {}", head.name());
        }
    }
}
