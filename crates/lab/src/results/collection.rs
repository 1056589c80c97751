//! All records of a directory, by id.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use super::{error::ResultsError, record::ResultRecord};

/// The records of a directory, in the order of their ids.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultCollection {
    /// The records.
    pub records: Vec<ResultRecord>,
}

impl ResultCollection {
    /// Reads every `*.json` of `directory`.
    ///
    /// # Errors
    ///
    /// If the directory or a file cannot be read, or if there is no record. Also if a record breaks
    /// a rule, and if two have one id or one place in the README.
    pub fn read(directory: &Path) -> Result<ResultCollection, ResultsError> {
        let paths = files(directory).map_err(|cause| ResultsError::Directory {
            path: directory.to_owned(),
            cause,
        })?;
        let mut found = Vec::new();
        for path in paths {
            let text = fs::read_to_string(&path).map_err(|cause| ResultsError::File {
                path: path.clone(),
                cause,
            })?;
            found.push((parse(&path, &text)?, path));
        }
        if found.is_empty() {
            let path = directory.to_owned();
            return Err(ResultsError::Empty { path });
        }
        check_ids(&found)?;
        check_places(&found)?;
        let mut records: Vec<ResultRecord> = found.into_iter().map(|(record, _)| record).collect();
        records.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(ResultCollection { records })
    }
}

/// Paths of the records, sorted.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("json")) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads one record and checks its rules.
fn parse(path: &Path, text: &str) -> Result<ResultRecord, ResultsError> {
    let record: ResultRecord =
        serde_json::from_str(text).map_err(|error| malformed(path, text, &error))?;
    record
        .check()
        .map_err(|(field, what)| ResultsError::Field {
            path: path.to_owned(),
            field,
            what,
        })?;
    Ok(record)
}

fn malformed(path: &Path, text: &str, error: &serde_json::Error) -> ResultsError {
    let position = (error.line(), error.column());
    let what = error.to_string();
    let place = format!(" at line {} column {}", position.0, position.1);
    let what = what.strip_suffix(&place).unwrap_or(&what).to_owned();
    let field = match error.is_data() {
        true => named_field(&what).or_else(|| field_before(text, position)),
        false => None,
    };
    ResultsError::Json {
        path: path.to_owned(),
        position,
        field,
        what,
    }
}

/// The field that the parser itself names: one that is missing, unknown or there twice.
fn named_field(what: &str) -> Option<String> {
    let about_field = ["missing field `", "unknown field `", "duplicate field `"];
    let rest = about_field
        .iter()
        .find_map(|start| what.strip_prefix(start))?;
    Some(rest.split('`').next()?.to_owned())
}

/// The last field whose name ends before this place: the one with a value of the wrong type.
fn field_before(text: &str, (line, column): (usize, usize)) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').take(line).collect();
    let (last, before) = lines.split_last()?;
    let start: usize = before.iter().map(|line| line.len()).sum();
    let until = start + column.min(last.len());
    let before = text.get(..until)?;
    let colon = before.rfind("\":")?;
    let name = before[..colon].rfind('"')?;
    Some(before[name + 1..colon].to_owned())
}

/// Checks that no two records share an id, and that each is named as its file.
fn check_ids(found: &[(ResultRecord, PathBuf)]) -> Result<(), ResultsError> {
    let mut ids: HashMap<&str, &Path> = HashMap::new();
    for (record, path) in found {
        if let Some(other) = ids.insert(&record.id, path) {
            return Err(ResultsError::SameId {
                id: record.id.clone(),
                paths: [other.to_owned(), path.clone()],
            });
        }
    }
    for (record, path) in found {
        if path.file_stem() != Some(OsStr::new(&record.id)) {
            return Err(ResultsError::Field {
                path: path.clone(),
                field: "id".to_owned(),
                what: format!("is {}, which is not the name of the file", record.id),
            });
        }
    }
    Ok(())
}

