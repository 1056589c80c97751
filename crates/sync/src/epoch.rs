//! Reclamation by epochs.
//!
//! Who reads a shared structure without latching it *pins* its participant first. What was taken
//! out of the structure is *retired*, not freed, and freed once nobody can still look at it: two
//! epochs later. The epoch advances when every pinned participant has seen the present one.
//!
//! A pin is for a critical region, never for a wait: one participant that stays pinned holds up
//! everybody's memory. With some hundred threads on few processors one always does, for who loses the processor while it is
//! pinned keeps its pin until it is its turn again. So what comes and goes all the time, the values of rows that
//! are updated, is not left to the epoch: who looks at it names it in a *hazard*, and what was retired behind hazards is freed as
//! soon as no hazard names it (`hazard`).
//!
//! # State
//!
//! The domain has the epoch, and a list of slots that only grows. A slot belongs to one participant
//! at a time; its word is `epoch << 1 | pinned`. Each participant has an open bag. A full one is tagged with the
//! epoch and goes to the domain's pile, from where whoever looks next frees what is due, of everybody. Beside them are a
//! bag and a pile for what is retired behind hazards, and in each slot the hazards of its participant.
//!
//! # Invariants
//!
//! * I1  A slot's word is written only by whoever has its participant.
//! * I2  The epoch goes from e to e + 1 only after every slot's word was seen unpinned or at e, by
//!   somebody who read epoch e before looking.
//! * I3  A bag is tagged with the epoch read after everything in it was unlinked, with a
//!   sequentially consistent fence in between.
//! * I4  A bag tagged t is freed only at t + 2 or later.
//! * I5  A slot stays on the list, and its `next` as it is, until the domain is dropped; and whoever
//!   has a participant has the domain.
//!
//! # Why nobody looks at what is freed
//!
//! Reader R pinned with the epoch at r, then found X. Retirer W unlinked X, fenced (fence W), read
//! epoch t (I3). Say R's pin read r > t. R's fence (fence R, in `announce`) comes after reading r; W
//! read t after fence W; the epoch only grows, so fence W comes before fence R, and R, reading after
//! its fence what W wrote before its own, finds X unlinked: it never found X. So r <= t, and as long
//! as R's word shows r, the epoch stays at t + 1 or below (I2) and X is not freed (I4).
//!
//! Left is an advance from t + 1 to t + 2 that did not see R's word pinned at r. Its fence (fence
//! A, in `try_advance`) lies between reading t + 1 and reading R's word. Either it read an *older*
//! word, or a list without R's slot: then fence A comes before fence R, and fence W before fence A
//! since A read the later epoch, so again R finds X unlinked. Or it read a *later* word, of R
//! unpinned or pinned again: then O1 and O2 order everything R read before the freeing.
//!
//! The fences are `SeqCst` because each side writes one word and then reads another's (R: its word,
//! then the structure; W: the structure, then the epoch; A stands between them): no acquire or
//! release orders a store before a later load. They live in `announce`, `seal` and `try_advance`.
//!
//! # Orderings
//!
//! O1 to O8; each is defined in the file that carries it: `slot`, `domain`, `participant`, `retired` or `hazard`.
//!
//! # Differences from crossbeam-epoch
//!
//! Its participants (`LocalHandle`) cannot be sent to another thread, and our transactions move
//! between threads. It looks whether the epoch can advance after so many pins and bags of each thread; we do when so
//! many bytes were retired by all, since looking at some hundred participants costs more than freeing what they
//! retired. It unlinks slots while others walk the list; we reuse them, as there are never more than there were participants
//! at once.
//!
//! A mutex around the list would be simpler. It was tried: under the model checker every mutex
//! orders all threads, so that fence A and O2 could be weakened and nothing turned red.

/// What is retired, and when it was complete.
mod bag;

/// What everybody may read of a participant, and the list of all.
mod slot;

/// Sealed bags of everybody, until they are due.
mod retired;

/// One thing that is looked at, named for all to see.
mod hazard;

/// The epoch, and what waits until it is due.
mod domain;

/// Pinning and retiring.
mod participant;

pub use domain::{Domain, Stamp};
pub use hazard::Hazard;
pub use participant::{Guard, Participant};
