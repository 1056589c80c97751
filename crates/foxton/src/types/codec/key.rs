//! Key encodings: the order of the bytes is the order of the values.
//!
//! | type | alone, or last in a tuple | inside a tuple |
//! |---|---|---|
//! | `u8` .. `u128` | big-endian | the same |
//! | `i8` .. `i128` | big-endian with the sign bit flipped | the same |
//! | `bool` | 0 or 1 | the same |
//! | `str`, `String`, `[u8]`, `Vec<u8>` | the bytes | each 00 as 00 FF, then 00 00 |
//! | `[K; N]` | its elements, each as inside a tuple | the same |
//! | tuples up to 4 | all but the last as inside a tuple | all as inside a tuple |
//!
//! # Invariants
//!
//! * I1  `a < b` exactly when `encode(a) < encode(b)` byte by byte.
//! * I2  No inner encoding is a prefix of another inner encoding of its type. So bytes that follow
//!   it never change an order that is already decided, and no two keys share an encoding.

use super::common::alike;
use super::{TypeName, Undecodable, all_taken, take, text};

/// A type that can be the key of a table.
///
/// Implement it for a type of your own by delegating to a tuple of what is here:
///
/// ```
/// use foxton::codec::{Key, TypeName, Undecodable};
///
/// #[derive(Debug, PartialEq)]
/// struct Seat { row: u16, number: u16 }
///
/// impl Key for Seat {
///     type Owned = Seat;
///     const TYPE: TypeName = TypeName::new("theatre::Seat");
///     fn encode(&self, out: &mut Vec<u8>) {
///         (self.row, self.number).encode(out)
///     }
///     fn encode_part(&self, out: &mut Vec<u8>) {
///         (self.row, self.number).encode_part(out)
///     }
///     fn decode(bytes: &[u8]) -> Result<Seat, Undecodable> {
///         <(u16, u16)>::decode(bytes).map(|(row, number)| Seat { row, number })
///     }
///     fn decode_part(bytes: &mut &[u8]) -> Result<Seat, Undecodable> {
///         <(u16, u16)>::decode_part(bytes).map(|(row, number)| Seat { row, number })
///     }
/// }
///
/// let mut bytes = Vec::new();
/// Seat { row: 3, number: 14 }.encode(&mut bytes);
/// assert_eq!(Seat::decode(&bytes), Ok(Seat { row: 3, number: 14 }));
/// ```
pub trait Key {
    /// The decoded type: `String` for `str`, the type itself for most.
    type Owned;

    /// The type name that is stored with a table of such keys.
    const TYPE: TypeName;

    /// Appends the encoding of a key that stands alone or comes last.
    fn encode(&self, out: &mut Vec<u8>);

    /// Appends an encoding that marks its own end, for a key that is followed by another.
    fn encode_part(&self, out: &mut Vec<u8>);

    /// Decodes bytes that [`Key::encode`] wrote, using all of `bytes`.
    ///
    /// # Errors
    /// [`Undecodable`] if the bytes are no encoding of this type.
    fn decode(bytes: &[u8]) -> Result<Self::Owned, Undecodable>;

    /// Decodes bytes that [`Key::encode_part`] wrote, and removes them from the front of `bytes`.
    ///
    /// # Errors
    /// [`Undecodable`] if the bytes are no encoding of this type.
    fn decode_part(bytes: &mut &[u8]) -> Result<Self::Owned, Undecodable>;
}

