//! A run as it is on disk: the points of `results.json`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use super::error::CompareError;

/// The file of a directory of results.
const FILE: &str = "results.json";
/// Settings of the time and the number of measurements.
const EFFORT: [&str; 4] = ["seconds", "ramp_seconds", "reps", "form"];
/// The setting that belongs to the machine: the directory of the databases.
const PLACE: &str = "directory";

/// The points of one run.
#[derive(Debug)]
pub struct Recorded {
    /// Where they were read.
    pub path: PathBuf,
    /// In the order of the file.
    pub points: Vec<Point>,
}

/// One point.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Distinguishes it from the other points of its run.
    pub key: Key,
    /// Committed transactions per second, by repetition.
    pub passes: Vec<f64>,
    /// The error of a failed check.
    pub failed: Option<String>,
    /// All settings that make a difference to the measurement.
    pub settings: Map<String, Value>,
    /// The machine and the program, as recorded, and the directory of the databases.
    pub machine: Map<String, Value>,
}

/// The identity of a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Figure, workload and variant.
    pub experiment: String,
    /// Lock manager, latch, and the note.
    pub system: String,
    /// Clients.
    pub mpl: u64,
}

impl Recorded {
    /// Reads the run in `place`: a directory of results, or the file itself.
    ///
    /// # Errors
    ///
    /// If it does not exist, cannot be read, was not written by a run, or has no throughput.
    pub fn read(place: &Path) -> Result<Recorded, CompareError> {
        let path = match place.is_dir() {
            true => place.join(FILE),
            false => place.to_owned(),
        };
        let text = fs::read_to_string(&path).map_err(|cause| CompareError::File {
            path: path.clone(),
            cause,
        })?;
        let points = points(&text).map_err(|what| CompareError::Damaged {
            path: path.clone(),
            what,
        })?;
        match points.is_empty() {
            true => Err(CompareError::Nothing { path }),
            false => Ok(Recorded { path, points }),
        }
    }
}

/// The points of the text of such a file; those without throughput are left out.
fn points(text: &str) -> Result<Vec<Point>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Value::Array(all) = value else {
        return Err("it is not an array of records".to_owned());
    };
    let mut found = Vec::new();
    for (at, record) in all.iter().enumerate() {
        let record = record
            .as_object()
            .ok_or(format!("record {at} is not an object"))?;
        // A report of many figures has an object for each, with their points in it.
        let nested = record.get("points").and_then(Value::as_array);
        let records = nested.map_or(vec![record], |inner| {
            inner.iter().filter_map(Value::as_object).collect()
        });
        for record in records
            .into_iter()
            .filter(|record| record.contains_key("tps"))
        {
            found.push(point(record).map_err(|what| format!("record {at}: {what}"))?);
        }
    }
    Ok(found)
}

fn point(record: &Map<String, Value>) -> Result<Point, String> {
    let word = |name: &str| {
        let word = record.get(name).and_then(Value::as_str);
        word.ok_or(format!("`{name}` is missing or not text"))
    };
    let under = |name: &str| {
        let map = record.get(name).and_then(Value::as_object);
        map.cloned()
            .ok_or(format!("`{name}` is missing or not an object"))
    };
    let passes = record.get("tps_by_pass").and_then(Value::as_array);
    let passes = passes.ok_or("`tps_by_pass` is missing: an older program wrote this")?;
    let number = |value: &Value| {
        let number = value
            .as_f64()
            .filter(|number| number.is_finite() && *number >= 0.0);
        number.ok_or(format!("{value} in `tps_by_pass` is not a throughput"))
    };
    let figure = record.get("figure").and_then(Value::as_str);
    let experiment = [figure.unwrap_or(""), word("workload")?, word("variant")?];
    let system = match (word("lock_manager")?, word("latch")?) {
        (manager, "" | "-") => manager.to_owned(),
        (manager, latch) => format!("{manager}/{latch}"),
    };
    let system = match word("note")? {
        "" => system,
        note => format!("{system}, {note}"),
    };
    let mut settings = under("settings")?;
    settings.retain(|name, _| !EFFORT.contains(&name.as_str()));
    // Older programs had tables in memory only, and did not say so.
    if settings
        .get("tables")
        .is_some_and(|tables| tables == "memory")
    {
        settings.shift_remove("tables");
        settings.shift_remove("page_memory");
    }
    let mut machine = under("machine")?;
    if let Some(place) = settings.shift_remove(PLACE) {
        machine.insert(PLACE.to_owned(), place);
    }
    Ok(Point {
        key: Key {
            experiment: joined(&experiment),
            system,
            mpl: record
                .get("mpl")
                .and_then(Value::as_u64)
                .ok_or("`mpl` is missing or not a number")?,
        },
        passes: passes.iter().map(number).collect::<Result<_, _>>()?,
        failed: match word("checks")? {
            "ok" => None,
            what => Some(what.to_owned()),
        },
        settings,
        machine,
    })
}

