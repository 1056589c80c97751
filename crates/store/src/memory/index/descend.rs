//! Descent from the root to a leaf.

use crate::memory::node::{IndexNode, Pinned};
use crate::memory::search_key::SearchKey;
use foxton_sync::backoff::Backoff;
use foxton_sync::latch::Version;

/// More levels than any tree has: a tree grows a level only when its root is full, and there are
/// fewer than 2^48 addresses.
const MAX_LEVELS: usize = 48;

/// Target of a descent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'k> {
    /// To the first leaf.
    First,
    /// To the leaf that has the key, or would have it.
    Key(SearchKey<'k>),
    /// To the last leaf.
    Last,
}

/// A node on the path, at the version at which it was passed.
pub(crate) struct DescentStep<'g, const N: usize> {
    pub(crate) node: &'g IndexNode<N>,
    pub(crate) version: Version,
    /// The slot through which the path continues; 0 in the leaf.
    pub(crate) index: usize,
}

/// Returns the leaf of `target` and its version; retries while other threads interfere.
#[inline]
pub(crate) fn find_leaf<'g, const N: usize>(
    tree: Pinned<'g, N>,
    target: Target<'_>,
) -> (&'g IndexNode<N>, Version) {
    let mut backoff = Backoff::new();
    loop {
        if let Some(leaf) = try_descend(tree, target, |_| {}) {
            return (leaf.node, leaf.version);
        }
        backoff.snooze();
    }
}

/// Returns all nodes from the root to the leaf of `target`, the root first. `None` if another
/// thread interfered.
pub(crate) fn try_path<'g, const N: usize>(
    tree: Pinned<'g, N>,
    target: Target<'_>,
) -> Option<Vec<DescentStep<'g, N>>> {
    let mut steps = Vec::with_capacity(8);
    let leaf = try_descend(tree, target, |step| steps.push(step))?;
    steps.push(leaf);
    Some(steps)
}

/// Makes one attempt to reach the leaf of `target`, and calls `visit` for every branch on the path.
/// `None` if another thread interfered.
///
/// The leaf is the right one at the returned version. Its parent pointed to it after the version
/// was read, and was the right one by the same argument. So it goes up to the root, which was the
/// root after its version was read. A node loses keys to others only by a split, which changes its
/// version.
#[inline]
pub(crate) fn try_descend<'g, const N: usize>(
    tree: Pinned<'g, N>,
    target: Target<'_>,
    mut visit: impl FnMut(DescentStep<'g, N>),
) -> Option<DescentStep<'g, N>> {
    let mut node = tree.root();
    let mut version = node.latch().version()?;
    if !tree.is_root(node) {
        return None;
    }
    for _ in 0..MAX_LEVELS {
        if node.level() == 0 {
            return Some(DescentStep {
                node,
                version,
                index: 0,
            });
        }
        let index = match target {
            Target::First => 0,
            Target::Key(search_key) => node.child_for(&search_key),
            Target::Last => node.count().saturating_sub(1),
        };
        let child = node.child(index)?;
        let child_version = child.latch().version();
        if !node.latch().unchanged_since(version) {
            return None;
        }
        visit(DescentStep {
            node,
            version,
            index,
        });
        (node, version) = (child, child_version?);
    }
    unreachable!("a child is one level below its parent")
}
