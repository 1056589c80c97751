//! What can be locked: 24 bytes that name a table, a key, the gap after the last key, or anything
//! the embedder numbers.
//!
//! A name is a value, not a place: it needs no table to exist and is compared, ordered and hashed
//! without touching memory. Tables are the parents of their keys, and of the end.
//!
//! ```text
//!        head     tail     origin, from its highest bits:
//!                          space    class   length
//! bits   64       64       48       8       8
//! key    number   0        table    1       0..=8   a key of up to eight bytes, exactly
//! key    bytes    bytes    table    1       9..=16  one of up to sixteen, exactly
//!        0..8     8..16
//! key    bytes    hash of  table    1       17      a longer key
//!        0..8     the rest
//! ```
//!
//! Bytes are numbers, the first byte the highest. Those of a key of up to eight are one number, with zeros
//! before it, so that neighbours are neighbours; the tail of up to sixteen has zeros behind it.
//!
//! # Invariants
//!
//! * I1  Two keys of at most sixteen bytes have one name only if they are equal; the length is part
//!   of the name, so `"a"` is not `"a\0"`.
//! * I2  A key always has the same name under the same [`KeyHasher`](crate::name::KeyHasher). Two longer keys may share a
//!   name, with a probability of 2^-64 for two that share their first eight bytes: they then share a
//!   lock, which is one wait too many, never one too few.
//! * I3  Names of one table are ordered: the table, its keys, its end. Keys of up to sixteen bytes
//!   are in the order of their bytes.
//!
//! # Gaps
//!
//! The gap between two neighbouring keys has no name of its own. It is locked under the name of the
//! key at its right end, in the gap part of the mode; the gap after the last key under
//! [`Name::end`](crate::name::Name::end).

use std::{cmp::Ordering, hash::BuildHasher};

mod display;

/// What kind of thing a [`Name`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// A table: the parent of its keys.
    Table = 0,
    /// One key of a table, and the gap before it.
    Key = 1,
    /// The gap after the last key of a table.
    End = 2,
    /// A number that means something to the embedder alone.
    Advisory = 3,
}

/// The length that says: the tail is a hash.
const HASHED: u8 = 17;

/// The name of something that can be locked.
///
/// ```
/// use foxton_lock::name::{KeyHasher, Name};
///
/// let hasher = KeyHasher::new(7);
/// let ann = Name::key(3, b"ann", &hasher);
/// assert_eq!(ann.parent(), Some(Name::table(3)));
/// assert!(Name::table(3) < ann && ann < Name::key(3, b"bob", &hasher));
/// assert!(Name::key(3, b"bob", &hasher) < Name::end(3));
/// assert_eq!(ann.to_string(), "3/ann");
/// ```
// Three words, so that two names are compared by three comparisons; every lock does that twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    head: u64,
    tail: u64,
    origin: u64,
}

impl Ord for Name {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        // Space and class, then the bytes, then the length (I3).
        let rank = |name: &Self| (name.origin >> 8, name.first_bytes(), name.tail, name.origin);
        rank(self).cmp(&rank(other))
    }
}

impl PartialOrd for Name {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Space, class and length in one word.
#[inline(always)]
const fn origin(space: u32, class: Class, length: u8) -> u64 {
    (space as u64) << 16 | (class as u64) << 8 | length as u64
}

// Two names and a half fit a cache line; every lock head and every held lock carries one.
const _: () = assert!(size_of::<Name>() == 24);

impl Name {
    /// The table numbered `space`.
    #[inline]
    pub const fn table(space: u32) -> Self {
        Self::plain(space, Class::Table, 0)
    }

    /// The key `bytes` of the table `space`, and the gap before it.
    #[inline]
    pub fn key(space: u32, bytes: &[u8], hasher: &KeyHasher) -> Self {
        let (tail, length) = match bytes.len() {
            0..=8 => (0, bytes.len() as u8),
            9..=16 => (big_endian_padded(&bytes[8..]), bytes.len() as u8),
            _ => (hasher.hash(&bytes[8..]), HASHED),
        };
        let head = match bytes.first_chunk::<8>() {
            Some(first) => u64::from_be_bytes(*first),
            None => big_endian(bytes),
        };
        Self {
            head,
            tail,
            origin: origin(space, Class::Key, length),
        }
    }

    /// The gap after the last key of the table `space`.
    #[inline]
    pub const fn end(space: u32) -> Self {
        Self::plain(space, Class::End, 0)
    }

    /// The number `number`, whatever it means to the embedder.
    #[inline]
    pub const fn advisory(number: u64) -> Self {
        Self::plain(0, Class::Advisory, number)
    }

