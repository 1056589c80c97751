//! Every experiment, tiny: it runs, its data are right, and its record can be published.

use super::*;
use crate::{
    bench::measured::MeasuredValue, measure::spread::Spread, results::record::ResultRecord,
};

fn settings() -> Settings {
    Settings {
        directory: None,
        rows: 1_000,
        row_bytes: 40,
        mpls: vec![1, 8],
        methods: SnapshotMethod::ALL.to_vec(),
        log_buffers: LogBufferKind::ALL.to_vec(),
        ramp: Duration::from_millis(20),
        window: Duration::from_millis(150),
        passes: 2,
        durability: Durability::Buffered,
        seed: 1,
        program: None,
        command: "foxton bench snapshots".to_owned(),
    }
}

fn median(measured: &Measured, row: &str, series: &str) -> f64 {
    let is_it = |value: &&MeasuredValue| value.row == row && value.series == series;
    let value = measured.values.iter().find(is_it);
    let value = value.unwrap_or_else(|| panic!("{series} of {row}: {:?}", measured.values));
    assert_eq!(value.passes.len(), 2, "{series} of {row}");
    Spread::new(value.passes.iter().copied()).median()
}

fn measure(experiment: Experiment) -> Measured {
    measure_with(experiment, &settings())
}

fn measure_with(experiment: Experiment, settings: &Settings) -> Measured {
    let measured = run(experiment, settings, Audience::Nobody).unwrap();
    let record: ResultRecord = serde_json::from_str(&measured.record()).unwrap();
    assert_eq!(record.values.len(), measured.values.len());
    measured
}

#[test]
fn short_transactions_are_compared_by_clients_and_updates() {
    let measured = measure(Experiment::Short);
    for row in ["1 client, 0 % updating", "8 clients, 20 % updating"] {
        for name in ["snapshot", "read-views"] {
            assert!(median(&measured, row, &format!("{name} ÷ serializable")) > 0.0);
            let of_peak = median(&measured, row, &format!("{name} ÷ peak"));
            assert!(of_peak > 0.0 && of_peak <= 1.0);
        }
    }
}

#[test]
fn scans_are_compared_by_clients() {
    let measured = measure(Experiment::Reads);
    let row = "8 clients, 0 % updating";
    assert!(median(&measured, row, "snapshot ÷ serializable") > 0.0);
}

#[test]
fn readers_at_a_snapshot_wait_for_no_lock_in_a_hot_spot() {
    let measured = measure(Experiment::Hotspot);
    let row = "8 clients, 20 % updating";
    assert!(median(&measured, row, "snapshot ÷ serializable") > 0.0);
    for name in ["snapshot", "read-views"] {
        let waits = median(&measured, row, &format!("{name}: lock waits of readers"));
        assert_eq!(waits, 0.0, "{name}");
    }
}

#[test]
fn workloads_are_run_beside_short_snapshots() {
    let measured = measure(Experiment::Beside);
    for name in ["TATP", "TPC-B", "ten rows, 20 % update two"] {
        let series = "beside snapshots ÷ without";
        assert!(median(&measured, &format!("{name}, 8 clients"), series) > 0.0);
    }
}

#[test]
fn a_stalled_snapshot_reads_what_was_loaded_and_retains_less_than_a_view() {
    // Long enough for versions to be collected and counted.
    let settings = Settings {
        window: Duration::from_millis(600),
        ..settings()
    };
    let measured = measure_with(Experiment::Stalled, &settings);
    let series = "beside a snapshot ÷ without";
    assert!(median(&measured, "snapshot", series) > 0.0);
    assert!(median(&measured, "read-views", series) > 0.0);
    assert!(median(&measured, "read-views", "retained") > 0.0);
    let ended = "snapshots ended for their memory";
    assert_eq!(median(&measured, "snapshot", ended), 0.0);
}

#[test]
fn an_auditor_finds_even_sums_only() {
    // Long enough for the clock of the process to tick.
    let settings = Settings {
        window: Duration::from_millis(600),
        ..settings()
    };
    let measured = measure_with(Experiment::Auditor, &settings);
    for name in ["snapshot", "read-views"] {
        assert!(median(&measured, name, "beside an auditor ÷ without") > 0.0);
        assert!(median(&measured, name, "audits") > 0.0);
    }
}

#[test]
fn a_queue_is_run_beside_a_snapshot() {
    let measured = measure(Experiment::Queue);
    let series = "beside a snapshot ÷ without";
    assert!(median(&measured, "snapshot", series) > 0.0);
    assert!(median(&measured, "read-views", series) > 0.0);
}

#[test]
fn old_versions_have_their_own_counters() {
    let measured = measure(Experiment::Old);
    assert!(median(&measured, "snapshot", "old ÷ new") > 0.0);
    assert!(median(&measured, "read-views", "old ÷ new") > 0.0);
}

#[test]
fn waits_are_counted_for_each_log_buffer() {
    let measured = measure(Experiment::Waits);
    for buffer in LogBufferKind::ALL {
        let row = buffer.to_string();
        assert!(median(&measured, &row, "transactions") > 0.0);
        let longest = median(&measured, &row, "longest wait");
        let most = median(&measured, &row, "p99.99 of the wait of a read");
        assert!(most <= longest);
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused_with_the_option_to_change() {
    let refused = |change: &dyn Fn(&mut Settings), option: &str| {
        let mut settings = settings();
        change(&mut settings);
        let refused = run(Experiment::Short, &settings, Audience::Nobody).unwrap_err();
        assert!(
            matches!(&refused, BenchError::Settings(what) if what.contains(option)),
            "{refused}"
        );
    };
    refused(&|settings| settings.row_bytes = 15, "--row-bytes");
    refused(&|settings| settings.rows = 999, "--rows");
    refused(&|settings| settings.mpls = vec![1, 0], "--mpl");
    refused(&|settings| settings.methods.clear(), "--snapshots");
    refused(&|settings| settings.passes = 0, "--passes");
}
