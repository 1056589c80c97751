//! The documents that are made of records: `RESULTS.md`, and the table of the README.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    collection::ResultCollection,
    error::ResultsError,
    markdown,
    record::{ResultRecord, ResultValue},
};

/// The line before the README's table.
pub const OPENING: &str = "<!-- results:readme -->";
/// The line behind it.
pub const CLOSING: &str = "<!-- /results -->";
/// The page beside the records.
pub const PAGE: &str = "RESULTS.md";
/// A unit that is shown as a bare number.
const RATIO: &str = "ratio";

/// A document and the text that it should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultDocument {
    /// The file.
    pub path: PathBuf,
    /// All of its text.
    pub text: String,
    /// True if the file has this text already.
    pub is_current: bool,
}

impl ResultDocument {
    fn new(path: PathBuf, text: String, present: Option<&str>) -> ResultDocument {
        let is_current = present == Some(text.as_str());
        ResultDocument {
            path,
            text,
            is_current,
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&self) -> Result<(), ResultsError> {
        fs::write(&self.path, &self.text).map_err(|cause| ResultsError::File {
            path: self.path.clone(),
            cause,
        })
    }
}

/// Renders the page beside the records and the README.
///
/// # Errors
///
/// If the README cannot be read or has no place for the table. A page that cannot be read is
/// rendered as one that is not there.
pub fn documents(
    collection: &ResultCollection,
    directory: &Path,
    readme: &Path,
) -> Result<[ResultDocument; 2], ResultsError> {
    let path = directory.join(PAGE);
    let present = fs::read_to_string(&path).ok();
    let page = ResultDocument::new(path, page(collection), present.as_deref());

    let present = fs::read_to_string(readme).map_err(|cause| ResultsError::File {
        path: readme.to_owned(),
        cause,
    })?;
    let link = page
        .path
        .strip_prefix(readme.parent().unwrap_or(Path::new("")));
    let link = link.unwrap_or(&page.path).to_string_lossy();
    let text = between_markers(&present, &table(collection, &link));
    let text = text.ok_or_else(|| ResultsError::Markers {
        path: readme.to_owned(),
        markers: [OPENING, CLOSING],
    })?;
    let readme = ResultDocument::new(readme.to_owned(), text, Some(&present));
    Ok([page, readme])
}

/// `text` with `table` between the markers, unless these are not there, each once and in order.
fn between_markers(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(OPENING)?;
    let (between, after) = rest.split_once(CLOSING)?;
    let others = [before, between, after];
    let more = |part: &&str| part.contains(OPENING) || part.contains(CLOSING);
    if others.iter().any(more) {
        return None;
    }
    Some(format!("{before}{OPENING}\n\n{table}\n{CLOSING}{after}"))
}

/// The README's table.
fn table(collection: &ResultCollection, link: &str) -> String {
    let mut lines = Vec::new();
    for record in &collection.records {
        for line in &record.readme {
            let Some(value) = record.value(&line.row, &line.series) else {
                continue;
            };
            let cells = vec![
                format!("[{}]({link}#{})", line.text, record.id),
                median(value, unit_suffix(record.unit_of(value))).unwrap_or_default(),
                extremes(value).unwrap_or_default(),
            ];
            lines.push((line.place, cells));
        }
    }
    lines.sort_by_key(|line| line.0);
    let rows: Vec<Vec<String>> = lines.into_iter().map(|line| line.1).collect();
    let heads = ["result", "median", "low to high"].map(str::to_owned);
    markdown::table(&heads, &rows)
}

/// The page beside the records.
fn page(collection: &ResultCollection) -> String {
    let mut text = "# Results\n\n".to_owned();
    text += &markdown::paragraph(
        "`foxton results render` writes this page from the records in this folder. To change a number, \
         change its record and run the command again. [benchmarks.md](../benchmarks.md) explains how \
         numbers are made and compared.",
    );
    text.push('\n');
    text += &markdown::paragraph(
        "A cell has the median of the passes. Parentheses have the lowest and the highest pass, unless \
         the note says otherwise. `a to b` stands where only the extremes are known.",
    );
    text.push('\n');
    let index = collection.records.iter().map(|record| {
        let date = record.date.clone().unwrap_or_default();
        vec![
            format!("[{0}](#{0})", record.id),
            record.title.clone(),
            date,
        ]
    });
    let heads = ["id", "title", "date"].map(str::to_owned);
    text += &markdown::table(&heads, &index.collect::<Vec<_>>());
    for record in &collection.records {
        text += &section(record);
    }
    text
}

/// The section of one record.
fn section(record: &ResultRecord) -> String {
    let mut text = format!("\n## {}\n\n", record.id);
    text += &markdown::paragraph(&format!("**{}.** {}", record.title, record.question));
    text.push('\n');
    text += &cells(record);
    text.push('\n');
    text += &markdown::paragraph(&circumstances(record));
    if let Some(command) = &record.command {
        let lines: String = command.trim().lines().map(markdown::command).collect();
        text += &format!("\n```sh\n{lines}```\n");
    }
    if let Some(note) = &record.note {
        text.push('\n');
        text += &markdown::paragraph(note);
    }
    text
}

/// Unit, passes, day, machine and commit, as far as they are known.
fn circumstances(record: &ResultRecord) -> String {
    let mut parts = vec![format!("Unit: {}", record.unit)];
    let passes = || record.values.iter().filter_map(|value| value.passes);
    match (passes().min(), passes().max()) {
        (Some(least), Some(most)) if least == most => parts.push(format!("passes: {least}")),
        (Some(least), Some(most)) => parts.push(format!("passes: {least} to {most}")),
        _ => {}
    }
    let machine = &record.machine;
    let cores = machine.cores.map(|cores| format!("{cores} cores"));
    let known = [
        machine.processor.clone(),
        cores,
        machine.memory.clone(),
        machine.os.clone(),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    if !known.is_empty() {
        parts.push(format!("machine: {}", known.join(", ")));
    }
    parts.extend(record.date.iter().map(|date| format!("date: {date}")));
    parts.extend(
        record
            .commit
            .iter()
            .map(|commit| format!("commit: {commit}")),
    );
    parts.join("; ") + "."
}

/// The table of a record: its rows over its series.
fn cells(record: &ResultRecord) -> String {
    let rows = in_order(record.values.iter().map(|value| value.row.as_str()));
    let series = in_order(record.values.iter().map(|value| value.series.as_str()));
    let common: Vec<Option<&str>> = series
        .iter()
        .map(|name| common_unit(record, name))
        .collect();
    let head = |(name, unit): (&&str, &Option<&str>)| match unit {
        Some(unit) if *unit != record.unit && !name.contains(unit) => format!("{name} ({unit})"),
        _ => (*name).to_owned(),
    };
    let mut heads = vec![String::new()];
    heads.extend(series.iter().zip(&common).map(head));
    let line = |row: &&str| {
        let mut cells = vec![(*row).to_owned()];
        for (name, common) in series.iter().zip(&common) {
            let value = record.value(row, name);
            cells.push(
                value
                    .map(|value| cell(record, value, common.is_none()))
                    .unwrap_or_default(),
            );
        }
        cells
    };
    markdown::table(&heads, &rows.iter().map(line).collect::<Vec<_>>())
}

/// A cell. In a column of several units it shows its own, unless that is the record's.
fn cell(record: &ResultRecord, value: &ResultValue, of_several: bool) -> String {
    let suffix = match record.unit_of(value) {
        unit if of_several && unit != record.unit => unit_suffix(unit),
        _ => String::new(),
    };
    match (median(value, String::new()), extremes(value)) {
        (Some(median), Some(extremes)) => format!("{median}{suffix} ({extremes})"),
        (median, extremes) => median.or(extremes).unwrap_or_default() + &suffix,
    }
}

fn median(value: &ResultValue, suffix: String) -> Option<String> {
    Some(value.value.as_ref()?.grouped() + &suffix)
}

fn extremes(value: &ResultValue) -> Option<String> {
    let (low, high) = (value.low.as_ref()?, value.high.as_ref()?);
    Some(format!("{} to {}", low.grouped(), high.grouped()))
}

/// The unit as it stands behind a number.
fn unit_suffix(unit: &str) -> String {
    match unit {
        RATIO => String::new(),
        unit => format!(" {unit}"),
    }
}

/// The unit that all values of a series share.
fn common_unit<'a>(record: &'a ResultRecord, series: &str) -> Option<&'a str> {
    let values = record.values.iter().filter(|value| value.series == series);
    let mut units = values.map(|value| record.unit_of(value));
    let first = units.next()?;
    units.all(|unit| unit == first).then_some(first)
}

