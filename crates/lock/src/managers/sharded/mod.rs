//! Manager with sharded latches, a detector thread, and an order of grants that considers how many
//! owners wait for each waiter.
//!
//! Names of tables and all other names are in two hash tables. A shard is the data of one latch: a
//! bucket, on the cache line of its latch. A call latches one shard. To see several queues at one
//! moment, a thread latches their shards in order; only the end of a deadlock needs that.
//!
//! A new waiter whose wait may have closed a cycle searches for it before it sleeps, from one queue
//! to the next. A thread of the manager copies all queues with waiters (`wait_graph`). The copy
//! shows how many owners each waiter blocks, and the thread moves waiters that block many before
//! those that block few (`LockHead::reorder`). Then it rests for several times as long as that
//! took.
//!
//! ```text
//! (global     [ 64 shared/exclusive latches ]      only in the form of the paper)
//!                  |
//! shards      keys    [ latch | heads ] [ ..       a call latches one; the detector, once it has
//!             tables  [ latch | heads ] [ ..       found a cycle, those of the cycle, in order
//! ```
//!
//! In the form of the paper (`shards::PartitionedLatch`) the buckets of each hash table share 512
//! latches. A global latch is above them, itself in 64 parts (`ShardedLatched`). A call enters one
//! part shared, picked at random. A thread that has found a cycle enters all parts exclusively, and
//! so stops all calls. No waiter searches in this form: the thread also finds the cycles, in its
//! copies, and makes one copy after the other as long as waits begin.
//!
//! # Invariants
//!
//! * I1  A call holds one shard, and before it a part of the global latch if there is one. It takes
//!   neither again before it has dropped both. So a thread that waits for several of them waits for
//!   calls that go on.
//! * I2  A cycle is closed by the beginning of a wait, or by a move to the front of a queue. An
//!   owner whose new wait may close one searches from it after it has entered its queue. A thread
//!   that moves waiters searches from each that it moved. In the form of the paper the new waiter
//!   signals the thread instead. The thread begins a new copy after it has received the signal, and
//!   makes another copy after every change of an order. So every cycle is found.
//! * I3  Each waiter that the thread moves before others waits only for holders that run, at the
//!   moment of the copy.
//!
//! # Differences from the paper
//!
//! Olchawa and Rejewski's description (MySQL's InnoDB, 8.0.21) gives each transaction a latch of
//! its own, taken after the shard's, because a grant there adds the lock to the list of another
//! transaction. Here only the owner touches its list: a grant leaves a verdict with the parker, and
//! the owner adds the lock when it collects the verdict. So there are no transaction latches, no
//! steps that drop and check such a latch, and no order between two of them to argue for. The
//! detector needs to know of an owner how many locks it holds and since when; the record that a
//! wait publishes has both.
//!
//! No operation moves a lock from one queue to another, because a name is a key and not a place. So
//! two shards are latched together only for a deadlock.
//!
//! The paper stops all calls for a deadlock, so that no transaction of the cycle is rolled back
//! meanwhile. But everything that makes or breaks an edge of a cycle happens under the latch of the
//! queue of that edge's waiter: grants, refusals, cancellations, new requests ahead, releases by
//! the holder. So it is enough to latch the queues of the cycle. The other calls need not wait, nor
//! pass another latch each time because of deadlocks.
//!
//! There a thread finds deadlocks, because other calls waited for searches under the single global
//! latch. Here a search takes one shard at a time, and begins where the cycle must be. A copy of a
//! thousand waits takes hundreds of times as long. Meanwhile every request for a name of the cycle
//! stops behind it; if rows are hot, that is every transaction. And a thread that makes one copy
//! after the other occupies a processor. So copies only serve the order, which may be late, and get
//! a share of the time.
//!
//! Its 512 latches are many if threads run, and few if threads wait to run. With hundreds of
//! clients on two processors, a thread that is descheduled under a shard's latch comes back after
//! hundreds of turns. Each thread that runs meanwhile meets the shard within a few transactions,
//! parks there, and has to be woken. With a latch for each bucket that is one shard in thousands.
//! And a latch on the line of its data is one line less to fetch.
//!
//! There, the list of a hash cell mixes several resources, and a call finds a queue by walking that
//! list. Here each name has a head, so a release looks only at its own queue.
//!
//! There, each transaction has one waiting-for edge, and the detector samples edges. Here all edges
//! count, because a cycle over soft edges is a deadlock too.
//!
//! There, the weight of a waiter rises with its age until it wins. Here the manager counts how
//! often later requests overtook a request. This bound can be tested and needs no clock.
//!
//! With a global latch, each lock enters that latch three times: once when it is granted, and twice
//! when it is released.

/// The hash tables, their shards, and the global latch.
mod shards;

/// Copies of the wait-for graph.
mod wait_graph;

/// The deadlock detector, which also reorders queues.
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

/// Order in which waiters are granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GrantOrder {
    /// The waiter that the most owners wait for, directly or not, goes first, but each waiter is
    /// overtaken only so many times.
    #[default]
    Contention,
    /// First come, first served.
    Fifo,
}

/// Manager with a latch for each shard; the waiter that the most owners wait for goes first.
#[expect(private_bounds, reason = "what is above the shards is one of two")]
pub struct Sharded<W: GlobalLatch> {
    inner: Arc<ShardedInner<W>>,
    /// True if a thread makes copies of the queues; false if each new waiter does.
    own_thread: bool,
}

/// Data shared by the manager and its thread.
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
    /// Returns a manager of `buckets` buckets for keys, a power of two, behind latches of `kind`.
    /// Its thread starts with the first wait of an owner for which others may wait, and ends with
    /// the manager. If `own_thread` is false, the caller that begins such a wait does the thread's
    /// work.
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

    /// Returns the order of grants.
    pub fn order(&self) -> GrantOrder {
        self.inner.order
    }

    /// Checks whether a new wait has closed a cycle, and lets the thread check whether waiters
    /// ahead of it should now move.
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
            // A panic of the thread was reported when it happened; here it would only hide another
            // one.
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

    /// Later waiters count anew for the locks that the owner still holds.
    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: LockSavepoint) {
        let locks = &self.inner.locks;
        locks.release_since(worker, owner, savepoint);
        locks.clear_weight(owner);
    }

    forward! {
        (inner.locks)
        owner prefetch cancel trim end_wait release inspect inspect_limited longest_wait
        deadlocks stats verify
    }
}
