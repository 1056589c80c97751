//! All that committed, run again one after the other.
//!
//! Locks are held until a commit is in the log. So if the locks are right, running the transactions
//! alone, in the order of their places, gives every one of them the answers it got: a phantom is a scan
//! whose rows differ, a lost update, a dirty or a fuzzy read is a value that differs. A plain ordered map
//! does that. It also shows real time: who began after another was acknowledged must come behind it. So
//! what is shown is strict serializability, of the histories that were produced; and what it says of an
//! answer that is wrong is what the right one would have been. Why it was wrong is for the
//! [graph](crate::graph).

use crate::history::{End, History, Record, Scan, Step, Transaction, Version};
use std::{collections::BTreeMap, fmt};

/// The rows at some moment.
pub type Rows = BTreeMap<u64, Version>;

/// What the transactions before do not explain.
#[derive(Debug, Clone)]
pub struct Anomaly {
    /// Which transaction, with all its steps.
    pub transaction: String,
    /// Which of the steps; of none, if it stands in the wrong place altogether.
    pub step: Option<usize>,
    /// What was wrong.
    pub what: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(step) = self.step {
            write!(f, "step {step}: ")?;
        }
        write!(f, "{}\n{}", self.what, self.transaction)
    }
}

/// Runs `history` alone and returns the rows at its end.
///
/// # Errors
///
/// The first answer that differs, or the first transaction that stands before one that had ended when it
/// began.
pub fn replay(history: &History) -> Result<Rows, Box<Anomaly>> {
    let mut rows = history.start.clone();
    let order = history.order();
    for (record, transaction) in &order {
        for (index, step) in record.steps(transaction).iter().enumerate() {
            if let Some(what) = differs(&mut rows, record, step) {
                return Err(Box::new(Anomaly {
                    transaction: tell(record, transaction),
                    step: Some(index),
                    what,
                }));
            }
        }
    }
    in_real_time(&order)?;
    Ok(rows)
}

/// Nobody stands behind another that began after it had ended: from the end, the earliest end of those
/// behind must not lie before a beginning.
fn in_real_time(order: &[(&Record, &Transaction)]) -> Result<(), Box<Anomaly>> {
    let mut earliest: Option<(&Record, &Transaction)> = None;
    for &(record, transaction) in order.iter().rev() {
        if let Some((other, ended)) = earliest
            && ended.ended < transaction.begun
        {
            let what = format!(
                "it began after another was acknowledged, and stands before that one:\n{}",
                tell(other, ended)
            );
            return Err(Box::new(Anomaly {
                transaction: tell(record, transaction),
                step: None,
                what,
            }));
        }
        if earliest.is_none_or(|(_, ended)| transaction.ended < ended.ended) {
            earliest = Some((record, transaction));
        }
    }
    Ok(())
}

/// Does `step` when nobody else is there, and says how its answer differs.
fn differs(rows: &mut Rows, record: &Record, step: &Step) -> Option<String> {
    let alone = |what: String| Some(format!("alone, {what}"));
    match *step {
        Step::Get(key, saw) => {
            let right = rows.get(&key).copied();
            (saw != right).then(|| format!("alone, key {key} {}", told(right)))
        }
        Step::Scan(scan) => {
            let right = select(rows, &scan);
            if right.clone().eq(record.rows(&scan).iter().copied()) {
                return None;
            }
            let right: Vec<String> = right.map(|(key, saw)| format!("{key}={saw}")).collect();
            alone(format!("the range has {}", right.join(" ")))
        }
        Step::Put(key, version) => {
            rows.insert(key, version);
            None
        }
        Step::Insert(key, version, done) => {
            let free = !rows.contains_key(&key);
            rows.entry(key).or_insert(version);
            (free != done).then(|| format!("alone, key {key} {}", told(rows.get(&key).copied())))
        }
        Step::Delete(key, existed) => {
            let right = rows.remove(&key);
            (right.is_some() != existed).then(|| format!("alone, key {key} {}", told(right)))
        }
    }
}

