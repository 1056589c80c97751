//! Result of one figure, as it is saved.

use std::{fs, io, path::Path};

use serde_json::{Map, Value, json};

use crate::{
    bench::error::BenchError,
    figure::Listed,
    measure::machine::Machine,
    report::{data, html, page::Page, shape::Claim, sheet::Sheet},
};

/// The record of a figure. It is written last, so if it is there, everything is.
const RECORD: &str = "outcome.json";
/// The figure's part of the report.
const SECTION: &str = "section.html";

/// Result of a figure: its record, and its part of the report.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// For `results.json`: `figure`, `shape` (the verdict in a word or two), `sentence`, `claims`,
    /// `seconds` and how many were planned, what it was made with and where, and its `points`.
    pub record: Map<String, Value>,
    section: String,
}

/// The form, program and machine of a figure. All figures of a report have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The form: `brief`, `tiny`.
    pub form: String,
    /// Version and commit of the program.
    pub foxton: String,
    /// The machine.
    pub machine: String,
}

impl Origin {
    /// The origin of figures made in this form, here.
    pub fn here(form: &str, machine: &Machine) -> Origin {
        Origin {
            form: form.to_owned(),
            foxton: machine.foxton.clone(),
            machine: format!("{}, {} cores", machine.processor, machine.cores),
        }
    }
}

impl Outcome {
    /// Result of a figure that was made, or of one that could not be.
    pub fn of(
        listed: &Listed,
        made: Result<&Sheet, &BenchError>,
        seconds: f64,
        origin: &Origin,
    ) -> Outcome {
        let (title, word, sentence, more) = match made {
            Ok(sheet) => described(sheet),
            Err(error @ BenchError::Settings(_)) => missing(listed, UNAVAILABLE, error),
            Err(error) => missing(listed, FAILED, error),
        };
        let mut page = Page::section(listed.id, &title);
        match made {
            Ok(sheet) => html::body(&mut page, sheet),
            Err(_) => page.paragraph(&sentence),
        }
        let value = json!({
            "figure": listed.id,
            "title": title,
            "shape": word,
            "sentence": sentence,
            "seconds": (seconds * 10.0).round() / 10.0,
            "seconds_planned": listed.brief,
            "form": origin.form,
            "foxton": origin.foxton,
            "machine": origin.machine,
        });
        let mut record = value
            .as_object()
            .cloned()
            .expect("the literal above is an object");
        record.extend(more);
        Outcome {
            record,
            section: page.end_section(),
        }
    }

    /// Returns the saved result of a figure, if all of it is there and can be read.
    pub fn kept(directory: &Path, id: &str) -> Option<Outcome> {
        let text = |name| fs::read_to_string(directory.join(id).join(name)).ok();
        let record: Value = serde_json::from_str(&text(RECORD)?).ok()?;
        let record = record.as_object()?.clone();
        (record.get("figure")?.as_str()? == id).then_some(Outcome {
            record,
            section: text(SECTION)?,
        })
    }

    /// Saves it in a directory of its own under `directory`.
    pub fn keep(&self, directory: &Path) -> io::Result<()> {
        let own = directory.join(self.text("figure"));
        fs::create_dir_all(&own)?;
        replace(&own.join(SECTION), &self.section)?;
        let record = Value::Object(self.record.clone()).to_string();
        replace(&own.join(RECORD), &record)
    }

    /// Returns what it was made with.
    pub fn origin(&self) -> Origin {
        Origin {
            form: self.text("form").to_owned(),
            foxton: self.text("foxton").to_owned(),
            machine: self.text("machine").to_owned(),
        }
    }

    /// Returns a text of its record; empty if there is none of that name.
    pub fn text(&self, name: &str) -> &str {
        self.record.get(name).and_then(Value::as_str).unwrap_or("")
    }

    /// A number of its record, if there is one of that name.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.record.get(name).and_then(Value::as_f64)
    }

    /// Its part of the report.
    pub fn section(&self) -> &str {
        &self.section
    }

    /// True if something broke; the command then fails.
    pub fn broke(&self) -> bool {
        [FAILED, VOID].contains(&self.text("shape"))
    }

    /// True if it was made, so that it need not be made again.
    pub fn was_made(&self) -> bool {
        ![FAILED, VOID, UNAVAILABLE].contains(&self.text("shape"))
    }
}

const FAILED: &str = "failed";
const VOID: &str = "void";
const UNAVAILABLE: &str = "not available here";

/// Title, verdict, sentence, and further fields of the record.
type Described = (String, &'static str, String, Map<String, Value>);

fn described(sheet: &Sheet) -> Described {
    let (word, sentence) = match sheet.failure() {
        None => (sheet.shape.verdict().words(), sheet.shape.sentence()),
        Some(what) => (
            VOID,
            format!("A check failed, so do not keep these numbers: {what}."),
        ),
    };
    let claim = |claim: &Claim| json!({"says": claim.says, "found": claim.measured(), "agrees": claim.holds});
    let claims: Vec<Value> = sheet.shape.0.iter().map(claim).collect();
    let points = data::sheet_records(sheet).into_iter().map(Value::Object);
    let mut more = Map::new();
    more.insert("started_utc".to_owned(), json!(sheet.machine.started));
    more.insert("claims".to_owned(), json!(claims));
    more.insert("points".to_owned(), points.collect());
    (sheet.title.clone(), word, sentence, more)
}

fn missing(listed: &Listed, word: &'static str, error: &BenchError) -> Described {
    let sentence = match word {
        UNAVAILABLE => format!("This figure cannot be made here: {error}."),
        _ => format!("This figure failed: {error}."),
    };
    (listed.sentence.to_owned(), word, sentence, Map::new())
}

/// Writes a file as a whole: an interruption leaves either the old one or the new one.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("part");
    fs::write(&beside, text)?;
    fs::rename(beside, path)
}
