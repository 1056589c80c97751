//! A number with the digits it was written with: 0.40 stays 0.40.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::value::RawValue;

/// A JSON number and its text.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenNumber {
    text: String,
    value: f64,
}

impl WrittenNumber {
    /// Its value.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Its text, with thousands set apart.
    pub fn grouped(&self) -> String {
        let (sign, digits) = match self.text.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => ("", self.text.as_str()),
        };
        let whole_end = digits.find(|c: char| !c.is_ascii_digit());
        let (whole, rest) = digits.split_at(whole_end.unwrap_or(digits.len()));
        let mut grouped = String::new();
        for (index, digit) in whole.chars().enumerate() {
            if index > 0 && (whole.len() - index) % 3 == 0 {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        format!("{sign}{grouped}{rest}")
    }
}

impl<'de> Deserialize<'de> for WrittenNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WrittenNumber, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = raw.get();
        // JSON has no text but that of a number which parses as one.
        match text.parse() {
            Ok(value) => Ok(WrittenNumber {
                text: text.to_owned(),
                value,
            }),
            Err(_) => Err(D::Error::custom(format!(
                "invalid type: {text}, expected a number"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<WrittenNumber, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn digits_are_kept_and_thousands_set_apart() {
        for (text, grouped) in [
            ("0.40", "0.40"),
            ("1234567", "1,234,567"),
            ("-1234.50", "-1,234.50"),
            ("999", "999"),
            ("2e3", "2e3"),
        ] {
            assert_eq!(read(text).unwrap().grouped(), grouped);
        }
        assert!((read("0.40").unwrap().value() - 0.4).abs() < f64::EPSILON);
    }

    #[test]
    fn other_json_is_no_number() {
        for text in ["\"1,000\"", "true", "[1]", "{}", "null"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
