//! Deadlock detection: a search when a wait begins, and one victim for each cycle.
//!
//! A waiter waits for every holder of an incompatible mode (a *hard* edge) and for every earlier
//! waiter of one (a *soft* edge: first come, first served). Every edge starts at a waiter. An edge
//! between two waiting owners appears only at the moment when one of them enters a queue. So a new
//! cycle passes through the owner that just entered, and each owner searches the graph once, from
//! itself, after it has entered. The member of a cycle that enters last sees all the others
//! waiting, so no cycle is missed.
//!
//! An edge from an owner that waits already appears in three cases. A conversion is granted ahead
//! of it: then the converting owner runs, and the cycle is not closed before it waits. A conversion
//! is queued ahead of it: then the converting owner begins to wait at that moment. Or, with
//! barging, a request is granted ahead of it, or ahead of an owner that it waits for: then the
//! owner of that request runs too.
//!
//! # The search
//!
//! The search visits one queue at a time, under its latch, and holds nothing from one queue to the
//! next, so threads outside the cycle go on. A queue may have changed when the next one is visited.
//! Therefore each cycle that was found is checked again, edge by edge in its order, with the same
//! wait tickets:
//!
//! * An owner that waits neither gains nor loses locks, with one exception: a revocable grant (I3
//!   of `latched`). While it has that grant nothing blocks it, and the owner that revokes it was
//!   running. Let its ticket be seen before the check began, and still be in the queue when its
//!   turn comes. Then it waited all along, and an edge to it that existed during the check existed
//!   when the check began.
//! * Take a revocable grant that came and went while its owner waited, and follow the edges within
//!   that queue to the one that leaves it. They end at a holder that waits elsewhere with a ticket
//!   of the search, so it has held the name since before the check. A request that conflicts with
//!   that holder, or waits behind one that does, cannot have been granted the lock meanwhile.
//! * So when the check passes, all edges existed together, at the moment the check began.
//!
//! # One victim
//!
//! Two members may find one cycle at once. Both choose by the same properties of the same waits, so
//! they choose the same victim. Its wait is ended under its queue's latch, by its ticket, and so
//! only once. After a victim other than the searching owner, the search is repeated, because one
//! wait may close two cycles.

mod wait_edges;

use crate::{
    inspect::DeadlockCycle,
    mode::Mode,
    owner::owner_table::{OwnerTable, WaitInfo, WaitTicket},
    request::DeadlockMember,
};
use foxton_sync::{
    shim::{Mutex, lock},
    site::{Component, Pattern, Site},
    worker::Worker,
};
use smallvec::SmallVec;
use std::{cmp::Reverse, collections::VecDeque, time::SystemTime};

pub(crate) use wait_edges::{Via, WaitEdges};

/// Rule that chooses the victim of a cycle.
///
/// A transaction that was a victim and runs again should not be a victim for ever. So its owner may
/// be given the number of defeats ([`Owner::set_defeats`](crate::owner::Owner::set_defeats)), and
/// the first two policies count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum VictimPolicy {
    /// The member with the fewest locks, counted double for each earlier defeat; among equals the
    /// youngest. So a small transaction is the victim of one a thousand times its size at most ten
    /// times.
    #[default]
    LeastWork,
    /// The member with the fewest defeats; among equals the transaction that began last.
    Youngest,
    /// The member whose wait began last, and so closed the cycle, whatever its defeats.
    Requester,
}

impl VictimPolicy {
    /// Returns the index of the victim. It depends only on the waits themselves, so every detector
    /// that finds the cycle chooses alike.
    pub(crate) fn choose(self, cycle: &[WaitInfo]) -> usize {
        let index = match self {
            Self::LeastWork => (0..cycle.len()).min_by_key(|&at| {
                let wait = &cycle[at];
                (wait.lost_work(), Reverse(wait.begun), Reverse(wait.id))
            }),
            Self::Youngest => (0..cycle.len()).min_by_key(|&at| {
                let wait = &cycle[at];
                (wait.defeats, Reverse(wait.begun), Reverse(wait.id))
            }),
            Self::Requester => (0..cycle.len()).max_by_key(|&at| (cycle[at].since, cycle[at].id)),
        };
        index.expect("a cycle has members")
    }
}

