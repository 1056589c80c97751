//! The model of a case in which some transactions read at snapshots, and whether an outcome agrees
//! with it.
//!
//! Events are tried in every order that agrees with the clock, until one explains the outcome:
//!
//! * a serializable transaction runs, all of it at once;
//! * a snapshot begins: its transaction, or all transactions that share the handle, get the answers
//!   of their plain reads, of their ranges and of their reads by an index, among their own writes
//!   so far;
//! * a transaction with a snapshot commits: its writes, and its reads of keys with locks, run at
//!   once. No row that it wrote, or that a read with a lock returned, has changed since its
//!   snapshot.

use super::alone::{added, is_free, placed, runs};
use super::outcome::{Answer, Outcome, Rows};
use super::script::{Case, Step};
use foxton::Isolation;
use std::collections::{BTreeMap, BTreeSet};

/// True if some order of events explains the outcome of `case` at `level`. Where a transaction has
/// a level that is neither `Serializable` nor `Snapshot`, nothing is judged.
pub fn is_isolated(case: &Case, outcome: &Outcome, level: Isolation) -> bool {
    let count = case.sessions.len();
    let committed = (0..count).filter(|&index| outcome.sessions[index].committed);
    let mut order = Order {
        case,
        outcome,
        snapshots: Vec::new(),
        left: BTreeSet::new(),
    };
    for session in committed {
        let snapshot = match (case.handle(session), case.level(session, level)) {
            (Some(handle), _) => Some(Begin::Handle(handle)),
            (None, Isolation::Snapshot) => Some(Begin::Transaction(session)),
            (None, Isolation::Serializable) => None,
            _ => return true,
        };
        let reads = case.sessions[session].iter().any(is_at_snapshot);
        match snapshot {
            Some(begin @ Begin::Handle(_)) => order.left.extend([Event::Begin(begin)]),
            Some(begin) if reads => {
                order
                    .left
                    .extend([Event::Begin(begin), Event::Commit(session)]);
            }
            _ => order.left.extend([Event::Commit(session)]),
        }
        order.snapshots.push((session, snapshot));
    }
    let moment = Moment {
        rows: case.start.clone(),
        changed: BTreeMap::new(),
        begun: BTreeMap::new(),
        now: 0,
    };
    order.fits(&moment)
}

/// Begin of a snapshot: of a transaction, or of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Begin {
    Transaction(usize),
    Handle(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begin(Begin),
    Commit(usize),
}

/// The rows between two events.
#[derive(Clone)]
struct Moment {
    rows: Rows,
    /// When each key was last changed.
    changed: BTreeMap<u64, usize>,
    /// When the snapshots of transactions began.
    begun: BTreeMap<usize, usize>,
    now: usize,
}

struct Order<'c> {
    case: &'c Case,
    outcome: &'c Outcome,
    /// The committed transactions, each with its snapshot.
    snapshots: Vec<(usize, Option<Begin>)>,
    /// Events to come.
    left: BTreeSet<Event>,
}

impl Order<'_> {
    /// True if some order of the events that are left explains the outcome.
    fn fits(&mut self, moment: &Moment) -> bool {
        if self.left.is_empty() {
            return moment.rows == self.outcome.end;
        }
        for event in self.left.clone() {
            self.left.remove(&event);
            let mut after = moment.clone();
            after.now += 1;
            let fits = self.may_come(event) && self.comes(event, &mut after) && self.fits(&after);
            if fits {
                return true;
            }
            self.left.insert(event);
        }
        false
    }

    /// Returns the transactions of an event.
    fn of(&self, event: Event) -> impl Iterator<Item = usize> {
        let all = self.snapshots.iter();
        all.filter(move |&&(session, snapshot)| match event {
            Event::Commit(other) => session == other,
            Event::Begin(begin) => snapshot == Some(begin),
        })
        .map(|&(session, _)| session)
    }

    /// True if `event` may be the next: its transaction has begun before any of those ended that
    /// are not over; and its snapshot has begun.
    fn may_come(&self, event: Event) -> bool {
        let begun = self
            .of(event)
            .map(|index| self.outcome.sessions[index].begun);
        let begun = begun.min().unwrap_or(0);
        let mut open = self.left.iter().flat_map(|&other| self.of(other));
        let has_begun = match event {
            Event::Commit(session) => {
                let begin = Event::Begin(Begin::Transaction(session));
                !self.left.contains(&begin)
            }
            Event::Begin(_) => true,
        };
        has_begun && open.all(|other| self.outcome.sessions[other].ended > begun)
    }

    /// Lets `event` come; returns false if an answer differs.
    fn comes(&self, event: Event, moment: &mut Moment) -> bool {
        match event {
            Event::Begin(begin) => {
                if let Begin::Transaction(session) = begin {
                    moment.begun.insert(session, moment.now);
                }
                self.of(event).all(|session| {
                    let answers = &self.outcome.sessions[session].answers;
                    let steps = &self.case.sessions[session];
                    reads(self.case, moment.rows.clone(), steps, answers)
                })
            }
            Event::Commit(session) => {
                let answers = &self.outcome.sessions[session].answers;
                let steps = &self.case.sessions[session];
                let snapshot = self.snapshots.iter().find(|(other, _)| *other == session);
                if snapshot.is_some_and(|(_, snapshot)| snapshot.is_some()) {
                    let begun = moment.begun.get(&session).copied();
                    return commits(self.case, moment, begun, (steps, answers));
                }
                let before = moment.rows.clone();
                let fits = runs(self.case, &mut moment.rows, steps, answers);
                for key in before.keys().chain(moment.rows.keys()) {
                    if before.get(key) != moment.rows.get(key) {
                        moment.changed.insert(*key, moment.now);
                    }
                }
                fits
            }
        }
    }
}