/// Checks that no two lines of the README have one place.
fn check_places(found: &[(ResultRecord, PathBuf)]) -> Result<(), ResultsError> {
    let mut places: HashMap<u32, &str> = HashMap::new();
    for (record, path) in found {
        for (index, line) in record.readme.iter().enumerate() {
            if let Some(other) = places.insert(line.place, &record.id) {
                return Err(ResultsError::Field {
                    path: path.clone(),
                    field: format!("readme[{index}].place"),
                    what: format!("{} is a place of {other}, too", line.place),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("example.json");

    /// Reads a directory with these files.
    fn read(files: &[(&str, &str)]) -> Result<ResultCollection, ResultsError> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        ResultCollection::read(directory.path())
    }

    /// The refusal of a record with `old` replaced by `new`.
    fn refusal(old: &str, new: &str) -> String {
        assert!(GOOD.contains(old), "the example has no {old}");
        let error = read(&[("example.json", &GOOD.replace(old, new))]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("example.json"), "{text}");
        text
    }

    #[test]
    fn records_come_in_the_order_of_their_ids() {
        let other = GOOD
            .replace("\"example\"", "\"another\"")
            .replace("\"place\": 1", "\"place\": 2");
        let files = [
            ("example.json", GOOD),
            ("another.json", &other),
            ("notes.md", "no record"),
        ];
        let ids: Vec<String> = read(&files)
            .unwrap()
            .records
            .into_iter()
            .map(|one| one.id)
            .collect();
        assert_eq!(ids, ["another", "example"]);
    }

    #[test]
    fn a_directory_that_is_not_there_and_one_without_records_are_refused() {
        let gone = ResultCollection::read(Path::new("no/such/directory")).unwrap_err();
        assert!(matches!(gone, ResultsError::Directory { .. }), "{gone}");
        assert!(gone.to_string().contains("no/such/directory"), "{gone}");
        let empty = read(&[("notes.md", "")]).unwrap_err();
        assert!(matches!(empty, ResultsError::Empty { .. }), "{empty}");
    }

    #[test]
    fn bad_json_is_refused_with_its_line_and_column() {
        let error = read(&[("example.json", "{\n  \"id\": \"example\",\n  oops\n}")]).unwrap_err();
        let ResultsError::Json {
            position, field, ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((position.0, field.as_deref()), (3, None), "{error}");
        assert!(error.to_string().contains("example.json:3:"), "{error}");
    }

    #[test]
    fn a_field_that_is_missing_unknown_twice_or_of_another_type_is_named() {
        for (old, new, field) in [
            ("\"commit\": null,", "", "commit"),
            ("\"unit\": \"ops/s\",", "", "unit"),
            ("\"memory\": null,", "", "memory"),
            ("\"low\": 900,", "", "low"),
            ("\"note\": null", "\"note\": null, \"notes\": \"\"", "notes"),
            ("\"cores\": 2", "\"cores\": 2, \"sockets\": 1", "sockets"),
            (
                "\"unit\": \"ops/s\"",
                "\"unit\": \"ops/s\", \"unit\": \"\"",
                "unit",
            ),
            ("\"cores\": 2", "\"cores\": \"two\"", "cores"),
            ("\"value\": 1000", "\"value\": \"1,000\"", "value"),
            ("\"title\": \"An example\"", "\"title\": 7", "title"),
            ("\"passes\": 3", "\"passes\": -3", "passes"),
        ] {
            let text = refusal(old, new);
            assert!(
                text.contains(&format!("field `{field}`")),
                "{field}: {text}"
            );
        }
    }

    #[test]
    fn a_field_that_breaks_a_rule_is_named() {
        for (old, new, field) in [
            ("\"id\": \"example\"", "\"id\": \"An example\"", "id"),
            ("\"id\": \"example\"", "\"id\": \"another\"", "id"),
            ("\"title\": \"An example\"", "\"title\": \" \"", "title"),
            ("How fast is it?", "It is fast.", "question"),
            ("\"command\": \"foxton\"", "\"command\": \"\"", "command"),
            ("\"commit\": null", "\"commit\": \"latest\"", "commit"),
            (
                "\"date\": \"2026-11-26\"",
                "\"date\": \"2026-13-26\"",
                "date",
            ),
            (
                "\"date\": \"2026-11-26\"",
                "\"date\": \"26 November\"",
                "date",
            ),
            ("\"note\": null", "\"note\": \"a | b\"", "note"),
            ("\"low\": 900", "\"low\": 1200", "values[0].low"),
            ("\"low\": 900", "\"low\": null", "values[0].low"),
            ("\"high\": 1100", "\"high\": null", "values[0].high"),
            ("\"value\": 2.5", "\"value\": null", "values[1].value"),
            (
                "\"series\": \"latency\"",
                "\"series\": \"rate\"",
                "values[1].series",
            ),
            (
                "\"place\": 1, \"text\": \"Rate\", \"row\": \"one\"",
                "\"place\": 1, \"text\": \"Rate\", \"row\": \"two\"",
                "readme[0].row",
            ),
        ] {
            let text = refusal(old, new);
            assert!(
                text.contains(&format!("field `{field}`")),
                "{field}: {text}"
            );
        }
        let nothing = "{\"id\": \"example\", \"title\": \"t\", \"question\": \"q?\", \"command\": null, \
            \"commit\": null, \"machine\": {\"processor\": null, \"cores\": null, \"memory\": null, \
            \"os\": null}, \"date\": null, \"unit\": \"s\", \"values\": [], \"note\": null}";
        let error = read(&[("example.json", nothing)]).unwrap_err();
        assert!(error.to_string().contains("field `values`"), "{error}");
    }

    #[test]
    fn two_records_share_neither_an_id_nor_a_place() {
        let error = read(&[("example.json", GOOD), ("other.json", GOOD)]).unwrap_err();
        assert!(matches!(error, ResultsError::SameId { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("example.json") && text.contains("other.json"),
            "{text}"
        );

        let other = GOOD.replace("\"example\"", "\"other\"");
        let error = read(&[("example.json", GOOD), ("other.json", &other)]).unwrap_err();
        assert!(error.to_string().contains("readme[0].place"), "{error}");
    }
}
