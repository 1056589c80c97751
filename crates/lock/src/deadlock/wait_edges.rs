//! What one queue says of one of its waiters: for whom it waits, directly or through earlier waiters
//! of the same queue.

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
    pub(crate) fn may_lead_back(&self, registry: &OwnerTable) -> bool {
        let waits = |&(place, _): &(u32, Via)| registry.record(place).is_waiting();
        self.target.is_some() || self.holders.iter().any(waits)
    }

    /// From the waiter at `place`, who wants `mode`: `ahead` are the waiters before it, the nearest
    /// first, and `holders` have no modes but `granted`. Whether `target` waits there is noted.
    ///
    /// Keeps, for each component, up to two waiters already reached that want it. Whoever conflicts
    /// with a component stands in the way of one of the two that is not itself. So the walk needs one
    /// pass however long the line is, and what it reports as steps is what a path needs: a few.
    pub(crate) fn walk(
        (place, mode): (u32, Mode),
        ahead: impl Iterator<Item = (WaitTicket, Mode)>,
        granted: Set,
        holders: impl Iterator<Item = (u32, Mode)>,
        target: u32,
    ) -> Self {
        let mut reach = Self::default();
        let mut wanted = ComponentWaiters::default();
        wanted.add(mode.set(), place, Via::Start);
        for (wait, mode) in ahead {
            let Some(via) = wanted.blocked_by(mode.set(), wait.place) else {
                continue;
            };
            if wait.place == target {
                reach.target = Some(via);
            }
            if wanted.lacks(mode.set()) {
                reach.steps.push(PathStep { wait, via });
                let step = Via::Step(reach.steps.len() - 1);
                wanted.add(mode.set(), wait.place, step);
            }
        }
        if wanted.all.conflicts().meets(granted) {
            let blocking = holders.filter_map(|(place, mode)| {
                wanted.blocked_by(mode.set(), place).map(|via| (place, via))
            });
            reach.holders.extend(blocking);
        }
        reach
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
    wanting: [SmallVec<[(u32, Via); 2]>; COMPONENTS],
}

impl ComponentWaiters {
    fn add(&mut self, mode: Set, place: u32, via: Via) {
        self.all = self.all.union(mode);
        for component in mode.indices() {
            if self.wanting[component].len() < 2 {
                self.wanting[component].push((place, via));
            }
        }
    }

    fn lacks(&self, mode: Set) -> bool {
        mode.indices()
            .any(|component| self.wanting[component].len() < 2)
    }

    /// Who, other than `place`, is kept waiting by somebody at `place` who has or wants `mode`.
    fn blocked_by(&self, mode: Set, place: u32) -> Option<Via> {
        let components =
            (0..COMPONENTS).filter(|&component| mode.conflicts().meets(Set::one(component)));
        let wanting = components.flat_map(|component| &self.wanting[component]);
        wanting
            .filter(|(other, _)| *other != place)
            .map(|&(_, via)| via)
            .next()
    }
}
