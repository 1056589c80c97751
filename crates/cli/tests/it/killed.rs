//! `foxton restore`, `backup` and `load`, killed at each of their calls that change a directory.
//! The result is complete, or refused by name, or as if nothing had begun; a repeated restore or
//! load succeeds.
//!
//! `strace` kills right before the k-th call of a kind. Without it, or without permission to trace,
//! the test says so and shows nothing.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::support::{foxton, said};
use foxton::{Database, Options, Table, backup};

const ROWS: Table<u64, u64> = Table::new("rows");
const COUNT: u64 = 40;

/// Calls that change directories, or make changes durable.
const CALLS: [&str; 10] = [
    "mkdir",
    "flock",
    "openat",
    "pwrite64",
    "ftruncate",
    "fallocate",
    "fdatasync",
    "fsync",
    "renameat",
    "unlinkat",
];
/// More calls of one kind are made by none of the commands.
const MOST: u32 = 100;

/// Runs the command, and kills it right before its `nth` call of a kind; of `openat`, only those
/// below `path`. False: it makes fewer.
fn killed(call: &str, nth: u32, path: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new("strace");
    command.args(["--follow-forks", "--quiet=all", "--output=/dev/null"]);
    command.arg(format!("--trace={call}"));
    command.arg(format!("--inject={call}:signal=KILL:when={nth}"));
    if call == "openat" {
        command.arg(format!("--trace-path={}", path.display()));
    }
    command
        .args(["--", env!("CARGO_BIN_EXE_foxton")])
        .args(arguments);
    let run = command
        .stdin(Stdio::null())
        .output()
        .expect("it was possible");
    match (run.status.signal(), run.status.code()) {
        (Some(9), _) => true,
        (_, Some(0)) => false,
        _ => panic!("{call} {nth}: {}: {}", run.status, said(&run)),
    }
}

/// Kills the command at each of its calls, in a directory of its own each time, and checks the
/// directory. Returns the number of kills.
fn at_each_call(
    name: &str,
    command: impl Fn(&str) -> Vec<String>,
    look: impl Fn(&Path, &str),
) -> Option<u32> {
    let scratch = tempfile::tempdir().expect("the temporary folder can be written");
    let mut possible = Command::new("strace");
    possible.args(["--quiet=all", "--trace=none", "true"]);
    let possible = possible.stderr(Stdio::null()).status();
    if !possible.is_ok_and(|status| status.success()) {
        println!("nothing is shown: this needs strace, and leave to trace");
        return None;
    }
    let mut kills = 0;
    for call in CALLS {
        for nth in 1..MOST {
            let target = scratch.path().join(format!("{name}-{call}-{nth}"));
            let arguments = command(&target.to_string_lossy());
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            if !killed(call, nth, &target, &arguments) {
                break;
            }
            kills += 1;
            look(&target, &format!("{name} killed at {call} {nth}"));
            let _ = fs::remove_dir_all(&target);
        }
    }
    println!("{name}: killed {kills} times");
    Some(kills)
}

/// The names of its files, except the file of the lock.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "lock").collect()
}

fn has(path: &Path, name: &str) -> bool {
    names(path).iter().any(|known| known == name)
}

fn count(path: &Path) -> u64 {
    let db = Database::open_with(path, Options::tiny()).expect("it opens");
    db.run(|tx| tx.range(&ROWS, ..).count())
        .expect("it is read")
}

/// A database of some rows, half of them in a checkpoint, and a backup of it.
fn filled(scratch: &Path) -> (PathBuf, PathBuf) {
    let (db, copy) = (scratch.join("db"), scratch.join("copy"));
    let open = Database::open_with(&db, Options::tiny()).expect("it opens");
    for key in 0..COUNT {
        if key == COUNT / 2 {
            open.checkpoint().expect("nothing fails");
        }
        open.run(|tx| tx.put(&ROWS, &key, &key))
            .expect("nothing fails");
    }
    open.backup_to(&copy).expect("nothing fails");
    (db, copy)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn a_restore_killed_at_any_call_is_whole_or_refused_or_was_never_begun() {
    let scratch = tempfile::tempdir().unwrap();
    let (_, copy) = filled(scratch.path());
    let copy = copy.to_string_lossy();
    let kills = at_each_call(
        "restore",
        |target| words(&["restore", &copy, target]),
        |target, when| {
            if has(target, "foxton") {
                assert_eq!(count(target), COUNT, "{when}");
                return;
            }
            if !names(target).is_empty() {
                let opened = Database::open_with(target, Options::tiny());
                let code = opened.map(drop).map_err(|error| error.code());
                assert_eq!(code, Err("not_restored"), "{when}: {:?}", names(target));
            }
            let again = foxton(&["restore", &copy, &target.to_string_lossy()]);
            assert!(again.status.success(), "{when}: {}", said(&again));
            assert_eq!(count(target), COUNT, "{when}");
        },
    );
    assert!(kills.is_none_or(|kills| kills > 30), "{kills:?}");
}

#[test]
fn a_backup_killed_at_any_call_is_whole_or_none() {
    let scratch = tempfile::tempdir().unwrap();
    let (db, _) = filled(scratch.path());
    let (db, again) = (db.to_string_lossy(), scratch.path().join("again"));
    let kills = at_each_call(
        "backup",
        |target| words(&["backup", &db, target]),
        |target, when| match backup::restore(target, &again, None, &mut |_, _| {}) {
            Ok(_) => {
                assert!(has(target, "backup"), "{when}");
                assert_eq!(count(&again), COUNT, "{when}");
                fs::remove_dir_all(&again).unwrap();
            }
            Err(error) => {
                let codes = ["not_a_backup", "not_a_database"];
                assert!(codes.contains(&error.code()), "{when}: {error}");
                assert!(!has(target, "backup") && !again.exists(), "{when}");
                if !names(target).is_empty() {
                    let opened = Database::open_with(target, Options::tiny());
                    let code = opened.map(drop).map_err(|error| error.code());
                    assert_eq!(code, Err("not_a_database"), "{when}");
                }
            }
        },
    );
    assert!(kills.is_none_or(|kills| kills > 30), "{kills:?}");
}

#[test]
fn a_load_into_a_new_database_killed_at_any_call_leaves_whole_batches() {
    let scratch = tempfile::tempdir().unwrap();
    let rows = scratch.path().join("rows");
    let lines = (0..COUNT).map(|key| format!("{{\"key\":{key},\"value\":{key}}}\n"));
    fs::write(&rows, lines.collect::<String>()).unwrap();
    let rows: &str = &rows.to_string_lossy();
    let table = [
        "--table", "rows", "--key", "u64", "--value", "u64", "--batch", "10",
    ];
    at_each_call(
        "load",
        |target| words(&[&["load", target, rows][..], &table].concat()),
        |target, when| {
            if target.exists() {
                let found = count(target);
                assert!(
                    found <= COUNT && found.is_multiple_of(10),
                    "{when}: {found} rows"
                );
            }
            let target = target.to_string_lossy();
            let again = foxton(&[&["load", &*target, rows][..], &table].concat());
            assert!(again.status.success(), "{when}: {}", said(&again));
            assert_eq!(count(Path::new(&*target)), COUNT, "{when}");
        },
    );
}