    const fn plain(space: u32, class: Class, head: u64) -> Self {
        Self {
            head,
            tail: 0,
            origin: origin(space, class, 0),
        }
    }

    /// What kind of thing this names.
    #[inline(always)]
    pub const fn class(&self) -> Class {
        // Two bits: the compiler sees that the number is the class.
        match (self.origin >> 8) as u8 & 3 {
            0 => Class::Table,
            1 => Class::Key,
            2 => Class::End,
            _ => Class::Advisory,
        }
    }

    /// The number of the table this belongs to; 0 for an advisory name.
    #[inline]
    pub const fn space(&self) -> u32 {
        (self.origin >> 16) as u32
    }

    /// The length of a short key, or [`HASHED`]; 0 for everything else.
    const fn length(&self) -> u8 {
        self.origin as u8
    }

    /// The name whose intention lock covers this one: a key's table. Tables and advisory names
    /// have none.
    #[inline]
    pub const fn parent(&self) -> Option<Self> {
        match self.class() {
            Class::Key | Class::End => Some(Self::table(self.space())),
            Class::Table | Class::Advisory => None,
        }
    }

    /// Whether the name is exactly one key's, or may be shared by longer ones (I2).
    #[inline]
    pub const fn is_exact(&self) -> bool {
        self.length() != HASHED
    }

    /// How the keys that two names of one table stand for are ordered, if the names tell: always,
    /// unless one key is long and they share their first eight bytes, zeros added to a shorter one.
    /// Costs less than comparing the bytes.
    #[inline]
    pub fn key_order(&self, other: &Self) -> Option<Ordering> {
        let (first, others) = match self.length() == other.length() {
            true => (self.head, other.head),
            false => (self.first_bytes(), other.first_bytes()),
        };
        if first != others {
            return Some(first.cmp(&others));
        }
        let exact = self.is_exact() && other.is_exact();
        exact.then(|| (self.tail, self.length()).cmp(&(other.tail, other.length())))
    }

    /// The first eight bytes of a key, with zeros behind a shorter one; of any other name its head.
    #[inline]
    const fn first_bytes(&self) -> u64 {
        match self.is_in_block() {
            true => self.head << (64 - 8 * self.length() as u32),
            false => self.head,
        }
    }

    /// The key of the same length that comes right before this one, for a key of one to eight bytes that
    /// is not the first of its length.
    #[inline]
    pub fn neighbour_before(&self) -> Option<Self> {
        let head = self.head.checked_sub(1).filter(|_| self.is_in_block())?;
        Some(Self { head, ..*self })
    }

    /// 64 well-mixed bits. Not keyed: who may choose names may choose names that collide, which
    /// costs a longer walk, not a wrong answer.
    #[inline(always)]
    pub const fn hash(&self) -> u64 {
        // A short key by its block, which `direct` needs besides.
        if let Some((block, at)) = self.block() {
            return block.hash_of(at);
        }
        if matches!(self.class(), Class::Table) {
            return fold(self.origin ^ 0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93);
        }
        // The origin is below 2^48, so the second factor is never small, nor 0.
        let first = fold(
            self.head ^ 0x243f_6a88_85a3_08d3,
            self.origin ^ 0x9e37_79b9_7f4a_7c15,
        );
        fold(first ^ self.tail, 0xd6e8_feb8_6659_fd93)
    }

    /// The name as three words, of which the last is below 2^48.
    #[inline(always)]
    pub(crate) const fn words(self) -> [u64; 3] {
        [self.head, self.tail, self.origin]
    }

    /// The name that these are the words of.
    #[inline(always)]
    pub(crate) const fn from_words([head, tail, origin]: [u64; 3]) -> Self {
        Self { head, tail, origin }
    }

    /// Whether it is a key of one to eight bytes.
    #[inline(always)]
    const fn is_in_block(&self) -> bool {
        // Class and length in one comparison.
        (self.origin as u16).wrapping_sub(KeyBlock::SHORTEST) < 8
    }

    /// The block of the key, and which of its 64 keys it is; for short keys only.
    #[inline(always)]
    pub(crate) const fn block(&self) -> Option<(KeyBlock, u32)> {
        if !self.is_in_block() {
            return None;
        }
        let block = KeyBlock {
            base: self.head & !63,
            origin: self.origin,
        };
        Some((block, self.head as u32 & 63))
    }

    /// The same, with the key as one bit of 64.
    #[inline(always)]
    pub(crate) const fn block_bit(&self) -> Option<(KeyBlock, u64)> {
        if !self.is_in_block() {
            return None;
        }
        let block = KeyBlock {
            base: self.head & !63,
            origin: self.origin,
        };
        Some((block, 1_u64.wrapping_shl(self.head as u32)))
    }

