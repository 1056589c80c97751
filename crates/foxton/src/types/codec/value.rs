//! Value encodings. They promise no order.
//!
//! Numbers are little-endian. Strings and bytes are stored unchanged when they stand alone or come
//! last; otherwise a 4-byte length precedes them. An option is one byte, then its value.

use super::common::alike;
use super::{TypeName, Undecodable, all_taken, take, text};

/// A type that can be the value of a table.
///
/// ```
/// use foxton::codec::Value;
/// let mut bytes = Vec::new();
/// (7u32, Some("seven")).encode(&mut bytes);
/// assert_eq!(<(u32, Option<String>)>::decode(&bytes), Ok((7, Some("seven".to_string()))));
/// ```
pub trait Value {
    /// The decoded type: `String` for `str`, the type itself for most.
    type Owned;

    /// The type name that is stored with a table of such values.
    const TYPE: TypeName;

    /// Appends the encoding of a value that stands alone or comes last.
    fn encode(&self, out: &mut Vec<u8>);

    /// Appends an encoding that marks its own end, for a value that is followed by another.
    fn encode_part(&self, out: &mut Vec<u8>);

    /// Decodes bytes that [`Value::encode`] wrote, using all of `bytes`.
    ///
    /// # Errors
    /// [`Undecodable`] if the bytes are no encoding of this type.
    fn decode(bytes: &[u8]) -> Result<Self::Owned, Undecodable>;

    /// Decodes bytes that [`Value::encode_part`] wrote, and removes them from the front of `bytes`.
    ///
    /// # Errors
    /// [`Undecodable`] if the bytes are no encoding of this type.
    fn decode_part(bytes: &mut &[u8]) -> Result<Self::Owned, Undecodable>;
}

macro_rules! numbers {
    ($($kind:ident $size:literal),*) => {$(
        impl Value for $kind {
            type Owned = $kind;
            const TYPE: TypeName = TypeName::new(stringify!($kind));
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn encode_part(&self, out: &mut Vec<u8>) {
                Value::encode(self, out);
            }
            fn decode(mut bytes: &[u8]) -> Result<$kind, Undecodable> {
                let value = <Self as Value>::decode_part(&mut bytes)?;
                all_taken(bytes, concat!($size, " bytes of ", stringify!($kind)))?;
                Ok(value)
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<$kind, Undecodable> {
                const EXPECTED: &str = concat!($size, " bytes of ", stringify!($kind));
                let mut fixed = [0; $size];
                fixed.copy_from_slice(take(bytes, $size, EXPECTED)?);
                Ok($kind::from_le_bytes(fixed))
            }
        }
    )*};
}

numbers!(u8 1, u16 2, u32 4, u64 8, u128 16, i8 1, i16 2, i32 4, i64 8, i128 16, f32 4, f64 8);

fn with_length(bytes: &[u8], out: &mut Vec<u8>) {
    // The table's limit refuses a value long before its length exceeds a u32.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn by_length(bytes: &mut &[u8]) -> Result<Vec<u8>, Undecodable> {
    let length = <u32 as Value>::decode_part(bytes)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    take(bytes, length, "a string of the length before it").map(<[u8]>::to_vec)
}

alike!(Value, parts of strings: with_length, by_length);

impl<V: Value> Value for Option<V> {
    type Owned = Option<V::Owned>;
    const TYPE: TypeName = TypeName::composed("option(", &[V::TYPE], ")");
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode(out);
        }
    }
    fn encode_part(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode_part(out);
        }
    }
    fn decode(mut bytes: &[u8]) -> Result<Self::Owned, Undecodable> {
        if <bool as Value>::decode_part(&mut bytes)? {
            return V::decode(bytes).map(Some);
        }
        all_taken(bytes, "the one byte of an absent option")?;
        Ok(None)
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self::Owned, Undecodable> {
        if <bool as Value>::decode_part(bytes)? {
            return V::decode_part(bytes).map(Some);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    //! Round trips of values, alone and followed by another value.

    use super::*;

    fn check<V: Value<Owned = V> + PartialEq + std::fmt::Debug>(value: V) {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert_eq!(V::decode(&bytes).as_ref(), Ok(&value));
        let mut part = Vec::new();
        value.encode_part(&mut part);
        part.push(9);
        let rest = &mut &part[..];
        assert_eq!(V::decode_part(rest).as_ref(), Ok(&value));
        assert_eq!(rest, &[9]);
    }

    #[test]
    fn values_come_back_as_they_were() {
        check(-5i64);
        check(u128::MAX);
        check(1.5f64);
        check(true);
        check(String::from("grün"));
        check(vec![0u8, 1, 255]);
        check(Some(String::new()));
        check(None::<String>);
        check((1u8, Some(vec![1u8]), "x".to_string(), [1u16, 2]));
        check([String::from("a"), String::new()]);
        check(());
    }

    #[test]
    fn bytes_of_another_type_are_refused() {
        assert!(<u16 as Value>::decode(&[1]).is_err());
        assert!(<Option<u8>>::decode(&[0, 1]).is_err());
        assert!(<Option<u8>>::decode(&[2, 1]).is_err());
        assert!(<(String, u8)>::decode(&[255, 255, 255, 255, 1]).is_err());
        assert!(<String as Value>::decode(&[0xc0]).is_err());
    }
}
