//! Dependencies: why one transaction comes before another.

use std::fmt;

/// Reason why a transaction comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The other overwrote what it wrote: *ww*.
    Wrote,
    /// The other read what it wrote: *wr*.
    Read,
    /// The other's range, or its miss of a key, shows a deletion of it: *wr* by predicate.
    ReadRange,
    /// The other overwrote what it had read: *rw*.
    Overwrote,
    /// The other wrote a row where its range had found none: *rw* by predicate.
    Appeared,
    /// It was acknowledged before the other began.
    Earlier,
}

impl Kind {
    /// True for an anti-dependency: the reader comes first because it did not see the writer.
    pub fn is_anti(self) -> bool {
        matches!(self, Kind::Overwrote | Kind::Appeared)
    }

    /// True if the reason is a range without the row.
    pub fn is_predicate(self) -> bool {
        matches!(self, Kind::ReadRange | Kind::Appeared)
    }

    /// Returns the bit of a [`Kinds`].
    pub(crate) fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const WRITES: Kinds = Kinds(1);
    pub(crate) const FLOW: Kinds = Kinds(0b111);
    pub(crate) const ITEMS: Kinds = Kinds(0b1011);
    pub(crate) const DATA: Kinds = Kinds(0b11111);

    /// Adds real time to the set.
    pub(crate) fn and_time(self) -> Kinds {
        Kinds(self.0 | Kind::Earlier.bit())
    }

    pub(crate) fn has(self, kind: Kind) -> bool {
        self.0 & kind.bit() != 0
    }
}

/// A dependency of the transaction in whose list it is on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// The other transaction.
    pub to: u32,
    /// The reason.
    pub kind: Kind,
    /// The key; unused for real time.
    pub key: u64,
    /// The step of the first transaction.
    pub step: u16,
    /// The step of the other.
    pub step_to: u16,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Wrote => "ww",
            Kind::Read => "wr",
            Kind::ReadRange => "wr, by range",
            Kind::Overwrote => "rw",
            Kind::Appeared => "rw, by range",
            Kind::Earlier => "real time",
        })
    }
}

/// All dependencies, by the transaction from which they lead.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    firsts: Vec<u32>,
    edges: Vec<Edge>,
}

impl Edges {
    /// Sorts `pairs` of a transaction and an edge that leads from it; there are `count`
    /// transactions.
    pub(crate) fn new(count: usize, pairs: &[(u32, Edge)]) -> Edges {
        let mut firsts = vec![0; count + 1];
        for (from, _) in pairs {
            firsts[*from as usize + 1] += 1;
        }
        for index in 0..count {
            firsts[index + 1] += firsts[index];
        }
        let mut next = firsts.clone();
        let mut edges = pairs
            .first()
            .map_or(Vec::new(), |(_, edge)| vec![*edge; pairs.len()]);
        for (from, edge) in pairs {
            let place = &mut next[*from as usize];
            edges[*place as usize] = *edge;
            *place += 1;
        }
        Edges { firsts, edges }
    }

    pub(crate) fn count(&self) -> usize {
        self.edges.len()
    }

    pub(crate) fn nodes(&self) -> usize {
        self.firsts.len() - 1
    }

    pub(crate) fn of(&self, node: u32) -> &[Edge] {
        let [first, end] = [0, 1].map(|more| self.firsts[node as usize + more] as usize);
        &self.edges[first..end]
    }
}
