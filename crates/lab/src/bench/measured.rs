//! Numbers of an experiment with their spread, as a table and as the draft of a published record.

use serde_json::{Value, json};

use crate::{
    measure::{machine::Machine, spread::Spread},
    report::table::Table,
};

/// A ratio, which has no unit.
pub(super) const RATIO: &str = "ratio";

/// One number: its values in all passes.
#[derive(Debug, Clone)]
pub struct MeasuredValue {
    /// The point that was measured.
    pub row: String,
    /// The quantity.
    pub series: String,
    /// Its unit.
    pub unit: &'static str,
    /// A value for each pass.
    pub passes: Vec<f64>,
}

/// All numbers of an experiment.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Id of a record of them.
    pub id: &'static str,
    /// A noun phrase.
    pub title: &'static str,
    /// The question that they answer.
    pub question: &'static str,
    /// The numbers by point, in the order of the first pass.
    pub values: Vec<MeasuredValue>,
    /// Sizes, flags and whatever else a reader of the numbers must know.
    pub notes: Vec<String>,
    /// The command that repeats it.
    pub command: String,
    /// The machine.
    pub machine: Machine,
}

impl Measured {
    pub(super) fn new(
        id: &'static str,
        title: &'static str,
        question: &'static str,
        command: &str,
    ) -> Measured {
        Measured {
            id,
            title,
            question,
            values: Vec::new(),
            notes: Vec::new(),
            command: command.to_owned(),
            machine: Machine::here(),
        }
    }

    /// Adds the value of one pass.
    pub(super) fn add(&mut self, row: &str, series: &str, unit: &'static str, value: f64) {
        let is_same = |one: &&mut MeasuredValue| one.row == row && one.series == series;
        if let Some(one) = self.values.iter_mut().find(is_same) {
            return one.passes.push(value);
        }
        let new = MeasuredValue {
            row: row.to_owned(),
            series: series.to_owned(),
            unit,
            passes: vec![value],
        };
        let last = self.values.iter().rposition(|one| one.row == row);
        let at = last.map_or(self.values.len(), |last| last + 1);
        self.values.insert(at, new);
    }

    /// Median and extremes of each number.
    pub fn table(&self) -> Table {
        let mut table = Table::new(["measured", "quantity", "median (min..max)", "unit"]);
        let mut last = None;
        for value in &self.values {
            if last.is_some_and(|last| last != &value.row) {
                table.gap();
            }
            last = Some(&value.row);
            let spread = Spread::new(value.passes.iter().copied());
            table.row([
                value.row.clone(),
                value.series.clone(),
                spread.words(|number| number_of(number).to_string()),
                value.unit.to_owned(),
            ]);
        }
        table
    }

    /// The record as docs/results has it. A person adds what was expected and publishes it.
    pub fn record(&self) -> String {
        let values = self.values.iter().map(|value| {
            let spread = Spread::new(value.passes.iter().copied());
            let [median, low, high] = [spread.median(), spread.min(), spread.max()].map(number_of);
            json!({
                "row": value.row,
                "series": value.series,
                "unit": value.unit,
                "value": median,
                "low": low,
                "high": high,
                "passes": value.passes.len(),
            })
        });
        let machine = &self.machine;
        let record = json!({
            "id": self.id,
            "title": self.title,
            "question": self.question,
            "command": self.command,
            "commit": commit(&machine.foxton),
            "machine": {
                "processor": machine.processor,
                "cores": machine.cores,
                "memory": format!("{} GiB", machine.memory_bytes.div_ceil(1 << 30)),
                "os": machine.system,
            },
            "date": machine.started.get(..10),
            "unit": RATIO,
            "values": values.collect::<Vec<Value>>(),
            "note": self.notes.join(" "),
        });
        // Serialising plain values into memory cannot fail.
        serde_json::to_string_pretty(&record).expect("values serialise") + "\n"
    }
}

/// The commit in the words of [`Machine::foxton`], if it was built from a clone without changes.
fn commit(foxton: &str) -> Option<&str> {
    let (_, rest) = foxton.split_once('(')?;
    let (commit, _) = rest.split_once(')')?;
    let is_hash = commit.len() >= 7 && commit.chars().all(|c| c.is_ascii_hexdigit());
    is_hash.then_some(commit)
}

/// A number with three significant digits; whole from a hundred on.
fn number_of(number: f64) -> Value {
    if number.abs() >= 100.0 {
        return json!(number.round() as i64);
    }
    let digits = 2 - number.abs().max(0.01).log10().floor() as i32;
    let unit = 10_f64.powi(digits);
    json!((number * unit).round() / unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::record::ResultRecord;

    #[test]
    fn a_record_has_median_and_extremes_of_all_passes_and_is_one_that_can_be_published() {
        let mut measured = Measured::new("pages-test", "A test", "Is it one?", "foxton bench");
        for (pass, ratio) in [0.9, 1.234, 0.876_54].into_iter().enumerate() {
            measured.add("512 clients", "ratio", RATIO, ratio);
            measured.add("512 clients", "reads", "1/s", 12_345.6 + pass as f64);
        }
        measured.notes.push("Direct reads.".to_owned());
        let mut grouped = measured.clone();
        grouped.add("1 client", "ratio", RATIO, 1.0);
        grouped.add("512 clients", "of peak", RATIO, 0.5);
        let rows = grouped.values.iter().map(|value| &value.row[..]);
        let rows: Vec<&str> = rows.collect();
        assert_eq!(
            rows,
            ["512 clients", "512 clients", "512 clients", "1 client"]
        );
        let record: ResultRecord = serde_json::from_str(&measured.record()).unwrap();
        let value = record.value("512 clients", "ratio").unwrap();
        let number = |number: &Option<_>| format!("{:?}", number);
        assert!(number(&value.value).contains("0.9"), "{value:?}");
        assert!(number(&value.low).contains("0.877"), "{value:?}");
        assert!(number(&value.high).contains("1.23"), "{value:?}");
        assert_eq!(value.passes, Some(3));
        let value = record.value("512 clients", "reads").unwrap();
        assert!(number(&value.value).contains("12347"), "{value:?}");
        assert_eq!(measured.table().rows().len(), 2);
    }

    #[test]
    fn only_a_clone_without_changes_names_its_commit() {
        assert_eq!(commit("0.1.0 (09b4d957)"), Some("09b4d957"));
        assert_eq!(commit("0.1.0 (09b4d957-dirty)"), None);
        assert_eq!(commit("0.1.0 (unknown)"), None);
    }
}
