//! A doubly linked list behind one latch [001 §3.3.3].
//!
//! Its items are in one array, each on a line of its own or side by side, and are linked by index.
//! A thread has a stock of free places, which it refills under the latch, many at a time; removed
//! items go back to it. So an insert allocates nothing.

use foxton_sync::{
    latch::{Kind, Latched},
    worker::Worker,
};

use super::{Done, Hand, SITE, Step, Structure, as_many};
use crate::random::Random;

/// Values are below this [001 §3.3.3].
const VALUES: u64 = 1_000;
/// Places that a thread takes at a time.
const STOCK: u32 = 256;
const NOBODY: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Item {
    value: u32,
    previous: u32,
    next: u32,
}

const VACANT: Item = Item {
    value: 0,
    previous: NOBODY,
    next: NOBODY,
};

/// Placement of an item.
trait Place: Copy + Send + std::fmt::Debug + AsRef<Item> + AsMut<Item> + 'static {
    fn of(item: Item) -> Self;
}

/// Side by side, five or six on a line [001 Figure D.5].
#[derive(Debug, Clone, Copy)]
struct Beside(Item);

/// On a line of its own [001 Figure D.6].
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Apart(Item);

macro_rules! places {
    ($($place:ident),*) => {$(
        impl AsRef<Item> for $place {
            fn as_ref(&self) -> &Item {
                &self.0
            }
        }

        impl AsMut<Item> for $place {
            fn as_mut(&mut self) -> &mut Item {
                &mut self.0
            }
        }

        impl Place for $place {
            fn of(item: Item) -> Self {
                Self(item)
            }
        }
    )*};
}

places!(Beside, Apart);

#[derive(Debug)]
struct Chain<P> {
    items: Vec<P>,
    head: u32,
    tail: u32,
}

impl<P: Place> Chain<P> {
    /// The place of the first item with this value.
    fn find(&self, value: u32) -> Option<u32> {
        let mut at = self.head;
        while let Some(item) = self.items.get(at as usize).map(P::as_ref) {
            if item.value == value {
                return Some(at);
            }
            at = item.next;
        }
        None
    }

    fn insert(&mut self, at: u32, value: u32) {
        let previous = self.tail;
        self.items[at as usize] = P::of(Item {
            value,
            previous,
            next: NOBODY,
        });
        *self.link_after(previous) = at;
        self.tail = at;
    }

    /// Removes the first item with this value, and returns its place.
    fn remove(&mut self, value: u32) -> Option<u32> {
        let at = self.find(value)?;
        let Item { previous, next, .. } = *self.items[at as usize].as_ref();
        *self.link_after(previous) = next;
        match self.items.get_mut(next as usize) {
            Some(item) => item.as_mut().previous = previous,
            None => self.tail = previous,
        }
        Some(at)
    }

    /// The link to the successor of the item at `at`; without one, to the first item.
    fn link_after(&mut self, at: u32) -> &mut u32 {
        match self.items.get_mut(at as usize) {
            Some(item) => &mut item.as_mut().next,
            None => &mut self.head,
        }
    }

    fn stock(&mut self) -> std::ops::Range<u32> {
        let first = self.items.len() as u32;
        let filled = self.items.len() + STOCK as usize;
        self.items.resize(filled, P::of(VACANT));
        first..first + STOCK
    }

    /// Number of items, if both directions agree.
    fn length(&self) -> Result<usize, String> {
        let walk = |first: u32, next: fn(&Item) -> u32| {
            let mut values = Vec::new();
            let mut at = first;
            while let Some(item) = self.items.get(at as usize).map(P::as_ref) {
                values.push(item.value);
                // A circle would have no end.
                if values.len() > self.items.len() {
                    break;
                }
                at = next(item);
            }
            values
        };
        let forward = walk(self.head, |item| item.next);
        let mut backward = walk(self.tail, |item| item.previous);
        backward.reverse();
        match forward == backward {
            true => Ok(forward.len()),
            false => Err("the list reads differently from its end".to_owned()),
        }
    }
}

/// The list; `reads` in a hundred operations search for a value.
#[derive(Debug)]
struct List<P> {
    chain: Latched<Chain<P>>,
    loaded: u32,
    reads: u32,
}

/// A list of `values` values; `reads` in a hundred operations search for one. Its items are side by
/// side, or each on a line of its own.
pub fn list(kind: Kind, loaded: u32, reads: u32, beside: bool) -> Box<dyn Structure> {
    match beside {
        true => Box::new(List::<Beside>::new(kind, loaded, reads)),
        false => Box::new(List::<Apart>::new(kind, loaded, reads)),
    }
}

impl<P: Place> List<P> {
    fn new(kind: Kind, loaded: u32, reads: u32) -> Self {
        let mut chain = Chain {
            items: vec![P::of(VACANT); loaded as usize],
            head: NOBODY,
            tail: NOBODY,
        };
        let mut random = Random::seeded(&[u64::from(loaded)]);
        for at in 0..loaded {
            chain.insert(at, random.uniform(0, VALUES - 1) as u32);
        }
        List {
            chain: Latched::new(kind, &SITE, chain),
            loaded,
            reads,
        }
    }
}

impl<P: Place> Structure for List<P> {
    fn operate(&self, hand: &mut Hand, count: u64) {
        let chain = &self.chain;
        for _ in 0..count {
            match hand.step(self.reads) {
                Step::Insert => {
                    if hand.places.is_empty() {
                        let stock = chain.with(&hand.worker, Chain::stock);
                        hand.places.extend(stock);
                    }
                    let value = hand.random.uniform(0, VALUES - 1) as u32;
                    let at = hand.places.pop().expect("just topped up");
                    chain.with(&hand.worker, |chain| chain.insert(at, value));
                    hand.inserted.push_back(value);
                    hand.done.inserted += 1;
                }
                Step::Remove(value) => {
                    let removed = chain.with(&hand.worker, |chain| chain.remove(value));
                    hand.places.extend(removed);
                    hand.done.removed += u64::from(removed.is_some());
                }
                Step::Look => {
                    let value = hand.random.uniform(0, VALUES - 1) as u32;
                    let found = chain.with(&hand.worker, |chain| chain.find(value));
                    std::hint::black_box(found);
                }
            }
        }
        hand.done.operations += count;
    }

    fn check(&self, worker: &Worker, done: Done) -> Result<(), String> {
        let length = self.chain.with(worker, |chain| chain.length())?;
        as_many(length, self.loaded, done)
    }
}
