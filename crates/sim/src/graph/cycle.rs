//! The shortest cycle of a kind, and its class.

use super::edge::{Edge, Edges, Kind, Kinds};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

/// Anomalies by the names of the literature, from those that no level allows to those that only the
/// strictest forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A transaction did not see its own write.
    Internal,
    /// Writes of two transactions are mixed.
    G0,
    /// A transaction read a value that was rolled back, or that was never written.
    G1a,
    /// A transaction read a value that its writer overwrote before it committed.
    G1b,
    /// Information flowed in a cycle.
    G1c,
    /// A transaction depends on one that was not committed at its snapshot.
    GSia,
    /// A transaction missed one that was committed at its snapshot.
    GSib,
    /// A transaction that had been observed vanished.
    Otv,
    /// An update was lost.
    P4,
    /// Two reads by predicate saw different moments.
    Pmp,
    /// A transaction saw half of another one.
    GSingle,
    /// Two or more transactions did not see each other's writes.
    G2Item,
    /// As `G2Item`, where a row appeared in a range.
    G2,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Class::Internal => "internal",
            Class::G0 => "G0",
            Class::G1a => "G1a",
            Class::G1b => "G1b",
            Class::G1c => "G1c",
            Class::GSia => "G-SIa",
            Class::GSib => "G-SIb",
            Class::Otv => "OTV",
            Class::P4 => "P4",
            Class::Pmp => "PMP",
            Class::GSingle => "G-single",
            Class::G2Item => "G2-item",
            Class::G2 => "G2",
        })
    }
}

/// A cycle of dependencies: each edge begins where the one before ended, and the last one ends
/// where the first began.
#[derive(Debug, Clone)]
pub(crate) struct Cycle(pub(crate) Vec<(u32, Edge)>);

impl Cycle {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn has_time(&self) -> bool {
        self.0.iter().any(|(_, edge)| edge.kind == Kind::Earlier)
    }

    pub(crate) fn class(&self) -> Class {
        let anti: Vec<usize> = (0..self.len())
            .filter(|&index| self.0[index].1.kind.is_anti())
            .collect();
        match anti[..] {
            [] if self.0.iter().all(|(_, edge)| edge.kind == Kind::Wrote) => Class::G0,
            [] => Class::G1c,
            [only] => self.class_of_single(only),
            _ if anti
                .iter()
                .any(|&index| self.0[index].1.kind.is_predicate()) =>
            {
                Class::G2
            }
            _ => Class::G2Item,
        }
    }

    /// Returns the class of a cycle with one anti-dependency, which leaves a reader; the edge that
    /// leads into the reader says what it had seen before.
    fn class_of_single(&self, anti: usize) -> Class {
        let missed = self.0[anti].1;
        let saw = self.0[(anti + self.len() - 1) % self.len()].1;
        let reads = matches!(saw.kind, Kind::Read | Kind::ReadRange);
        let overwrote = saw.kind == Kind::Wrote && missed.kind == Kind::Overwrote;
        if self.len() == 2 && overwrote && saw.key == missed.key {
            Class::P4
        } else if reads && saw.step_to < missed.step {
            Class::Otv
        } else if missed.kind.is_predicate() {
            Class::Pmp
        } else {
            Class::GSingle
        }
    }
}

/// Number of nodes after which a search gives up: longer cycles explain nothing.
const PATIENCE: usize = 200_000;

/// Returns the shortest way from the end of `first` back to `start`, by edges of `kinds` inside
/// `inside`, as a cycle of at most `longest` edges. Nodes from `real` on are moments, and count no
/// edge.
pub(crate) fn back(
    edges: &Edges,
    (start, first): (u32, Edge),
    kinds: Kinds,
    inside: &HashSet<u32>,
    real: u32,
    longest: usize,
) -> Option<Cycle> {
    let mut came: HashMap<u32, (u32, Edge)> = HashMap::from([(first.to, (start, first))]);
    let mut queue = VecDeque::from([(first.to, usize::from(first.to < real))]);
    while let Some((node, length)) = queue.pop_front() {
        if node == start {
            return Some(trace(&came, start, real));
        }
        if length >= longest || came.len() > PATIENCE {
            continue;
        }
        for &edge in edges.of(node).iter().filter(|edge| kinds.has(edge.kind)) {
            if !inside.contains(&edge.to) || came.contains_key(&edge.to) {
                continue;
            }
            came.insert(edge.to, (node, edge));
            match edge.to < real {
                true => queue.push_back((edge.to, length + 1)),
                false => queue.push_front((edge.to, length)),
            }
        }
    }
    None
}

/// Returns the cycle that ended at `start`, without moments.
fn trace(came: &HashMap<u32, (u32, Edge)>, start: u32, real: u32) -> Cycle {
    let mut cycle = Vec::new();
    let mut node = start;
    loop {
        let (mut from, mut edge) = came[&node];
        while from >= real {
            let (before, into) = came[&from];
            (from, edge) = (
                before,
                Edge {
                    to: edge.to,
                    ..into
                },
            );
        }
        cycle.push((from, edge));
        node = from;
        if node == start {
            break;
        }
    }
    cycle.reverse();
    Cycle(cycle)
}
