//! Search keys: keys as the index compares them.
//!
//! Keys are byte strings in the order of `Ord for [u8]`. A slot of the index holds the first eight
//! bytes of its key as a big-endian number, the *head*, and a *tag*: the length of the key, or 9
//! for everything longer than eight bytes. Shorter keys are padded with zeros in the head, and the
//! tag tells `"a"` from `"a\0"`. So (head, tag) orders all keys but those longer than eight bytes
//! that share their first eight: only for these the rest of both keys must be compared.
//!
//! The tag is enough, as this shows. Let two keys have equal heads. If both are at most eight bytes
//! long, the shorter is a prefix of the longer (the padding says that the rest of the longer is
//! zeros), so the shorter goes first. If only one is longer than eight, the other is a prefix of it
//! by the same argument, and its tag is smaller. If both are longer, their rests decide.
//!
//! A node has a prefix that all its keys begin with (`node/prefix.rs`), and heads and tags of its
//! slots are those of the bytes behind it.

/// The tag of every key longer than its head.
pub(super) const LONG: usize = 9;

/// Number of bytes of a key in its head.
pub(super) const HEAD_BYTES: usize = 8;

/// A key to search for.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchKey<'k> {
    pub(super) head: u64,
    pub(super) tag: usize,
    pub(super) bytes: &'k [u8],
}

impl<'k> SearchKey<'k> {
    #[inline]
    pub(super) fn new(bytes: &'k [u8]) -> Self {
        Self {
            head: head(bytes),
            tag: tag(bytes),
            bytes,
        }
    }

    /// Returns the bytes behind the head. Empty for short keys.
    #[inline]
    pub(super) fn rest(&self) -> &'k [u8] {
        self.bytes.get(HEAD_BYTES..).unwrap_or_default()
    }
}

/// Returns the first eight bytes of a key, padded with zeros, as a big-endian number.
#[inline]
pub(super) fn head(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<HEAD_BYTES>() {
        return u64::from_be_bytes(*first);
    }
    // Two overlapping halves instead of a copy of unknown length, which is a call.
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let [first, last] = [first, last].map(|half| u64::from(u32::from_be_bytes(*half)));
        return first << 32 | last << (8 * (HEAD_BYTES - bytes.len()));
    }
    let padded = |sum: u64, &byte| sum << 8 | u64::from(byte);
    let number = bytes.iter().fold(0, padded);
    number
        .checked_shl(8 * (HEAD_BYTES - bytes.len()) as u32)
        .unwrap_or(0)
}

/// Returns the length of a key, or [`LONG`].
#[inline]
pub(super) fn tag(bytes: &[u8]) -> usize {
    bytes.len().min(LONG)
}

/// Returns the shortest key that is above `left` and not above `right`, a prefix of `right`.
///
/// `left` must be below `right`.
pub(super) fn separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    let common = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    // `left` is below `right`, so `right` is not a prefix of `left` and has one byte more.
    &right[..common + 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&[u8]; 14] = [
        b"",
        b"\0",
        b"\0\0",
        b"\0\0\0\0\0\0\0\0",
        b"\0\0\0\0\0\0\0\0\0",
        b"a",
        b"a\0",
        b"a\0\0\0\0\0\0\0",
        b"a\0\0\0\0\0\0\0\0",
        b"a\0\0\0\0\0\0\0\x01",
        b"ab",
        b"abcdefgh",
        b"abcdefgh\0",
        b"abcdefghi",
    ];

    #[test]
    fn head_tag_and_rest_order_keys_as_their_bytes_do() {
        for left in KEYS {
            for right in KEYS {
                let (a, b) = (SearchKey::new(left), SearchKey::new(right));
                let order = (a.head, a.tag, a.rest()).cmp(&(b.head, b.tag, b.rest()));
                assert_eq!(order, left.cmp(right), "{left:?} {right:?}");
            }
        }
    }

    #[test]
    fn a_separator_is_between_its_keys_and_short() {
        for (index, left) in KEYS.iter().enumerate() {
            for right in &KEYS[index + 1..] {
                let between = separator(left, right);
                assert!(*left < between && between <= *right, "{left:?} {right:?}");
            }
        }
        assert_eq!(separator(b"aaaaaaaaaaaa", b"b123456789"), b"b");
    }
}
