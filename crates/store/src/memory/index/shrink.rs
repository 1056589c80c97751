//! Taking empty leaves out.
//!
//! A leaf is taken out when its last record goes, not before: half-empty leaves are left alone, since
//! tables that shrink mostly grow again. So a table whose records were removed at random keeps up to
//! one leaf for each record left; one that is a queue keeps what the queue needs.
//!
//! Branches that would be left without children go with their leaf. The range of what is taken out
//! falls to the neighbour that the parent now leads to, by the parent's change alone. A tree that is a
//! mere chain keeps its one leaf, and a root with one child is taken out from above.

use super::descend::{Step, Target, try_path};
use crate::memory::node::{Hold, Pinned};
use crate::memory::probe::Probe;
use foxton_sync::backoff::Backoff;

/// Attempts before an empty leaf is left where it is. Others were busy there each time; an empty leaf
/// that stays costs its memory, and readers one more step.
const ATTEMPTS: usize = 1000;

/// Takes the leaf of `key` out of the tree if it is empty and is not needed.
#[cold]
pub(crate) fn shrink<const N: usize>(tree: Pinned<'_, N>, key: &[u8]) {
    let mut backoff = Backoff::new();
    for _ in 0..ATTEMPTS {
        let path = try_path(tree, Target::Key(Probe::new(key)));
        if path.is_some_and(|steps| try_shrink(tree, &steps).is_some()) {
            return;
        }
        backoff.snooze();
    }
}

/// `None` if somebody was in the way.
fn try_shrink<'g, const N: usize>(tree: Pinned<'g, N>, steps: &[Step<'g, N>]) -> Option<()> {
    let leaf = steps.last().expect("a way ends in a leaf");
    if leaf.node.count() > 0 {
        // True once, which is enough: whoever empties it again comes here again.
        return leaf
            .node
            .latch()
            .unchanged_since(leaf.version)
            .then_some(());
    }
    let hold = |step: &Step<'g, N>| tree.hold(step.node, step.version);
    let has_others = |step: &Step<'g, N>| step.node.level() > 0 && step.node.count() > 1;
    let Some(depth) = steps.iter().rposition(has_others) else {
        return Some(());
    };
    let mut parent = hold(&steps[depth])?;
    let mut chain: Vec<Hold<'g, N>> = steps[depth + 1..].iter().map(hold).collect::<Option<_>>()?;
    // Links of a held leaf do not change.
    let neighbour = |node| match node {
        None => Some(None),
        Some(node) => hold_now(tree, node).map(Some),
    };
    let mut prev = neighbour(leaf.node.prev())?;
    let mut next = neighbour(leaf.node.next())?;
    parent.unlink(steps[depth].index, &mut chain, prev.as_mut(), next.as_mut());
    parent.shrink_root();
    Some(())
}

fn hold_now<'g, const N: usize>(
    tree: Pinned<'g, N>,
    node: &'g crate::memory::node::Node<N>,
) -> Option<Hold<'g, N>> {
    tree.hold(node, node.latch().version()?)
}
