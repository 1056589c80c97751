//! Keys and values of any type as JSON and back, by the name of the type that a table keeps.
//!
//! | type | JSON |
//! |---|---|
//! | `u8` .. `u64`, `i8` .. `i64` | a number |
//! | `u128`, `i128` | a number, or its digits as a string where it is larger than 64 bits |
//! | `f32`, `f64` | a number, or `"inf"`, `"-inf"`, `"nan"`, `"nan:BITS"`; too large is refused |
//! | `bool` | `true`, `false` |
//! | `str` | a string |
//! | `bytes` | a string of hexadecimal digits after `0x` |
//! | tuples, arrays, `()` | an array |
//! | `option(T)` | `null`, or the value; `{"some": ..}` around a value that is an option itself |
//! | a type of the user's own | its encoding, as `bytes` |
//!
//! # Invariants
//!
//! * I1  Bytes converted to JSON and back are the same. A stored key or value that does not match
//!   its type, or that is not encoded as here, becomes `{"raw": "0x.."}`.
//! * I2  The name of a type, however long, takes little time: names that are nested too deeply or
//!   have too many parts are treated as types of the user's own.

use foxton::codec::{Key, Value as Stored};
use serde_json::{Map, Number, Value};

/// Depth of nesting, and number of parts, up to which a type's name is parsed (I2).
const DEEPEST: usize = 16;
pub(crate) const MOST_PARTS: usize = 1 << 16;

/// Longer than any name that a database keeps. A longer name was truncated there and cannot be
/// parsed (I2).
const LONGEST_NAME: usize = 256;

/// Key or value: the same type has two encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Key,
    Value,
}

/// The structure of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Unsigned(usize),
    Signed(usize),
    Float(usize),
    Bool,
    Text,
    Bytes,
    Tuple(Vec<Kind>),
    Array(Box<Kind>, usize),
    Option(Box<Kind>),
}

/// The keys or the values of a table.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    side: Side,
    name: String,
    /// `None` for a type of the user's own.
    kind: Option<Kind>,
}

impl Shape {
    /// Parses the type called `name`.
    pub(crate) fn new(side: Side, name: &str) -> Shape {
        let kind = match name.len() <= LONGEST_NAME {
            true => Kind::named(side, name).filter(|kind| kind.parts() <= MOST_PARTS),
            false => None,
        };
        Shape {
            side,
            name: name.to_owned(),
            kind,
        }
    }

    /// The name of the type.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The structure of the type, if it is known.
    pub(crate) fn kind(&self) -> Option<&Kind> {
        self.kind.as_ref()
    }

    /// Stored bytes as JSON (I1).
    pub(crate) fn to_json(&self, bytes: &[u8]) -> Value {
        let Some(kind) = &self.kind else {
            return Value::String(hex(bytes));
        };
        let exact = |json: &Value| self.to_bytes(json).is_ok_and(|again| again == bytes);
        let decoded = kind.decode(self.side, bytes).filter(exact);
        decoded.unwrap_or_else(|| object("raw", Value::String(hex(bytes))))
    }

    /// JSON as it is stored; or the JSON that would be accepted.
    pub(crate) fn to_bytes(&self, json: &Value) -> Result<Vec<u8>, String> {
        if let Some(raw) = field(json, "raw") {
            let bytes = raw.as_str().and_then(unhex);
            return bytes.ok_or_else(|| unfit(raw, "hexadecimal digits after 0x"));
        }
        let mut bytes = Vec::new();
        match &self.kind {
            Some(kind) => kind.encode(self.side, json, &mut bytes)?,
            None => {
                let own = json.as_str().and_then(unhex);
                bytes = own.ok_or_else(|| {
                    let what = format!("the encoding of {}, in hexadecimal after 0x", self.name);
                    unfit(json, &what)
                })?;
            }
        }
        Ok(bytes)
    }
}

impl Kind {
    fn named(side: Side, name: &str) -> Option<Kind> {
        let (kind, rest) = Kind::parse(side, name, 0)?;
        rest.is_empty().then_some(kind)
    }

