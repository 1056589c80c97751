//! Locations where a database cannot be, files of other databases, and files without permission.
//! Each gives a typed error that names it and says what to do, and the attempt does no harm.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::scratch::Directory;
use foxton::check::check;
use foxton::{Database, Error, Options, Table, backup};

const ROWS: Table<u64, u64> = Table::new("rows");

fn quiet(_: u64, _: u64) {}

fn open(path: &Path) -> Result<Database, Error> {
    Database::open_with(path, Options::tiny())
}

#[track_caller]
fn assert_says<T>(result: Result<T, Error>, code: &str, words: &[&str]) {
    let error = result.err().expect("it is refused");
    let text = error.to_string();
    assert_eq!(error.code(), code, "{text}");
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

/// A database of one row, closed.
fn made(path: &Path) {
    open(path).unwrap().run(|tx| tx.put(&ROWS, &1, &1)).unwrap();
}

fn is_there(path: &Path) {
    let row = open(path).unwrap().run(|tx| tx.get(&ROWS, &1)).unwrap();
    assert_eq!(row, Some(1));
}

#[test]
fn a_path_where_nothing_can_be_made_says_why() {
    let scratch = Directory::new("places");
    fs::create_dir(&scratch.0).unwrap();
    let (db, copy) = (scratch.0.join("db"), scratch.0.join("copy"));
    made(&db);
    backup::of_directory(&db, &copy, &mut quiet).unwrap();
    fs::write(scratch.0.join("file"), "text").unwrap();
    symlink("nowhere", scratch.0.join("link")).unwrap();
    for (name, words) in [
        ("n".repeat(300), "too long for the file system"),
        ("nul\0nul".to_owned(), "nul"),
        ("file/db".to_owned(), "a part of the path is a file"),
        (
            "link".to_owned(),
            "it is a link to a path that does not exist",
        ),
    ] {
        let path = scratch.0.join(name);
        assert_says(open(&path), "not_created", &[words, "name a directory"]);
        let made = backup::of_directory(&db, &path, &mut quiet);
        assert_says(made, "not_created", &[words]);
        let restored = backup::restore(&copy, &path, None, &mut quiet);
        assert_says(restored, "not_created", &[words]);
    }
    is_there(&db);
    assert_says(
        check(scratch.0.join("file")),
        "not_a_database",
        &["it is no directory"],
    );
}

#[test]
fn a_file_of_another_database_is_named_and_the_rows_come_back_with_ours() {
    let scratch = Directory::new("foreign");
    fs::create_dir(&scratch.0).unwrap();
    let (ours, other) = (scratch.0.join("ours"), scratch.0.join("other"));
    for path in [&ours, &other] {
        made(path);
        open(path).unwrap().checkpoint().unwrap();
    }
    let names = |path: &Path| {
        let names = fs::read_dir(path).unwrap().flatten();
        let mut names: Vec<String> = names
            .map(|name| name.file_name().into_string().unwrap())
            .filter(|name| name != "lock")
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&ours), names(&other));
    let kept = scratch.0.join("kept");
    for (number, name) in names(&ours).iter().enumerate() {
        let place = ours.join(name);
        fs::rename(&place, &kept).unwrap();
        fs::copy(other.join(name), &place).unwrap();
        let target = scratch.0.join(format!("copy-{number}"));
        let copied = backup::of_directory(&ours, &target, &mut quiet);
        match name.as_str() {
            // It can only refuse a log that has lost its end.
            "closed" => {
                copied.unwrap();
                is_there(&ours);
            }
            name if name.starts_with("log-") => {
                let words = [name, "belongs to another database"];
                assert_says(open(&ours), "foreign", &words);
                assert_says(copied, "foreign", &words);
            }
            // With another superblock all other files are foreign: the error names the first.
            name => {
                let code = open(&ours).unwrap_err().code();
                assert!(["damaged", "foreign"].contains(&code), "{name}: {code}");
                assert_eq!(copied.unwrap_err().code(), code, "{name}");
            }
        }
        if name != "closed" {
            assert!(!check(&ours).unwrap().findings.is_empty(), "{name}");
            assert!(!target.join("backup").exists());
        }
        fs::rename(&kept, &place).unwrap();
        is_there(&ours);
    }
}

