//! Patches: the difference between two values of a row, for updates that change little of a row.
//!
//! ```text
//! patch:   old length u32 · check u32 · pieces
//! piece:   keep · cut · put, its bytes
//! ```
//!
//! Each piece applies at the current position in the old value: keep this many bytes, leave out
//! this many, and insert the given bytes. The rest of the old value after the last piece is kept.
//! The three numbers are written seven bits to a byte, low bits first; all bytes of a number but
//! the last have their high bit set. The check is the CRC-32C of the *new* value.
//!
//! # Why the check covers the result
//!
//! One check proves everything: the old value was the right one wherever it was kept, the patch is
//! right, and it was applied correctly. The bytes of the old value that are cut do not matter. When
//! two patches are joined, the check of the second is the check of the join.
//!
//! # Invariants
//!
//! * I1  `apply(p, old)` is the value that the patch was made for, byte for byte, or an error.
//! * I2  `apply(join(p, q), old)` is `apply(q, apply(p, old))`: patches can be joined without a
//!   value. The bytes of the join are at most those of both patches.
//! * I3  Between two pieces something is kept, and each piece does more than keep. So however many
//!   patches were joined, the bytes of the pieces are at most three times those of the old and the
//!   new value together.

use foxton_sync::checksum::crc32c;

use crate::types::codec::{Undecodable, Value, take};
use crate::types::limits::MAX_VALUE_BYTES;

/// Bytes of a patch before its pieces.
const HEADER: usize = 8;
/// Minimum length of a value that is patched; shorter values are written whole.
const SHORTEST: usize = 48;
/// Maximum length of a value that is patched; longer values are written whole. Restart rebuilds the
/// whole value for each patch, so this bounds the work per byte of log.
const LONGEST: usize = 64 << 10;
/// Bytes compared at once. A piece ends when this many bytes are equal.
const STRIDE: usize = 16;

const NO_PATCH: Undecodable = Undecodable {
    expected: "a patch that makes sense",
};
const OTHER_LENGTH: Undecodable = Undecodable {
    expected: "a patch for a value as long as the one that is there",
};
const OTHER_VALUE: Undecodable = Undecodable {
    expected: "a patch that makes of the value that is there the one that was committed",
};

// Writing.

/// Appends a patch from `old` to `new` if it is a quarter shorter than `new`. Returns whether it
/// has.
pub(crate) fn diff(old: &[u8], new: &[u8], out: &mut Vec<u8>) -> bool {
    if !(SHORTEST..=LONGEST).contains(&new.len()) || old.len() > LONGEST {
        return false;
    }
    let begin = out.len();
    out.extend_from_slice(&[0; HEADER]);
    let at_most = begin + new.len() - new.len() / 4;
    let mut pieces = Pieces { out, keep: 0 };
    let short = if old.len() == new.len() {
        in_place(old, new, &mut pieces, at_most)
    } else {
        moved(old, new, &mut pieces, at_most)
    };
    if !short || out.len() > at_most {
        out.truncate(begin);
        return false;
    }
    let length = u32::try_from(old.len()).expect("values are at most MAX_VALUE_BYTES long");
    out[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
    out[begin + 4..begin + HEADER].copy_from_slice(&crc32c(0, new).to_le_bytes());
    true
}

/// Writes the pieces for two values of the same length. Returns false once they are too long.
fn in_place(old: &[u8], new: &[u8], pieces: &mut Pieces<'_>, at_most: usize) -> bool {
    let ((old_strides, old_end), (new_strides, new_end)) = (strides(old), strides(new));
    let pairs = old_strides.iter().zip(new_strides);
    let ends = (!new_end.is_empty()).then(|| (old_end == new_end, new_end.len()));
    let mut differs: Option<usize> = None;
    let mut at = 0;
    for (equal, bytes) in pairs.map(|(old, new)| (old == new, STRIDE)).chain(ends) {
        if !equal {
            differs.get_or_insert(at);
        } else {
            if let Some(from) = differs.take() {
                pieces.replace(&old[from..at], &new[from..at]);
                if pieces.out.len() > at_most {
                    return false;
                }
            }
            pieces.keep += bytes;
        }
        at += bytes;
    }
    if let Some(from) = differs {
        pieces.replace(&old[from..], &new[from..]);
    }
    true
}

/// Returns the whole strides of a value, which are compared without a call, and the rest.
fn strides(value: &[u8]) -> (&[[u8; STRIDE]], &[u8]) {
    value.as_chunks()
}

/// Writes one piece, from the first byte that differs to the last. Returns false if it is too long.
fn moved(old: &[u8], new: &[u8], pieces: &mut Pieces<'_>, at_most: usize) -> bool {
    let front = alike(old.chunks(STRIDE), new.chunks(STRIDE));
    let (old, new) = (&old[front..], &new[front..]);
    let back = alike(old.rchunks(STRIDE), new.rchunks(STRIDE));
    let (old, new) = (&old[..old.len() - back], &new[..new.len() - back]);
    if new.len() > at_most {
        return false;
    }
    pieces.keep = front;
    pieces.replace(old, new);
    true
}

/// Returns the number of leading bytes that both have in common, in whole strides.
fn alike<'a>(old: impl Iterator<Item = &'a [u8]>, new: impl Iterator<Item = &'a [u8]>) -> usize {
    let same = old.zip(new).take_while(|(old, new)| old == new);
    same.map(|(old, _)| old.len()).sum()
}

