//! Answers and transactions in words.

use crate::history::{By, End, Record, Scan, Step, Transaction, Version, Written};

/// An answer in words.
pub(crate) fn told(saw: Option<Version>) -> String {
    saw.map_or("is absent".to_owned(), |version| format!("is {version}"))
}

/// A transaction in words, a line for each step.
pub(crate) fn tell(record: &Record, transaction: &Transaction) -> String {
    let Transaction {
        writer,
        begun,
        ended,
        ..
    } = transaction;
    let end = match transaction.end {
        End::Committed(place) => format!("committed at {place}"),
        End::RolledBack => "rolled back".to_owned(),
    };
    let snapshot = match transaction.snapshot {
        Some(snapshot) => format!(", at the snapshot of {snapshot}"),
        None => String::new(),
    };
    let mut text = format!("transaction {writer}, {end}{snapshot}, from {begun} to {ended} ns:");
    for (index, step) in record.steps(transaction).iter().enumerate() {
        let step = match *step {
            Step::Get(key, saw, _) => format!("get {key}: it {}", told(saw)),
            Step::GetBy(name, Some((key, version)), _) => {
                format!("get by name {name}: it is row {key}, {version}")
            }
            Step::GetBy(name, None, _) => format!("get by name {name}: there is none"),
            Step::Put(key, version, end) => format!("put {key} {version}{}", tell_end(end)),
            Step::Insert(key, version, end) => {
                format!("insert {key} {version}{}", tell_end(end))
            }
            Step::Save => "set a savepoint".to_owned(),
            Step::Back(at) => format!("go back to savepoint {at}"),
            Step::Release(at) => format!("release savepoint {at}"),
            Step::Delete(key, true) => format!("delete {key}"),
            Step::Delete(key, false) => format!("delete {key}: it is absent"),
            Step::Scan(scan) => tell_scan(record, &scan),
        };
        text += &format!("\n  {index}. {step}");
    }
    text
}

fn tell_end(end: Written) -> String {
    match end {
        Written::Done => String::new(),
        Written::Exists => ": it exists already".to_owned(),
        Written::Taken(row) => format!(": row {row} has its name"),
    }
}

fn tell_scan(record: &Record, scan: &Scan) -> String {
    let rows: Vec<String> = record
        .rows(scan)
        .iter()
        .map(|(key, version)| format!("{key}={version}"))
        .collect();
    let order = if scan.reversed { " downwards" } else { "" };
    let limit = match scan.limit {
        u64::MAX => String::new(),
        limit => format!(" limit {limit}"),
    };
    let rows = match rows.is_empty() {
        true => "nothing".to_owned(),
        false => rows.join(" "),
    };
    let by = match scan.by {
        By::Key => String::new(),
        by => format!("by {} ", by.word()),
    };
    let skips = if scan.skips {
        " but what is locked"
    } else {
        ""
    };
    let (from, to) = (scan.from, scan.to);
    format!("scan {by}{from}..={to}{order}{limit}{skips}: {rows}")
}
