//! Benchmarks and figures over both components of tables, and what their files say of each row.

use std::path::Path;

use serde_json::{Value, json};

use super::support::{foxton, said};

/// Runs the command with results in a directory, and returns a file of them.
fn results(arguments: &[&str], out: &Path) {
    let place = out.to_string_lossy().into_owned();
    let mut all = arguments.to_vec();
    all.extend(["--out", &place]);
    let made = foxton(&all);
    assert!(made.status.success(), "{}", said(&made));
}

fn file(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the results");
    serde_json::from_str(&text).expect("JSON")
}

const BOTH: [&str; 4] = ["--tables", "memory,paged", "--page-memory", "2MiB"];
const IN_MEMORY: (&str, Option<u64>) = ("memory", None);
const PAGED: (&str, Option<u64>) = ("paged", Some(2 << 20));
const TWINS: (&str, Option<u64>) = ("memory,paged", Some(2 << 20));

/// True if the settings name this component.
fn says(settings: &Value, (tables, page_memory): (&str, Option<u64>)) -> bool {
    settings["tables"] == json!(tables) && settings["page_memory"] == json!(page_memory)
}

#[test]
fn each_point_of_a_benchmark_names_its_tables_and_their_memory() {
    let out = tempfile::tempdir().expect("a directory");
    let short = [
        "--seconds",
        "0.05",
        "--ramp",
        "0.01",
        "--reps",
        "1",
        "--mpl",
        "1,2",
    ];
    let bench = [
        "bench",
        "tpcb",
        "--locks",
        "bucket,default",
        "--branches",
        "2",
    ];
    results(&[&bench[..], &short, &BOTH].concat(), out.path());
    let points = file(&out.path().join("results.json"));
    assert_eq!(
        points.len(),
        8,
        "two managers, two components, two numbers of clients"
    );
    for point in &points {
        assert_eq!(point["checks"], "ok");
        let is_paged = point["note"]
            .as_str()
            .expect("a note")
            .contains("paged tables");
        let expected = if is_paged { PAGED } else { IN_MEMORY };
        assert!(says(&point["settings"], expected), "{point}");
    }
    let paged = points
        .iter()
        .filter(|point| says(&point["settings"], PAGED));
    assert_eq!(paged.count(), 4);
}

#[test]
fn the_figures_of_document_003_have_both_components_side_by_side() {
    let out = tempfile::tempdir().expect("a directory");
    let short = ["--rows", "2000", "--seconds", "0.005", "--reps", "1"];
    let figure = ["figure", "003", "--locks", "bucket,direct:table"];
    results(&[&figure[..], &short, &BOTH].concat(), out.path());
    for (id, measured, compares) in [
        ("003-table1", "Ours", true),
        ("003-table3", "Our times", true),
        ("003-table4", "Ours", false),
        ("003-table5", "Ours", true),
    ] {
        let tables = file(&out.path().join(id).join("tables.json"));
        let rows_of = |title: &str| -> Vec<&Value> {
            let named = |table: &&Value| {
                let is_named = table["table"].as_str().expect("a title");
                is_named.starts_with(title)
            };
            let found = tables.iter().filter(named);
            found
                .flat_map(|table| table["rows"].as_array().expect("rows"))
                .collect()
        };
        let ours = rows_of(measured);
        for expected in [IN_MEMORY, PAGED] {
            let rows = ours.iter().filter(|row| says(&row["settings"], expected));
            assert!(rows.count() >= 3, "{id} has rows of {expected:?}: {ours:?}");
        }
        for row in ours {
            let settings = &row["settings"];
            assert!(
                says(settings, IN_MEMORY) || says(settings, PAGED),
                "{id}: {row}"
            );
            // The name of a row agrees with its settings.
            let mut cells = row.as_object().expect("cells").values();
            let is_called_paged = cells.any(|cell| {
                cell.as_str()
                    .is_some_and(|cell| cell.contains("paged tables"))
            });
            assert!(
                id == "003-table3" || is_called_paged == says(settings, PAGED),
                "{id}: {row}"
            );
        }
        let twins = rows_of("Tables in memory beside paged tables");
        assert_eq!(twins.is_empty(), !compares, "{id}");
        assert!(
            twins.iter().all(|row| says(&row["settings"], TWINS)),
            "{id}"
        );
        let picture = out.path().join(id).join("components.svg");
        assert_eq!(picture.is_file(), compares, "{id}");
    }
    // A row of a paged table has no word for its lock.
    let tables = file(&out.path().join("003-table4").join("tables.json"));
    let rows = tables
        .iter()
        .flat_map(|table| table["rows"].as_array().expect("rows"));
    let in_records = rows.filter(|row| row["lock"].to_string().contains("in its record"));
    let in_records: Vec<_> = in_records.collect();
    assert!(!in_records.is_empty());
    assert!(
        in_records
            .iter()
            .all(|row| says(&row["settings"], IN_MEMORY))
    );
}

#[test]
fn a_figure_of_another_document_refuses_components_and_says_which_take_them() {
    for (arguments, words) in [
        (
            &["figure", "000-fig12", "--tables", "paged"][..],
            "figures of document 003",
        ),
        (
            &["figure", "003", "--tables", "disk"],
            "memory, paged or both",
        ),
        (&["figure", "003", "--page-memory", "1MiB"], "--tables"),
    ] {
        let refused = foxton(arguments);
        assert!(
            !refused.status.success() && said(&refused).contains(words),
            "{}",
            said(&refused)
        );
    }
    let help = said(&foxton(&["figure", "--help"]));
    assert!(
        help.contains("--tables memory,paged --page-memory 64MiB"),
        "{help}"
    );
}