/// Writer of pieces.
struct Pieces<'o> {
    out: &'o mut Vec<u8>,
    /// Bytes that the next piece keeps. After the last piece the rest is kept implicitly.
    keep: usize,
}

impl Pieces<'_> {
    fn piece(&mut self, cut: usize, put: &[u8]) {
        for number in [std::mem::take(&mut self.keep), cut, put.len()] {
            put_number(number, self.out);
        }
        self.out.extend_from_slice(put);
    }

    /// Replaces `old` by `new`, except their common prefix and suffix.
    fn replace(&mut self, old: &[u8], new: &[u8]) {
        let pairs = old.iter().zip(new);
        let front = pairs.take_while(|(old, new)| old == new).count();
        let (old, new) = (&old[front..], &new[front..]);
        let pairs = old.iter().rev().zip(new.iter().rev());
        let back = pairs.take_while(|(old, new)| old == new).count();
        self.keep += front;
        if old.len().max(new.len()) > back {
            self.piece(old.len() - back, &new[..new.len() - back]);
        }
        self.keep += back;
    }
}

fn put_number(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

// Reading.

/// Appends the value that `patch` makes from `old`.
///
/// # Errors
/// If the patch is invalid, or was not made for `old`.
pub(crate) fn apply(patch: &[u8], old: &[u8], out: &mut Vec<u8>) -> Result<(), Undecodable> {
    let (mut segments, check) = Segments::of(patch)?;
    if segments.left != old.len() {
        return Err(OTHER_LENGTH);
    }
    let begin = out.len();
    let mut rest = old;
    while let Some(segment) = segments.next(usize::MAX)? {
        match segment {
            Segment::Kept(count) => out.extend_from_slice(take(&mut rest, count, "")?),
            Segment::Cut(count) => drop(take(&mut rest, count, "")?),
            Segment::Put(bytes) => out.extend_from_slice(bytes),
        }
        if out.len() - begin > MAX_VALUE_BYTES {
            return Err(NO_PATCH);
        }
    }
    if crc32c(0, &out[begin..]) != check {
        return Err(OTHER_VALUE);
    }
    Ok(())
}

/// Appends the patch that has the effect of `first` followed by `second` (I2).
///
/// # Errors
/// If one is invalid, or the second was not made for a value of the length that the first makes.
pub(crate) fn join(first: &[u8], second: &[u8], out: &mut Vec<u8>) -> Result<(), Undecodable> {
    let (mut before, _) = Segments::of(first)?;
    let (mut after, check) = Segments::of(second)?;
    let length = u32::try_from(before.left).map_err(|_| NO_PATCH)?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&check.to_le_bytes());
    let pieces = Pieces { out, keep: 0 };
    let mut joint = Joint {
        pieces,
        cut: 0,
        put: Vec::new(),
    };
    while let Some(segment) = after.next(usize::MAX)? {
        match segment {
            Segment::Put(bytes) => joint.put.extend_from_slice(bytes),
            Segment::Kept(count) => joint.pass(&mut before, count, true)?,
            Segment::Cut(count) => joint.pass(&mut before, count, false)?,
        }
    }
    // Only bytes that the first patch cuts may be left over.
    while let Some(segment) = before.next(usize::MAX)? {
        match segment {
            Segment::Cut(count) => joint.cut += count,
            Segment::Kept(_) | Segment::Put(_) => return Err(OTHER_LENGTH),
        }
    }
    joint.end_piece();
    Ok(())
}

/// Writer of a join. The current piece absorbs its neighbours (I3).
struct Joint<'o> {
    pieces: Pieces<'o>,
    cut: usize,
    put: Vec<u8>,
}

