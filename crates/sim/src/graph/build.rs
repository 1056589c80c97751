//! Building the graph: from reads and writes to dependencies.
//!
//! A value that was read names its writer. That a key was *absent* says less, because it may have
//! been absent several times while the reader ran. The reader then comes after the deletion before
//! the first of these times, and before the write after the last one, and no more is known. If the
//! key was never absent while it ran, the reader saw the last absence before its own place.
//!
//! A range depends on every key between its ends that was ever there, as far as it was read: a
//! limit ends it at its last row. In an index, a key is *there* while its row has a label between
//! the ends. So a row that moves between the ends changes nothing, and a row that moves across an
//! end appears or disappears.
//!
//! # Snapshots
//!
//! A read at a snapshot saw one state of each key: the last one whose place is not above that of
//! the snapshot. So a history with the places of snapshots needs no search for Adya's
//! *interference* (G-SIa) and *missed effects* (G-SIb). Commits are in the order of their places,
//! and each dependency leads from one to a later one. So a circle with one anti-dependency, of a
//! reader at a snapshot, has an edge that contradicts the reader's place by itself. A transaction
//! that wrote, too, does not promise that what it read stays as it was.
//!
//! Where gaps were not locked, a row that moves in an index while a range is read may be read twice
//! or not at all, although it was there all the time. No dependency follows then.

use super::edge::{Edge, Kind};
use super::versions::{self, Node, Nodes, START, State, Versions};
use super::{Class, Direct, Scope};
use crate::history::{
    By, End, History, Kept, Labels, Position, Record, Scan, Step, Transaction, Version, Writer,
    Written,
};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The dependencies found so far, and the state of the current transaction.
pub(crate) struct Build<'h> {
    order: &'h [(&'h Record, &'h Transaction)],
    nodes: &'h Nodes,
    versions: &'h Versions,
    labels: &'h Labels,
    scope: Scope,
    pub(crate) edges: Vec<(Node, Edge)>,
    pub(crate) direct: Vec<Direct>,
    /// The current transaction, and its writes so far.
    node: Node,
    writer: Writer,
    own: BTreeMap<u64, Option<Version>>,
    /// The names that its writes have given to rows.
    own_names: BTreeSet<u64>,
    /// The states that its writes replaced there, and how many there were at each savepoint.
    undo: Vec<(u64, Option<Option<Version>>)>,
    saved: Vec<usize>,
    /// How long the read of the current step must stay valid.
    kept: Kept,
    /// The place of the current transaction's snapshot, and whether it wrote.
    snapshot: Option<u64>,
    wrote: bool,
    /// Buffer for indexes of keys.
    keys: Vec<usize>,
}

/// A range in one order, both ends included.
#[derive(Clone, Copy)]
struct Stretch {
    by: By,
    from: Position,
    to: Position,
    /// True if one name or key was asked for, and is locked as such.
    is_one: bool,
}

