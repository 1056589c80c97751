//! The command as people and programs use it: exit codes, files, words.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Output, Stdio},
};

use crate::support::{command, foxton, said, shell};
use serde_json::Value;

/// txbench as short as it can be, with these settings, and its results in `out`.
fn quick_txbench(out: &Path, settings: &str) -> Output {
    let quick = "bench txbench --rows 2000 --seconds 0.05 --ramp 0 --out";
    let out = out.to_string_lossy();
    let arguments = quick.split(' ').chain([&*out]).chain(settings.split(' '));
    foxton(&arguments.collect::<Vec<_>>())
}

#[test]
fn restarts_are_measured_with_and_without_a_checkpoint() {
    let output = foxton(&[
        "bench",
        "restart",
        "--log",
        "1",
        "--rows",
        "500",
        "--threads",
        "1,2",
        "--seconds",
        "0.05",
        "--every",
        "1",
        "--reps",
        "1",
    ]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    for words in ["restart after it", "clients that update", "longest"] {
        assert!(text.contains(words), "no {words} in {text}");
    }
    let help = said(&foxton(&["bench", "restart", "--help"]));
    assert!(help.contains("--threads 1,2"), "{help}");
}

#[test]
fn a_benchmark_prints_a_table_and_leaves_results_that_programs_can_read() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("results");
    let output = quick_txbench(
        &path,
        "--mpl 1,2 --reps 2 --locks global,bucket --updates 20",
    );
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    for words in ["No-collapse ratio", "global/", "bucket/", "report.html"] {
        assert!(text.contains(words), "no {words} in {text}");
    }
    for file in ["report.html", "throughput.svg", "results.csv"] {
        assert!(path.join(file).is_file(), "no {file}");
    }
    let json = fs::read_to_string(path.join("results.json")).unwrap();
    let records: Value = serde_json::from_str(&json).unwrap();
    let records = records.as_array().unwrap();
    assert_eq!(records.len(), 4);
    for record in records {
        assert_eq!(record["workload"], "txbench");
        assert_eq!(record["variant"], "updates20-s10");
        assert_eq!(record["checks"], "ok");
        assert_eq!(record["settings"]["rows"], 2000);
        assert!(record["tps"].as_f64().unwrap() > 0.0, "{record}");
        for field in ["tps_min", "tps_max", "aborts", "p50_us", "p99_us", "mpl"] {
            assert!(record[field].is_number(), "{field} of {record}");
        }
    }
}

#[test]
fn a_failed_check_fails_the_command() {
    let out = tempfile::tempdir().unwrap();
    let output = quick_txbench(out.path(), "--mpl 1 --reps 1 --locks bucket --plant");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("a check failed"),
        "{}",
        said(&output)
    );
}

#[test]
fn what_makes_no_sense_is_refused_with_what_would() {
    for (arguments, code, words) in [
        (&["bench", "txbench", "--locks", "glob"][..], 2, "global"),
        (&["bench", "txbench", "--latch", "mutex"], 2, "parking"),
        (&["bench", "txbench", "--size", "7"], 2, "10"),
        (&["bench", "txbench", "--mpl", "0"], 2, "1..=4096"),
        (&["bench", "txbench", "--durability", "disk"], 2, "buffered"),
        (
            &["bench", "txbench", "--locks", "none", "--mpl", "4"],
            1,
            "add 1 to --mpl",
        ),
        (
            &["bench", "txbench", "--stalled", "--updates", "20"],
            1,
            "leave --updates out",
        ),
        (
            &["bench", "txbench", "--dir", "/no/such/place"],
            1,
            "/no/such/place",
        ),
        // Before anything is measured.
        (
            &["bench", "txbench", "--out", "/dev/null/results"],
            2,
            "/dev/null is a file",
        ),
        (
            &["figure", "000-fig12", "--out", "/proc/results"],
            2,
            "nothing can be written in /proc",
        ),
        (
            &["bench", "wisconsin", "--mix", "20,20"],
            2,
            "20,20,20,20,20",
        ),
        (&["bench", "wisconsin", "--rows", "3"], 2, "10..=10000000"),
        (&["bench", "latch-cost", "--locks", "glob"], 2, "global"),
        (
            &["bench", "overlap", "--latch", "queue"],
            2,
            "--locks <LOCKS>",
        ),
        (&["inspect", "/no/such/place"], 1, "/no/such/place"),
        (&["measure"], 2, "--help"),
    ] {
        let output = foxton(arguments);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?} says {text}");
        assert!(!text.contains("panicked"), "{arguments:?} says {text}");
    }
}

