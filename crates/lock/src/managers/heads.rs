//! The heads of one hash bucket.
//!
//! # State
//!
//! Nearly always a bucket has one name or none. So the first head lies in the bucket itself, in the
//! cache lines that its latch brought along; the others have storage of their own.
//!
//! A bucket has many names when one transaction holds a great many. Of those each is held once and
//! awaited by nobody, and a head is made for more. So a name that comes to be held beside others
//! is noted in 32 bytes, and gets a head when anything else happens to it.
//!
//! # Invariants
//!
//! * I1  The names of `first`, vacant or not, of the first `live` of the other heads, and of those
//!   noted in short are all different. So who finds its name in `first` has found its head, and need
//!   not look further.
//! * I2  The first `live` of the other heads are held or awaited by somebody; those after them are
//!   vacant and wait to be used again, a few of them at most.
//! * I3  `others` counts what is held or awaited beside `first`.
//! * I4  The one request of a name noted in short has slot 0, as it has in the head it gets.

use super::head::Head;
use crate::{
    mode::{Mode, Set},
    name::Name,
};
use std::ops::Deref;

/// Vacant heads that are kept for the next names.
const KEPT_HEADS: usize = 4;

/// A name that one owner holds and nobody awaits.
#[derive(Debug, Clone, Copy)]
struct Lone {
    name: Name,
    place: u32,
    granted: Set,
}

const _: () = assert!(size_of::<Lone>() == 32);

impl Lone {
    fn fill(self, head: &mut Head) {
        let mode = Mode::of(self.granted);
        head.forget_slots();
        let slot = head.acquire(self.place, mode);
        debug_assert_eq!(slot, Some(0), "I4");
    }

    fn head(self) -> Head {
        let mut head = Head::new(self.name);
        self.fill(&mut head);
        head
    }
}

#[derive(Debug, Default)]
struct Others {
    heads: Vec<Head>,
    live: usize,
    lone: Vec<Lone>,
}

/// A head to look at: one that is there, or what it would be.
pub(crate) enum Shown<'h> {
    There(&'h Head),
    Lone(Head),
}

impl Deref for Shown<'_> {
    type Target = Head;

    fn deref(&self) -> &Head {
        match self {
            Self::There(head) => head,
            Self::Lone(head) => head,
        }
    }
}

impl Others {
    fn live(&self) -> &[Head] {
        &self.heads[..self.live]
    }

    fn position(&self, name: &Name) -> Option<usize> {
        self.live().iter().position(|head| head.name() == *name)
    }

    /// The place among the live heads of `name`, if it is held or awaited here.
    fn head(&mut self, name: &Name) -> Option<usize> {
        self.position(name).or_else(|| self.promote(name))
    }

    /// Gives a name noted in short a head.
    fn promote(&mut self, name: &Name) -> Option<usize> {
        let at = self.lone.iter().position(|lone| lone.name == *name)?;
        let lone = self.lone.swap_remove(at);
        self.shrink();
        let at = self.live;
        self.live += 1;
        match self.heads.get_mut(at) {
            Some(vacant) => {
                vacant.rename(*name);
                lone.fill(vacant);
            }
            None => self.heads.push(lone.head()),
        }
        Some(at)
    }

    /// Notes in short. Grows by a quarter: there may be very many, and buckets of one size grow at
    /// the same time.
    fn note(&mut self, lone: Lone) {
        if self.lone.len() == self.lone.capacity() {
            self.lone.reserve_exact((self.lone.len() / 4).max(4));
        }
        self.lone.push(lone);
    }

    fn shrink(&mut self) {
        if self.lone.len() < self.lone.capacity() / 4 {
            self.lone.shrink_to_fit();
        }
    }

    /// Restores I2 after one of the heads may have become vacant; whether one had.
    fn remove_vacant(&mut self) -> bool {
        let Some(at) = self.live().iter().position(Head::is_vacant) else {
            return false;
        };
        self.live -= 1;
        let last = self.live;
        self.heads.swap(at, last);
        self.heads.truncate(last + KEPT_HEADS);
        // A quarter: a bucket that grows and shrinks around one size does not move each time.
        if self.heads.len() < self.heads.capacity() / 4 {
            self.heads.shrink_to_fit();
        }
        true
    }
}