foxton_sync::named_enum! {
    VictimPolicy, "victim policy":
    LeastWork = "least-work",
    Youngest = "youngest",
    Requester = "requester",
}

/// Mode in which one owner blocks another, held or only requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockingMode {
    pub(crate) mode: Mode,
    pub(crate) holds: bool,
}

/// Lock table, as the search sees it. Each method takes one latch.
pub(crate) trait Graph {
    fn owners(&self) -> &OwnerTable;

    /// Returns the owners that `waiting` waits for; `None` if it has left its queue. `target` is
    /// looked for among the earlier waiters.
    fn wait_edges(&self, worker: &Worker, waiting: &WaitInfo, target: u32) -> Option<WaitEdges>;

    /// Returns the mode in which `blocker` blocks `waiting`, if both are unchanged.
    fn blocking_mode(
        &self,
        worker: &Worker,
        waiting: &WaitInfo,
        blocker: u32,
    ) -> Option<BlockingMode>;

    /// Ends the wait of a victim, and returns true if this call ended it.
    fn abort_victim(&self, worker: &Worker, victim: WaitTicket, cycle: Vec<DeadlockMember>)
    -> bool;

    /// Forbids barging past `waiting`, which is about to get what the victim releases. Otherwise
    /// the victim might be the first to request it again, and close the same cycle once more.
    fn forbid_barging(&self, _worker: &Worker, _waiting: &WaitInfo) {}
}

/// Queue visited by a search, and its waiters. Every owner whose wait could close a cycle passes
/// here.
static DETECTION: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock detection");

/// Finds deadlocks and stores reports of the latest ones.
#[derive(Debug, Default)]
pub(crate) struct Detector {
    policy: VictimPolicy,
    recent: Mutex<VecDeque<DeadlockCycle>>,
}

/// Number of reports stored.
const RECENT: usize = 64;

/// Owner visited by the search, and the node whose owner waits for it.
struct SearchNode {
    waiting: WaitInfo,
    parent: usize,
}

impl Detector {
    pub(crate) fn new(policy: VictimPolicy) -> Self {
        Self {
            policy,
            recent: Mutex::default(),
        }
    }

    pub(crate) fn policy(&self) -> VictimPolicy {
        self.policy
    }

    pub(crate) fn recent(&self) -> Vec<DeadlockCycle> {
        lock(&self.recent).iter().cloned().collect()
    }

    pub(crate) fn record(&self, cycle: Vec<DeadlockMember>) {
        let mut recent = lock(&self.recent);
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(DeadlockCycle {
            at: SystemTime::now(),
            cycle,
        });
    }

    /// Ends every deadlock that `start` has closed. `start` has just entered its queue, and found
    /// `first` there.
    #[inline]
    pub(crate) fn check(
        &self,
        graph: &impl Graph,
        worker: &Worker,
        start: &WaitInfo,
        first: WaitEdges,
    ) {
        if first.may_close_cycle(graph.owners()) {
            self.search(graph, worker, start, first);
        }
    }

    #[cold]
    fn search(&self, graph: &impl Graph, worker: &Worker, start: &WaitInfo, first: WaitEdges) {
        for_each_cycle(graph, worker, start, first, |cycle| {
            let Some(blocking_modes) = confirm(graph, worker, cycle) else {
                return;
            };
            let victim = self.policy.choose(cycle);
            let members = describe_cycle(graph.owners(), cycle, &blocking_modes, victim);
            // Before the victim is aborted, because it may be back before this thread goes on.
            let others = cycle.iter().enumerate().filter(|&(at, _)| at != victim);
            others.for_each(|(_, waiting)| graph.forbid_barging(worker, waiting));
            if graph.abort_victim(worker, cycle[victim].wait_ticket(), members.clone()) {
                self.record(members);
            }
        });
    }
}

