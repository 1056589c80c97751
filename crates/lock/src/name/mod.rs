//! Lock names: 24 bytes for a table, a key, the gap after the last key, or a number of the
//! embedder's.
//!
//! A name is a value: it needs no table to exist, and is compared, ordered and hashed without
//! touching memory. A table is the parent of its keys and of its end.
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
//! Bytes are read as numbers, the first byte the highest. A key of up to eight bytes is one number
//! with zeros before it, so neighbouring keys are neighbouring numbers. The tail of a key of nine
//! to sixteen bytes has zeros behind it.
//!
//! # Invariants
//!
//! * I1  Two keys of at most sixteen bytes have the same name only if they are equal. The length is
//!   part of the name, so `"a"` is not `"a\0"`.
//! * I2  A key always has the same name under the same [`KeyHasher`](crate::name::KeyHasher). Two
//!   longer keys that share their first eight bytes share a name with probability 2^-64. They then
//!   share a lock, which is one wait too many, never one too few.
//! * I3  Names of one table are ordered: the table, its keys, its end. Keys of up to sixteen bytes
//!   are in the order of their bytes.
//!
//! # Gaps
//!
//! The gap between two neighbouring keys has no name of its own. It is locked under the name of the
//! key at its right end, in the gap part of the mode. The gap after the last key is locked under
//! [`Name::end`](crate::name::Name::end).

use std::{cmp::Ordering, hash::BuildHasher};

mod display;

/// Class of the object that a [`Name`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// A table: the parent of its keys.
    Table = 0,
    /// One key of a table, and the gap before it.
    Key = 1,
    /// The gap after the last key of a table.
    End = 2,
    /// A number whose meaning only the embedder knows.
    Advisory = 3,
}

/// Length that marks a long key: the tail is a hash.
const HASHED: u8 = 17;

/// Name of a table, a key with the gap before it, the end of a table, or a number.
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
// Three words, because every lock compares names twice, and three words take three comparisons.
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

/// Packs space, class and length into one word.
#[inline(always)]
const fn origin(space: u32, class: Class, length: u8) -> u64 {
    (space as u64) << 16 | (class as u64) << 8 | length as u64
}

// Two names and a half fit a cache line; every lock head and every held lock carries one.
const _: () = assert!(size_of::<Name>() == 24);

impl Name {
    /// Returns the name of the table numbered `space`.
    #[inline]
    pub const fn table(space: u32) -> Self {
        Self::plain(space, Class::Table, 0)
    }

    /// Returns the name of the key `bytes` of table `space`, and of the gap before it.
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

    /// Returns the name of the gap after the last key of table `space`.
    #[inline]
    pub const fn end(space: u32) -> Self {
        Self::plain(space, Class::End, 0)
    }

    /// Returns the name of `number`, whose meaning is the embedder's.
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

    /// Returns the class of the named object.
    #[inline(always)]
    pub const fn class(&self) -> Class {
        // Two bits, so that the compiler sees that the number is the class.
        match (self.origin >> 8) as u8 & 3 {
            0 => Class::Table,
            1 => Class::Key,
            2 => Class::End,
            _ => Class::Advisory,
        }
    }

    /// Returns the number of the table that the name belongs to; 0 for an advisory name.
    #[inline]
    pub const fn space(&self) -> u32 {
        (self.origin >> 16) as u32
    }

    /// Returns the length of a short key, or [`HASHED`]; 0 for every other name.
    const fn length(&self) -> u8 {
        self.origin as u8
    }

    /// Returns the name whose intention lock must be held first: a key's table. Tables and advisory
    /// names have none.
    #[inline]
    pub const fn parent(&self) -> Option<Self> {
        match self.class() {
            Class::Key | Class::End => Some(Self::table(self.space())),
            Class::Table | Class::Advisory => None,
        }
    }

    /// True if only one key has this name; false if longer keys may share it (I2).
    #[inline]
    pub const fn is_exact(&self) -> bool {
        self.length() != HASHED
    }

    /// True if no other key has the same name, and it is the name of a key.
    #[inline(always)]
    pub(crate) const fn is_exact_key(&self) -> bool {
        // Compares class and length at once.
        (self.origin as u16).wrapping_sub((Class::Key as u16) << 8) < HASHED as u16
    }

    /// Compares the keys behind two names of one table, if the names suffice. They suffice unless
    /// one key is long and both share their first eight bytes, with zeros added to a shorter key.
    /// Cheaper than comparing the bytes.
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

    /// Returns the first eight bytes of a key, with zeros behind a shorter one; the head of any
    /// other name.
    #[inline]
    const fn first_bytes(&self) -> u64 {
        match self.is_in_block() {
            true => self.head << (64 - 8 * self.length() as u32),
            false => self.head,
        }
    }