#[test]
fn help_teaches_with_examples() {
    for arguments in [
        &["--help"][..],
        &["bench", "txbench", "--help"],
        &["bench", "tpcb", "--help"],
        &["bench", "tatp", "--help"],
        &["bench", "secondary", "--help"],
        &["bench", "ycsb", "--help"],
        &["bench", "smallbank", "--help"],
        &["bench", "transfers", "--help"],
        &["bench", "sysbench", "--help"],
        &["bench", "private-insert", "--help"],
        &["bench", "tpcc", "--help"],
        &["bench", "wisconsin", "--help"],
        &["bench", "latch-cost", "--help"],
        &["bench", "overlap", "--help"],
        &["bench", "lock-cost", "--help"],
        &["bench", "log-insert", "--help"],
        &["bench", "lock-only", "--help"],
        &["figure", "--help"],
        &["report", "--help"],
        &["reproduce", "--help"],
        &["shell", "--help"],
        &["inspect", "--help"],
        &["locks", "--help"],
        &["top", "--help"],
    ] {
        let output = foxton(arguments);
        assert!(output.status.success());
        assert!(
            said(&output).contains("Example"),
            "{arguments:?}: {}",
            said(&output)
        );
    }
}

#[test]
fn a_script_in_the_shell_does_what_it_says_and_inspect_finds_it() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("play");
    let output = shell(
        &db,
        "# a remark\n\
         put fruit apple red\n\
         put fruit pear \"yellow and soft\"\n\
         begin\n\
         put fruit plum blue\n\
         rollback\n\
         get fruit plum\n\
         scanback fruit\n\
         delete fruit apple\n\
         scan fruit a z\n",
    );
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(
        text,
        "ok\nok\nopen\nok\nrolled back\n(none)\n\
         pear   yellow and soft\napple  red\n(2 rows)\n\
         deleted\npear  yellow and soft\n(1 row)\n"
    );
    let inspected = foxton(&["inspect", &db.to_string_lossy()]);
    let text = said(&inspected);
    assert!(inspected.status.success(), "{text}");
    assert!(text.contains("fruit") && text.contains("str"), "{text}");
}

#[test]
fn inspect_says_which_tables_are_paged_and_how_full_their_memory_is() {
    const ROWS: foxton::Table<u64, [u8]> = foxton::Table::new("rows").paged();
    let directory = tempfile::tempdir().unwrap();
    let db = foxton::Database::open(directory.path()).unwrap();
    db.run(|tx| (0..300).try_for_each(|key| tx.put(&ROWS, &key, &[7; 100][..])))
        .unwrap();
    drop(db);
    let inspected = foxton(&["inspect", &directory.path().to_string_lossy()]);
    let text = said(&inspected);
    assert!(inspected.status.success(), "{text}");
    let table = text.lines().find(|line| line.contains("rows  "));
    assert!(
        table.is_some_and(|line| line.contains("paged") && line.contains("300")),
        "{text}"
    );
    assert!(
        text.contains("Pages: of 8 KiB")
            && !text.contains(" 0 read")
            && text.contains(" lookups hit"),
        "{text}"
    );
}

#[test]
fn one_session_waits_for_another_and_goes_on_when_it_commits() {
    let directory = tempfile::tempdir().unwrap();
    let output = shell(
        &directory.path().join("play"),
        "put accounts 1 100\n\
         begin\n\
         put accounts 1 90\n\
         @b get accounts 1\n\
         waits\n\
         commit\n",
    );
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("b waits"), "{text}");
    assert!(text.ends_with("committed\nb: 90\n"), "{text}");
}

