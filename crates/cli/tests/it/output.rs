//! Standard output and standard error that cannot be written, for every command. A full device is
//! an error with a message and exit code 3, a reader that stopped is neither, and a full standard
//! error changes no result.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Child, ChildStdin, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::support::{command, foxton, said};
use foxton::{Database, Table};

/// Exit code if standard output could not be written.
const OUTPUT_FAILED: i32 = 3;
/// Exit code if the reader of standard output stopped.
const READER_STOPPED: i32 = 141;
const PATIENCE: Duration = Duration::from_secs(60);

/// A device that has no space.
fn full() -> File {
    let full = File::options().write(true).open("/dev/full");
    full.expect("Linux has a device that is full")
}

/// A pipe without a reader.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    writer.into()
}

/// Runs the command with `statements` on its standard input.
fn run(words: &[String], out: Stdio, err: Stdio, statements: &str) -> Output {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = command(&words);
    command.stdin(Stdio::piped()).stdout(out).stderr(err);
    let mut child = command.spawn().expect("the program runs");
    // A command that has ended reads no more.
    let mut input = child.stdin.take().expect("piped");
    let _ = input.write_all(statements.as_bytes());
    drop(input);
    child.wait_with_output().expect("it ends")
}

/// A shell that allows observation, so that other commands can look at its database.
struct Observed(Child, Option<ChildStdin>);

