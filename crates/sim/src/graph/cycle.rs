//! The shortest cycle of a kind, and what it is called.

use super::edge::{Edge, Edges, Kind, Kinds};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

/// What can go wrong, by the names of the literature, from what no level allows to what only the
/// strictest forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A transaction did not see what it had itself written.
    Internal,
    /// Writes of two transactions are mixed.
    G0,
    /// Something was read that was rolled back, or that nobody wrote.
    G1a,
    /// Something was read that its writer overwrote before it committed.
    G1b,
    /// Information flowed in a circle.
    G1c,
    /// A transaction that had been observed vanished.
    Otv,
    /// An update was lost.
    P4,
    /// Two reads by predicate belong to different moments.
    Pmp,
    /// Half of a transaction was seen.
    GSingle,
    /// Two or more did not see what the others wrote.
    G2Item,
    /// As `G2Item`, where something appeared in a range.
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
            Class::Otv => "OTV",
            Class::P4 => "P4",
            Class::Pmp => "PMP",
            Class::GSingle => "G-single",
            Class::G2Item => "G2-item",
            Class::G2 => "G2",
        })
    }
}

/// A circle of dependencies: each edge begins where the one before ended, and the last one ends where
/// the first began.
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

    /// Of a cycle with one anti-dependency, which goes out from a reader; what leads into the reader
    /// says what it had seen besides.
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

/// Nodes a search looks at before it gives up: what is longer than that leads nowhere.
const PATIENCE: usize = 200_000;

/// The shortest way from the end of `first` back to `start`, by edges of `kinds` inside `inside`, as a
/// cycle of at most `longest` edges. Nodes from `real` on are moments, which take no step.
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

/// The cycle that came to `start`, moments left out.
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