    /// The hash of the block of a short key, so that neighbours have the same; of any other name its own.
    #[inline(always)]
    pub(crate) const fn near_hash(&self) -> u32 {
        match self.block() {
            Some((block, _)) => block.hash(),
            None => self.hash() as u32,
        }
    }

    /// The bytes of a key that the name still knows: all of them, or the first eight.
    fn known_bytes(&self) -> impl Iterator<Item = u8> {
        let count = if self.is_exact() { self.length() } else { 8 };
        let bytes = self
            .first_bytes()
            .to_be_bytes()
            .into_iter()
            .chain(self.tail.to_be_bytes());
        bytes.take(count as usize)
    }
}

/// How far the hashes of neighbours are apart: one in the lower 24 bits.
const NEIGHBOUR: u64 = 0x9e37_79b9_7b00_0001;

/// Sixty-four neighbours: the keys of one table and length, of one to eight bytes, that differ in
/// the last six bits only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyBlock {
    /// The number of the first of them.
    pub(crate) base: u64,
    pub(crate) origin: u64,
}

impl KeyBlock {
    /// The last bytes of the origin of a key of one byte.
    const SHORTEST: u16 = (Class::Key as u16) << 8 | 1;

    /// Finds the granule, and with it all that is kept by granule.
    #[inline(always)]
    pub(crate) const fn hash(&self) -> u32 {
        self.long_hash() as u32
    }

    #[inline(always)]
    const fn long_hash(&self) -> u64 {
        fold(
            self.base ^ self.origin.wrapping_mul(0x7f4a_7c15),
            0xd6e8_feb8_6659_fd93,
        )
    }

    /// The hash of the key in the place `at`. Its low bits, which choose a bucket, are those of the neighbour before and
    /// one: whoever comes to keys in their order then comes to lines of memory in their order, which the processor
    /// fetches ahead. The highest ones, which a list of held locks goes by, have nothing to do with the neighbour's.
    #[inline(always)]
    const fn hash_of(&self, at: u32) -> u64 {
        self.long_hash()
            .wrapping_add((at as u64).wrapping_mul(NEIGHBOUR))
    }

    /// The key in the place `at`.
    #[inline(always)]
    pub(crate) const fn name(&self, at: u32) -> Name {
        Name {
            head: self.base | at as u64,
            tail: 0,
            origin: self.origin,
        }
    }
}

