//! `foxton dump` and `foxton load` as people use them: dumped rows are loaded byte for byte, and
//! bad lines are reported by number, and refused or left out as the arguments say.

use std::{fs, path::Path};

use crate::support::{foxton, foxton_fed, said, shell};
use foxton::{
    Database, Options, Table, TableComponent,
    codec::{Encoded, TypeName},
};

type Rows = Vec<(Encoded, Encoded)>;

/// Every table: its name, its types, its rows.
fn content(directory: &Path) -> Vec<(String, String, String, Rows)> {
    let db = Database::open_with(directory, Options::tiny()).unwrap();
    let tables = db.stats().tables.into_iter().map(|table| {
        let door: Table<Encoded, Encoded> = Table::new(Box::leak(table.name.clone().into()));
        let rows = db.run(|tx| tx.range(&door, ..).collect()).unwrap();
        (table.name, table.key_type, table.value_type, rows)
    });
    tables.collect()
}

/// SplitMix64: the same seed, the same test.
fn draw(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*seed ^ (*seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn bytes(seed: &mut u64, most: u64) -> Vec<u8> {
    (0..draw(seed) % most).map(|_| draw(seed) as u8).collect()
}

/// Tables of every kind, with rows of theirs, and some bytes that are none.
fn fill(directory: &Path) {
    const ODD: Table<(u32, &str), (Option<String>, f64)> = Table::new("odd \"name\"");
    const WIDE: Table<i128, [u16; 3]> = Table::new("wide");
    let db = Database::open_with(directory, Options::tiny()).unwrap();
    let mut seed = 11;
    for (name, key, value) in [
        ("raw", "bytes", "bytes"),
        ("text", "str", "str"),
        ("numbers", "u64", "i128"),
        ("pairs", "(i16,str)", "(option(bytes),f32,bool)"),
        ("own", "shop::Order.2", "option(option(u8))"),
        ("unit", "()", "()"),
        ("empty", "[u8;4]", "f64"),
    ] {
        let door: Table<Encoded, Encoded> = Table::new(Box::leak(name.to_owned().into()));
        db.run(|tx| {
            tx.make_table(name, &TypeName::new(key), &TypeName::new(value))?;
            let rows = if name == "empty" { 0 } else { 60 };
            (0..rows).try_for_each(|_| {
                let (key, value) = (bytes(&mut seed, 20), bytes(&mut seed, 40));
                tx.put(&door, &Encoded(key), &Encoded(value))
            })
        })
        .unwrap();
    }
    db.run(|tx| {
        for number in 0..50u32 {
            let text = (number % 3 > 0).then(|| format!("\u{1f98a} {number}\n\t\""));
            let value = (text, f64::from(number) / 7.0);
            tx.put(&ODD, &(number, "a\0b"), &value)?;
            tx.put(&WIDE, &(i128::MIN + i128::from(number)), &[1, 2, 3])?;
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn what_is_dumped_and_loaded_is_the_same_byte_for_byte() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fill(&from);
    let file = scratch.path().join("rows.jsonl");
    let (from_, to_, file_) = (
        from.to_string_lossy(),
        to.to_string_lossy(),
        file.to_string_lossy(),
    );
    let dumped = foxton(&["dump", &from_, "--out", &file_]);
    assert!(dumped.status.success(), "{}", said(&dumped));
    assert!(said(&dumped).contains("9 tables"), "{}", said(&dumped));
    let loaded = foxton(&["load", &to_, &file_, "--batch", "7"]);
    assert!(loaded.status.success(), "{}", said(&loaded));
    assert!(said(&loaded).contains("rows loaded"), "{}", said(&loaded));
    assert_eq!(content(&from), content(&to));
    let again = foxton(&["dump", &to_]);
    assert_eq!(again.stdout, fs::read(&file).unwrap());
    let refused = foxton(&["dump", &from_, "--out", &file_]);
    assert!(
        said(&refused).contains("exists; remove it"),
        "{}",
        said(&refused)
    );
}

#[test]
fn cells_come_back_too_and_a_new_table_wants_to_know_its_types() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fill(&from);
    let (from_, to_) = (from.to_string_lossy(), to.to_string_lossy());
    let name = "odd \"name\"";
    let dumped = foxton(&["dump", &from_, "--table", name, "--format", "csv"]);
    assert!(dumped.status.success(), "{}", said(&dumped));
    assert!(dumped.stdout.starts_with(b"key.1,key.2,value.1,value.2\n"));
    let load = ["load", &to_, "-", "--format", "csv", "--table", name];
    let refused = foxton_fed(&load, &dumped.stdout);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("--key and --value"),
        "{}",
        said(&refused)
    );
    let types = ["--key", "(u32,str)", "--value", "(option(str),f64)"];
    let wrong = [&load[..], &["--key", "u32", "--value", "str"]].concat();
    let refused = foxton_fed(&wrong, &dumped.stdout);
    assert!(
        said(&refused).contains("has key,value"),
        "{}",
        said(&refused)
    );
    let loaded = foxton_fed(&[&load[..], &types].concat(), &dumped.stdout);
    assert!(loaded.status.success(), "{}", said(&loaded));
    let of = |all: Vec<(String, String, String, Rows)>| {
        all.into_iter().find(|table| table.0 == name).unwrap()
    };
    assert_eq!(of(content(&from)), of(content(&to)));
    let own = foxton(&["dump", &from_, "--table", "numbers", "--format", "csv"]);
    assert!(said(&own).contains("leave --format out"), "{}", said(&own));
}

const FRUIT: &str = "\
{\"key\":\"apple\",\"value\":\"red\"}
{\"key\":\"pear\",\"value\":7}
{\"key\":\"plum\",\"value\":\"blue\"}

no json
{\"key\":\"fig\"}
{\"key\":\"lime\",\"value\":\"green\"}
";

fn fruit(directory: &Path) -> String {
    said(&shell(directory, "scan fruit\n"))
}

#[test]
fn a_bad_line_spoils_its_batch_and_is_told_by_its_number() {
    let scratch = tempfile::tempdir().unwrap();
    let db = scratch.path().join("db");
    assert!(shell(&db, "put fruit apple old\n").status.success());
    let load = |more: &[&str]| {
        let directory = db.to_string_lossy();
        let arguments = [&["load", &directory, "-", "--table", "fruit"][..], more].concat();
        foxton_fed(&arguments, FRUIT.as_bytes())
    };
    let refused = load(&[]);
    let text = said(&refused);
    assert_eq!(refused.status.code(), Some(1), "{text}");
    for words in [
        "line 2: value: 7 is not a string",
        "line 5: it is not JSON",
        "line 6: it has no \"value\"",
        "0 rows loaded",
        "lines 1 to 7 were not loaded",
        "--skip-bad",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    assert_eq!(fruit(&db), "apple  old\n(1 row)\n");
    let text = said(&load(&["--batch", "1"]));
    assert!(
        text.contains("1 row loaded") && text.contains("lines 2 to 2"),
        "{text}"
    );
    assert_eq!(fruit(&db), "apple  red\n(1 row)\n");
    let skipped = load(&["--skip-bad"]);
    let text = said(&skipped);
    assert!(skipped.status.success(), "{text}");
    assert!(
        text.contains("3 rows loaded in 1 transaction; 3 bad lines left out"),
        "{text}"
    );
    assert_eq!(
        fruit(&db),
        "apple  red\nlime   green\nplum   blue\n(3 rows)\n"
    );
}

#[test]
fn a_file_that_was_cut_is_noticed_and_so_are_rows_for_other_types() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    assert!(
        shell(
            &from,
            "put fruit apple red\nput fruit fig blue\nput nuts a b\n"
        )
        .status
        .success()
    );
    let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
    let whole = foxton(&["dump", &from]).stdout;
    let text = String::from_utf8(whole.clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 7, "{text}");
    let cut = lines[..2].join("\n");
    let loaded = foxton_fed(&["load", &to, "-"], cut.as_bytes());
    assert_eq!(loaded.status.code(), Some(1));
    assert!(
        said(&loaded).contains("may have been truncated"),
        "{}",
        said(&loaded)
    );
    let missing = [&lines[..1], &lines[2..]].concat().join("\n");
    let loaded = foxton_fed(&["load", &to, "-"], missing.as_bytes());
    assert_eq!(loaded.status.code(), Some(1));
    assert!(said(&loaded).contains("after 2 rows"), "{}", said(&loaded));
    let other = text.replace("\"value\":\"str\"", "\"value\":\"u8\"");
    let refused = foxton_fed(&["load", &to, "-", "--skip-bad"], other.as_bytes());
    assert!(
        said(&refused).contains("has rows of str to str"),
        "{}",
        said(&refused)
    );
    let one = foxton_fed(&["load", &to, "-", "--table", "nuts"], &whole);
    assert!(one.status.success(), "{}", said(&one));
    assert!(
        said(&one).contains("2 rows of other tables left out"),
        "{}",
        said(&one)
    );
}

#[test]
fn paged_tables_are_dumped_loaded_copied_and_checked() {
    const PAGED: Table<u64, str> = Table::new("paged").paged();
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name).to_string_lossy().into_owned();
    let db = Database::open_with(at("from"), Options::tiny()).unwrap();
    db.run(|tx| (0..500).try_for_each(|key| tx.put(&PAGED, &key, &format!("row {key}"))))
        .unwrap();
    // Another process copies it while it is open.
    let copied = foxton(&["backup", &at("from"), &at("copy")]);
    assert!(copied.status.success(), "{}", said(&copied));
    drop(db);
    let restored = foxton(&["restore", &at("copy"), &at("restored")]);
    assert!(restored.status.success(), "{}", said(&restored));
    for name in ["from", "copy", "restored"] {
        let checked = foxton(&["check", &at(name)]);
        assert!(checked.status.success(), "{}", said(&checked));
        assert!(
            said(&checked).contains(" pages, 500 rows in 1 table"),
            "{}",
            said(&checked)
        );
    }
    assert_eq!(
        content(Path::new(&at("restored"))),
        content(Path::new(&at("from")))
    );
    let dumped = foxton(&["dump", &at("from"), "--out", &at("rows.jsonl")]);
    assert!(dumped.status.success(), "{}", said(&dumped));
    // Into tables of either component, which stay in it, and into a new one, which is paged again.
    let db = Database::open_with(at("paged"), Options::tiny()).unwrap();
    db.run(|tx| tx.put(&PAGED, &7, "old")).unwrap();
    drop(db);
    const RESIDENT: Table<u64, str> = Table::new("paged").resident();
    let db = Database::open_with(at("resident"), Options::tiny()).unwrap();
    db.run(|tx| tx.put(&RESIDENT, &7, "old")).unwrap();
    drop(db);
    for (name, component) in [
        ("paged", TableComponent::Paged),
        ("resident", TableComponent::Resident),
        ("new", TableComponent::Paged),
    ] {
        let loaded = foxton(&["load", &at(name), &at("rows.jsonl")]);
        assert!(loaded.status.success(), "{}", said(&loaded));
        assert_eq!(
            content(Path::new(&at(name))),
            content(Path::new(&at("from")))
        );
        let db = Database::open_with(at(name), Options::tiny()).unwrap();
        assert_eq!(db.stats().tables[0].component, component, "{name}");
    }
    // A component that there is not.
    let lines = fs::read_to_string(at("rows.jsonl")).unwrap();
    assert!(
        lines.starts_with(r#"{"table":"paged","key":"u64","value":"str","component":"paged","#)
    );
    fs::write(
        at("other.jsonl"),
        lines.replacen(r#":"paged","more""#, r#":"tape","more""#, 1),
    )
    .unwrap();
    let refused = foxton(&["load", &at("other"), &at("other.jsonl")]);
    assert!(!refused.status.success(), "{}", said(&refused));
    assert!(
        said(&refused).contains("there are only resident and paged"),
        "{}",
        said(&refused)
    );
    // A flipped byte of a page is found.
    let rows = scratch.path().join("from/rows");
    let mut bytes = fs::read(&rows).unwrap();
    bytes[8192 + 100] ^= 1;
    fs::write(&rows, bytes).unwrap();
    let _ = fs::remove_file(scratch.path().join("from/rows-double"));
    let checked = foxton(&["check", &at("from")]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(
        said(&checked).contains("rows at byte 8192: page 1: its checksum"),
        "{}",
        said(&checked)
    );
}