/// What `scan` returns when nobody else is there.
fn select(rows: &Rows, scan: &Scan) -> impl Iterator<Item = (u64, Version)> + Clone {
    let mut range = rows.range(scan.from..=scan.to);
    let reversed = scan.reversed;
    let next = move || match reversed {
        true => range.next_back(),
        false => range.next(),
    };
    let most = usize::try_from(scan.limit).unwrap_or(usize::MAX);
    Select(next)
        .take(most)
        .map(|(&key, &version)| (key, version))
}

/// An iterator from a function that can be cloned.
#[derive(Clone)]
struct Select<F>(F);

impl<T, F: FnMut() -> Option<T>> Iterator for Select<F> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        (self.0)()
    }
}

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
    let mut text = format!("transaction {writer}, {end}, from {begun} to {ended} ns:");
    for (index, step) in record.steps(transaction).iter().enumerate() {
        let step = match *step {
            Step::Get(key, saw) => format!("get {key}: it {}", told(saw)),
            Step::Put(key, version) => format!("put {key} {version}"),
            Step::Insert(key, version, true) => format!("insert {key} {version}"),
            Step::Insert(key, _, false) => format!("insert {key}: it is there already"),
            Step::Delete(key, true) => format!("delete {key}"),
            Step::Delete(key, false) => format!("delete {key}: it is absent"),
            Step::Scan(scan) => tell_scan(record, &scan),
        };
        text += &format!("\n  {index}. {step}");
    }
    text
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
    format!("scan {}..={}{order}{limit}: {rows}", scan.from, scan.to)
}

#[cfg(test)]
mod tests {
    //! The anomalies of the literature, each of which the replay must notice.

    use super::*;
    use crate::history::sketch::history;

    #[test]
    fn a_serial_history_replays() {
        let history = history(
            "start 5
            A@1: put 1; insert 2; scan 0..4 1=A 2=A; scan 0..9 desc limit=2 5=S 2=A
            B@2: get 1=A; delete 2; insert! 1; delete! 7
            X@x: put 1; get 9=-
            C@2: get 2=-; scan 0..9 1=A 5=S",
        );
        // C has B's place and only read, so it comes after B.
        let end = replay(&history).unwrap();
        assert_eq!(end.into_keys().collect::<Vec<_>>(), [1, 5]);
    }

    #[test]
    fn each_anomaly_is_noticed_in_either_order() {
        let anomalies = [
            ("lost update", "get 1=S; put 1", "get 1=S; put 1"),
            ("write skew", "get 2=S; put 1", "get 1=S; put 2"),
            ("read skew", "get 1=S; get 2=B", "put 1; put 2"),
            (
                "phantom",
                "scan 0..9 1=S 2=S; insert 3",
                "scan 0..9 1=S 2=S; insert 4",
            ),
            ("two inserts", "insert 7", "insert 7"),
            ("aborted read", "get 1=X", "get 1=S"),
            ("absent row", "get 1=-", "get 1=S"),
            ("skewed misses", "get 7=-; insert 8", "get 8=-; insert 7"),
            ("a delete twice", "delete 1", "delete 1"),
        ];
        for (name, one, other) in anomalies {
            for places in [[1, 2], [2, 1]] {
                let [first, second] = places;
                let text = format!("start 1 2\nX@x: put 1\nA@{first}: {one}\nB@{second}: {other}");
                assert!(replay(&history(&text)).is_err(), "{name} was not noticed");
            }
        }
    }

    #[test]
    fn who_began_later_and_stands_before_is_noticed() {
        let stale = "start 1\nA@1 50..60: get 1=S\nB@2 10..20: put 1";
        let anomaly = replay(&history(stale)).unwrap_err().to_string();
        assert!(
            anomaly.contains("began after another was acknowledged"),
            "{anomaly}"
        );
        let overlapping = "start 1\nA@1 15..60: get 1=S\nB@2 10..20: put 1";
        replay(&history(overlapping)).unwrap();
    }

    #[test]
    fn what_is_wrong_is_told() {
        let phantom = history("start 1\nA@1: insert 3\nB@2: get 3=A; scan 0..9 1=S");
        let anomaly = replay(&phantom).unwrap_err();
        assert_eq!(
            (anomaly.step, &*anomaly.what),
            (Some(1), "alone, the range has 1=4000:0.1 3=0:0.0")
        );
        let said = anomaly.to_string();
        assert!(said.contains("1. scan 0..=9: 1=4000:0.1"), "{said}");
    }
}
