//! No latch on the way in or out: locks in stages, after Jung, Han, Fekete, Heiser and Yeom, "A Scalable
//! Lock Manager for Multicores", 2013 and 2014.
//!
//! # The idea
//!
//! A lock request is made, put into the chain of its name, later marked as obsolete, unlinked, and
//! given back: five steps, of which only the second and the third must be done at once, and neither needs
//! more than a change of one word. The other three are done in bulk and by whoever comes by.
//!
//! ```text
//!   index        segments of 64 requests, ready before anybody asks           `index`, `request`
//!     | take
//!   chain        holders, newest first: one word and a list for each hash     `stack`, `leaving`, `word`
//!     |          (or oldest first, as the document has it                     `tail`)
//!     | mark, unlink
//!   flags        a segment whose requests are all done dies                   `flags`
//!     | two epochs later
//!   index
//!
//!   lines        who must wait, in order, behind a latch: touched only        `line`, `manager`
//!                by those who wait, and by those who release what is awaited
//! ```
//!
//! # The protocol, as `stack` has it
//!
//! Each line is one atomic step on shared memory. W is the chain's word: top, live, granted, awaited.
//!
//! ```text
//! acquire m for t                          release r
//!   a1  load W                               r1  r.state := obsolete                          (S6)
//!   a2  m conflicts with W.granted or        r2  exchange W: live-1; if that is 0: no top,
//!       W.awaited -> a4                          nothing granted. Awaited stays.              (S7)
//!   a3  exchange W: top, live+1,             r3  W.awaited was empty -> done
//!       granted+m (S1) -> granted            r4  latch; w1 to w4 for the line of the name
//!       W had changed -> a2
//!   a4  load W; walk its chain: nobody     the line, under its latch
//!       of the name in the way, nothing      w1  load W; walk its chain: who holds the name
//!       in W.awaited in the way ->           w2  for each waiter in order, unless a holder or
//!       exchange W as in a3 -> granted           one ahead of it is in its way:
//!   a5  latch; exchange W: awaited+m (S2)    w3    exchange W: top, live+1, granted+m, and
//!   a6  load W; walk its chain (S3, S4):           awaited without what nobody waits for now
//!       nobody in the way, nor ahead in      w4    resolve its ticket: it wakes
//!       the line -> w3 for itself
//!   a7  stand in the line; drop the latch
//!   a8  look for a deadlock; sleep (S5)
//! ```
//!
//! A conversion goes the same way with a request of its own for the stronger mode, and marks the
//! weaker one obsolete once the other is in; its own requests are never in its way, and in a6 only
//! earlier conversions are ahead of it. A request that is not to wait is refused at a7, and takes back
//! what it announced. Who leaves the line, by deadline, cancellation or as a victim, goes from a7 to w1
//! under the latch.
//!
//! Why nobody holds what conflicts: the page of `stack`. Why no wake-up is lost, in the five schedules of
//! the document's Figure 7: there, too. Why the order among waiters is kept and a refusal leaves no
//! trace: the page of `manager`. Why nobody looks at a request that is another's already: `index` and
//! `foxton_sync::epoch`.
//!
//! # Deadlocks
//!
//! The walk of `waits`, over queues that are read without stopping anybody: a waiting owner neither asks
//! nor releases, so every edge of a cycle stands while the walk looks for it, and what it finds is looked
//! at twice. The argument is on that page, and needs of a queue only that an edge between two owners who
//! both wait is found in it: the holder's request was in the chain before it began to wait, and its
//! record's mutex puts that before the walk.
//!
//! # What differs from the document, and why
//!
//! | document | `staged` | why |
//! |---|---|---|
//! | exchange of the tail, then a link; iterators wait for it | one exchange of a word | a thread that loses its processor in between stops everybody behind |
//! | one shared counter gives identifiers | an owner takes 64 at a time | a line that every lock writes |
//! | every request walks its chain | only one whose mode conflicts with what is granted | a hot name is held by hundreds |
//! | obsolete requests stay until somebody passes | the last to go takes the chain along | the ordinary lock is alone |
//! | a waiter takes its transaction's latch, and decides for itself | the line's latch, and whoever releases decides | conversions before new requests, cancellation and deadlines need one order |
//! | the detector aborts itself, and two may for one cycle | one victim, by policy | `waits` |
//! | a background thread allocates ahead | whoever takes a segment fills the ring in turn | no thread to wait for |
//!
//! `staged:paper` keeps the first four as the document has them (`tail`), and `staged:oldest` in addition
//! its older rule of reclaiming memory, under which one stalled transaction makes memory grow.

/// Flags in bytes, one level above the other.
mod free_flags;

/// A request, and the segments that requests come in.
mod request;

/// Where requests come from, and where they go.
mod lock_index;

/// What the two forms of chains have in common.
mod chain;

/// All that decides whether a request is granted at once.
mod chain_word;

/// Who waits in front of a chain.
mod wait_queue;

/// How requests leave a chain that grows at the front.
mod unlink;

/// Chains that grow at the front, by one step.
mod chain_stack;

/// Chains that grow at the tail, by two steps: the document's form.
mod chain_tail;

/// The parts of the manager, over either form.
mod manager;

/// The end of a lock or of a wait, and who is let through by it.
mod wakeup;

/// Asking for a lock that is not simply granted.
mod acquire;

/// Holders and waiters, for people.
mod snapshot;

/// The contract, over all of these.
mod contract;

pub use chain_stack::StackChains;
pub use chain_tail::TailChains;
pub use manager::Staged;

pub(crate) use lock_index::ReuseRule;
pub(crate) use request::MOST_REQUESTS;
