//! `foxton report` as people use it: two runs are compared, and runs that cannot be are refused
//! with the reason.

use std::{fs, path::Path};

use crate::support::{foxton, said};
use serde_json::{Value, json};

/// A run of one system at two numbers of clients, as if measured five times at about `tps`.
fn recorded(directory: &Path, workload: &str, rows: u32, tps: [f64; 2]) -> String {
    let record = |(mpl, tps): (u32, f64)| {
        let passes: Vec<f64> = [1.0, 1.01, 0.99, 1.02, 0.98]
            .map(|factor| tps * factor)
            .to_vec();
        json!({"workload": workload, "variant": "read-only-s10", "lock_manager": "direct", "latch": "-",
            "note": "", "mpl": mpl, "tps": tps, "tps_by_pass": passes, "checks": "ok",
            "settings": {"rows": rows, "seconds": tps}, "machine": {"cores": 2}})
    };
    let records: Vec<Value> = [1, 64].into_iter().zip(tps).map(record).collect();
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("results.json"), json!(records).to_string()).unwrap();
    directory.to_string_lossy().into_owned()
}

#[test]
fn two_runs_are_compared_point_by_point() {
    let place = tempfile::tempdir().unwrap();
    let first = recorded(&place.path().join("a"), "txbench", 2000, [1000.0, 4000.0]);
    let second = recorded(&place.path().join("b"), "txbench", 2000, [1000.0, 2000.0]);
    let page = place.path().join("compared.html");
    let output = foxton(&["report", &first, &second, "--html", &page.to_string_lossy()]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let line = |mpl: &str| {
        let found = text
            .lines()
            .find(|line| line.contains("direct") && line.contains(mpl));
        found.unwrap_or_else(|| panic!("no line for {mpl} in {text}"))
    };
    assert!(line(" 1 ").ends_with("no difference shown"), "{text}");
    assert!(
        line(" 64 ").ends_with("slower") && line(" 64 ").contains("0.500"),
        "{text}"
    );
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("slower") && page.contains("bootstrap"));
    for outside in ["<script", "<link", "<img", "src=", "href=", "http"] {
        assert!(!page.contains(outside), "the page contains {outside}");
    }
}

/// The same run with this setting too.
fn asked(run: &str, name: &str, value: &Value) {
    let path = Path::new(run).join("results.json");
    let mut records: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for record in &mut records {
        record["settings"][name] = value.clone();
    }
    fs::write(path, json!(records).to_string()).unwrap();
}

#[test]
fn data_that_were_kept_are_not_held_against_data_loaded_anew() {
    let place = tempfile::tempdir().unwrap();
    let run = |name: &str, keep: bool| {
        let run = recorded(&place.path().join(name), "tpcb", 2000, [1000.0, 4000.0]);
        asked(&run, "keep", &json!(keep));
        run
    };
    let output = foxton(&["report", &run("fresh", false), &run("kept", true)]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("keep false in the first and true"),
        "no keep in {text}"
    );
}

#[test]
fn databases_in_different_places_are_compared_and_the_places_are_told() {
    let place = tempfile::tempdir().unwrap();
    let run = |name: &str, directory: &str| {
        let run = recorded(&place.path().join(name), "tpcb", 2000, [1000.0, 4000.0]);
        asked(&run, "directory", &json!(directory));
        run
    };
    let (first, second) = (run("a", "/in-memory"), run("b", "/on-disk"));
    let output = foxton(&["report", &first, &second]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for words in ["no difference shown", "/in-memory", "/on-disk"] {
        assert!(text.contains(words), "no {words} in {text}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused_in_words() {
    let place = tempfile::tempdir().unwrap();
    let made = |name: &str, workload, rows| {
        recorded(&place.path().join(name), workload, rows, [1000.0, 4000.0])
    };
    let first = made("a", "txbench", 2000);
    let broken = place.path().join("broken.json");
    fs::write(&broken, "[{\"tps\": 1000.0, ").unwrap();
    let broken = broken.to_string_lossy();
    for (second, words) in [
        (&*made("other", "tpcb", 2000), "different experiments"),
        (
            &*made("more", "txbench", 9000),
            "rows 2000 in the first and 9000",
        ),
        (&*broken, "not a results.json of a run"),
        ("/no/such/run", "/no/such/run"),
        (&*place.path().to_string_lossy(), "results.json"),
    ] {
        let output = foxton(&["report", &first, second]);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains(words) && !text.contains("panicked"),
            "no {words} in {text}"
        );
    }
}
