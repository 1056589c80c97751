//! Deadlock detector, which also reorders the queues.
//!
//! A search and a copy both visit one queue after the other, so a cycle that they find may never
//! have existed. Therefore the queues of the cycle are latched together while its edges are checked
//! again. Either all edges exist at that moment or they do not. If they do, one member is the
//! victim before anything else happens there. Calls for other shards go on meanwhile.
//!
//! A search is repeated until it finds nothing. A copy is followed by another, until one shows
//! nothing to do. Each round but the last has ended a wait, or has moved one waiter before another,
//! which happens to a waiter only so many times, or has found that an owner went on meanwhile.

use super::{
    GrantOrder, ShardedInner,
    shards::{GlobalLatch, LatchedShards, Shards},
    wait_graph::WaitGraphCopy,
};
use crate::{
    deadlock::{
        BlockingMode, Graph, WaitEdges, describe_cycle, edges, for_each_cycle, waits_for_inherited,
    },
    managers::latched::LatchedQueues,
    name::Name,
    owner::owner_table::{WaitInfo, Wakes},
    request::RefusalReason,
};
use foxton_sync::{
    clock::now,
    shim::{
        Condvar, Mutex, lock,
        thread::{self, JoinHandle},
    },
    site::{Component, Pattern, Site},
    worker::Worker,
};
use std::time::Duration;

/// After a copy the thread rests for this many times as long, so that the order takes an eighth of
/// a processor.
const REST_FACTOR: u32 = 7;
/// Longest rest, because a manager that is dropped waits for the thread.
const MAX_REST: Duration = Duration::from_millis(10);

/// Several shards, latched together.
static CYCLE: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock cycle");

/// Signal to the thread, sent by each new waiter.
pub(super) static SIGNAL: Site = Site::new(Component::Message, Pattern::Unbounded, "lock detector");

/// Signal from new waiters to the detector thread.
#[derive(Debug, Default)]
pub(super) struct DetectorSignal {
    state: Mutex<SignalState>,
    condition: Condvar,
}

#[derive(Debug, Default)]
struct SignalState {
    notified: bool,
    stopped: bool,
    thread: Option<JoinHandle<()>>,
}

impl DetectorSignal {
    /// Wakes the thread; the first time, calls `start` to start it.
    pub(super) fn notify(&self, start: impl FnOnce() -> JoinHandle<()>) {
        let mut state = lock(&self.state);
        if state.thread.is_none() {
            state.thread = Some(start());
        }
        let first = !std::mem::replace(&mut state.notified, true);
        drop(state);
        if first {
            self.condition.notify_one();
        }
    }

    /// Sleeps until there is a signal. Returns false when the manager is dropped.
    pub(super) fn wait(&self) -> bool {
        let mut state = lock(&self.state);
        while !state.notified && !state.stopped {
            let slept = self.condition.wait(state);
            state = slept.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        state.notified = false;
        !state.stopped
    }

    /// Stops the thread, and returns its handle if there is one.
    pub(super) fn stop(&self) -> Option<JoinHandle<()>> {
        let mut state = lock(&self.state);
        state.stopped = true;
        self.condition.notify_one();
        state.thread.take()
    }
}

impl<W: GlobalLatch> ShardedInner<W> {
    /// Ends every deadlock that `start`, which is in its queue and found `first` there, is part of.
    #[cold]
    pub(super) fn search(&self, worker: &Worker, start: &WaitInfo, first: WaitEdges) {
        for_each_cycle(&self.locks, worker, start, first, |cycle| {
            self.end_cycle(worker, cycle);
        });
    }

    /// Main loop of the thread: checks after each signal, and then rests.
    pub(super) fn run_detector(&self, worker: &Worker) {
        while self.signal.wait() {
            loop {
                let began = now();
                let more = self.check_once(worker);
                if !W::CAN_STOP {
                    let rest = began.elapsed() * REST_FACTOR;
                    thread::park_timeout(rest.min(MAX_REST));
                }
                if !more {
                    break;
                }
            }
        }
    }

    /// Checks all waiters until nothing is to be done.
    pub(super) fn check(&self, worker: &Worker) {
        while self.check_once(worker) {}
    }

    /// Checks all waiters once, and returns true if there was something to do.
    pub(super) fn check_once(&self, worker: &Worker) -> bool {
        let locks = &self.locks;
        let snapshot = WaitGraphCopy::take(locks, worker);
        if W::CAN_STOP {
            let cycles = snapshot.cycles(locks.detector.policy());
            cycles
                .iter()
                .for_each(|cycle| self.end_cycle(worker, cycle));
            if !cycles.is_empty() {
                return true;
            }
        }
        let queues = match self.order {
            GrantOrder::Contention => snapshot.queues_out_of_order(),
            GrantOrder::Fifo => Vec::new(),
        };
        for name in &queues {
            self.reorder(worker, &snapshot, name);
        }
        !queues.is_empty()
    }

