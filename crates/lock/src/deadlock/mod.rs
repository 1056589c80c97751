//! Deadlocks: found when a wait begins, ended by one victim.
//!
//! A waiter waits for every holder of an incompatible mode (a *hard* edge) and for every earlier
//! waiter of one (a *soft* edge: first come, first served). Every edge starts at somebody who
//! waits, and the only moment at which an edge between two waiting owners appears is when one of
//! them enters a queue. So a new cycle passes through whoever just entered, and each walks the
//! graph from itself, once, after entering. Of the members of a cycle the last to enter sees all
//! the others waiting: no cycle is missed.
//!
//! # The walk
//!
//! One queue at a time, under its latch; nothing is held from one queue to the next, so threads
//! outside the cycle go on. What was seen may be outdated when the next queue is seen. Therefore a
//! cycle that was found is checked again, edge by edge in its order, with the same wait tickets:
//!
//! * An owner that waits neither gains nor loses locks, but for one that is lent to it (I3 of
//!   `queued`): while it has that nobody is in its way, and who takes it away was running. If its
//!   ticket was seen before the check began and is still in the queue when its turn comes, it
//!   waited all along, and an edge to it that was there during the check was there when the check
//!   began.
//! * So when the check passes, all edges existed together, at the moment the check began.
//!
//! # One victim
//!
//! Two members may find one cycle at once. Both choose by the same properties of the same waits, so
//! they choose the same victim, and it is ended under its queue's latch by its ticket: once. After
//! a victim other than the walker itself, the walk is repeated: one wait may close two cycles.

mod wait_edges;

use crate::{
    inspect::DeadlockCycle,
    mode::Mode,
    owner::owner_table::{OwnerTable, WaitInfo, WaitTicket},
    request::CycleMember,
};
use foxton_sync::{
    shim::{Mutex, lock},
    site::{Component, Pattern, Site},
    worker::Worker,
};
use smallvec::SmallVec;
use std::{cmp::Reverse, collections::VecDeque, time::SystemTime};

pub(crate) use wait_edges::{Via, WaitEdges};

/// Who of a cycle gives way.
///
/// What gave way and is run again should not give way for ever. So its owner may be told how often
/// that was ([`Owner::set_defeats`](crate::owner::Owner::set_defeats)), and the first two policies
/// count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum VictimPolicy {
    /// Who holds the fewest locks, counted double for each time that it gave way before; of those
    /// the youngest. So a small transaction gives way to one a thousand times its size ten times at
    /// most.
    #[default]
    LeastWork,
    /// Who gave way least often before; of those, whose transaction began last.
    Youngest,
    /// Whose wait began last, and so closed the cycle, however often it gave way before.
    Requester,
}

impl VictimPolicy {
    /// Which of `cycle` gives way. Depends on nothing but the waits themselves, so that everybody
    /// who finds the cycle chooses alike.
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

/// How one owner stands in the way of another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockingMode {
    pub(crate) mode: Mode,
    pub(crate) holds: bool,
}

/// A lock table, as the walk sees it. Each method takes one latch.
pub(crate) trait Graph {
    fn owners(&self) -> &OwnerTable;

    /// For whom `waiting` waits; `None` if it stands in its queue no longer. `target` is looked for
    /// among the earlier waiters.
    fn wait_edges(&self, worker: &Worker, waiting: &WaitInfo, target: u32) -> Option<WaitEdges>;

    /// How `blocker` stands in the way of `waiting`, if both are still as they were.
    fn blocking_mode(
        &self,
        worker: &Worker,
        waiting: &WaitInfo,
        blocker: u32,
    ) -> Option<BlockingMode>;

    /// Ends the wait of a victim, and says whether it was this call that ended it.
    fn abort_victim(&self, worker: &Worker, victim: WaitTicket, cycle: Vec<CycleMember>) -> bool;

    /// Nobody passes `waiting` any more, who is about to get what a victim gives up: the victim
    /// might be the first to ask for it again, and would close the same cycle once more.
    fn forbid_barging(&self, _worker: &Worker, _waiting: &WaitInfo) {}
}

/// A queue asked on a walk, and its waiters: by everybody whose wait could close a circle there.
static DETECTION: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock detection");

/// Finds deadlocks and remembers the last of them.
#[derive(Debug, Default)]
pub(crate) struct Detector {
    policy: VictimPolicy,
    recent: Mutex<VecDeque<DeadlockCycle>>,
}

/// How many reports are kept.
const RECENT: usize = 64;

/// One owner met on the walk, and in whose way it stands.
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

    pub(crate) fn record(&self, cycle: Vec<CycleMember>) {
        let mut recent = lock(&self.recent);
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(DeadlockCycle {
            at: SystemTime::now(),
            cycle,
        });
    }

    /// Ends every deadlock that `start`, which just entered its queue and found `first` there, has
    /// closed.
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
            // Before: the victim may be back before we are.
            let others = cycle.iter().enumerate().filter(|&(at, _)| at != victim);
            others.for_each(|(_, waiting)| graph.forbid_barging(worker, waiting));
            if graph.abort_victim(worker, cycle[victim].wait_ticket(), members.clone()) {
                self.record(members);
            }
        });
    }
}