#[test]
fn a_deadlock_in_the_shell_ends_one_session_and_lets_the_other_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let output = shell(
        &directory.path().join("play"),
        "put t x 1\n\
         put t y 1\n\
         begin\n\
         put t x 2\n\
         @b begin\n\
         @b put t y 2\n\
         put t y 3\n\
         @b put t x 3\n\
         deadlocks\n",
    );
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("deadlock"), "{text}");
    assert!(text.contains("awaits X on t/x"), "{text}");
}

#[test]
fn a_waiting_session_does_not_keep_the_shell_from_leaving() {
    let directory = tempfile::tempdir().unwrap();
    let output = shell(
        &directory.path().join("play"),
        "put t x 1\nbegin\nput t x 2\n@b get t x\n",
    );
    assert!(said(&output).contains("b waits"), "{}", said(&output));
}

#[test]
fn a_statement_that_fails_fails_the_script_and_the_rest_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let output = shell(
        &directory.path().join("play"),
        "fetch x\nget nothing 1\nput t 1 2\n",
    );
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text.contains("`help` lists them") && text.contains("no table"),
        "{text}"
    );
    assert!(text.ends_with("ok\n"), "{text}");
}

#[test]
fn a_reader_that_stops_reading_ends_the_program_quietly() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = command(&["shell", &directory.path().join("play").to_string_lossy()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    drop(child.stdout.take());
    let script = "help\n".repeat(100);
    // It may have ended before all of it was written.
    let _ = child
        .stdin
        .take()
        .expect("piped")
        .write_all(script.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(said(&output), "", "it says nothing");
}

#[test]
fn every_experiment_of_the_literature_is_in_the_list_of_benchmarks() {
    let list = said(&foxton(&["bench"]));
    for name in [
        "tatp",
        "secondary",
        "tpcb",
        "tpcc",
        "sysbench",
        "private-insert",
        "critical-sections",
        "wisconsin",
        "latch-cost",
        "lock-cost",
        "overlap",
        "ycsb",
        "smallbank",
        "txbench",
    ] {
        let line = list
            .lines()
            .find(|line| line.trim_start().starts_with(&format!("{name} ")));
        assert!(
            line.is_some_and(|line| line.trim().len() > name.len() + 10),
            "{name}: {list}"
        );
    }
    let out = tempfile::tempdir().unwrap();
    let path = |name: &str| out.path().join(name).to_string_lossy().into_owned();
    let short = ["--seconds", "0.01", "--reps", "1"];
    for (name, more, file) in [
        ("overlap", &["--rows", "2000"][..], "tables.csv"),
        (
            "latch-cost",
            &["--rows", "2000", "--locks", "bucket"],
            "tables.csv",
        ),
        (
            "wisconsin",
            &[
                "--rows", "200", "--mpl", "3", "--ramp", "0", "--locks", "bucket",
            ],
            "results.csv",
        ),
    ] {
        let place = path(name);
        let first = ["bench", name, "--out", &place];
        let made = foxton(&[&first[..], &short, more].concat());
        assert!(made.status.success(), "{name}: {}", said(&made));
        assert!(
            out.path().join(name).join(file).is_file(),
            "{name} leaves no {file}"
        );
    }
}

#[test]
fn figures_are_listed_made_and_an_unknown_one_is_answered_with_those_there_are() {
    let list = foxton(&["figure"]);
    assert!(list.status.success() && said(&list).contains("000-fig12"));
    let unknown = foxton(&["figure", "000-fig99"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(said(&unknown).contains("003-table3"), "{}", said(&unknown));
    let out = tempfile::tempdir().unwrap();
    let path = out.path().to_string_lossy().into_owned();
    let short = ["--rows", "2000", "--seconds", "0.01", "--reps", "1"];
    let mut arguments = vec!["figure", "003-table3", "--out", &path];
    arguments.extend(short);
    let made = foxton(&arguments);
    assert!(made.status.success(), "{}", said(&made));
    assert!(said(&made).contains("28.1 (misprint)"), "{}", said(&made));
    for file in ["report.html", "tables.json", "tables.csv"] {
        assert!(out.path().join(file).is_file(), "no {file}");
    }
}
