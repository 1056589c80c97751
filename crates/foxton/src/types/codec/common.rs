//! Encodings that keys and values share: booleans, text, bytes, arrays and tuples.
//!
//! `Key` and `Value` are two traits, because one promises an order and the other does not, and a
//! type may implement only one of them. They have the same four functions, and both build composed
//! types in the same way. They differ in their numbers and in how a string marks its end. So the
//! macro takes two functions as parameters: one writes the bytes of a string as a part, the other
//! reads them.

/// Implements `Key` or `Value` for `bool`, strings, bytes, arrays and tuples up to 4.
macro_rules! alike {
    ($trait:ident, parts of strings: $write_part:ident, $read_part:ident) => {
        impl $trait for bool {
            type Owned = bool;
            const TYPE: TypeName = TypeName::new("bool");
            fn encode(&self, out: &mut Vec<u8>) {
                out.push(u8::from(*self));
            }
            fn encode_part(&self, out: &mut Vec<u8>) {
                $trait::encode(self, out);
            }
            fn decode(mut bytes: &[u8]) -> Result<bool, Undecodable> {
                let truth = <bool as $trait>::decode_part(&mut bytes)?;
                all_taken(bytes, "one byte of bool")?;
                Ok(truth)
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<bool, Undecodable> {
                match take(bytes, 1, "one byte of bool")? {
                    [0] => Ok(false),
                    [1] => Ok(true),
                    _ => Err(Undecodable { expected: "a bool, 0 or 1" }),
                }
            }
        }

        alike!(strings $trait, $write_part, $read_part: str, &str, String);
        alike!(bytes $trait, $write_part, $read_part: [u8], &[u8], Vec<u8>);

        impl<T: $trait, const N: usize> $trait for [T; N] {
            type Owned = [T::Owned; N];
            const TYPE: TypeName = TypeName::array(T::TYPE, N);
            fn encode(&self, out: &mut Vec<u8>) {
                self.encode_part(out);
            }
            fn encode_part(&self, out: &mut Vec<u8>) {
                for element in self {
                    element.encode_part(out);
                }
            }
            fn decode(mut bytes: &[u8]) -> Result<Self::Owned, Undecodable> {
                let array = Self::decode_part(&mut bytes)?;
                all_taken(bytes, "an array of its fixed length")?;
                Ok(array)
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<Self::Owned, Undecodable> {
                let mut failure = None;
                let elements: [Option<T::Owned>; N] = std::array::from_fn(|_| {
                    T::decode_part(bytes)
                        .map_err(|undecodable| failure = Some(undecodable))
                        .ok()
                });
                match failure {
                    Some(undecodable) => Err(undecodable),
                    None => Ok(elements.map(|element| element.expect("no element failed"))),
                }
            }
        }

        impl $trait for () {
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

        alike!(tuples $trait:
            (; A 0)
            (A 0; B 1)
            (A 0, B 1; C 2)
            (A 0, B 1, C 2; D 3)
        );
    };
    (strings $trait:ident, $write_part:ident, $read_part:ident: $($kind:ty),*) => {$(
        impl $trait for $kind {
            type Owned = String;
            const TYPE: TypeName = TypeName::new("str");
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }
            fn encode_part(&self, out: &mut Vec<u8>) {
                $write_part(self.as_bytes(), out);
            }
            fn decode(bytes: &[u8]) -> Result<String, Undecodable> {
                text(bytes.to_vec())
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<String, Undecodable> {
                text($read_part(bytes)?)
            }
        }
    )*};
    (bytes $trait:ident, $write_part:ident, $read_part:ident: $($kind:ty),*) => {$(
        impl $trait for $kind {
            type Owned = Vec<u8>;
            const TYPE: TypeName = TypeName::new("bytes");
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self);
            }
            fn encode_part(&self, out: &mut Vec<u8>) {
                $write_part(self, out);
            }
            fn decode(bytes: &[u8]) -> Result<Vec<u8>, Undecodable> {
                Ok(bytes.to_vec())
            }
            fn decode_part(bytes: &mut &[u8]) -> Result<Vec<u8>, Undecodable> {
                $read_part(bytes)
            }
        }
    )*};
    (tuples $trait:ident: $(($($part:ident $index:tt),*; $last:ident $last_index:tt))*) => {$(
        impl<$($part: $trait,)* $last: $trait> $trait for ($($part,)* $last,) {
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

pub(super) use alike;
