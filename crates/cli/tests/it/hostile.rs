//! Hostile or truncated files of rows, and dumps that fail: each bad line is reported with its
//! number, an incomplete file is noticed, and messages are short.

use std::{fs, path::Path};

use crate::support::{self, foxton, foxton_fed, said, shell};
use foxton::{Database, MAX_KEY_BYTES, MAX_VALUE_BYTES, Table};

fn fruit(directory: &Path) -> String {
    said(&shell(directory, "scan fruit\n"))
}

/// A database of one table from text to text.
fn load(scratch: &Path, more: &[&str], input: &[u8]) -> (Option<i32>, String) {
    let directory = scratch.join("db").to_string_lossy().into_owned();
    let load = ["load", &directory, "-", "--table", "fruit"];
    let types = ["--key", "str", "--value", "str"];
    let output = foxton_fed(&[&load[..], &types, more].concat(), input);
    (output.status.code(), said(&output))
}

#[test]
fn the_largest_row_comes_back() {
    const LARGE: Table<str, str> = Table::new("large");
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    let file = scratch.path().join("rows").to_string_lossy().into_owned();
    let (from_, to_) = (from.to_string_lossy(), to.to_string_lossy());
    let key = "\u{1}".repeat(MAX_KEY_BYTES);
    let value = "\u{1}".repeat(4 << 20) + &"x".repeat(MAX_VALUE_BYTES - (4 << 20));
    let db = Database::open(&from).unwrap();
    db.run(|tx| tx.put(&LARGE, &key, &value)).unwrap();
    drop(db);
    let dumped = foxton(&["dump", &from_, "--out", &file]);
    assert!(dumped.status.success(), "{}", said(&dumped));
    let loaded = foxton(&["load", &to_, &file]);
    assert!(loaded.status.success(), "{}", said(&loaded));
    let db = Database::open(&to).unwrap();
    let found = db.run(|tx| tx.get(&LARGE, &key)).unwrap();
    assert!(found == Some(value), "the value is another");
}

#[test]
fn lines_are_taken_as_other_systems_write_them() {
    let scratch = tempfile::tempdir().unwrap();
    let json =
        b"\xef\xbb\xbf{\"key\":\"a\",\"value\":\"1\"}\r\n\r\n{\"key\":\"b\",\"value\":\"2\"}";
    let (code, text) = load(scratch.path(), &[], json);
    assert_eq!(code, Some(0), "{text}");
    let csv = b"\xef\xbb\xbfkey,value\r\nc,3\r\n\r\nd,\"4\"";
    let (code, text) = load(scratch.path(), &["--format", "csv"], csv);
    assert_eq!(code, Some(0), "{text}");
    let found = fruit(&scratch.path().join("db"));
    assert_eq!(found, "a  1\nb  2\nc  3\nd  4\n(4 rows)\n");
}

#[test]
fn hostile_lines_are_bad_lines() {
    let scratch = tempfile::tempdir().unwrap();
    let row = |value: &str| format!("{{\"key\":\"x\",\"value\":{value}}}\n").into_bytes();
    let long_key = format!(
        "{{\"key\":\"{}\",\"value\":\"1\"}}\n",
        "k".repeat(MAX_KEY_BYTES + 1)
    );
    let long_name = format!(
        "{{\"table\":\"{}\",\"key\":\"str\",\"value\":\"str\"}}\n",
        "t".repeat(300)
    );
    for (line, words) in [
        (row("\"\\ud800\""), "hex escape"),
        (
            row(&format!("{}0{}", "[".repeat(500), "]".repeat(500))),
            "recursion",
        ),
        (row("1e999"), "out of range"),
        (row("\"1\",\"key\":\"y\""), "\"key\" twice"),
        (row("\"1\",\"\\u001b[2J\":0"), "it has a \"·[2J\""),
        (row("{\"raw\":\"0xzz\"}"), "hexadecimal"),
        (
            b"{\"key\":\"x\",\"value\":\"\xff\"}\n".to_vec(),
            "not UTF-8",
        ),
        (
            b"{\"key\":\"\0\",\"value\":\"1\"}\n".to_vec(),
            "control character",
        ),
        (b"\0\0\0\0\n".to_vec(), "not JSON"),
        (
            b"{\"end\":\"fruit\",\"rows\":-1}\n".to_vec(),
            "does not say which",
        ),
        (
            b"{\"table\":7,\"key\":\"str\",\"value\":\"str\"}\n".to_vec(),
            "as strings",
        ),
        (long_key.into_bytes(), "at most 1024"),
        (
            format!("[{}0]\n", "0,".repeat(1 << 20)).into_bytes(),
            "parts",
        ),
    ] {
        let good = b"{\"key\":\"good\",\"value\":\"1\"}\n";
        let input = [good, &line[..], b"{\"key\":\"better\",\"value\":\"2\"}\n"].concat();
        let (code, text) = load(scratch.path(), &[], &input);
        assert_eq!(code, Some(1), "{text}");
        assert!(
            text.contains("line 2: ") && text.contains(words),
            "no {words:?} in {text}"
        );
        assert!(
            text.contains("0 rows loaded") && text.len() < 2_000,
            "{text}"
        );
        let (code, text) = load(scratch.path(), &["--skip-bad"], &input);
        assert_eq!(code, Some(0), "{text}");
        assert!(
            text.contains("2 rows loaded") && text.contains("1 bad line"),
            "{text}"
        );
    }
    let reserved =
        b"{\"table\":\"foxton:indexes\",\"key\":\"foxton:index\",\"value\":\"u8\"}\n".to_vec();
    for (header, words) in [
        (long_name.into_bytes(), "1 to 255 bytes"),
        (reserved, "reserved"),
    ] {
        let directory = scratch.path().join("db").to_string_lossy().into_owned();
        let input = [b"{\"key\":\"a\",\"value\":\"1\"}\n", &header[..]].concat();
        let output = foxton_fed(&["load", &directory, "-", "--skip-bad"], &input);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains("line 2: ") && text.contains(words),
            "no {words:?} in {text}"
        );
    }
}

