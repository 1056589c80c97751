//! Every experiment, tiny: it runs, its data are right, and its record can be published.

use super::*;
use crate::bench::measured::MeasuredValue;
use crate::results::record::ResultRecord;

fn settings() -> Settings {
    // Beside this program, because a file system of memory may refuse direct calls.
    let program = std::env::current_exe().unwrap();
    Settings {
        directory: program.parent().map(Into::into),
        data: 8 << 20,
        page_memory: Some(1 << 20),
        row_bytes: 100,
        mpls: vec![4, 2],
        readers: 2,
        ramp: Duration::from_millis(50),
        window: Duration::from_millis(300),
        passes: 2,
        is_cached: false,
        durability: Durability::Buffered,
        seed: 1,
        command: "foxton bench pages".to_owned(),
    }
}

fn median(measured: &Measured, row: &str, series: &str) -> f64 {
    let is_it = |value: &&MeasuredValue| value.row == row && value.series == series;
    let value = measured.values.iter().find(is_it);
    let value = value.unwrap_or_else(|| panic!("{series} of {row}: {:?}", measured.values));
    assert_eq!(value.passes.len(), 2, "{series} of {row}");
    crate::measure::spread::Spread::new(value.passes.iter().copied()).median()
}

fn measure(experiment: Experiment, settings: &Settings) -> Measured {
    let measured = run(experiment, settings, Audience::Nobody).unwrap();
    let record: ResultRecord = serde_json::from_str(&measured.record()).unwrap();
    assert_eq!(record.values.len(), measured.values.len());
    measured
}

#[test]
fn reads_beyond_memory_miss_as_often_as_their_leaf_is_not_there() {
    for is_cached in [false, true] {
        let settings = Settings {
            is_cached,
            ..settings()
        };
        let measured = measure(Experiment::Beyond, &settings);
        let per_row = "reads per row ÷ share of pages not in memory";
        let ratio = median(&measured, "4 clients", per_row);
        assert!((0.5..2.0).contains(&ratio), "{ratio}");
        assert!(median(&measured, "2 clients", "page reads ÷ bare page reads") > 0.0);
        assert!(median(&measured, "4 clients ÷ 2", "rows") > 0.0);
    }
}

#[test]
fn a_storm_compares_reads_with_those_beside_the_same_writes() {
    let measured = measure(Experiment::Storm, &settings());
    assert!(median(&measured, "updates", "throughput") > 0.0);
    let worst = median(&measured, "updates", "worst second ÷ median");
    assert!((0.0..=1.0).contains(&worst), "{worst}");
    assert!(median(&measured, "reads", "p99.9 ÷ that of the bare device") > 0.0);
}

#[test]
fn bytes_written_are_more_than_those_changed_and_the_doublewrite_buffer_can_be_left_out() {
    let measured = measure(Experiment::Written, &settings());
    for skew in ["uniform", "Zipf 0.99"] {
        let without = format!("{skew}, no doublewrite");
        let double = "bytes of doublewrite ÷ bytes changed";
        assert!(median(&measured, skew, double) > 0.0);
        assert!(median(&measured, &without, double) == 0.0);
        assert!(median(&measured, skew, "all bytes ÷ bytes changed") > 1.0);
        assert!(median(&measured, skew, "throughput with doublewrite ÷ without") > 0.0);
    }
}

#[test]
fn backups_are_made_beside_clients() {
    let measured = measure(Experiment::Backup, &settings());
    assert!(median(&measured, "beside backups ÷ alone", "transactions") > 0.0);
    assert!(measured.values.iter().any(|value| value.row == "backup"));
}

#[test]
fn tables_are_converted_both_ways_and_loaded_with_indexes() {
    let settings = Settings {
        data: 1 << 20,
        ..settings()
    };
    let measured = measure(Experiment::Convert, &settings);
    for component in ["memory", "pages"] {
        assert!(median(&measured, &format!("conversion to {component}"), "rows") > 0.0);
        for indexes in 0..=2 {
            let row = format!("loading into {component}, {indexes} indexes");
            assert!(median(&measured, &row, "rows") > 0.0);
        }
        assert!(
            median(
                &measured,
                &format!("building 2 indexes in {component}"),
                "entries"
            ) > 0.0
        );
    }
}

#[test]
fn sections_are_counted_by_a_program_that_counts() {
    if !foxton_sync::site::COUNTING {
        let refused = run(Experiment::Sections, &settings(), Audience::Nobody).unwrap_err();
        assert!(
            refused.to_string().contains("--features account"),
            "{refused}"
        );
        return;
    }
    let measured = measure(Experiment::Sections, &settings());
    // A read shares nothing, in either component.
    for component in ["memory", "pages"] {
        assert!(median(&measured, &format!("read, {component}"), "latch") < 0.1);
    }
    assert!(median(&measured, "insert with a split, pages", "all") > 0.0);
}

#[test]
fn a_disk_that_is_too_small_is_refused_before_anything_is_loaded() {
    let settings = Settings {
        data: 1 << 50,
        ..settings()
    };
    let refused = run(Experiment::Beyond, &settings, Audience::Nobody).unwrap_err();
    assert!(
        matches!(&refused, BenchError::Settings(what) if what.contains("--dir")),
        "{refused}"
    );
}