    /// Parses the type at the start of `text`, and returns the rest.
    fn parse(side: Side, text: &str, depth: usize) -> Option<(Kind, &str)> {
        if depth > DEEPEST {
            return None;
        }
        if let Some(rest) = text.strip_prefix("option(") {
            let (inner, rest) = Kind::parse(side, rest, depth + 1)?;
            let rest = rest.strip_prefix(')')?;
            return (side == Side::Value).then_some((Kind::Option(Box::new(inner)), rest));
        }
        if let Some(mut rest) = text.strip_prefix('(') {
            let mut parts = Vec::new();
            if let Some(rest) = rest.strip_prefix(')') {
                return Some((Kind::Tuple(parts), rest));
            }
            loop {
                let (part, behind) = Kind::parse(side, rest, depth + 1)?;
                parts.push(part);
                if let Some(behind) = behind.strip_prefix(')') {
                    return Some((Kind::Tuple(parts), behind));
                }
                rest = behind.strip_prefix(',')?;
            }
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (part, rest) = Kind::parse(side, rest, depth + 1)?;
            let (count, rest) = rest.strip_prefix(';')?.split_once(']')?;
            return Some((Kind::Array(Box::new(part), count.parse().ok()?), rest));
        }
        let end = text.find([',', ')', ';', ']']).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        let number = |bits: &str| match bits {
            "8" => Some(1),
            "16" => Some(2),
            "32" => Some(4),
            "64" => Some(8),
            "128" => Some(16),
            _ => None,
        };
        let kind = match word {
            "bool" => Kind::Bool,
            "str" => Kind::Text,
            "bytes" => Kind::Bytes,
            "f32" if side == Side::Value => Kind::Float(4),
            "f64" if side == Side::Value => Kind::Float(8),
            _ => match (word.get(..1)?, number(word.get(1..)?)?) {
                ("u", size) => Kind::Unsigned(size),
                ("i", size) => Kind::Signed(size),
                _ => return None,
            },
        };
        Some((kind, rest))
    }

    /// Approximate work for one value.
    fn parts(&self) -> usize {
        match self {
            Kind::Tuple(parts) => parts
                .iter()
                .fold(1, |sum: usize, part| sum.saturating_add(part.parts())),
            Kind::Array(part, count) => part.parts().saturating_mul(*count).saturating_add(1),
            Kind::Option(inner) => inner.parts().saturating_add(1),
            _ => 1,
        }
    }

    fn decode(&self, side: Side, bytes: &[u8]) -> Option<Value> {
        let rest = &mut &*bytes;
        let json = self.decode_last(side, rest)?;
        rest.is_empty().then_some(json)
    }

    /// Reads a value that is alone or comes last.
    fn decode_last(&self, side: Side, rest: &mut &[u8]) -> Option<Value> {
        match self {
            Kind::Text => text(std::mem::take(rest).to_vec()),
            Kind::Bytes => Some(Value::String(hex(std::mem::take(rest)))),
            Kind::Tuple(parts) => {
                let Some((last, first)) = parts.split_last() else {
                    return Some(Value::Array(Vec::new()));
                };
                let parts = first.iter().map(|part| part.decode_part(side, rest));
                let mut list = parts.collect::<Option<Vec<Value>>>()?;
                list.push(last.decode_last(side, rest)?);
                Some(Value::Array(list))
            }
            Kind::Option(inner) => optional(rest, inner, |rest| inner.decode_last(side, rest)),
            _ => self.decode_part(side, rest),
        }
    }

    /// Reads a value with more behind it.
    fn decode_part(&self, side: Side, rest: &mut &[u8]) -> Option<Value> {
        match self {
            Kind::Unsigned(size) => {
                let number = number(side, take(rest, *size)?);
                Some(match u64::try_from(number) {
                    Ok(number) => number.into(),
                    Err(_) => number.to_string().into(),
                })
            }
            Kind::Signed(size) => {
                let (number, bits) = (number(side, take(rest, *size)?), 8 * size);
                let number = match side {
                    Side::Key => number ^ (1 << (bits - 1)),
                    Side::Value => number,
                };
                // The sign is the highest bit of `size` bytes.
                let number = (number << (128 - bits)).cast_signed() >> (128 - bits);
                Some(match i64::try_from(number) {
                    Ok(number) => number.into(),
                    Err(_) => number.to_string().into(),
                })
            }
            Kind::Float(4) => {
                let single = f32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
                // The shortest form, if reading it gives the same number.
                let short: f64 = single.to_string().parse().ok()?;
                let same = (short as f32).to_bits() == single.to_bits();
                let wide = if same { short } else { f64::from(single) };
                Some(float(wide, single.to_bits().into()))
            }
            Kind::Float(_) => {
                let double = f64::from_le_bytes(take(rest, 8)?.try_into().ok()?);
                Some(float(double, double.to_bits()))
            }
            Kind::Bool => match take(rest, 1)? {
                [0] => Some(false.into()),
                [1] => Some(true.into()),
                _ => None,
            },
            Kind::Text => text(bytes_part(side, rest)?),
            Kind::Bytes => Some(Value::String(hex(&bytes_part(side, rest)?))),
            Kind::Tuple(parts) => {
                let parts = parts.iter().map(|part| part.decode_part(side, rest));
                Some(Value::Array(parts.collect::<Option<_>>()?))
            }
            Kind::Array(part, count) => {
                let parts = (0..*count).map(|_| part.decode_part(side, rest));
                Some(Value::Array(parts.collect::<Option<_>>()?))
            }
            Kind::Option(inner) => optional(rest, inner, |rest| inner.decode_part(side, rest)),
        }
    }