/// The names of one bucket.
#[derive(Debug)]
pub(crate) struct Heads {
    first: Head,
    beside: Option<Box<Others>>,
    others: u32,
}

impl Default for Heads {
    fn default() -> Self {
        Self {
            // Any name will do: the head is vacant.
            first: Head::new(Name::table(0)),
            beside: None,
            others: 0,
        }
    }
}

impl Heads {
    fn beside(&mut self) -> &mut Others {
        self.beside.get_or_insert_default()
    }

    /// The head of `name`, if anybody holds or awaits it.
    pub(crate) fn get(&mut self, name: &Name) -> Option<&mut Head> {
        if self.first.name() == *name {
            return Some(&mut self.first).filter(|head| !head.is_vacant());
        }
        let beside = self.beside.as_mut()?;
        let at = beside.head(name)?;
        Some(&mut beside.heads[at])
    }

    /// Grants `name` to the owner at `place`, which does not hold it, and says in which slot; or the
    /// head in which somebody stands in the way.
    // Always: two managers and two calls are four places, and none of them worth a call.
    #[inline(always)]
    pub(crate) fn acquire(
        &mut self,
        name: &Name,
        place: u32,
        mode: Mode,
    ) -> Result<u32, &mut Head> {
        if self.first.name() != *name {
            if self.others > 0 || !self.first.is_vacant() {
                return self.acquire_other(name, place, mode);
            }
            self.first.rename(*name);
        }
        self.first.acquire(place, mode).ok_or(&mut self.first)
    }

    #[inline(never)]
    fn acquire_other(&mut self, name: &Name, place: u32, mode: Mode) -> Result<u32, &mut Head> {
        let known = self.beside.as_mut().and_then(|beside| beside.head(name));
        if let Some(at) = known {
            let head = &mut self.beside().heads[at];
            return head.acquire(place, mode).ok_or(head);
        }
        if self.first.is_vacant() {
            self.first.rename(*name);
            return self.first.acquire(place, mode).ok_or(&mut self.first);
        }
        self.others += 1;
        let (name, granted) = (*name, mode.set());
        self.beside().note(Lone {
            name,
            place,
            granted,
        });
        Ok(0)
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
            if self.others > 0 {
                self.remove_vacant();
            }
        }
        result
    }

    #[inline(never)]
    fn other(&mut self, name: &Name) -> &mut Head {
        let beside = self.beside();
        let at = beside.head(name);
        let at = at.expect("a name that is held or awaited has a head");
        &mut beside.heads[at]
    }

    /// Restores I2 and I3 after the first head, or one of the others, has become vacant.
    #[inline(never)]
    fn remove_vacant(&mut self) {
        if self.beside().remove_vacant() {
            self.others -= 1;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Shown<'_>> {
        let first = Some(&self.first).filter(|head| !head.is_vacant());
        let live = self.beside.iter().flat_map(|beside| beside.live());
        let lone = self.beside.iter().flat_map(|beside| &beside.lone);
        let there = first.into_iter().chain(live).map(Shown::There);
        there.chain(lone.map(|lone| Shown::Lone(lone.head())))
    }

    /// Memory beyond the bucket itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        let beside = self.beside.as_ref().map_or(0, |beside| {
            let heads: usize = beside.heads.iter().map(Head::memory_bytes).sum();
            let vectors = beside.heads.capacity() * size_of::<Head>()
                + beside.lone.capacity() * size_of::<Lone>();
            size_of::<Others>() + vectors + heads
        });
        beside + self.first.memory_bytes()
    }

    pub(crate) fn verify(&self) {
        if let Some(beside) = &self.beside {
            for (at, head) in beside.heads.iter().enumerate() {
                assert_eq!(at < beside.live, !head.is_vacant(), "I2: {}", head.name());
            }
            let count = beside.live + beside.lone.len();
            assert_eq!(count, self.others as usize, "I3");
        }
        self.first.verify();
        let mut names = vec![self.first.name()];
        let others = self.iter().skip(usize::from(!self.first.is_vacant()));
        for head in others {
            head.verify();
            names.push(head.name());
        }
        names.sort();
        let same = names.windows(2).find(|pair| pair[0] == pair[1]);
        assert!(same.is_none(), "I1: two heads of {same:?}");
    }
}
