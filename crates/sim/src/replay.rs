//! Replay: all committed transactions, run again one after the other.
//!
//! Locks are held until a commit is in the log. So if the locks are right, each transaction gets
//! the same answers when all run alone, in the order of their places. A phantom is a scan whose
//! rows differ; a lost update, a dirty read or a fuzzy read is a value that differs. A plain
//! ordered map is enough for the replay. It also checks real time: a transaction that began after
//! another was acknowledged must come behind it. So the replay shows strict serializability of the
//! histories that were produced. For a wrong answer it gives the right one; the
//! [graph](crate::graph) gives the reason.
//!
//! # Snapshots
//!
//! A transaction that has read at a snapshot is there twice. At the place of the snapshot it gets
//! the answers of its plain reads, among its own writes so far. At the place of its commit it
//! writes, and gets all other answers. So each read at a snapshot shows the rows after exactly
//! those commits whose places are not above it.
//!
//! # Levels
//!
//! Writes keep their locks at every level, and so do reads for update. So this order is right for
//! transactions of any level, side by side. Of each read it checks what the
//! [level](crate::history::Kept) promised. For a range that did not lock its gaps, that is whether
//! the rows it found were there. For a read that kept nothing, it is nothing.

use crate::history::{End, History, Record, Step, Transaction, Version, Written};
use std::{collections::BTreeMap, fmt};

/// Transactions in words.
mod words;

/// The rows and their indexes, as ordered maps.
mod model;

pub(crate) use words::{tell, told};

use model::Model;

/// The rows at some moment.
pub type Rows = BTreeMap<u64, Version>;

/// An answer that the transactions before do not explain.
#[derive(Debug, Clone)]
pub struct Anomaly {
    /// The transaction, with all its steps.
    pub transaction: String,
    /// The step; `None` if the transaction has the wrong place altogether.
    pub step: Option<usize>,
    /// Description of the fault.
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
/// The first answer that differs, or the first transaction that comes before one that had ended
/// when it began.
pub fn replay(history: &History) -> Result<Rows, Box<Anomaly>> {
    let mut model = Model::new(history);
    let turns = turns(history);
    for turn in &turns {
        let Turn {
            record,
            transaction,
            is_view,
            ..
        } = *turn;
        model.begin();
        // One that wrote nothing has the place of its snapshot, but a name that it wanted may have
        // been taken later.
        let is_placed = transaction.wrote || transaction.snapshot.is_none();
        for (index, step) in record.steps(transaction).iter().enumerate() {
            let is_taken = matches!(
                step,
                Step::Put(.., Written::Taken(_)) | Step::Insert(.., Written::Taken(_))
            );
            if is_taken && !is_placed {
                continue;
            }
            let differs = match is_view {
                true => model.view_differs(record, step),
                false => model.differs(record, step),
            };
            if let Some(what) = differs {
                return Err(Box::new(Anomaly {
                    transaction: tell(record, transaction),
                    step: Some(index),
                    what,
                }));
            }
        }
        if is_view {
            model.roll_back();
        }
    }
    in_real_time(&turns)?;
    Ok(model.rows)
}

/// A transaction at one of its places.
#[derive(Clone, Copy)]
struct Turn<'h> {
    record: &'h Record,
    transaction: &'h Transaction,
    /// True at the place of its snapshot.
    is_view: bool,
}

/// Returns all transactions at all their places, in order. At one place a writer comes first: a
/// snapshot sees the commit that ends there.
fn turns(history: &History) -> Vec<Turn<'_>> {
    let mut turns = Vec::new();
    for (record, transaction) in history.order() {
        let End::Committed(place) = transaction.end else {
            continue;
        };
        let turn = |is_view| Turn {
            record,
            transaction,
            is_view,
        };
        if let Some(snapshot) = transaction.snapshot {
            turns.push(((snapshot, 1, transaction.ended), turn(true)));
        }
        let class = 2 * u8::from(!transaction.wrote);
        turns.push(((place, class, transaction.ended), turn(false)));
    }
    turns.sort_by_key(|(place, _)| *place);
    turns.into_iter().map(|(_, turn)| turn).collect()
}

