//! Histories from a few lines of text, for tests.
//!
//! ```text
//! start 1 2                             rows of no client in this history, at these keys
//! A@1 0..5: get 1=S; put 1; put 2       committed at place 1, from 0 to 5 ns; S is the start
//! start 3n7g5                           a row with a name and a group, as a put can have them
//! B@2: get 1=A; get 3=-; scan 0..9 1=A  at any time; nothing at 3; the rows of a scan
//! C@x: delete 1; insert 3; insert! 2    rolled back; an insert that was refused
//! D@3: put 3n8; name 8=3=D; names 7..9 3=D; groups 0..0 1=S; put! 4n8 3    3 has the name already
//! E@4: save; put 1; back 0; release 0; get 1=S rows     kept as rows are, not as ranges
//! F@5/3: get 1=B snap; put 1            at the snapshot of place 3, and a read there
//! order 1 B A                           versions of key 1 followed each other so
//! ```
//!
//! `A` is the last value that A wrote under that key. `A.2` is the value of its step 2, the first
//! step being 0. `desc` before the rows of a scan reverses it, and `limit=2` limits it. `dirty`,
//! `brief`, `rows` and `snap` behind a read say how long it was kept; without them it was kept as a
//! range.

use super::{By, End, History, Kept, Label, Labels, Record, Scan, Step, Version, Writer, Written};

use std::collections::BTreeMap;

const START: u16 = 4000;

fn writer(name: &str) -> Writer {
    let client = match name {
        "S" => START,
        name => u16::from(name.as_bytes()[0] - b'A'),
    };
    Writer { client, number: 0 }
}

/// Returns the steps of a line that begins with a name.
fn steps(line: &str) -> impl Iterator<Item = &str> {
    let (_, steps) = line.split_once(':').expect("a colon behind the name");
    steps.split(';').map(str::trim)
}

/// Returns the version that `name` stands for under `key`, in a history of these lines.
fn version(text: &str, name: &str, key: u64) -> Option<Version> {
    if name == "-" {
        return None;
    }
    if let Some((name, step)) = name.split_once('.') {
        return Some(Version::new(writer(name), step.parse().unwrap()));
    }
    if name == "S" {
        return Some(Version::new(writer(name), key as u16));
    }
    let line = text.lines().map(str::trim).find(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with('@'))
    });
    let step = steps(line.expect("a name that writes"))
        .collect::<Vec<_>>()
        .into_iter()
        .rposition(|step| {
            let mut words = step.split_whitespace();
            matches!(words.next(), Some("put" | "insert"))
                && words.next().is_some_and(|row| labelled(row).0 == key)
        });
    let step = step.unwrap_or_else(|| panic!("{name} does not write {key}"));
    Some(Version::new(writer(name), step as u16))
}

/// Parses a key and the labels behind it.
fn labelled(word: &str) -> (u64, Label) {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let (word, group) = word.split_once('g').unwrap_or((word, "0"));
    let (key, name) = match word.split_once('n') {
        Some((key, name)) => (key, Some(number(name))),
        None => (word, None),
    };
    (number(key), (name, number(group)))
}

/// Returns the words of a step, and how long its read was kept.
fn kept(step: &str) -> (Vec<&str>, Kept) {
    let words = step.split_whitespace();
    let mut kept = Kept::Range;
    let words = words.filter(|word| {
        kept = match *word {
            "dirty" => Kept::Dirty,
            "brief" => Kept::Briefly,
            "rows" => Kept::Rows,
            "snap" => Kept::Snapshot,
            _ => return true,
        };
        false
    });
    (words.collect(), kept)
}

