//! Strongly connected components, which contain all cycles.
//!
//! Tarjan's algorithm without recursion: it visits each edge once.

use super::edge::{Edges, Kinds};

/// Returns the components of more than one node, by the edges of some kinds.
pub(crate) fn components(edges: &Edges, kinds: Kinds) -> Vec<Vec<u32>> {
    let mut search = Search {
        edges,
        kinds,
        index: vec![0; edges.nodes()],
        low: vec![0; edges.nodes()],
        stack: Vec::new(),
        next: 1,
        found: Vec::new(),
    };
    for node in 0..edges.nodes() as u32 {
        if search.index[node as usize] == 0 {
            search.from(node);
        }
    }
    search.found
}

/// Index of a node that has left the stack; no index is larger.
const DONE: u32 = u32::MAX;

struct Search<'e> {
    edges: &'e Edges,
    kinds: Kinds,
    /// When each node was visited; 0 for never.
    index: Vec<u32>,
    low: Vec<u32>,
    stack: Vec<u32>,
    next: u32,
    found: Vec<Vec<u32>>,
}

impl Search<'_> {
    fn meet(&mut self, node: u32) {
        self.index[node as usize] = self.next;
        self.low[node as usize] = self.next;
        self.next += 1;
        self.stack.push(node);
    }

    fn from(&mut self, root: u32) {
        self.meet(root);
        let mut path = vec![(root, 0)];
        while let Some((node, at)) = path.last_mut() {
            let (from, edge) = (*node as usize, self.edges.of(*node).get(*at));
            *at += 1;
            let Some(edge) = edge else {
                path.pop();
                if let Some((parent, _)) = path.last() {
                    let low = self.low[from];
                    let parent = &mut self.low[*parent as usize];
                    *parent = low.min(*parent);
                }
                self.close(from as u32);
                continue;
            };
            if !self.kinds.has(edge.kind) {
                continue;
            }
            match self.index[edge.to as usize] {
                0 => {
                    self.meet(edge.to);
                    path.push((edge.to, 0));
                }
                DONE => {}
                index => self.low[from] = self.low[from].min(index),
            }
        }
    }

    /// If `node` is the first of its component, takes the component off the stack.
    fn close(&mut self, node: u32) {
        if self.low[node as usize] != self.index[node as usize] {
            return;
        }
        let first = self.stack.iter().rposition(|&other| other == node);
        let component = self
            .stack
            .split_off(first.expect("it is on the stack until it is closed"));
        for member in &component {
            self.index[*member as usize] = DONE;
        }
        if component.len() > 1 {
            self.found.push(component);
        }
    }
}
