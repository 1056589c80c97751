//! The wait-for graph, as data and as DOT for Graphviz.
//!
//! A node is a transaction that waits, or that another one waits for. An edge goes from a waiter to
//! an owner that blocks it: a *hard* edge if that owner holds the name, a *soft* edge if it waits
//! for the name ahead of the waiter. A transaction waits for one name at a time, so its node
//! contains what it waits for.
//!
//! # Invariants
//!
//! * I1  An edge is marked as part of a cycle exactly if its blocker reaches its waiter along the
//!   edges.
//! * I2  Implied edges are left out: a waiter behind the last of a queue is behind all of it. This
//!   loses no cycle.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::time::Duration;

use crate::status::{Deadlock, RequestStatus, Status, called};

/// The wait-for graph.
///
/// ```
/// use foxton::{Database, Options, Table};
///
/// const T: Table<u64, u64> = Table::new("stock");
/// let db = Database::in_memory(Options::default())?;
/// let graph = db.wait_graph();
/// assert!(graph.nodes.is_empty());
/// assert!(graph.to_dot().starts_with("digraph waits {"));
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitGraph {
    /// The transactions.
    pub nodes: Vec<TransactionNode>,
    /// The waits between them.
    pub edges: Vec<WaitEdge>,
}

/// A transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionNode {
    /// Id of the transaction.
    pub owner: String,
    /// Label of the transaction.
    pub label: String,
    /// Age of the transaction.
    pub age: Duration,
    /// Mode and name that it waits for, and time waited.
    pub awaits: Option<(String, String, Duration)>,
    /// True if it is the victim of a deadlock.
    pub victim: bool,
    /// True if it is part of a cycle.
    pub in_cycle: bool,
}

/// A wait; `waiter` and `blocker` are indexes into the list of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitEdge {
    /// The waiting transaction.
    pub waiter: usize,
    /// The transaction it waits for.
    pub blocker: usize,
    /// Mode that the blocker holds, or waits for ahead.
    pub mode: String,
    /// True if the blocker holds the name.
    pub holds: bool,
    /// True if the edge is part of a cycle (I1).
    pub in_cycle: bool,
}

/// Builds a graph; finds nodes by owner.
#[derive(Default)]
struct GraphBuilder {
    graph: WaitGraph,
    index_of: HashMap<String, usize>,
}

impl GraphBuilder {
    fn node(&mut self, owner: &str, label: &str, age: Duration) -> usize {
        let nodes = &mut self.graph.nodes;
        let at = self.index_of.entry(owner.to_owned()).or_insert_with(|| {
            nodes.push(TransactionNode {
                owner: owner.to_owned(),
                label: label.to_owned(),
                age,
                ..TransactionNode::default()
            });
            nodes.len() - 1
        });
        *at
    }

    fn edge(&mut self, waiter: usize, blocker: usize, mode: &str, holds: bool) {
        self.graph.edges.push(WaitEdge {
            waiter,
            blocker,
            mode: mode.to_owned(),
            holds,
            in_cycle: false,
        });
    }

    fn done(mut self) -> WaitGraph {
        self.graph.mark_cycles();
        self.graph
    }
}

impl WaitGraph {
    /// Returns the graph of all waits in `status`.
    pub fn of_status(status: &Status) -> WaitGraph {
        let mut builder = GraphBuilder::default();
        let waiters = status.waiters();
        let by_owner = waiters.iter().map(|&(_, entry)| (&*entry.owner, entry));
        let by_owner: HashMap<&str, &RequestStatus> = by_owner.collect();
        for (queue, entry) in waiters {
            let waiter = builder.node(&entry.owner, &entry.label, entry.age);
            builder.graph.nodes[waiter].awaits =
                Some((entry.mode.clone(), queue.name.clone(), entry.waited));
            for other in needed(entry, &by_owner) {
                let behind = &entry.behind[other];
                let blocker = builder.node(&behind.owner, &behind.label, behind.age);
                builder.edge(waiter, blocker, &behind.mode, behind.holds);
            }
        }
        builder.done()
    }