impl<'h> Build<'h> {
    pub(crate) fn new(
        history: &'h History,
        order: &'h [(&'h Record, &'h Transaction)],
        nodes: &'h Nodes,
        versions: &'h Versions,
        scope: Scope,
    ) -> Build<'h> {
        Build {
            order,
            nodes,
            versions,
            labels: &history.labels,
            scope,
            edges: Vec::new(),
            direct: Vec::new(),
            node: START,
            writer: Writer {
                client: 0,
                number: 0,
            },
            own: BTreeMap::new(),
            own_names: BTreeSet::new(),
            undo: Vec::new(),
            saved: Vec::new(),
            kept: Kept::Range,
            snapshot: None,
            wrote: false,
            keys: Vec::new(),
        }
    }

    /// Returns the place of the transaction that made a state.
    fn place(&self, node: Node) -> u64 {
        match node {
            START => 0,
            node => match self.order[node as usize - 1].1.end {
                End::Committed(place) => place,
                End::RolledBack => unreachable!("only committed transactions are nodes"),
            },
        }
    }

    /// Returns the index of the state that the current transaction's snapshot has, if the current
    /// step has read there.
    fn at_snapshot(&self, states: &[State]) -> Option<usize> {
        let snapshot = self.snapshot.filter(|_| self.kept == Kept::Snapshot)?;
        let before = states.partition_point(|state| self.place(state.node) <= snapshot);
        before.checked_sub(1)
    }

    /// The writer of a version depends on the writer of the version before.
    pub(crate) fn writes(&mut self) {
        for index in self.versions.keys() {
            for at in 1..self.versions.states(index).len() {
                let states = self.versions.states(index);
                let (before, new) = (states[self.before(states, at)], states[at]);
                let edge = Edge {
                    to: new.node,
                    kind: Kind::Wrote,
                    key: self.versions.key(index),
                    step: before.step,
                    step_to: new.step,
                };
                self.add(before.node, edge);
            }
            for at in 1..self.versions.states(index).len() {
                self.overwrites(index, at);
            }
        }
    }

    /// Returns which of `states` the state `at` has overwritten. To a transaction that has read at
    /// a snapshot, a row that came and went in one transaction is as it was before.
    fn before(&self, states: &[State], at: usize) -> usize {
        let writer = (states[at].node as usize).checked_sub(1);
        let is_at_snapshot = writer.is_some_and(|writer| self.order[writer].1.snapshot.is_some());
        let mut before = at - 1;
        while is_at_snapshot
            && before > 0
            && states[before].version.is_none()
            && states[before - 1].version.is_none()
        {
            before -= 1;
        }
        before
    }

    /// A transaction that has read at a snapshot overwrites nothing that is younger than that. A
    /// row that came and went in one transaction leaves nothing to be overwritten.
    fn overwrites(&mut self, index: usize, at: usize) {
        let states = self.versions.states(index);
        let new = states[at];
        let Some(writer) = (new.node as usize).checked_sub(1) else {
            return;
        };
        let writer = self.order[writer].1;
        let Some(snapshot) = writer.snapshot else {
            return;
        };
        let seen = states.partition_point(|state| self.place(state.node) <= snapshot);
        let since = states.get(seen.saturating_sub(1)..at).unwrap_or_default();
        if since.len() > 1 && since.iter().any(|state| state.version.is_some()) {
            self.direct.push(Direct {
                class: Class::GSia,
                reader: writer.writer,
                step: new.step,
                key: self.versions.key(index),
                saw: states[at - 1].version,
            });
        }
    }

    /// Adds the dependencies of all reads of `transaction`.
    pub(crate) fn reads(&mut self, node: Node, record: &Record, transaction: &Transaction) {
        (self.node, self.writer) = (node, transaction.writer);
        (self.snapshot, self.wrote) = (transaction.snapshot, transaction.wrote);
        self.own.clear();
        self.own_names.clear();
        self.undo.clear();
        self.saved.clear();
        for (step, number) in record.steps(transaction).iter().zip(0..) {
            // A row found by a write is locked like a written one.
            self.kept = match step {
                Step::Get(_, _, kept) | Step::GetBy(_, _, kept) => *kept,
                Step::Scan(scan) => scan.kept,
                _ => Kept::Rows,
            };
            match *step {
                Step::Get(key, saw, _) => self.saw(number, key, saw),
                Step::GetBy(name, saw, _) => {
                    if let Some((key, version)) = saw {
                        self.saw(number, key, Some(version));
                    } else {
                        self.missed(number, Stretch::one(By::Name, name), &[], None);
                    }
                }
                Step::Scan(scan) => self.scan(number, &scan, record.rows(&scan)),
                Step::Put(key, version, Written::Done) => {
                    self.was_free(number, key, version);
                    self.write(key, Some(version));
                }
                Step::Insert(key, version, Written::Done) => {
                    self.saw(number, key, None);
                    self.was_free(number, key, version);
                    self.write(key, Some(version));
                }
                Step::Insert(key, _, Written::Taken(_)) => self.saw(number, key, None),
                // These do not say what was there.
                Step::Put(..) | Step::Insert(..) => {}
                Step::Delete(key, true) => self.write(key, None),
                Step::Delete(key, false) => self.saw(number, key, None),
                Step::Save => self.saved.push(self.undo.len()),
                Step::Back(at) => self.back(usize::from(at)),
                Step::Release(at) => self.saved.truncate(usize::from(at)),
            }
        }
    }

    fn write(&mut self, key: u64, version: Option<Version>) {
        let name = version.and_then(|version| self.name(key, version));
        self.own_names.extend(name);
        let old = self.own.insert(key, version);
        self.undo.push((key, old));
    }

    fn back(&mut self, at: usize) {
        for (key, old) in self.undo.split_off(self.saved[at]).into_iter().rev() {
            match old {
                Some(old) => self.own.insert(key, old),
                None => self.own.remove(&key),
            };
        }
        self.saved.truncate(at + 1);
    }

    /// Returns the name of the row `key` while it has `version`.
    fn name(&self, key: u64, version: Version) -> Option<u64> {
        let position = self.labels.position(By::Name, key, version)?;
        Some(position.0)
    }

    /// No other row had the name that the row `key` got. If the transaction has read at a snapshot,
    /// another may have had it there.
    fn was_free(&mut self, step: u16, key: u64, version: Version) {
        if self.snapshot.is_some() {
            return;
        }
        if let Some((name, _)) = self.labels.position(By::Name, key, version) {
            self.missed(step, Stretch::one(By::Name, name), &[], Some(key));
        }
    }

    fn scan(&mut self, step: u16, scan: &Scan, rows: &[(u64, Version)]) {
        let mut stretch = Stretch {
            by: scan.by,
            from: (scan.from, 0),
            to: (scan.to, u64::MAX),
            is_one: false,
        };
        if scan.row_count() == scan.limit {
            let position = |&(key, version): &(u64, Version)| {
                let position = self.labels.position(scan.by, key, version);
                position.unwrap_or(stretch.from)
            };
            let last = rows.last().map_or(stretch.from, position);
            match scan.reversed {
                true => stretch.from = last,
                false => stretch.to = last,
            }
        }
        for &(key, version) in rows {
            self.saw(step, key, Some(version));
        }
        // Rows may have moved in the index during a read without locks, so its end is not exact.
        let is_vague = scan.kept == Kept::Dirty && scan.by != By::Key;
        if !scan.skips && !is_vague {
            self.missed(step, stretch, rows, None);
        }
    }

    /// Keys of this stretch that are not in `rows` were absent; `but` need not have been.
    fn missed(&mut self, step: u16, stretch: Stretch, rows: &[(u64, Version)], but: Option<u64>) {
        let mut seen: Vec<u64> = rows.iter().map(|(key, _)| *key).collect();
        seen.extend(but);
        seen.sort_unstable();
        let own: Vec<(u64, Option<Version>)> = self.own.iter().map(|(k, v)| (*k, *v)).collect();
        for &(key, version) in &own {
            if stretch.has(self.labels, key, version) && seen.binary_search(&key).is_err() {
                self.blame(Class::Internal, step, key, None);
            }
        }
        let mut keys = std::mem::take(&mut self.keys);
        self.versions
            .between(stretch.by, stretch.from, stretch.to, &mut keys);
        // At a snapshot, a name that the transaction has given to a row of its own leads there.
        let is_hidden = |index: usize| {
            let key = self.versions.key(index);
            let states = self.versions.states(index).iter();
            let mut names = states.filter_map(|state| self.name(key, state.version?));
            stretch.by == By::Name
                && self.kept == Kept::Snapshot
                && names.any(|name| self.own_names.contains(&name))
        };
        keys.retain(|&index| !is_hidden(index));
        for &index in &keys {
            let key = self.versions.key(index);
            if seen.binary_search(&key).is_err() && !self.own.contains_key(&key) {
                self.absent(step, index, stretch);
            }
        }
        self.keys = keys;
    }

    fn saw(&mut self, step: u16, key: u64, saw: Option<Version>) {
        if let Some(own) = self.own.get(&key) {
            if *own != saw {
                self.blame(Class::Internal, step, key, saw);
            }
            return;
        }
        match (saw, self.versions.find(key)) {
            (Some(version), _) => self.present(step, key, version),
            (None, Some(index)) => self.absent(step, index, Stretch::one(By::Key, key)),
            (None, None) => {}
        }
    }

    fn present(&mut self, step: u16, key: u64, version: Version) {
        let states = self.versions.find(key);
        let states = states.map_or(&[][..], |index| self.versions.states(index));
        let node = self.nodes.of(version.writer());
        let at = versions::at(states, node.unwrap_or(START));
        let exact = at.filter(|&at| states[at].version == Some(version));
        if let (Some(at), Some(right)) = (exact, self.at_snapshot(states)) {
            match at.cmp(&right) {
                Ordering::Less => self.blame(Class::GSib, step, key, Some(version)),
                Ordering::Equal => {}
                Ordering::Greater => self.blame(Class::GSia, step, key, Some(version)),
            }
        }
        if exact.is_none() {
            let class = match node {
                Some(_) => Class::G1b,
                None => Class::G1a,
            };
            self.blame(class, step, key, Some(version));
        }
        // Of the start, only rows that were there then; of others, also what they wrote in between.
        let at = at.filter(|_| node.is_some() || exact.is_some());
        if let Some(at) = at {
            self.depends(step, key, states, [at, at], false);
        }
    }

    /// The key, which was in the stretch at some time, was absent from it.
    fn absent(&mut self, step: u16, index: usize, stretch: Stretch) {
        let (key, states) = (self.versions.key(index), self.versions.states(index));
        let is_absent = |at: usize| !stretch.has(self.labels, key, states[at].version);
        let is_key = stretch.by == By::Key;
        if !is_key && self.kept < Kept::Range && !stretch.is_one && self.moves(states, is_absent) {
            return;
        }
        let at_snapshot = self.at_snapshot(states);
        if at_snapshot.is_some_and(|at| !is_absent(at)) {
            self.blame(Class::GSib, step, key, None);
        }
        // A row that came and went in one transaction leaves nothing to be overwritten.
        let at_snapshot = at_snapshot.filter(|&at| is_absent(at)).map(|at| {
            let same = (at..states.len()).take_while(|&at| is_absent(at));
            [at, same.last().unwrap_or(at)]
        });
        match at_snapshot.or_else(|| self.when_absent(states, is_absent)) {
            Some([mut first, mut last]) => {
                // The key may have been absent in several states that follow each other; each
                // explains the read.
                while !is_key && first > 0 && is_absent(first - 1) {
                    first -= 1;
                }
                while !is_key && last + 1 < states.len() && is_absent(last + 1) {
                    last += 1;
                }
                self.depends(step, key, states, [first, last], !stretch.is_one);
            }
            // Only a transaction that did not commit can have deleted it.
            None => self.blame(Class::G1a, step, key, None),
        }
    }

    /// Returns when the transaction that made a state began and ended.
    fn times(&self, state: State) -> (u64, u64) {
        match state.node {
            START => (0, 0),
            node => {
                let each = self.order[node as usize - 1].1;
                (each.begun, each.ended)
            }
        }
    }

    /// True if a row moved inside a stretch while the current transaction ran.
    fn moves(&self, states: &[State], is_absent: impl Fn(usize) -> bool) -> bool {
        let reader = self.order[self.node as usize - 1].1;
        (1..states.len()).any(|at| {
            let (begun, ended) = self.times(states[at]);
            ended >= reader.begun && begun <= reader.ended && !is_absent(at) && !is_absent(at - 1)
        })
    }

    /// Returns the first and the last of `states` without the key that the current transaction can
    /// have seen.
    fn when_absent(
        &self,
        states: &[State],
        is_absent: impl Fn(usize) -> bool,
    ) -> Option<[usize; 2]> {
        let reader = self.order[self.node as usize - 1].1;
        let own = states.partition_point(|state| state.node < self.node);
        let is_absent = |at: &usize| is_absent(*at);
        // Backwards until the next state was complete before the reader began, and forwards while a
        // state was begun before the reader ended.
        let back = (0..own).rev();
        let back = back.take_while(|&at| {
            at + 1 == states.len() || self.times(states[at + 1]).1 >= reader.begun
        });
        let ahead = (own..states.len()).take_while(|&at| self.times(states[at]).0 <= reader.ended);
        let first = back.filter(is_absent).last();
        let first = first.or_else(|| ahead.clone().find(is_absent));
        let Some(first) = first else {
            let before = (0..own).rev().find(is_absent);
            let at = before.or_else(|| (0..states.len()).find(is_absent));
            return at.map(|at| [at, at]);
        };
        let last = ahead.filter(is_absent).last();
        let last = last.or_else(|| (first..own).rev().find(is_absent));
        Some([first, last.unwrap_or(first)])
    }

    /// The current transaction saw one of two states of a key, or one between: it comes after the
    /// first, and before the one that follows the last.
    fn depends(
        &mut self,
        step: u16,
        key: u64,
        states: &[State],
        [first, last]: [usize; 2],
        in_range: bool,
    ) {
        let (saw, missed) = match in_range {
            true => (Kind::ReadRange, Kind::Appeared),
            false => (Kind::Read, Kind::Overwrote),
        };
        let node = self.node;
        let from = states[first];
        let edge = Edge {
            to: node,
            kind: saw,
            key,
            step: from.step,
            step_to: step,
        };
        self.add(from.node, edge);
        if let Some(next) = states.get(last + 1) {
            let edge = Edge {
                to: next.node,
                kind: missed,
                key,
                step,
                step_to: next.step,
            };
            self.add(node, edge);
        }
    }

    /// Adds an edge. Nothing depends on itself, and everything depends on the start.
    fn add(&mut self, from: Node, edge: Edge) {
        if from != START && edge.to != START && from != edge.to && self.counts(edge.kind) {
            self.edges.push((from, edge));
        }
    }

    /// True if the level of the transaction promises dependencies of this kind for the current
    /// step.
    fn counts(&self, kind: Kind) -> bool {
        let needed = match kind {
            Kind::Wrote | Kind::Earlier => return true,
            Kind::Read | Kind::ReadRange => Kept::Briefly,
            Kind::Overwrote => Kept::Rows,
            Kind::Appeared => Kept::Range,
        };
        let is_promised = match self.kept {
            // Write skew is: another may overwrite what a writer has read.
            Kept::Snapshot => !kind.is_anti() || !self.wrote,
            kept => kept >= needed,
        };
        self.scope == Scope::All || is_promised
    }

    fn blame(&mut self, class: Class, step: u16, key: u64, saw: Option<Version>) {
        if self.scope == Scope::Promised && class != Class::Internal && self.kept == Kept::Dirty {
            return;
        }
        self.direct.push(Direct {
            class,
            reader: self.writer,
            step,
            key,
            saw,
        });
    }
}