/// True for a read that finds its rows at a snapshot.
fn is_at_snapshot(step: &Step) -> bool {
    matches!(
        step,
        Step::Get { update: false, .. }
            | Step::Scan { .. }
            | Step::By { .. }
            | Step::Bump(..)
            | Step::Cut(..)
    )
}

/// Rows of a range, in its order.
fn select(found: impl Iterator<Item = (u64, i64)>, reversed: bool, limit: u64) -> Vec<(u64, i64)> {
    let mut found: Vec<_> = found.collect();
    if reversed {
        found.reverse();
    }
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    found
}

/// Returns what a step that writes does to keys, by its answer.
fn writes(steps: &[Step], answers: &[Answer], at: usize) -> Vec<(u64, Option<i64>)> {
    let added = |key, more| added(&steps[..at], answers, key, more);
    let rows = match &answers[at] {
        Answer::Rows(rows) => &rows[..],
        Answer::Done => &[],
        Answer::Value(_) | Answer::Exists => return Vec::new(),
    };
    match steps[at] {
        Step::Put(key, value) | Step::Insert(key, value) => vec![(key, Some(value))],
        Step::Add(key, more) => vec![(key, Some(added(key, more)))],
        Step::Place { base, by, value } => {
            let key = placed(&steps[..at], answers, base, by);
            vec![(key, Some(value))]
        }
        Step::Delete(key) => vec![(key, None)],
        Step::Fill(from, to, value) => (from..=to).map(|key| (key, Some(value))).collect(),
        Step::Bump(_, _, more) => {
            let more = rows.iter().map(|&(key, value)| (key, Some(value + more)));
            more.collect()
        }
        Step::Cut(_, _, value) => {
            let cut = rows.iter().filter(|(_, old)| *old == value);
            cut.map(|&(key, _)| (key, None)).collect()
        }
        _ => Vec::new(),
    }
}

fn set(rows: &mut Rows, key: u64, value: Option<i64>) {
    match value {
        Some(value) => rows.insert(key, value),
        None => rows.remove(&key),
    };
}

/// True if what a transaction read at its snapshot, which has these rows, got its answers.
fn reads(case: &Case, mut rows: Rows, steps: &[Step], answers: &[Answer]) -> bool {
    let mut own = BTreeSet::new();
    let mut saved = Vec::new();
    for (at, (step, answer)) in steps.iter().zip(answers).enumerate() {
        let right = match *step {
            Step::Get { key, update: false } => Answer::Value(rows.get(&key).copied()),
            Step::Scan {
                from,
                to,
                reversed,
                limit,
                ..
            } => {
                let range = rows.range(from..=to).map(|(&key, &value)| (key, value));
                Answer::Rows(select(range, reversed, limit))
            }
            Step::Bump(from, to, _) | Step::Cut(from, to, _) => {
                let range = rows.range(from..=to).map(|(&key, &value)| (key, value));
                Answer::Rows(range.collect())
            }
            Step::By {
                from,
                to,
                reversed,
                limit,
                ..
            } => {
                // A value that the transaction has given to one of its rows leads there.
                let owner = |value: i64| own.iter().find(|key| rows.get(key) == Some(&value));
                let is_hidden = |key: u64, value: i64| {
                    case.index == Some(true) && owner(value).is_some_and(|&owner| owner != key)
                };
                let rows = rows.iter().map(|(&key, &value)| (key, value));
                let found = rows
                    .filter(|&(key, value)| (from..=to).contains(&value) && !is_hidden(key, value));
                let mut found: Vec<_> = found.collect();
                found.sort_by_key(|&(key, value)| (value, key));
                Answer::Rows(select(found.into_iter(), reversed, limit))
            }
            Step::Save => {
                saved.push(rows.clone());
                continue;
            }
            Step::Back => {
                rows.clone_from(saved.last().expect("a savepoint comes before going back"));
                continue;
            }
            _ => answer.clone(),
        };
        if right != *answer {
            return false;
        }
        for (key, value) in writes(steps, answers, at) {
            own.insert(key);
            set(&mut rows, key, value);
        }
    }
    true
}