#[test]
fn hostile_cells_are_bad_lines() {
    let scratch = tempfile::tempdir().unwrap();
    let csv = ["--format", "csv"];
    let skip = [&csv[..], &["--skip-bad"]].concat();
    for (line, words) in [
        (&b"a\n"[..], "1 cells, but there are 2"),
        (b"a,b,c\n", "3 cells, but there are 2"),
        (b"a,\xff\n", "not UTF-8"),
    ] {
        let input = [b"key,value\ngood,1\n", line, b"better,2\n"].concat();
        let (code, text) = load(scratch.path(), &csv, &input);
        assert_eq!(code, Some(1), "{text}");
        assert!(
            text.contains("line 3: ") && text.contains(words),
            "no {words:?} in {text}"
        );
        let (code, text) = load(scratch.path(), &skip, &input);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("2 rows loaded"), "{text}");
    }
    // A row truncated in quotes looks like a shorter cell.
    let cut = b"key,value\ngood,1\nbad,\"one and a ha";
    let (code, text) = load(scratch.path(), &csv, cut);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("line 3: a quote is opened"), "{text}");
    let (code, text) = load(scratch.path(), &skip, cut);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("1 row loaded"), "{text}");
    for (header, words) in [
        ("", "must name the columns"),
        ("key\n1\n", "must name the columns"),
        ("key,value,more\n", "must name the columns"),
        ("value,key.1,key.2\n", "its columns are key.1,key.2,value"),
        ("key,key,value\n", "its columns are key,key,value"),
        ("key,\"value\n1,2\n", "in its first line, a quote is opened"),
        ("\x1b[2J,value\n", "is \"·[2J,value\""),
    ] {
        let (code, text) = load(scratch.path(), &csv, header.as_bytes());
        assert_eq!(code, Some(1), "{header:?}: {text}");
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    let cells = format!("key,value\n{}\n", ",".repeat(1 << 20));
    let (code, text) = load(scratch.path(), &csv, cells.as_bytes());
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("line 2: ") && text.contains("this row is too long"),
        "{text}"
    );
}

#[test]
fn numbers_that_a_type_has_no_place_for_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("db").to_string_lossy().into_owned();
    for (kind, good, bad) in [
        ("u8", "0 255", "-1 256 1.0 1e2 \"\" \"0x1\" true null [1]"),
        (
            "i64",
            "-9223372036854775808",
            "9223372036854775808 -9223372036854775809 0.5",
        ),
        (
            "u128",
            "\"340282366920938463463374607431768211455\"",
            "\"340282366920938463463374607431768211456\"",
        ),
        (
            "f32",
            "3.4028235e38 \"inf\" \"-Infinity\" \"nan\" \"nan:7fc00001\"",
            "1e39 \"1e39\" \"nan:0\" \"nan:1ffffffff\"",
        ),
        (
            "f64",
            "1e308 \"1e308\"",
            "\"1e309\" \"-1e309\" \"nan:7ff0000000000000\"",
        ),
        ("[u8;2]", "[1,2]", "[1] [1,2,3] 7 \"x\""),
        ("option(bool)", "null true", "\"true\" 1 {\"some\":true}"),
    ] {
        let mut lines = String::new();
        for value in good.split(' ').chain(bad.split(' ')) {
            lines += &format!("{{\"key\":\"k\",\"value\":{value}}}\n");
        }
        let table = ["--table", kind, "--key", "str", "--value", kind];
        let load = [&["load", &directory, "-", "--skip-bad"][..], &table].concat();
        let output = foxton_fed(&load, lines.as_bytes());
        let text = said(&output);
        let bad_lines = format!("{} bad line", bad.split(' ').count());
        assert!(
            text.contains(&bad_lines),
            "{kind}: no {bad_lines:?} in {text}"
        );
    }
}