/// Checks that no transaction comes behind one that began after it had ended: going from the end,
/// no beginning may lie after the earliest end of those behind.
///
/// A transaction that only read with locks has the end of the log as its place, and behind that
/// another's commit may be about to have its own. A snapshot that begins later need not come behind
/// it.
fn in_real_time(turns: &[Turn<'_>]) -> Result<(), Box<Anomaly>> {
    let mut earliest: [Option<(&Record, &Transaction)>; 2] = [None; 2];
    for turn in turns.iter().rev() {
        let (record, transaction) = (turn.record, turn.transaction);
        let has_snapshot = transaction.snapshot.is_some();
        let earliest_behind = earliest[usize::from(has_snapshot)];
        if let Some((other, ended)) = earliest_behind
            && ended.ended < transaction.begun
        {
            let what = format!(
                "it began after another was acknowledged, but comes before that one:\n{}",
                tell(other, ended)
            );
            return Err(Box::new(Anomaly {
                transaction: tell(record, transaction),
                step: None,
                what,
            }));
        }
        let is_exact = transaction.wrote || turn.is_view;
        for (earliest, counts) in earliest.iter_mut().zip([true, is_exact]) {
            if counts && earliest.is_none_or(|(_, ended)| transaction.ended < ended.ended) {
                *earliest = Some((record, transaction));
            }
        }
    }
    Ok(())
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
    fn a_snapshot_replays_at_its_own_place() {
        let with = |steps: &str| {
            let text = "start 1n10g3 2\nA@1: put 1n20g4\nB@3: put 2; delete 1\n";
            replay(&history(&format!("{text}{steps}")))
        };
        for right in [
            "C@1/1: get 1=A snap; get 2=S snap; groups 4..4 1=A snap; name 20=1=A snap",
            "C@3/3: get 1=- snap; scan 0..9 2=B snap; name 20=- snap",
            "C@4/1: get 1=A snap; put 3; scan 0..9 1=A 2=S 3=C snap",
            "C@4/1: save; put 3n20; name 20=3=C snap; back 0; name 20=1=A snap; get 3=- snap",
            // A read with a lock is made at the place of the commit.
            "C@4/1: get 2=S snap; get 2=B rows; put 5",
        ] {
            replay_is_right(with(right), right);
        }
        for wrong in [
            "C@1/1: get 2=B snap",
            "C@3/3: get 1=A snap",
            "C@4/1: put 3; get 3=- snap",
            "C@4/1: scan 0..9 1=A 2=B snap; put 3",
            "C@4/3: name 20=1=A snap; put 3",
        ] {
            assert!(with(wrong).is_err(), "{wrong}");
        }
    }

    fn replay_is_right(ran: Result<Rows, Box<Anomaly>>, text: &str) {
        if let Err(anomaly) = ran {
            panic!("{text}: {anomaly}");
        }
    }

    #[test]
    fn a_snapshot_that_is_older_than_its_transaction_is_noticed() {
        let stale = "start 1\nA@2 10..20: put 1\nB@1/1 30..40: get 1=S snap";
        let anomaly = replay(&history(stale)).unwrap_err().to_string();
        assert!(
            anomaly.contains("began after another was acknowledged"),
            "{anomaly}"
        );
        // The handle was taken before.
        replay(&history(
            "start 1\nA@2 10..20: put 1\nB@1/1 15..40: get 1=S snap",
        ))
        .unwrap();
    }

    #[test]
    fn indexes_and_savepoints_replay() {
        let history = history(
            "start 1n10g3 2n20g5
            A@1: put 1n10g7; groups 3..5 2=S; groups 5..9 desc 1=A 2=S; name 20=2=S
            B@2: put! 3n20 2; insert! 2; save; delete 2; put 3n20; back 0; get 3=-; name 20=2=S
            C@3: save; put 4n40; save; put 4n41; release 1; name 40=-; back 0; names 0..99 1=A 2=S
            D@4: groups 5..7 limit=1 2=S; groups 5..7 skip 1=A; groups 0..9 rows 1=A; get 1=- brief",
        );
        let end = replay(&history).unwrap();
        assert_eq!(end.into_keys().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_wrong_answer_of_an_index_is_noticed() {
        let anomalies = [
            ("a phantom in an index", "groups 3..5 1=S", "insert 7g4"),
            ("a row that came into a range", "groups 3..5 1=S", "put 2g4"),
            ("a row that left a range", "groups 3..5 1=S", "put 1g9"),
            ("a name that somebody got", "name 70=-", "put 2n70g6"),
            ("a name taken twice", "put 1n70g3", "put 2n70g6"),
            ("refused for nothing", "put! 1n20 2", "delete 2"),
            (
                "an update lost by name",
                "name 20=2=S; put 2n20g6",
                "put 2n20g6",
            ),
            (
                "rows that were not there",
                "groups 3..9 rows 1=S 2=S",
                "put 1g9",
            ),
            (
                "locked rows passed over",
                "names 0..99 skip 2=S",
                "put 2n21g6",
            ),
        ];
        for (name, reads, writes) in anomalies {
            // Each saw nothing of the other, and comes first or second.
            let text = |first: &str, second: &str| {
                history(&format!("start 1n10g3 2n20g6\nA@1: {first}\nB@2: {second}"))
            };
            assert!(
                replay(&text(writes, reads)).is_err(),
                "{name} was not noticed"
            );
        }
    }

    #[test]
    fn an_undone_write_is_not_there() {
        for seen in [
            "get 1=A",
            "groups 4..9 1=A",
            "name 20=1=A",
            "names 0..99 rows 1=A",
        ] {
            let text = format!("start 1g1\nA@1: save; put 1n20g5; back 0\nB@2: {seen}");
            assert!(replay(&history(&text)).is_err(), "{seen}");
        }
    }

    #[test]
    fn a_transaction_that_began_later_and_comes_before_is_noticed() {
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
    fn an_anomaly_names_step_and_right_answer() {
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