    /// Returns the graph of one deadlock, as it was when it was detected.
    pub fn of_deadlock(deadlock: &Deadlock) -> WaitGraph {
        let mut builder = GraphBuilder::default();
        for member in &deadlock.cycle {
            let at = builder.node(&member.owner, &member.label, member.age);
            let node = &mut builder.graph.nodes[at];
            node.awaits = Some((member.mode.clone(), member.name.clone(), Duration::ZERO));
            node.victim = member.victim;
        }
        let count = builder.graph.nodes.len();
        for (at, member) in deadlock.cycle.iter().enumerate().take(count) {
            let (mode, holds) = (&member.behind_mode, member.behind_holder);
            builder.edge(at, (at + 1) % count, mode, holds);
        }
        builder.done()
    }

    /// True if the graph has a cycle.
    pub fn has_cycle(&self) -> bool {
        self.edges.iter().any(|edge| edge.in_cycle)
    }

    /// Returns the graph in DOT, for Graphviz: `dot -Tsvg`.
    pub fn to_dot(&self) -> String {
        let mut text = String::new();
        self.write_dot(&mut text)
            .expect("a string takes everything");
        text
    }

    fn write_dot(&self, text: &mut String) -> fmt::Result {
        writeln!(text, "digraph waits {{")?;
        writeln!(text, "  rankdir=BT;")?;
        writeln!(text, "  node [shape=box, fontname=\"sans-serif\"];")?;
        for (at, node) in self.nodes.iter().enumerate() {
            let lines = node.lines().map(|line| quoted(&line)).join("\\n");
            let style = match (node.victim, node.in_cycle) {
                (true, _) => ", color=red, style=filled, fillcolor=mistyrose",
                (false, true) => ", color=red",
                (false, false) => "",
            };
            writeln!(text, "  n{at} [label=\"{lines}\"{style}];")?;
        }
        for edge in &self.edges {
            let color = if edge.in_cycle { ", color=red" } else { "" };
            let style = if edge.holds { "" } else { ", style=dashed" };
            let mode = quoted(&edge.mode);
            let (from, to) = (edge.waiter, edge.blocker);
            writeln!(text, "  n{from} -> n{to} [label=\"{mode}\"{color}{style}];")?;
        }
        writeln!(text, "}}")
    }

    /// Marks nodes and edges of cycles (I1): two nodes are in a cycle if each reaches the other.
    fn mark_cycles(&mut self) {
        let component = self.components();
        for edge in &mut self.edges {
            edge.in_cycle = component[edge.waiter] == component[edge.blocker];
            self.nodes[edge.waiter].in_cycle |= edge.in_cycle;
            self.nodes[edge.blocker].in_cycle |= edge.in_cycle;
        }
    }

    /// Returns for each node the number of its strongly connected component. Kosaraju's two passes,
    /// without recursion, because a queue of waiters may be long.
    fn components(&self) -> Vec<usize> {
        let count = self.nodes.len();
        let (mut out, mut into) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for edge in &self.edges {
            out[edge.waiter].push(edge.blocker);
            into[edge.blocker].push(edge.waiter);
        }
        let mut seen = vec![false; count];
        let mut finished = Vec::with_capacity(count);
        for start in 0..count {
            let fresh = !std::mem::replace(&mut seen[start], true);
            let mut way: Vec<(usize, usize)> = fresh.then_some((start, 0)).into_iter().collect();
            while let Some((node, next)) = way.last_mut() {
                match out[*node].get(*next) {
                    Some(&other) => {
                        *next += 1;
                        if !std::mem::replace(&mut seen[other], true) {
                            way.push((other, 0));
                        }
                    }
                    None => {
                        finished.push(*node);
                        way.pop();
                    }
                }
            }
        }
        let mut component = vec![usize::MAX; count];
        for &start in finished.iter().rev() {
            let mut open = vec![start];
            while let Some(node) = open.pop() {
                if component[node] == usize::MAX {
                    component[node] = start;
                    open.extend(&into[node]);
                }
            }
        }
        component
    }
}

impl TransactionNode {
    /// Returns two lines of text: the transaction, and what it does.
    pub fn lines(&self) -> [String; 2] {
        let second = match &self.awaits {
            None if self.age.is_zero() => "runs".to_owned(),
            None => format!("runs, {} old", short(self.age)),
            Some((mode, name, waited)) if waited.is_zero() => format!("awaits {mode} on {name}"),
            Some((mode, name, waited)) => {
                format!("awaits {mode} on {name}, {}", short(*waited))
            }
        };
        let victim = if self.victim { ", gave way" } else { "" };
        let who = called(&self.owner, &self.label);
        [format!("{who}{victim}"), second]
    }
}

