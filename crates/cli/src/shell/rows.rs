//! Keys and values as a person types and reads them, by the types of their table.
//!
//! Numbers, text and truth values are typed and shown as such. Bytes are text, or hexadecimal after
//! `0x`. Values of any other type are hexadecimal: their encoding, as it is stored.

use std::str::FromStr;

use foxton::codec::{Key, Value};

use crate::rows::shape::{hex, unhex};

/// Characters of a value shown before it is cut.
const SHOWN: usize = 72;

/// `$body` with `$kind` as the type called `$name`, or `$otherwise` if a person would not type it
/// as one word.
macro_rules! by_type {
    ($name:expr, $kind:ident => $body:expr, $otherwise:expr) => {
        by_type!(@ $name, $kind => $body, $otherwise, u8 u16 u32 u64 i8 i16 i32 i64 bool)
    };
    (@ $name:expr, $kind:ident => $body:expr, $otherwise:expr, $($known:ident)*) => {
        match $name {
            $(stringify!($known) => {
                type $kind = $known;
                $body
            })*
            _ => $otherwise,
        }
    };
}

/// The stored form of a key typed by a person.
pub(crate) fn key(type_name: &str, text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    by_type!(
        type_name,
        T => Key::encode(&typed::<T>(type_name, text)?, &mut bytes),
        return plain(type_name, text)
    );
    Ok(bytes)
}

/// The stored form of a value typed by a person.
pub(crate) fn value(type_name: &str, text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    by_type!(
        type_name,
        T => Value::encode(&typed::<T>(type_name, text)?, &mut bytes),
        return plain(type_name, text)
    );
    Ok(bytes)
}

/// A stored key for a person to read.
pub(crate) fn show_key(type_name: &str, bytes: &[u8]) -> String {
    let number =
        by_type!(type_name, T => <T as Key>::decode(bytes).ok().map(|it| it.to_string()), None);
    number.unwrap_or_else(|| show_plain(type_name, bytes))
}

/// A stored value for a person to read.
pub(crate) fn show_value(type_name: &str, bytes: &[u8]) -> String {
    let number =
        by_type!(type_name, T => <T as Value>::decode(bytes).ok().map(|it| it.to_string()), None);
    number.unwrap_or_else(|| show_plain(type_name, bytes))
}

fn typed<T: FromStr>(type_name: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("\"{text}\" is not of type {type_name}, which this table needs"))
}

fn plain(type_name: &str, text: &str) -> Result<Vec<u8>, String> {
    match (type_name, text.strip_prefix("0x")) {
        ("str", _) | ("bytes", None) => Ok(text.as_bytes().to_vec()),
        (_, Some(_)) => unhex(text).ok_or_else(|| {
            format!("\"{text}\" is not a hexadecimal number of whole bytes, such as 0x00ff")
        }),
        (_, None) => Err(format!(
            "this table has values of type {type_name}; the shell takes only their encoding in hexadecimal, \
             such as 0x00ff"
        )),
    }
}

fn show_plain(type_name: &str, bytes: &[u8]) -> String {
    let text = str::from_utf8(bytes).ok();
    let readable = text.filter(|text| !text.chars().any(char::is_control));
    match readable {
        Some(text) if matches!(type_name, "str" | "bytes") => cut(text, bytes.len()),
        _ => {
            let shown = &bytes[..bytes.len().min(SHOWN)];
            cut(&hex(shown), bytes.len())
        }
    }
}

fn cut(text: &str, bytes: usize) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}... ({bytes} bytes)", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_what_is_shown() {
        for (kind, text) in [
            ("u32", "7"),
            ("i64", "-12"),
            ("bool", "true"),
            ("str", "big apple"),
            ("bytes", "text"),
            ("bytes", "0x00ff"),
            ("(u32,str)", "0x0000000161"),
        ] {
            assert_eq!(show_key(kind, &key(kind, text).unwrap()), text, "{kind}");
            assert_eq!(
                show_value(kind, &value(kind, text).unwrap()),
                text,
                "{kind}"
            );
        }
    }

    #[test]
    fn a_value_of_another_type_is_refused_with_a_reason() {
        assert_eq!(
            key("u32", "x").unwrap_err(),
            "\"x\" is not of type u32, which this table needs"
        );
        assert!(key("(u32,str)", "1").unwrap_err().contains("hexadecimal"));
        assert!(key("bytes", "0xabc").unwrap_err().contains("whole bytes"));
    }

    #[test]
    fn a_long_value_is_cut_and_says_how_long_it_was() {
        assert!(show_value("str", "x".repeat(500).as_bytes()).ends_with("... (500 bytes)"));
    }
}
