//! Latches for shards of the queues, a detector of its own, and an order that knows who is waited for.
//!
//! Names of tables and of everything else lie in two hash tables. A shard is what one latch is over: a
//! bucket, on the cache line of its latch. A call latches one shard. Who has to see several queues at one
//! moment latches the shards of all of them, in their order. Only a deadlock asks for that.
//!
//! A wait that may have closed a cycle is followed by whoever begins it, before it goes to sleep, from one queue to the
//! next. A thread of the manager's own copies the queues that somebody waits in (`snapshot`). The copy says how many
//! others each waiter keeps waiting, and the thread puts those with many before those with few
//! (`LockHead::reorder`); then it rests for several times as long as it took.
//!
//! ```text
//! (world      [ 64 shared/exclusive latches ]      only in the document's form)
//!                  |
//! shards      keys    [ latch | heads ] [ ..       a call latches one; the detector, once it has found
//!             tables  [ latch | heads ] [ ..       a cycle, those of the cycle, in order
//! ```
//!
//! In the document's form (`shards::PartitionedLatch`) the buckets of each hash table share 512 latches, and one
//! more latch stands above them, itself in 64 parts (`ShardedLatched`): a call enters one part shared,
//! picked at random, and who has found a cycle enters all, and so stops everybody. And there nobody who waits
//! searches: the thread finds cycles, too, in its copies, one after the other as long as somebody begins to wait.
//!
//! # Invariants
//!
//! * I1  A call holds one shard, and before it a part of the world if there is one; it takes neither again
//!   before it has given both back. So who waits for several of them waits for calls that go on.
//! * I2  A cycle is closed by the beginning of a wait, or by a move to the front of a line. Who begins a wait that
//!   may close one searches from it after it stands in its queue, and who moves others searches from each that it moved.
//!   In the document's form it rings the bell instead, the thread begins a new copy after it has heard the bell, and
//!   there is another copy after every change of an order. So every cycle is found.
//! * I3  Whoever the thread puts before others in a line waits only for holders who run, at the moment of the
//!   copy.
//!
//! # Differences from the document
//!
//! Olchawa and Rejewski's description (MySQL's InnoDB, 8.0.21) gives each transaction a latch of its
//! own, taken after the shard's, since a grant there enters the lock into the list of somebody else.
//! Here the list of an owner is its own: who grants leaves a verdict with the parker, and the owner
//! enters the lock when it collects it. So there is no column to latch, nothing to note, drop and
//! check again on the way through it, and no order between two columns to argue for. What the
//! detector wants to know of an owner, how many locks it holds and since when, stands in the record
//! that a wait publishes.
//!
//! No operation moves a lock from one queue to another, since names are keys and not places; so two
//! shards are latched together only for a deadlock.
//!
//! The document stops the world for a deadlock, so that nobody on the cycle is rolled back meanwhile. But
//! all that makes or breaks an edge of a cycle happens under the latch of the queue of that edge's waiter:
//! grants, refusals, cancellations, new requests ahead, releases by the holder. So the queues of the cycle
//! are enough, and the others need not wait, nor pass another latch each time for the sake of a deadlock.
//!
//! There a thread finds deadlocks, since searching under the one latch over everything was what others waited for. Here a
//! search takes one shard at a time, and begins where the cycle must be. A copy of a thousand waits takes hundreds of times
//! as long as that; meanwhile whoever wants a name of the cycle comes to a stand behind it, where rows are hot everybody.
//! And a thread that makes one copy after the other has a processor to itself. So the copies are left with the order, which
//! may be late, and have a share of the time.
//!
//! Its 512 latches are many where threads run, and few where they wait to run. Of 512 clients on two
//! processors, one that loses its processor under a shard's latch comes back after hundreds of turns, and
//! each of those that run meanwhile meets the shard within some twenty transactions, parks there, and has
//! to be woken. With a latch for each bucket that is one in thousands; and a latch on the line of what it
//! protects is one line less to fetch.

mod shards;
mod wait_graph;
mod detector;
#[cfg(test)]
mod state_space;

use super::latched::LatchedQueues;
use crate::{
    deadlock::{VictimPolicy, WaitEdges},
    manager::{LockManager, forward},
    mode::Mode,
    name::Name,
    owner::{
        LockSavepoint, Owner,
        owner_table::{OwnerTable, WaitInfo},
    },
    request::{Reply, WaitMode},
};
use detector::DetectorSignal;
use foxton_sync::{
    latch,
    shim::{Arc, thread},
    worker::Worker,
};
use shards::{GlobalLatch, Shards};
use std::fmt;

