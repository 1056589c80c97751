//! Splits of full nodes.
//!
//! One split at a time: of the full nodes at the end of the path, the highest, whose parent is not
//! full. Then the descent begins again, and finds the next full node, or space. At most three
//! latches are held: the parent, the node, and for a leaf its right neighbour, whose link changes.
//!
//! A node that grows at the right end of the tree is split there, so that loading keys in order, or
//! a queue, fills nodes completely instead of by half.

use super::descend::{DescentStep, Target, try_path};
use crate::memory::node::Pinned;
use crate::memory::search_key::SearchKey;

/// Makes space in the leaf of `search_key`, or comes one split closer. Does nothing if another
/// thread interfered.
#[cold]
pub(crate) fn make_room<const N: usize>(tree: Pinned<'_, N>, search_key: &SearchKey<'_>) {
    let Some(steps) = try_path(tree, Target::Key(*search_key)) else {
        return;
    };
    let full = steps
        .iter()
        .rev()
        .take_while(|step| step.node.is_full())
        .count();
    if full == steps.len() {
        let root = &steps[0];
        if let Some(mut root) = tree.try_latch(root.node, root.version) {
            root.grow_root();
        }
    } else if full > 0 {
        split(
            tree,
            &steps,
            steps.len() - full,
            is_append(&steps, search_key),
        );
    }
}

/// Splits the node at `steps[depth]`, whose parent is not full.
fn split<'g, const N: usize>(
    tree: Pinned<'g, N>,
    steps: &[DescentStep<'g, N>],
    depth: usize,
    append: bool,
) -> Option<()> {
    let (above, step) = (&steps[depth - 1], &steps[depth]);
    let count = step.node.count();
    let mut parent = tree.try_latch(above.node, above.version)?;
    let mut node = tree.try_latch(step.node, step.version)?;
    // Links of a held leaf do not change, and those of a branch are null.
    let mut next = match step.node.next() {
        Some(next) => Some(tree.try_latch(next, next.latch().version()?)?),
        None => None,
    };
    let at = if append { count - 1 } else { count / 2 };
    parent.split_child(above.index, &mut node, next.as_mut(), at);
    Some(())
}

/// True if the key comes after every other: the path is along the right edge of the tree.
fn is_append<const N: usize>(steps: &[DescentStep<'_, N>], search_key: &SearchKey<'_>) -> bool {
    let (leaf, branches) = steps.split_last().expect("a way ends in a leaf");
    branches
        .iter()
        .all(|step| step.index + 1 == step.node.count())
        && leaf.node.position(search_key).index == leaf.node.count()
}
