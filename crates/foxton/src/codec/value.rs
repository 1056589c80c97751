//! Values: what comes out is what went in. No order is promised.
//!
//! Numbers are little-endian. Strings and bytes are themselves when they stand alone or come last,
//! and carry a 4-byte length when something follows. An option is one byte, then its value.

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
    /// What decoding gives: `String` for `str`, the type itself for most.
    type Owned;

    /// The name stored with a table whose values these are.
    const TYPE: TypeName;

    /// Appends the encoding of a value that stands alone or comes last.
    fn encode(&self, out: &mut Vec<u8>);

    /// Appends an encoding that says where it ends, for a value that something follows.
    fn encode_part(&self, out: &mut Vec<u8>);

    /// Reads what [`Value::encode`] wrote; all of `bytes` belongs to it.
    ///
    /// # Errors
    /// [`Undecodable`] if the bytes are no encoding of this type.
    fn decode(bytes: &[u8]) -> Result<Self::Owned, Undecodable>;

    /// Reads what [`Value::encode_part`] wrote off the front of `bytes`.
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

impl Value for bool {
    type Owned = bool;
    const TYPE: TypeName = TypeName::new("bool");
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn encode_part(&self, out: &mut Vec<u8>) {
        Value::encode(self, out);
    }
    fn decode(mut bytes: &[u8]) -> Result<bool, Undecodable> {
        let value = <Self as Value>::decode_part(&mut bytes)?;
        all_taken(bytes, "one byte of bool")?;
        Ok(value)
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<bool, Undecodable> {
        match take(bytes, 1, "one byte of bool")? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Undecodable {
                expected: "a bool, 0 or 1",
            }),
        }
    }
}

fn with_length(bytes: &[u8], out: &mut Vec<u8>) {
    // A value this long is refused by the table's limit long before the length would not fit.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn by_length<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Undecodable> {
    let length = <u32 as Value>::decode_part(bytes)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    take(bytes, length, "a string of the length before it")
}

macro_rules! strings {
    ($($kind:ty),*) => {$(
        impl Value for $kind {
            type Owned = String;
            const TYPE: TypeName = TypeName::new("str");
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }
            fn encode_part(&self, out: &mut Vec<u8>) {
                with_length(self.as_bytes(), out);
            }
            fn decode(bytes: &[u8]) -> Result<String, Undecodable> {
                text(bytes).map(String::from)
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<String, Undecodable> {
                text(by_length(bytes)?).map(String::from)
            }
        }
    )*};
}

strings!(str, &str, String);

macro_rules! byte_strings {
    ($($kind:ty),*) => {$(
        impl Value for $kind {
            type Owned = Vec<u8>;
            const TYPE: TypeName = TypeName::new("bytes");
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self);
            }
            fn encode_part(&self, out: &mut Vec<u8>) {
                with_length(self, out);
            }
            fn decode(bytes: &[u8]) -> Result<Vec<u8>, Undecodable> {
                Ok(bytes.to_vec())
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<Vec<u8>, Undecodable> {
                by_length(bytes).map(<[u8]>::to_vec)
            }
        }
    )*};
}

byte_strings!([u8], &[u8], Vec<u8>);

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

impl<V: Value, const N: usize> Value for [V; N] {
    type Owned = [V::Owned; N];
    const TYPE: TypeName = TypeName::array(V::TYPE, N);
    fn encode(&self, out: &mut Vec<u8>) {
        self.encode_part(out);
    }
    fn encode_part(&self, out: &mut Vec<u8>) {
        for element in self {
            element.encode_part(out);
        }
    }
    fn decode(mut bytes: &[u8]) -> Result<Self::Owned, Undecodable> {
        let value = Self::decode_part(&mut bytes)?;
        all_taken(bytes, "an array of its fixed length")?;
        Ok(value)
    }
    fn decode_part(bytes: &mut &[u8]) -> Result<Self::Owned, Undecodable> {
        let mut failure = None;
        let elements: [Option<V::Owned>; N] = std::array::from_fn(|_| {
            V::decode_part(bytes)
                .map_err(|undecodable| failure = Some(undecodable))
                .ok()
        });
        match failure {
            Some(undecodable) => Err(undecodable),
            None => Ok(elements.map(|element| element.expect("no element failed"))),
        }
    }
}

impl Value for () {
    type Owned = ();
    const TYPE: TypeName = TypeName::new("()");
    fn encode(&self, _out: &mut Vec<u8>) {}
    fn encode_part(&self, _out: &mut Vec<u8>) {}
    fn decode(bytes: &[u8]) -> Result<(), Undecodable> {
        all_taken(bytes, "nothing, the encoding of ()")
    }
    fn decode_part(_bytes: &mut &[u8]) -> Result<(), Undecodable> {
        Ok(())
    }
}

macro_rules! tuples {
    ($(($($part:ident $index:tt),*; $last:ident $last_index:tt))*) => {$(
        impl<$($part: Value,)* $last: Value> Value for ($($part,)* $last,) {
            type Owned = ($($part::Owned,)* $last::Owned,);
            const TYPE: TypeName = TypeName::composed("(", &[$($part::TYPE,)* $last::TYPE], ")");
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$index.encode_part(out);)*
                self.$last_index.encode(out);
            }
            fn encode_part(&self, out: &mut Vec<u8>) {
                $(self.$index.encode_part(out);)*
                self.$last_index.encode_part(out);
            }
            fn decode(bytes: &[u8]) -> Result<Self::Owned, Undecodable> {
                let rest = &mut &*bytes;
                Ok(($($part::decode_part(rest)?,)* $last::decode(rest)?,))
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<Self::Owned, Undecodable> {
                Ok(($($part::decode_part(bytes)?,)* $last::decode_part(bytes)?,))
            }
        }
    )*};
}

tuples! {
    (; A 0)
    (A 0; B 1)
    (A 0, B 1; C 2)
    (A 0, B 1, C 2; D 3)
}

#[cfg(test)]
mod tests {
    //! What goes in comes out, alone and followed by something.

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