fn note(record: &mut Record, labels: &mut BTreeMap<Version, Label>, text: &str, step: &str) {
    let (words, kept) = kept(step);
    let pair = |word: &str| {
        let (key, name) = word.split_once('=').expect("key=name");
        let key = key.parse().unwrap();
        (key, version(text, name, key))
    };
    let wrote = record.version();
    let mut row = |word: &str| {
        let (key, label) = labelled(word);
        labels.insert(wrote, label);
        key
    };
    let number = |word: &str| word.parse::<u64>().unwrap();
    match words[..] {
        ["get", what] => {
            let (key, saw) = pair(what);
            record.note(Step::Get(key, saw, kept));
        }
        ["name", what] => {
            let (name, saw) = what.split_once('=').expect("name=key=writer, or name=-");
            let saw = (saw != "-").then(|| pair(saw));
            let saw = saw.map(|(key, saw)| (key, saw.expect("a row has a value")));
            record.note(Step::GetBy(number(name), saw, kept));
        }
        ["put", key] => record.note(Step::Put(row(key), wrote, Written::Done)),
        ["put!", key, holder] => {
            record.note(Step::Put(row(key), wrote, Written::Taken(number(holder))));
        }
        ["insert", key] => record.note(Step::Insert(row(key), wrote, Written::Done)),
        ["insert!", key] => record.note(Step::Insert(row(key), wrote, Written::Exists)),
        ["delete", key] => record.note(Step::Delete(number(key), true)),
        ["delete!", key] => record.note(Step::Delete(number(key), false)),
        ["save"] => record.note(Step::Save),
        ["back", at] => record.note(Step::Back(at.parse().unwrap())),
        ["release", at] => record.note(Step::Release(at.parse().unwrap())),
        [order @ ("scan" | "names" | "groups"), range, ref rows @ ..] => {
            let (from, to) = range.split_once("..").expect("from..to");
            let limit = rows.iter().find_map(|word| word.strip_prefix("limit="));
            let by = match order {
                "scan" => By::Key,
                "names" => By::Name,
                _ => By::Group,
            };
            record.scan(Scan {
                limit: limit.map_or(u64::MAX, number),
                reversed: rows.contains(&"desc"),
                skips: rows.contains(&"skip"),
                kept,
                ..Scan::of(by, number(from), number(to))
            });
            let rows = rows
                .iter()
                .filter(|word| !["desc", "skip"].contains(*word) && !word.starts_with("limit="));
            for (key, saw) in rows.map(|word| pair(word)) {
                record.row(key, saw.expect("a row has a value"));
            }
        }
        _ => panic!("what is {step:?}?"),
    }
}

/// Returns the history that `text` describes.
pub(crate) fn history(text: &str) -> History {
    let mut history = History::default();
    let mut labels = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(keys) = line.strip_prefix("start") {
            for (key, label) in keys.split_whitespace().map(labelled) {
                let version = version(text, "S", key).unwrap();
                labels.insert(version, label);
                history.start.insert(key, version);
            }
            continue;
        }
        if let Some(order) = line.strip_prefix("order") {
            let (key, names) = order.trim().split_once(' ').expect("names behind the key");
            let writers = names.split_whitespace().map(writer).collect();
            history.orders.insert(key.parse().unwrap(), writers);
            continue;
        }
        let (head, _) = line.split_once(':').expect("a colon behind the name");
        let (name, rest) = head.split_once('@').expect("a place behind the name");
        let (place, times) = rest.split_once(' ').unwrap_or((rest, "0..1000000"));
        let (begun, ended) = times.split_once("..").expect("from..to");
        let mut record = Record::new(writer(name).client, 0);
        record.begin(begun.parse().unwrap());
        let (place, snapshot) = match place.split_once('/') {
            Some((place, snapshot)) => (place, Some(snapshot.parse().unwrap())),
            None => (place, None),
        };
        record.at_snapshot(snapshot);
        steps(line).for_each(|step| note(&mut record, &mut labels, text, step));
        let end = match place {
            "x" => End::RolledBack,
            place => End::Committed(place.parse().unwrap()),
        };
        record.end(end, ended.parse().unwrap());
        history.records.push(record);
    }
    history.labels = Labels::Told(labels);
    history
}