/// Commits a transaction whose snapshot began at `begun`, if it has one. Returns false if the
/// answer of a write or of a read with locks differs. Returns false, too, if a row has changed that
/// it wrote or locked.
fn commits(
    case: &Case,
    moment: &mut Moment,
    begun: Option<usize>,
    (steps, answers): (&[Step], &[Answer]),
) -> bool {
    let Moment {
        rows, changed, now, ..
    } = moment;
    let (mut locked, mut written) = (BTreeSet::new(), BTreeSet::new());
    let mut saved = Vec::new();
    for (at, (step, answer)) in steps.iter().zip(answers).enumerate() {
        let fits = match (step, answer) {
            (Step::Get { key, update: true }, answer) => {
                locked.insert(*key);
                *answer == Answer::Value(rows.get(key).copied())
            }
            (
                Step::Scan { update: true, .. }
                | Step::By { update: true, .. }
                | Step::Bump(..)
                | Step::Cut(..),
                Answer::Rows(found),
            ) => {
                locked.extend(found.iter().map(|(key, _)| *key));
                let mut found = found.iter();
                found.all(|(key, value)| rows.get(key) == Some(value))
            }
            (Step::Insert(key, value), answer) => {
                locked.insert(*key);
                let may = !rows.contains_key(key) && is_free(rows, case.index, *key, *value);
                (*answer == Answer::Done) == may
            }
            (Step::Put(key, value), answer) => {
                locked.insert(*key);
                (*answer == Answer::Done) == is_free(rows, case.index, *key, *value)
            }
            (Step::Delete(key), answer) => {
                locked.insert(*key);
                (*answer == Answer::Done) == rows.contains_key(key)
            }
            (Step::Save, _) => {
                saved.push(rows.clone());
                true
            }
            (Step::Back, _) => {
                rows.clone_from(saved.last().expect("a savepoint comes before going back"));
                true
            }
            _ => true,
        };
        if !fits {
            return false;
        }
        for (key, value) in writes(steps, answers, at) {
            written.insert(key);
            set(rows, key, value);
        }
    }
    locked.extend(&written);
    let since = |key: &u64| changed.get(key).copied().unwrap_or(0);
    let is_overwritten = |begun| locked.iter().any(|key| since(key) > begun);
    if begun.is_some_and(is_overwritten) {
        return false;
    }
    changed.extend(written.iter().map(|key| (*key, *now)));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Played;

    /// Returns the outcome of committed transactions that ran side by side.
    fn outcome(answers: &[&[Answer]], end: &[(u64, i64)]) -> Outcome {
        let session = |answers: &&[Answer]| Played {
            committed: true,
            answers: answers.to_vec(),
            begun: 0,
            ended: 100,
        };
        Outcome {
            sessions: answers.iter().map(session).collect(),
            end: end.iter().copied().collect(),
        }
    }

    const DONE: Answer = Answer::Done;

    fn value(value: i64) -> Answer {
        Answer::Value(Some(value))
    }

    #[test]
    fn write_skew_is_isolated_and_not_serializable() {
        let text = "start 1=10 2=20\nT1 get 2; put 1 11; commit\nT2 get 1; put 2 21; commit";
        let case = Case::parse(text).unwrap();
        let end = [(1, 11), (2, 21)];
        let skew = outcome(&[&[value(20), DONE, DONE], &[value(10), DONE, DONE]], &end);
        assert!(is_isolated(&case, &skew, Isolation::Snapshot));
        assert!(!is_isolated(&case, &skew, Isolation::Serializable));
        let mut later = skew.clone();
        later.sessions[1].begun = 101;
        assert!(
            !is_isolated(&case, &later, Isolation::Snapshot),
            "it began after the other had ended, and did not see it"
        );
    }

    #[test]
    fn a_lost_update_and_a_read_skew_are_not_isolated() {
        let text = "start 1=10 2=20\nT1 get 1; put 1 11; commit\nT2 get 1; put 1 12; commit";
        let case = Case::parse(text).unwrap();
        let end = [(1, 12), (2, 20)];
        let lost = outcome(&[&[value(10), DONE, DONE], &[value(10), DONE, DONE]], &end);
        assert!(!is_isolated(&case, &lost, Isolation::Snapshot));
        let seen = outcome(&[&[value(10), DONE, DONE], &[value(11), DONE, DONE]], &end);
        assert!(is_isolated(&case, &seen, Isolation::Snapshot));

        let text = "start 1=10 2=20\nT1 get 1; get 2; commit\nT2 put 1 11; put 2 21; commit";
        let case = Case::parse(text).unwrap();
        let end = [(1, 11), (2, 21)];
        let skewed = outcome(&[&[value(10), value(21), DONE], &[DONE, DONE, DONE]], &end);
        assert!(!is_isolated(&case, &skewed, Isolation::Snapshot));
    }

    #[test]
    fn readers_at_one_handle_see_one_moment() {
        let text =
            "start 1=10\nhandle T1 T2\nT1 get 1; commit\nT2 get 1; commit\nT3 put 1 11; commit";
        let case = Case::parse(text).unwrap();
        let read = |one, other| {
            let answers: [&[Answer]; 3] =
                [&[value(one), DONE], &[value(other), DONE], &[DONE, DONE]];
            is_isolated(
                &case,
                &outcome(&answers, &[(1, 11)]),
                Isolation::Serializable,
            )
        };
        assert!(read(10, 10) && read(11, 11) && !read(10, 11));
    }
}