    /// Returns the preceding key of the same length, for a key of one to eight bytes that is not
    /// the first of its length.
    #[inline]
    pub fn neighbour_before(&self) -> Option<Self> {
        let head = self.head.checked_sub(1).filter(|_| self.is_in_block())?;
        Some(Self { head, ..*self })
    }

    /// Returns 64 well-mixed bits. They are not keyed: a client that chooses names can choose names
    /// that collide, which costs a longer walk, never a wrong answer.
    #[inline(always)]
    pub const fn hash(&self) -> u64 {
        // A short key is hashed by its block, which `direct` needs anyway.
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

    /// Returns the name as three words; the last is below 2^48.
    #[inline(always)]
    pub(crate) const fn words(self) -> [u64; 3] {
        [self.head, self.tail, self.origin]
    }

    /// Returns the name made of these words.
    #[inline(always)]
    pub(crate) const fn from_words([head, tail, origin]: [u64; 3]) -> Self {
        Self { head, tail, origin }
    }

    /// True if the name is a key of one to eight bytes.
    #[inline(always)]
    const fn is_in_block(&self) -> bool {
        // Compares class and length at once.
        (self.origin as u16).wrapping_sub(KeyBlock::SHORTEST) < 8
    }

    /// Returns the block of a short key and the key's index in it, 0 to 63; `None` for every other
    /// name.
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

    /// As [`block`](Self::block), with the index as one bit of 64.
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

    /// Returns the hash of a short key's block, which all keys of the block share; the own hash of
    /// any other name.
    #[inline(always)]
    pub(crate) const fn near_hash(&self) -> u32 {
        match self.block() {
            Some((block, _)) => block.hash(),
            None => self.hash() as u32,
        }
    }

    /// Returns the bytes of the key that the name holds: all of them, or the first eight.
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

/// Difference between the hashes of neighbouring keys: one in the lower 24 bits.
const NEIGHBOUR: u64 = 0x9e37_79b9_7b00_0001;

/// Sixty-four neighbouring keys: keys of one table and one length, of one to eight bytes, that
/// differ only in the last six bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyBlock {
    /// The number of the block's first key.
    pub(crate) base: u64,
    pub(crate) origin: u64,
}

impl KeyBlock {
    /// No block: no name has this origin.
    pub(crate) const NONE: Self = Self {
        base: 0,
        origin: u64::MAX,
    };

    /// Lower 16 bits of the origin of a key of one byte.
    const SHORTEST: u16 = (Class::Key as u16) << 8 | 1;

    /// Returns the number of the table.
    #[inline(always)]
    pub(crate) const fn space(&self) -> u32 {
        (self.origin >> 16) as u32
    }

    /// Returns the hash that finds the block's granule, and everything else that is stored by
    /// granule.
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

    /// Returns the hash of the key at index `at`. Its low bits choose a bucket, and are those of
    /// the preceding key plus one. So a client that locks keys in their order touches neighbouring
    /// lines of memory in order, and the processor prefetches them. The highest bits, which the
    /// owner's list of locks uses, are unrelated to those of the neighbour.
    #[inline(always)]
    const fn hash_of(&self, at: u32) -> u64 {
        self.long_hash()
            .wrapping_add((at as u64).wrapping_mul(NEIGHBOUR))
    }

    /// Returns the key at index `at`.
    #[inline(always)]
    pub(crate) const fn name(&self, at: u32) -> Name {
        Name {
            head: self.base | at as u64,
            tail: 0,
            origin: self.origin,
        }
    }
}

/// Multiplies to 128 bits and folds the halves, so that every bit of the result depends on many
/// bits of `x`.
#[inline(always)]
const fn fold(x: u64, y: u64) -> u64 {
    let product = x as u128 * y as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Reads up to eight bytes as a number.
#[inline]
fn big_endian(bytes: &[u8]) -> u64 {
    // Two overlapping halves instead of a loop or a copy of unknown length, because every lock on a
    // short key comes through here.
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

/// As [`big_endian`], with zeros behind fewer than eight bytes. `bytes` is not empty.
#[inline]
fn big_endian_padded(bytes: &[u8]) -> u64 {
    big_endian(bytes) << (64 - 8 * bytes.len())
}

/// Hashes the tail of a long key to 64 bits. One per database, so that a key has one name.
#[derive(Debug, Clone)]
pub struct KeyHasher(foldhash::quality::FixedState);

impl KeyHasher {
    /// Returns a hasher keyed by `seed`. A random seed keeps outsiders from choosing keys that
    /// share a lock. Names need not be the same from one run to the next.
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
        // 64 are expected in each; the standard deviation is 8.
        assert!(
            counts.iter().all(|count| (16..128).contains(count)),
            "{counts:?}"
        );
        assert_ne!(Name::table(1).hash(), Name::end(1).hash());
        assert_ne!(Name::table(1).hash(), Name::table(2).hash());
    }
}