impl Joint<'_> {
    /// Copies, or leaves out, the next `count` bytes of the value that `before` makes.
    fn pass(
        &mut self,
        before: &mut Segments<'_>,
        mut count: usize,
        keep: bool,
    ) -> Result<(), Undecodable> {
        while count > 0 {
            match before.next(count)?.ok_or(OTHER_LENGTH)? {
                Segment::Kept(kept) => {
                    count -= kept;
                    if keep {
                        self.end_piece();
                        self.pieces.keep += kept;
                    } else {
                        self.cut += kept;
                    }
                }
                Segment::Put(bytes) => {
                    count -= bytes.len();
                    if keep {
                        self.put.extend_from_slice(bytes);
                    }
                }
                Segment::Cut(cut) => self.cut += cut,
            }
        }
        Ok(())
    }

    fn end_piece(&mut self) {
        if self.cut > 0 || !self.put.is_empty() {
            self.pieces.piece(std::mem::take(&mut self.cut), &self.put);
            self.put.clear();
        }
    }
}

/// The next step through the old or the new value.
enum Segment<'p> {
    Kept(usize),
    Cut(usize),
    Put(&'p [u8]),
}

/// Iterator over the segments of a patch.
struct Segments<'p> {
    /// Pieces that are not yet read.
    rest: &'p [u8],
    /// The rest of the current piece.
    keep: usize,
    cut: usize,
    put: &'p [u8],
    /// Bytes of the old value after the current piece.
    left: usize,
}

impl<'p> Segments<'p> {
    /// Returns the segments and the check.
    fn of(mut patch: &'p [u8]) -> Result<(Segments<'p>, u32), Undecodable> {
        let old_length = u32::decode_part(&mut patch)?;
        let check = u32::decode_part(&mut patch)?;
        let segments = Segments {
            rest: patch,
            keep: 0,
            cut: 0,
            put: &[],
            left: usize::try_from(old_length).map_err(|_| NO_PATCH)?,
        };
        Ok((segments, check))
    }

    /// Returns the next segment, with at most `at_most` bytes of the new value.
    fn next(&mut self, at_most: usize) -> Result<Option<Segment<'p>>, Undecodable> {
        loop {
            if self.keep > 0 {
                let count = self.keep.min(at_most);
                self.keep -= count;
                return Ok(Some(Segment::Kept(count)));
            }
            if self.cut > 0 {
                return Ok(Some(Segment::Cut(std::mem::take(&mut self.cut))));
            }
            if !self.put.is_empty() {
                let (front, rest) = self.put.split_at(self.put.len().min(at_most));
                self.put = rest;
                return Ok(Some(Segment::Put(front)));
            }
            if self.rest.is_empty() {
                // The end of the old value is kept.
                self.keep = std::mem::take(&mut self.left);
                if self.keep == 0 {
                    return Ok(None);
                }
            } else {
                self.read_piece()?;
            }
        }
    }

    fn read_piece(&mut self) -> Result<(), Undecodable> {
        self.keep = take_number(&mut self.rest)?;
        self.cut = take_number(&mut self.rest)?;
        let put = take_number(&mut self.rest)?;
        self.put = take(&mut self.rest, put, NO_PATCH.expected)?;
        let used = self.keep.checked_add(self.cut).ok_or(NO_PATCH)?;
        self.left = self.left.checked_sub(used).ok_or(NO_PATCH)?;
        Ok(())
    }
}

