//! Words of a page: access that no value read from the page can lead astray.
//!
//! A page is a sequence of 64-bit words, least significant byte first, so byte `i` of the page is
//! byte `i % 8` of word `i / 8`. The words are in a frame, which other threads may change while
//! they are read, or in a buffer that was read from a file. So an offset found in the page may be
//! anything. Every access is therefore *clipped*: bytes beyond the end are zero when they are read
//! and are not written.

use std::cmp::Ordering;

use smallvec::{Array, SmallVec};

/// A key or a fence, copied from a page.
pub type KeyBytes = SmallVec<[u8; 64]>;

/// Words that can be read.
pub trait PageWords {
    /// Number of words.
    fn word_count(&self) -> usize;

    /// Returns word `index`, or 0 beyond the last word.
    fn word(&self, index: usize) -> u64;

    /// Appends `count` words from word `first` on to `copies`; those beyond the last are zero.
    #[inline]
    fn append_words(&self, first: usize, count: usize, copies: &mut Vec<[u8; 8]>) {
        copies.extend((first..first + count).map(|index| self.word(index).to_le_bytes()));
    }
}

/// Words that can be changed.
pub trait PageWordsMut: PageWords {
    /// Changes word `index`. Does nothing beyond the last word.
    fn set_word(&mut self, index: usize, word: u64);
}

impl<W: PageWords + ?Sized> PageWords for &W {
    #[inline]
    fn word_count(&self) -> usize {
        W::word_count(self)
    }

    #[inline]
    fn word(&self, index: usize) -> u64 {
        W::word(self, index)
    }

    #[inline]
    fn append_words(&self, first: usize, count: usize, copies: &mut Vec<[u8; 8]>) {
        W::append_words(self, first, count, copies);
    }
}

impl<W: PageWords + ?Sized> PageWords for &mut W {
    #[inline]
    fn word_count(&self) -> usize {
        W::word_count(self)
    }

    #[inline]
    fn word(&self, index: usize) -> u64 {
        W::word(self, index)
    }

    #[inline]
    fn append_words(&self, first: usize, count: usize, copies: &mut Vec<[u8; 8]>) {
        W::append_words(self, first, count, copies);
    }
}

impl<W: PageWordsMut + ?Sized> PageWordsMut for &mut W {
    #[inline]
    fn set_word(&mut self, index: usize, word: u64) {
        W::set_word(self, index, word);
    }
}

/// The bytes of a buffer as words. A rest of fewer than eight bytes is no word.
impl PageWords for [u8] {
    #[inline]
    fn word_count(&self) -> usize {
        self.len() / 8
    }

    #[inline]
    fn word(&self, index: usize) -> u64 {
        let (words, _) = self.as_chunks::<8>();
        words.get(index).map_or(0, |word| u64::from_le_bytes(*word))
    }
}

impl PageWordsMut for [u8] {
    #[inline]
    fn set_word(&mut self, index: usize, word: u64) {
        let (words, _) = self.as_chunks_mut::<8>();
        if let Some(place) = words.get_mut(index) {
            *place = word.to_le_bytes();
        }
    }
}

/// Returns the eight bytes from `offset` on, the first as the least significant byte.
#[inline]
pub(super) fn load(words: &impl PageWords, offset: usize) -> u64 {
    let (index, shift) = (offset / 8, offset % 8 * 8);
    let low = words.word(index) >> shift;
    match shift {
        0 => low,
        _ => low | words.word(index + 1) << (64 - shift),
    }
}

/// A growing byte string, into which parts of pages are copied.
pub trait ByteBuffer {
    /// Appends `count` zeros, and returns them.
    fn append_zeros(&mut self, count: usize) -> &mut [u8];
}

impl ByteBuffer for Vec<u8> {
    #[inline]
    fn append_zeros(&mut self, count: usize) -> &mut [u8] {
        let begin = self.len();
        self.resize(begin + count, 0);
        &mut self[begin..]
    }
}

