//! The rows and their indexes, as ordered maps, and what each step does to them when it runs alone.

use super::{Rows, told};
use crate::history::{By, History, Kept, Labels, Position, Record, Scan, Step, Version, Written};
use std::collections::BTreeMap;

/// The rows, in all their orders.
pub(super) struct Model<'h> {
    pub(super) rows: Rows,
    labels: &'h Labels,
    names: BTreeMap<Position, u64>,
    groups: BTreeMap<Position, u64>,
    /// Values that the current transaction replaced, and their number at each of its savepoints.
    undo: Vec<Undo>,
    saved: Vec<usize>,
}

/// Value that a write replaced.
struct Undo {
    key: u64,
    version: Option<Version>,
    /// The row that had its name, if a snapshot has one.
    named: Option<(Position, u64)>,
}

impl<'h> Model<'h> {
    pub(super) fn new(history: &'h History) -> Model<'h> {
        let mut model = Model {
            rows: Rows::new(),
            labels: &history.labels,
            names: BTreeMap::new(),
            groups: BTreeMap::new(),
            undo: Vec::new(),
            saved: Vec::new(),
        };
        for (&key, &version) in &history.start {
            model.set(key, Some(version));
        }
        model
    }

    pub(super) fn begin(&mut self) {
        self.undo.clear();
        self.saved.clear();
    }

    /// Gives `key` a version, or none. Returns what that replaced.
    fn set(&mut self, key: u64, version: Option<Version>) -> Undo {
        let mut named = None;
        let old = match version {
            Some(version) => self.rows.insert(key, version),
            None => self.rows.remove(&key),
        };
        if *self.labels != Labels::None {
            for (by, index) in [(By::Name, &mut self.names), (By::Group, &mut self.groups)] {
                let position = |version: Version| self.labels.position(by, key, version);
                if let Some(position) = old.and_then(position) {
                    index.remove(&position);
                }
                if let Some(position) = version.and_then(position)
                    && let Some(other) = index.insert(position, key)
                {
                    named = Some((position, other));
                }
            }
        }
        Undo {
            key,
            version: old,
            named,
        }
    }

    fn write(&mut self, key: u64, version: Option<Version>) {
        let undo = self.set(key, version);
        self.undo.push(undo);
    }

    /// Undoes what the current transaction wrote, but for its first `kept` writes.
    fn undo_to(&mut self, kept: usize) {
        for undo in self.undo.split_off(kept).into_iter().rev() {
            self.set(undo.key, undo.version);
            self.names.extend(undo.named);
        }
    }

    /// Undoes what the current transaction wrote.
    pub(super) fn roll_back(&mut self) {
        self.undo_to(0);
    }

    /// Does `step` of a transaction at the place of its snapshot, and returns how its answer
    /// differs, if it is that of the snapshot. Writes are done as they were.
    pub(super) fn view_differs(&mut self, record: &Record, step: &Step) -> Option<String> {
        match *step {
            Step::Get(_, _, Kept::Snapshot)
            | Step::GetBy(_, _, Kept::Snapshot)
            | Step::Scan(Scan {
                kept: Kept::Snapshot,
                ..
            }) => self.answer_differs(record, step),
            Step::Put(key, version, Written::Done) | Step::Insert(key, version, Written::Done) => {
                self.write(key, Some(version));
                None
            }
            Step::Delete(key, true) => {
                self.write(key, None);
                None
            }
            Step::Save | Step::Back(_) | Step::Release(_) => self.answer_differs(record, step),
            _ => None,
        }
    }

    /// Does `step` of a transaction at the place of its commit, and returns how its answer differs,
    /// as far as its level promised it there.
    pub(super) fn differs(&mut self, record: &Record, step: &Step) -> Option<String> {
        match *step {
            Step::Get(_, _, Kept::Snapshot)
            | Step::GetBy(_, _, Kept::Snapshot)
            | Step::Scan(Scan {
                kept: Kept::Snapshot,
                ..
            }) => None,
            _ => self.answer_differs(record, step),
        }
    }

    /// Does `step`, and returns how its answer differs, as far as its level promised it.
    fn answer_differs(&mut self, record: &Record, step: &Step) -> Option<String> {
        match *step {
            Step::Get(key, saw, kept) => {
                let right = self.rows.get(&key).copied();
                (kept >= Kept::Rows && saw != right)
                    .then(|| format!("alone, key {key} {}", told(right)))
            }
            Step::GetBy(name, saw, kept) => {
                let row = self.names.get(&(name, 0));
                let right = row.and_then(|&key| Some((key, *self.rows.get(&key)?)));
                (kept >= Kept::Rows && saw != right).then(|| {
                    let right = right.map(|(key, version)| format!("row {key}, {version}"));
                    let right = right.unwrap_or("nobody's".to_owned());
                    format!("alone, name {name} is {right}")
                })
            }
            Step::Scan(scan) => self.scan_differs(record, &scan),
            Step::Put(key, version, end) => {
                let right = self.may_be(key, version);
                self.written_differs(key, version, end, right)
            }
            Step::Insert(key, version, end) => {
                let right = match self.rows.contains_key(&key) {
                    true => Written::Exists,
                    false => self.may_be(key, version),
                };
                self.written_differs(key, version, end, right)
            }
            Step::Delete(key, existed) => {
                let right = self.rows.get(&key).copied();
                if right.is_some() {
                    self.write(key, None);
                }
                (right.is_some() != existed).then(|| format!("alone, key {key} {}", told(right)))
            }
            Step::Save => {
                self.saved.push(self.undo.len());
                None
            }
            Step::Back(at) => {
                let at = usize::from(at);
                self.undo_to(self.saved[at]);
                self.saved.truncate(at + 1);
                None
            }
            Step::Release(at) => {
                self.saved.truncate(usize::from(at));
                None
            }
        }
    }

    /// Returns the result of giving `version` to `key`.
    fn may_be(&self, key: u64, version: Version) -> Written {
        let name = self.labels.position(By::Name, key, version);
        let holder = name.and_then(|name| self.names.get(&name));
        match holder.filter(|&&holder| holder != key) {
            Some(&holder) => Written::Taken(holder),
            None => Written::Done,
        }
    }

    fn written_differs(
        &mut self,
        key: u64,
        version: Version,
        end: Written,
        right: Written,
    ) -> Option<String> {
        if right == Written::Done {
            self.write(key, Some(version));
        }
        let here = self.rows.get(&key).copied();
        (end != right).then(|| match right {
            Written::Taken(row) => format!("alone, row {row} has the name of {version}"),
            _ => format!("alone, key {key} {}", told(here)),
        })
    }

    fn scan_differs(&self, record: &Record, scan: &Scan) -> Option<String> {
        let rows = record.rows(scan);
        let right = match (scan.kept, scan.skips) {
            (Kept::Dirty | Kept::Briefly, _) => return None,
            (Kept::Range | Kept::Snapshot, false) => {
                let right = self.select(scan);
                if right == rows {
                    return None;
                }
                right
            }
            // Rows that were not found may have been there.
            _ => {
                if self.are_there(scan, rows) {
                    return None;
                }
                self.select(scan)
            }
        };
        let right: Vec<String> = right
            .iter()
            .map(|(key, saw)| format!("{key}={saw}"))
            .collect();
        Some(format!("alone, the range has {}", right.join(" ")))
    }

    /// Returns what `scan` returns when it runs alone.
    fn select(&self, scan: &Scan) -> Vec<(u64, Version)> {
        let most = usize::try_from(scan.limit).unwrap_or(usize::MAX);
        let range = (scan.from, 0)..=(scan.to, u64::MAX);
        match scan.by {
            By::Key => {
                let rows = self.rows.range(scan.from..=scan.to);
                directed(rows, scan.reversed, most, |(&key, &version)| (key, version))
            }
            by => {
                let index = match by {
                    By::Name => &self.names,
                    _ => &self.groups,
                };
                let found = |(_, key): (&Position, &u64)| Some((*key, *self.rows.get(key)?));
                let range = index.range(range).filter_map(found);
                directed(range, scan.reversed, most, |row| row)
            }
        }
    }

    /// True if all of `rows` are there, inside the range and in its order.
    fn are_there(&self, scan: &Scan, rows: &[(u64, Version)]) -> bool {
        let positions: Option<Vec<Position>> = rows
            .iter()
            .map(|&(key, version)| {
                let is_there = self.rows.get(&key) == Some(&version);
                let position = self.labels.position(scan.by, key, version)?;
                let inside = (scan.from..=scan.to).contains(&position.0);
                (is_there && inside).then_some(position)
            })
            .collect();
        let in_order = |pair: &[Position]| (pair[0] < pair[1]) != scan.reversed;
        positions.is_some_and(|positions| positions.windows(2).all(in_order))
    }
}

/// Returns the first `most` of `items`, or the last.
fn directed<I: DoubleEndedIterator, T>(
    items: I,
    reversed: bool,
    most: usize,
    told: impl Fn(I::Item) -> T,
) -> Vec<T> {
    match reversed {
        true => items.rev().take(most).map(told).collect(),
        false => items.take(most).map(told).collect(),
    }
}
