//! Prefix: the bytes that all keys of a node begin with, so that their heads need not contain them.
//!
//! Keys made of several columns share more than a head holds: all order lines of one district begin
//! with the same eight bytes, and so would their heads. Then only the records themselves tell their
//! keys apart, and each step of a search touches another. So a node keeps the bytes that all its
//! keys begin with, up to sixteen, and heads and tags are of the bytes behind them. (Prefix
//! truncation, from Bayer and Unterauer, "Prefix B-Trees", 1977; Graefe, "Modern B-Tree
//! Techniques", 2011, has it beside heads of keys, which are *poor man's normalized keys* there.)
//!
//! # State
//!
//! The length, and the bytes, in two words of the node's first cache line. Keys of up to eight
//! bytes need no prefix, and a node of such keys has none.
//!
//! # Invariants
//!
//! * X1  While no latch is held: every key in a slot of a leaf, and in a slot of a branch from 1
//!   on, begins with the prefix. Head and tag of the slot are those of the key's rest.
//! * X2  The prefix becomes longer only where a node is split, or had no key; for a key that does
//!   not begin with it, it becomes shorter. So between two splits the slots are rewritten at most
//!   as often as the prefix is long.

use super::IndexNode;
use crate::memory::search_key::{HEAD_BYTES, LONG, SearchKey, head, tag};
use foxton_sync::shim::Ordering::Relaxed;
use std::cmp::Ordering;

/// Maximum bytes of a prefix.
pub(super) const MAX_BYTES: usize = 16;

/// The bytes that all keys of a node begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::memory) struct Prefix {
    length: usize,
    /// The bytes, the first one the highest, and zeros behind them.
    words: [u64; MAX_BYTES / HEAD_BYTES],
}

/// Returns the first sixteen bytes of a key, with zeros behind a shorter one.
#[inline]
fn words_of(key: &[u8]) -> [u64; 2] {
    let behind = key.get(HEAD_BYTES..).unwrap_or_default();
    [head(key), head(behind)]
}

/// Returns a mask of the highest `length` bytes of two words.
#[inline]
fn mask(length: usize) -> [u64; 2] {
    let mask = |bytes: usize| u64::MAX.checked_shl(64 - 8 * bytes as u32).unwrap_or(0);
    [
        mask(length.min(HEAD_BYTES)),
        mask(length.saturating_sub(HEAD_BYTES)),
    ]
}

/// Number of bytes that two keys have in common at their beginning.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

impl Prefix {
    /// Returns the first `length` bytes of `key`, which has as many.
    fn of(key: &[u8], length: usize) -> Self {
        let (words, mask) = (words_of(key), mask(length));
        Self {
            length,
            words: [words[0] & mask[0], words[1] & mask[1]],
        }
    }

    /// Number of its bytes.
    #[inline]
    pub(in crate::memory) fn length(&self) -> usize {
        self.length
    }

    /// Returns the part of `search_key` behind the prefix. If it does not begin with the prefix,
    /// returns on which side of all keys that do it is.
    #[inline]
    pub(in crate::memory) fn strip<'k>(
        &self,
        search_key: &SearchKey<'k>,
    ) -> Result<SearchKey<'k>, Ordering> {
        let mask = mask(self.length);
        let mut order = (search_key.head & mask[0]).cmp(&self.words[0]);
        if order.is_eq() && self.length > HEAD_BYTES {
            let behind = search_key.bytes.get(HEAD_BYTES..).unwrap_or_default();
            order = (head(behind) & mask[1]).cmp(&self.words[1]);
        }
        match search_key.bytes.get(self.length..) {
            Some(rest) if order.is_eq() => Ok(SearchKey::new(rest)),
            // A key that ends within the prefix, and is zeros where it has ended, comes before all
            // that continue.
            None => Err(order.then(Ordering::Less)),
            Some(_) => Err(order),
        }
    }

    /// Number of its bytes that `key` begins with.
    fn shared_with(&self, key: &[u8]) -> usize {
        let own = self.words.map(u64::to_be_bytes);
        common(&own.as_flattened()[..self.length], key)
    }
}

impl<const N: usize> IndexNode<N> {
    /// True if it has a prefix.
    #[inline(always)]
    pub(in crate::memory) fn has_prefix(&self) -> bool {
        // Relaxed: validated by the version, like everything read here.
        self.prefix_bytes.load(Relaxed) != 0
    }

