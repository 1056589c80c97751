//! Every figure, tiny: it is made of everything that is built, is right, and can be written and
//! read.

use std::{fs, time::Duration};

use foxton_lab::{
    figure::{self, request::Request},
    progress::Audience,
    report::{self, shape::Verdict, sheet::Sheet, terminal},
    system::{Locks, System},
};
use foxton_sync::htm;

/// A few that have little in common: each figure makes a database for every one.
const FEW: [&str; 3] = ["global", "bucket+inherit", "direct"];

fn tiny() -> Request {
    let few = FEW.map(|name| name.parse::<Locks>().expect("it is built"));
    Request {
        systems: System::all(&few, &[]),
        mpls: vec![2, 4],
        window: Some(Duration::from_millis(10)),
        ramp: Some(Duration::from_millis(2)),
        reps: Some(1),
        rows: Some(2_000),
        command: "foxton figure".to_owned(),
        ..Request::default()
    }
}

/// Figures that load several workloads, or one several times.
const LOADS: [&str; 8] = [
    "000-fig17",
    "000-fig18",
    "002-fig5",
    "002-fig6",
    "002-fig12",
    "002-fig14",
    "002-fig16",
    "004-sysbench",
];

/// The same for one figure: with one number of clients where its own form has one, and fewer rows
/// where they are loaded often.
fn tiny_for(id: &str) -> Request {
    let mut request = tiny();
    if id == "002-fig13" {
        request.mpls.truncate(1);
    }
    if LOADS.contains(&id) {
        request.rows = Some(300);
    }
    request
}

fn make(id: &str, request: &Request) -> Sheet {
    let listed = figure::find(id).expect("it is listed");
    listed
        .make(request, Audience::Nobody)
        .expect("the settings are sound")
}

/// Runs of the figures of whole workloads: for each panel the beginning of its workload and
/// variant, the managers, and whether its points are sampled.
fn runs(id: &str) -> Option<(&'static [&'static str], &'static [&'static str], bool)> {
    Some(match id {
        "000-fig17" => (&["tatp read-300", "tatp read-update-300"], &FEW, false),
        "000-fig18" => (&["tatp read-300", "tatp read-update-300"], &FEW, true),
        "002-fig1" => (&["private-insert 1000-a-transaction"], &FEW, false),
        "002-fig5" => (&["tatp UpdateLocation-300"], &["bucket+inherit"], true),
        "002-fig6" => (&["tatp full-300"], &["bucket"], true),
        "002-fig12" => (
            &["tatp full", "tpcb 10-", "tpcc 2-warehouses-no-payment"],
            &DESIGNS,
            false,
        ),
        "002-fig16" => (
            &[
                "secondary aligned-10",
                "secondary scattered-10",
                "secondary aligned-100",
                "secondary scattered-100",
                "secondary aligned-300",
                "secondary scattered-300",
            ],
            &FEW,
            false,
        ),
        "004-sysbench" => (
            &[
                "sysbench pareto-read-uncommitted",
                "sysbench uniform-read-uncommitted",
            ],
            &FEW,
            false,
        ),
        _ => return None,
    })
}

/// The managers of the designs of document 002.
const DESIGNS: [&str; 5] = [
    "bucket",
    "bucket+inherit",
    "bucket+inherit",
    "direct",
    "direct",
];

fn assert_runs(sheet: &Sheet) {
    let Some((panels, managers, sampled)) = runs(sheet.id) else {
        return;
    };
    let names = sheet.panels.iter();
    let names: Vec<String> = names
        .map(|panel| format!("{} {}", panel.workload, panel.variant))
        .collect();
    assert_eq!(names.len(), panels.len(), "{}: {names:?}", sheet.id);
    for (panel, (name, expected)) in sheet.panels.iter().zip(names.iter().zip(panels)) {
        assert!(name.starts_with(expected), "{}: {name}", sheet.id);
        let found: Vec<&str> = panel
            .curves
            .iter()
            .map(|curve| curve.lock_manager.as_str())
            .collect();
        assert_eq!(found, managers, "{}, {name}", sheet.id);
        let mut points = panel.curves.iter().flat_map(|curve| &curve.points);
        assert!(
            points.all(|point| point.times.is_some() == sampled),
            "{name}"
        );
    }
}