#[test]
fn a_dump_that_lost_its_last_tables_is_noticed() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    assert!(
        shell(&from, "put fruit fig blue\nput nuts a b\nput seeds a b\n")
            .status
            .success()
    );
    let whole = foxton(&["dump", &from.to_string_lossy()]).stdout;
    let text = String::from_utf8(whole).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let to = to.to_string_lossy();
    for (kept, more) in [(3, "2 more tables were"), (6, "1 more table was"), (9, "")] {
        let loaded = foxton_fed(&["load", &to, "-"], lines[..kept].join("\n").as_bytes());
        let text = said(&loaded);
        assert_eq!(loaded.status.success(), more.is_empty(), "{text}");
        assert!(text.contains(more), "no {more:?} in {text}");
    }
    let twice = [&lines[..], &lines[..]].concat().join("\n");
    let loaded = foxton_fed(&["load", &to, "-"], twice.as_bytes());
    assert!(loaded.status.success(), "{}", said(&loaded));
}

#[test]
fn messages_about_a_file_are_short_and_cannot_change_the_screen() {
    let scratch = tempfile::tempdir().unwrap();
    let db = scratch.path().join("db").to_string_lossy().into_owned();
    let header = "{\"table\":\"t\",\"key\":\"str\",\"value\":\"str\"}\n";
    for line in [header, "\u{1b}[2J\n"] {
        let output = foxton_fed(&["load", &db, "-"], line.repeat(100).as_bytes());
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.lines().count() < 30, "{text}");
    }
    let output = foxton(&["dump", &db, "--table", "\u{1b}[2J"]);
    let text = said(&output);
    assert!(
        text.contains("no table \"·[2J\"") && !text.contains('\u{1b}'),
        "{text}"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let db = scratch.path().join("db").to_string_lossy().into_owned();
    let load = |file: &str| {
        let output = foxton(&[
            "load", &db, file, "--table", "t", "--key", "str", "--value", "str",
        ]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        said(&output)
    };
    let text = load(&scratch.path().to_string_lossy());
    assert!(text.contains("it is a directory; name a file"), "{text}");
    let text = load("/no/such/rows");
    assert!(text.contains("/no/such/rows: No such file"), "{text}");
    assert!(!Path::new(&db).exists(), "nothing was made");
    if cfg!(target_os = "linux") {
        // The beginning of a process' memory is not mapped, so reading it is an error of the
        // device.
        let text = load("/proc/self/mem");
        assert!(
            text.contains("line 1: /proc/self/mem cannot be read any further"),
            "{text}"
        );
    }
}

#[test]
fn a_dump_gets_its_name_when_it_is_complete() {
    let scratch = tempfile::tempdir().unwrap();
    let db = scratch.path().join("db");
    assert!(shell(&db, "put fruit fig blue\n").status.success());
    let db = db.to_string_lossy();
    let to = |out: &str, more: &[&str]| {
        let arguments = [&["dump", &db, "--out", out][..], more].concat();
        let output = foxton(&arguments);
        (output.status.success(), said(&output))
    };
    let folder = scratch.path().join("out");
    fs::create_dir(&folder).unwrap();
    let out = folder.join("rows").to_string_lossy().into_owned();
    let names = || fs::read_dir(&folder).unwrap().count();
    let (done, text) = to(&out, &["--table", "fruit", "--format", "csv"]);
    assert!(done, "{text}");
    assert_eq!(fs::read(&out).unwrap(), b"key,value\nfig,blue\n");
    let (done, text) = to(&out, &[]);
    assert!(!done && text.contains("exists; remove it"), "{text}");
    assert_eq!(
        (names(), fs::read(&out).unwrap().len()),
        (1, 19),
        "the file is as it was"
    );
    let (done, text) = to(&folder.join("no").join("where").to_string_lossy(), &[]);
    assert!(!done && text.contains("cannot be created"), "{text}");
    if cfg!(target_os = "linux") {
        fs::remove_file(&out).unwrap();
        std::os::unix::fs::symlink("/dev/full", &out).unwrap();
        let (done, text) = to(&out, &[]);
        assert!(!done && text.contains("exists; remove it"), "{text}");
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = support::command(&["dump", &db]);
        let output = command.stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        assert!(said(&output).contains("No space left"), "{}", said(&output));
    }
}