impl<A: Array<Item = u8>> ByteBuffer for SmallVec<A> {
    #[inline]
    fn append_zeros(&mut self, count: usize) -> &mut [u8] {
        const ZEROS: [u8; 64] = [0; 64];
        let (begin, end) = (self.len(), self.len() + count);
        while self.len() < end {
            let part = (end - self.len()).min(ZEROS.len());
            // It appends bytes one by one when it is resized.
            self.extend_from_slice(&ZEROS[..part]);
        }
        &mut self[begin..]
    }
}

/// Returns how many of the `count` bytes from `offset` on are in the page.
#[inline]
fn clip(words: &impl PageWords, offset: usize, count: usize) -> usize {
    count.min((words.word_count() * 8).saturating_sub(offset))
}

/// Appends the `count` bytes from `offset` on to `bytes`; fewer if the page ends before.
pub(super) fn append_to(
    words: &impl PageWords,
    offset: usize,
    count: usize,
    bytes: &mut impl ByteBuffer,
) {
    let place = bytes.append_zeros(clip(words, offset, count));
    let (mut index, shift) = (offset / 8, offset % 8 * 8);
    let (chunks, rest) = place.as_chunks_mut::<8>();
    if shift == 0 {
        for chunk in chunks {
            *chunk = words.word(index).to_le_bytes();
            index += 1;
        }
    } else {
        // Each word is read once: its upper part ends one chunk, its lower part begins the next.
        let mut low = words.word(index) >> shift;
        for chunk in chunks {
            index += 1;
            let next = words.word(index);
            *chunk = (low | next << (64 - shift)).to_le_bytes();
            low = next >> shift;
        }
    }
    let last = load(words, index * 8 + shift / 8).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

/// Compares the `count` bytes from `offset` on with `key`, as byte strings.
#[inline]
pub(super) fn compare(words: &impl PageWords, offset: usize, count: usize, key: &[u8]) -> Ordering {
    let count = clip(words, offset, count);
    let (chunks, rest) = key[..key.len().min(count)].as_chunks::<8>();
    for (index, chunk) in chunks.iter().enumerate() {
        let ours = load(words, offset + index * 8).swap_bytes();
        match ours.cmp(&u64::from_be_bytes(*chunk)) {
            Ordering::Equal => {}
            unequal => return unequal,
        }
    }
    if !rest.is_empty() {
        let mut theirs = [0; 8];
        theirs[..rest.len()].copy_from_slice(rest);
        let ours = load(words, offset + chunks.len() * 8) & low_bytes(rest.len());
        match ours.swap_bytes().cmp(&u64::from_be_bytes(theirs)) {
            Ordering::Equal => {}
            unequal => return unequal,
        }
    }
    count.cmp(&key.len())
}

/// Returns a word of which the first `count` bytes are ones, fewer than eight.
#[inline]
fn low_bytes(count: usize) -> u64 {
    (1 << (8 * count)) - 1
}

/// True if the `count` bytes from `offset` on are those of `other` from `other_offset` on. Bytes
/// beyond an end are zero.
#[inline(always)]
pub(super) fn are_equal(
    words: &impl PageWords,
    offset: usize,
    (other, other_offset): (&impl PageWords, usize),
    count: usize,
) -> bool {
    match count {
        0 => true,
        // Most keys and prefixes are so short.
        1..8 => (load(words, offset) ^ load(other, other_offset)) & low_bytes(count) == 0,
        _ => are_long_equal(words, offset, (other, other_offset), count),
    }
}

#[inline(never)]
fn are_long_equal(
    words: &impl PageWords,
    offset: usize,
    (other, other_offset): (&impl PageWords, usize),
    count: usize,
) -> bool {
    let differs = |at: usize| load(words, offset + at) ^ load(other, other_offset + at);
    // No page has more bytes; a count of half a change may say so.
    let count = count.min(words.word_count() * 8);
    let whole = count / 8 * 8;
    (0..whole).step_by(8).all(|at| differs(at) == 0)
        && (whole == count || differs(whole) & low_bytes(count % 8) == 0)
}

/// Writes `bytes` at `offset`; those beyond the page are not written.
pub(super) fn write(words: &mut impl PageWordsMut, offset: usize, bytes: &[u8]) {
    let until_whole = offset.next_multiple_of(8) - offset;
    let (first, rest) = bytes.split_at(until_whole.min(bytes.len()));
    write_part(words, offset, first);
    let (chunks, last) = rest.as_chunks::<8>();
    let begin = (offset + first.len()) / 8;
    for (index, chunk) in chunks.iter().enumerate() {
        words.set_word(begin + index, u64::from_le_bytes(*chunk));
    }
    write_part(words, offset + bytes.len() - last.len(), last);
}

/// Writes bytes of one word.
#[inline]
fn write_part(words: &mut impl PageWordsMut, offset: usize, bytes: &[u8]) {
    if !bytes.is_empty() {
        let (index, first) = (offset / 8, offset % 8);
        let mut word = words.word(index).to_le_bytes();
        word[first..first + bytes.len()].copy_from_slice(bytes);
        words.set_word(index, u64::from_le_bytes(word));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_and_compared_at_every_offset() {
        let bytes: Vec<u8> = (0..64).map(|at| (at * 37) as u8).collect();
        let words = &bytes[..];
        for from in 0..64 {
            for to in from..=64 {
                let mut copy = Vec::new();
                append_to(&words, from, to - from, &mut copy);
                assert_eq!(copy, bytes[from..to]);
                for other in [&bytes[from..to], &bytes[from..64], &bytes[..from], b"\x80z"] {
                    let right = bytes[from..to].cmp(other);
                    assert_eq!(compare(&words, from, to - from, other), right);
                }
            }
        }
    }

    #[test]
    fn parts_of_two_pages_are_compared_at_every_offset() {
        let ours: Vec<u8> = (0..40).map(|at| (at * 37) as u8).collect();
        for shift in 0..8 {
            let theirs = [&vec![1; shift][..], &ours, &[2; 8][..]].concat();
            for from in 0..40 {
                for count in 0..40 - from {
                    let place = (&&theirs[..], from + shift);
                    assert!(are_equal(&&ours[..], from, place, count));
                    for wrong in from..from + count {
                        let mut other = theirs.clone();
                        other[wrong + shift] ^= 0x80;
                        assert!(!are_equal(
                            &&ours[..],
                            from,
                            (&&other[..], from + shift),
                            count
                        ));
                    }
                }
            }
        }
        let (one, other) = ([0; 16], [0; 8]);
        assert!(are_equal(&&one[..], 1 << 40, (&&other[..], 3), 1 << 40));
    }

    #[test]
    fn bytes_beyond_the_page_are_clipped() {
        let mut bytes = [7_u8; 16];
        let mut copy = Vec::new();
        append_to(&&bytes[..], 14, 100, &mut copy);
        append_to(&&bytes[..], 1 << 40, 100, &mut copy);
        assert_eq!(copy, [7, 7]);
        assert_eq!(compare(&&bytes[..], 1000, 5, b""), Ordering::Equal);
        write(&mut &mut bytes[..], 14, &[1, 2, 3, 4]);
        write(&mut &mut bytes[..], 1000, &[1, 2, 3, 4]);
        assert_eq!(bytes[13..], [7, 1, 2]);
    }

    #[test]
    fn bytes_are_written_at_every_offset() {
        for from in 0..24 {
            for to in from..=24 {
                let (mut bytes, mut right) = ([9_u8; 24], [9_u8; 24]);
                let part: Vec<u8> = (from..to).map(|at| at as u8).collect();
                right[from..to].copy_from_slice(&part);
                write(&mut &mut bytes[..], from, &part);
                assert_eq!(bytes, right);
            }
        }
    }
}
