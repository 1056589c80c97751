//! JSON from a file that another program may have written, before it is parsed.
//!
//! # Invariants
//!
//! * I1  Parsing takes memory in proportion to the text: long text with more parts than any row has
//!   is refused.
//! * I2  Nothing is dropped: an object with the same field twice is refused.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Error, Map, Value, error::Category};

use super::shape::MOST_PARTS;

/// Shorter text may have any number of parts.
const SHORT: usize = 1 << 20;

/// Fields of an object that are read; no line of a dump has so many.
const MOST_FIELDS: usize = 16;

/// Characters of foreign text that are shown.
const SHOWN: usize = 200;

/// Parses any JSON, or returns why it is bad.
pub(crate) fn value(text: &[u8]) -> Result<Value, String> {
    check_parts(text)?;
    serde_json::from_slice(text).map_err(|error| wrong(text, &error))
}

/// Parses an object, or returns why it is bad (I2).
pub(crate) fn object(text: &[u8]) -> Result<Map<String, Value>, String> {
    check_parts(text)?;
    let Fields { list, rest } =
        serde_json::from_slice(text).map_err(|error| match error.classify() {
            Category::Data => "it is not an object, such as {\"key\":1,\"value\":2}".to_owned(),
            _ => wrong(text, &error),
        })?;
    if rest > 0 {
        return Err(format!("it has more than {MOST_FIELDS} fields"));
    }
    let mut object = Map::new();
    for (name, value) in list {
        if object.contains_key(&name) {
            return Err(format!("it has \"{}\" twice", brief(&name)));
        }
        object.insert(name, value);
    }
    Ok(object)
}

/// The beginning of foreign text, for messages.
pub(crate) fn brief(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text.to_owned(),
    }
}

fn wrong(text: &[u8], error: &Error) -> String {
    if std::str::from_utf8(text).is_err() {
        return "it is not UTF-8".to_owned();
    }
    let words = error.to_string();
    // The parser counts lines of this text alone; only the column is useful.
    let words = words
        .rsplit_once(" at line ")
        .map_or(&*words, |(words, _)| words);
    format!(
        "it is not JSON from column {} on ({})",
        error.column(),
        brief(words)
    )
}

/// Refuses text that would take many times its own memory (I1).
fn check_parts(text: &[u8]) -> Result<(), String> {
    // A key, a value, and the rest of an object.
    let most = 2 * MOST_PARTS + MOST_FIELDS;
    if text.len() <= SHORT || commas(text) <= most {
        return Ok(());
    }
    Err(format!("it has more than {most} parts; no row has so many"))
}

/// Commas outside of strings.
fn commas(text: &[u8]) -> usize {
    let (mut count, mut quoted, mut escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b',' if !quoted => count += 1,
            _ => {}
        }
    }
    count
}

/// The fields of an object in order, and the number of further ones.
struct Fields {
    list: Vec<(String, Value)>,
    rest: usize,
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Fields, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let (mut list, mut rest) = (Vec::new(), 0);
                while list.len() < MOST_FIELDS
                    && let Some(field) = map.next_entry()?
                {
                    list.push(field);
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    rest += 1;
                }
                Ok(Fields { list, rest })
            }
        }
        from.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &[u8]) -> String {
        object(text).expect_err("it is refused")
    }

    #[test]
    fn an_object_is_accepted_if_each_field_comes_once() {
        let fields = object(b" {\"key\": [1, {}], \"value\": \"a,b\\\"\"}\r\n").unwrap();
        assert_eq!(fields["key"], serde_json::json!([1, {}]));
        assert_eq!(fields["value"], "a,b\"");
        let twice = br#"{"key":1,"\u006bey":2,"value":3}"#;
        assert_eq!(refused(twice), "it has \"key\" twice");
    }

    #[test]
    fn text_that_is_no_object_is_refused_with_a_reason() {
        for (text, words) in [
            (&b""[..], "EOF"),
            (b"{\"key\":1,\"val", "EOF"),
            (b"[1]", "not an object"),
            (b"\"x\"", "not an object"),
            (b"{\"key\":1} {}", "trailing"),
            (b"{\"key\":\"\xff\"}", "not UTF-8"),
            (b"{\"key\":\"\0\"}", "control character"),
            (b"{\"key\":1e400}", "out of range"),
            (&[b'['; 100_000], "not an object"),
            (&[&b"{\"key\":"[..], &[b'['; 100_000]].concat(), "recursion"),
            (&b"{\"a\":".repeat(100_000), "recursion"),
        ] {
            let said = refused(text);
            assert!(said.contains(words), "{said:?} of {} bytes", text.len());
        }
        let fields: Vec<String> = (0..100_000).map(|n| format!("\"{n}\":0")).collect();
        let said = refused(format!("{{{}}}", fields.join(",")).as_bytes());
        assert!(said.contains("16 fields"), "{said}");
    }

    #[test]
    fn long_text_of_many_parts_is_not_parsed() {
        let list = format!("{{\"key\":[{}0]}}", "0,".repeat(1 << 20));
        assert!(refused(list.as_bytes()).contains("parts"));
        assert!(value(list.as_bytes()).unwrap_err().contains("parts"));
        let text = format!("{{\"key\":\"{}\\\\\"}}", ",\\\"".repeat(1 << 20));
        assert!(object(text.as_bytes()).is_ok(), "all of it is one string");
    }
}
