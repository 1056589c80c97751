//! Copy of all queues with waiters: the wait-for graph, and how many owners each waiter blocks.
//!
//! Each queue is copied under its latch, and so is consistent; two queues may be a moment apart. So
//! the copy is a hint, and is checked again before anything is done. With one exception: all owners
//! are found that were in a cycle when the copy began and stay in it.
//!
//! # What counts as weight
//!
//! The weight of a waiter is the number of owners that would not wait without it. These wait for a
//! name that it holds, or for a name that one of these holds, and so on; each is counted once.
//! Positions in a queue do not count, because the weights decide them. A waiter that is behind a
//! waiting holder could not go on from the front of the queue either, and has no weight.

use super::shards::{GlobalLatch, Shards};
use crate::{
    deadlock::VictimPolicy,
    managers::latched::{LatchedQueues, head::HeadWaiter},
    mode::Mode,
    name::Name,
    owner::owner_table::{WaitInfo, WaitTicket},
    wait_list::{WaitList, WaitOrder},
};
use foxton_sync::worker::Worker;

/// No node.
const NONE: usize = usize::MAX;

/// Queue of one name with waiters.
#[derive(Debug, Default)]
struct GraphQueue {
    /// Holders that wait, here or elsewhere: nodes and modes.
    holders: Vec<(usize, Mode)>,
    waiters: Vec<HeadWaiter>,
    conversions: usize,
}

impl GraphQueue {
    fn new(holders: Vec<(usize, Mode)>, mut waiters: Vec<(WaitOrder, HeadWaiter)>) -> Self {
        waiters.sort_unstable_by_key(|&(order, _)| order);
        let waiters: Vec<HeadWaiter> = waiters.into_iter().map(|(_, waiter)| waiter).collect();
        let conversions = waiters.iter().filter(|waiter| waiter.converts()).count();
        Self {
            holders,
            waiters,
            conversions,
        }
    }
}

/// Waiting owner.
#[derive(Debug)]
struct GraphNode {
    waiting: WaitInfo,
    /// Index of its queue; `position` is its position there.
    queue: usize,
    position: usize,
    weight: u32,
}

/// All queues with waiters.
#[derive(Debug, Default)]
pub(super) struct WaitGraphCopy {
    nodes: Vec<GraphNode>,
    names: Vec<Name>,
    queues: Vec<GraphQueue>,
    /// Node of each owner index.
    node_at: Vec<usize>,
}

impl WaitGraphCopy {
    pub(super) fn take<W: GlobalLatch>(locks: &LatchedQueues<Shards<W>>, worker: &Worker) -> Self {
        let owners = &locks.owners;
        let mut waits = owners.waits_unsorted();
        waits.sort_unstable_by_key(|waiting| waiting.name);
        let mut snapshot = Self {
            node_at: vec![NONE; owners.index_bound()],
            ..Self::default()
        };
        for waiting in waits {
            if snapshot.names.last() != Some(&waiting.name) {
                snapshot.names.push(waiting.name);
            }
            snapshot.add(waiting);
        }
        for (at, name) in snapshot.names.iter().enumerate() {
            let hash = name.hash() as u32;
            let queue = locks.with(worker, name, hash, |heads| {
                let head = heads.get(name)?;
                let waits = |(owner_index, mode): (u32, Mode)| {
                    let node = snapshot.node_at.get(owner_index as usize).copied()?;
                    (node != NONE).then_some((node, mode))
                };
                let waiters = head.waiters().into_iter().flat_map(WaitList::unsorted);
                let waiters = waiters.map(|(order, waiter)| (order, *waiter));
                let holders = head.holders().filter_map(waits);
                Some((holders.collect(), waiters.collect()))
            });
            let (holders, waiters): (_, Vec<(WaitOrder, HeadWaiter)>) = queue.unwrap_or_default();
            let mut queue = GraphQueue::new(holders, waiters);
            // An inherited lock does not block for long. After the latch (I3 of `owner_table`).
            queue.holders.retain(|&(node, _)| {
                let owner_index = snapshot.nodes[node].waiting.id.index();
                !owners.record(owner_index).has_inherited(*name)
            });
            for (position, waiter) in queue.waiters.iter().enumerate() {
                let node = snapshot.node_at.get(waiter.owner_index as usize).copied();
                let node = node.and_then(|node| snapshot.nodes.get_mut(node));
                if let Some(node) = node.filter(|node| node.waiting.ticket == waiter.ticket) {
                    (node.queue, node.position) = (at, position);
                }
            }
            snapshot.queues.push(queue);
        }
        snapshot.assign_weights();
        snapshot
    }

