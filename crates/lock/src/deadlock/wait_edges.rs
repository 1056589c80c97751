//! Edges of one waiter within one queue: the owners that it waits for, directly or through earlier
//! waiters.

use crate::{
    mode::{COMPONENTS, Mode, Set},
    owner::owner_table::{OwnerTable, WaitTicket},
};
use smallvec::SmallVec;

/// Owners that a waiter waits for, in one queue.
#[derive(Debug, Default)]
pub(crate) struct WaitEdges {
    /// Earlier waiters on the paths to the rest; each names its predecessor.
    pub(crate) steps: SmallVec<[PathStep; 4]>,
    /// Blocking holders: owner index, and the waiter that it blocks.
    pub(crate) holders: SmallVec<[(u32, Via); 4]>,
    /// If the target is an earlier blocking waiter: the waiter that it blocks.
    pub(crate) target: Option<Via>,
}

impl WaitEdges {
    /// True if some path may lead back. Most waits are for a running owner, and then no search is
    /// needed.
    #[inline]
    pub(crate) fn may_close_cycle(&self, owners: &OwnerTable) -> bool {
        let waits = |&(owner_index, _): &(u32, Via)| owners.record(owner_index).is_waiting();
        self.target.is_some() || self.holders.iter().any(waits)
    }

    /// Returns the edges of the waiter `owner_index`, which requests `mode`. `ahead` are the
    /// waiters before it, the nearest first, and `holders` have no modes but `granted`. Records
    /// whether `target` is among the waiters.
    ///
    /// Stores, for each component, up to two reached waiters that request it. A request that
    /// conflicts with a component blocks one of the two that is not its own. So one pass is enough
    /// however long the queue is, and the steps are the few that a path needs.
    pub(crate) fn collect(
        (owner_index, mode): (u32, Mode),
        ahead: impl Iterator<Item = (WaitTicket, Mode)>,
        granted: Set,
        holders: impl Iterator<Item = (u32, Mode)>,
        target: u32,
    ) -> Self {
        let mut wait_edges = Self::default();
        let mut waiters = ComponentWaiters::default();
        waiters.add(mode.set(), owner_index, Via::Start);
        for (wait, mode) in ahead {
            let Some(via) = waiters.blocked_by(mode.set(), wait.owner_index) else {
                continue;
            };
            if wait.owner_index == target {
                wait_edges.target = Some(via);
            }
            if waiters.has_space_for(mode.set()) {
                wait_edges.steps.push(PathStep { wait, via });
                let step = Via::Step(wait_edges.steps.len() - 1);
                waiters.add(mode.set(), wait.owner_index, step);
            }
        }
        if waiters.all.conflicts().intersects(granted) {
            let blocking = holders.filter_map(|(owner_index, mode)| {
                waiters
                    .blocked_by(mode.set(), owner_index)
                    .map(|via| (owner_index, via))
            });
            wait_edges.holders.extend(blocking);
        }
        wait_edges
    }
}

/// Waiter that is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// The waiter that the search asked about.
    Start,
    /// The waiter of this step.
    Step(usize),
}

/// Earlier waiter on a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathStep {
    pub(crate) wait: WaitTicket,
    pub(crate) via: Via,
}

/// For each component, up to two waiters that request it.
#[derive(Default)]
struct ComponentWaiters {
    all: Set,
    by_component: [SmallVec<[(u32, Via); 2]>; COMPONENTS],
}

impl ComponentWaiters {
    fn add(&mut self, mode: Set, owner_index: u32, via: Via) {
        self.all = self.all.union(mode);
        for component in mode.indices() {
            if self.by_component[component].len() < 2 {
                self.by_component[component].push((owner_index, via));
            }
        }
    }

    fn has_space_for(&self, mode: Set) -> bool {
        mode.indices()
            .any(|component| self.by_component[component].len() < 2)
    }

    /// Returns a waiter other than `owner_index` that is blocked by a request of `owner_index` in
    /// `mode`.
    fn blocked_by(&self, mode: Set, owner_index: u32) -> Option<Via> {
        let components =
            (0..COMPONENTS).filter(|&component| mode.conflicts().intersects(Set::one(component)));
        let by_component = components.flat_map(|component| &self.by_component[component]);
        by_component
            .filter(|(other, _)| *other != owner_index)
            .map(|&(_, via)| via)
            .next()
    }
}