/// Calls `end`, which checks and ends a cycle, for every cycle that goes through `start`, where
/// `first` was found.
pub(crate) fn for_each_cycle(
    graph: &impl Graph,
    worker: &Worker,
    start: &WaitInfo,
    first: WaitEdges,
    mut end: impl FnMut(&[WaitInfo]),
) {
    let mut wait_edges = Some(first);
    while let Some(first) = wait_edges {
        let Some(cycle) = find_cycle(graph, worker, start, first) else {
            return;
        };
        end(&cycle);
        // Again, because there may be another cycle, or the one found had changed. Each time that a
        // check failed some owner went on, so this ends. `None`: `start` has left its queue.
        wait_edges = graph.wait_edges(worker, start, start.id.index());
    }
}

/// Returns a path from `start` back to itself: each waits for the next, the last for the first.
fn find_cycle(
    graph: &impl Graph,
    worker: &Worker,
    start: &WaitInfo,
    first: WaitEdges,
) -> Option<Vec<WaitInfo>> {
    let owners = graph.owners();
    let target = start.id.index();
    let mut seen = OwnerSet::new(owners.index_bound());
    seen.insert(target);
    let mut visits = vec![SearchNode {
        waiting: start.clone(),
        parent: 0,
    }];
    let mut open: Vec<usize> = Vec::new();
    let mut next = Some((0, first));
    loop {
        worker.account().passed(&DETECTION);
        let mut again = None;
        if let Some((at, wait_edges)) = next.take() {
            match expand(
                owners,
                &mut visits,
                &mut open,
                &mut seen,
                target,
                at,
                wait_edges,
            ) {
                Expansion::CycleFound(last) => return Some(path_to(&visits, last)),
                Expansion::NoCycle => {}
                Expansion::Stale => again = Some(at),
            }
        }
        let at = match again {
            Some(at) => at,
            None => open.pop()?,
        };
        let wait_edges = graph.wait_edges(worker, &visits[at].waiting, target);
        next = wait_edges.map(|wait_edges| (at, wait_edges));
    }
}

/// Result of adding one queue to the search.
enum Expansion {
    /// A cycle closes at this node.
    CycleFound(usize),
    /// No cycle closes here.
    NoCycle,
    /// A waiter on the path has left. Its blockers were named only once, and may block others, too,
    /// so the queue has to be visited again. That ends, because each time a wait has ended.
    Stale,
}

/// Adds the edges of one queue to the search.
fn expand(
    owners: &OwnerTable,
    visits: &mut Vec<SearchNode>,
    open: &mut Vec<usize>,
    seen: &mut OwnerSet,
    target: u32,
    at: usize,
    wait_edges: WaitEdges,
) -> Expansion {
    // Node of each step.
    let mut visit_indexes: SmallVec<[usize; 8]> = SmallVec::new();
    for step in &wait_edges.steps {
        let parent = match step.via {
            Via::Start => at,
            Via::Step(index) => visit_indexes[index],
        };
        let waiting = owners.record(step.wait.owner_index).waiting();
        let Some(waiting) = waiting.filter(|waiting| waiting.ticket == step.wait.ticket) else {
            return Expansion::Stale;
        };
        visits.push(SearchNode { waiting, parent });
        visit_indexes.push(visits.len() - 1);
    }
    let visit_of = |via: Via| match via {
        Via::Start => at,
        Via::Step(index) => visit_indexes[index],
    };
    if let Some(via) = wait_edges.target {
        return Expansion::CycleFound(visit_of(via));
    }
    for &(owner_index, via) in &wait_edges.holders {
        let parent = visit_of(via);
        // An inherited lock is about to be revoked: nothing waits for the transaction of its owner.
        let record = owners.record(owner_index);
        if record.has_inherited(visits[parent].waiting.name) {
            continue;
        }
        if owner_index == target {
            return Expansion::CycleFound(parent);
        }
        if let Some(waiting) = record.waiting()
            && seen.insert(owner_index)
        {
            visits.push(SearchNode { waiting, parent });
            open.push(visits.len() - 1);
        }
    }
    Expansion::NoCycle
}

