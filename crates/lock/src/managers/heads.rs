//! The heads of one hash bucket.
//!
//! # State
//!
//! Nearly always a bucket has one name or none. So the first head lies in the bucket itself, in the
//! cache lines that its latch brought along; the others have storage of their own.
//!
//! # Invariants
//!
//! * I1  The names of `first`, vacant or not, and of the first `live` of the others are all
//!   different. So who finds its name in `first` has found its head, and need not look further.
//! * I2  The first `live` of the others are held or awaited by somebody; those after them are vacant
//!   and wait to be used again, a few of them at most.

use super::head::Head;
use crate::name::Name;

/// Vacant heads that are kept for the next names.
const KEPT_HEADS: usize = 4;

#[derive(Debug, Default)]
struct Others(Vec<Head>);

/// The names of one bucket.
#[derive(Debug)]
pub(crate) struct Heads {
    first: Head,
    others: Option<Box<Others>>,
    live: u32,
}

impl Default for Heads {
    fn default() -> Self {
        Self {
            // Any name will do: the head is vacant.
            first: Head::new(Name::table(0)),
            others: None,
            live: 0,
        }
    }
}

impl Heads {
    fn others(&self) -> &[Head] {
        self.others.as_ref().map_or(&[], |others| &others.0)
    }

    fn others_mut(&mut self) -> &mut Vec<Head> {
        &mut self.others.get_or_insert_default().0
    }

    fn position(&self, name: &Name) -> Option<usize> {
        let live = &self.others()[..self.live as usize];
        live.iter().position(|head| head.name() == *name)
    }

    /// The head of `name`, if anybody holds or awaits it.
    pub(crate) fn get(&mut self, name: &Name) -> Option<&mut Head> {
        if self.first.name() == *name {
            return Some(&mut self.first).filter(|head| !head.is_vacant());
        }
        let at = self.position(name)?;
        Some(&mut self.others_mut()[at])
    }

    /// The head of `name`; a fresh one has to be given a request at once (I2).
    #[inline]
    pub(crate) fn get_or_add(&mut self, name: &Name) -> &mut Head {
        if self.first.name() == *name {
            &mut self.first
        } else if self.live == 0 && self.first.is_vacant() {
            self.first.rename(*name);
            &mut self.first
        } else {
            self.get_or_add_other(name)
        }
    }

    #[inline(never)]
    fn get_or_add_other(&mut self, name: &Name) -> &mut Head {
        if let Some(at) = self.position(name) {
            return &mut self.others_mut()[at];
        }
        if self.first.is_vacant() {
            self.first.rename(*name);
            return &mut self.first;
        }
        let at = self.live as usize;
        self.live += 1;
        let others = self.others_mut();
        match others.get_mut(at) {
            Some(vacant) => vacant.rename(*name),
            None => others.push(Head::new(*name)),
        }
        &mut others[at]
    }

    /// Changes the head of `name`, which exists, and removes it if it is vacant then.
    #[inline]
    pub(crate) fn change<R>(&mut self, name: &Name, change: impl FnOnce(&mut Head) -> R) -> R {
        let head = if self.first.name() == *name {
            &mut self.first
        } else {
            self.other(name)
        };
        let result = change(head);
        if head.is_vacant() {
            head.reset();
            if self.live > 0 {
                self.remove_vacant();
            }
        }
        result
    }

    #[inline(never)]
    fn other(&mut self, name: &Name) -> &mut Head {
        let at = self.position(name);
        let at = at.expect("a name that is held or awaited has a head");
        &mut self.others_mut()[at]
    }

    /// Restores I2 after the first head, or one of the others, has become vacant.
    #[inline(never)]
    fn remove_vacant(&mut self) {
        let live = &self.others()[..self.live as usize];
        let Some(at) = live.iter().position(Head::is_vacant) else {
            return;
        };
        self.live -= 1;
        let last = self.live as usize;
        let others = self.others_mut();
        others.swap(at, last);
        others.truncate(last + KEPT_HEADS);
        // A quarter: a bucket that grows and shrinks around one size does not move each time.
        if others.len() < others.capacity() / 4 {
            others.shrink_to_fit();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Head> {
        let first = Some(&self.first).filter(|head| !head.is_vacant());
        first
            .into_iter()
            .chain(&self.others()[..self.live as usize])
    }

    /// Memory beyond the bucket itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        let others = self.others.as_ref().map_or(0, |others| {
            size_of::<Others>() + others.0.capacity() * size_of::<Head>()
        });
        let inside = self.others().iter().chain([&self.first]);
        others + inside.map(Head::memory_bytes).sum::<usize>()
    }

    pub(crate) fn verify(&self) {
        for (at, head) in self.others().iter().enumerate() {
            let live = at < self.live as usize;
            assert_eq!(live, !head.is_vacant(), "I2: {}", head.name());
            head.verify();
        }
        self.first.verify();
        let live = &self.others()[..self.live as usize];
        for (at, head) in live.iter().enumerate() {
            let mut before = live[..at].iter().chain([&self.first]);
            let same = before.any(|other| other.name() == head.name());
            assert!(!same, "I1: two heads of {}", head.name());
        }
    }
}