/// Root has every permission, so another user runs this check, in a process of its own.
#[test]
fn missing_permissions_are_named_and_nothing_is_lost() {
    const PLACE: &str = "FOXTON_TEST_FORBIDDEN";
    const NOBODY: u32 = 65_534;
    if let Ok(place) = std::env::var(PLACE) {
        forbidden(Path::new(&place));
        print!("shown");
        return;
    }
    let scratch = Directory::new("forbidden");
    fs::create_dir(&scratch.0).unwrap();
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o777)).unwrap();
    let name = "places::missing_permissions_are_named_and_nothing_is_lost";
    let program = |path: PathBuf| {
        let mut command = Command::new(path);
        command.args([name, "--exact", "--nocapture"]);
        command.env(PLACE, &scratch.0).current_dir("/");
        command
    };
    let is_root = fs::metadata(&scratch.0).unwrap().uid() == 0;
    // The other user cannot read the directory of the program.
    let copy = scratch.0.join("program");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut command = program(copy);
    if is_root {
        command.uid(NOBODY).gid(NOBODY);
    }
    let Ok(run) = command.output() else {
        println!("not shown: no process can be run as another user here");
        return;
    };
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let failed = String::from_utf8_lossy(&run.stderr);
    assert!(
        run.status.success() && said.contains("shown"),
        "{said}{failed}"
    );
}

fn forbidden(scratch: &Path) {
    let (db, copy) = (scratch.join("db"), scratch.join("copy"));
    made(&db);
    backup::of_directory(&db, &copy, &mut quiet).unwrap();
    let allow =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let log = db.join("log-0000000000000000");
    for name in ["foxton", "lock", "log-0000000000000000", "closed"] {
        let file = db.join(name);
        allow(&file, 0o000);
        assert_says(
            open(&db),
            "not_permitted",
            &[name.trim_start_matches("lock"), "permissions"],
        );
        let made = backup::of_directory(&db, scratch.join("x"), &mut quiet);
        if name == "lock" {
            // A backup of files takes no lock.
            made.unwrap();
            fs::remove_dir_all(scratch.join("x")).unwrap();
            assert_says(check(&db), "not_permitted", &[]);
        } else {
            assert_says(made, "not_permitted", &[name]);
            assert_says(check(&db), "not_permitted", &[name]);
        }
        allow(&file, 0o600);
        is_there(&db);
    }
    // A file that may be read and not written: the error names the write.
    allow(&log, 0o400);
    assert_says(open(&db), "not_permitted", &["log-0000000000000000"]);
    assert!(check(&db).unwrap().findings.is_empty());
    allow(&log, 0o600);
    is_there(&db);
    // A directory that accepts no names, and one that cannot be read.
    allow(&db, 0o500);
    assert!(check(&db).unwrap().findings.is_empty());
    backup::of_directory(&db, scratch.join("y"), &mut quiet).unwrap();
    allow(&db, 0o000);
    assert_says(open(&db), "not_permitted", &["db"]);
    assert_says(check(&db), "not_permitted", &["db"]);
    let refused = backup::of_directory(&db, scratch.join("z"), &mut quiet);
    assert_says(refused, "not_permitted", &["db"]);
    allow(&db, 0o700);
    is_there(&db);
    // A directory where nothing can be created, and a backup that cannot be read.
    let closed = scratch.join("closed");
    fs::create_dir(&closed).unwrap();
    allow(&closed, 0o500);
    let refused = backup::of_directory(&db, closed.join("copy"), &mut quiet);
    assert_says(refused, "not_permitted", &["closed/copy"]);
    assert_says(open(&closed.join("db")), "not_permitted", &["closed/db"]);
    assert_says(open(&closed), "not_permitted", &["closed"]);
    // A directory that accepts names and cannot be read: files created there still get durable
    // names.
    let blind = scratch.join("blind");
    fs::create_dir(&blind).unwrap();
    allow(&blind, 0o300);
    made(&blind.join("db"));
    is_there(&blind.join("db"));
    backup::of_directory(&db, blind.join("copy"), &mut quiet).unwrap();
    allow(&blind, 0o700);
    let label = copy.join("backup");
    allow(&label, 0o000);
    let restored = backup::restore(&copy, scratch.join("to"), None, &mut quiet);
    assert_says(restored, "not_permitted", &["backup"]);
    assert_says(backup::inspect(&copy), "not_permitted", &["backup"]);
    allow(&label, 0o600);
    backup::restore(&copy, scratch.join("to"), None, &mut quiet).unwrap();
    is_there(&scratch.join("to"));
}
