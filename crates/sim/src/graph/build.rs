//! From what was read and written to who depends on whom.
//!
//! A value that was read says who wrote it. That something was *absent* says less: it may have been
//! absent several times while the reader ran. Then it surely comes after whoever took it away before the first
//! of these times, and before whoever put it back after the last, and no more is said. Where nothing was
//! absent while it ran, what it saw is the last time before its own place.
//!
//! A range depends on every key between its ends that was ever there, as far as it was read: a limit
//! ends it at its last row.

use super::edge::{Edge, Kind};
use super::versions::{self, Node, Nodes, START, State, Versions};
use super::{Class, Direct};
use crate::history::{Record, Scan, Step, Transaction, Version, Writer};
use std::collections::BTreeMap;

/// Who depends on whom, as it is found out.
pub(crate) struct Build<'h> {
    order: &'h [(&'h Record, &'h Transaction)],
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
    pub(crate) fn new(
        order: &'h [(&'h Record, &'h Transaction)],
        nodes: &'h Nodes,
        versions: &'h Versions,
    ) -> Build<'h> {
        Build {
            order,
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
        let states = self.versions.find(key);
        let states = states.map_or(&[][..], |index| self.versions.states(index));
        let node = self.nodes.of(version.writer());
        let at = versions::at(states, node.unwrap_or(START));
        let exact = at.filter(|&at| states[at].version == Some(version));
        if exact.is_none() {
            let class = match node {
                Some(_) => Class::G1b,
                None => Class::G1a,
            };
            self.blame(class, step, key, Some(version));
        }
        // Of the start, only what was there then; of others also what they wrote in between.
        let at = at.filter(|_| node.is_some() || exact.is_some());
        if let Some(at) = at {
            self.depends(step, key, states, [at, at], false);
        }
    }

    fn absent(&mut self, step: u16, key: u64, in_range: bool) {
        let Some(index) = self.versions.find(key) else {
            return;
        };
        let states = self.versions.states(index);
        match self.when_absent(states) {
            Some(at) => self.depends(step, key, states, at, in_range),
            // Only somebody who did not commit can have taken it away.
            None => self.blame(Class::G1a, step, key, None),
        }
    }

    /// The first and the last of `states` without a value that the transaction at hand can have seen.
    fn when_absent(&self, states: &[State]) -> Option<[usize; 2]> {
        let reader = self.order[self.node as usize - 1].1;
        let own = states.partition_point(|state| state.node < self.node);
        let times = |at: usize| match states[at].node {
            START => (0, 0),
            node => {
                let each = self.order[node as usize - 1].1;
                (each.begun, each.ended)
            }
        };
        let is_absent = |at: &usize| states[*at].version.is_none();
        // Until what followed was over before the reader began, and from when it had begun before the
        // reader was over.
        let back = (0..own).rev();
        let back = back.take_while(|&at| at + 1 == states.len() || times(at + 1).1 >= reader.begun);
        let ahead = (own..states.len()).take_while(|&at| times(at).0 <= reader.ended);
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

    /// The transaction at hand saw one of two states of a key or something between: so it comes after the
    /// first, and before what follows the last.
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