    /// Returns its prefix.
    #[inline]
    pub(in crate::memory) fn prefix(&self) -> Prefix {
        // Relaxed: as above.
        Prefix {
            length: usize::from(self.prefix_bytes.load(Relaxed)),
            words: [0, 1].map(|word: usize| self.prefix_words[word].load(Relaxed)),
        }
    }

    /// Returns the part of `key` behind the prefix, with which it begins.
    #[inline]
    pub(super) fn without_prefix<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        // Relaxed: called under the latch.
        &key[usize::from(self.prefix_bytes.load(Relaxed))..]
    }

    /// Stores the prefix; heads and tags must follow.
    pub(super) fn set_prefix(&self, prefix: Prefix) {
        let length = u8::try_from(prefix.length).expect("a prefix has few bytes");
        // Relaxed: published by the latch.
        self.prefix_bytes.store(length, Relaxed);
        for (place, word) in self.prefix_words.iter().zip(prefix.words) {
            place.store(word, Relaxed);
        }
    }

    /// Returns the first slot with a key of its own: that of a branch's slot 0 is never read.
    fn first_keyed(&self) -> usize {
        usize::from(self.level > 0)
    }

    /// Shortens the prefix so that `key`, which is about to be inserted, begins with it (X1).
    #[inline]
    pub(super) fn fit_prefix(&self, key: &[u8]) {
        let is_first = self.count() <= self.first_keyed();
        if self.has_prefix() || is_first && key.len() > HEAD_BYTES {
            self.fit_prefix_slow(key, is_first);
        }
    }

    #[inline(never)]
    fn fit_prefix_slow(&self, key: &[u8], is_first: bool) {
        if is_first {
            return self.set_prefix(Prefix::of(key, prefix_bytes_for(key.len())));
        }
        let prefix = self.prefix();
        let shared = prefix.shared_with(key);
        if shared < prefix.length {
            self.rewrite(Prefix::of(key, shared));
        }
    }

    /// Makes the prefix as long as saves comparisons of whole keys, after the node has lost keys.
    #[inline(never)]
    pub(super) fn lengthen_prefix(&self) {
        let (first, count) = (self.first_keyed(), self.count());
        // Keys that a head and a tag tell apart gain nothing, and so are not read.
        let is_long = |slot| self.tag(slot) == LONG;
        if first >= count || !(is_long(first) || is_long(count - 1)) {
            return;
        }
        // All keys between two begin with the bytes that both begin with.
        let (first, last) = (self.key(first), self.key(count - 1));
        let longest = first.len().max(last.len());
        let length = prefix_bytes_for(longest).min(common(first, last));
        if length > self.prefix().length {
            self.rewrite(Prefix::of(first, length));
        }
    }

    /// Gives the node a prefix that all its keys begin with, and every slot its head and tag behind
    /// it.
    #[cold]
    #[inline(never)]
    fn rewrite(&self, prefix: Prefix) {
        self.set_prefix(prefix);
        for index in self.first_keyed()..self.count() {
            let rest = self.without_prefix(self.key(index));
            self.set_key(index, head(rest), tag(rest));
        }
    }
}

/// Returns the length of the prefix that leaves of a key of so many bytes what a head holds.
fn prefix_bytes_for(bytes: usize) -> usize {
    bytes.saturating_sub(HEAD_BYTES).min(MAX_BYTES)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const KEYS: [&[u8]; 16] = [
        b"",
        b"\0",
        b"a",
        b"a\0",
        b"ab",
        b"ab\0\0",
        b"abc",
        b"abcdefgh",
        b"abcdefgh\0",
        b"abcdefghi",
        b"abcdefghij",
        b"abcdefghijklmnop",
        b"abcdefghijklmnopq",
        b"abd",
        b"b",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ];

    #[test]
    fn a_key_has_the_prefix_or_is_on_the_right_side_of_all_that_have() {
        for whole in KEYS {
            for length in 0..=whole.len().min(MAX_BYTES) {
                let prefix = Prefix::of(whole, length);
                let bytes = &whole[..length];
                for key in KEYS {
                    assert_eq!(prefix.shared_with(key), common(bytes, key));
                    match prefix.strip(&SearchKey::new(key)) {
                        Ok(rest) => assert_eq!([bytes, rest.bytes].concat(), key),
                        Err(order) => {
                            assert!(!key.starts_with(bytes), "{key:?} {bytes:?}");
                            assert_eq!(order, key.cmp(bytes), "{key:?} {bytes:?}");
                        }
                    }
                }
            }
        }
    }
}
