//! Walks from a leaf to its neighbours, and proof that nothing was missed.
//!
//! # What a token proves
//!
//! A reader walks from a start (a key, or the record it got last) to a record n, or to the end, and
//! records every leaf it reads, with its version, in a *token*. If later every one of these leaves
//! still is at its version, then, at the moment of that check, no key was between the start and n.
//! The reason: a leaf at its version has the records the reader saw, and its link leads where the
//! reader went. A leaf gives part of its range away only by a split, which changes its version. So
//! the leaves still cover everything from the start to n, in one piece. It does no harm that each
//! leaf is checked at another moment: each was unchanged from the reader's read to its check, and
//! the moment the check began is inside all these spans.
//!
//! # Why an inserter cannot slip past a scanner
//!
//! Gaps are locked under the name of their right neighbour. Scanner S found n after p, locked the
//! gap before n in shared mode, and then its token was unchanged. Inserters of keys into that gap
//! hold an insert intention on the gap before the successor that they expect; the two modes exclude
//! each other. An inserter checks its expectation while it holds the latch of the leaf that its key
//! belongs to: if it is wrong, nothing is inserted (`insert.rs`). Claim: while S holds its lock on
//! n, no key comes between p and n.
//!
//! * Suppose keys did come between p and n after the token was found unchanged, and let k be the
//!   largest of them. Its leaf was part of S's token, or was split off from one that was.
//! * The latch on k's leaf was taken after S validated, because S saw that leaf neither held nor
//!   changed. So (O1, and within one leaf by the latch alone) the inserter, reading the leaves to
//!   the right while it held the latch, saw everything that S had seen, or later states.
//! * n stays, because S holds a lock on it. So the successor z that the inserter found is n or
//!   before.
//! * z = n: then the inserter holds an insert intention on the gap before n, which S's lock
//!   excludes.
//! * z < n, and S saw z: then S holds the gap before z, and excludes the inserter likewise.
//! * z < n, and S did not see z: then z came between p and n after S's validation, and is larger
//!   than k, the largest. So there is no such k.
//!
//! The case to fear has p and n in two leaves, with a separator between them. Key k belongs into
//! the left leaf, another new key m into the right one, and their inserters latch different leaves.
//! Each may read the other's leaf before it changed, and both pass. They hold intentions, which are
//! compatible with each other, on the gap that both keys fell into, so no scanner had locked it. It
//! must not happen that S sees m and not k while k's inserter did not see m: S would lock the gap
//! before m, and k's inserter another. That is the pattern of threads that each write one word and
//! read the other's, and only a sequentially consistent fence on both sides forbids it.
//!
//! # Empty leaves
//!
//! An empty leaf is walked through, and its version goes into the token like any other's. When it
//! is unlinked (`shrink.rs`), it and both its neighbours change their versions.
//!
//! # Orderings
//!
//! * O1  the fence in `full_fence`, between taking a latch and reading other leaves, to the same
//!   fence between reading leaves and validating more than one. Of a validator and a holder, either
//!   the validator sees the latch taken, or the holder sees all that the validator saw. `SeqCst`
//!   because each side writes (or has read what a third wrote) and then reads elsewhere; acquire
//!   and release do not order that. One leaf alone needs no fence: validator and holder meet in its
//!   latch word.

use super::descend::{self, Target};
use crate::memory::node::{IndexNode, Pinned};
use crate::memory::record::{Record, RecordPointer};
use crate::memory::search_key::SearchKey;
use foxton_sync::backoff::Backoff;
use foxton_sync::latch::{Version, VersionLatch};
use foxton_sync::shim::{Ordering, fence};
use smallvec::SmallVec;
use std::fmt;

/// Orders everything before it before everything after it, among all threads that call it.
#[inline]
fn full_fence() {
    fence(Ordering::SeqCst); // O1
}

/// A latch at the version that was seen.
#[derive(Clone, Copy)]
struct SeenLatch<'g> {
    latch: &'g VersionLatch,
    version: Version,
}

/// The leaves that a reader read on its way to a record, and their versions.
///
/// [`RecordTable::unchanged`](crate::memory::RecordTable::unchanged) tells whether they are still
/// the same.
pub struct Token<'g> {
    last: SeenLatch<'g>,
    // All but the last: none in most cases, one where a leaf ends, more where leaves are empty.
    // Inline, one takes no more space than the parts of a `Vec`.
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
    /// Returns the token of a walk that begins at `leaf`.
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

    /// Adds `leaf`, to which the walk continued.
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

    /// True if every leaf is unchanged.
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

/// A record, or the end of the table, and the proof that nothing is before it.
#[derive(Debug)]
pub struct WalkPosition<'g> {
    /// The record; `None` past the last (or, going backward, the first).
    pub record: Option<&'g Record>,
    /// The leaves that were read to find it.
    pub token: Token<'g>,
}

/// Returns the first record that is not below `search_key`, or above it if not `inclusive`.
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

/// Returns the record in `slot` of a leaf at `version`, or the first after it. `None` if another
/// thread interfered.
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

/// Direction of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// Returns the neighbour of `leaf` and its version; `Some(None)` if there is none. `None` if
/// another thread interfered, or `leaf` is not at `version` any more.
///
/// The neighbour was the neighbour after its version was read: an unlinked leaf is never entered,
/// and a split is not walked past.
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

/// Returns the first record to the right of a held leaf, or `None` in the inner option past the
/// last. `None` in the outer one if another thread interfered.
///
/// The answer was true at some moment since the latch was taken: the leaf's link cannot change, and
/// the leaves passed were all unchanged when the last one had been read.
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
