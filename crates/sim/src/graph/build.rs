//! From what was read and written to who depends on whom.
//!
//! A value that was read says who wrote it. That something was *absent* says less: it may have been
//! absent several times. We take the last time before the reader's own place, else the first; so a reader
//! that was right is never blamed, and one that was wrong is blamed for as little as explains it.
//!
//! A range depends on every key between its ends that was ever there, as far as it was read: a limit
//! ends it at its last row.

use super::edge::{Edge, Kind};
use super::versions::{Node, Nodes, START, State, Versions};
use super::{Class, Direct};
use crate::history::{Record, Scan, Step, Transaction, Version, Writer};
use std::collections::BTreeMap;

/// Who depends on whom, as it is found out.
pub(crate) struct Build<'h> {
    nodes: &'h Nodes,
    versions: &'h Versions,
    pub(crate) edges: Vec<(Node, Edge)>,
    pub(crate) direct: Vec<Direct>,
    /// The transaction at hand, and what it wrote so far.
    node: Node,
    writer: Writer,
    own: BTreeMap<u64, Option<Version>>,
}

impl<'h> Build<'h> {
    pub(crate) fn new(nodes: &'h Nodes, versions: &'h Versions) -> Build<'h> {
        Build {
            nodes,
            versions,
            edges: Vec::new(),
            direct: Vec::new(),
            node: START,
            writer: Writer {
                client: 0,
                number: 0,
            },
            own: BTreeMap::new(),
        }
    }

    /// Whoever wrote a version depends on whoever wrote the one before.
    pub(crate) fn writes(&mut self) {
        for index in self.versions.keys() {
            for pair in self.versions.states(index).windows(2) {
                let edge = Edge {
                    to: pair[1].node,
                    kind: Kind::Wrote,
                    key: self.versions.key(index),
                    step: pair[0].step,
                    step_to: pair[1].step,
                };
                self.add(pair[0].node, edge);
            }
        }
    }

    /// Everything that `transaction` read.
    pub(crate) fn reads(&mut self, node: Node, record: &Record, transaction: &Transaction) {
        (self.node, self.writer) = (node, transaction.writer);
        self.own.clear();
        for (step, number) in record.steps(transaction).iter().zip(0..) {
            match *step {
                Step::Get(key, saw) => self.saw(number, key, saw, false),
                Step::Scan(scan) => self.scan(number, &scan, record.rows(&scan)),
                Step::Put(key, version) => {
                    self.own.insert(key, Some(version));
                }
                Step::Insert(key, version, true) => {
                    self.saw(number, key, None, false);
                    self.own.insert(key, Some(version));
                }
                // What was there, nobody said.
                Step::Insert(_, _, false) => {}
                Step::Delete(key, true) => {
                    self.own.insert(key, None);
                }
                Step::Delete(key, false) => self.saw(number, key, None, false),
            }
        }
    }

    fn scan(&mut self, step: u16, scan: &Scan, rows: &[(u64, Version)]) {
        let (mut from, mut to) = (scan.from, scan.to);
        if scan.row_count() == scan.limit {
            let last = rows.last().map_or(from, |(key, _)| *key);
            match scan.reversed {
                true => from = last,
                false => to = last,
            }
        }
        let rows: BTreeMap<u64, Version> = rows.iter().copied().collect();
        for (&key, &version) in &rows {
            self.saw(step, key, Some(version), true);
        }
        for index in self.versions.between(from, to) {
            let key = self.versions.key(index);
            if !rows.contains_key(&key) {
                self.saw(step, key, None, true);
            }
        }
    }

    fn saw(&mut self, step: u16, key: u64, saw: Option<Version>, in_range: bool) {
        if let Some(own) = self.own.get(&key) {
            if *own != saw {
                self.blame(Class::Internal, step, key, saw);
            }
            return;
        }
        match saw {
            Some(version) => self.present(step, key, version),
            None => self.absent(step, key, in_range),
        }
    }

    fn present(&mut self, step: u16, key: u64, version: Version) {
        let states = self
            .versions
            .find(key)
            .map(|index| self.versions.states(index));
        let states = states.unwrap_or_default();
        if let Some(at) = states
            .iter()
            .position(|state| state.version == Some(version))
        {
            return self.depends(step, key, states, at, false);
        }
        let Some(node) = self.nodes.of(version.writer()) else {
            return self.blame(Class::G1a, step, key, Some(version));
        };
        self.blame(Class::G1b, step, key, Some(version));
        if let Some(at) = states.iter().position(|state| state.node == node) {
            self.depends(step, key, states, at, false);
        }
    }

    fn absent(&mut self, step: u16, key: u64, in_range: bool) {
        let Some(index) = self.versions.find(key) else {
            return;
        };
        let states = self.versions.states(index);
        let is_absent = |state: &State| state.version.is_none();
        let before = states
            .iter()
            .rposition(|state| is_absent(state) && state.node < self.node);
        let at = before.or_else(|| states.iter().position(is_absent));
        match at {
            Some(at) => self.depends(step, key, states, at, in_range),
            // Only somebody who did not commit can have taken it away.
            None => self.blame(Class::G1a, step, key, None),
        }
    }

    /// The transaction at hand saw state `at` of a key, and so not the one after it.
    fn depends(&mut self, step: u16, key: u64, states: &[State], at: usize, in_range: bool) {
        let (saw, missed) = match in_range {
            true => (Kind::ReadRange, Kind::Appeared),
            false => (Kind::Read, Kind::Overwrote),
        };
        let node = self.node;
        let from = states[at];
        if from.node != node {
            let edge = Edge {
                to: node,
                kind: saw,
                key,
                step: from.step,
                step_to: step,
            };
            self.add(from.node, edge);
        }
        if let Some(next) = states.get(at + 1) {
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

    /// Nothing depends on oneself, and everything on what was there before.
    fn add(&mut self, from: Node, edge: Edge) {
        if from != START && edge.to != START && from != edge.to {
            self.edges.push((from, edge));
        }
    }

    fn blame(&mut self, class: Class, step: u16, key: u64, saw: Option<Version>) {
        self.direct.push(Direct {
            class,
            reader: self.writer,
            step,
            key,
            saw,
        });
    }
}

/// Whoever was acknowledged before another began comes first. A line of moments, each after the one
/// before, stands for all of these: a transaction leads to the moment of its end, and the last
/// moment before its beginning leads to it. Returns how many moments there are; they follow the
/// transactions, the first of which is `first`.
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
