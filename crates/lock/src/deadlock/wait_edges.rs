//! Edges of one waiter within one queue: the owners that it waits for, directly or through earlier
//! waiters.

use crate::{
    mode::{Mode, Set},
    owner::owner_table::{OwnerTable, WaitTicket},
    wait_list::{WaitClass, WaitList, WaitOrder, Waiter},
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

    /// Returns the edges of the waiter `start` of `list`. `holders` have no modes but `granted`.
    /// Records whether `target` is among the waiters that it waits for.
    ///
    /// Of each class it finds the last waiter on a path from `start`, because an earlier one of the
    /// class leads nowhere else. The waiters ahead of the earlier one are also ahead of the last
    /// one, and conflict with both or neither. The holders that block the earlier one block the
    /// last one, too, except the last one itself. If that one's own lock blocks the earlier one,
    /// then it is a conversion. The earlier one holds the same mode, so it is among the holders
    /// that block the last one.
    pub(crate) fn collect<W: Waiter>(
        list: &WaitList<W>,
        start: (WaitOrder, W),
        granted: Set,
        holders: impl Iterator<Item = (u32, Mode)>,
        target: u32,
    ) -> Self {
        let mut wait_edges = Self::default();
        let (order, waiter) = start;
        let mut reached: SmallVec<[ReachedWaiter; 4]> = SmallVec::new();
        reached.push(ReachedWaiter::new(order, &waiter, Via::Start));
        let others = list
            .classes()
            .filter(|class| *class != WaitClass::of(&waiter));
        let mut open: SmallVec<[OpenClass; 4]> = others.map(OpenClass::new).collect();
        loop {
            // Each is before all that were reached earlier, so the last of its class is final.
            let foremost = reached[reached.len() - 1];
            for open in &mut open {
                open.extend(list, &foremost);
            }
            let next = (0..open.len()).filter(|&at| open[at].last.is_some());
            let Some(next) = next.max_by_key(|&at| open[at].last.map(|last| last.0)) else {
                break;
            };
            let (order, owner_index, via) = open.swap_remove(next).last.expect("it was found");
            let (_, waiter) = list.get_owner(owner_index).expect("it is in the list");
            let wait = waiter.wait_ticket();
            wait_edges.steps.push(PathStep { wait, via });
            let step = Via::Step(wait_edges.steps.len() - 1);
            reached.push(ReachedWaiter::new(order, &waiter, step));
        }
        if let Some((order, waiter)) = list.get_owner(target) {
            let behind = reached
                .iter()
                .find(|reached| order < reached.order && !waiter.mode().compatible(reached.mode));
            wait_edges.target = behind.map(|reached| reached.via);
        }
        let wanted = reached.iter().fold(Set::NONE, |all, reached| {
            all.union(reached.mode.conflicts())
        });
        if wanted.intersects(granted) {
            let blocking = holders.filter_map(|(owner_index, mode)| {
                let blocked = reached.iter().find(|reached| {
                    reached.owner_index != owner_index && !reached.mode.compatible(mode)
                });
                blocked.map(|reached| (owner_index, reached.via))
            });
            wait_edges.holders.extend(blocking);
        }
        wait_edges
    }
}

/// Waiter on a path from the start of a search.
#[derive(Debug, Clone, Copy)]
struct ReachedWaiter {
    order: WaitOrder,
    owner_index: u32,
    mode: Mode,
    via: Via,
}

impl ReachedWaiter {
    fn new(order: WaitOrder, waiter: &impl Waiter, via: Via) -> Self {
        Self {
            order,
            owner_index: waiter.wait_ticket().owner_index,
            mode: waiter.mode(),
            via,
        }
    }
}

/// Class that was not reached yet.
struct OpenClass {
    class: WaitClass,
    /// The last waiter of the class that blocks a reached one: order, owner, and that one.
    last: Option<(WaitOrder, u32, Via)>,
}

impl OpenClass {
    fn new(class: WaitClass) -> Self {
        Self { class, last: None }
    }

    /// Looks for a later waiter of the class that blocks `reached`.
    fn extend<W: Waiter>(&mut self, list: &WaitList<W>, reached: &ReachedWaiter) {
        if self.class.mode().compatible(reached.mode) {
            return;
        }
        let found = list.last_before(self.class, reached.order);
        if let Some((order, owner_index)) = found
            && self.last.is_none_or(|last| last.0 < order)
        {
            self.last = Some((order, owner_index, reached.via));
        }
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
