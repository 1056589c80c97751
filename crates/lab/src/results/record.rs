//! One record: its fields as they are in the file, and the rules that they keep.

use std::collections::HashSet;

use serde::{Deserialize, Deserializer};

use super::number::WrittenNumber;

/// One published result. The module's first page explains the fields.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the table of the first page documents them")]
pub struct ResultRecord {
    pub id: String,
    pub title: String,
    pub question: String,
    #[serde(deserialize_with = "nullable")]
    pub command: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub commit: Option<String>,
    pub machine: ResultMachine,
    #[serde(deserialize_with = "nullable")]
    pub date: Option<String>,
    pub unit: String,
    pub values: Vec<ResultValue>,
    #[serde(deserialize_with = "nullable")]
    pub note: Option<String>,
    #[serde(default)]
    pub readme: Vec<ReadmeRow>,
}

/// The machine of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the table of the first page documents them")]
pub struct ResultMachine {
    #[serde(deserialize_with = "nullable")]
    pub processor: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub cores: Option<u32>,
    #[serde(deserialize_with = "nullable")]
    pub memory: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub os: Option<String>,
}

/// One number with its spread.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the table of the first page documents them")]
pub struct ResultValue {
    pub row: String,
    pub series: String,
    #[serde(default)]
    pub unit: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub value: Option<WrittenNumber>,
    #[serde(deserialize_with = "nullable")]
    pub low: Option<WrittenNumber>,
    #[serde(deserialize_with = "nullable")]
    pub high: Option<WrittenNumber>,
    #[serde(deserialize_with = "nullable")]
    pub passes: Option<u32>,
}

/// A line of the README's table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadmeRow {
    /// Its place in the table, from 1; no two lines share one.
    pub place: u32,
    /// The measurement, in a few words.
    pub text: String,
    /// Row of the value.
    pub row: String,
    /// Series of the value.
    pub series: String,
}

/// A field that may be null but not absent.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// A field that breaks a rule: its name, and the rule in words.
pub(super) type BrokenRule = (String, String);

impl ResultRecord {
    /// Value of this row and series.
    pub fn value(&self, row: &str, series: &str) -> Option<&ResultValue> {
        let mut values = self.values.iter();
        values.find(|value| value.row == row && value.series == series)
    }

    /// Unit of `value`.
    pub fn unit_of<'a>(&'a self, value: &'a ResultValue) -> &'a str {
        value.unit.as_deref().unwrap_or(&self.unit)
    }

    /// Checks the rules that types cannot state.
    pub(super) fn check(&self) -> Result<(), BrokenRule> {
        let broken = |field: &str, what: String| Err((field.to_owned(), what));
        let id_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.id.is_empty() || !self.id.chars().all(id_letter) {
            return broken(
                "id",
                format!("{:?} is not lower case, digits and hyphens", self.id),
            );
        }
        let lines = [
            ("title", &self.title),
            ("question", &self.question),
            ("unit", &self.unit),
        ];
        lines
            .into_iter()
            .try_for_each(|(field, text)| plain_line(field, text))?;
        if !self.question.ends_with('?') {
            return broken("question", "does not end in a question mark".to_owned());
        }
        let notes = [
            ("note", &self.note),
            ("machine.processor", &self.machine.processor),
        ];
        for (field, text) in notes {
            text.iter().try_for_each(|text| plain_line(field, text))?;
        }
        for (field, text) in [
            ("machine.memory", &self.machine.memory),
            ("machine.os", &self.machine.os),
        ] {
            text.iter().try_for_each(|text| plain_line(field, text))?;
        }
        if self
            .command
            .as_deref()
            .is_some_and(|command| command.trim().is_empty())
        {
            return broken(
                "command",
                "is empty; give null if no command measures it".to_owned(),
            );
        }
        if let Some(commit) = &self.commit
            && !((7..=40).contains(&commit.len()) && commit.chars().all(|c| c.is_ascii_hexdigit()))
        {
            return broken(
                "commit",
                format!("{commit:?} is not 7 to 40 hexadecimal digits"),
            );
        }
        if let Some(date) = &self.date
            && !is_date(date)
        {
            return broken("date", format!("{date:?} is not a day such as 2026-01-31"));
        }
        self.check_values()?;
        self.check_readme()
    }

    fn check_values(&self) -> Result<(), BrokenRule> {
        if self.values.is_empty() {
            return Err(("values".to_owned(), "is empty".to_owned()));
        }
        let mut cells = HashSet::new();
        for (index, value) in self.values.iter().enumerate() {
            let field = |name: &str| format!("values[{index}].{name}");
            plain_line(&field("row"), &value.row)?;
            plain_line(&field("series"), &value.series)?;
            value
                .unit
                .iter()
                .try_for_each(|unit| plain_line(&field("unit"), unit))?;
            if !cells.insert((&value.row, &value.series)) {
                let what = format!("{} of {} is there twice", value.series, value.row);
                return Err((field("series"), what));
            }
            let (name, what) = match (&value.value, &value.low, &value.high) {
                (_, Some(low), Some(high)) if low.value() > high.value() => {
                    ("low", "is above `high`")
                }
                (_, Some(_), None) => ("high", "is null, and `low` is not"),
                (_, None, Some(_)) => ("low", "is null, and `high` is not"),
                (None, None, None) => ("value", "is null, and so are the extremes"),
                _ => continue,
            };
            return Err((field(name), what.to_owned()));
        }
        Ok(())
    }

    fn check_readme(&self) -> Result<(), BrokenRule> {
        for (index, line) in self.readme.iter().enumerate() {
            let field = |name: &str| format!("readme[{index}].{name}");
            plain_line(&field("text"), &line.text)?;
            if self.value(&line.row, &line.series).is_none() {
                let what = format!("no value has row {} and series {}", line.row, line.series);
                return Err((field("row"), what));
            }
        }
        Ok(())
    }
}

/// Checks that a text fits into a paragraph and into a cell of a table.
fn plain_line(field: &str, text: &str) -> Result<(), BrokenRule> {
    let what = match text {
        _ if text.trim().is_empty() => "is empty",
        _ if text.contains(['\n', '\r', '|']) => "has a line break or a |",
        _ => return Ok(()),
    };
    Err((field.to_owned(), what.to_owned()))
}

/// True for `YYYY-MM-DD` with a month and a day that exist in some year.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else {
        return false;
    };
    let number = |text: &str, digits: usize, most: u32| {
        let all = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        all && (1..=most).contains(&text.parse().unwrap_or(0))
    };
    number(year, 4, 9999) && number(month, 2, 12) && number(day, 2, 31)
}