    fn add(&mut self, waiting: WaitInfo) {
        let owner_index = waiting.id.index() as usize;
        if owner_index >= self.node_at.len() {
            self.node_at.resize(owner_index + 1, NONE);
        }
        self.node_at[owner_index] = self.nodes.len();
        self.nodes.push(GraphNode {
            waiting,
            queue: NONE,
            position: 0,
            weight: 0,
        });
    }

    fn node_of(&self, wait: WaitTicket) -> Option<usize> {
        let node = *self.node_at.get(wait.owner_index as usize)?;
        let found = self.nodes.get(node)?;
        (found.waiting.ticket == wait.ticket).then_some(node)
    }

    /// Returns a waiting holder that blocks `node`, and the number of the next edge. `from` is the
    /// number of the first edge to try.
    fn hard_edge(&self, node: usize, from: usize) -> Option<(usize, usize)> {
        let GraphNode { waiting, queue, .. } = &self.nodes[node];
        let holders = &self.queues.get(*queue)?.holders;
        (from..holders.len()).find_map(|at| {
            let (other, mode) = holders[at];
            let blocks = other != node && !mode.compatible(waiting.mode);
            blocks.then_some((other, at + 1))
        })
    }

    /// As [`hard_edge`](Self::hard_edge), for holders and then for earlier waiters, except the
    /// first `done_count` of these.
    fn edge(&self, node: usize, from: usize, done_count: usize) -> Option<(usize, usize)> {
        let GraphNode {
            waiting,
            queue,
            position,
            ..
        } = &self.nodes[node];
        let queue = self.queues.get(*queue)?;
        if let Some(found) = self.hard_edge(node, from) {
            return Some(found);
        }
        let holders = queue.holders.len();
        (from.max(holders + done_count)..holders + position).find_map(|at| {
            let ahead = &queue.waiters[at - holders];
            let blocks =
                ahead.owner_index != waiting.id.index() && !ahead.mode.compatible(waiting.mode);
            match blocks {
                true => Some((self.node_of(ahead.wait())?, at + 1)),
                false => None,
            }
        })
    }

    /// Returns every cycle, given that the victim of each earlier one, chosen by `policy`, has
    /// left.
    pub(super) fn cycles(&self, policy: VictimPolicy) -> Vec<Vec<WaitInfo>> {
        let mut cycles = Vec::new();
        let mut search = CycleSearch {
            snapshot: self,
            seen: vec![NodeState::Unvisited; self.nodes.len()],
            done_count: vec![0; self.queues.len()],
        };
        for start in 0..self.nodes.len() {
            while let Some(cycle) = search.cycle(start) {
                let waits = cycle.iter().map(|&node| self.nodes[node].waiting.clone());
                let mut waits: Vec<WaitInfo> = waits.collect();
                search.mark_done(cycle[policy.choose(&waits)]);
                // The report begins with the wait that closed the cycle.
                let closed_it = VictimPolicy::Requester.choose(&waits);
                waits.rotate_left(closed_it);
                cycles.push(waits);
            }
        }
        cycles
    }

    /// Returns the weight of `waiter`. A waiter that came after the copy keeps its weight.
    pub(super) fn weight(&self, waiter: &HeadWaiter) -> u32 {
        let node = self.node_of(waiter.wait());
        node.map_or(waiter.weight, |node| self.nodes[node].weight)
    }

    /// Returns the names whose queue has a waiter behind a lighter one that may be overtaken.
    pub(super) fn queues_out_of_order(&self) -> Vec<Name> {
        let out_of_order = |queue: &GraphQueue| {
            let pairs = queue.waiters[queue.conversions..].windows(2);
            pairs.into_iter().any(|pair| {
                pair[0].may_be_overtaken() && self.weight(&pair[0]) < self.weight(&pair[1])
            })
        };
        let named = self.names.iter().zip(&self.queues);
        let found = named.filter(|(_, queue)| out_of_order(queue));
        found.map(|(name, _)| *name).collect()
    }

