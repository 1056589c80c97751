//! `foxton check`, `foxton backup` and `foxton restore` as people use them.

use std::{fs, path::Path};

use crate::support::{foxton, said, shell};
use foxton::{Database, Options, Table};
use foxton_lab::measure::machine::utc;

fn filled(directory: &Path) {
    let script: String = (0..50)
        .map(|key| format!("put fruit {key} ripe\n"))
        .collect();
    assert!(shell(directory, &script).status.success());
}

#[test]
fn a_whole_database_has_exit_code_0_and_a_damaged_one_1_and_says_where() {
    let scratch = tempfile::tempdir().unwrap();
    let db = scratch.path().join("db");
    filled(&db);
    let directory = db.to_string_lossy();
    let names = || {
        let mut names: Vec<_> = fs::read_dir(&db)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        names.sort();
        names
    };
    let before: Vec<Vec<u8>> = names().iter().map(|path| fs::read(path).unwrap()).collect();
    let checked = foxton(&["check", &directory]);
    let text = said(&checked);
    assert_eq!(checked.status.code(), Some(0), "{text}");
    assert!(
        text.contains("50 rows in 1 table\n") && text.contains("has no damage"),
        "{text}"
    );
    let after: Vec<Vec<u8>> = names().iter().map(|path| fs::read(path).unwrap()).collect();
    assert_eq!(before, after, "nothing was changed");
    // Opening it to read only writes the owner of the lock.
    let all_but_the_lock = || {
        let paths = names().into_iter().filter(|path| !path.ends_with("lock"));
        paths.map(|path| (fs::read(&path).unwrap(), path))
    };
    let before: Vec<_> = all_but_the_lock().collect();
    for verb in ["inspect", "dump", "inspect"] {
        assert!(foxton(&[verb, &directory]).status.success(), "{verb}");
        assert!(
            all_but_the_lock().eq(before.iter().cloned()),
            "{verb} has changed it"
        );
    }
    let log = names()
        .into_iter()
        .find(|path| path.to_string_lossy().contains("log-"))
        .unwrap();
    let mut bytes = fs::read(&log).unwrap();
    bytes[5000] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let checked = foxton(&["check", &directory]);
    let text = said(&checked);
    assert_eq!(checked.status.code(), Some(1), "{text}");
    for words in [
        "log-0000000000000000 at byte",
        "damaged in 1 place",
        "from a backup",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
}

#[test]
fn what_is_no_database_or_is_open_has_exit_code_2() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("db");
    for arguments in [
        &["check", "/no/such/place"][..],
        &["check", &scratch.path().to_string_lossy()],
        &["check", &path.to_string_lossy(), "--repair", "none"],
    ] {
        let output = foxton(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            said(&output)
        );
    }
    // An interrupted restore has left this; commands that only read create nothing.
    let cut = scratch.path().join("cut");
    fs::create_dir(&cut).unwrap();
    fs::write(cut.join("lock"), "1\n").unwrap();
    for verb in ["dump", "inspect"] {
        let output = foxton(&[verb, &cut.to_string_lossy()]);
        assert!(
            said(&output).contains("has no database"),
            "{}",
            said(&output)
        );
        assert_eq!(fs::read_dir(&cut).unwrap().count(), 1, "nothing was made");
    }
    // A restore that was interrupted later is reported by every command, and can be repeated.
    fs::write(cut.join("restoring"), "").unwrap();
    let before = fs::read_dir(&cut).unwrap().count();
    let rows = scratch.path().join("rows");
    fs::write(&rows, "{\"key\":1,\"value\":2}\n").unwrap();
    let (cut_, rows) = (cut.to_string_lossy(), rows.to_string_lossy());
    for (arguments, code) in [
        (&["dump", &cut_][..], 1),
        (&["inspect", &cut_], 1),
        (&["check", &cut_], 2),
        (&["load", &cut_, &rows, "--table", "t"], 1),
        (&["backup", &cut_, "/no/such/place"], 1),
    ] {
        let output = foxton(arguments);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        let words = "is not complete";
        assert!(text.contains(words), "{arguments:?}: {text}");
        assert_eq!(
            fs::read_dir(&cut).unwrap().count(),
            before,
            "nothing was made"
        );
    }
    let db = Database::open_with(&path, Options::tiny()).unwrap();
    let copy = scratch.path().join("copy");
    db.backup_to(&copy).unwrap();
    let restored = foxton(&["restore", &copy.to_string_lossy(), &cut_]);
    assert!(restored.status.success(), "{}", said(&restored));
    let output = foxton(&["check", &path.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("already open"), "{}", said(&output));
    drop(db);
}

#[test]
fn a_database_that_is_open_is_backed_up_and_restored_to_any_position() {
    const FRUIT: Table<str, str> = Table::new("fruit");
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name).to_string_lossy().into_owned();
    let db = Database::open_with(at("db"), Options::tiny()).unwrap();
    db.run(|tx| tx.put(&FRUIT, "apple", "green")).unwrap();
    let early = db.log_end().to_string();
    db.run(|tx| tx.put(&FRUIT, "apple", "red")).unwrap();
    let made = foxton(&["backup", &at("db"), &at("copy")]);
    assert!(made.status.success(), "{}", said(&made));
    assert!(
        said(&made).contains(&format!("log position {}", db.log_end())),
        "{}",
        said(&made)
    );
    drop(db);
    let inspected = foxton(&["restore", &at("copy")]);
    assert!(
        said(&inspected).contains("from 0 to"),
        "{}",
        said(&inspected)
    );
    let taken = said(&inspected);
    let taken = taken.split_once("was taken at ").expect("it says when").1;
    let today = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let is_recent = |seconds| taken.starts_with(&format!("{} UTC", utc(seconds)));
    assert!((today - 600..=today).any(is_recent), "{taken}");
    for (target, more, color) in [
        ("last", &[][..], "red"),
        ("early", &["--to", &early], "green"),
    ] {
        let (from, to) = (at("copy"), at(target));
        let arguments = [&["restore", &from, &to][..], more].concat();
        let restored = foxton(&arguments);
        assert!(restored.status.success(), "{}", said(&restored));
        let got = said(&shell(&scratch.path().join(target), "get fruit apple\n"));
        assert_eq!(got, format!("{color}\n"));
    }
    let again = foxton(&["restore", &at("copy"), &at("last")]);
    assert_eq!(again.status.code(), Some(1));
    assert!(said(&again).contains("not empty"), "{}", said(&again));
    let checked = foxton(&["check", &at("copy")]);
    assert!(checked.status.success(), "{}", said(&checked));
    assert!(
        said(&checked).contains("this backup has no damage"),
        "{}",
        said(&checked)
    );
}

