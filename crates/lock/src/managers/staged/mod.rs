//! Lock chains without latches: locks in stages, after Jung, Han, Fekete, Heiser and Yeom, "A
//! Scalable Lock Manager for Multicores", 2013 and 2014.
//!
//! # The idea
//!
//! A lock request is made, put into the chain of its name, later marked obsolete, unlinked, and
//! freed. Of these five steps only the second and the third must be done at once, and each changes
//! one word. The other three are done in bulk, by any thread that passes.
//!
//! ```text
//!   index        segments of 64 requests, made in advance            `lock_index`, `request`
//!     | take
//!   chain        holders, newest first: one word and a list for      `chain_stack`, `unlink`,
//!     |          each hash                                           `chain_word`
//!     |          (or oldest first, as in the paper                   `chain_tail`)
//!     | mark, unlink
//!   flags        a segment dies when all its requests are done       `free_flags`
//!     | two epochs later
//!   index
//!
//!   queues       waiters in order, behind a latch: touched only      `wait_queue`, `manager`
//!                by waiters, and by releases of what they wait for
//! ```
//!
//! # The protocol, in the form of `chain_stack`
//!
//! Each line is one atomic step on shared memory. W is the chain's word: top, live, granted,
//! waiting.
//!
//! ```text
//! acquire m for t                          release r
//!   a1  load W                               r1  r.state := obsolete                        (S6)
//!   a2  m conflicts with W.granted or        r2  exchange W: live-1; if that is 0: no top,
//!       W.waiting -> a4                          nothing granted. Waiting stays.            (S7)
//!   a3  exchange W: top, live+1,             r3  W.waiting was empty -> done
//!       granted+m (S1) -> granted            r4  latch; w1 to w4 for the queue of the name
//!       W had changed -> a2
//!   a4  load W; walk its chain: no           the queue, under its latch
//!       request of the name conflicts,       w1  load W; walk its chain for holders
//!       nor W.waiting ->                     w2  for each waiter in order, unless a holder
//!       exchange W as in a3 -> granted           or an earlier waiter conflicts with it:
//!   a5  latch; exchange W: waiting+m (S2)    w3    exchange W: top, live+1, granted+m, and
//!   a6  load W; walk its chain (S3, S4):           waiting without modes that none waits for
//!       no conflict, nor with an earlier     w4    resolve its ticket: it wakes
//!       waiter -> w3 for itself
//!   a7  enter the queue; drop the latch
//!   a8  search for a deadlock; sleep (S5)
//! ```
//!
//! A conversion takes the same steps with a request of its own for the stronger mode, and marks the
//! weaker request obsolete once the other is in. Its own requests never block it, and in a6 only
//! earlier conversions are ahead of it. A request that is not to wait is refused at a7, and its
//! announcement is withdrawn. A waiter that leaves the queue, by deadline, cancellation or as a
//! victim, goes from a7 to w1 under the latch.
//!
//! The page of `chain_stack` argues why conflicting locks are never held together, and why no
//! wake-up is lost in the five schedules of the paper's Figure 7. The page of `manager` argues why
//! the order among waiters is kept and a refusal leaves no trace. The pages of `lock_index` and
//! `foxton_sync::epoch` argue why no thread reads a request that already belongs to another owner.
//!
//! # Deadlocks
//!
//! The search of `deadlock`, over queues that are read without stopping any thread. A waiting owner
//! neither requests nor releases, so every edge of a cycle stays while the search looks for it, and
//! each cycle that is found is checked again. The argument is on that page. It needs of a queue
//! only that an edge between two waiting owners is found in it. It is: the holder's request was in
//! the chain before the holder began to wait, and the mutex of its record puts that before the
//! search.
//!
//! # Differences from the paper, and why
//!
//! 1. A request enters a chain by one exchange of a word, not by an exchange of the tail and a link
//!    for which iterators wait. Between those two a descheduled thread stops all behind it.
//! 2. An owner takes 64 identifiers at a time, not each from a shared counter, which is a cache
//!    line that every lock writes.
//! 3. A request walks its chain only if its mode conflicts with a granted one, because a hot name
//!    is held by hundreds.
//! 4. The last request to go takes the chain along, so no obsolete requests stay until a thread
//!    passes: in the ordinary case the lock is alone in its chain.
//! 5. A waiter takes the latch of the queue, not of its transaction, and the releasing thread
//!    decides for it: conversions before new requests, cancellation and deadlines need one order.
//! 6. A cycle has one victim, chosen by policy (`deadlock`). In the paper the detecting transaction
//!    aborts itself, and two may do so for one cycle.
//! 7. A thread that takes a segment refills the ring, so there is no background thread to wait for.
//!
//! `staged:paper` keeps the paper's form of the first four (`chain_tail`), and `staged:oldest` in
//! addition the paper's older rule of memory reuse, under which one stalled transaction makes
//! memory grow.

/// Flags of a segment, in bytes and two levels.
mod free_flags;

/// Lock requests, and the segments that they are allocated in.
mod request;

/// Allocation and reuse of requests.
mod lock_index;

/// Interface of the two forms of chains.
mod chain;

/// The word that decides whether a request is granted at once.
mod chain_word;

/// Waiters in front of a chain.
mod wait_queue;

/// Removal of requests from a chain that grows at the front.
mod unlink;

/// Chains that grow at the front, by one step.
mod chain_stack;

/// Chains that grow at the tail, by two steps: the form of the paper.
mod chain_tail;

/// The manager's parts, over either form.
mod manager;

/// End of a lock or of a wait, and the grants that it allows.
mod wakeup;

/// Requests that are not granted at once.
mod acquire;

/// Snapshots of holders and waiters, for people.
mod snapshot;

/// The contract, over all of these.
mod contract;

pub use chain_stack::StackChains;
pub use chain_tail::TailChains;
pub use manager::Staged;

pub(crate) use lock_index::ReuseRule;
pub(crate) use request::MOST_REQUESTS;