    fn encode(&self, side: Side, json: &Value, out: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Kind::Text => {
                out.extend_from_slice(string(json)?.as_bytes());
                Ok(())
            }
            Kind::Bytes => {
                out.extend_from_slice(&bytes(json)?);
                Ok(())
            }
            Kind::Tuple(parts) => {
                let list = list(json, parts.len())?;
                for (index, (part, json)) in parts.iter().zip(list).enumerate() {
                    match index + 1 == parts.len() {
                        true => part.encode(side, json, out)?,
                        false => part.encode_part(side, json, out)?,
                    }
                }
                Ok(())
            }
            Kind::Option(inner) => match some(json, inner) {
                None => {
                    out.push(0);
                    Ok(())
                }
                Some(json) => {
                    out.push(1);
                    inner.encode(side, json, out)
                }
            },
            _ => self.encode_part(side, json, out),
        }
    }

    fn encode_part(&self, side: Side, json: &Value, out: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Kind::Unsigned(size) => {
                let bits = 8 * size;
                let number = digits::<u128>(json, || json.as_u64().map(u128::from));
                let number = number.filter(|number| bits == 128 || number >> bits == 0);
                let number = number.ok_or_else(|| unfit(json, &format!("u{bits}")))?;
                put_number(side, number, *size, out);
            }
            Kind::Signed(size) => {
                let bits = 8 * size;
                let number = digits::<i128>(json, || json.as_i64().map(i128::from));
                let fits = |number: &i128| {
                    let sign = number >> (bits - 1);
                    sign == 0 || sign == -1
                };
                let number = number
                    .filter(fits)
                    .ok_or_else(|| unfit(json, &format!("i{bits}")))?;
                let flip = match side {
                    Side::Key => 1 << (bits - 1),
                    Side::Value => 0,
                };
                put_number(side, number.cast_unsigned() ^ flip, *size, out);
            }
            Kind::Float(size) => {
                let bytes = unfloat(json, *size);
                let bytes = bytes.ok_or_else(|| unfit(json, &format!("f{}", 8 * size)))?;
                out.extend_from_slice(&bytes);
            }
            Kind::Bool => {
                let truth = json.as_bool();
                out.push(truth.ok_or_else(|| unfit(json, "true or false"))?.into());
            }
            Kind::Text => put_bytes_part(side, string(json)?.as_bytes(), out),
            Kind::Bytes => put_bytes_part(side, &bytes(json)?, out),
            Kind::Tuple(parts) => {
                for (part, json) in parts.iter().zip(list(json, parts.len())?) {
                    part.encode_part(side, json, out)?;
                }
            }
            Kind::Array(part, count) => {
                for json in list(json, *count)? {
                    part.encode_part(side, json, out)?;
                }
            }
            Kind::Option(inner) => match some(json, inner) {
                None => out.push(0),
                Some(json) => {
                    out.push(1);
                    inner.encode_part(side, json, out)?;
                }
            },
        }
        Ok(())
    }
}

/// Message: `json` is not `expected`.
fn unfit(json: &Value, expected: &str) -> String {
    let mut found = json.to_string();
    if let Some((cut, _)) = found.char_indices().nth(60) {
        found.truncate(cut);
        found.push_str("...");
    }
    format!("{found} is not {expected}")
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (front, behind) = rest.split_at_checked(count)?;
    *rest = behind;
    Some(front)
}

/// Keys have the highest byte first, values the lowest.
fn number(side: Side, bytes: &[u8]) -> u128 {
    let shifted = |sum: u128, byte: &u8| sum << 8 | u128::from(*byte);
    match side {
        Side::Key => bytes.iter().fold(0, shifted),
        Side::Value => bytes.iter().rev().fold(0, shifted),
    }
}