#[test]
fn help_says_what_is_left_alone_and_what_the_exit_codes_mean() {
    for (verb, words) in [
        ("check", "Exit codes"),
        ("backup", "need not be closed"),
        ("restore", "--to"),
        ("shrink", "loses nothing"),
        ("dump", "Examples"),
        ("load", "--skip-bad"),
    ] {
        let output = foxton(&[verb, "--help"]);
        assert!(output.status.success());
        let text = said(&output);
        assert!(text.contains(words), "{verb}: {text}");
        // Lines that are longer than the help is wide leave a word or two on a line of their own.
        let ragged = text.lines().find(|line| line.len() > 100);
        assert_eq!(ragged, None, "{verb}");
        for paragraph in text.split("\n\n") {
            let prose = paragraph.lines().filter(|line| !line.starts_with(' '));
            let prose: Vec<_> = prose.filter(|line| !line.ends_with(':')).collect();
            let all_but_last = prose.len().saturating_sub(1);
            for line in &prose[..all_but_last] {
                assert!(line.len() > 60, "{verb}: {line:?} is cut short");
            }
        }
    }
}

#[test]
fn a_table_is_converted_there_and_back() {
    let scratch = tempfile::tempdir().unwrap();
    let db = scratch.path().join("db");
    filled(&db);
    let directory = db.to_string_lossy();
    let convert = |table: &str, to: &str| {
        let converted = foxton(&["convert", &directory, table, to]);
        (converted.status.code(), said(&converted))
    };
    for (to, place, component) in [
        ("paged", "in pages", " paged "),
        ("memory", "in memory", " resident "),
        ("paged", "in pages", " paged "),
    ] {
        let (code, words) = convert("fruit", to);
        assert_eq!(code, Some(0), "{words}");
        assert!(
            words.contains("50 rows of") && words.contains(place),
            "{words}"
        );
        let (code, words) = convert("fruit", to);
        assert!(code == Some(0) && words.contains("already"), "{words}");
        let inspected = said(&foxton(&["inspect", &directory]));
        let row = inspected
            .lines()
            .find(|line| line.contains("fruit"))
            .unwrap();
        assert!(row.contains(component) && row.contains("50"), "{inspected}");
        let checked = foxton(&["check", &directory]);
        let text = said(&checked);
        assert!(text.contains("50 rows in 1 table\n"), "{text}");
        assert_eq!(checked.status.code(), Some(0), "{text}");
    }
    let (code, words) = convert("fish", "paged");
    assert!(
        code == Some(1) && words.contains("has no table fish"),
        "{words}"
    );
    assert_eq!(convert("fruit", "elsewhere").0, Some(2));
}