fn path_to(visits: &[SearchNode], last: usize) -> Vec<WaitInfo> {
    let mut path = vec![visits[last].waiting.clone()];
    let mut at = last;
    while at != 0 {
        at = visits[at].parent;
        path.push(visits[at].waiting.clone());
    }
    path.reverse();
    path
}

/// Returns the edges of `cycle`, if all of them still exist.
fn confirm(graph: &impl Graph, worker: &Worker, cycle: &[WaitInfo]) -> Option<Vec<BlockingMode>> {
    if waits_for_inherited(graph.owners(), cycle) {
        return None;
    }
    let blocking = |(waiting, blocker): (&WaitInfo, &WaitInfo)| {
        graph.blocking_mode(worker, waiting, blocker.id.index())
    };
    edges(cycle).map(blocking).collect()
}

/// Returns each member of a cycle, with the member that it waits for.
pub(crate) fn edges(cycle: &[WaitInfo]) -> impl Iterator<Item = (&WaitInfo, &WaitInfo)> {
    cycle.iter().zip(cycle.iter().cycle().skip(1))
}

/// True if some member of `cycle` waits only for an inherited lock, which is about to be revoked.
/// Not called under a latch (I3 of `owner_table`).
///
/// Called before the edges are checked. A blocking lock that is not inherited at this call, and
/// still blocks after it, belongs to the transaction that waits there. For that transaction stores
/// no new inherited lock while it waits, and a revoked lock leaves its queue before it stops
/// counting as inherited.
pub(crate) fn waits_for_inherited(owners: &OwnerTable, cycle: &[WaitInfo]) -> bool {
    edges(cycle).any(|(waiting, blocker)| {
        let record = owners.record(blocker.id.index());
        record.has_inherited(waiting.name)
    })
}

/// Describes the cycle for people.
pub(crate) fn describe_cycle(
    owners: &OwnerTable,
    cycle: &[WaitInfo],
    blocking_modes: &[BlockingMode],
    victim: usize,
) -> Vec<DeadlockMember> {
    let now = owners.now();
    let members = cycle.iter().zip(blocking_modes).enumerate();
    members
        .map(|(at, (waiting, blocking))| DeadlockMember {
            owner: waiting.id,
            label: owners.label_of(waiting.id),
            age: now.saturating_sub(waiting.begun),
            lock_count: waiting.lock_count,
            waits_for: (waiting.name, waiting.mode),
            blocking_mode: blocking.mode,
            blocked_by_holder: blocking.holds,
            victim: at == victim,
        })
        .collect()
}

/// Set of owner indexes.
struct OwnerSet(SmallVec<[u64; 16]>);

impl OwnerSet {
    fn new(bound: usize) -> Self {
        Self(SmallVec::from_elem(0, bound.div_ceil(64)))
    }

