//! The serial model of a case: the steps of transactions run one after the other.

use super::outcome::{Answer, Rows};
use super::script::{Case, Step};

/// Returns the value that an `add` writes, from what its transaction has read so far.
pub(crate) fn added(steps: &[Step], answers: &[Answer], key: u64, more: i64) -> i64 {
    let seen = steps.iter().zip(answers).rev();
    let seen = seen.filter_map(|(step, answer)| match (step, answer) {
        (Step::Get { key: read, .. }, Answer::Value(value)) if *read == key => Some(*value),
        (Step::Scan { .. }, Answer::Rows(rows)) => {
            let row = rows.iter().find(|(read, _)| *read == key);
            row.map(|(_, value)| Some(*value))
        }
        _ => None,
    });
    seen.flatten().next().unwrap_or(0) + more
}

/// Returns the key that a `place` writes, from what its transaction has read so far.
pub(crate) fn placed(steps: &[Step], answers: &[Answer], base: u64, by: u64) -> u64 {
    base.saturating_add_signed(added(steps, answers, by, 0))
}

/// True if a unique index, if there is one, allows `key` to have `value`.
pub(super) fn is_free(rows: &Rows, index: Option<bool>, key: u64, value: i64) -> bool {
    let taken = |(&other, &held): (&u64, &i64)| other != key && held == value;
    index != Some(true) || !rows.iter().any(taken)
}

/// Runs one transaction of `case`; returns `false` if an answer differs.
pub(crate) fn runs(case: &Case, rows: &mut Rows, steps: &[Step], answers: &[Answer]) -> bool {
    let select = |rows: &Rows, from, to| -> Vec<(u64, i64)> {
        let range = rows.range(from..=to);
        range.map(|(&key, &value)| (key, value)).collect()
    };
    let mut saved = Vec::new();
    for (index, (step, answer)) in steps.iter().zip(answers).enumerate() {
        let right = match *step {
            Step::Get { key, .. } => Answer::Value(rows.get(&key).copied()),
            Step::Scan {
                from,
                to,
                reversed,
                limit,
                ..
            } => {
                let mut found = select(rows, from, to);
                if reversed {
                    found.reverse();
                }
                found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
                Answer::Rows(found)
            }
            Step::By {
                from,
                to,
                reversed,
                limit,
                ..
            } => {
                let mut found = select(rows, 0, u64::MAX);
                found.retain(|(_, value)| (from..=to).contains(value));
                found.sort_by_key(|&(key, value)| (value, key));
                if reversed {
                    found.reverse();
                }
                found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
                Answer::Rows(found)
            }
            Step::Put(key, value) if !is_free(rows, case.index, key, value) => Answer::Exists,
            Step::Put(key, value) => {
                rows.insert(key, value);
                Answer::Done
            }
            Step::Fill(from, to, value) => {
                rows.extend((from..=to).map(|key| (key, value)));
                Answer::Done
            }
            Step::Add(key, more) => {
                rows.insert(key, added(&steps[..index], answers, key, more));
                Answer::Done
            }
            Step::Place { base, by, value } => {
                let key = placed(&steps[..index], answers, base, by);
                rows.insert(key, value);
                Answer::Done
            }
            Step::Insert(key, value)
                if rows.contains_key(&key) || !is_free(rows, case.index, key, value) =>
            {
                Answer::Exists
            }
            Step::Insert(key, value) => {
                rows.insert(key, value);
                Answer::Done
            }
            Step::Delete(key) => match rows.remove(&key) {
                Some(_) => Answer::Done,
                None => Answer::Value(None),
            },
            Step::Bump(from, to, more) => {
                let found = select(rows, from, to);
                rows.range_mut(from..=to)
                    .for_each(|(_, value)| *value += more);
                Answer::Rows(found)
            }
            Step::Cut(from, to, value) => {
                let found = select(rows, from, to);
                rows.retain(|key, old| !(from..=to).contains(key) || *old != value);
                Answer::Rows(found)
            }
            Step::Save => {
                saved.push(rows.clone());
                Answer::Done
            }
            Step::Back => {
                rows.clone_from(saved.last().expect("a savepoint comes before going back"));
                Answer::Done
            }
            Step::Table(_) | Step::Sync | Step::Commit | Step::Abort | Step::Quit => Answer::Done,
        };
        if right != *answer {
            return false;
        }
    }
    true
}