#[test]
fn a_table_is_truncated_and_dropped_only_if_that_is_confirmed() {
    let scratch = tempfile::tempdir().unwrap();
    let db = scratch.path().join("db");
    filled(&db);
    let directory = db.to_string_lossy();
    let call = |words: &[&str]| {
        let done = foxton(&[&words[..1], &[&directory], &words[1..]].concat());
        (done.status.code(), said(&done))
    };
    for command in ["truncate", "drop"] {
        let (code, words) = call(&[command, "fruit"]);
        assert!(code == Some(1) && words.contains("--yes"), "{words}");
        assert!(
            words.contains("has 50 rows") && words.contains("nothing"),
            "{words}"
        );
        let (code, words) = call(&[command, "fish", "--yes"]);
        assert!(
            code == Some(1) && words.contains("has no table fish"),
            "{words}"
        );
    }
    let (code, words) = call(&["truncate", "fruit", "--yes"]);
    assert!(
        code == Some(0) && words.contains("50 rows are gone"),
        "{words}"
    );
    let text = said(&foxton(&["check", &directory]));
    assert!(text.contains("0 rows in 1 table\n"), "{text}");
    let (code, words) = call(&["drop", "fruit", "--yes"]);
    assert!(code == Some(0) && words.contains("is no more"), "{words}");
    let text = said(&foxton(&["check", &directory]));
    assert!(text.contains("0 rows in 0 tables\n"), "{text}");
    assert_eq!(call(&["drop", "fruit", "--yes"]).0, Some(1));
}

#[test]
fn a_file_of_deleted_rows_is_shrunk() {
    const EVENTS: Table<u64, [u8]> = Table::new("events").paged();
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("db");
    let directory = path.to_string_lossy();
    let db = Database::open_with(&path, Options::tiny()).unwrap();
    for first in (0..10_000).step_by(100) {
        db.run(|tx| (first..first + 100).try_for_each(|key| tx.put(&EVENTS, &key, &[7; 300])))
            .unwrap();
    }
    let refused = foxton(&["shrink", &directory]);
    assert_eq!(refused.status.code(), Some(1), "a process has it open");
    for first in (0..9_500).step_by(100) {
        db.run(|tx| (first..first + 100).try_for_each(|key| tx.delete(&EVENTS, &key).map(drop)))
            .unwrap();
    }
    db.close().unwrap();
    let length = || fs::metadata(path.join("rows")).unwrap().len();
    let before = length();
    let shrunk = foxton(&["shrink", &directory]);
    let text = said(&shrunk);
    assert!(shrunk.status.success(), "{text}");
    for words in ["before", "after", "pages moved", "rows"] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    assert!(length() * 5 < before, "{before}, then {}", length());
    let checked = foxton(&["check", &directory]);
    let text = said(&checked);
    assert!(text.contains("500 rows in 1 table"), "{text}");
    assert!(checked.status.success(), "{text}");
}

#[test]
fn a_database_without_pages_is_not_shrunk_and_none_is_made() {
    let scratch = tempfile::tempdir().unwrap();
    let db = scratch.path().join("db");
    filled(&db);
    let shrunk = foxton(&["shrink", &db.to_string_lossy()]);
    let text = said(&shrunk);
    assert!(shrunk.status.success(), "{text}");
    assert!(text.contains("no paged tables"), "{text}");
    let missing = scratch.path().join("missing");
    let refused = foxton(&["shrink", &missing.to_string_lossy()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(!missing.exists());
}
