//! Unlinking of empty leaves.
//!
//! A leaf is unlinked when its last record is removed, not before: half-empty leaves are left
//! alone, because tables that shrink mostly grow again. So a table whose records were removed at
//! random keeps up to one leaf for each remaining record; one that is a queue keeps what the queue
//! needs.
//!
//! Branches that would be left without children go with their leaf. The range of the unlinked nodes
//! falls to the neighbour that the parent now leads to, by the parent's change alone. A tree that
//! is a mere chain keeps its one leaf, and a root with one child is removed from above.

use super::descend::{DescentStep, Target, try_path};
use crate::memory::node::{NodeWriteGuard, Pinned};
use crate::memory::search_key::SearchKey;
use foxton_sync::backoff::Backoff;

/// Number of attempts before an empty leaf is left where it is. Other threads interfered each time;
/// an empty leaf that stays costs its memory, and readers one more step.
const ATTEMPTS: usize = 1000;

/// Unlinks the leaf of `key` if it is empty and not needed.
#[cold]
pub(crate) fn shrink<const N: usize>(tree: Pinned<'_, N>, key: &[u8]) {
    let mut backoff = Backoff::new();
    for _ in 0..ATTEMPTS {
        let path = try_path(tree, Target::Key(SearchKey::new(key)));
        if path.is_some_and(|steps| try_shrink(tree, &steps).is_some()) {
            return;
        }
        backoff.snooze();
    }
}

/// `None` if another thread interfered.
fn try_shrink<'g, const N: usize>(tree: Pinned<'g, N>, steps: &[DescentStep<'g, N>]) -> Option<()> {
    let leaf = steps.last().expect("a way ends in a leaf");
    if leaf.node.count() > 0 {
        // True once, which is enough: a thread that empties it again comes here again.
        return leaf
            .node
            .latch()
            .unchanged_since(leaf.version)
            .then_some(());
    }
    let latch = |step: &DescentStep<'g, N>| tree.try_latch(step.node, step.version);
    let has_others = |step: &DescentStep<'g, N>| step.node.level() > 0 && step.node.count() > 1;
    let Some(depth) = steps.iter().rposition(has_others) else {
        return Some(());
    };
    let mut parent = latch(&steps[depth])?;
    let mut chain: Vec<NodeWriteGuard<'g, N>> = steps[depth + 1..]
        .iter()
        .map(latch)
        .collect::<Option<_>>()?;
    // Links of a held leaf do not change.
    let neighbour = |node| match node {
        None => Some(None),
        Some(node) => latch_now(tree, node).map(Some),
    };
    let mut prev = neighbour(leaf.node.prev())?;
    let mut next = neighbour(leaf.node.next())?;
    parent.unlink(steps[depth].index, &mut chain, prev.as_mut(), next.as_mut());
    parent.shrink_root();
    Some(())
}

fn latch_now<'g, const N: usize>(
    tree: Pinned<'g, N>,
    node: &'g crate::memory::node::IndexNode<N>,
) -> Option<NodeWriteGuard<'g, N>> {
    tree.try_latch(node, node.latch().version()?)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::memory::node::{IndexNode, Pinned, TreeRoot};
    use crate::memory::record::NewRecord;
    use crate::memory::{Next, index, verify};
    use foxton_sync::epoch::Domain;

    fn nodes<const N: usize>(tree: Pinned<'_, N>) -> usize {
        let (mut open, mut count) = (vec![tree.root()], 0);
        while let Some(node) = open.pop() {
            count += 1;
            if node.level() > 0 {
                open.extend(node.children());
            }
        }
        count
    }

    fn append(tree: Pinned<'_, 4>, number: u64) {
        let record = NewRecord::new(&number.to_be_bytes(), None).expect("short");
        index::insert::insert(tree, record, Next::End).expect("the largest key so far");
    }

    fn take(tree: Pinned<'_, 4>, leaf: fn(&IndexNode<4>) -> usize, target: super::Target<'_>) {
        let (node, _) = index::descend::find_leaf(tree, target);
        let record = node
            .pointer(leaf(node))
            .expect("leaves in use are not empty")
            .record();
        index::remove::remove(tree, record, Next::Any).expect("a ghost");
    }

    #[test]
    fn a_queue_keeps_few_nodes() {
        let domain = Domain::new();
        let participant = domain.participant();
        let root = TreeRoot::<4>::new(&domain);
        for number in 0..20_000 {
            let guard = participant.pin();
            let tree = root.pin(&guard);
            append(tree, number);
            if number >= 50 {
                take(tree, |_| 0, super::Target::First);
            }
            if number % 1000 == 0 {
                assert!(nodes(tree) < 60, "{} nodes for 50 records", nodes(tree));
                verify::verify(tree);
            }
        }
    }

    #[test]
    fn a_table_emptied_in_order_is_one_leaf_again() {
        for end in [super::Target::First, super::Target::Last] {
            let domain = Domain::new();
            let participant = domain.participant();
            let root = TreeRoot::<4>::new(&domain);
            (0..1000).for_each(|number| append(root.pin(&participant.pin()), number));
            let guard = participant.pin();
            let tree = root.pin(&guard);
            let slot: fn(&IndexNode<4>) -> usize = match end {
                super::Target::First => |_| 0,
                _ => |leaf| leaf.count() - 1,
            };
            (0..1000).for_each(|_| take(tree, slot, end));
            assert_eq!(verify::verify(tree), 0);
            assert_eq!(nodes(tree), 1);
        }
    }
}
