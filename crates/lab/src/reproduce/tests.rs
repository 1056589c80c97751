//! All figures in one go, on figures that cost nothing.

use super::*;
use crate::{
    figure,
    report::shape::{Claim, Shape},
};

/// The cheapest there is: two figures whose making does not depend on the machine.
fn plan(directory: &Path, ids: &[&str]) -> Plan {
    Plan {
        figures: ids.iter().map(|id| figure::find(id).unwrap()).collect(),
        request: Request {
            window: Some(std::time::Duration::from_millis(2)),
            reps: Some(1),
            rows: Some(2_000),
            command: "foxton reproduce --tiny".to_owned(),
            ..Request::default()
        },
        form: "tiny",
        directory: directory.to_owned(),
    }
}

fn sheet(id: &'static str, shape: Shape) -> Sheet {
    Sheet {
        id,
        title: "A figure".to_owned(),
        source: "a document".to_owned(),
        expect: "Nothing.".to_owned(),
        shape,
        notes: Vec::new(),
        beside: Vec::new(),
        pictures: Vec::new(),
        panels: Vec::new(),
        settings: Vec::new(),
        machine: Machine::here(),
        command: String::new(),
    }
}

#[test]
fn a_saved_result_is_read_back_and_a_half_written_one_is_not() {
    let place = tempfile::tempdir().unwrap();
    let origin = Origin::here("tiny", &Machine::here());
    let listed = figure::find("003-table3").unwrap();
    let claim = Claim::new("it falls", "it keeps 50 %", "below 90 %", true);
    let shape = Shape(vec![claim]);
    let made = sheet(listed.id, shape);
    let outcome = Outcome::of(listed, Ok(&made), 1.25, &origin);
    outcome.keep(place.path()).unwrap();
    let read = Outcome::kept(place.path(), listed.id).unwrap();
    assert_eq!(
        (read.record.clone(), read.section()),
        (outcome.record.clone(), outcome.section())
    );
    assert_eq!((read.text("shape"), read.origin()), ("reproduced", origin));
    assert!(read.was_made() && !read.broke());
    let record = place.path().join(listed.id).join("outcome.json");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, &text[..text.len() / 2]).unwrap();
    assert!(Outcome::kept(place.path(), listed.id).is_none());
}

#[test]
fn databases_of_an_interrupted_run_are_removed_and_others_are_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let left = place.path().join("databases").join("foxton-bench-left");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("log"), "left").unwrap();
    let databases = Databases::new(place.path()).unwrap();
    assert!(databases.0.is_dir() && !left.exists());
    let named = Some(place.path().join("elsewhere"));
    for (directory, expected) in [(None, Some(databases.0.clone())), (named.clone(), named)] {
        let request = Request {
            directory,
            ..Request::default()
        };
        assert_eq!(databases.asked(&request).directory, expected);
    }
    drop(databases);
    assert!(!place.path().join("databases").exists() && place.path().exists());
}

#[test]
fn a_figure_that_fails_is_a_line_in_the_report() {
    let listed = figure::find("002-fig3").unwrap();
    let origin = Origin::here("tiny", &Machine::here());
    for (error, word, broke) in [
        (
            BenchError::Settings("it needs a flag".to_owned()),
            "not available here",
            false,
        ),
        (
            BenchError::Failed("a row is missing".to_owned()),
            "failed",
            true,
        ),
    ] {
        let what = error.to_string();
        let outcome = Outcome::of(listed, Err(&error), 0.0, &origin);
        assert_eq!((outcome.text("shape"), outcome.broke()), (word, broke));
        assert!(outcome.text("sentence").contains(&what) && outcome.section().contains(&what));
        assert!(!outcome.was_made());
    }
}

#[test]
fn an_interrupted_run_is_resumed_and_another_kind_is_not_mixed_in() {
    let place = tempfile::tempdir().unwrap();
    let ids = ["003-table3", "003-table5"];
    let first = run(&plan(place.path(), &ids[..1]), Audience::Nobody).unwrap();
    // A figure that is there is not made again: its time is unchanged.
    let both = run(&plan(place.path(), &ids), Audience::Nobody).unwrap();
    assert_eq!(both.len(), 2);
    assert_eq!(both[0].record, first[0].record);
    let report = fs::read_to_string(place.path().join("report.html")).unwrap();
    for id in ids {
        assert!(
            report.contains(&format!("id=\"{id}\"")) && report.contains(&format!("href=\"#{id}\""))
        );
    }
    assert!(report.contains("Of 2 figures: ") && report.contains(" in all."));
    for outside in ["<script", "<link", "<img", "src=", "href=\"h", "@import"] {
        assert!(!report.contains(outside), "the report contains {outside}");
    }
    let other = Plan {
        form: "brief",
        ..plan(place.path(), &ids)
    };
    let refused = run(&other, Audience::Nobody).unwrap_err().to_string();
    assert!(
        refused.contains("003-table3") && refused.contains("tiny"),
        "{refused}"
    );
}