fn joined(words: &[&str]) -> String {
    let words = words.iter().filter(|word| !word.is_empty());
    words.copied().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{data, synthetic};

    #[test]
    fn a_written_run_is_read_as_it_was() {
        let findings = synthetic::findings();
        let read = points(&data::json(&findings)).unwrap();
        assert_eq!(read.len(), 20);
        let (curve, first) = (&findings.curves[1], &read[10]);
        assert_eq!(first.key.experiment, "txbench read-only-s10");
        assert_eq!(
            (first.key.system.as_str(), first.key.mpl),
            ("bucket/tas-t", 1)
        );
        let written = curve.points[0].runs.iter().map(|run| run.tps());
        for (read, written) in first.passes.iter().zip(written) {
            assert!((read - written).abs() < 0.1);
        }
        assert_eq!(first.passes.len(), curve.points[0].runs.len());
        assert!(first.settings.is_empty(), "only its effort was recorded");
    }

    #[test]
    fn tables_in_memory_are_the_same_as_tables_that_are_not_named() {
        let mut findings = synthetic::findings();
        let told = |findings: &_| {
            points(&data::json(findings))
                .unwrap()
                .swap_remove(0)
                .settings
        };
        let before = told(&findings);
        let with = |tables: &str| vec![("tables", tables.into()), ("page_memory", Value::Null)];
        findings.curves[0].settings = with("memory");
        assert_eq!(told(&findings), before);
        findings.curves[0].settings = with("paged");
        assert_eq!(told(&findings)["tables"], "paged");
    }

    #[test]
    fn the_directory_of_the_databases_belongs_to_the_machine() {
        let mut findings = synthetic::findings();
        findings.settings = vec![("rows", 10.into()), ("directory", "/disk".into())];
        for point in points(&data::json(&findings)).unwrap() {
            assert_eq!(point.settings.keys().collect::<Vec<_>>(), ["rows"]);
            assert_eq!(point.machine["directory"], "/disk");
        }
    }

    #[test]
    fn an_incomplete_record_is_refused_with_what_it_lacks() {
        let one = serde_json::json!([{"tps": 1.0, "tps_by_pass": [1.0], "workload": "w", "variant": "v",
            "lock_manager": "l", "latch": "-", "note": "", "mpl": 1, "checks": "ok", "settings": {},
            "machine": {}}]);
        assert_eq!(points(&one.to_string()).map(|points| points.len()), Ok(1));
        for name in one[0]
            .as_object()
            .unwrap()
            .keys()
            .filter(|name| *name != "tps")
        {
            let mut less = one.clone();
            less[0].as_object_mut().unwrap().shift_remove(name);
            let what = points(&less.to_string()).unwrap_err();
            assert!(
                what.contains(name.as_str()) && what.contains("record 0"),
                "{what}"
            );
        }
        for text in ["", "{", "{}", "[1]", "[{\"tps\": 1", "\u{0}"] {
            assert!(points(text).is_err(), "{text}");
        }
        let negative = one.to_string().replace("[1.0]", "[-1.0]");
        assert!(points(&negative).unwrap_err().contains("not a throughput"));
        // A record of another kind is ignored.
        assert_eq!(
            points("[{\"design\": \"default\"}]").map(|points| points.len()),
            Ok(0)
        );
    }
}