    /// Sets the weight of each node.
    fn assign_weights(&mut self) {
        let several = |queue: &GraphQueue| queue.waiters.len() > queue.conversions + 1;
        if !self.queues.iter().any(several) {
            return; // No queue to reorder.
        }
        let order = self.topological_order();
        let weights = match self.is_forest() {
            true => self.weights_of_trees(&order),
            false => self.weights(&order),
        };
        for (node, weight) in weights.into_iter().enumerate() {
            self.nodes[node].weight = if self.can_proceed(node) { weight } else { 0 };
        }
    }

    /// True if no owner waits for two others at once, as when all requests are to write.
    fn is_forest(&self) -> bool {
        let second = |node| self.hard_edge(node, self.hard_edge(node, 0)?.1);
        (0..self.nodes.len()).all(|node| second(node).is_none())
    }

    /// Sums weights along the only edge of each node, which counts each waiter once.
    fn weights_of_trees(&self, order: &[usize]) -> Vec<u32> {
        let mut weights = vec![0; self.nodes.len()];
        for &node in order {
            if let Some((other, _)) = self.hard_edge(node, 0) {
                weights[other] += weights[node] + 1;
            }
        }
        weights
    }

    /// Counts 64 waiters at a time: a bit for each spreads along the edges.
    fn weights(&self, order: &[usize]) -> Vec<u32> {
        let mut weights = vec![0; self.nodes.len()];
        let mut waiting: Vec<u64> = Vec::new();
        for first in (0..self.nodes.len()).step_by(64) {
            waiting.clear();
            waiting.resize(self.nodes.len(), 0);
            for &node in order {
                weights[node] += waiting[node].count_ones();
                let own = node.checked_sub(first).filter(|&bit| bit < 64);
                let bits = waiting[node] | own.map_or(0, |bit| 1 << bit);
                let mut from = 0;
                while let Some((other, next)) = self.hard_edge(node, from) {
                    waiting[other] |= bits;
                    from = next;
                }
            }
        }
        weights
    }

    /// True if all holders that block `node` run, or will once they have checked.
    fn can_proceed(&self, node: usize) -> bool {
        let edges = std::iter::successors(self.hard_edge(node, 0), |&(_, next)| {
            self.hard_edge(node, next)
        });
        edges
            .into_iter()
            .all(|(other, _)| self.nodes[other].queue == NONE)
    }

    /// Returns all nodes, each before those that it waits for, as far as there is no cycle.
    fn topological_order(&self) -> Vec<usize> {
        let mut seen = vec![false; self.nodes.len()];
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut path: Vec<(usize, usize)> = Vec::new();
        for start in 0..self.nodes.len() {
            if !std::mem::replace(&mut seen[start], true) {
                path.push((start, 0));
            }
            while let Some((node, from)) = path.pop() {
                match self.hard_edge(node, from) {
                    None => order.push(node),
                    Some((other, next)) => {
                        path.push((node, next));
                        if !std::mem::replace(&mut seen[other], true) {
                            path.push((other, 0));
                        }
                    }
                }
            }
        }
        order.reverse();
        order
    }
}

/// Search for cycles. A node whose owner has left counts as done, and a done node reaches no cycle,
/// whichever owners leave.
struct CycleSearch<'s> {
    snapshot: &'s WaitGraphCopy,
    seen: Vec<NodeState>,
    /// Number of done waiters at the head of each queue, so that each queue is visited about once,
    /// and not once for each waiter.
    done_count: Vec<usize>,
}

/// Progress of the search at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeState {
    Unvisited,
    OnPath,
    Done,
}

