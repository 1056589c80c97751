//! From the root to a leaf.

use crate::memory::node::{IndexNode, Pinned};
use crate::memory::search_key::SearchKey;
use foxton_sync::backoff::Backoff;
use foxton_sync::latch::Version;

/// More levels than any tree has: a tree grows a level only when its root is full, and there are
/// fewer than 2^48 addresses.
const MAX_LEVELS: usize = 48;

/// Where a descent goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'k> {
    /// To the first leaf.
    First,
    /// To the leaf that has the key, or would have it.
    Key(SearchKey<'k>),
    /// To the last leaf.
    Last,
}

/// A node on the way, as it was when it was passed.
pub(crate) struct DescentStep<'g, const N: usize> {
    pub(crate) node: &'g IndexNode<N>,
    pub(crate) version: Version,
    /// The slot that the way goes on through; 0 in the leaf.
    pub(crate) index: usize,
}

/// The leaf of `target` and its version, once nobody is in the way.
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

/// All nodes from the root to the leaf of `target`, the root first. `None` if somebody was in the
/// way.
pub(crate) fn try_path<'g, const N: usize>(
    tree: Pinned<'g, N>,
    target: Target<'_>,
) -> Option<Vec<DescentStep<'g, N>>> {
    let mut steps = Vec::with_capacity(8);
    let leaf = try_descend(tree, target, |step| steps.push(step))?;
    steps.push(leaf);
    Some(steps)
}

/// One attempt to reach the leaf of `target`, showing every branch on the way to `visit`. `None` if
/// somebody was in the way.
///
/// That the leaf is the right one at the version returned: its parent pointed to it after the version
/// was read, and was the right one by the same argument, up to the root, which was the root after its
/// version was read. A node loses keys to others only by a split, which changes its version.
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
