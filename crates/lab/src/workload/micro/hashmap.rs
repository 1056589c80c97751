//! A hash map of chains: a latch for each bucket, or one for all [001 §3.3.4].
//!
//! A value is in the bucket of its remainder by the number of buckets, once. An item is allocated
//! before the latch is acquired and freed after its release, as in the document.

use std::collections::HashSet;

use foxton_sync::{
    latch::{Kind, Latched},
    worker::Worker,
};

use super::{Done, Hand, OneLine, SITE, Step, Structure, as_many};
use crate::random::Random;

/// Values are below this: those of a signed number [001 §3.3.4].
const VALUES: u64 = 1 << 31;
/// Percentage of searches.
const READS: u32 = 50;

#[derive(Debug)]
#[repr(align(64))]
struct Item {
    value: u32,
    next: Option<Box<Item>>,
}

#[derive(Debug, Default)]
struct Chain(Option<Box<Item>>);

impl Chain {
    /// True if it was new; if not, the item is returned.
    fn insert(&mut self, item: Box<Item>) -> Result<(), Box<Item>> {
        let mut link = &mut self.0;
        while let Some(there) = link {
            if there.value == item.value {
                return Err(item);
            }
            link = &mut there.next;
        }
        *link = Some(item);
        Ok(())
    }

    fn remove(&mut self, value: u32) -> Option<Box<Item>> {
        let mut link = &mut self.0;
        while link.as_ref().is_some_and(|there| there.value != value) {
            link = &mut link.as_mut().expect("asked above").next;
        }
        let mut item = link.take()?;
        *link = item.next.take();
        Some(item)
    }

    fn values(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(self.0.as_deref(), |item| item.next.as_deref()).map(|item| item.value)
    }
}

impl Drop for Chain {
    /// Items are dropped one after the other, because recursion over a long chain would need a deep
    /// stack.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut item) = next {
            next = item.next.take();
        }
    }
}

#[derive(Debug)]
enum Buckets {
    Each(Vec<OneLine<Latched<Chain>>>),
    All(Latched<Vec<OneLine<Chain>>>),
}

/// The map.
#[derive(Debug)]
pub struct HashMap {
    buckets: Buckets,
    count: u32,
    loaded: u32,
}

impl HashMap {
    /// A map of `count` buckets with `loaded` values, behind one latch if `global`.
    pub fn new(kind: Kind, count: u32, loaded: u32, global: bool) -> HashMap {
        let mut chains: Vec<Chain> = (0..count).map(|_| Chain::default()).collect();
        let mut random = Random::seeded(&[u64::from(count), u64::from(loaded)]);
        let mut left = loaded;
        while left > 0 {
            let item = drawn(&mut random);
            let bucket = item.value % count;
            left -= u32::from(chains[bucket as usize].insert(item).is_ok());
        }
        let buckets = chains.into_iter();
        HashMap {
            buckets: match global {
                true => Buckets::All(Latched::new(kind, &SITE, buckets.map(OneLine).collect())),
                false => Buckets::Each(
                    buckets
                        .map(|chain| OneLine(Latched::new(kind, &SITE, chain)))
                        .collect(),
                ),
            },
            count,
            loaded,
        }
    }

    fn with<R>(&self, worker: &Worker, value: u32, body: impl FnOnce(&mut Chain) -> R) -> R {
        let at = (value % self.count) as usize;
        match &self.buckets {
            Buckets::Each(all) => all[at].0.with(worker, body),
            Buckets::All(all) => all.with(worker, |all| body(&mut all[at].0)),
        }
    }
}

fn drawn(random: &mut Random) -> Box<Item> {
    Box::new(Item {
        value: random.uniform(0, VALUES - 1) as u32,
        next: None,
    })
}

impl Structure for HashMap {
    fn operate(&self, hand: &mut Hand, count: u64) {
        for _ in 0..count {
            match hand.step(READS) {
                Step::Insert => {
                    let item = drawn(&mut hand.random);
                    let value = item.value;
                    let inserted = self.with(&hand.worker, value, |chain| chain.insert(item));
                    if inserted.is_ok() {
                        hand.inserted.push_back(value);
                        hand.done.inserted += 1;
                    }
                }
                Step::Remove(value) => {
                    let removed = self.with(&hand.worker, value, |chain| chain.remove(value));
                    hand.done.removed += u64::from(removed.is_some());
                }
                Step::Look => {
                    let value = hand.random.uniform(0, VALUES - 1) as u32;
                    let look = |chain: &mut Chain| chain.values().any(|other| other == value);
                    std::hint::black_box(self.with(&hand.worker, value, look));
                }
            }
        }
        hand.done.operations += count;
    }

    fn check(&self, worker: &Worker, done: Done) -> Result<(), String> {
        let (mut seen, mut found) = (HashSet::new(), 0);
        for bucket in 0..self.count {
            let values: Vec<u32> = self.with(worker, bucket, |chain| chain.values().collect());
            found += values.len();
            if let Some(value) = values.iter().find(|&&value| value % self.count != bucket) {
                return Err(format!("{value} is in bucket {bucket}"));
            }
            if let Some(value) = values.into_iter().find(|&value| !seen.insert(value)) {
                return Err(format!("{value} is there twice"));
            }
        }
        as_many(found, self.loaded, done)
    }
}
