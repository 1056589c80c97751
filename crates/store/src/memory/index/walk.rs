//! From a leaf to its neighbours, and proof that nothing was missed.
//!
//! # What a token proves
//!
//! A reader walks from a place (a key, or the record it was given last) to a record n, or to the end,
//! and notes every leaf it looked at, with its version, in a *token*. If later every one of these
//! leaves still is at its version, then, at the moment the question was asked, no key was between the
//! place and n. For: a leaf at its version has the records the reader saw, and its link leads where the
//! reader went; a leaf gives part of its range away only by a split, which changes its version; so
//! the leaves still cover everything from the place to n, in one piece. That each leaf is asked at
//! another moment does no harm: each was as it was all the time from the reader's look to the asking,
//! and the moment the asking began is inside all these spans.
//!
//! # Why an inserter cannot slip past a scanner
//!
//! Gaps are locked under the name of their right neighbour. Scanner S found n after p, locked the gap
//! before n in shared mode, and then its token was unchanged. Inserters of keys into that gap hold
//! an insert intention on the gap before the successor that they believe in; the two modes exclude each
//! other. An inserter checks its belief while it holds the latch of the leaf that its key belongs to:
//! if it is wrong, nothing is inserted (`insert.rs`). Claim: while S holds its lock on n, no key comes
//! between p and n.
//!
//! * Suppose keys did come between p and n after the token was found unchanged, and let k be the
//!   largest of them. Its leaf was part of S's token, or was split off from one that was.
//! * The latch on k's leaf was taken after S validated, since S saw that leaf neither held nor
//!   changed. So (O1, and within one leaf by the latch alone) the inserter, reading the leaves to the
//!   right while it held the latch, saw everything that S had seen, or later states.
//! * n stays, since S holds a lock on it. So the successor z that the inserter found is n or before.
//! * z = n: then the inserter holds an insert intention on the gap before n, which S's lock excludes.
//! * z < n, and S saw z: then S holds the gap before z, and excludes the inserter likewise.
//! * z < n, and S did not see z: then z came between p and n after S's validation, and is larger than
//!   k, the largest. So there is no such k.
//!
//! The case to fear has p and n in two leaves, with a separator between them: k belongs into the left
//! leaf, another new key m into the right one, and their inserters latch different leaves. Each may
//! read the other's leaf before it changed, and both pass; they hold intentions, which agree with each
//! other, on the gap that both keys fell into, so it was locked by no scanner. What must not be is that
//! S sees m and not k while k's inserter did not see m: S would lock the gap before m, and k's inserter
//! another. That is the pattern of threads that each write one word and read the other's, and only a
//! sequentially consistent fence on both sides forbids it.
//!
//! # Empty leaves
//!
//! An empty leaf is walked through, and its version goes into the token like any other's. When it is
//! taken out (`shrink.rs`), it and both its neighbours change their versions.
//!
//! # Orderings
//!
//! * O1  the fence in `settle`, between taking a latch and reading other leaves, to the fence in
//!   `settle`, between reading leaves and validating more than one: of a validator and a holder, either
//!   the validator sees the latch taken, or the holder sees all that the validator saw. `SeqCst` because
//!   each side writes (or has read what a third wrote) and then reads elsewhere; acquire and release do
//!   not order that. One leaf alone needs no fence: validator and holder meet in its latch word.

use super::descend::{self, Target};
use crate::memory::node::{IndexNode, Pinned};
use crate::memory::record::{Record, RecordPointer};
use crate::memory::search_key::SearchKey;
use foxton_sync::backoff::Backoff;
use foxton_sync::latch::{Version, VersionLatch};
use foxton_sync::shim::{Ordering, fence};
use smallvec::SmallVec;
use std::fmt;

/// Puts everything before it before everything after it, for everyone who settles.
#[inline]
fn full_fence() {
    fence(Ordering::SeqCst); // O1
}

/// A latch as it was seen.
#[derive(Clone, Copy)]
struct SeenLatch<'g> {
    latch: &'g VersionLatch,
    version: Version,
}

/// The leaves that a reader looked at on its way to a record, and their versions.
///
/// [`RecordTable::unchanged`](crate::memory::RecordTable::unchanged) says whether they are still the same.
pub struct Token<'g> {
    last: SeenLatch<'g>,
    // All but the last: none in most cases, one where a leaf ends, more where leaves are empty.
    // Inline, one takes no more room than the parts of a `Vec`.
    before: SmallVec<[SeenLatch<'g>; 1]>,
}

impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("leaves", &(self.before.len() + 1))
            .finish_non_exhaustive()
    }
}