/// Has `end` look again at every cycle that goes through `start`, where `first` was found, and end
/// it if it is there.
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
        // Again: there may be another cycle, or what was found had changed meanwhile. Whenever
        // the look failed somebody went on, so this ends. `None`: `start` waits no longer.
        wait_edges = graph.wait_edges(worker, start, start.id.index());
    }
}

/// A path from `start` back to itself: each waits for the next, the last for the first.
fn find_cycle(
    graph: &impl Graph,
    worker: &Worker,
    start: &WaitInfo,
    first: WaitEdges,
) -> Option<Vec<WaitInfo>> {
    let owners = graph.owners();
    let target = start.id.index();
    let mut seen = OwnerSet::new(owners.owner_count());
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

/// What came of adding one queue to the walk.
enum Expansion {
    /// A cycle closes, and this is its last visit.
    CycleFound(usize),
    /// No cycle closes here.
    NoCycle,
    /// A step has ended meanwhile. Who stands in its way may stand in the way of others, too, and
    /// was named once: the queue has to be asked again. It ends, for each time a wait has ended.
    Stale,
}

/// Adds what one queue said to the walk.
fn expand(
    owners: &OwnerTable,
    visits: &mut Vec<SearchNode>,
    open: &mut Vec<usize>,
    seen: &mut OwnerSet,
    target: u32,
    at: usize,
    wait_edges: WaitEdges,
) -> Expansion {
    // Where each step stands among the visits.
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
        // What a place keeps is about to be taken away: nobody waits for the place's transaction.
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

/// Whether all edges of `cycle` still exist, and what they are.
fn confirm(graph: &impl Graph, worker: &Worker, cycle: &[WaitInfo]) -> Option<Vec<BlockingMode>> {
    if waits_for_inherited(graph.owners(), cycle) {
        return None;
    }
    let blocking = |(waiting, blocker): (&WaitInfo, &WaitInfo)| {
        graph.blocking_mode(worker, waiting, blocker.id.index())
    };
    edges(cycle).map(blocking).collect()
}

/// Each of a cycle, and for whom it waits.
pub(crate) fn edges(cycle: &[WaitInfo]) -> impl Iterator<Item = (&WaitInfo, &WaitInfo)> {
    cycle.iter().zip(cycle.iter().cycle().skip(1))
}

/// Whether somebody of `cycle` waits only for what a place keeps: that is about to be taken away.
/// Not under a latch (I3 of `owners`).
///
/// Asked before the edges are looked at. What is not kept then, and is in the way after it, belongs
/// to the transaction that waits there: it keeps nothing new while it waits, and what is taken away
/// from a place is gone from its queue before it is kept no more.
pub(crate) fn waits_for_inherited(owners: &OwnerTable, cycle: &[WaitInfo]) -> bool {
    edges(cycle).any(|(waiting, blocker)| {
        let record = owners.record(blocker.id.index());
        record.has_inherited(waiting.name)
    })
}

/// The cycle for people.
pub(crate) fn describe_cycle(
    owners: &OwnerTable,
    cycle: &[WaitInfo],
    blocking_modes: &[BlockingMode],
    victim: usize,
) -> Vec<CycleMember> {
    let now = owners.now();
    let members = cycle.iter().zip(blocking_modes).enumerate();
    members
        .map(|(at, (waiting, blocking))| CycleMember {
            owner: waiting.id,
            label: owners.record(waiting.id.index()).label_of(waiting.id),
            age: now.saturating_sub(waiting.begun),
            lock_count: waiting.lock_count,
            waits_for: (waiting.name, waiting.mode),
            blocking_mode: blocking.mode,
            blocked_by_holder: blocking.holds,
            victim: at == victim,
        })
        .collect()
}

/// A set of places.
struct OwnerSet(SmallVec<[u64; 16]>);

impl OwnerSet {
    fn new(count: u32) -> Self {
        Self(SmallVec::from_elem(0, count.div_ceil(64) as usize))
    }

    /// Whether `owner_index` was not in the set.
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
    fn who_gave_way_often_gives_way_no_more() {
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

    /// Place 0 has just begun to wait behind 1, which is about to go, and for 2, which waits for 0.
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
            // The victim waits no longer.
            (self.aborted.load(Ordering::Relaxed) == 0).then_some(wait_edges)
        }

        fn blocking_mode(&self, _: &Worker, _: &WaitInfo, _: u32) -> Option<BlockingMode> {
            let mode = Mode::X;
            Some(BlockingMode { mode, holds: true })
        }

        fn abort_victim(&self, _: &Worker, _: WaitTicket, _: Vec<CycleMember>) -> bool {
            self.aborted.fetch_add(1, Ordering::Relaxed) == 0
        }
    }

    #[test]
    fn who_was_named_for_a_step_that_has_ended_is_not_lost() {
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
        // What the queue said while 1 still stood there: 2 is in its way, and so not named again.
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
