//! What one queue says of one of its waiters: for whom it waits, directly or through earlier
//! waiters of the same queue.

use crate::{
    mode::{COMPONENTS, Mode, Set},
    owner::owner_table::{OwnerTable, WaitTicket},
};
use smallvec::SmallVec;

/// For whom somebody waits, in one queue.
#[derive(Debug, Default)]
pub(crate) struct WaitEdges {
    /// Earlier waiters on the way to the rest; each names its predecessor.
    pub(crate) steps: SmallVec<[PathStep; 4]>,
    /// Holders that stand in somebody's way: place, and in whose.
    pub(crate) holders: SmallVec<[(u32, Via); 4]>,
    /// If the owner looked for is an earlier waiter that stands in somebody's way: in whose.
    pub(crate) target: Option<Via>,
}

impl WaitEdges {
    /// Whether there may be a way back: most waits are for somebody who runs, and then nothing more
    /// needs to be looked at.
    #[inline]
    pub(crate) fn may_close_cycle(&self, owners: &OwnerTable) -> bool {
        let waits = |&(owner_index, _): &(u32, Via)| owners.record(owner_index).is_waiting();
        self.target.is_some() || self.holders.iter().any(waits)
    }

    /// From the waiter at `owner_index`, who wants `mode`: `ahead` are the waiters before it, the
    /// nearest first, and `holders` have no modes but `granted`. Whether `target` waits there is
    /// noted.
    ///
    /// Keeps, for each component, up to two waiters already reached that want it. Whoever conflicts
    /// with a component stands in the way of one of the two that is not itself. So the walk needs
    /// one pass however long the line is, and what it reports as steps is what a path needs: a few.
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

/// In whose way somebody stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// In the way of the waiter that was asked about.
    Start,
    /// In the way of this step.
    Step(usize),
}

/// An earlier waiter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathStep {
    pub(crate) wait: WaitTicket,
    pub(crate) via: Via,
}

/// For each component, up to two waiters that want it.
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

    /// Who, other than `owner_index`, is kept waiting by somebody at `owner_index` who has or wants
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