fn take_number(bytes: &mut &[u8]) -> Result<usize, Undecodable> {
    let mut number = 0;
    // Four bytes hold every possible length.
    for shift in [0, 7, 14, 21] {
        let byte = take(bytes, 1, NO_PATCH.expected)?[0];
        number |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(NO_PATCH)
}

// A value's length fits into the numbers of a piece.
const _: () = assert!(MAX_VALUE_BYTES < 1 << 28);

#[cfg(test)]
mod tests {
    use super::*;

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) % bound as u64) as usize
        }

        /// Returns `value` with a few stretches replaced, inserted or removed.
        fn changed(&mut self, value: &[u8]) -> Vec<u8> {
            let mut value = value.to_vec();
            for _ in 0..self.below(4) {
                let at = self.below(value.len() + 1);
                let cut = self.below(20).min(value.len() - at);
                let put = match self.below(3) {
                    0 => self.below(20),
                    _ => cut,
                };
                let put: Vec<u8> = (0..put).map(|_| self.below(3) as u8).collect();
                value.splice(at..at + cut, put);
            }
            value
        }
    }

    fn applied(patch: &[u8], old: &[u8]) -> Result<Vec<u8>, Undecodable> {
        let mut new = Vec::new();
        apply(patch, old, &mut new).map(|()| new)
    }

    #[test]
    fn chains_of_patches_come_to_the_last_value_one_by_one_and_joined() {
        for seed in 0..3_000 {
            let mut random = Random(seed);
            let length = [48, 64, 300, 2_000][random.below(4)];
            let mut value: Vec<u8> = (0..length).map(|_| random.below(3) as u8).collect();
            let (first, mut joined, mut patches) = (value.clone(), None::<Vec<u8>>, 0);
            for _ in 0..random.below(12) {
                let next = random.changed(&value);
                let mut patch = Vec::new();
                if !diff(&value, &next, &mut patch) {
                    assert!(patch.is_empty(), "seed {seed}");
                    continue;
                }
                assert!(patch.len() <= next.len() - next.len() / 4, "seed {seed}");
                assert_eq!(applied(&patch, &value), Ok(next.clone()), "seed {seed}");
                let both = match joined.take() {
                    None => patch,
                    Some(before) => {
                        let mut both = Vec::new();
                        join(&before, &patch, &mut both).unwrap();
                        assert!(both.len() <= before.len() + patch.len(), "I2, seed {seed}");
                        assert!(both.len() <= 11 + 3 * (first.len() + next.len()), "I3");
                        both
                    }
                };
                joined = Some(both);
                value = next;
                patches += 1;
            }
            if let Some(joined) = joined {
                assert_eq!(
                    applied(&joined, &first),
                    Ok(value),
                    "seed {seed}, {patches}"
                );
            }
        }
    }

    #[test]
    fn a_patch_is_no_longer_than_what_is_different() {
        let old = vec![1; 1_780];
        let mut new = old.clone();
        new[356..534].fill(2);
        let mut patch = Vec::new();
        assert!(diff(&old, &new, &mut patch));
        assert_eq!(patch.len(), HEADER + 2 + 2 + 2 + 178);
        // Two fields far apart make two pieces.
        new[1_700] = 3;
        patch.clear();
        assert!(diff(&old, &new, &mut patch));
        assert_eq!(patch.len(), HEADER + 6 + 178 + 4 + 1);
        // Two equal values.
        patch.clear();
        assert!(diff(&old, &old, &mut patch));
        assert_eq!(patch.len(), HEADER);
        // All bytes differ, or the patch would save little.
        assert!(!diff(&old, &[7; 1_780], &mut patch));
        assert!(!diff(&old, &vec![7; 3_000], &mut patch));
        assert!(!diff(&old[..40], &old[..40], &mut patch));
        assert_eq!(patch.len(), HEADER, "what is refused leaves nothing behind");
    }

    #[test]
    fn a_patch_knows_the_value_it_was_made_for() {
        let old: Vec<u8> = (0..200).collect();
        let mut new = old.clone();
        new[100..110].fill(0);
        let mut patch = Vec::new();
        assert!(diff(&old, &new, &mut patch));
        assert_eq!(applied(&patch, &old[..199]), Err(OTHER_LENGTH));
        for at in 0..old.len() {
            let mut other = old.clone();
            other[at] ^= 1;
            let found = applied(&patch, &other);
            if (100..110).contains(&at) {
                assert_eq!(found.as_ref(), Ok(&new), "what is replaced does not matter");
            } else {
                assert_eq!(found, Err(OTHER_VALUE), "byte {at}");
            }
        }
        let mut out = Vec::new();
        let shorter = [0; 8];
        assert_eq!(join(&patch, &shorter, &mut out), Err(OTHER_LENGTH));
        let mut longer = patch.clone();
        longer[0] += 1;
        assert_eq!(join(&patch, &longer, &mut out), Err(OTHER_LENGTH));
    }

    #[test]
    fn garbage_is_refused_and_does_no_harm() {
        let old = vec![1; 500];
        let mut new = old.clone();
        new[3] = 7;
        new[100..140].fill(9);
        let mut patch = Vec::new();
        assert!(diff(&old, &new, &mut patch));
        for cut in 0..patch.len() {
            assert!(applied(&patch[..cut], &old).is_err(), "cut at {cut}");
        }
        let mut random = Random(5);
        for _ in 0..20_000 {
            let mut bad = patch.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bad.len());
                bad[at] = random.below(256) as u8;
            }
            if let Ok(found) = applied(&bad, &old) {
                assert_eq!(found, new, "{bad:?}");
            }
            let _ = join(&bad, &patch, &mut Vec::new());
            let _ = join(&patch, &bad, &mut Vec::new());
        }
    }
}
