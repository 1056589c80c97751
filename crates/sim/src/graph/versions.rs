//! The versions of every key, in the order in which they followed each other.

use crate::history::{
    By, History, Labels, Position, Record, Transaction, Version, Writer, effects,
};
use std::collections::HashMap;
use std::ops::Range;

/// Position of a transaction among the committed ones; 0 is the start, before all of them.
pub(crate) type Node = u32;

pub(crate) const START: Node = 0;

/// A state of a key: a value, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    /// The transaction that made it.
    pub(crate) node: Node,
    /// The step that made it, the last of that transaction that wrote the key.
    pub(crate) step: u16,
    /// The value, or `None` if it was deleted.
    pub(crate) version: Option<Version>,
}

/// Every key that was ever there, with its states.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    keys: Vec<u64>,
    firsts: Vec<u32>,
    states: Vec<State>,
    /// The keys that ever had a position, by name and by group.
    stood: [Vec<(Position, u32)>; 2],
}

/// The nodes of transactions, by client and number.
#[derive(Debug, Default)]
pub(crate) struct Nodes(HashMap<Writer, Node>);

impl Nodes {
    /// Returns the nodes of transactions in this order; the first is 1.
    pub(crate) fn new(order: &[(&Record, &Transaction)]) -> Nodes {
        let writers = order.iter().map(|(_, each)| each.writer);
        Nodes(writers.zip(1..).collect())
    }

    pub(crate) fn of(&self, writer: Writer) -> Option<Node> {
        self.0.get(&writer).copied()
    }
}

impl Versions {
    pub(crate) fn new(
        history: &History,
        order: &[(&Record, &Transaction)],
        nodes: &Nodes,
    ) -> Versions {
        let start = history.start.iter().map(|(&key, &version)| {
            let (node, step, version) = (START, 0, Some(version));
            (
                key,
                State {
                    node,
                    step,
                    version,
                },
            )
        });
        let mut written: Vec<(u64, State)> = start.collect();
        let mut wrote = Vec::new();
        for (&(record, transaction), node) in order.iter().zip(1..) {
            effects(record.steps(transaction), &mut wrote);
            written.extend(wrote.iter().map(|&(step, key, version)| {
                let state = State {
                    node,
                    step,
                    version,
                };
                (key, state)
            }));
        }
        written.sort_by_key(|(key, state)| (*key, state.node, state.step));
        let mut versions = Versions::default();
        for key in written.chunk_by(|one, other| one.0 == other.0) {
            versions.add(key);
        }
        versions.firsts.push(versions.states.len() as u32);
        for (key, writers) in &history.orders {
            versions.reorder(*key, writers.iter().filter_map(|writer| nodes.of(*writer)));
        }
        if history.labels != Labels::None {
            versions.stand(&history.labels);
        }
        versions
    }

    /// Records every position that each key ever had.
    fn stand(&mut self, labels: &Labels) {
        self.stood = [By::Name, By::Group].map(|by| {
            let stood = self.keys().flat_map(|index| {
                let key = self.key(index);
                let states = self.states(index).iter();
                let versions = states.filter_map(|state| state.version);
                let positions =
                    versions.filter_map(move |version| labels.position(by, key, version));
                positions.map(move |position| (position, index as u32))
            });
            let mut stood: Vec<(Position, u32)> = stood.collect();
            stood.sort_unstable();
            stood.dedup();
            stood
        });
    }

    /// Adds a key whose states are `written`; of each transaction only the last counts.
    fn add(&mut self, written: &[(u64, State)]) {
        self.keys.push(written[0].0);
        self.firsts.push(self.states.len() as u32);
        let first = written[0].1;
        if first.node != START {
            // The key did not exist at the start.
            self.states.push(State {
                node: START,
                step: 0,
                version: None,
            });
        }
        for (index, (_, state)) in written.iter().enumerate() {
            let next = written.get(index + 1);
            if next.is_none_or(|(_, next)| next.node != state.node) {
                self.states.push(*state);
            }
        }
    }

    fn reorder(&mut self, key: u64, order: impl Iterator<Item = Node>) {
        let ranks: HashMap<Node, usize> = order.zip(1..).collect();
        let Some(index) = self.find(key) else { return };
        let states = self.range(index);
        self.states[states].sort_by_key(|state| ranks.get(&state.node).copied().unwrap_or(0));
    }

    /// Returns the index of `key`, if it was ever there.
    pub(crate) fn find(&self, key: u64) -> Option<usize> {
        self.keys.binary_search(&key).ok()
    }

    /// Adds to `into` the indexes of the keys that ever had a position between these two.
    pub(crate) fn between(&self, by: By, from: Position, to: Position, into: &mut Vec<usize>) {
        into.clear();
        let stood = match by {
            By::Key => {
                let first = self.keys.partition_point(|&key| (key, 0) < from);
                let past = self.keys.partition_point(|&key| (key, 0) <= to);
                return into.extend(first..past);
            }
            By::Name => &self.stood[0],
            By::Group => &self.stood[1],
        };
        let first = stood.partition_point(|(position, _)| *position < from);
        let inside = stood[first..].iter();
        let inside = inside.take_while(|(position, _)| *position <= to);
        into.extend(inside.map(|(_, index)| *index as usize));
        into.sort_unstable();
        into.dedup();
    }

    pub(crate) fn key(&self, index: usize) -> u64 {
        self.keys[index]
    }

    pub(crate) fn keys(&self) -> Range<usize> {
        0..self.keys.len()
    }

    fn range(&self, index: usize) -> Range<usize> {
        let [first, end] = [0, 1].map(|more| self.firsts[index + more] as usize);
        first..end
    }

    /// Returns the states of a key.
    pub(crate) fn states(&self, index: usize) -> &[State] {
        &self.states[self.range(index)]
    }
}

/// Returns which of `states` was made by `node`.
pub(crate) fn at(states: &[State], node: Node) -> Option<usize> {
    let sorted = states.binary_search_by_key(&node, |state| state.node).ok();
    // States in another order than by place are few.
    let found = sorted.filter(|&at| states[at].node == node);
    found.or_else(|| {
        let few = states.len() < 100;
        few.then(|| states.iter().position(|state| state.node == node))?
    })
}
