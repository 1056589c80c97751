//! Contents of a page, and changes of it.
//!
//! A page holds things: a number and a value each. It has one place in the file, and a checksum
//! that depends on that place. It carries the LSN of its last change.
//!
//! ```text
//!  0       4       8       16      24
//!  +-------+-------+-------+-------+---------------------------+-------
//!  | check | count | page  | LSN   | thing u32, value i64  ... | zeros
//!  +-------+-------+-------+-------+---------------------------+-------
//! ```

use foxton_log::Lsn;
use foxton_store::paged::recovery::PageId;
use std::collections::BTreeMap;

/// Number of a thing, which is in one of the pages.
pub type Thing = u32;

const HEAD: usize = 24;
const ITEM: usize = 12;

/// Contents of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// It has every change up to this LSN.
    pub lsn: Lsn,
    /// The things in it, and their values.
    pub things: BTreeMap<Thing, i64>,
}

/// State of the bytes at a page's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing was ever written there, or it was lost.
    Nothing,
    /// A whole page.
    Whole(Page),
    /// Neither.
    Broken,
}

impl Page {
    /// Returns the bytes of the page, as many as `size`.
    pub fn encode(&self, id: PageId, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        bytes[4..8].copy_from_slice(&(self.things.len() as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&id.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.lsn.bytes().to_le_bytes());
        bytes.extend(items(&self.things));
        assert!(bytes.len() <= size, "the run puts fewer things into a page");
        bytes.resize(size, 0);
        let check = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Decodes the bytes at the place of page `id`.
    pub fn decode(id: PageId, bytes: &[u8]) -> Found {
        if bytes.iter().all(|byte| *byte == 0) {
            return Found::Nothing;
        }
        let u32_at = |at| number(&bytes[at..at + 4]) as u32;
        let sound = bytes.len() > HEAD
            && u32_at(0) == crc32c::crc32c(&bytes[4..])
            && number(&bytes[8..16]) == id.0;
        if !sound {
            return Found::Broken;
        }
        let end = HEAD + u32_at(4) as usize * ITEM;
        let things = bytes.get(HEAD..end).and_then(things);
        things.map_or(Found::Broken, |things| {
            let lsn = Lsn::new(number(&bytes[16..24]));
            Found::Whole(Page { lsn, things })
        })
    }

    /// Makes the change, if it can be made; returns whether.
    #[must_use]
    pub fn make(&mut self, change: &Change) -> bool {
        match change {
            Change::Put(thing, value) => {
                self.things.insert(*thing, *value);
                true
            }
            Change::Add(thing, more) => self
                .things
                .get_mut(thing)
                .map(|value| *value += more)
                .is_some(),
            Change::Remove(thing) => self.things.remove(thing).is_some(),
            Change::Image(things) => {
                self.things.clone_from(things);
                true
            }
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut eight = [0; 8];
    eight[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(eight)
}

fn items(things: &BTreeMap<Thing, i64>) -> Vec<u8> {
    let item = |(thing, value): (&Thing, &i64)| {
        let mut item = thing.to_le_bytes().to_vec();
        item.extend(value.to_le_bytes());
        item
    };
    things.iter().flat_map(item).collect()
}

fn things(bytes: &[u8]) -> Option<BTreeMap<Thing, i64>> {
    let item = |item: &[u8]| (number(&item[..4]) as Thing, number(&item[4..]) as i64);
    bytes
        .len()
        .is_multiple_of(ITEM)
        .then(|| bytes.chunks(ITEM).map(item).collect())
}

/// A change of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Puts a thing with this value.
    Put(Thing, i64),
    /// Adds to a thing that is there. Doing it twice is wrong.
    Add(Thing, i64),
    /// Removes a thing.
    Remove(Thing),
    /// Makes this the whole contents of the page.
    Image(BTreeMap<Thing, i64>),
}

impl Change {
    /// Encodes the change for a log record.
    pub fn encode(&self) -> Vec<u8> {
        let (tag, rest) = match self {
            Change::Put(thing, value) => (0, items(&[(*thing, *value)].into())),
            Change::Add(thing, more) => (1, items(&[(*thing, *more)].into())),
            Change::Remove(thing) => (2, items(&[(*thing, 0)].into())),
            Change::Image(things) => (3, items(things)),
        };
        [vec![tag], rest].concat()
    }

    /// Decodes a change, if `bytes` are one.
    pub fn decode(bytes: &[u8]) -> Option<Change> {
        let (tag, rest) = bytes.split_first()?;
        let all = things(rest)?;
        if *tag == 3 {
            return Some(Change::Image(all));
        }
        let (thing, value) = all.into_iter().next()?;
        match tag {
            0 => Some(Change::Put(thing, value)),
            1 => Some(Change::Add(thing, value)),
            2 => Some(Change::Remove(thing)),
            _ => None,
        }
    }
}

/// How a change is undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Back {
    /// On the page that was changed: for a thing that is new, and so has not moved.
    Here(Change),
    /// On whichever page has the thing by then.
    There(Change),
}

impl Back {
    /// Encodes it for a log record.
    pub fn encode(&self) -> Vec<u8> {
        let (tag, change) = match self {
            Back::Here(change) => (0, change),
            Back::There(change) => (1, change),
        };
        [vec![tag], change.encode()].concat()
    }

    /// Decodes it, if `bytes` are one.
    pub fn decode(bytes: &[u8]) -> Option<Back> {
        let (tag, rest) = bytes.split_first()?;
        let change = Change::decode(rest)?;
        match tag {
            0 => Some(Back::Here(change)),
            1 => Some(Back::There(change)),
            _ => None,
        }
    }
}