/// The names without repetition, in the order of their first use.
fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("example.json");
    const README: &str = "# Read me\n\n<!-- results:readme -->\n<!-- /results -->\n\nMore.\n";

    fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("docs/results");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("example.json"), EXAMPLE).unwrap();
        let readme = place.path().join("README.md");
        fs::write(&readme, README).unwrap();
        (place, directory, readme)
    }

    fn rendered(directory: &Path, readme: &Path) -> [ResultDocument; 2] {
        let collection = ResultCollection::read(directory).unwrap();
        documents(&collection, directory, readme).unwrap()
    }

    #[test]
    fn the_page_has_an_aligned_table_and_the_circumstances() {
        let (_place, directory, readme) = place();
        let [page, _] = rendered(&directory, &readme);
        let wanted = "
## example

**An example.** How fast is it?

|     |                 rate | latency (ms) |
| --- | -------------------: | -----------: |
| one | 1,000 (900 to 1,100) |          2.5 |

Unit: ops/s; passes: 3; machine: 2 cores; date: 2026-11-26.

```sh
foxton
```
";
        assert!(page.text.ends_with(wanted), "{}", page.text);
        assert!(
            page.text
                .contains("| [example](#example) | An example | 2026-11-26 |")
        );
    }

    #[test]
    fn the_readme_has_the_values_it_asks_for_between_its_markers() {
        let (_place, directory, readme) = place();
        let [_, document] = rendered(&directory, &readme);
        let text = &document.text;
        let start = format!("# Read me\n\n{OPENING}\n\n| result ");
        let line = "| [Rate](docs/results/RESULTS.md#example) | 1,000 ops/s | 900 to 1,100 |";
        let end = format!("{line}\n\n{CLOSING}\n\nMore.\n");
        assert!(text.starts_with(&start) && text.ends_with(&end), "{text}");
    }

    #[test]
    fn documents_are_current_once_they_are_written_and_until_they_are_edited() {
        let (_place, directory, readme) = place();
        let current = || rendered(&directory, &readme).map(|document| document.is_current);
        assert_eq!(current(), [false, false]);
        for document in rendered(&directory, &readme) {
            document.write().unwrap();
        }
        assert_eq!(current(), [true, true]);
        let page = directory.join(PAGE);
        fs::write(&page, fs::read_to_string(&page).unwrap() + "by hand\n").unwrap();
        assert_eq!(current(), [false, true]);
        let text = fs::read_to_string(&readme).unwrap();
        fs::write(&readme, text.replace("1,000", "9,000")).unwrap();
        assert_eq!(current(), [false, false]);
    }

    #[test]
    fn a_readme_without_its_markers_is_refused() {
        let (_place, directory, readme) = place();
        let collection = ResultCollection::read(&directory).unwrap();
        for text in [
            "# Read me\n".to_owned(),
            format!("{OPENING}\n"),
            format!("{CLOSING}\n{OPENING}\n"),
            format!("{README}{README}"),
        ] {
            fs::write(&readme, &text).unwrap();
            let error = documents(&collection, &directory, &readme).unwrap_err();
            assert!(
                matches!(error, ResultsError::Markers { .. }),
                "{text}: {error}"
            );
            assert!(error.to_string().contains("README.md"), "{error}");
        }
        fs::remove_file(&readme).unwrap();
        let error = documents(&collection, &directory, &readme).unwrap_err();
        assert!(matches!(error, ResultsError::File { .. }), "{error}");
    }

    #[test]
    fn digits_are_kept_and_a_column_of_several_units_shows_those_that_differ() {
        let values = r#"[
            { "row": "one", "series": "a", "value": 0.40, "low": 0.37, "high": 0.50, "passes": 3 },
            { "row": "two", "series": "a", "value": 1, "low": null, "high": null, "passes": 3 },
            { "row": "one", "series": "b", "value": 12, "low": null, "high": null, "passes": 3 },
            { "row": "two", "series": "b", "unit": "s", "value": null, "low": 0.5, "high": 1, "passes": 3 }
        ]"#;
        let start = EXAMPLE.find("[\n").unwrap();
        let end = EXAMPLE.find("],\n").unwrap() + 1;
        let text = EXAMPLE.replace(&EXAMPLE[start..end], values);
        let text = text.replace("\"series\": \"rate\" }", "\"series\": \"a\" }");
        let (_place, directory, readme) = place();
        fs::write(directory.join("example.json"), text).unwrap();
        let [page, _] = rendered(&directory, &readme);
        let wanted = "\
|     |                   a |          b |
| --- | ------------------: | ---------: |
| one | 0.40 (0.37 to 0.50) |         12 |
| two |                   1 | 0.5 to 1 s |
";
        assert!(page.text.contains(wanted), "{}", page.text);
    }
}
