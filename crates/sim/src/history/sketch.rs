//! Histories from a few lines of text, for tests.
//!
//! ```text
//! start 1 2                             rows of nobody in this history, at these keys
//! A@1 0..5: get 1=S; put 1; put 2       committed at place 1, from 0 to 5 ns; S is the start
//! B@2: get 1=A; get 3=-; scan 0..9 1=A  at any time; nothing at 3; the rows of a scan
//! C@x: delete 1; insert 3; insert! 2    rolled back; an insert that was refused
//! order 1 B A                           versions of key 1 followed each other so
//! ```
//!
//! `A` is what A wrote last under that key, `A.2` what its step 2 wrote, the first being 0. `desc` before
//! the rows of a scan reverses it, and `limit=2` limits it.

use super::{End, History, Record, Step, Version, Writer};

const START: u16 = 4000;

fn writer(name: &str) -> Writer {
    let client = match name {
        "S" => START,
        name => u16::from(name.as_bytes()[0] - b'A'),
    };
    Writer { client, number: 0 }
}

/// The steps of a line that begins with a name.
fn steps(line: &str) -> impl Iterator<Item = &str> {
    let (_, steps) = line.split_once(':').expect("a colon behind the name");
    steps.split(';').map(str::trim)
}

/// The version that `name` stands for under `key`, in a history of these lines.
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
    let writes = [format!("put {key}"), format!("insert {key}")];
    let step = steps(line.expect("a name that writes"))
        .collect::<Vec<_>>()
        .into_iter()
        .rposition(|step| writes.iter().any(|write| write == step));
    let step = step.unwrap_or_else(|| panic!("{name} does not write {key}"));
    Some(Version::new(writer(name), step as u16))
}

fn note(record: &mut Record, text: &str, step: &str) {
    let words: Vec<&str> = step.split_whitespace().collect();
    let pair = |word: &str| {
        let (key, name) = word.split_once('=').expect("key=name");
        let key = key.parse().unwrap();
        (key, version(text, name, key))
    };
    let wrote = record.version();
    match words[..] {
        ["get", what] => {
            let (key, saw) = pair(what);
            record.note(Step::Get(key, saw));
        }
        ["put", key] => record.note(Step::Put(key.parse().unwrap(), wrote)),
        ["insert", key] => record.note(Step::Insert(key.parse().unwrap(), wrote, true)),
        ["insert!", key] => record.note(Step::Insert(key.parse().unwrap(), wrote, false)),
        ["delete", key] => record.note(Step::Delete(key.parse().unwrap(), true)),
        ["delete!", key] => record.note(Step::Delete(key.parse().unwrap(), false)),
        ["scan", range, ref rows @ ..] => {
            let (from, to) = range.split_once("..").expect("from..to");
            let limit = rows.iter().find_map(|word| word.strip_prefix("limit="));
            let limit = limit.map_or(u64::MAX, |limit| limit.parse().unwrap());
            let reversed = rows.contains(&"desc");
            record.scan(from.parse().unwrap(), to.parse().unwrap(), reversed, limit);
            let rows = rows
                .iter()
                .filter(|word| **word != "desc" && !word.starts_with("limit="));
            for (key, saw) in rows.map(|word| pair(word)) {
                record.row(key, saw.expect("a row has a value"));
            }
        }
        _ => panic!("what is {step:?}?"),
    }
}

/// The history that `text` describes.
pub(crate) fn history(text: &str) -> History {
    let mut history = History::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(keys) = line.strip_prefix("start") {
            for key in keys.split_whitespace().map(|key| key.parse().unwrap()) {
                history.start.insert(key, version(text, "S", key).unwrap());
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
        steps(line).for_each(|step| note(&mut record, text, step));
        let end = match place {
            "x" => End::RolledBack,
            place => End::Committed(place.parse().unwrap()),
        };
        record.end(end, ended.parse().unwrap());
        history.records.push(record);
    }
    history
}