impl<'g> Token<'g> {
    /// A walk that begins at `leaf`.
    #[inline]
    pub(in crate::memory) fn at<const N: usize>(leaf: &'g IndexNode<N>, version: Version) -> Self {
        Self {
            last: SeenLatch {
                latch: leaf.latch(),
                version,
            },
            before: SmallVec::new(),
        }
    }

    /// The walk went on to `leaf`.
    pub(in crate::memory) fn push<const N: usize>(
        &mut self,
        leaf: &'g IndexNode<N>,
        version: Version,
    ) {
        self.before.push(self.last);
        self.last = SeenLatch {
            latch: leaf.latch(),
            version,
        };
    }

    /// Whether every leaf is as it was.
    #[inline]
    pub(crate) fn is_unchanged(&self) -> bool {
        if self.before.is_empty() {
            return self.last.latch.unchanged_since(self.last.version);
        }
        full_fence();
        let unchanged = |seen: &SeenLatch<'_>| seen.latch.unchanged_since(seen.version);
        self.before.iter().chain([&self.last]).all(unchanged)
    }
}

/// A record, or the end of the table, and the proof that nothing lies before it.
#[derive(Debug)]
pub struct WalkPosition<'g> {
    /// The record; `None` past the last (or, going backward, the first).
    pub record: Option<&'g Record>,
    /// What was looked at to find it.
    pub token: Token<'g>,
}

/// The first record that is not below `search_key`, or above it if not `inclusive`.
#[inline]
pub(crate) fn successor<'g, const N: usize>(
    tree: Pinned<'g, N>,
    search_key: &SearchKey<'_>,
    inclusive: bool,
) -> WalkPosition<'g> {
    let mut backoff = Backoff::new();
    loop {
        let (leaf, version) = descend::find_leaf(tree, Target::Key(*search_key));
        let position = leaf.position(search_key);
        let slot = position.index + usize::from(position.found && !inclusive);
        if let Some(place) = first_from(leaf, version, slot) {
            return place;
        }
        backoff.snooze();
    }
}

/// The record in `slot` of a leaf at `version`, or the first after it. `None` if somebody was in the
/// way.
#[inline]
fn first_from<'g, const N: usize>(
    leaf: &'g IndexNode<N>,
    version: Version,
    slot: usize,
) -> Option<WalkPosition<'g>> {
    let (mut leaf, mut version, mut slot) = (leaf, version, slot);
    let mut token = Token::at(leaf, version);
    loop {
        if slot < leaf.count() {
            let pointer = leaf.pointer(slot)?;
            let sure = leaf.latch().unchanged_since(version);
            return sure.then(|| WalkPosition {
                record: Some(pointer.record()),
                token,
            });
        }
        match neighbour(leaf, version, Direction::Forward)? {
            Some(right) => (leaf, version) = right,
            None => {
                return Some(WalkPosition {
                    record: None,
                    token,
                });
            }
        }
        token.push(leaf, version);
        slot = 0;
    }
}

/// Which way a walk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// The neighbour of `leaf` and its version; `Some(None)` if there is none. `None` if somebody was in
/// the way, or `leaf` is not at `version` any more.
///
/// The neighbour was the neighbour after its version was read: a leaf that was taken out is never
/// entered, and a split is not walked past.
#[inline]
pub(crate) fn neighbour<const N: usize>(
    leaf: &IndexNode<N>,
    version: Version,
    direction: Direction,
) -> Option<Option<(&IndexNode<N>, Version)>> {
    let neighbour = match direction {
        Direction::Forward => leaf.next(),
        Direction::Backward => leaf.prev(),
    };
    let found = match neighbour {
        Some(neighbour) => Some((neighbour, neighbour.latch().version()?)),
        None => None,
    };
    leaf.latch().unchanged_since(version).then_some(found)
}

/// The first record to the right of a leaf that is held, or `None` in the inner option past the last.
/// `None` in the outer one if somebody was in the way.
///
/// The answer was true at some moment since the latch was taken: the leaf's link cannot change, and
/// the leaves passed were all as they were seen when the last one had been read.
pub(crate) fn first_right_of<'g, const N: usize>(
    held: &'g IndexNode<N>,
) -> Option<Option<RecordPointer<'g>>> {
    full_fence();
    let Some(mut leaf) = held.next() else {
        return Some(None);
    };
    let mut version = leaf.latch().version()?;
    let mut token = Token::at(leaf, version);
    let first = loop {
        if leaf.count() > 0 {
            break Some(leaf.pointer(0)?);
        }
        match neighbour(leaf, version, Direction::Forward)? {
            Some(right) => (leaf, version) = right,
            None => break None,
        }
        token.push(leaf, version);
    };
    token.is_unchanged().then_some(first)
}
