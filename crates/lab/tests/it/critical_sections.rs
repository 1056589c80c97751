//! Critical sections, counted and reported: a tiny run, and the message of a program that does not
//! count.

use foxton::Durability;
use foxton_lab::{
    bench::critical_sections::{Settings, design::Design, run},
    progress::Audience,
};
#[cfg(feature = "account")]
use {
    foxton_lab::bench::critical_sections::{Case, tables},
    foxton_sync::site::{Component, Pattern},
};

fn settings(designs: &[&str]) -> Settings {
    Settings {
        designs: designs
            .iter()
            .map(|name| Design::find(name).unwrap())
            .collect(),
        workloads: Vec::new(),
        executions: 20,
        mpls: vec![1, 2],
        rows: 400,
        durability: Durability::Buffered,
        directory: None,
        seed: 1,
    }
}

/// Least numbers of unbounded critical sections of an update of a location, over a design and with
/// a durability: of locks, of latches, of the log, and all others. Locks that the load made real
/// are remembered again after a while, which depends on the machine. So the smallest numbers of
/// several runs count; a run with the `expected` numbers is the last.
#[cfg(feature = "account")]
fn fewest(design: &str, durability: Durability, expected: [f64; 3]) -> ([f64; 3], f64) {
    let settings = Settings {
        workloads: vec![Case::Tatp],
        mpls: vec![1],
        // The first strong lock on an inserted row meets one place more. So few rows are locked
        // before the count, however slow the commits are.
        rows: 2,
        durability,
        ..settings(&[design])
    };
    let sum = |parts: [f64; 3]| parts.iter().sum::<f64>();
    let mut fewest = ([f64::INFINITY; 3], 0.0);
    for _ in 0..10 {
        let counted = run(&settings, Audience::Nobody).unwrap();
        let update = counted
            .iter()
            .find(|one| one.transaction == "UpdateLocation");
        let own = &update.expect("it is counted").own;
        let parts = [Component::Lock, Component::Latch, Component::Log]
            .map(|component| own.of(component, Pattern::Unbounded));
        if sum(parts) < sum(fewest.0) {
            fewest = (parts, own.of_pattern(Pattern::Unbounded) - sum(parts));
        }
        if parts == expected {
            break;
        }
    }
    fewest
}

/// The target is at most six with the default, where the baseline has eight; it has five. The
/// durability changes neither, because commits that wait for the device are served together.
#[cfg(feature = "account")]
#[test]
fn an_update_of_a_location_meets_others_at_five_places_whatever_its_commit_waits_for() {
    for durability in [Durability::None, Durability::Buffered, Durability::Sync] {
        for (design, expected) in [
            ("baseline", [6.0, 1.0, 1.0]),
            ("direct", [4.0, 1.0, 0.0]),
            ("default", [4.0, 1.0, 0.0]),
        ] {
            let (found, others) = fewest(design, durability, expected);
            assert_eq!(found, expected, "{design}, {durability}");
            // Now and then the epoch is advanced, by one transaction in a hundred.
            assert!(others < 0.5, "{design}, {durability}: {others}");
            let all = found.iter().sum::<f64>() + others;
            assert!(design != "default" || all <= 6.0, "{durability}: {all}");
        }
    }
}

#[cfg(not(feature = "account"))]
#[test]
fn a_program_that_does_not_count_says_what_to_type() {
    let error = run(&settings(&["default"]), Audience::Nobody).unwrap_err();
    let words = "cargo run --release --features account --";
    assert!(error.to_string().contains(words), "{error}");
}

#[cfg(feature = "account")]
#[test]
fn each_transaction_over_each_design_is_one_object_whose_parts_add_up() {
    let settings = settings(&["baseline", "default"]);
    let counted = run(&settings, Audience::Nobody).unwrap();
    let records = tables::records(&settings, &counted, "command");
    let names = tables::transactions(&counted).len();
    assert!(names > Case::ALL.len());
    assert_eq!(records.len(), 2 * names);
    for record in &records {
        let number = |name: &str| record[name].as_f64().unwrap();
        let parts = ["unbounded", "cooperative", "fixed"].map(number);
        assert!((parts.iter().sum::<f64>() - number("total")).abs() < 1e-2);
        let components = record["components"].as_object().unwrap();
        let of = |part: &serde_json::Value| part["unbounded"].as_f64().unwrap();
        let sum: f64 = components.values().map(of).sum();
        assert!((sum - parts[0]).abs() < 1e-2, "{record:?}");
        assert_eq!(record["with_more_clients"].as_array().unwrap().len(), 1);
    }
    // Eleven locks, each requested and released; one record of the log.
    let of = |transaction: &str, component| {
        let found = counted.iter().find(|one| {
            (one.design.name, one.transaction, one.mpl) == ("baseline", transaction, 1)
        });
        found.unwrap().own.of(component, Pattern::Unbounded)
    };
    assert_eq!(of("read", Component::Lock), 22.0);
    assert_eq!(of("book", Component::Log), 1.0);
    let sheet = tables::sheet(&settings, &counted, "command");
    assert_eq!(sheet.pictures.len(), names);
}
