//! Who depends on whom, and where that goes in a circle.
//!
//! The transactions that committed are the nodes of Adya's direct serialization graph. An edge says that
//! one must come before another: because the other overwrote what it wrote (*ww*), read what it wrote
//! (*wr*), or overwrote what it had read (*rw*), where a range that had no row at a key counts as a read
//! of its absence; or because it was acknowledged before the other began. A history is
//! strictly serializable exactly if there is no circle. Where there is one, its edges say what kind of anomaly
//! it is ([`Class`](crate::graph::Class)), and the shortest of each kind is told as a story.
//!
//! Versions of a key follow each other by the places of those who wrote them, unless
//! [`History::orders`](crate::history::History::orders) knows better.
//!
//! Building the graph takes a sort of all writes, and of all reads a search in what they name; finding out
//! that there is no circle takes one look at each edge. Only circles take longer.
//!
//! # What it adds to the replay
//!
//! The [replay](crate::replay) shows more, that the order of commits itself is a serial order, but it
//! can only say which answer was wrong. And a level below serializable promises no serial order at all: what it
//! promises is that certain circles do not occur.

/// Why one comes before the other.
pub mod edge;

/// Where the circles are.
mod component;

/// The shortest of each kind.
mod cycle;

/// What each key had.
mod versions;

pub use cycle::Class;

/// What is wrong with one read alone.
mod direct;

/// From reads and writes to edges.
mod build;

/// Circles in words.
mod story;

pub use direct::Direct;

use crate::history::{History, Record, Transaction};
use build::Build;
use cycle::Cycle;
use edge::{Edge, Edges, Kinds};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use versions::{Nodes, START, Versions};

/// An anomaly: what it is called, and whether it takes real time to see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// What it is without real time.
    pub class: Class,
    /// Whether some of its edges are real time. If not, no order of the transactions explains what
    /// they saw; if so, only none that keeps to the clock.
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

/// What the graph of a history shows.
#[derive(Debug, Default)]
pub struct Findings {
    /// Transactions.
    pub transactions: usize,
    /// Dependencies between them.
    pub dependencies: usize,
    /// The anomalies by name: of reads that are wrong alone how many, of circles how many were looked at;
    /// and the smallest as a story.
    pub anomalies: BTreeMap<Name, (u64, String)>,
}

impl Findings {
    /// The names of what was found.
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

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Whatever does not go together, whoever was promised that it would.
    All,
    /// Of what each read depends on, what it was promised.
    Promised,
}

/// Looks for everything that is wrong with `history`, as if all were serializable: at a weaker level that is
/// not wrong but what is to be seen.
pub fn check(history: &History) -> Findings {
    look(history, Scope::All)
}

/// Looks for what was promised and is not so, in a history of transactions of any level, side by side.
/// Adya's mixed graph: writes count at every level, and of each read only what was
/// [kept](crate::history::Kept) for it. None of what this finds may be.
///
/// (That a transaction which was observed does not vanish again, with reads that keep nothing, it does not
/// see: that takes a history of one level.)
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

/// Circles that are looked for from so many edges of one component at most: where there are more,
/// one fault has made them all.
const MOST_STARTS: usize = 2_000;

struct Search<'h> {
    order: &'h [(&'h Record, &'h Transaction)],
    edges: &'h Edges,
    /// From here on nodes are moments.
    real: u32,
    found: BTreeMap<Name, (u64, Cycle)>,
}

impl Search<'_> {
    fn all(&mut self) {
        // The one look at each edge that a clean history takes.
        let circles = component::components(self.edges, Kinds::DATA.and_time());
        if circles.is_empty() {
            return;
        }
        for time in [false, true] {
            let with = |kinds: Kinds| if time { kinds.and_time() } else { kinds };
            // Of ever more kinds, and of each circle begun by what the step before did not have.
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

    /// In each component by edges `of`, looks for the shortest way back from each edge that may begin a
    /// circle, by edges `by`.
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
