//! The graph of dependencies between transactions, and the cycles in it.
//!
//! The committed transactions are the nodes of Adya's direct serialization graph. An edge says that
//! one must come before another. The reasons are: the other overwrote what it wrote (*ww*); read
//! what it wrote (*wr*); overwrote what it had read (*rw*); or began after it was acknowledged. A
//! range without a row at a key counts as a read of its absence. A history is strictly serializable
//! exactly if the graph has no cycle. The edges of a cycle say what kind of anomaly it is
//! ([`Class`](crate::graph::Class)), and the shortest of each kind is reported in words.
//!
//! Versions of a key follow each other by the places of their writers, unless
//! [`History::orders`](crate::history::History::orders) says otherwise.
//!
//! Building the graph takes a sort of all writes, and a search for each read. To find that there is
//! no cycle takes one visit of each edge. Only cycles take longer.
//!
//! # What it adds to the replay
//!
//! The [replay](crate::replay) shows more: that the order of commits itself is a serial order. But
//! it can only say which answer was wrong. And a level below serializable promises no serial order
//! at all: it promises that certain cycles do not occur.

/// Dependencies: why one transaction comes before another.
pub mod edge;

/// Components, which contain the cycles.
mod component;

/// The shortest cycle of each kind.
mod cycle;

/// The versions of each key.
mod versions;

pub use cycle::Class;

/// Reads that are wrong by themselves.
mod direct;

/// From reads and writes to edges.
mod build;

/// Cycles in words.
mod story;

pub use direct::Direct;

use crate::history::{History, Record, Transaction};
use build::Build;
use cycle::Cycle;
use edge::{Edge, Edges, Kinds};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use versions::{Nodes, START, Versions};

/// Name of an anomaly: its class, and whether it takes real time to see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Its class without real time.
    pub class: Class,
    /// True if some of its edges are real time. If not, no order of the transactions explains what
    /// they saw. If so, only orders that contradict the clock explain it.
    pub realtime: bool,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name { class, realtime } = self;
        f.pad(&format!(
            "{class}{}",
            if *realtime { "-realtime" } else { "" }
        ))
    }
}

/// Result of checking a history.
#[derive(Debug, Default)]
pub struct Findings {
    /// Number of transactions.
    pub transactions: usize,
    /// Number of dependencies between them.
    pub dependencies: usize,
    /// The anomalies by name. The count is that of wrong reads, or of cycles inspected; the text
    /// reports the smallest one.
    pub anomalies: BTreeMap<Name, (u64, String)>,
}

impl Findings {
    /// Returns the names of the anomalies.
    pub fn names(&self) -> Vec<String> {
        self.anomalies.keys().map(Name::to_string).collect()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, edges) = (self.transactions, self.dependencies);
        write!(f, "{nodes} transactions, {edges} dependencies")?;
        for (name, (count, story)) in &self.anomalies {
            write!(f, "\n{name}, {count} times: {story}")?;
        }
        Ok(())
    }
}

/// Dependencies that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of them, whatever the levels promise.
    All,
    /// Those that the levels promise for each read.
    Promised,
}

/// Looks for every anomaly in `history`, as if all transactions were serializable. At a weaker
/// level some anomalies are allowed and expected.
pub fn check(history: &History) -> Findings {
    look(history, Scope::All)
}

/// Looks for broken promises in a history of transactions of any level, side by side. This is
/// Adya's mixed graph: writes count at every level, and of each read only what was
/// [kept](crate::history::Kept) for it. Any finding is an error.
///
/// It does not see one anomaly: that an observed transaction vanishes again for reads that keep
/// nothing. Only a history of one level shows that.
pub fn check_promised(history: &History) -> Findings {
    look(history, Scope::Promised)
}