/// Returns which blockers of `entry` to draw (I2): not those that the nearest waiter ahead of it
/// waits for too.
fn needed(entry: &RequestStatus, waiters: &HashMap<&str, &RequestStatus>) -> Vec<usize> {
    let nearest = entry.behind.iter().find(|other| !other.holds);
    let nearest = nearest.and_then(|near| waiters.get(&*near.owner));
    let implied = |owner: &str| {
        nearest.is_some_and(|near| near.behind.iter().any(|other| other.owner == owner))
    };
    let all = 0..entry.behind.len();
    all.filter(|&at| !implied(&entry.behind[at].owner))
        .collect()
}

fn short(duration: Duration) -> String {
    format!("{duration:.1?}")
}

/// Returns `text` escaped for a quoted string of DOT.
fn quoted(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let escaped: String = plain.collect();
    escaped.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{ConflictingOwner, CycleMember, QueueStatus};

    fn behind(owner: &str, holds: bool) -> ConflictingOwner {
        let mut behind = ConflictingOwner::default();
        (behind.owner, behind.mode, behind.holds) = (owner.into(), "X".into(), holds);
        behind
    }

    fn waiter(owner: &str, others: &[ConflictingOwner]) -> RequestStatus {
        let mut entry = RequestStatus::default();
        (entry.owner, entry.label) = (owner.into(), format!("job {owner}"));
        (entry.mode, entry.waited) = ("X".into(), Duration::from_millis(2));
        entry.behind = others.to_vec();
        entry
    }

    fn status(queues: Vec<Vec<RequestStatus>>) -> Status {
        let mut status = Status::default();
        for (number, waiters) in queues.into_iter().enumerate() {
            let mut queue = QueueStatus::default();
            (queue.name, queue.waiters) = (format!("t/{number}"), waiters);
            status.queues.push(queue);
        }
        status
    }

    /// `count` transactions wait for one name, each behind the one before.
    fn a_line(count: usize) -> WaitGraph {
        let waiters = (1..=count).map(|at| {
            let ahead = (at > 1).then(|| behind(&(at - 1).to_string(), false));
            let others: Vec<ConflictingOwner> =
                [behind("0", true)].into_iter().chain(ahead).collect();
            waiter(&at.to_string(), &others)
        });
        WaitGraph::of_status(&status(vec![waiters.collect()]))
    }

    /// Each of `count` waits for the next, and the second is the victim.
    fn a_cycle(count: usize) -> WaitGraph {
        let mut deadlock = Deadlock::default();
        for at in 0..count {
            let mut member = CycleMember::default();
            (member.owner, member.label) = (at.to_string(), format!("<job {at}>"));
            (member.name, member.mode) = (format!("t/\"{at}\""), "X".into());
            (member.behind_mode, member.behind_holder) = ("S".into(), true);
            member.victim = at == 1;
            deadlock.cycle.push(member);
        }
        WaitGraph::of_deadlock(&deadlock)
    }

    #[test]
    fn in_a_line_each_is_drawn_behind_the_one_before_it() {
        let graph = a_line(50);
        assert_eq!((graph.nodes.len(), graph.edges.len()), (51, 50));
        assert!(!graph.has_cycle());
        let hard = graph.edges.iter().filter(|edge| edge.holds).count();
        assert_eq!(hard, 1);
    }

    #[test]
    fn a_cycle_is_marked_but_not_the_edges_into_it() {
        let graph = WaitGraph::of_status(&status(vec![
            vec![waiter("a", &[behind("b", true)])],
            vec![
                waiter("b", &[behind("a", true)]),
                waiter("c", &[behind("b", false)]),
            ],
        ]));
        assert!(graph.has_cycle());
        let marked = |owner: &str| {
            let node = graph.nodes.iter().find(|node| node.owner == owner);
            node.expect("it is there").in_cycle
        };
        assert!(marked("a") && marked("b") && !marked("c"));
        let marked = graph.edges.iter().filter(|edge| edge.in_cycle).count();
        assert_eq!((graph.edges.len(), marked), (3, 2));
    }

    #[test]
    fn dot_names_every_transaction_and_quotes_labels() {
        let dot = a_cycle(3).to_dot();
        assert!(dot.contains(r#"awaits X on t/\"1\""#), "{dot}");
        assert!(dot.contains("n2 -> n0"), "{dot}");
        assert!(
            dot.contains("gave way\\nawaits") && dot.contains("color=red"),
            "{dot}"
        );
    }
}
