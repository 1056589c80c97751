//! Allocator of small indexes: the smallest free one goes first.
//!
//! Participants, workers and lock owners are numbered, and other threads go through all of them.
//! Because the smallest free index goes first, those in use stay close together. After a peak of
//! many, whatever goes through them goes through those in use, and not through all that there were
//! at once.
//!
//! # State
//!
//! One bit for each index, set while it is in use, up to the greatest one in use.
//!
//! # Invariants
//!
//! * I1  The last word is not 0.
//! * I2  All words before `first_free` are full.

/// Indexes of a word.
const WORD: usize = u64::BITS as usize;

/// See the [module](self).
///
/// ```
/// use foxton_sync::index_allocator::IndexAllocator;
///
/// let mut indexes = IndexAllocator::default();
/// let all: Vec<u32> = (0..1000).map(|_| indexes.acquire()).collect();
/// all[1..].iter().for_each(|&index| indexes.release(index));
/// assert_eq!(indexes.bound(), 1);
/// assert_eq!(indexes.acquire(), 1);
/// ```
#[derive(Debug, Default)]
pub struct IndexAllocator {
    words: Vec<u64>,
    first_free: usize,
}

impl IndexAllocator {
    /// Returns the smallest free index, which is in use from now on.
    ///
    /// # Panics
    ///
    /// If all 2^32 are in use.
    pub fn acquire(&mut self) -> u32 {
        let from = &self.words[self.first_free..];
        let full = from.iter().take_while(|&&word| word == u64::MAX).count();
        self.first_free += full;
        if self.first_free == self.words.len() {
            self.words.push(0);
        }
        let word = &mut self.words[self.first_free];
        let bit = word.trailing_ones();
        *word |= 1 << bit;
        let index = self.first_free * WORD + bit as usize;
        u32::try_from(index).expect("fewer than 2^32 indexes are in use")
    }

    /// Frees an index that is in use.
    ///
    /// # Panics
    ///
    /// If it is not in use.
    pub fn release(&mut self, index: u32) {
        let (word, bit) = (index as usize / WORD, 1 << (index as usize % WORD));
        let used = self.words.get_mut(word).filter(|word| **word & bit != 0);
        *used.expect("the index is in use") &= !bit;
        while self.words.last() == Some(&0) {
            self.words.pop(); // I1
        }
        self.first_free = self.first_free.min(word).min(self.words.len()); // I2
    }

    /// Returns the number above the greatest index in use; 0 if there is none.
    pub fn bound(&self) -> usize {
        let last = self.words.last();
        last.map_or(0, |last| {
            self.words.len() * WORD - last.leading_zeros() as usize
        })
    }

    /// Returns a word for every 64 indexes up to the greatest in use. Bit `b` of word `w` is set if
    /// 64 `w` + `b` is in use; [`set_bits`] reads them.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

/// Returns the indexes whose bits are set.
///
/// ```
/// use foxton_sync::index_allocator::set_bits;
///
/// let indexes: Vec<usize> = set_bits([0b101, 0, 1]).collect();
/// assert_eq!(indexes, [0, 2, 128]);
/// ```
pub fn set_bits(words: impl IntoIterator<Item = u64>) -> impl Iterator<Item = usize> {
    let words = words.into_iter().enumerate();
    words.flat_map(|(at, word)| bits_of(word).map(move |bit| at * WORD + bit))
}

/// Returns the positions of the bits that are set in `word`.
#[inline]
pub(crate) fn bits_of(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn it_agrees_with_a_plain_set() {
        let (mut indexes, mut plain) = (IndexAllocator::default(), BTreeSet::new());
        let mut state = 7u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 33) % below
        };
        for step in 0..20_000 {
            // Growing and shrinking by turns.
            let grows = (step / 2_000) % 2 == 0;
            if plain.is_empty() || random(10) < if grows { 7 } else { 3 } {
                let smallest = (0..).find(|index| !plain.contains(index)).unwrap();
                assert_eq!(indexes.acquire(), smallest);
                plain.insert(smallest);
            } else {
                let at = random(plain.len() as u64) as usize;
                let one = *plain.iter().nth(at).unwrap();
                indexes.release(one);
                plain.remove(&one);
            }
            assert_eq!(
                indexes.bound(),
                plain.last().map_or(0, |&last| last as usize + 1)
            );
            let all = set_bits(indexes.words().iter().copied());
            assert!(all.eq(plain.iter().map(|&index| index as usize)));
        }
    }

    #[test]
    #[should_panic(expected = "the index is in use")]
    fn an_index_is_freed_once() {
        let mut indexes = IndexAllocator::default();
        indexes.acquire();
        indexes.release(0);
        indexes.release(0);
    }
}
