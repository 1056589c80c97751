//! Verification of a tree.

use super::node::{IndexNode, Pinned};
use super::search_key;
use std::ptr;

/// A node, and the range that its parents give it: from the first key on, up to the second.
type Ranged<'g, const N: usize> = (&'g IndexNode<N>, &'g [u8], Option<&'g [u8]>);

/// Panics if an invariant of the tree is broken. No thread may change it meanwhile.
///
/// Returns the number of records.
pub(super) fn verify<const N: usize>(tree: Pinned<'_, N>) -> usize {
    let mut nodes: Vec<Ranged<'_, N>> = vec![(tree.root(), &[], None)];
    for level in (0..=tree.root().level()).rev() {
        for (node, ..) in &nodes {
            assert_eq!(node.level(), level, "a child is one level below its parent");
            assert!(node.latch().version().is_some(), "nobody holds a latch");
            for slot in node.count()..N {
                assert!(is_null(node, slot), "slots above the count are null");
                assert_eq!(node.head(slot), u64::MAX, "and have the largest head");
            }
        }
        if level == 0 {
            break;
        }
        nodes = nodes.into_iter().flat_map(children).collect();
    }
    let mut before: Option<&IndexNode<N>> = None;
    let mut records = 0;
    for (leaf, from, to) in nodes {
        verify_records(leaf, from, to);
        assert!(same(leaf.prev(), before), "a leaf's link to the left");
        if let Some(before) = before {
            assert!(
                same(before.next(), Some(leaf)),
                "a leaf's link to the right"
            );
        }
        before = Some(leaf);
        records += leaf.count();
    }
    assert!(
        before.is_some_and(|last| last.next().is_none()),
        "the last leaf ends the chain"
    );
    records
}

fn children<'g, const N: usize>((node, from, to): Ranged<'g, N>) -> Vec<Ranged<'g, N>> {
    assert!(node.count() > 0, "a branch has a child");
    assert_eq!(node.head(0), 0, "slot 0 stands for everything below slot 1");
    let child = |slot| node.child(slot).expect("a slot in use has a child");
    // Slot 0 has the branch's own lower end, whatever its child's low key.
    let low = |slot: usize| if slot == 0 { from } else { child(slot).low() };
    for slot in 1..node.count() {
        let key = low(slot);
        let rest = without_prefix(node, key);
        assert_eq!(
            node.head(slot),
            search_key::head(rest),
            "the head of a separator"
        );
        assert_eq!(
            node.tag(slot),
            search_key::tag(rest),
            "the tag of a separator"
        );
        assert!(low(slot - 1) < key, "separators rise");
        assert!(
            to.is_none_or(|to| key < to),
            "separators are in the branch's range"
        );
    }
    let end = |slot: usize| {
        if slot + 1 < node.count() {
            Some(low(slot + 1))
        } else {
            to
        }
    };
    (0..node.count())
        .map(|slot| (child(slot), low(slot), end(slot)))
        .collect()
}

fn verify_records<const N: usize>(leaf: &IndexNode<N>, from: &[u8], to: Option<&[u8]>) {
    let mut before: Option<&[u8]> = None;
    for slot in 0..leaf.count() {
        let record = leaf
            .pointer(slot)
            .expect("a slot in use has a record")
            .record();
        let key = record.key();
        assert!(record.is_linked(), "a record in the tree is linked");
        record.verify();
        let rest = without_prefix(leaf, key);
        assert_eq!(
            leaf.head(slot),
            search_key::head(rest),
            "the head of a record"
        );
        assert_eq!(leaf.tag(slot), search_key::tag(rest), "the tag of a record");
        assert!(before.is_none_or(|before| before < key), "keys rise");
        assert!(
            from <= key && to.is_none_or(|to| key < to),
            "keys are in their leaf's range"
        );
        before = Some(key);
    }
}

fn without_prefix<'k, const N: usize>(node: &IndexNode<N>, key: &'k [u8]) -> &'k [u8] {
    let rest = node.prefix().strip(&search_key::SearchKey::new(key));
    rest.expect("keys begin with their node's prefix").bytes
}

fn is_null<const N: usize>(node: &IndexNode<N>, slot: usize) -> bool {
    match node.level() {
        0 => node.pointer(slot).is_none(),
        _ => node.child(slot).is_none(),
    }
}

fn same<const N: usize>(left: Option<&IndexNode<N>>, right: Option<&IndexNode<N>>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => ptr::eq(left, right),
        (None, None) => true,
        _ => false,
    }
}