impl CycleSearch<'_> {
    /// Returns a cycle that is reachable from `start`: each waits for the next, the last for the
    /// first.
    fn cycle(&mut self, start: usize) -> Option<Vec<usize>> {
        if self.seen[start] == NodeState::Done {
            return None;
        }
        self.seen[start] = NodeState::OnPath;
        let mut path: Vec<(usize, usize)> = vec![(start, 0)];
        while let Some((node, from)) = path.last_mut() {
            let Some((other, next)) = self.edge(*node, *from) else {
                self.mark_done(*node);
                path.pop();
                continue;
            };
            *from = next;
            match self.seen[other] {
                NodeState::Done => {}
                NodeState::Unvisited => {
                    self.seen[other] = NodeState::OnPath;
                    path.push((other, 0));
                }
                NodeState::OnPath => {
                    let nodes = path.iter().map(|&(node, _)| node);
                    nodes
                        .clone()
                        .for_each(|node| self.seen[node] = NodeState::Unvisited);
                    return Some(nodes.skip_while(|&node| node != other).collect());
                }
            }
        }
        None
    }

    fn edge(&self, node: usize, from: usize) -> Option<(usize, usize)> {
        let queue = self.snapshot.nodes[node].queue;
        let done_count = self.done_count.get(queue).copied().unwrap_or_default();
        self.snapshot.edge(node, from, done_count)
    }

    fn mark_done(&mut self, node: usize) {
        self.seen[node] = NodeState::Done;
        let queue = self.snapshot.nodes[node].queue;
        let Some(done_count) = self.done_count.get_mut(queue) else {
            return;
        };
        // A waiter that came after the copy is in no cycle of it.
        let waiters = &self.snapshot.queues[queue].waiters[*done_count..];
        let mark_done = |waiter: &&HeadWaiter| {
            let node = self.snapshot.node_of(waiter.wait());
            node.is_none_or(|node| self.seen[node] == NodeState::Done)
        };
        *done_count += waiters.iter().take_while(mark_done).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{managers::latched::head::LockHead, request::OwnerId};
    use foxton_sync::{clock::now, park::Ticket, worker::Workers};
    use std::time::Duration;

    /// Each node waits for a name of its own, which the nodes in `holders` hold; later nodes wait
    /// for earlier ones.
    fn snapshot(holders: &[Vec<usize>]) -> WaitGraphCopy {
        let node = |at: usize| GraphNode {
            waiting: WaitInfo {
                id: OwnerId::new(at as u32, 1),
                ticket: Ticket::from_sequence(1),
                name: Name::advisory(at as u64),
                mode: Mode::X,
                since: now(),
                lock_count: 1,
                begun: Duration::ZERO,
                defeats: 0,
            },
            queue: at,
            position: 0,
            weight: 0,
        };
        let queue = |of: &Vec<usize>| GraphQueue {
            holders: of.iter().map(|&node| (node, Mode::S)).collect(),
            ..GraphQueue::default()
        };
        WaitGraphCopy {
            nodes: (0..holders.len()).map(node).collect(),
            names: (0..holders.len() as u64).map(Name::advisory).collect(),
            queues: holders.iter().map(queue).collect(),
            node_at: (0..holders.len()).collect(),
        }
    }

    #[test]
    fn sums_count_each_waiter_once_if_each_waits_for_one() {
        let worker = Workers::with_seed(3).worker();
        for _ in 0..20 {
            let awaited = |at: u64| match worker.random_below(4) {
                0 => Vec::new(),
                _ if at == 0 => Vec::new(),
                _ => vec![worker.random_below(at) as usize],
            };
            let holders: Vec<Vec<usize>> = (0..200).map(awaited).collect();
            let snapshot = snapshot(&holders);
            assert!(snapshot.is_forest());
            let order = snapshot.topological_order();
            let weights = snapshot.weights_of_trees(&order);
            assert_eq!(weights, snapshot.weights(&order));
            assert!(weights.iter().any(|&weight| weight > 1), "{weights:?}");
        }
    }

    #[test]
    fn a_waiter_that_came_after_the_copy_keeps_its_weight() {
        let snapshot = snapshot(&[vec![]]);
        let mut head = LockHead::new(Name::advisory(3));
        let later = head.enqueue(7, Ticket::from_sequence(1), Mode::X, None);
        head.move_forward(later.wait(), 5);
        let later = head.queue().next().expect("it waits");
        assert_eq!(snapshot.weight(&later), 5);
    }

    #[test]
    fn a_waiter_with_two_paths_to_an_owner_is_counted_once() {
        let diamond = [vec![], vec![0], vec![0], vec![1, 2]];
        let mut snapshot = snapshot(&diamond);
        assert!(!snapshot.is_forest());
        // A queue to be ordered, because without one no weights are computed.
        let mut head = LockHead::new(Name::advisory(3));
        let mut waiter = |node| head.enqueue(node, Ticket::from_sequence(1), Mode::X, None);
        snapshot.queues[3].waiters = vec![waiter(3), waiter(4)];
        snapshot.assign_weights();
        let weights: Vec<u32> = snapshot.nodes.iter().map(|node| node.weight).collect();
        assert_eq!(
            snapshot.weights(&snapshot.topological_order()),
            [3, 1, 1, 0]
        );
        // All but the first are behind a waiting holder.
        assert_eq!(weights, [3, 0, 0, 0]);
    }
}