    /// Adds an owner index, and returns true if it was not in the set.
    fn insert(&mut self, owner_index: u32) -> bool {
        let (word, bit) = (owner_index as usize / 64, 1 << (owner_index % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::wait_edges::PathStep;
    use super::*;
    use crate::name::Name;
    use crate::request::OwnerId;
    use foxton_sync::{
        clock::now,
        park::Ticket,
        shim::{AtomicU64, Ordering},
    };
    use std::time::Duration;

    fn waiting(owner_index: u32, lock_count: usize, begun: u64) -> WaitInfo {
        WaitInfo {
            id: OwnerId::new(owner_index, 1),
            ticket: Ticket::from_sequence(1),
            name: Name::table(1),
            mode: Mode::X,
            since: now(),
            lock_count,
            begun: Duration::from_nanos(begun),
            defeats: 0,
        }
    }

    fn defeated(defeats: u32, waiting: WaitInfo) -> WaitInfo {
        WaitInfo { defeats, ..waiting }
    }

    #[test]
    fn least_work_prefers_few_locks_then_the_youngest_then_the_larger_id() {
        let choose = |cycle: &[WaitInfo]| VictimPolicy::LeastWork.choose(cycle);
        assert_eq!(
            choose(&[waiting(0, 3, 9), waiting(1, 2, 1), waiting(2, 4, 9)]),
            1
        );
        assert_eq!(
            choose(&[waiting(0, 2, 5), waiting(1, 2, 7), waiting(2, 2, 6)]),
            1
        );
        assert_eq!(
            choose(&[waiting(5, 2, 7), waiting(9, 2, 7), waiting(7, 2, 7)]),
            1
        );
    }

    #[test]
    fn a_frequent_victim_is_not_chosen_again() {
        let large = waiting(0, 1000, 1);
        let lost = |defeats| {
            let cycle = [large.clone(), defeated(defeats, waiting(1, 1, 9))];
            VictimPolicy::LeastWork.choose(&cycle) == 1
        };
        assert_eq!((0..100).take_while(|&defeats| lost(defeats)).count(), 9);
        assert!(!lost(u32::MAX));

        let young_again = defeated(1, waiting(1, 1, 9));
        assert_eq!(VictimPolicy::Youngest.choose(&[large, young_again]), 0);
    }

    /// Owner 0 has just begun to wait behind 1, which is about to leave, and for 2, which waits for
    /// 0.
    struct StepEnds {
        owners: OwnerTable,
        aborted: AtomicU64,
    }

    impl Graph for StepEnds {
        fn owners(&self) -> &OwnerTable {
            &self.owners
        }

        fn wait_edges(&self, _: &Worker, waiting: &WaitInfo, _: u32) -> Option<WaitEdges> {
            let blocking = if waiting.id.index() == 0 { 2 } else { 0 };
            let mut wait_edges = WaitEdges::default();
            wait_edges.holders.push((blocking, Via::Start));
            // The victim has left the queue.
            (self.aborted.load(Ordering::Relaxed) == 0).then_some(wait_edges)
        }

        fn blocking_mode(&self, _: &Worker, _: &WaitInfo, _: u32) -> Option<BlockingMode> {
            let mode = Mode::X;
            Some(BlockingMode { mode, holds: true })
        }

        fn abort_victim(&self, _: &Worker, _: WaitTicket, _: Vec<DeadlockMember>) -> bool {
            self.aborted.fetch_add(1, Ordering::Relaxed) == 0
        }
    }

    #[test]
    fn a_blocker_named_for_a_stale_step_is_not_lost() {
        let graph = StepEnds {
            owners: OwnerTable::new(),
            aborted: AtomicU64::new(0),
        };
        for owner_index in 0..3 {
            assert_eq!(graph.owners.allocate_index(), owner_index);
        }
        let start = waiting(0, 1, 1);
        graph.owners.record(0).publish(start.clone());
        graph.owners.record(2).publish(waiting(2, 1, 1));
        // Edges taken while 1 was still in the queue: 2 blocks 1, and so is not named again.
        let mut first = WaitEdges::default();
        let wait = waiting(1, 1, 1).wait_ticket();
        first.steps.push(PathStep {
            wait,
            via: Via::Start,
        });
        first.holders.push((2, Via::Step(0)));
        let detector = Detector::new(VictimPolicy::default());
        let worker = foxton_sync::worker::Workers::new().worker();
        detector.check(&graph, &worker, &start, first);
        assert_eq!(graph.aborted.into_inner(), 1);
    }

    #[test]
    fn everybody_who_finds_a_cycle_chooses_the_same_member() {
        let cycle: Vec<WaitInfo> = (0..5).map(|i| waiting(i, (i % 2) as usize, 7)).collect();
        for policy in VictimPolicy::ALL {
            let chosen: Vec<OwnerId> = (0..cycle.len())
                .map(|turn| {
                    let mut cycle = cycle.clone();
                    cycle.rotate_left(turn);
                    cycle[policy.choose(&cycle)].id
                })
                .collect();
            assert!(chosen.windows(2).all(|pair| pair[0] == pair[1]), "{policy}");
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
    }
}