/// The two halves of the 128-bit product, folded: every bit of the result hangs on many of `x`.
#[inline(always)]
const fn fold(x: u64, y: u64) -> u64 {
    let product = x as u128 * y as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Up to eight bytes as a number.
#[inline]
fn big_endian(bytes: &[u8]) -> u64 {
    // Two overlapping halves instead of a loop or a copy of unknown length: four nanoseconds less
    // on the way of every lock on a short key.
    match bytes.len() {
        8 => u64::from_be_bytes(bytes.try_into().expect("eight bytes")),
        4..=7 => {
            let first = u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"));
            let last = u32::from_be_bytes(bytes[bytes.len() - 4..].try_into().expect("four bytes"));
            u64::from(first) << (8 * (bytes.len() - 4)) | u64::from(last)
        }
        _ => bytes
            .iter()
            .fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
    }
}

/// The same, with zeros behind fewer than eight. There must be one.
#[inline]
fn big_endian_padded(bytes: &[u8]) -> u64 {
    big_endian(bytes) << (64 - 8 * bytes.len())
}

/// Turns the rest of a long key into 64 bits. One per database, so that one key has one name.
#[derive(Debug, Clone)]
pub struct KeyHasher(foldhash::quality::FixedState);

impl KeyHasher {
    /// A hasher keyed by `seed`. A random seed keeps outsiders from choosing keys that share a
    /// lock; names need not be the same from one run to the next.
    pub fn new(seed: u64) -> Self {
        Self(foldhash::quality::FixedState::with_seed(seed))
    }

    fn hash(&self, rest: &[u8]) -> u64 {
        self.0.hash_one(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> Name {
        Name::key(1, bytes, &KeyHasher::new(1))
    }

    #[test]
    fn short_keys_are_named_exactly_and_in_order() {
        let mut keys: Vec<Vec<u8>> = vec![vec![]];
        for length in 1..=16 {
            for byte in [0, 1, b'a', 255] {
                keys.push(vec![byte; length]);
                let mut other = vec![7; length];
                other[length - 1] = byte;
                keys.push(other);
            }
        }
        keys.sort();
        keys.dedup();
        for pair in keys.windows(2) {
            assert!(key(&pair[0]) < key(&pair[1]), "{pair:?}");
            assert!(key(&pair[0]).is_exact());
        }
    }

    #[test]
    fn names_that_tell_order_keys_as_their_bytes_do() {
        let mut keys: Vec<Vec<u8>> = vec![vec![]];
        for length in [1, 4, 7, 8, 9, 15, 16, 17, 40] {
            for byte in [0, 1, 255] {
                keys.push(vec![byte; length]);
                let mut other = vec![7; length];
                other[length - 1] = byte;
                keys.push(other);
            }
        }
        for one in &keys {
            for other in &keys {
                match key(one).key_order(&key(other)) {
                    Some(order) => assert_eq!(order, one.cmp(other), "{one:?} {other:?}"),
                    None => assert!(one.len().max(other.len()) > 16, "{one:?} {other:?}"),
                }
            }
        }
    }

    #[test]
    fn the_length_is_part_of_the_name() {
        assert_ne!(key(b"a"), key(b"a\0"));
        assert_ne!(key(b""), key(b"\0"));
    }

    #[test]
    fn long_keys_differ_by_their_rest_and_keep_their_first_eight_bytes_in_order() {
        let (one, other) = (key(b"0123456789abcdefg"), key(b"0123456789abcdefh"));
        assert_ne!(one, other);
        assert!(!one.is_exact());
        assert!(key(b"0123456z89abcdefg") > one);
        assert_eq!(one, key(b"0123456789abcdefg"));
        assert_ne!(
            one,
            Name::key(1, b"0123456789abcdefg", &KeyHasher::new(2)),
            "the seed decides"
        );
    }

    #[test]
    fn a_long_key_is_never_taken_for_a_short_one() {
        let long = key(b"0123456789abcdefg");
        let mut short = b"01234567".to_vec();
        short.extend(long.tail.to_be_bytes());
        assert_ne!(long, key(&short));
    }

    #[test]
    fn the_table_comes_before_its_keys_and_its_end_after() {
        assert!(Name::table(1) < key(b""));
        assert!(key(&[255; 40]) < Name::end(1));
        assert!(Name::end(1) < Name::table(2));
        assert_eq!(key(b"x").parent(), Some(Name::table(1)));
        assert_eq!(Name::end(1).parent(), Some(Name::table(1)));
        assert_eq!(Name::table(1).parent(), None);
        assert_eq!(Name::advisory(1).parent(), None);
    }

    #[test]
    fn neighbours_of_a_short_key_share_its_block() {
        for number in [0u64, 63, 64, 1000, u64::from(u32::MAX)] {
            for bytes in [
                &number.to_be_bytes()[..],
                &(number as u32).to_be_bytes()[..],
            ] {
                let name = key(bytes);
                let (block, at) = name.block().unwrap();
                assert_eq!(u64::from(at), number % 64);
                assert_eq!(block.name(at), name);
                assert_eq!(block.name(0).block(), Some((block, 0)));
            }
        }
        let next = |number: u32| key(&number.to_be_bytes()).block().unwrap().0;
        assert_eq!(next(64), next(127));
        assert_ne!(next(127), next(128));
        for long in [key(b""), key(b"012345678"), Name::end(1), Name::table(1)] {
            assert_eq!(long.block(), None);
        }
    }

    #[test]
    fn neighbours_have_neighbouring_buckets_and_differ_in_what_owners_look_at() {
        for length in 1..=8 {
            let mut bytes = vec![7; length];
            let hashes = (64..128).map(|last| {
                bytes[length - 1] = last;
                key(&bytes).hash() as u32
            });
            let hashes: Vec<u32> = hashes.collect();
            for pair in hashes.windows(2) {
                let apart = pair[1].wrapping_sub(pair[0]);
                assert_eq!(apart & 0xff_ffff, 1, "{length} bytes");
            }
            let mut high: Vec<u32> = hashes.iter().map(|hash| hash >> 24).collect();
            high.sort_unstable();
            high.dedup();
            assert!(high.len() > 60, "{length} bytes: {high:?}");
        }
    }

    #[test]
    fn hashes_of_neighbours_spread_over_a_small_table() {
        let mut counts = [0u32; 256];
        for number in 0..256 * 64u64 {
            counts[key(&number.to_be_bytes()).hash() as usize % 256] += 1;
        }
        // 64 expected in each, standard deviation 8.
        assert!(
            counts.iter().all(|count| (16..128).contains(count)),
            "{counts:?}"
        );
        assert_ne!(Name::table(1).hash(), Name::end(1).hash());
        assert_ne!(Name::table(1).hash(), Name::table(2).hash());
    }
}