impl Observed {
    fn open(place: &Path) -> Observed {
        let mut child = command(&["shell", &place.to_string_lossy(), "--observe"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the program runs");
        let mut input = child.stdin.take().expect("piped");
        let conflict = "begin\nput t x 2\n@b begin\n@b put t y 2\nput t y 3\n@b put t x 3\n";
        input.write_all(conflict.as_bytes()).expect("it reads");
        let begun = Instant::now();
        let observed = Observed(child, Some(input));
        let locks = ["locks", &place.to_string_lossy()].map(str::to_owned);
        let locks = locks.each_ref().map(String::as_str);
        while !said(&foxton(&locks)).contains("deadlock") {
            assert!(begun.elapsed() < PATIENCE, "the shell shows no deadlock");
            thread::sleep(Duration::from_millis(50));
        }
        observed
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.1 = None;
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Command lines that print something, one for each way of printing. They succeed as often as they
/// are run, except that `backup`, `restore` and `load` need a new place each time: `NEW`.
fn lines(root: &Path) -> Vec<Vec<String>> {
    let quick = "--rows 2000 --seconds 0.02 --ramp 0 --mpl 1 --reps 1 --locks bucket --out NEW";
    let all = format!(
        "--help
         --version
         help
         help bench
         inspect --help
         inspect DB
         check DB
         check BACKUP
         backup DB NEW
         restore BACKUP
         restore BACKUP NEW
         shrink DB
         dump DB
         dump DB --format csv
         load NEW DUMP
         shell DB
         locks SEEN
         locks SEEN --json
         locks SEEN --svg
         locks SEEN --dot
         locks SEEN --deadlock
         top SEEN --once
         figure
         figure 000-fig12 {quick}
         reproduce --list
         report RUN RUN
         report RUN RUN --html NEW
         results render --check --dir RECORDS --readme README
         bench txbench {quick}
         bench transfers --accounts 100 {transfers}
         bench storm --storm update --locks bucket --victim youngest --threads 2 --seconds 0.02 --reps 1
         bench counter --threads 1 --seconds 0.02 --reps 1 --latch parking --out NEW",
        transfers = quick.trim_start_matches("--rows 2000 "),
    );
    let at = |name: &str| root.join(name).display().to_string();
    let clone = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let word = |word: &str| match word {
        "DB" => at("db"),
        "BACKUP" => at("backup"),
        "DUMP" => at("dump.jsonl"),
        "SEEN" => at("seen"),
        "RUN" => at("run"),
        "RECORDS" => clone.join("docs/results").display().to_string(),
        "README" => clone.join("README.md").display().to_string(),
        other => other.to_owned(),
    };
    all.lines()
        .map(|line| line.split_whitespace().map(word).collect())
        .collect()
}

/// Makes the files that the commands need.
fn prepare(root: &Path) -> Observed {
    const FRUIT: Table<u64, u64> = Table::new("fruit");
    let db = Database::open(root.join("db")).unwrap();
    db.run(|tx| (0..100).try_for_each(|key| tx.put(&FRUIT, &key, &key)))
        .unwrap();
    drop(db);
    let text = |name: &str| root.join(name).display().to_string();
    for words in [
        &["backup", &text("db"), &text("backup")][..],
        &["dump", &text("db"), "--out", &text("dump.jsonl")],
        &[
            "bench",
            "txbench",
            "--rows",
            "2000",
            "--seconds",
            "0.02",
            "--ramp",
            "0",
            "--mpl",
            "1",
            "--reps",
            "2",
            "--locks",
            "bucket",
            "--out",
            &text("run"),
        ],
    ] {
        let output = foxton(words);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    }
    Observed::open(&root.join("seen"))
}

/// The same words with a new place for each `NEW`.
fn fresh(words: &[String], root: &Path, count: &mut u32) -> Vec<String> {
    let word = |word: &String| {
        if word != "NEW" {
            return word.clone();
        }
        *count += 1;
        root.join(format!("new-{count}")).display().to_string()
    };
    words.iter().map(word).collect()
}

const STATEMENTS: &str = "put fruit 7 8\ntables\nscan fruit\nhelp\nstats\n";

#[test]
fn output_that_cannot_be_written_is_an_error_and_a_reader_that_stopped_is_none() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    let _observed = prepare(root);
    let mut count = 0;
    for line in lines(root) {
        let words = fresh(&line, root, &mut count);
        let output = run(&words, full().into(), Stdio::piped(), STATEMENTS);
        let text = said(&output);
        assert_eq!(
            output.status.code(),
            Some(OUTPUT_FAILED),
            "{words:?}: {text}"
        );
        assert!(
            text.contains("error: standard output") && text.contains("No space left"),
            "{words:?}: {text}"
        );
        let words = fresh(&line, root, &mut count);
        let output = run(&words, closed(), Stdio::piped(), STATEMENTS);
        let text = said(&output);
        assert_eq!(
            output.status.code(),
            Some(READER_STOPPED),
            "{words:?}: {text}"
        );
        assert!(
            !text.contains("error") && !text.contains("panicked"),
            "{words:?}: {text}"
        );
    }
}

#[test]
fn a_full_standard_error_changes_no_exit_code() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    let _observed = prepare(root);
    let mut count = 0;
    for line in lines(root) {
        let words = fresh(&line, root, &mut count);
        let output = run(&words, Stdio::piped(), full().into(), STATEMENTS);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            said(&output)
        );
        assert!(!output.stdout.is_empty(), "{words:?}");
    }
    let missing = root.join("missing").display().to_string();
    for (words, code) in [
        (&[][..], 2),
        (&["nonsense"], 2),
        (&["inspect", &*missing], 1),
        (&["check", &missing], 2),
    ] {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        for err in [Stdio::from(full()), closed()] {
            let output = run(&words, Stdio::piped(), err, "");
            assert_eq!(output.status.code(), Some(code), "{words:?}");
        }
    }
    let words = ["check".to_owned(), root.join("db").display().to_string()];
    let output = run(&words, full().into(), full().into(), "");
    assert_eq!(output.status.code(), Some(OUTPUT_FAILED));
}

#[test]
fn output_without_leave_to_write_is_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("file");
    fs::write(&file, "").unwrap();
    for words in [&["--help"][..], &["reproduce", "--list"]] {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let readable = File::open(&file).unwrap();
        let output = run(&words, readable.into(), Stdio::piped(), "");
        assert_eq!(output.status.code(), Some(OUTPUT_FAILED), "{words:?}");
    }
}

#[test]
fn results_of_a_benchmark_are_kept_when_its_table_cannot_be_printed() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("results");
    let words =
        "bench txbench --rows 2000 --seconds 0.02 --ramp 0 --mpl 1 --reps 1 --locks bucket --out";
    let mut words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    words.push(out.display().to_string());
    let output = run(&words, full().into(), Stdio::piped(), "");
    assert_eq!(output.status.code(), Some(OUTPUT_FAILED));
    assert!(out.join("results.json").is_file());
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let _observed = prepare(scratch.path());
    let run = scratch.path().join("run").display().to_string();
    let output = foxton(&["report", &run, &run, "--html", "/dev/full"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("/dev/full cannot be written"), "{text}");
}