    /// Ends the wait of one member of `cycle`, if the cycle exists.
    fn end_cycle(&self, worker: &Worker, cycle: &[WaitInfo]) {
        let locks = &self.locks;
        if waits_for_inherited(&locks.owners, cycle) {
            return;
        }
        worker.account().passed(&CYCLE);
        let mut wakes = Wakes::new();
        let names = cycle.iter().map(|waiting| &waiting.name);
        locks.buckets.with_latched(worker, names, |latched| {
            end_deadlock(locks, worker, latched, cycle, &mut wakes);
        });
    }

    /// Puts the queue of `name` into the order of `snapshot`, and grants the waiters that can be
    /// granted then.
    fn reorder(&self, worker: &Worker, snapshot: &WaitGraphCopy, name: &Name) {
        let locks = &self.locks;
        let mut wakes = Wakes::new();
        let moved = locks.with(worker, name, name.hash() as u32, |heads| {
            heads.get(name)?;
            heads.change(name, |head| {
                let moved = head.reorder(|waiter| snapshot.weight(waiter));
                if !moved.is_empty() {
                    locks.grant_waiters(worker, head, &mut wakes);
                }
                Some(moved)
            })
        });
        drop(wakes);
        if W::CAN_STOP {
            return; // The next copy shows it.
        }
        for wait in moved.into_iter().flatten() {
            if let Some(waiting) = locks.owners.waiting(wait) {
                self.search_again(worker, &waiting);
            }
        }
    }

    /// Moves a new waiter forward as far as its weight allows.
    pub(super) fn move_forward(&self, worker: &Worker, waiting: &WaitInfo) {
        if self.locks.move_forward(worker, waiting) {
            self.search_again(worker, waiting);
        }
    }

    fn search_again(&self, worker: &Worker, waiting: &WaitInfo) {
        if let Some(wait_edges) = self.locks.wait_edges(worker, waiting, waiting.id.index()) {
            self.search(worker, waiting, wait_edges);
        }
    }
}

/// Ends the wait of one member of `cycle`, if the cycle exists.
fn end_deadlock<'m, W: GlobalLatch>(
    locks: &'m LatchedQueues<Shards<W>>,
    worker: &Worker,
    latched: &mut LatchedShards<'_>,
    cycle: &[WaitInfo],
    wakes: &mut Wakes<'m>,
) {
    let blocking_modes: Option<Vec<BlockingMode>> = edges(cycle)
        .map(|(waiting, blocker)| {
            let heads = latched.bucket(&waiting.name);
            let head = heads.get(&waiting.name)?;
            head.blocking_mode(waiting.wait_ticket(), blocker.id.index())
        })
        .collect();
    let Some(blocking_modes) = blocking_modes else {
        return;
    };
    let victim = locks.detector.policy().choose(cycle);
    let members = describe_cycle(&locks.owners, cycle, &blocking_modes, victim);
    let waiting = &cycle[victim];
    let heads = latched.bucket(&waiting.name);
    let ended = locks.refuse_in(
        worker,
        heads,
        waiting,
        RefusalReason::Deadlock,
        members.clone(),
        wakes,
    );
    debug_assert!(ended, "it was in the queue a moment ago");
    locks.detector.record(members);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::{NoGlobalLatch, Sharded};
    use super::*;
    use crate::{deadlock::VictimPolicy, manager::LockManager, mode::Mode, request::WaitMode};
    use foxton_sync::{latch, worker::Workers};

    /// A search may have seen a lock while a transaction held it that has ended and left it to be
    /// inherited.
    #[test]
    fn an_inherited_lock_closes_no_cycle() {
        let policy = VictimPolicy::default();
        let locks = Sharded::<NoGlobalLatch>::new(
            latch::Kind::default(),
            1,
            policy,
            GrantOrder::Fifo,
            false,
        );
        let worker = Workers::with_seed(1).worker();
        let (mut heir, mut writer) = (locks.owner(), locks.owner());
        let (kept, other) = (Name::table(1), Name::table(2));
        assert!(locks.try_lock(&worker, &mut heir, kept, Mode::IS).is_held());
        let entry = heir.locks.remove(0);
        lock(&heir.details().inherited).insert(entry);
        assert!(
            locks
                .try_lock(&worker, &mut writer, other, Mode::X)
                .is_held()
        );
        let _ = locks.request(&worker, &mut heir, other, Mode::X, WaitMode::Wait);
        let _ = locks.request(&worker, &mut writer, kept, Mode::X, WaitMode::Wait);
        let waits = |owner: &crate::owner::Owner| owner.record().waiting().expect("it waits");
        locks
            .inner
            .end_cycle(&worker, &[waits(&heir), waits(&writer)]);
        assert!(locks.deadlocks().is_empty());
        // As soon as the transaction has taken it over, it closes one.
        let taken = lock(&heir.details().inherited).remove(kept);
        assert!(taken.is_some());
        locks
            .inner
            .end_cycle(&worker, &[waits(&heir), waits(&writer)]);
        assert_eq!(locks.deadlocks().len(), 1);
    }
}