/// Figures that claim something of hardware transactions alone.
const OF_TRANSACTIONS: [&str; 3] = ["001-fig3.12", "001-fig3.17", "001-fig5.2"];

/// Without those, such a figure is not called reproduced because its sums are right.
fn assert_not_judged(sheet: &Sheet) {
    if OF_TRANSACTIONS.contains(&sheet.id) && htm::rtm().is_err() {
        assert_eq!(sheet.shape.verdict(), Verdict::NotJudged, "{}", sheet.id);
    }
}

#[test]
fn what_could_be_inherited_is_told_for_each_benchmark() {
    let sheet = make("002-fig14", &tiny_for("002-fig14"));
    let heads = sheet.beside[1].table.heads();
    let (used, least, most) = (heads.len() - 3, heads.len() - 2, heads.len() - 1);
    let rows = sheet.beside[1].table.rows();
    for workload in ["tatp", "tpcb", "tpcc"] {
        let mine = rows.iter().filter(|row| row[0] == workload);
        assert_eq!(mine.count(), FEW.len() * tiny().mpls.len(), "{workload}");
    }
    let number = |cell: &String| -> f64 {
        let percent = cell.trim_end_matches(" %");
        percent.parse().unwrap_or_else(|_| panic!("{cell}"))
    };
    for row in rows {
        let [used, least, most] = [used, least, most].map(|at| number(&row[at]));
        assert!(least <= used && used <= most, "{row:?}");
    }
}

#[test]
fn every_figure_is_made_written_and_right() {
    for listed in figure::ALL {
        if figure::COUNTED.contains(&listed.id) && !cfg!(feature = "account") {
            let error = listed.make(&tiny(), Audience::Nobody).unwrap_err();
            assert!(error.to_string().contains("--features account"), "{error}");
            continue;
        }
        let sheet = make(listed.id, &tiny_for(listed.id));
        assert_eq!(sheet.id, listed.id);
        assert_eq!(sheet.failure(), None, "{}", listed.id);
        assert_not_judged(&sheet);
        assert!(!sheet.beside.is_empty(), "{} compares nothing", listed.id);
        assert_runs(&sheet);
        for block in sheet.blocks() {
            assert!(!block.table.is_empty(), "{}: {}", listed.id, block.title);
        }
        let directory = tempfile::tempdir().expect("a directory");
        let written = report::write_sheet(&sheet, directory.path()).expect("it can be written");
        for path in &written {
            assert!(fs::metadata(path).expect("it is there").len() > 0);
        }
        let page = fs::read_to_string(directory.path().join("report.html")).expect("a page");
        for outside in ["<script", "<link", "<img", "src=", "href="] {
            assert!(!page.contains(outside), "{} contains {outside}", listed.id);
        }
        let text = terminal::sheet(&sheet);
        assert!(text.contains("To expect:") && text.contains(listed.id));
    }
}

#[test]
fn the_stalled_transaction_has_its_cost_in_a_table() {
    let sheet = make("000-fig16", &tiny());
    let effect = &sheet.panels[0].blocks[0];
    assert_eq!(
        effect.table.rows().len(),
        sheet.panels[0].curves.len() * tiny().mpls.len()
    );
    assert!(sheet.panels[0].event.is_some());
}

#[test]
fn every_manager_has_a_curve_if_nobody_says_which() {
    let request = Request {
        systems: Vec::new(),
        mpls: vec![2],
        ..tiny()
    };
    let sheet = make("000-fig12", &request);
    assert_eq!(sheet.failure(), None);
    for locks in Locks::usual() {
        let name = System::new(locks, None).manager_name();
        let mut curves = sheet.panels[0].curves.iter();
        assert!(curves.any(|curve| curve.lock_manager == name), "no {name}");
    }
    // The default: `direct` with admission control.
    let default = System::new(Locks::Default, None);
    let named = (default.manager_name(), default.note());
    for panel in &sheet.panels {
        let curves = panel.curves.iter();
        let defaults =
            curves.filter(|curve| (&curve.lock_manager, &curve.note) == (&named.0, &named.1));
        assert_eq!(defaults.count(), 1, "{}", panel.title);
    }
    assert!(sheet.notes.is_empty(), "{:?}", sheet.notes);
}
