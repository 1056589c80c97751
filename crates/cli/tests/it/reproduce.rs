//! `foxton reproduce` in its smallest form: one report of several figures, made or not.

use std::fs;

use crate::support::{foxton, said};
use serde_json::Value;

#[test]
fn figures_become_one_report_and_one_that_cannot_be_made_holds_up_no_other() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("report");
    let ids = "002-fig3,003-table3,003-table5";
    let arguments = [
        "reproduce",
        "--tiny",
        "--only",
        ids,
        "--out",
        &out.to_string_lossy(),
    ];
    let output = foxton(&arguments);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    let json = fs::read_to_string(out.join("results.json")).unwrap();
    let figures: Value = serde_json::from_str(&json).unwrap();
    let figures = figures.as_array().unwrap();
    let named: Vec<_> = figures
        .iter()
        .map(|one| one["figure"].as_str().unwrap())
        .collect();
    assert_eq!(named.join(","), ids);
    for figure in figures {
        for field in ["title", "shape", "sentence", "form", "foxton", "machine"] {
            assert!(figure[field].is_string(), "{field} of {figure}");
        }
        assert!(text.contains(figure["figure"].as_str().unwrap()), "{text}");
    }
    // Its claim is of the document alone, and so the same in any form.
    assert_eq!(figures[1]["shape"], "reproduced");
    assert!(
        figures[1]["sentence"]
            .as_str()
            .unwrap()
            .contains("misprint")
    );
    if !cfg!(feature = "account") {
        assert_eq!(figures[0]["shape"], "not available here");
        assert!(
            figures[0]["sentence"]
                .as_str()
                .unwrap()
                .contains("--features account")
        );
        let more = format!("-- reproduce --out {}", out.display());
        assert!(text.contains(&more), "{text}");
    }
    let report = fs::read_to_string(out.join("report.html")).unwrap();
    for figure in figures {
        let id = figure["figure"].as_str().unwrap();
        assert!(report.contains(&format!("<section id=\"{id}\"")), "no {id}");
    }
    // Run again, it keeps the finished figures.
    let again = said(&foxton(&arguments));
    assert!(again.contains("003-table5: made before"), "{again}");
}

/// The list of commands has the figures by name that only a program which counts can make.
#[test]
fn all_figures_are_one_command() {
    let commands = include_str!("../../../../justfile");
    let counted = foxton_lab::figure::COUNTED.join(",");
    let wanted = format!("--features account -- reproduce --only {counted} --out");
    assert!(commands.contains(&wanted), "no {wanted}");
}

#[test]
fn a_figure_that_is_none_is_refused_with_those_there_are() {
    let output = foxton(&["reproduce", "--only", "000-fig99"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text.contains("000-fig99") && text.contains("003-table5"),
        "{text}"
    );
}