impl Stretch {
    fn one(by: By, what: u64) -> Stretch {
        Stretch {
            by,
            from: (what, 0),
            to: (what, u64::MAX),
            is_one: true,
        }
    }

    /// True if the row `key` is in the stretch while it has `version`.
    fn has(&self, labels: &Labels, key: u64, version: Option<Version>) -> bool {
        let position = version.and_then(|version| labels.position(self.by, key, version));
        position.is_some_and(|position| self.from <= position && position <= self.to)
    }
}

/// A transaction that was acknowledged before another began comes first. A line of moments, each
/// after the one before, represents all of these edges: a transaction leads to the moment of its
/// end, and the last moment before its beginning leads to it. Returns the number of moments. Their
/// nodes follow those of the transactions, the first of which is `first`.
pub(crate) fn real_time(
    order: &[(&Record, &Transaction)],
    first: Node,
    edges: &mut Vec<(Node, Edge)>,
) -> usize {
    let mut ends: Vec<(u64, Node)> = order
        .iter()
        .zip(1..)
        .map(|((_, each), node)| (each.ended, node))
        .collect();
    ends.sort();
    let edge = |to| Edge {
        to,
        kind: Kind::Earlier,
        key: 0,
        step: 0,
        step_to: 0,
    };
    for (&(_, node), moment) in ends.iter().zip(first..) {
        edges.push((node, edge(moment)));
        if moment > first {
            edges.push((moment - 1, edge(moment)));
        }
    }
    for ((_, each), node) in order.iter().zip(1..) {
        let before = ends.partition_point(|(ended, _)| *ended < each.begun);
        if before > 0 {
            edges.push((first + before as u32 - 1, edge(node)));
        }
    }
    ends.len()
}
