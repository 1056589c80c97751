//! Models of what trees do with page latches: coupled descents, splits, and scans over two leaves.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use foxton_store::paged::frame::{LatchWaiters, PageLatch, order_scans};
use foxton_sync::shim::{Arc, AtomicU64, Ordering, thread};

/// A page with one word.
#[derive(Default)]
struct OneWord {
    latch: PageLatch,
    word: AtomicU64,
}

impl OneWord {
    fn read(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    fn write(&self, word: u64) {
        self.word.store(word, Ordering::Relaxed);
    }
}

/// Three pages: a parent with two leaves, of which the right one comes with a split.
#[derive(Default)]
struct Tree {
    waiters: LatchWaiters,
    /// Key from which on the right leaf has the keys; 0: there is no right leaf.
    parent: OneWord,
    /// A bit for each key. Bit 63 is the high fence of the left leaf: set if it ends at key 2.
    left: OneWord,
    right: OneWord,
}

const FENCE: u64 = 1 << 63;

/// Runs all of `bodies` at once, and then `judge`. Each body takes its turn as the first thread,
/// because the checker, bounded as it is, explores other executions for each.
fn check(bodies: &'static [fn(&Tree)], make: fn() -> Tree, judge: fn(&Tree)) {
    for first in 0..bodies.len() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let tree = Arc::new(make());
            let others: Vec<_> = (1..bodies.len())
                .map(|number| {
                    let (tree, body) = (tree.clone(), bodies[(first + number) % bodies.len()]);
                    thread::spawn(move || body(&tree))
                })
                .collect();
            bodies[first](&tree);
            others.into_iter().for_each(|other| other.join().unwrap());
            judge(&tree);
        });
    }
}

/// A leaf with the keys 1 and 2.
fn unsplit() -> Tree {
    let tree = Tree::default();
    tree.left.write(1 << 1 | 1 << 2);
    tree
}

/// Moves key 2 to the right leaf, as an SMO does: parent, left, right are latched until all have
/// changed.
fn split(tree: &Tree) {
    let Some(parent) = tree.parent.latch.version() else {
        return;
    };
    let Some(left) = tree.left.latch.version() else {
        return;
    };
    if !tree.parent.latch.try_lock_at(parent) {
        return;
    }
    if !tree.left.latch.try_lock_at(left) {
        tree.parent.latch.unlock_unchanged(&tree.waiters);
        return;
    }
    tree.right.latch.lock(&tree.waiters);
    tree.parent.write(2);
    tree.left.write(tree.left.read() & !(1 << 2) | FENCE);
    tree.right.write(1 << 2);
    tree.right.latch.unlock(&tree.waiters);
    tree.left.latch.unlock(&tree.waiters);
    tree.parent.latch.unlock(&tree.waiters);
}

/// Looks for key 2 once. If all validations succeed it is found, and fences are as the parent says.
fn find(tree: &Tree) {
    let Some(parent) = tree.parent.latch.version() else {
        return;
    };
    let separator = tree.parent.read();
    let leaf = match separator {
        0 => &tree.left,
        _ => &tree.right,
    };
    let Some(seen) = leaf.latch.version() else {
        return;
    };
    // The coupling: the parent is validated behind the version of the child.
    if !tree.parent.latch.unchanged_since(parent) {
        return;
    }
    let word = leaf.read();
    if leaf.latch.unchanged_since(seen) {
        assert!(word & 1 << 2 != 0, "a key is lost between two pages");
        assert!(word & FENCE == 0, "the fences are those of the parent");
    }
}

#[test]
fn a_coupled_descent_finds_a_key_that_a_split_moves() {
    check(&[find, split], unsplit, |_| {});
}

#[test]
fn two_splits_exclude_each_other() {
    check(&[split, split], unsplit, |tree| {
        if tree.parent.read() == 2 {
            assert_eq!(
                (tree.left.read(), tree.right.read()),
                (1 << 1 | FENCE, 1 << 2)
            );
        } else {
            assert_eq!((tree.left.read(), tree.right.read()), (1 << 1 | 1 << 2, 0));
        }
    });
}

/// Inserts a key into `own`, unless the leaf to the right has one: latches, then compares.
fn insert_left(tree: &Tree) {
    let Some(seen) = tree.right.latch.version() else {
        return;
    };
    let right = tree.right.read();
    if !tree.right.latch.unchanged_since(seen) || right != 0 || !tree.left.latch.try_lock() {
        return;
    }
    order_scans();
    // Its next key is behind both leaves. If one came to the right, its gap has another name.
    if tree.right.latch.unchanged_since(seen) {
        tree.left.write(1);
        tree.left.latch.unlock(&tree.waiters);
    } else {
        tree.left.latch.unlock_unchanged(&tree.waiters);
    }
}

fn insert_right(tree: &Tree) {
    if tree.right.latch.try_lock() {
        tree.right.write(1);
        tree.right.latch.unlock(&tree.waiters);
    }
}

/// Reads both leaves and validates both. If it sees the right key and not the left one, the gap
/// before the right key is its own: no left key may come that did not see the right one.
fn scan(tree: &Tree) {
    let (Some(left), Some(right)) = (tree.left.latch.version(), tree.right.latch.version()) else {
        return;
    };
    let seen = (tree.left.read(), tree.right.read());
    order_scans();
    let is_valid = tree.left.latch.unchanged_since(left) && tree.right.latch.unchanged_since(right);
    if is_valid && seen == (0, 1) {
        tree.parent.write(1);
    }
}

/// Number of executions in which the scanner locked the gap. The checker does not see this counter.
static LOCKED_GAPS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn o5_a_scanner_sees_the_latch_or_its_holder_sees_what_the_scanner_saw() {
    check(&[scan, insert_left, insert_right], Tree::default, |tree| {
        let has_locked_the_gap = tree.parent.read() == 1;
        LOCKED_GAPS.fetch_add(usize::from(has_locked_the_gap), Relaxed);
        assert!(!has_locked_the_gap || tree.left.read() == 0, "a phantom");
    });
    assert!(LOCKED_GAPS.load(Relaxed) > 0, "the case was not reached");
}