pub use shards::{NoGlobalLatch, PartitionedLatch};

/// Who of a line goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GrantOrder {
    /// Whom most others wait for, directly or not, but nobody is overtaken without bound.
    #[default]
    Contention,
    /// Who came first.
    Fifo,
}

/// A manager with a latch for each shard, and whom most wait for goes first.
#[expect(private_bounds, reason = "what is above the shards is one of two")]
pub struct Sharded<W: GlobalLatch> {
    inner: Arc<ShardedInner<W>>,
    /// Whether copies of the queues are made by a thread, and not by whoever begins to wait.
    own_thread: bool,
}

/// What the manager and its thread share.
struct ShardedInner<W: GlobalLatch> {
    locks: LatchedQueues<Shards<W>>,
    order: GrantOrder,
    signal: DetectorSignal,
}

impl<W: GlobalLatch> fmt::Debug for Sharded<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharded")
            .field("locks", &self.inner.locks)
            .field("order", &self.inner.order)
            .finish_non_exhaustive()
    }
}

#[expect(private_bounds, reason = "what is above the shards is one of two")]
impl<W: GlobalLatch + 'static> Sharded<W> {
    /// A manager of `buckets` buckets for keys, a power of two, behind latches of `kind`. Its
    /// thread begins with the first wait of somebody for whom others may wait, and ends
    /// with the manager; if `own_thread` is false, whoever begins such a wait does its work.
    pub fn new(
        kind: latch::Kind,
        buckets: usize,
        policy: VictimPolicy,
        order: GrantOrder,
        own_thread: bool,
    ) -> Self {
        let locks = LatchedQueues::over(Shards::new(kind, buckets), policy);
        let uses_weights = !W::CAN_STOP && order == GrantOrder::Contention;
        let inner = ShardedInner {
            locks: if uses_weights {
                locks.with_weights()
            } else {
                locks
            },
            order,
            signal: DetectorSignal::default(),
        };
        Self {
            inner: Arc::new(inner),
            own_thread,
        }
    }

    pub(crate) fn owners(&self) -> &OwnerTable {
        self.inner.locks.owners()
    }

    /// Who of a line goes first.
    pub fn order(&self) -> GrantOrder {
        self.inner.order
    }

    /// A wait has begun: looks whether it closed a cycle, and has somebody look whether those ahead of
    /// it should now go earlier.
    fn wait_began(&self, worker: &Worker, waiting: &WaitInfo, wait_edges: WaitEdges) {
        let may_close_cycle = wait_edges.may_close_cycle(&self.inner.locks.owners);
        if !W::CAN_STOP {
            if may_close_cycle {
                self.inner.search(worker, waiting, wait_edges);
            }
            self.inner.move_forward(worker, waiting);
        }
        if !may_close_cycle || (!W::CAN_STOP && self.inner.order == GrantOrder::Fifo) {
            return;
        }
        if self.own_thread {
            worker.account().passed(&detector::SIGNAL);
            self.inner.signal.notify(|| {
                let (inner, worker) = (self.inner.clone(), worker.workers().background_worker());
                thread::spawn(move || inner.run_detector(&worker))
            });
        } else {
            self.inner.check(worker);
        }
    }
}

impl<W: GlobalLatch> Drop for Sharded<W> {
    fn drop(&mut self) {
        if let Some(detector) = self.inner.signal.stop() {
            // A panic in there was reported when it happened; here it would only hide another.
            let _ = detector.join();
        }
    }
}

impl<W: GlobalLatch + 'static> LockManager for Sharded<W> {
    #[inline(never)]
    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        let locks = &self.inner.locks;
        locks.acquire(
            worker,
            owner,
            name,
            mode,
            wait_mode,
            |waiting, wait_edges| {
                self.wait_began(worker, waiting, wait_edges);
            },
        )
    }

    #[inline]
    fn release_all(&self, worker: &Worker, owner: &mut Owner) {
        let locks = &self.inner.locks;
        locks.release_all(worker, owner);
        locks.clear_weight(owner);
    }

    /// What the owner keeps is counted anew, by who comes from now on.
    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: LockSavepoint) {
        let locks = &self.inner.locks;
        locks.release_since(worker, owner, savepoint);
        locks.clear_weight(owner);
    }

    forward! {
        (inner.locks)
        owner prefetch cancel end_wait release inspect inspect_limited longest_wait
        deadlocks stats verify
    }
}