macro_rules! integers {
    ($($unsigned:ident $signed:ident $size:literal),*) => {$(
        impl Key for $unsigned {
            type Owned = $unsigned;
            const TYPE: TypeName = TypeName::new(stringify!($unsigned));
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
            fn encode_part(&self, out: &mut Vec<u8>) {
                self.encode(out);
            }
            fn decode(mut bytes: &[u8]) -> Result<$unsigned, Undecodable> {
                let key = Self::decode_part(&mut bytes)?;
                all_taken(bytes, concat!($size, " bytes of ", stringify!($unsigned)))?;
                Ok(key)
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<$unsigned, Undecodable> {
                const EXPECTED: &str = concat!($size, " bytes of ", stringify!($unsigned));
                let mut fixed = [0; $size];
                fixed.copy_from_slice(take(bytes, $size, EXPECTED)?);
                Ok($unsigned::from_be_bytes(fixed))
            }
        }

        impl Key for $signed {
            type Owned = $signed;
            const TYPE: TypeName = TypeName::new(stringify!($signed));
            fn encode(&self, out: &mut Vec<u8>) {
                (self.cast_unsigned() ^ (1 << ($unsigned::BITS - 1))).encode(out);
            }
            fn encode_part(&self, out: &mut Vec<u8>) {
                self.encode(out);
            }
            fn decode(bytes: &[u8]) -> Result<$signed, Undecodable> {
                let key = <$unsigned as Key>::decode(bytes)?;
                Ok((key ^ (1 << ($unsigned::BITS - 1))).cast_signed())
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<$signed, Undecodable> {
                let key = <$unsigned as Key>::decode_part(bytes)?;
                Ok((key ^ (1 << ($unsigned::BITS - 1))).cast_signed())
            }
        }
    )*};
}

integers!(u8 i8 1, u16 i16 2, u32 i32 4, u64 i64 8, u128 i128 16);

/// Writes 00 as 00 FF and the end as 00 00, so that the end sorts before every continuation (I1,
/// I2).
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

fn unescape(bytes: &mut &[u8]) -> Result<Vec<u8>, Undecodable> {
    let mut plain = Vec::new();
    loop {
        match take(bytes, 1, "an escaped string with its end")?[0] {
            0 => match take(bytes, 1, "an escaped string with its end")?[0] {
                0 => return Ok(plain),
                0xff => plain.push(0),
                _ => {
                    return Err(Undecodable {
                        expected: "an escaped string",
                    });
                }
            },
            byte => plain.push(byte),
        }
    }
}

alike!(Key, parts of strings: escape, unescape);

#[cfg(test)]
mod tests {
    //! Order and round trip, over edge values and random ones.

    use super::*;
    use std::cmp::Ordering;

    fn encoded<K: Key + ?Sized>(key: &K) -> Vec<u8> {
        let mut bytes = Vec::new();
        key.encode(&mut bytes);
        bytes
    }

    /// Checks every pair: the order of the bytes is the order of the keys, alone and followed.
    fn check<K: Key<Owned = K> + Ord + Clone + std::fmt::Debug>(keys: &[K]) {
        for a in keys {
            assert_eq!(K::decode(&encoded(a)).as_ref(), Ok(a));
            let mut part = Vec::new();
            a.encode_part(&mut part);
            part.push(7);
            let rest = &mut &part[..];
            assert_eq!(K::decode_part(rest).as_ref(), Ok(a));
            assert_eq!(rest, &[7]);
            for b in keys {
                assert_eq!(encoded(a).cmp(&encoded(b)), a.cmp(b), "{a:?} {b:?}");
                let pairs = [(a.clone(), 0u8), (a.clone(), 255)];
                for pair in &pairs {
                    let other = (b.clone(), 128u8);
                    assert_eq!(encoded(pair).cmp(&encoded(&other)), pair.cmp(&other));
                }
                if a.cmp(b) == Ordering::Equal {
                    assert_eq!(encoded(a), encoded(b));
                }
            }
        }
    }

    #[test]
    fn integers_keep_their_order() {
        check(&[0u8, 1, 127, 128, 255]);
        check(&[i8::MIN, -1, 0, 1, i8::MAX]);
        check(&[0u64, 1, 255, 256, u64::MAX - 1, u64::MAX]);
        check(&[i64::MIN, -257, -256, -1, 0, 1, 255, 256, i64::MAX]);
        check(&[0u128, 1 << 64, u128::MAX]);
        check(&[i128::MIN, -1, 0, 1 << 64, i128::MAX]);
        check(&[false, true]);
    }

    #[test]
    fn strings_with_zeros_and_prefixes_keep_their_order() {
        let strings = [
            "", "\0", "\0\0", "\0\u{1}", "a", "a\0", "a\0\0", "a\0b", "a\u{1}", "ab", "é",
        ];
        check(&strings.map(String::from));
        check(&strings.map(|s| s.as_bytes().to_vec()));
        check(&[
            vec![0xff],
            vec![0xff, 0],
            vec![0, 0xff],
            vec![0, 0xff, 0],
            vec![0, 0],
        ]);
    }

    #[test]
    fn tuples_compare_part_by_part() {
        let mut keys = Vec::new();
        for a in ["", "a", "a\0", "b"] {
            for b in [i16::MIN, -1, 0, 1] {
                for c in ["", "\0", "z"] {
                    keys.push((a.to_string(), b, (c.to_string(), c.is_empty())));
                }
            }
        }
        check(&keys);
        check(&[
            (1u8, 2u16, 3u32, 4u64),
            (1, 2, 3, 5),
            (1, 2, 4, 0),
            (2, 0, 0, 0),
        ]);
        check(&[[1u8, 2], [1, 3], [2, 0]]);
        check(&[
            ["a".to_string(), "".into()],
            ["".into(), "b".into()],
            ["a\0".into(), "".into()],
        ]);
        check(&[()]);
    }

    #[test]
    fn borrowed_and_owned_strings_share_an_encoding() {
        assert_eq!(encoded("ab"), encoded(&"ab".to_string()));
        assert_eq!(encoded(&(1u8, "ab")), encoded(&(1u8, "ab".to_string())));
        assert_eq!(encoded(&[1u8, 2][..]), encoded(&vec![1u8, 2]));
        assert_eq!(str::TYPE, String::TYPE);
    }

    #[test]
    fn bytes_of_another_type_are_refused() {
        assert!(u32::decode(&[1, 2, 3]).is_err());
        assert!(u32::decode(&[1, 2, 3, 4, 5]).is_err());
        assert!(bool::decode(&[2]).is_err());
        assert!(String::decode(&[0xff]).is_err());
        assert!(<(String, u8)>::decode(b"ab").is_err());
        assert!(<(String, u8)>::decode(&[b'a', 0, 7, 0, 0]).is_err());
        assert!(<[u16; 2]>::decode(&[1, 2, 3]).is_err());
        assert!(<()>::decode(&[0]).is_err());
    }
}
