//! `foxton results`: the checked-in documents are as rendered, and bad records are refused.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use crate::support::{foxton, said};

const RECORD: &str = r#"{
  "id": "speed",
  "title": "Speed",
  "question": "How fast is it?",
  "command": null,
  "commit": null,
  "machine": { "processor": null, "cores": 2, "memory": null, "os": null },
  "date": null,
  "unit": "ops/s",
  "values": [
    { "row": "it", "series": "rate", "value": 1000, "low": 900, "high": 1100, "passes": 3 }
  ],
  "note": null,
  "readme": [{ "place": 1, "text": "Rate", "row": "it", "series": "rate" }]
}"#;

/// A directory with one record, and a README with the markers.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place {
            root: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(place.records()).unwrap();
        fs::write(place.record("speed"), RECORD).unwrap();
        let readme = "# It\n\n<!-- results:readme -->\n<!-- /results -->\n";
        fs::write(place.readme(), readme).unwrap();
        place
    }

    fn records(&self) -> PathBuf {
        self.root.path().join("records")
    }

    fn record(&self, id: &str) -> PathBuf {
        self.records().join(format!("{id}.json"))
    }

    fn page(&self) -> PathBuf {
        self.records().join("RESULTS.md")
    }

    fn readme(&self) -> PathBuf {
        self.root.path().join("README.md")
    }

    fn render(&self, options: &[&str]) -> Output {
        render(&self.records(), &self.readme(), options)
    }
}

fn render(records: &Path, readme: &Path, options: &[&str]) -> Output {
    let (records, readme) = (records.to_string_lossy(), readme.to_string_lossy());
    let mut arguments = vec!["results", "render", "--dir", &records, "--readme", &readme];
    arguments.extend(options);
    foxton(&arguments)
}

#[test]
fn the_checked_in_documents_are_as_rendered() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (records, readme) = (root.join("docs/results"), root.join("README.md"));
    let output = render(&records, &readme, &["--check"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn documents_are_written_once_and_then_up_to_date() {
    let place = Place::new();
    let output = place.render(&[]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.contains("RESULTS.md") && text.contains("README.md"),
        "{text}"
    );
    let page = fs::read_to_string(place.page()).unwrap();
    assert!(page.contains("1,000 (900 to 1,100)"), "{page}");
    let readme = fs::read_to_string(place.readme()).unwrap();
    assert!(
        readme.contains("[Rate](records/RESULTS.md#speed)"),
        "{readme}"
    );

    let output = place.render(&[]);
    assert!(said(&output).contains("up to date"), "{}", said(&output));
    let output = place.render(&["--check"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn a_check_writes_nothing_and_names_what_differs() {
    let place = Place::new();
    let output = place.render(&["--check"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("RESULTS.md differs") && text.contains("README.md differs"),
        "{text}"
    );
    assert!(!place.page().exists(), "a check wrote the page");

    assert_eq!(place.render(&[]).status.code(), Some(0));
    fs::write(
        place.record("speed"),
        RECORD.replace("\"Speed\"", "\"Pace\""),
    )
    .unwrap();
    let before = fs::read_to_string(place.page()).unwrap();
    let output = place.render(&["--check"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("RESULTS.md differs") && !text.contains("README.md"),
        "{text}"
    );
    assert_eq!(fs::read_to_string(place.page()).unwrap(), before);
}

#[test]
fn bad_records_are_refused_by_file_and_field_and_nothing_is_written() {
    for (old, new, words) in [
        ("\"id\": \"speed\",", "", "missing field `id`"),
        (
            "\"note\": null",
            "\"notes\": null",
            "field `notes`: unknown field",
        ),
        (
            "\"cores\": 2",
            "\"cores\": \"two\"",
            "field `cores`: invalid type",
        ),
        (
            "\"unit\": \"ops/s\",",
            "\"unit\": \"ops/s\"",
            "speed.json:10:",
        ),
        ("How fast is it?", "It is fast.", "field `question`"),
        ("\"low\": 900", "\"low\": 2000", "field `values[0].low`"),
    ] {
        let place = Place::new();
        fs::write(place.record("speed"), RECORD.replace(old, new)).unwrap();
        for options in [&[][..], &["--check"]] {
            let output = place.render(options);
            let text = said(&output);
            assert_eq!(output.status.code(), Some(1), "{text}");
            assert!(
                text.contains("speed.json") && text.contains(words),
                "{words}: {text}"
            );
        }
        assert!(!place.page().exists(), "{words}: the page was written");
    }
}

#[test]
fn two_records_with_one_id_a_bad_directory_and_a_readme_without_markers_are_refused() {
    let place = Place::new();
    fs::write(place.record("other"), RECORD).unwrap();
    let text = said(&place.render(&[]));
    assert!(
        text.contains("other.json and ") && text.contains("both are speed"),
        "{text}"
    );
    fs::remove_file(place.record("other")).unwrap();

    fs::write(place.readme(), "# It\n").unwrap();
    let output = place.render(&[]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("README.md needs the lines"), "{text}");

    let gone = place.root.path().join("gone");
    let output = render(&gone, &place.readme(), &[]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("gone") && text.contains("--dir"), "{text}");
}

#[test]
fn the_help_says_what_is_rendered_from_what() {
    let text = said(&foxton(&["results", "render", "--help"]));
    for words in [
        "--check",
        "docs/results",
        "README.md",
        "<!-- results:readme -->",
        "Exit codes",
    ] {
        assert!(text.contains(words), "no {words} in {text}");
    }
}
