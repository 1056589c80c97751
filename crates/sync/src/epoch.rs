//! Reclamation by epochs and hazard pointers.
//!
//! A thread that reads a shared structure without latching it *pins* its participant first. An
//! object that was unlinked from the structure is *retired*, not freed. It is freed once no thread
//! can still look at it: two epochs later. The epoch advances when every pinned participant has
//! seen the present one.
//!
//! A pin is for a critical region, never for a wait: one participant that stays pinned holds up all
//! reclamation. With some hundred threads on few processors one nearly always does, because a
//! thread that is descheduled while pinned keeps its pin until it runs again. So memory that comes
//! and goes all the time, the values of rows that are updated, is not left to the epoch. A thread
//! that looks at a value protects it by a *hazard pointer*, and a hazard-protected object is freed
//! as soon as no hazard names it (`hazard`).
//!
//! # State
//!
//! The domain has the epoch, and a table of slots. A slot belongs to one participant at a time; its
//! word is `epoch << 1 | pinned`. Each participant has an open bag. A full one is
//! tagged with the epoch and goes to the domain's list of retired objects, where the next thread
//! that sweeps frees all that is due, whichever participant retired it. Beside them are a bag and a
//! list for hazard-protected objects, and in each slot the hazards of its participant.
//!
//! # Invariants
//!
//! * I1  Only the owner of a participant writes the word of its slot.
//! * I2  The epoch goes from e to e + 1 only after every occupied slot's word was seen unpinned or
//!   at e, by a thread that read epoch e before looking. A slot is occupied from before its
//!   participant first pins until after it was last pinned.
//! * I3  A bag is tagged with the epoch read after everything in it was unlinked, with a
//!   sequentially consistent fence in between.
//! * I4  A bag tagged t is freed only at t + 2 or later.
//! * I5  A slot stays where it is until the domain is dropped; and each participant keeps its
//!   domain.
//!
//! # Why no thread looks at a freed object
//!
//! Reader R pinned with the epoch at r, then found X. Retirer W unlinked X, fenced (fence W), read
//! epoch t (I3). Say R's pin read r > t. R's fence (fence R, in `announce`) comes after reading r;
//! W read t after fence W; the epoch only grows, so fence W comes before fence R. So R, reading
//! after its fence what W wrote before its own, finds X unlinked: it never found X. So r <= t, and
//! as long as R's word shows r, the epoch stays at t + 1 or below (I2) and X is not freed (I4).
//!
//! It remains that an advance from t + 1 to t + 2 did not see R's word pinned at r. Its fence
//! (fence A, in `try_advance`) lies between reading t + 1 and reading R's word. Either it read an
//! *older* word, or a table from before R's slot was occupied. Then fence A comes before fence R,
//! and fence W before fence A because A read the later epoch; so again R finds X unlinked. Or it
//! read a *later* word, of R unpinned or pinned again, or a table from after R's slot was released:
//! then O1 or O4, and O2, order everything R read before the freeing.
//!
//! The fences are `SeqCst` because each side writes one word and then reads another's (R: its word,
//! then the structure; W: the structure, then the epoch; A is between them). No acquire or release
//! orders a store before a later load. They are in `announce`, `seal` and `try_advance`.
//!
//! # Why what was found under an earlier guard may still be there
//!
//! R found X under a pin at r, and has another pin now, at s, after whose fence it reads epoch r.
//! X is retired with a tag t, or was, and r <= t as above. X is freed by an advance from t + 1 to
//! t + 2, and that did not come yet when R read r. If it comes later, its fence A follows the
//! reading of t + 1. If it reads R's word as it was before the second pin, fence A comes before
//! R's fence, and R would have read t + 1 or more. So it reads the pin at s, and s <= r <= t is
//! not t + 1: it does not advance. Or it reads a later word, when R looks no more.
//!
//! # Orderings
//!
//! O1 to O8; each is defined in the file that carries it: `slot`, `domain`, `participant`,
//! `retired` or `hazard`.
//!
//! # Differences from crossbeam-epoch
//!
//! Its participants (`LocalHandle`) cannot be sent to another thread, and our transactions move
//! between threads. It tries to advance the epoch after a number of pins and bags of each thread.
//! Here a try comes after a number of bytes retired by all, because looking at some hundred
//! participants costs more than freeing what they retired. It unlinks slots while others walk the
//! list. Here slots stay in a table, and one word shows which of 64 are occupied. So after a peak
//! of participants a walk costs what those that are left cost.
//!
//! A mutex around the walk would be simpler. It was tried: under the model checker every mutex
//! orders all threads, so that fence A and O2 could be weakened without a failing model. Only
//! occupying and releasing a slot take a mutex.

/// Bags of retired objects.
mod bag;

/// Slots: the public part of each participant, and the table of all.
mod slot;

/// Lists of sealed bags, until they are due.
mod retired;

/// Hazard pointers.
mod hazard;

/// The epoch, and the lists of retired objects.
mod domain;

/// Pinning and retiring.
mod participant;

pub use domain::{Domain, Stamp};
pub use hazard::Hazard;
pub use participant::{Guard, Participant, PinEpoch};
