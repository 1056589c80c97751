//! The figures of document 001, tiny. Where nothing elides, each names the missing numbers; where
//! software emulates transactions, each result says so. Built with the feature `emulated`, latches
//! elide on any machine; with `FOXTON_HTM=off` on none.

use std::{fs, time::Duration};

use foxton::LatchKind;
use foxton_lab::{
    bench::{
        latches::{self, Settings, Shared},
        pace::Pace,
    },
    figure::{self, elision, request::Request},
    progress::Audience,
    report::{self, sheet::Sheet, terminal},
    system::{Locks, System},
    workload::micro::counter::Layout,
};
use foxton_sync::{htm, latch::BackendKind};

const EMULATED: &str = "emulated by software";

/// Figures that compare lock managers use only these, because each is a database.
fn systems() -> Vec<System> {
    let locks =
        ["global", "bucket:elidable"].map(|name| name.parse::<Locks>().expect("it is built"));
    let latches = [
        LatchKind::Parking,
        LatchKind::TasT,
        LatchKind::ElidedRetry100,
        LatchKind::ElidedCooldown,
    ];
    System::all(&locks, &latches)
}

fn all() -> Vec<Sheet> {
    let request = Request {
        systems: systems(),
        mpls: vec![1, 2],
        window: Some(Duration::from_millis(5)),
        ramp: Some(Duration::from_millis(1)),
        reps: Some(1),
        rows: Some(1_000),
        command: "foxton figure 001".to_owned(),
        ..Request::default()
    };
    let listed = figure::find_all("001").expect("there are some");
    let make = |one: &&figure::Listed| one.make(&request, Audience::Nobody);
    let sheets = listed.iter().map(make);
    sheets.map(|sheet| sheet.expect("it can be made")).collect()
}

#[test]
fn each_figure_says_what_it_has_no_number_of_and_what_was_not_the_processors() {
    for sheet in all() {
        assert_eq!(sheet.failure(), None, "{}", sheet.id);
        what_has_no_transactions_says_so_and_has_no_number(&sheet);
        what_software_stood_in_for_is_never_told_as_the_processors(&sheet);
    }
}

/// A latch that elides nothing is not reported as if it did: its line says why there is no number,
/// or that the latch was taken. Figures of the processor's own transactions do so if there are
/// none.
fn what_has_no_transactions_says_so_and_has_no_number(sheet: &Sheet) {
    let own = htm::rtm().is_ok();
    let text = terminal::sheet(sheet);
    match (own, htm::hle().is_ok()) {
        // With one of the two it depends on which the figure needs.
        (true, false) => {}
        (_, both) => assert_eq!(!text.contains("not available"), both, "{}", sheet.id),
    }
    for row in sheet.blocks().flat_map(|block| block.table.rows()) {
        let mut kinds = LatchKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.plain() != *kind && row[0].ends_with(&kind.to_string()));
        let Some(kind) = kind else { continue };
        let says = row.iter().any(|cell| cell.contains("not available"));
        assert_eq!(says, kind.elides().is_err(), "{}: {row:?}", sheet.id);
    }
    for claim in &sheet.shape.0 {
        let missing = htm::rtm().err().map(elision::reason);
        let needs = missing.is_some_and(|why| claim.found.contains(&why));
        assert!(!needs || claim.holds.is_none(), "{}: {claim:?}", sheet.id);
    }
}

/// Claims of latches are worked out there too, and held against nothing; each page and each record
/// names it.
fn what_software_stood_in_for_is_never_told_as_the_processors(sheet: &Sheet) {
    let software = BackendKind::available() == Ok(BackendKind::Software);
    let directory = tempfile::tempdir().expect("a directory");
    for path in report::write_sheet(sheet, directory.path()).expect("it can be written") {
        let written = fs::read_to_string(&path).expect("it is text");
        let names = path
            .extension()
            .is_some_and(|ending| ending == "json" || ending == "html");
        if names || written.contains(EMULATED) {
            assert_eq!(written.contains(EMULATED), software, "{}", path.display());
        }
    }
    let text = terminal::sheet(sheet);
    assert_eq!(text.contains(EMULATED), software, "{}", sheet.id);
    let mut claims = sheet.shape.0.iter();
    let of_latches = claims
        .clone()
        .filter(|claim| claim.found.starts_with(EMULATED));
    for claim in of_latches.clone() {
        assert_eq!(claim.holds, None, "{}: {claim:?}", sheet.id);
        assert!(
            !claim.found.contains("not measured"),
            "{}: {claim:?}",
            sheet.id
        );
        assert!(!claim.found.contains("NaN"), "{}: {claim:?}", sheet.id);
    }
    if !sheet.panels.is_empty() {
        assert_eq!(of_latches.count() > 0, software, "{}", sheet.id);
        let aborts = "Why transactions aborted, emulated by software";
        assert_eq!(text.contains(aborts), software, "{}", sheet.id);
    }
    let available = htm::rtm().is_ok();
    assert!(available || claims.all(|claim| !claim.found.starts_with("a transaction costs")));
}

#[test]
fn a_bench_of_latches_names_what_they_were_elided_by() {
    let settings = Settings {
        shared: vec![Shared::Counter(Layout::One)],
        latches: vec![LatchKind::Parking, LatchKind::ElidedCooldown],
        taken: true,
        pace: Pace {
            threads: vec![2],
            reps: 1,
            ramp: Duration::from_millis(1),
            window: Duration::from_millis(5),
            command: "foxton bench counter".to_owned(),
        },
    };
    let findings = latches::run(&settings, Audience::Nobody).expect("the settings are sound");
    let software = BackendKind::available() == Ok(BackendKind::Software);
    let setting = findings
        .settings
        .iter()
        .find(|(name, _)| *name == "transactions");
    let (_, means) = setting.expect("it is a setting");
    assert_eq!(means == EMULATED, software, "{means}");
    assert_eq!(findings.machine.foxton.contains(EMULATED), software);
    assert_eq!(findings.description.contains(EMULATED), software);
    let aborts = findings
        .blocks
        .iter()
        .find(|block| block.title.starts_with("Why"));
    assert_eq!(aborts.is_some(), BackendKind::available().is_ok());
    if software {
        let aborts = aborts.expect("just seen");
        let [row] = aborts.table.rows() else {
            panic!("{:?}", aborts.table)
        };
        // Of the attempts that could commit every fourth aborts, for one cause after the other.
        let cell = |head: &str| {
            let at = aborts.table.heads().iter().position(|one| one == head);
            row[at.unwrap_or_else(|| panic!("no {head}"))].clone()
        };
        for cause in htm::Cause::ALL {
            assert_ne!(cell(&cause.to_string()), "0.0 %", "{cause}: {row:?}");
        }
        assert_ne!(cell("elided"), "0.0 %", "{row:?}");
    }
}