fn look(history: &History, scope: Scope) -> Findings {
    let order = history.order();
    let nodes = Nodes::new(&order);
    let versions = Versions::new(history, &order, &nodes);
    let mut build = Build::new(history, &order, &nodes, &versions, scope);
    build.writes();
    for (&(record, transaction), node) in order.iter().zip(1..) {
        build.reads(node, record, transaction);
    }
    let Build {
        edges: mut pairs,
        direct,
        ..
    } = build;
    let dependencies = pairs.len();
    let real = order.len() as u32 + 1;
    let moments = build::real_time(&order, real, &mut pairs);
    let edges = Edges::new(order.len() + 1 + moments, &pairs);
    debug_assert_eq!(edges.count(), pairs.len());
    drop(pairs);
    let mut findings = Findings {
        transactions: order.len(),
        dependencies,
        anomalies: BTreeMap::new(),
    };
    for each in &direct {
        let name = Name {
            class: each.class,
            realtime: false,
        };
        findings.note(name, 1, || each.tell(history));
    }
    let mut search = Search {
        order: &order,
        edges: &edges,
        real,
        found: BTreeMap::new(),
    };
    search.all();
    for (name, (count, cycle)) in search.found {
        findings.note(name, count, || story::tell_cycle(&cycle, &order));
    }
    findings
}

impl Findings {
    fn note(&mut self, name: Name, count: u64, story: impl FnOnce() -> String) {
        match self.anomalies.get_mut(&name) {
            Some((sum, _)) => *sum += count,
            None => {
                self.anomalies.insert(name, (count, story()));
            }
        }
    }
}

/// Largest number of edges of one component from which cycles are searched: where there are more,
/// one fault has caused them all.
const MOST_STARTS: usize = 2_000;

struct Search<'h> {
    order: &'h [(&'h Record, &'h Transaction)],
    edges: &'h Edges,
    /// Nodes from here on are moments.
    real: u32,
    found: BTreeMap<Name, (u64, Cycle)>,
}

impl Search<'_> {
    fn all(&mut self) {
        // The one visit of each edge that a clean history takes.
        let circles = component::components(self.edges, Kinds::DATA.and_time());
        if circles.is_empty() {
            return;
        }
        for time in [false, true] {
            let with = |kinds: Kinds| if time { kinds.and_time() } else { kinds };
            // With ever more kinds. Each cycle begins with an edge that the step before did not
            // have.
            self.close(with(Kinds::WRITES), with(Kinds::WRITES), |edge| {
                !edge.kind.is_anti()
            });
            self.close(with(Kinds::FLOW), with(Kinds::FLOW), |edge| {
                !edge.kind.is_anti()
            });
            self.close(with(Kinds::DATA), with(Kinds::FLOW), |edge| {
                edge.kind.is_anti()
            });
            self.close(with(Kinds::ITEMS), with(Kinds::ITEMS), |edge| {
                edge.kind.is_anti()
            });
            self.close(with(Kinds::DATA), with(Kinds::DATA), |edge| {
                edge.kind.is_anti()
            });
        }
    }

    /// In each component by edges `of`, looks for the shortest way back from each edge that may
    /// begin a cycle, by edges `by`.
    fn close(&mut self, of: Kinds, by: Kinds, begins: impl Fn(&Edge) -> bool) {
        for component in component::components(self.edges, of) {
            let inside: HashSet<u32> = component.iter().copied().collect();
            let transactions = component
                .iter()
                .filter(|&&node| START < node && node < self.real);
            let starts = transactions.flat_map(|&node| {
                let edges = self.edges.of(node).iter();
                edges.map(move |&edge| (node, edge))
            });
            let starts = starts.filter(|(_, edge)| {
                edge.to < self.real
                    && of.has(edge.kind)
                    && begins(edge)
                    && inside.contains(&edge.to)
            });
            for start in starts.take(MOST_STARTS).collect::<Vec<_>>() {
                let cycle =
                    cycle::back(self.edges, start, by, &inside, self.real, self.order.len());
                if let Some(cycle) = cycle {
                    self.note(cycle);
                }
            }
        }
    }

    fn note(&mut self, cycle: Cycle) {
        let name = Name {
            class: cycle.class(),
            realtime: cycle.has_time(),
        };
        let (count, smallest) = self.found.entry(name).or_insert_with(|| (0, cycle.clone()));
        *count += 1;
        if cycle.len() < smallest.len() {
            *smallest = cycle;
        }
    }
}

#[cfg(test)]
mod tests;