fn put_number(side: Side, number: u128, size: usize, out: &mut Vec<u8>) {
    match side {
        Side::Key => out.extend_from_slice(&number.to_be_bytes()[16 - size..]),
        Side::Value => out.extend_from_slice(&number.to_le_bytes()[..size]),
    }
}

fn bytes_part(side: Side, rest: &mut &[u8]) -> Option<Vec<u8>> {
    match side {
        Side::Key => <[u8] as Key>::decode_part(rest).ok(),
        Side::Value => <[u8] as Stored>::decode_part(rest).ok(),
    }
}

fn put_bytes_part(side: Side, bytes: &[u8], out: &mut Vec<u8>) {
    match side {
        Side::Key => Key::encode_part(bytes, out),
        Side::Value => Stored::encode_part(bytes, out),
    }
}

fn text(bytes: Vec<u8>) -> Option<Value> {
    String::from_utf8(bytes).ok().map(Value::String)
}

fn string(json: &Value) -> Result<&str, String> {
    json.as_str().ok_or_else(|| unfit(json, "a string"))
}

fn bytes(json: &Value) -> Result<Vec<u8>, String> {
    let bytes = json.as_str().and_then(unhex);
    bytes.ok_or_else(|| unfit(json, "a string of hexadecimal digits after 0x"))
}

fn list(json: &Value, count: usize) -> Result<&[Value], String> {
    let list = json.as_array().filter(|list| list.len() == count);
    list.map(|list| &list[..])
        .ok_or_else(|| unfit(json, &format!("an array of {count}")))
}

/// A number, or its digits in a string.
fn digits<T: std::str::FromStr>(json: &Value, number: impl FnOnce() -> Option<T>) -> Option<T> {
    match json.as_str() {
        Some(digits) => digits.parse().ok(),
        None => number(),
    }
}

fn float(number: f64, bits: u64) -> Value {
    match Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number.is_nan() => format!("nan:{bits:x}").into(),
        None if number > 0.0 => "inf".into(),
        None => "-inf".into(),
    }
}

/// The bytes of a float as a value. A number that is too large is refused, not infinite.
fn unfloat(json: &Value, size: usize) -> Option<Vec<u8>> {
    let words = json.as_str();
    if let Some(bits) = words.and_then(|words| words.strip_prefix("nan:")) {
        let bits = u64::from_str_radix(bits, 16).ok()?;
        let is_nan = match size {
            4 => f32::from_bits(u32::try_from(bits).ok()?).is_nan(),
            _ => f64::from_bits(bits).is_nan(),
        };
        return is_nan.then(|| bits.to_le_bytes()[..size].to_vec());
    }
    let may_be_infinite =
        words.is_some_and(|words| words.trim_start_matches(['+', '-']).starts_with(['i', 'I']));
    let fits = |is_infinite: bool| may_be_infinite || !is_infinite;
    if size == 4 {
        let single = match words {
            // Straight from the digits, because a conversion through f64 would round twice.
            Some(words) => words.parse().ok()?,
            None => json.as_f64()? as f32,
        };
        return fits(single.is_infinite()).then(|| single.to_le_bytes().to_vec());
    }
    let double: f64 = match words {
        Some(words) => words.parse().ok()?,
        None => json.as_f64()?,
    };
    fits(double.is_infinite()).then(|| double.to_le_bytes().to_vec())
}

fn optional<'a>(
    rest: &mut &'a [u8],
    inner: &Kind,
    decode: impl FnOnce(&mut &'a [u8]) -> Option<Value>,
) -> Option<Value> {
    match (take(rest, 1)?, inner) {
        ([0], _) => Some(Value::Null),
        ([1], Kind::Option(_)) => Some(object("some", decode(rest)?)),
        ([1], _) => decode(rest),
        _ => None,
    }
}

/// The value inside an option.
fn some<'a>(json: &'a Value, inner: &Kind) -> Option<&'a Value> {
    match (json, inner) {
        (Value::Null, _) => None,
        (json, Kind::Option(_)) => Some(field(json, "some").unwrap_or(json)),
        (json, _) => Some(json),
    }
}

fn object(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}

/// The only field of an object, if it has this name.
fn field<'a>(json: &'a Value, name: &str) -> Option<&'a Value> {
    let object = json.as_object().filter(|object| object.len() == 1)?;
    object.get(name)
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("0x");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The bytes that [`hex`] wrote.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x")?.as_bytes();
    let byte = |pair: &[u8]| {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        u8::try_from(high * 16 + low).ok()
    };
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks_exact(2).map(byte).collect()
}

#[cfg(test)]
mod tests;
